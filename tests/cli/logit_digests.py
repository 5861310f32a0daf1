#!/usr/bin/env python3
"""The logits of every conformance case, for prefill and decode, are bit for bit the recorded ones.

usage: FORGE_BIN=DIR logit_digests.py DIGESTS CONFORMANCE [--record]     or $FORGE_SHARED/conformance, where that is set
  --record   writes the current digests into DIGESTS, for the CPU classes that this machine runs

DIGESTS has one line per case: name, CPU class, prefill or decode, SHA-256 of the logits (f32, little-endian). A change
that alters bits on purpose records them again and says so. CPU classes that this machine cannot run are not compared,
because their logits cannot be computed here.
"""
import hashlib
import json
import os
import sys

from lib_cli import at, case, finish, skip, tool

CLASSES = ("generic", "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "x86-64-v4-vnni-bf16", "x86-64-v4-vnni-amx",
           "armv8-neon", "armv8-neon-dotprod")


_runs = {}


def runs_here(cpu, plan, model):
    """True if the machine runs the CPU class. A plan of another class is recompiled, with a note. Tried once per class."""
    if cpu not in _runs:
        _runs[cpu] = tries(plan, model)
    return _runs[cpu]


def tries(plan, model):
    run = tool("run", plan, "--model", model, "--tokens", "1", "--dump-logits", at("logits"), "--device", "cpu")
    return run.returncode == 0 and b"compiled again" not in run.stderr


def digests(name, model, tokens):
    """Digests of one case: {(name, class, mode): digest}."""
    found = {}
    for cpu in CLASSES:
        plan, out = at("case.plan"), at("logits")
        made = tool("compile", model, "-o", plan, "--target", "cpu-" + cpu, "--force")
        case(f"{name} compiles for {cpu}", made.returncode == 0, made.stderr)
        if made.returncode != 0 or not runs_here(cpu, plan, model):
            continue
        for mode in ("prefill", "decode"):
            run = tool("run", plan, "--model", model, "--tokens", tokens, "--dump-logits", out, "--device", "cpu",
                       *(["--decode"] if mode == "decode" else []))
            if case(f"{name} runs on {cpu}, {mode}", run.returncode == 0, run.stderr):
                with open(out, "rb") as file:
                    found[name, cpu, mode] = hashlib.sha256(file.read()).hexdigest()
    return found


def read(path):
    lines = open(path, encoding="ascii").read().splitlines() if os.path.exists(path) else []
    return {tuple(fields[:3]): fields[3] for fields in (line.split() for line in lines if line and line[0] != "#")}


def main():
    path, folder = sys.argv[1:3]
    if shared := os.environ.get("FORGE_SHARED"):
        folder = os.path.join(shared, "conformance")
    if not os.path.isdir(folder):
        skip("logits of the conformance cases", f"reference data is absent: {folder}")
        return finish()
    now = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".json"):
            model = os.path.join(folder, file[:-5] + ".gguf")
            tokens = json.load(open(os.path.join(folder, file), encoding="utf-8"))["tokens"]
            now |= digests(file[:-5], model, ",".join(map(str, tokens)))
    known = read(path)
    if "--record" in sys.argv[3:]:
        with open(path, "w", encoding="ascii") as file:
            file.write("# case, class of CPU, mode, SHA-256 of the logits: logit_digests.py --record\n")
            file.writelines(" ".join((*key, digest)) + "\n" for key, digest in sorted((known | now).items()))
        return finish()
    for cpu in sorted({cpu for _, cpu, _ in known} - {cpu for cpu, runs in _runs.items() if runs}):
        skip(f"logits by {cpu}", "this machine does not run it")
    compared = {key for key in known if _runs.get(key[1])}
    case("recorded cases are present", len(compared) >= 2, f"{len(compared)} of {len(now)}")
    for key in sorted(compared):
        case(" ".join(key), now.get(key) == known[key], f"{now.get(key)} instead of {known[key]}")
    return finish()


main()
