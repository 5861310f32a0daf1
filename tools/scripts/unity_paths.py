#!/usr/bin/env python3
"""Makes the unity sources of a Meson build folder name their members by relative paths.

usage: unity_paths.py BUILD_DIR

Meson writes absolute ones, so the same sources in another folder were other sources to ccache. Files that are relative
already are left alone. members() tells tests/lint/tidy.py what is in one.
"""
import os
import re
import sys

MEMBER = re.compile(r'^#include\s*[<"]([^>"]+)[>"]', re.M)


def unity_sources(build):
    for folder, _, names in os.walk(build):
        yield from (os.path.join(folder, n) for n in names if re.search(r"-unity\d+\.cpp$", n))


def members(source):
    """Real paths of the files that a unity source is made of."""
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
