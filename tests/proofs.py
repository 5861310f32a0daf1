#!/usr/bin/env python3
"""Records which checks have passed on which contents, so that they are not repeated until something changes: tests/proofs.txt.

A line is 'STAGE NAME DIGEST'. The digest covers everything that the check depends on; the stage itself computes it. The
file is under version control, so a fresh checkout has it too. `tools/check --record` writes it after the stages have
passed. If a digest differs or a line is missing, the check simply runs again.

usage: proofs.py digest ROOT PATH...                   the digest of files, and of all files in folders, in any order; without
                                                      files, and what is in folders, that are given as !PATH
       proofs.py has FILE STAGE NAME DIGEST            exit 0 if that line is in FILE
       proofs.py record FILE STAGE NAME DIGEST         replaces all lines of STAGE
"""
import hashlib
import os
import sys


def rows(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [tuple(line.split()) for line in file if line.strip() and not line.startswith("#")]


def read(path, stage):
    """Name -> digest."""
    return {name: digest for known, name, digest in rows(path) if known == stage}


def write(path, stage, found):
    kept = [row for row in rows(path) if row[0] != stage]
    lines = [" ".join(row) for row in sorted(kept + [(stage, name, digest) for name, digest in found.items()])]
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write("# Written by `tools/check --record`; tests/proofs.py says what it means.\n" + "\n".join(lines) + "\n")
    os.replace(path + ".new", path)


def digest_of(root, paths):
    files = set()
    without = {os.path.join(root, path[1:]) for path in paths if path.startswith("!")}
    for path in (path for path in paths if not path.startswith("!")):
        full = os.path.join(root, path)
        if os.path.isdir(full):
            for folder, folders, names in os.walk(full):
                folders[:] = [f for f in folders if f != "__pycache__" and os.path.join(folder, f) not in without]
                files.update(os.path.join(folder, name) for name in names)
        else:
            files.add(full)
    files -= without
    h = hashlib.sha256()
    for name in sorted(files, key=lambda name: os.path.relpath(name, root)):
        with open(name, "rb") as file:
            h.update(os.path.relpath(name, root).encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return h.hexdigest()


def main(words):
    if len(words) >= 3 and words[0] == "digest":
        print(digest_of(words[1], words[2:]))
        return 0
    if len(words) == 5 and words[0] == "has":
        return 0 if read(words[1], words[2]).get(words[3]) == words[4] else 1
    if len(words) == 5 and words[0] == "record":
        write(words[1], words[2], {words[3]: words[4]})
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
