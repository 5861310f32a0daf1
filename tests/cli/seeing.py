#!/usr/bin/env python3
"""Profiles and traces of runs (--profile and --profile-trace of forge-run and forge-bench), and their option --kv-type.

usage: FORGE_BIN=DIR seeing.py
"""
import json
import os
import re

from lib_cli import FOLDER, at, case, files, finish, said, tiny, tool

model = tiny(context=512)
TOKENS = ("--tokens", ",".join(map(str, range(5, 45))), "--json", "--device", "cpu")
ROW = re.compile(r"^ +(?P<time>[\d.]+)% +(?P<calls>\d+) +(?P<us>[\d.]+) +(?P<mb>[\d.]+) +(?P<gb>[\d.]+) +(?P<share>[\d.]+)% +"
                 r"(?P<gflops>[\d.]+)  (?P<label>.+)$")


def tables(run):
    """The profile's tables: variant -> label -> the numbers of its row."""
    found, variant = {}, None
    for line in run.stderr.decode().splitlines():
        if re.fullmatch(r"(decode|prefill)\d+", line):
            variant = found.setdefault(line, {})
        elif variant is not None and (row := ROW.match(line)):
            variant[row["label"]] = {key: float(row[key]) for key in ("time", "calls", "us", "mb", "gb", "share", "gflops")}
    return found


def profile():
    run = tool("run", model, *TOKENS, "-n", 5, "-t", 1, "--profile")
    case("a profile leaves stdout unchanged", run.returncode == 0 and json.loads(run.stdout)["prompt_tokens"] == 40, run.stderr)
    found = tables(run)
    case("one table for prefill, one for decode", len(found) == 2 and any(name.startswith("decode") for name in found), found.keys())
    text = run.stderr.decode()
    case("shares are relative to the measured read rate", re.search(r"of read: share of [\d.]+ GB/s, read plainly by 1 thread;", text), text)
    for name, rows in found.items():
        case(f"{name}: times are shares of the total", abs(sum(row["time"] for row in rows.values()) - 100) < 1, rows)
        attention = [row for label, row in rows.items() if label.startswith("attention")]
        case(f"{name}: a kind of step is one row over all layers", len(attention) == 1 and attention[0]["calls"] ==
             (2 if name.startswith("prefill") else 2 * 4), attention)
        # 2 layers, one KV head with head_dim 16: the key and value of a position are 64 bytes in f16.
        low = 42 * 64 if name.startswith("decode") else 40 * 64
        case(f"{name}: attention's bytes include keys and values", attention[0]["mb"] * 1e6 >= low - 500, attention)
    plain = tool("run", model, *TOKENS, "-n", 5, "-t", 1)
    case("a profiled run gives the same tokens", json.loads(plain.stdout)["tokens"] == json.loads(run.stdout)["tokens"])
    bench = tool("bench", model, "-p", 16, "-n", 2, "-r", 1, "-t", 1, "--device", "cpu", "--profile", "-o", "json")
    case("forge-bench has the same tables", len(tables(bench)) == 2 and len(json.loads(bench.stdout)) == 2, bench.stderr)


def rows_that_were_real():
    """The work reported for a prefill step is that of its real tokens, not of its capacity."""
    def gflop(tokens):
        run = tool("run", model, "--tokens", ",".join(["7"] * tokens), "-n", 1, "--json", "-t", 1, "--device", "cpu", "--profile")
        rows = [rows for name, rows in tables(run).items() if name.startswith("prefill")]
        return sum(row["mb"] for row in rows[0].values()) if rows else 0
    few, many = gflop(8), gflop(160)
    case("bytes grow with the tokens of the prompt", 0 < 2 * few < many, (few, many))


def trace():
    run = tool("run", model, *TOKENS, "-n", 3, "-t", 2, "--profile-trace", "t.json")
    case("a trace is written, and a note says so", run.returncode == 0 and len(said(run)) == 1 and "t.json" in said(run)[0], run.stderr)
    with open(at("t.json"), encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    forwards = [event["name"] for event in events if event["ph"] == "X" and event["cat"] == "forward"]
    case("the trace has the prefill and the decode steps after it", len(forwards) == 3 and "40 tokens" in forwards[0]
         and forwards[1:] == [forwards[1]] * 2 and "1 token" in forwards[1], forwards)
    drawn = tool("inspect", "trace", "t.json", "--svg", "t.svg")
    case("the trace can be drawn", drawn.returncode == 0, drawn.stderr)
    dump = tool("run", model, "--tokens", "1,2,3", "--dump-logits", "l.f32", "--device", "cpu", "--profile-trace", "d.json")
    with open(at("d.json"), encoding="utf-8") as file:
        case("a dump run can be traced too", dump.returncode == 0 and json.load(file)["traceEvents"], dump.stderr)
    # The trace file is opened first, before the model is looked for.
    for path, status in ((at("no/such/t.json"), 1), (FOLDER, 2)):
        before = files()
        run = tool("run", at("absent.gguf"), "-p", "x", "--profile-trace", path)
        case("a trace that cannot be written is an error", run.returncode == status and not run.stdout and len(said(run)) == 1
             and "absent" not in said(run)[0] and files() == before, run.stderr)
    before = files()
    run = tool("run", at("absent.gguf"), "-p", "x", "--profile-trace", at("u.json"))
    case("a failed run leaves no partial trace", run.returncode == 1 and files() == before, run.stderr)


def many_threads():
    cores = len(os.sched_getaffinity(0))
    run = tool("run", model, *TOKENS, "-n", 2, "-t", cores + 1)
    case("more threads than cores: a note, and the run uses them", run.returncode == 0 and json.loads(run.stdout)["threads"] == cores + 1
         and f"note: {cores + 1} threads share {cores} core".encode() in run.stderr, run.stderr)
    case("one thread gives no such note", b"threads share" not in tool("run", model, *TOKENS, "-n", 2, "-t", 1).stderr)


def memory(*args):
    run = tool("run", *args, *TOKENS, "-n", 2)
    return json.loads(run.stdout)["memory"]["kv"] if run.returncode == 0 else run.stderr


def again(run):
    return [line for line in said(run) if "compiled again" in line]


def kv_type():
    wide = tiny("wide.gguf", context=512, head_dim=32)
    sizes = {kind: memory(wide, "--kv-type", kind) for kind in ("f16", "q8_0")}
    case("q8_0 takes 17/32 of f16", sizes["q8_0"] * 32 == sizes["f16"] * 17 and memory(wide) == sizes["f16"], sizes)
    rates = tool("bench", wide, "-p", 16, "-n", 2, "-r", 1, "-t", 1, "--device", "cpu", "--kv-type", "q8_0", "-o", "json")
    case("forge-bench has --kv-type", rates.returncode == 0 and len(json.loads(rates.stdout)) == 2, rates.stderr)
    for name in ("run", "bench"):
        for kind in ("q4_0", "fp8"):
            run = tool(name, wide, "--kv-type", kind, "--device", "cpu")
            case(f"forge-{name} refuses {kind} on the CPU", run.returncode == 2 and len(said(run)) == 1 and f"no KV cache in {kind}" in said(run)[0]
                 and "f16 or q8_0" in said(run)[0], run.stderr)
    case("a plan with a q8_0 cache is compiled", tool("compile", wide, "--kv-type", "q8_0", "-c", 256, "-o", "q8.plan").returncode == 0)
    case("the plan keeps its type", memory("q8.plan") * 2 == sizes["q8_0"], memory("q8.plan"))
    larger = tool("run", "q8.plan", *TOKENS, "-n", 2, "-c", 512)
    case("also when it is compiled again for a larger context", len(again(larger)) == 1
         and json.loads(larger.stdout)["memory"]["kv"] == sizes["q8_0"], larger.stderr)
    other = tool("run", "q8.plan", *TOKENS, "-n", 2, "--kv-type", "f16")
    case("another type compiles the plan again, with a note", len(again(other)) == 1 and "q8_0, not f16" in again(other)[0]
         and json.loads(other.stdout)["memory"]["kv"] * 2 == sizes["f16"], other.stderr)



def deterministic():
    wide = tiny("wide.gguf", context=512, head_dim=32)
    for name, options in (("plain.plan", ()), ("same.plan", ("--deterministic",))):
        case(f"{name} is compiled", tool("compile", wide, *options, "--target", "cpu", "-c", 512, "-o", name).returncode == 0)
    shown = [tool("inspect", name).stdout.decode() for name in ("plain.plan", "same.plan")]
    case("forge-inspect shows which plan is deterministic", ["deterministic=1" in text for text in shown] == [False, True], shown)
    for name, options in (("run", TOKENS), ("bench", ("-p", 8, "-n", 2, "-r", 1, "-t", 1, "--device", "cpu"))):
        refused = tool(name, "plain.plan", *options, "--deterministic")
        case(f"forge-{name} --deterministic refuses a plan without it", refused.returncode == 2 and len(said(refused)) == 1
             and "compiled without --deterministic" in said(refused)[0], refused.stderr)
        for model in ("same.plan", wide):
            run = tool(name, model, *options, "--deterministic")
            case(f"forge-{name} --deterministic takes {model}", run.returncode == 0 and len(again(run)) == 0, run.stderr)


if __name__ == "__main__":
    for group in (profile, rows_that_were_real, trace, many_threads, kv_type, deterministic):
        group()
    finish()
