#!/usr/bin/env python3
"""forge-run --repack-cache: a second start maps the packed weights, also when several processes start at once.

usage: FORGE_BIN=DIR packed.py
"""
import json
import os
import shutil
import subprocess

from lib_cli import BIN, CACHE, GUARD, at, case, environment, finish, said, tiny, tool

model = tiny(context=512)
FOLDER = os.path.join(CACHE, "weights")
ARGS = ("--tokens", "1,2,3", "-n", 6, "--json", "--device", "cpu", "--repack-cache")


def answer(run):
    found = json.loads(run.stdout) if run.returncode == 0 else {"tokens": None, "load": {"mapped_bytes": -1}}
    return found["tokens"], found["load"]["mapped_bytes"], found.get("memory", {}).get("weights")


def kept():
    return sorted(os.listdir(FOLDER)) if os.path.isdir(FOLDER) else []


def starts():
    plain = answer(tool("run", model, *ARGS[:-1]))
    case("without the option nothing is kept", plain[1] == 0 and not kept(), plain)
    first, second = tool("run", model, *ARGS), tool("run", model, *ARGS, "-c", 128)
    case("the first start packs the weights and keeps them", answer(first)[:2] == (plain[0], 0) and len(kept()) == 1, first.stderr)
    case("the second start maps them, also with another context", answer(second) == (plain[0], plain[2], plain[2])
         and not said(second), second.stderr)
    bench = tool("bench", model, "-p", 4, "-n", 0, "-r", 1, "-o", "json", "--device", "cpu", "--repack-cache", "-t", 1)
    case("forge-bench has the option", bench.returncode == 0 and not said(bench) and len(kept()) == 1, bench.stderr)
    made = tool("bench", "--synthetic", "tiny:q8_0", "--repack-cache")
    case("it is refused for a temporary model", made.returncode == 2 and len(said(made)) == 1, made.stderr)


def another_model_in_its_place():
    """A model with equal metadata and tensor table but other weights must not get the kept weights."""
    before = answer(tool("run", model, *ARGS))
    os.replace(tiny("other.gguf", seed=2, context=512), model)
    expected = answer(tool("run", model, *ARGS[:-1]))
    run = tool("run", model, *ARGS)
    case("other weights are packed again, and one line says so", answer(run)[:2] == (expected[0], 0) and expected[0] != before[0]
         and len(said(run)) == 1 and "changed" in said(run)[0], run.stderr)
    case("the new weights are kept", answer(tool("run", model, *ARGS)) == (expected[0], expected[2], expected[2]) and len(kept()) == 1, kept())


def damaged():
    expected = answer(tool("run", model, *ARGS))
    path = os.path.join(FOLDER, kept()[0])
    for size in (os.path.getsize(path) // 2, 3):
        os.truncate(path, size)
        run = tool("run", model, *ARGS)
        case(f"cut to {size} bytes", answer(run)[:2] == (expected[0], 0) and len(said(run)) == 1, run.stderr)
        case("a damaged file is replaced", answer(tool("run", model, *ARGS)) == expected)


def together():
    shutil.rmtree(FOLDER)
    command = [os.path.join(BIN, "forge-run"), model, *map(str, ARGS)]
    runs = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=environment()) for _ in range(6)]
    outputs = [run.communicate(timeout=GUARD) for run in runs]
    tokens = {str(json.loads(out)["tokens"]) for out, _ in outputs if out}
    case("6 concurrent processes agree", all(run.returncode == 0 for run in runs) and len(tokens) == 1, outputs)
    case("none of them prints a note", not any(b"cache" in err for _, err in outputs), outputs)
    case("they leave one file", len(kept()) == 1 and kept()[0].endswith(".weights"), kept())
    case("that file is mapped", answer(tool("run", model, *ARGS))[1] > 0)


def no_folder():
    shutil.rmtree(FOLDER)
    with open(FOLDER, "w", encoding="utf-8"):
        pass
    run = tool("run", model, *ARGS)
    case("a folder that cannot be created gives one line", answer(run)[1] == 0 and len(said(run)) == 1 and "weights" in said(run)[0], run.stderr)
    os.remove(FOLDER)
    small = tool("run", model, *ARGS, env=environment(FORGE_CACHE_MAX_BYTES="1000"))
    case("weights larger than the cache limit give one line", answer(small)[1] == 0 and sum("packed weights" in line for line in said(small)) == 1
         and not kept(), small.stderr)


def cleared():
    tool("run", model, *ARGS)
    shown = json.loads(tool("inspect", "cache", "--json").stdout)
    case("forge-inspect cache reports the contents", shown["weights"]["files"] == 1 and shown["plans"]["files"] >= 1
         and shown["weights"]["bytes"] == os.path.getsize(os.path.join(FOLDER, kept()[0])) and shown["folder"] == CACHE, shown)
    text = tool("inspect", "cache").stdout.decode()
    case("the text output does too", CACHE in text and "--clear" in text, text)
    foreign = os.path.join(FOLDER, "notes.txt")
    shutil.copy(model, foreign)
    run = tool("inspect", "cache", "--clear", "weights")
    case("--clear removes packed weights alone, and no foreign file", run.returncode == 0 and kept() == ["notes.txt"]
         and any(name.endswith(".plan") for name in os.listdir(CACHE)), (run.stderr, kept()))
    os.remove(foreign)
    run = tool("inspect", "cache", "--clear", "all")
    case("--clear all removes everything", run.returncode == 0 and not any(name.endswith(".plan") for name in os.listdir(CACHE)), run.stderr)
    case("the cache is filled again", answer(tool("run", model, *ARGS))[0] and len(kept()) == 1)
    bad = tool("inspect", "cache", "--clear", "everything")
    case("an unknown kind is refused", bad.returncode == 2 and len(said(bad)) == 1, bad.stderr)
    empty = tool("inspect", "cache", "--json", env=environment(FORGE_CACHE_DIR=at("nowhere")))
    case("a missing cache counts as empty", json.loads(empty.stdout)["plans"]["files"] == 0, empty.stderr)


if __name__ == "__main__":
    for group in (starts, another_model_in_its_place, damaged, together, no_folder, cleared):
        group()
    finish()
