#!/usr/bin/env python3
"""forge-bench and the pictures of forge-inspect as a user sees them: formats, comparisons, random models, traces, graphs.
No check depends on speed.

usage: FORGE_BIN=DIR bench.py
"""
import csv
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import xml.etree.ElementTree

from lib_cli import BIN, FOLDER, GUARD, at, case, environment, files, finish, said, skip, tiny, tool, write

model = tiny(context=512)
TEST = (model, "--device", "cpu", "-p", "8", "-n", "4,2", "-r", "3", "-t", "1,2")


def bench(*args):
    run = tool("bench", *args)
    case(f"bench {' '.join(map(str, args[1:]))[:60]} prints nothing on stderr", run.returncode == 0 and not said(run), run.stderr)
    return run.stdout.decode()


def formats():
    rows = json.loads(bench(*TEST, "-o", "json"))
    tests = [(row["n_threads"], row["n_prompt"], row["n_gen"]) for row in rows]
    case("every combination, in order of threads", tests == [(1, 8, 0), (1, 0, 4), (1, 0, 2), (2, 8, 0), (2, 0, 4), (2, 0, 2)], tests)
    for row in rows:
        samples = sorted(row["samples_ts"])
        case("three samples, their mean and median", len(samples) == len(row["samples_ns"]) == 3
             and row["median_ts"] == samples[1] and abs(row["avg_ts"] - sum(samples) / 3) < 1e-6 * samples[2], row)
    names = {"model_filename", "model_type", "model_size", "model_n_params", "n_threads", "n_prompt", "n_gen", "n_depth",
             "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts", "backends", "build_commit"}
    case("fields have llama-bench's names", names <= set(rows[0]), names - set(rows[0]))
    lines = [json.loads(line) for line in bench(*TEST, "-o", "jsonl").splitlines()]
    case("JSON lines: one object per line, with the same names", [list(line) for line in lines] == [list(row) for row in rows])
    table = list(csv.DictReader(io.StringIO(bench(*TEST, "-o", "csv"))))
    scalars = [name for name in rows[0] if not name.startswith("samples")]
    case("CSV has the same names, without lists", len(table) == 6 and list(table[0]) == scalars, table[:1])
    case("CSV has the same tests", [(int(row["n_threads"]), int(row["n_prompt"]), int(row["n_gen"])) for row in table] == tests)
    base = sqlite3.connect(":memory:")
    script = bench(*TEST, "-o", "sql")
    base.executescript(script)
    base.executescript(script)  # a second file into the same table
    found = base.execute("select n_threads, n_prompt, n_gen from forge_bench").fetchall()
    case("the SQL creates its table once and fills it", found == tests * 2, found)
    case("SQL columns have types", base.execute("select typeof(model_type), typeof(n_gen), typeof(avg_ts) from forge_bench").fetchone()
         == ("text", "integer", "real"))
    shown = bench(*TEST, "-o", "md").splitlines()
    case("the table has a row per test", len(shown) == 8 and {line.count("|") for line in shown} == {9} and "median" in shown[0], shown)
    ended = subprocess.Popen([os.path.join(BIN, "forge-bench"), *map(str, (model, "--device", "cpu", "-p", 8, "-n", "4000", "-r", 2000)),
                              "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(), cwd=FOLDER)
    first = ended.stdout.readline() + ended.stdout.readline()
    ended.send_signal(signal.SIGINT)
    rest = ended.stdout.read()
    case("an interrupted run still prints valid JSON", ended.wait(GUARD) == 130 and len(json.loads(first + rest)) == 1, first + rest)
    ended = subprocess.Popen([os.path.join(BIN, "forge-bench"), model, "--device", "cpu", "-p", "8", "-n", "0", "-r", "1", "-o", "jsonl",
                              "-d", ",".join(["0"] * 200)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=FOLDER)
    ended.stdout.readline()
    ended.stdout.close()
    errors = ended.stderr.read()
    case("nothing is measured once the reader has gone", ended.wait(GUARD) == 0 and b"error" not in errors, errors)


def compare():
    ours = write("ours.json", bench(*TEST, "-o", "json").encode())
    lines = write("lines.jsonl", bench(*TEST, "-o", "jsonl").encode())
    theirs = write("theirs.json", json.dumps([
        {"model_filename": "models/elsewhere.gguf", "n_threads": 2, "n_prompt": prompt, "n_gen": predict, "n_depth": 0,
         "flash_attn": flash, "avg_ts": 1.0 + flash, "stddev_ts": 0.0, "samples_ts": [1.0 + flash] * 3}
        for prompt, predict in ((8, 0), (0, 4)) for flash in (0, 1)]).encode())
    rows = json.loads(bench("--compare", ours, theirs, "-o", "json"))
    both = [row for row in rows if row["ratio"] is not None]
    case("tests present in both files get a ratio, against llama-bench's fastest row",
         len(rows) == 6 and len(both) == 2 and all(row["b_ts"] == 2 and row["ratio"] == row["a_ts"] / 2 for row in both), rows)
    same = json.loads(bench("--compare", lines, lines, "-o", "json"))
    case("a file compared with itself: ratio 1", len(same) == 6 and all(row["ratio"] == 1 for row in same), same)
    table = bench("--compare", ours, theirs)
    case("the comparison as a table", table.count("\n") == 8 and "ours" in table and "theirs" in table and "ratio" in table, table)


def synthetic():
    rows = json.loads(bench("--synthetic", "tiny:q8_0", "--device", "cpu", "-p", 0, "-n", 2, "-r", 2, "-t", 2, "--read-rate", "-o", "json"))
    row = rows[0]
    case("random weights are measured, and named synthetic", len(rows) == 1 and row["model_filename"] == "synthetic/tiny:q8_0"
         and row["model_type"] == "random tiny:q8_0", row)
    # All weights except the norms': 4 layers of width 512 with 8 and 2 heads of 64 and an FFN of 1024, and the output
    # matrix.
    weights = 4 * (512 * (512 + 2 * 128 + 512) + 3 * 512 * 1024) + 32000 * 512
    case("a step reads all weights once", weights * 34 // 32 <= row["weight_bytes"] < weights * 34 // 32 * 1.01, row)
    case("the read rate is measured, and decode's share of it", row["read_rate"] > 0 and
         abs(row["read_share"] * row["read_rate"] / row["weight_bytes"] / row["median_ts"] - 1) < 1e-9, row)
    case("without --read-rate there is none", json.loads(bench(*TEST, "-o", "json"))[0]["read_rate"] is None)
    saved = tool("bench", "--synthetic", "tiny:q8_0", "--save", "tiny-q8_0.gguf")
    shown = json.loads(tool("inspect", "tiny-q8_0.gguf", "--json").stdout)
    case("a synthetic model can be written to a file that runs", saved.returncode == 0 and not saved.stdout and len(said(saved)) == 1
         and shown["runs"] and shown["metadata"]["llama.block_count"] == 4, saved.stderr)
    from_file = json.loads(bench("tiny-q8_0.gguf", "--device", "cpu", "-p", 0, "-n", 2, "-r", 1, "-o", "json"))[0]
    case("the written model is the same", all(from_file[name] == row[name] for name in ("model_type", "model_size", "model_n_params", "weight_bytes")),
         from_file)
    for args, word in ((("--synthetic", "tiny"), "shapes are"), (("--synthetic", "tiny:q9_9"), "types are"),
                       (("--synthetic", "tiny:f32", model), "exclude"), ((model, "--save", "x"), "--synthetic"),
                       (("--synthetic", "tiny:f32", "--save", at("no/such/x")), "no/such")):
        before = files()
        run = tool("bench", *args)
        case(f"{args[:2]} is refused", run.returncode in (1, 2) and not run.stdout and len(said(run)) == 1
             and word in said(run)[0] and files() == before, run.stderr)


def trace():
    """A trace of the work of each thread, in Perfetto's format, and its picture."""
    run = tool("bench", *TEST, "--profile-trace", "t.json", "-o", "json")
    case("a trace is written, and a note says so", run.returncode == 0 and len(said(run)) == 1 and "t.json" in said(run)[0], run.stderr)
    with open(at("t.json"), encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    case("one process per configuration, one track per thread", names == {(1, 0): "thread 0", (2, 0): "thread 0", (2, 1): "thread 1"}, names)
    done = [e for e in events if e["ph"] == "X"]
    forwards = [e for e in done if e["cat"] == "forward"]
    # Four runs of each test, the first a warm-up. A prompt is one forward pass, generation is one per token.
    case("every forward pass is in the trace", len(forwards) == 2 * 4 * (1 + 4 + 2), len(forwards))
    steps = [e for e in done if e["cat"] == "step"]
    plan = json.loads(tool("inspect", model, "--json").stdout)
    case("steps have their layers", len(steps) % len(forwards) == 0 and {e["args"]["layer"] for e in steps if "args" in e} == {0, 1}
         and plan["metadata"]["llama.block_count"] == 2)
    inside = all(any(f["pid"] == e["pid"] and f["ts"] - 0.01 <= e["ts"] and e["ts"] + e["dur"] <= f["ts"] + f["dur"] + 0.01
                     for f in forwards) for e in steps[:200])
    case("steps lie inside forward passes", inside)
    for pid, tid in names:
        track = [e for e in done if (e["pid"], e["tid"]) == (pid, tid) and e["cat"] in ("chunk", "wait")]
        case(f"thread {tid} of {pid} does one thing at a time",
             track and all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in zip(track, track[1:])), len(track))
    drawn = tool("inspect", "trace", "t.json", "--svg", "t.svg")
    image = xml.etree.ElementTree.parse(at("t.svg")).getroot() if drawn.returncode == 0 else None
    boxes = [box.get("class").split()[0] for box in image.iter("{http://www.w3.org/2000/svg}rect") if box.get("class")]
    case("the picture shows the steps of a layer and their chunks", not drawn.stdout and len(said(drawn)) == 1
         and 4 <= boxes.count("step") <= 8 and boxes.count("chunk") >= boxes.count("step"), (drawn.stderr, boxes))
    whole = tool("inspect", "trace", "t.json", "--svg", "whole.svg", "--forward", 1, "--whole")
    with open(at("whole.svg"), encoding="utf-8") as file:
        case("the picture of a whole forward pass shows every step", whole.returncode == 0 and file.read().count('class="step') == len(steps) // len(forwards))
    for args, status in ((("t.json",), 2), (("t.json", "--svg", at("no/such.svg")), 1), ((model, "--svg", "x.svg"), 2),
                         (("t.json", "--svg", "x.svg", "--forward", 9999), 2), ((at("absent"), "--svg", "x.svg"), 1),
                         (("t.json", "--svg", "x.svg", "--layer", 7), 2), (("t.json", "--svg", "x.svg", "--layer", 1, "--whole"), 2)):
        before = files()
        run = tool("inspect", "trace", *args)
        case(f"inspect trace {args[1:]} is refused", run.returncode == status and not run.stdout and len(said(run)) == 1
             and files() == before, run.stderr)
    # The trace file is opened first, before the model is looked for.
    for path, status in ((at("no/such/t.json"), 1), (FOLDER, 2)):
        before = files()
        run = tool("bench", at("absent.gguf"), "--profile-trace", path)
        case("a trace that cannot be written is an error", run.returncode == status and not run.stdout and len(said(run)) == 1
             and "absent" not in said(run)[0] and files() == before, run.stderr)
    before = files()
    run = tool("bench", at("absent.gguf"), "--profile-trace", at("u.json"))
    case("a failed run leaves no partial trace", run.returncode == 1 and files() == before, run.stderr)


def graph():
    """The graph of a plan, drawn by Graphviz where it is installed."""
    tool("compile", model, "-o", "drawn.plan", "--target", "cpu-generic", "--max-batch", 2)
    before = files()
    bare = tool("inspect", "drawn.plan", "--graph-svg", "g.svg", env=environment(PATH=at("nowhere")))
    case("without Graphviz one line names its package", bare.returncode == 1 and not bare.stdout and len(said(bare)) == 1
         and "graphviz" in said(bare)[0] and files() == before, bare.stderr)
    if shutil.which("dot") is None:
        return skip("a plan's graph", "Graphviz is not installed")
    shown = {}
    for name, args in (("middle", ()), ("first", ("--layer", 0)), ("all", ("--layer", "all", "--variant", "decode2"))):
        run = tool("inspect", "drawn.plan", "--graph-svg", "g.svg", *args)
        with open(at("g.svg"), encoding="utf-8") as file:
            shown[name] = file.read()
        root = xml.etree.ElementTree.fromstring(shown[name].encode())
        case(f"the graph is drawn: {name}", run.returncode == 0 and not run.stdout and root.tag.endswith("svg")
             and "arena 0x" in shown[name], run.stderr)
    case("the graph of all layers is larger than that of one", len(shown["all"]) > 1.5 * len(shown["first"]) and shown["first"] != shown["middle"])
    for args, status in ((("--layer", 2), 2), (("--layer", "x"), 2), (("--variant", "decode99"), 2)):
        run = tool("inspect", "drawn.plan", "--graph-svg", "h.svg", *args)
        case(f"{args} is refused", run.returncode == status and len(said(run)) == 1, run.stderr)
    for args, status in (((model, "--graph-svg", "h.svg"), 2), (("drawn.plan", "--graph-svg", at("no/such.svg")), 1),
                         (("drawn.plan", "--layer", 1), 2)):
        run = tool("inspect", *args)
        case(f"{args[1:]} is refused", run.returncode == status and not run.stdout and len(said(run)) == 1, run.stderr)


def refused():
    good = write("good.json", b'[{"n_prompt": 1, "n_gen": 0, "avg_ts": 5}]')
    for name, text in (("text", b"hello"), ("list", b"[]"), ("rows", b"[1, 2]"), ("other", b'{"a": 1}'), ("empty", b""),
                       ("cut", b'[{"n_prompt": 1, "n_gen": 0, "avg_'), ("bytes", bytes(range(256))),
                       ("negative", b'[{"n_prompt": -1, "n_gen": 0, "avg_ts": 5}]'),
                       ("apart", b'[{"n_prompt": 2, "n_gen": 0, "avg_ts": 5}]')):
        for files in ((good, write(name + ".json", text)), (at(name + ".json"), good)):
            run = tool("bench", "--compare", *files)
            case(f"no results: {name}", run.returncode == 2 and not run.stdout and len(said(run)) == 1
                 and said(run)[0].startswith("error[usage]: "), run.stderr)
    missing = tool("bench", "--compare", good, at("absent.json"))
    case("a missing file is one error line", missing.returncode == 1 and b"absent.json" in missing.stderr and missing.stderr.count(b"\n") == 1,
         missing.stderr)
    for args in (("--compare", good), (), (model, "--compare", good, good), ("--compare", good, good, "-o", "xml")):
        run = tool("bench", *args)
        case(f"bench {args[:2]} is refused", run.returncode == 2 and not run.stdout and len(said(run)) == 1, run.stderr)


if __name__ == "__main__":
    for group in (formats, compare, synthetic, trace, graph, refused):
        group()
    finish()
