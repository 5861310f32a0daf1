#!/usr/bin/env python3
"""Kernel choices measured on a card (forge-bench --tune) as later compilations use them, with a file in place of a
measurement, and the command's bad input. No GPU is needed.

usage: FORGE_BIN=DIR tuned.py
"""
import json
import os
import re

from lib_cli import CACHE, at, case, environment, finish, said, skip, tiny, tool

model = tiny(context=512)
plan = at("m.plan")
CARD = "Card of a Test"


def refused(name, status, words, program, *args):
    run = tool(program, *args)
    case(f"{name}: one line, the right exit status", run.returncode == status and len(said(run)) == 1, (run.returncode, run.stderr))
    case(f"{name}: it says why", all(word.encode() in run.stderr for word in words), run.stderr)
    return run.stderr.decode()


def compiled(*args):
    run = tool("compile", model, "-o", plan, "-c", 64, "--target", "gfx1100", *args)
    case(f"compile {' '.join(args)}", run.returncode == 0, run.stderr)
    shown = tool("inspect", plan).stdout.decode().split("kernel choices given:\n")
    # JSON has the text as it was given.
    options = json.loads(tool("inspect", plan, "--json").stdout)["programs"][0]["options"]
    lines = [line.strip() for line in shown[1].splitlines() if re.match(r"    \S+:( \w+=\d+)+$", line)] if len(shown) > 1 else []
    return lines, options.partition(" tune=")[2]


def bad_input():
    refused("an unknown key", 2, ["waved", "the keys are", "waves"], "bench", model, "--tune", "waved=4", "--device", "cpu", "-p", 4, "-n", 0)
    refused("no number", 2, ["is not KEY=NUMBER"], "bench", model, "--tune", "waves=four", "--device", "cpu", "-p", 4, "-n", 0)
    for args in ([model, "--tune"], ["--tune", model], [model, "--tune", "--device", "cpu"]):
        refused(f"tuning a CPU: {len(args)}", 2, ["--tune measures a GPU"], "bench", *args, *([] if "--device" in args else ["--device", "cpu"]))
    refused("--roofline", 2, ["--tune without a list excludes"], "bench", model, "--tune", "--roofline")
    refused("--deterministic", 2, ["--tune without a list excludes"], "bench", model, "--tune", "--deterministic")
    refused("--compare", 2, ["--tune without a list excludes"], "bench", "--tune", "--compare", "a.json", "b.json")
    refused("--tune-seconds alone", 2, ["needs --tune"], "bench", model, "--tune-seconds", 5)
    refused("--tune-seconds with a list", 2, ["needs --tune"], "bench", model, "--tune", "rows=4", "--tune-seconds", 5)
    refused("no model", 2, ["MODEL is required"], "bench", "--tune")
    refused("--tuned-for a CPU", 2, ["needs one GPU"], "compile", model, "-o", plan, "--target", "cpu", "--tuned-for", CARD)
    refused("--tuned-for two targets", 2, ["needs one GPU"], "compile", model, "-o", plan, "--target", "gfx1100,gfx942", "--tuned-for", CARD)
    refused("--tuned-for and --no-tuned", 2, ["exclude each other"], "compile", model, "-o", plan, "--target", "gfx1100",
            "--tuned-for", CARD, "--no-tuned")
    run = tool("bench", model, "--device", "cpu", "-p", 4, "-n", 0, "-r", 1, "--no-tuned")
    case("--no-tuned changes nothing on a CPU", run.returncode == 0, run.stderr)
    case("the help says what both forms of --tune do", all(word in tool("bench", "--help").stdout for word in (b"--tune without a list", b"--no-tuned")))


def stored():
    told = refused("no file", 2, [CARD, "gfx1100", "there is no file", "forge-bench MODEL --tune"], "compile", model, "-o", plan, "-c", 64,
                   "--target", "gfx1100", "--tuned-for", CARD)
    path = re.search(r"there is no file (\S+\.tuned)", told).group(1)
    case("the file lies in the cache", path.startswith(os.path.join(CACHE, "tuned")), path)
    if tool("compile", model, "-o", plan, "-c", 64, "--target", "gfx1100").returncode != 0:
        return skip("choices in plans for gfx1100", "no compiler")
    identity = json.loads(tool("inspect", plan, "--json").stdout)["model"]["identity"]
    forge = re.search(r"(\S+ \(.*\))", tool("compile", "--version").stdout.decode().split(" ", 1)[1]).group(1)
    kept = {"format": "forge tuned 1", "forge": forge, "card": CARD, "target": "gfx1100", "model": identity, "model_name": "tiny",
            "tune": "64x32x1:units=1,64x32x1:waves=1", "measured": [{"test": "tg32", "before": 100, "after": 110}]}
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)

    def put(text):
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)

    put(json.dumps(kept))
    shown, text = compiled("--tuned-for", CARD)
    case("the plan has the choices, and forge-inspect shows them", shown == ["64x32x1: units=1 waves=1"] and text == kept["tune"], (shown, text))
    shown, text = compiled()
    case("no card, no choices", not shown and not text, (shown, text))
    shown, text = compiled("--tuned-for", CARD, "--tune", "waves=1")
    case("--tune wins over the file", shown == ["64x32x1: units=1", "all: waves=1"] and text == "64x32x1:units=1,waves=1", (shown, text))
    # The cache's key has the choices.
    keys = []
    for more in ([], ["--tuned-for", CARD]):
        run = tool("compile", model, "-c", 64, "--target", "gfx1100", *more)
        keys.append(re.search(r"(\S+\.plan): compiled", run.stderr.decode()))
    case("plans with and without choices are two entries", all(keys) and keys[0].group(1) != keys[1].group(1), keys)
    refused("an unknown key beside the file", 2, ["wave=2", "the keys are"], "compile", model, "-o", plan, "--target", "gfx1100", "--tuned-for", CARD,
            "--tune", "wave=2")
    for name, text, words in (("damaged", json.dumps(kept)[:-9], ["it is damaged"]), ("empty", "", ["it is damaged"]),
                              ("of another card", json.dumps({**kept, "card": "Other"}), ["its card is 'Other'"]),
                              ("of another forge", json.dumps({**kept, "forge": "0.0.0 (x)"}), ["forge 0.0.0 (x) measured it"]),
                              ("with an unknown key", json.dumps({**kept, "tune": "64x32x1:row=2"}), ["the keys are"])):
        put(text)
        refused(f"a file {name}", 2, [*words, path, "is not used"], "compile", model, "-o", plan, "--target", "gfx1100", "--tuned-for", CARD)
    listed = json.loads(tool("inspect", "cache", "--json").stdout)
    case("forge-inspect cache counts it", listed["tuned"]["files"] == 1, listed)
    case("and clears it", tool("inspect", "cache", "--clear", "tuned").returncode == 0 and not os.path.exists(path))


bad_input()
stored()
finish()
