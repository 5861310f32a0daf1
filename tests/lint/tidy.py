#!/usr/bin/env python3
"""clang-tidy over the project's own sources (tests aside), in parallel, each file once as long as it does not change.

usage: tidy.py ROOT BUILD_DIR [-j JOBS] [--clang-tidy PROGRAM] [FILE...]

BUILD_DIR holds compile_commands.json and generated headers. A file that was clean is remembered there by a digest of
itself, the project headers it reaches, the configuration and the compile command, so a second run takes a moment.
Findings are printed as clang-tidy words them, each once; exit 1 if there are any.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time

FOLDERS = ("codegen/", "ir/", "kernels/", "loader/", "passes/", "runtime/", "serve/", "support/", "tools/")
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.M)
SECONDS_MAX = 900  # against hangs alone


def reach(path, roots, seen):
    """Adds to `seen` (path -> bytes) the file and all project headers that it includes, directly or not."""
    if path in seen:
        return
    with open(path, "rb") as f:
        seen[path] = f.read()
    for name in INCLUDE.findall(seen[path]):
        for root in (*roots, os.path.dirname(path)):
            header = os.path.normpath(os.path.join(root, name.decode()))
            if os.path.isfile(header):
                reach(header, roots, seen)
                break


def digest(path, command, roots, config):
    seen = {}
    reach(path, roots, seen)
    h = hashlib.sha256(config + command.encode())
    for name in sorted(seen):
        h.update(name.encode() + b"\0" + hashlib.sha256(seen[name]).digest())
    return h.hexdigest()


def tidy(program, path, root, build):
    try:
        # A library built with precompiled headers includes pch.h by name, which g++ finds beside its .gch alone.
        headers = "--extra-arg=-I" + os.path.join(root, "support")
        command = [program, "--quiet", headers, "-p", build, path]
        r = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return False, f"{path}: clang-tidy took more than {SECONDS_MAX} s"
    crashed = r.returncode != 0 and "error:" not in r.stdout
    return r.returncode == 0, r.stdout + (r.stderr[-2000:] if crashed else "")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("root")
    p.add_argument("build")
    p.add_argument("-j", type=int, default=os.cpu_count())
    p.add_argument("--clang-tidy", default="clang-tidy", metavar="PROGRAM", help="23 or later: it skips system headers")
    p.add_argument("files", nargs="*")
    a = p.parse_args()
    root, build = os.path.realpath(a.root), os.path.realpath(a.build)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        commands = {os.path.realpath(os.path.join(c["directory"], c["file"])): c["command"] for c in json.load(f)}
    wanted = [os.path.realpath(os.path.join(root, f)) for f in a.files] or sorted(
        c for c in commands if os.path.relpath(c, root).startswith(FOLDERS)
    )
    with open(os.path.join(root, ".clang-tidy"), "rb") as f:
        config = f.read() + subprocess.run([a.clang_tidy, "--version"], capture_output=True, check=True).stdout
    clean = os.path.join(build, "tidy-clean")
    os.makedirs(clean, exist_ok=True)
    generated = [d for d, _, names in os.walk(build) if any(n.endswith(".h") for n in names)]
    digests = {c: digest(c, commands.get(c, ""), [root, build, *generated], config) for c in wanted}
    todo = [c for c in wanted if not os.path.exists(os.path.join(clean, digests[c]))]
    begun, failed, printed = time.monotonic(), 0, set()
    with concurrent.futures.ThreadPoolExecutor(a.j) as pool:
        for path, (ok, text) in zip(todo, pool.map(lambda c: tidy(a.clang_tidy, c, root, build), todo)):
            if ok:
                open(os.path.join(clean, digests[path]), "w").close()
            else:
                failed += 1
                # A finding in a header comes back with every file that includes it.
                for finding in re.split(r"^(?=\S+:\d+:\d+: (?:error|warning):)", text, flags=re.M):
                    if finding not in printed:
                        print(finding, end="", flush=True)
                    printed.add(finding)
    print(f"{len(wanted)} files, {len(todo)} of them looked at in {time.monotonic() - begun:.0f} s, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
