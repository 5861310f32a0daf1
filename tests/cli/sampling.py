#!/usr/bin/env python3
"""How forge-run samples by default and when an answer ends: the model file's settings, options that override them, invalid
settings, the token limit and the lines that report it.

usage: FORGE_BIN=DIR sampling.py
"""
import json
import math

from lib_cli import case, finish, gguf, said, tiny, tiny_parts, tool, write

PROMPT = ("--raw", "-p", "abc the", "--ignore-eos")
DEFAULTS = {"temp": 0.8, "top-k": 40, "top-p": 0.95, "min-p": 0.05, "repeat-penalty": 1, "repeat-last-n": 64}
OWN = {"temp": 1.5, "top-k": 7, "top-p": 0.5, "min-p": 0.25, "repeat-penalty": 1.5, "repeat-last-n": 8}
KEYS = {"temp": "temp", "top-k": "top_k", "top-p": "top_p", "min-p": "min_p", "repeat-penalty": "penalty_repeat",
        "repeat-last-n": "penalty_last_n"}
plain = tiny()


def with_keys(name, **values):
    """The small model with general.sampling.KEY metadata."""
    metadata, tensors = tiny_parts()
    metadata.update({f"general.sampling.{key}": value for key, value in values.items()})
    return write(name, gguf(metadata, tensors))


def options(values):
    return [word for name, value in values.items() for word in ("--" + name, value)]


def tokens(model, *args):
    run = tool("run", model, *args, "--json")
    return json.loads(run.stdout)["tokens"] if run.returncode == 0 else run.stderr


def drawn(model, *args):
    return tokens(model, *PROMPT, "-n", 60, "--seed", 5, *args)


def defaults():
    case("without options: llama.cpp's defaults", drawn(plain) == drawn(plain, *options(DEFAULTS)) != drawn(plain, "--temp", 0))
    for name, value in DEFAULTS.items():  # each setting matters here, so the equality above is meaningful
        others = [] if name != "repeat-last-n" else ["--repeat-penalty", 1.5]
        case(f"--{name} changes the sampled text", drawn(plain, *others) != drawn(plain, *others, "--" + name, OWN[name]), value)
    case("--temp 0 is greedy", drawn(plain, "--temp", 0) == tokens(plain, *PROMPT, "-n", 60, "--temp", 0, "--seed", 6))
    help_text = tool("run", "--help").stdout
    case("--help lists the defaults", all(word in help_text for word in (b"0.8*", b"40*", b"0.95*", b"0.05*", b"general.sampling",
                                                                 b"1024")), help_text)


def file_settings():
    own = with_keys("own.gguf", **{KEYS[name]: value for name, value in OWN.items()})
    case("the file's settings apply", drawn(own) == drawn(plain, *options(OWN)) != drawn(plain))
    for name, key in KEYS.items():
        others = [] if name != "repeat-last-n" else ["--repeat-penalty", 1.5]
        one = with_keys("one.gguf", **{key: OWN[name]})
        case(f"{key} alone", drawn(one, *others) == drawn(plain, *others, "--" + name, OWN[name]) != drawn(plain, *others))
        case(f"--{name} overrides the file", drawn(one, *others, "--" + name, DEFAULTS[name]) == drawn(plain, *others))
        case(f"--{name} overrides a file with all settings", drawn(own, "--" + name, DEFAULTS[name])
             == drawn(plain, *options({**OWN, name: DEFAULTS[name]})))
    for ids in (("--tokens", "1,2,3"), ("--tokens", "1,2,3", "--seed", 3)):
        case("after token ids sampling is greedy, whatever the file says", tokens(own, *ids, "-n", 30)
             == tokens(plain, *ids, "-n", 30) == tokens(plain, *ids, "-n", 30, "--temp", 0))
    case("a plan keeps the file's settings", tool("compile", own, "-o", "own.plan").returncode == 0 and drawn("own.plan") == drawn(own))
    shown = tool("inspect", own).stdout
    case("inspect shows the settings", b"temp 1.5, top_k 7, top_p 0.5, min_p 0.25, penalty_repeat 1.5, penalty_last_n 8" in shown, shown)
    told = json.loads(tool("inspect", own, "--json").stdout)["sampling"]
    case("inspect shows the settings as JSON", told == {**{KEYS[name]: value for name, value in OWN.items()}, "ignored": []}, told)
    shown = tool("inspect", plain).stdout
    case("inspect says that there are none", b"sampling defaults\n  none" in shown, shown)


def bad_values():
    expected = drawn(plain)
    for key, value, text in (("temp", math.nan, "f32 nan"), ("temp", -1.0, "f32 -1"), ("top_k", -2, "i32 -2"),
                             ("top_p", 1.5, "f32 1.5"), ("min_p", "0.05", "string '0.05'"), ("penalty_repeat", True, "bool true"),
                             ("penalty_last_n", 2.5, "f32 2.5"), ("mirostat", 2, "u32 2")):
        bad = with_keys("bad.gguf", **{key: value})
        run = tool("run", bad, *PROMPT, "-n", 60, "--seed", 5, "--json")
        lines = said(run)
        case(f"{key} {value}: one line, and treated as absent", run.returncode == 0 and len(lines) == 1
             and lines[0].startswith(f"warning: general.sampling.{key} is {text}; ")
             and json.loads(run.stdout)["tokens"] == expected, lines)
        shown = tool("inspect", bad)
        case("inspect shows the invalid setting", f"not used: general.sampling.{key} is {text}".encode() in shown.stdout, shown.stdout)
    case("token ids do not use the file's settings", said(tool("run", bad, "--tokens", "1,2", "-n", 2, "--json")) == [])


def limit():
    long = tiny("long.gguf", context=2000)
    told = "stopped at the limit of 1024 tokens; -n N raises it, -n -1 removes it"
    full = "stopped: the context of 2000 positions is full; -c N gives more room"

    def ended(*args):
        """Stderr lines except the closing one, number of tokens and finish reason of an answer."""
        run = tool("run", long, *args)
        parsed = json.loads(tool("run", long, *args, "--json").stdout)
        return said(run)[:-1], len(parsed["tokens"]), parsed["finish_reason"]
    greedy = (*PROMPT, "--temp", 0)
    case("an answer ends at 1024 tokens, and a line says so", ended(*greedy) == ([told], 1024, "length"), ended(*greedy))
    case("no line for a limit given by -n", ended(*greedy, "-n", 1024) == ([], 1024, "length"))
    case("a larger -n is obeyed", ended(*greedy, "-n", 1100) == ([], 1100, "length"))
    case("-n -1 runs to the end of the context, and a line names -c", ended(*greedy, "-n", -1) == ([full], 2000 + 1 - 5, "length"),
         ended(*greedy, "-n", -1))
    case("so does an -n larger than the context", ended(*greedy, "-n", 5000)[0] == [full])
    case("JSON output has no such line", said(tool("run", long, *greedy, "--json")) == [])
    case("token ids have no default limit", ended("--tokens", "1,2", "--ignore-eos") == ([full], 2000 + 1 - 2, "length"))
    stop = ended(*greedy, "--stop", json.loads(tool("run", long, *greedy, "--json").stdout)["text"][40:44])
    case("no line for an answer that ends by itself", stop[0] == [] and stop[2] == "stop", stop)
    seeded = said(tool("run", long, *PROMPT, "-n", 8))
    case("the closing line gives the seed", len(seeded) == 1 and "; seed " in seeded[0]
         and "seed" not in said(tool("run", long, *PROMPT, "-n", 8, "--seed", 1))[0], seeded)
    first = tool("run", long, *PROMPT, "-n", 8)
    seed = said(first)[0].rsplit(" ", 1)[1]
    case("that seed gives the same text again", tool("run", long, *PROMPT, "-n", 8, "--seed", seed).stdout == first.stdout, seed)


for group in (defaults, file_settings, bad_values, limit):
    group()
finish()
