#!/usr/bin/env python3
"""The plan cache shared by processes: only one of them compiles, and a killed compile never breaks the cache.

usage: FORGE_BIN=DIR cache.py
"""
import os
import signal
import stat
import subprocess
import time

from lib_cli import BIN, CACHE, GUARD, Random, case, environment, finish, tiny, tool

model = tiny(layers=24)  # compiling takes long enough to be interrupted


def start(name, *args):
    return subprocess.Popen([os.path.join(BIN, "forge-" + name), *map(str, args)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())


def plans():
    return [name for name in os.listdir(CACHE) if name.endswith(".plan")] if os.path.isdir(CACHE) else []


def together():
    runs = [start("compile", model) for _ in range(8)]
    notes = [run.communicate(timeout=GUARD)[1].decode() for run in runs]
    case("8 processes on an empty cache all succeed", all(run.returncode == 0 for run in runs), notes)
    case("only one of them compiles", sum("compiled in" in text for text in notes) == 1, notes)
    case("the cache has one entry", len(plans()) == 1, plans())
    case("the cache is accessible to its owner only", stat.S_IMODE(os.stat(CACHE).st_mode) == 0o700)
    runs = [start("run", model, "--tokens", "1,2,3", "-n", 4, "--json", "-c", 512) for _ in range(8)]
    outputs = [run.communicate(timeout=GUARD)[0].decode() for run in runs]
    tokens = {text.split('"tokens": ')[1].split("]")[0] for text in outputs if '"tokens": ' in text}
    case("8 runs with a new key agree", len(outputs) == 8 and len(tokens) == 1, outputs)


def killed():
    expected = tool("run", model, "--raw", "-p", "abc", "-n", 4, "--temp", 0).stdout
    begin = time.monotonic()
    case("--force compiles again", tool("compile", model, "--force").returncode == 0)
    took = time.monotonic() - begin
    random = Random(7)
    failures = []
    for i in range(50):
        run = start("compile", model, "--force")
        time.sleep(took * 1.1 * (random.next() % 1000) / 1000)
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=GUARD)
        after = tool("run", model, "--raw", "-p", "abc", "-n", 4, "--temp", 0)
        if after.returncode != 0 or after.stdout != expected or b"warning" in after.stderr:
            failures.append((i, after.returncode, after.stderr))
    case("the cache works after 50 killed compiles", not failures, failures[:3])
    tool("compile", model, "--force")
    left = [name for name in os.listdir(CACHE) if name.endswith(".tmp")]
    case("a completed compile leaves no temporary files", not left, left)


if __name__ == "__main__":
    together()
    killed()
    finish()
