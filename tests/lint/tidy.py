#!/usr/bin/env python3
"""Runs clang-tidy over the project's sources (without tests) in parallel, each file only if it has changed.

usage: tidy.py ROOT BUILD_DIR [-j JOBS] [--clang-tidy PROGRAM] [--proofs FILE [--record]] [FILE...]

BUILD_DIR holds compile_commands.json and the generated headers. It may be a unity build: each source is checked
separately, with the flags it would have on its own. A file without findings is recorded in BUILD_DIR by a digest of itself,
the project headers that it reaches, the configuration, clang-tidy's version and the compile command, so a second run takes
a moment. Digests in proofs.py's FILE count too; --record adds those of the files that have no findings now.
Findings are printed in clang-tidy's wording, each once; exit 1 if there are any.
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

sys.path[:0] = [os.path.join(os.path.dirname(__file__), *up) for up in (("..",), ("..", "..", "tools", "scripts"))]
import proofs  # noqa: E402
import unity_paths  # noqa: E402

FOLDERS = ("codegen/", "ir/", "kernels/", "loader/", "passes/", "runtime/", "serve/", "session/", "support/", "text/", "tools/")
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.M)
SECONDS_MAX = 900  # only against hangs


def reach(path, roots, seen):
    """Adds to `seen` (path -> bytes) the file and all project headers that it includes, directly or indirectly."""
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


def single_commands(build):
    """Path -> (compile command, its flags that affect the code) of every source, also of those within unity sources."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        entries = json.load(f)
    found = {}
    for entry in entries:
        source = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        parts = unity_paths.members(source) if "-unity" in os.path.basename(source) else [source]
        shaping = re.sub(r" -(?:o|MQ|MF|I|c) ?\S+| -MD", "", entry["command"])
        for part in parts:
            found[part] = (entry["command"].replace(f" -c {entry['file']}", f" -c {part}"), shaping)
    return found


def write_commands(folder, build, commands):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as f:
        json.dump([{"directory": build, "file": p, "command": c} for p, (c, _) in commands.items()], f)


def digest(path, command, roots, config):
    """A digest that does not depend on folder locations. roots: those of the project, the build and the generated headers."""
    seen = {}
    reach(path, roots, seen)
    h = hashlib.sha256(config + command.encode())
    for name in sorted(seen, key=lambda name: relative(name, roots)):
        h.update(relative(name, roots).encode() + b"\0" + hashlib.sha256(seen[name]).digest())
    return h.hexdigest()


def relative(path, roots):
    build = roots[1] + os.sep
    return "build/" + path[len(build):] if path.startswith(build) else os.path.relpath(path, roots[0])


def tidy(program, path, root, build):
    try:
        command = [program, "--quiet", "-p", build, path]
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
    p.add_argument("--proofs", metavar="FILE", help="what is known to be clean; see tests/proofs.py")
    p.add_argument("--record", action="store_true", help="write into FILE what is clean now")
    p.add_argument("files", nargs="*")
    a = p.parse_args()
    root, build = os.path.realpath(a.root), os.path.realpath(a.build)
    commands = single_commands(build)
    wanted = [os.path.realpath(os.path.join(root, f)) for f in a.files] or sorted(
        c for c in commands if os.path.relpath(c, root).startswith(FOLDERS)
    )
    version = subprocess.run([a.clang_tidy, "--version"], capture_output=True, check=True).stdout
    with open(os.path.join(root, ".clang-tidy"), "rb") as f:
        config = f.read() + b"".join(re.findall(rb"version \S+", version))
    clean = os.path.join(build, "tidy-clean")
    database = os.path.join(build, "tidy-commands")
    os.makedirs(clean, exist_ok=True)
    write_commands(database, build, commands)
    generated = sorted(d for d, _, names in os.walk(build) if any(n.endswith(".h") for n in names))
    digests = {c: digest(c, commands.get(c, ("", ""))[1], [root, build, *generated], config) for c in wanted}
    proved = set(proofs.read(a.proofs, "tidy").values()) if a.proofs else set()
    todo = [c for c in wanted if digests[c] not in proved and not os.path.exists(os.path.join(clean, digests[c]))]
    begun, dirty, printed = time.monotonic(), set(), set()
    with concurrent.futures.ThreadPoolExecutor(a.j) as pool:
        for path, (ok, text) in zip(todo, pool.map(lambda c: tidy(a.clang_tidy, c, root, database), todo)):
            if ok:
                open(os.path.join(clean, digests[path]), "w").close()
            else:
                dirty.add(path)
                # A finding in a header is repeated for every file that includes it.
                for finding in re.split(r"^(?=\S+:\d+:\d+: (?:error|warning):)", text, flags=re.M):
                    if finding not in printed:
                        print(finding, end="", flush=True)
                    printed.add(finding)
    if a.record and not a.files:
        proofs.write(a.proofs, "tidy", {os.path.relpath(c, root): digests[c] for c in wanted if c not in dirty})
    took = time.monotonic() - begun
    print(f"{len(wanted)} files, {len(todo)} of them looked at in {took:.0f} s, {len(dirty)} with findings")
    return 1 if dirty else 0


if __name__ == "__main__":
    sys.exit(main())
