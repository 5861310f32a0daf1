#!/usr/bin/env python3
"""tools/scripts/bench_peers on a stand-in for llama-bench that always prints the same rates: order of runs, medians, the
table's arithmetic and where it is written. No check depends on speed.

usage: FORGE_BIN=DIR bench_peers.py
"""
import json
import os
import re
import subprocess
import sys

from lib_cli import BIN, FOLDER, SANITIZED, at, case, environment, files, finish, skip, tiny, write

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "scripts", "bench_peers")
STANDIN = f"""#!{sys.executable}
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
flash = int(options.get("-fa", 0))
rows = []
for prompt, predict in ((int(options["-p"]), 0), (0, int(options["-n"]))):
    if prompt + predict:
        rate = (3.0 if prompt else 5.0) + flash - 4 * flash * (int(options.get("-d", 0)) > 0)
        rows.append({{"build_commit": "standin", "n_prompt": prompt, "n_gen": predict, "n_depth": int(options.get("-d", 0)),
                     "avg_ts": rate}})
print(json.dumps(rows))
"""
model = tiny(context=512)
peer = at("peer")
os.makedirs(os.path.join(peer, "bin"))
os.chmod(write("peer/bin/llama-bench", STANDIN.encode()), 0o755)
DOCS = "# Words\n\nbefore\n<!-- bench_peers: begin -->\nold\n<!-- bench_peers: end -->\nafter\n"


def peers(*args):
    return subprocess.run([sys.executable, SCRIPT, "--bin", BIN, *map(str, args)], capture_output=True, text=True, timeout=300,
                          env=environment(), cwd=FOLDER)


def measured():
    docs = write("b.md", DOCS.encode())
    run = peers("--peer", peer, "--model", model, "--threads", "1", "--rounds", 2, "--docs", docs, "--raw", "raw.json")
    case("it runs", run.returncode == 0 and not run.stdout, run.stderr)
    with open(docs, encoding="utf-8") as file:
        text = file.read()
    case("the tables are placed between the markers, and the rest of the file stays",
         text.startswith(DOCS[:DOCS.index("old")]) and text.endswith("<!-- bench_peers: end -->\nafter\n") and "old" not in text, text)
    with open(at("raw.json"), encoding="utf-8") as file:
        raw = json.load(file)
    who = [os.path.basename(entry["command"][0]) for entry in raw]
    first = [["forge-bench"], ["llama-bench"] * 2, ["forge-bench"], ["llama-bench"] * 2, ["forge-run"], ["llama-bench"]]
    second = [runs for pair in zip(first[1::2], first[::2]) for runs in pair]
    case("the programs alternate per test, and the order reverses in the second round",
         who == [run for runs in first + second for run in runs], who)
    rows = {line.split(" | ")[0].strip("| "): [cell.strip() for cell in line.strip("|").split("|")][2:]
            for line in text.splitlines() if line.startswith("| ") and "---" not in line}

    def median_of(test):
        rates = [row["avg_ts"] for entry in raw if entry["command"][0].endswith("forge-bench")
                 for row in entry["rows"] if test(row)]
        return sum(rates) / len(rates) if len(rates) == 2 else 0

    for title, test, theirs_shown, rate in (
            ("prefill 512, tokens/s", lambda row: row["n_prompt"] == 512, "4.000 (`-fa 1`)", 4),
            ("decode 128, tokens/s", lambda row: row["n_gen"] == 128, "6.000 (`-fa 1`)", 6),
            ("decode 32 at depth 2048, tokens/s", lambda row: row["n_depth"] == 2048, "5.000 (`-fa 0`)", 5)):
        cells = rows.get(title, [""] * 4)
        case(f"{title}: the peer's better setting, and the ratio of medians",
             cells[1] == theirs_shown and cells[2] == f"{median_of(test) / rate:.2f}", (cells, median_of(test)))
    case("decode's share of the read rate", re.fullmatch(r"\d+ %", rows["decode 128, tokens/s"][3]) is not None, rows)
    case("start time and peak memory", all(float(rows[title][2]) > 0 for title in ("start to end of a 16-token prompt, s", "peak memory, MiB")),
         rows)
    case("the peer's build and the command", "llama.cpp standin" in text and "--model tiny.gguf" in text and peer not in text, text)


def cells_of(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ") and "---" not in line]


def several():
    """Two peer builds side by side; the second is half as fast in everything."""
    slow = at("slow")
    os.makedirs(slow)
    os.chmod(write("slow/llama-bench", STANDIN.replace('"avg_ts": rate', '"avg_ts": rate / 2').encode()), 0o755)
    run = peers("--peer", f"AMX={peer}/bin", "--peer", f"no AMX={slow}", "--synthetic", "tiny:q4_0", "--threads", "1", "--minutes", 0,
                "--docs", "-")
    case("out of time: one round of a random model, printed", run.returncode == 0 and "medians of 1 round." in run.stdout
         and "**tiny:q4_0, random weights**" in run.stdout, run.stdout + run.stderr)
    rows = cells_of(run.stdout)
    case("a column and a ratio for each build", run.returncode == 0 and rows[0][2:] == ["forge", "AMX", "ratio", "no AMX", "ratio", "of the read rate"],
         run.stdout + run.stderr)
    for row in rows[1:4]:
        case(f"{row[0]}: the slower build's ratio is twice the other's", abs(float(row[6]) - 2 * float(row[4])) <= 0.02, row)
    case("the command has the labels", "--peer AMX=DIR --peer 'no AMX=DIR' --synthetic tiny:q4_0" in run.stdout, run.stdout)
    twice = peers("--peer", peer, "--peer", slow, "--docs", "-")
    case("two peers need labels", twice.returncode == 2 and "label" in twice.stderr and twice.stderr.count("\n") == 1, twice.stderr)


def carried():
    """The output of --pack runs on a machine without a clone, git or network."""
    if SANITIZED:
        return skip("what --pack makes", "sanitized tools need their libraries")
    packed = at("packed")
    run = peers("--pack", packed, "--peer", f"built={peer}")
    case("it is packed", run.returncode == 0 and not run.stdout and run.stderr.count("\n") == 1, run.stderr)
    case("the pack has the script, the tools and the peer", {"bench_peers", "forge", "peers"} == set(os.listdir(packed))
         and {"forge-bench", "forge-run"} <= set(os.listdir(os.path.join(packed, "forge"))), os.listdir(packed))
    env = environment(PATH=at("nowhere"))
    there = subprocess.run([sys.executable, "bench_peers", "--peer", "built=peers/built", "--model", model, "--threads", "1", "--minutes", "0"],
                           capture_output=True, text=True, timeout=300, cwd=packed, env=env)
    case("the pack measures, and prints because there is no docs folder", there.returncode == 0 and len(cells_of(there.stdout)) == 6,
         there.stdout + there.stderr)
    again = peers("--pack", packed)
    case("a folder that is not empty is left alone", again.returncode == 1 and "not empty" in again.stderr, again.stderr)


def kept():
    """A second call measures only what the first one has not, and its table covers both."""
    args = ("--peer", peer, "--model", model, "--threads", "1", "--docs", "-", "--keep", "kept.json")
    first = peers(*args, "--rounds", 1, "--minutes", 0)
    with open(at("kept.json"), encoding="utf-8") as file:
        before = json.load(file)
    again = peers(*args, "--rounds", 1)
    case("kept results are not measured again", again.returncode == 0 and "round" not in again.stderr and again.stdout == first.stdout,
         again.stdout + again.stderr)
    more = peers(*args, "--rounds", 2, "--raw", "more.json")
    with open(at("more.json"), encoding="utf-8") as file:
        raw = json.load(file)
    case("only the missing second round runs, the peer first", more.returncode == 0 and "round 1 of" not in more.stderr
         and "round 2 of 2" in more.stderr and os.path.basename(raw[0]["command"][0]) == "llama-bench" and "medians of 2 rounds" in more.stdout,
         more.stdout + more.stderr)
    with open(at("kept.json"), encoding="utf-8") as file:
        after = json.load(file)
    (old,), (new,) = before["groups"].values(), after["groups"].values()
    case("the samples of the first round stay", new["rounds"] == 2 and all(
        theirs[2] == ours[2][:1] and len(ours[2]) == 2 for was, now in zip(old["samples"], new["samples"]) for theirs, ours in zip(was, now)), after)
    for text, word in ((b"{}", "not written by"), (b"[1]", "not written by"),
                       (json.dumps({**after, "setting": {**after["setting"], "machine": "another"}}).encode(), "other machine"),
                       (json.dumps({**after, "setting": {**after["setting"], "peers": ["x"]}}).encode(), "other peers")):
        write("kept.json", text)
        run = peers(*args)
        case(f"a results file that contains {text[:20]} is refused", run.returncode == 2 and word in run.stderr and run.stderr.count("\n") == 1, run.stderr)


def refused():
    os.makedirs(at("bad"))
    os.chmod(write("bad/llama-bench", f"#!{sys.executable}\nprint('hello')\n".encode()), 0o755)
    write("plain.md", b"no markers\n")
    write("b.md", DOCS.encode())
    good = ("--peer", peer, "--model", model, "--threads", "1", "--rounds", "1")
    before = files()
    for args, status, word in (((), 2, "--peer"), (("--peer", at("nowhere")), 2, "cmake"), (("--frobnicate",), 2, "--help"),
                               ((*good, "--threads", "0"), 2, "--threads"), ((*good, "--rounds", "0"), 2, "--rounds"),
                               ((*good, "--rounds", "x"), 2, "--rounds"), ((*good, "--docs", "plain.md"), 2, "bench_peers: begin"),
                               ((*good, "--docs", "absent.md"), 1, "absent.md"), ((*good, "--docs", "-", "--bin", at("nowhere")), 2, "forge-bench"),
                               (("--peer", peer, "--model", at("absent.gguf"), "--docs", "-"), 1, "absent.gguf"),
                               (("--peer", peer, "--synthetic", "9b:q4_0", "--docs", "-"), 2, "shapes"),
                               ((*good, "--docs", "-", "--raw", at("no/such")), 1, "no/such"),
                               (("--peer", at("bad"), "--model", model, "--threads", "1", "--docs", "b.md"), 1, "no results")):
        run = peers(*args)
        lines = [line for line in run.stderr.splitlines() if "round 1 of" not in line]
        case(f"bench_peers {args[-2:]} is refused", run.returncode == status and not run.stdout and len(lines) == 1
             and word in lines[0], (run.returncode, run.stderr))
    case("refused calls leave no files behind", files() == before, set(files()) - set(before))
    with open(at("b.md"), encoding="utf-8") as file:
        case("the old tables stay when a run fails", file.read() == DOCS)
    shown = peers("--help")
    case("--help goes to stdout", shown.returncode == 0 and "--minutes" in shown.stdout and not shown.stderr)


if __name__ == "__main__":
    for group in (measured, several, kept, carried, refused):
        group()
    finish()
