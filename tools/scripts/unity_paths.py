#!/usr/bin/env python3
"""Rewrites the unity sources of a Meson build folder so that they include their members by relative paths.

usage: unity_paths.py BUILD_DIR

Meson writes absolute paths, with which ccache would not recognise the same sources in another folder. Files that have
relative paths already are not written. tests/lint/tidy.py uses members() to find the sources in a unity file.
"""
import os
import re
import sys

MEMBER = re.compile(r'^#include\s*[<"]([^>"]+)[>"]', re.M)


def unity_sources(build):
    for folder, _, names in os.walk(build):
        yield from (os.path.join(folder, n) for n in names if re.search(r"-unity\d+\.cpp$", n))


def members(source):
    """Real paths of the files that a unity source includes."""
    with open(source, encoding="utf-8") as file:
        return [os.path.realpath(os.path.join(os.path.dirname(source), m)) for m in MEMBER.findall(file.read())]


def main():
    for source in unity_sources(os.path.realpath(sys.argv[1])):
        folder = os.path.dirname(source)
        text = "".join(f'#include "{os.path.relpath(m, folder)}"\n' for m in members(source))
        with open(source, encoding="utf-8") as file:
            if file.read() == text:
                continue
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
