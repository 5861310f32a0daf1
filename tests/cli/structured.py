#!/usr/bin/env python3
"""forge-run's structured output: text that fits, how it ends, and what is refused.

usage: FORGE_BIN=DIR structured.py
"""
import json
import re

from lib_cli import at, case, finish, said, tiny, tool, write

PATTERN = r'\{"name": "[a-z]{3,8}", "age": [1-9][0-9]?\}'
model = tiny(context=512)


def run(*args):
    return tool("run", model, "--raw", "-p", "the cat", "--seed", 3, *args)


def fits():
    for args in ((), ("--temp", 0), ("--temp", 1.5, "--min-p", 0.2, "--repeat-penalty", 1.3), ("--ignore-eos",)):
        answer = run("--regex", PATTERN, "--json", *args)
        parsed = json.loads(answer.stdout)
        case(f"the text fits the expression {args}", re.fullmatch(PATTERN, parsed["text"]), parsed)
        case(f"it ends where nothing else may follow {args}", parsed["finish_reason"] == "stop", parsed)
        case(f"the same seed gives the same text {args}", run("--regex", PATTERN, *args).stdout.decode() == parsed["text"])
    cut = json.loads(run("--regex", PATTERN, "--json", "-n", 7).stdout)
    case("the token limit holds within forced text", len(cut["tokens"]) == 7 and cut["finish_reason"] == "length"
         and cut["text"] == '{"name"', cut)
    stopped = json.loads(run("--regex", PATTERN, "--json", "--stop", "age").stdout)
    case("so does a stop string", stopped["finish_reason"] == "stop" and stopped["text"].endswith('", "'), stopped)
    chat = json.loads(tool("run", model, "-p", "the cat", "--regex", "yes|no", "--json").stdout)
    case("behind a chat template", chat["text"] in ("yes", "no"), chat)


def continued():
    lines = [{"regex": PATTERN, "text": '{"name": "ab', "seed": seed} for seed in range(5)] + [
        {"regex": PATTERN, "text": '{"name": "AB', "seed": 1}, {"regex": PATTERN, "seed": 1}]
    out = tool("inspect", "check-constraints", model, stdin="".join(json.dumps(one) + "\n" for one in lines).encode())
    answers = [json.loads(line) for line in out.stdout.splitlines()]
    case("a text is continued to its end", all(re.fullmatch(PATTERN, one["text"]) and one["text"].startswith('{"name": "ab')
                                               for one in answers[:5]), answers)
    case("in more than one way", len({one["text"] for one in answers[:5]}) > 1, answers)
    case("no text begins so", answers[5] == {"accepted": False}, answers[5])
    case("from nothing", re.fullmatch(PATTERN, answers[6]["text"]), answers[6])


def refused():
    def line(*args):
        answer = run(*args)
        return answer.returncode, [line for line in said(answer) if line.startswith("error")], answer.stdout
    status, lines, text = line("--regex", "(abc")
    case("a bad expression: one line, status 2", status == 2 and len(lines) == 1 and "regular expression, byte" in lines[0]
         and text == b"", lines)
    for option in ("--schema", "--grammar"):
        status, lines, _ = line(option, at("absent"))
        case(f"{option}: a file that cannot be read", status == 1 and len(lines) == 1 and lines[0].startswith("error[io]"), lines)
        broken = write("broken.txt", b"{")
        status, lines, _ = line(option, broken)
        case(f"{option}: a file that is no such thing", status == 2 and len(lines) == 1, lines)
    status, lines, _ = line("--regex", "a", "--schema", at("absent"))
    case("two constraints", status == 2 and "exclude each other" in lines[0], lines)
    status, lines, _ = line("--embed", "--regex", "a")
    case("a constraint without text", status == 2 and len(lines) == 1, lines)


for group in (fits, continued, refused):
    group()
finish()
