#!/usr/bin/env python3
"""tools/scripts/bench_types on a stand-in for llama-bench that always prints the same rates: results kept between calls,
medians, the table's arithmetic and where it is written. No check depends on speed.

usage: FORGE_BIN=DIR bench_types.py
"""
import json
import os
import subprocess
import sys

from lib_cli import BIN, FOLDER, at, case, environment, files, finish, write

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "scripts", "bench_types")
STANDIN = f"""#!{sys.executable}
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
rate = 3.0 + int(options["-fa"])
print(json.dumps([{{"build_commit": "standin", "n_prompt": int(options["-p"]), "n_gen": 0, "avg_ts": rate}},
                  {{"build_commit": "standin", "n_prompt": 0, "n_gen": int(options["-n"]), "avg_ts": 2 * rate}}]))
"""
peer = at("peer")
os.makedirs(peer)
os.chmod(write("peer/llama-bench", STANDIN.encode()), 0o755)
DOCS = "before\n<!-- bench_types: begin -->\nold\n<!-- bench_types: end -->\nafter\n"
SHORT = ("--shape", "tiny", "--prompt", "8", "--predict", "2", "--rounds", "1")


def types(*args):
    return subprocess.run([sys.executable, SCRIPT, "--bin", BIN, *map(str, args)], capture_output=True, text=True, timeout=300,
                          env=environment(), cwd=FOLDER)


def rows_of(text):
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return {line.split(" | ")[0].strip("| "): [cell.strip() for cell in line.strip("|").split("|")][1:] for line in lines}


def kept():
    with open(at("kept.json"), encoding="utf-8") as file:
        return json.load(file)["types"]


def measured():
    first = types("--peer", peer, "--keep", "kept.json", "--types", "q8_0,Q3_K", *SHORT, "--docs", "-")
    rows = rows_of(first.stdout)
    case("two types, in table order", first.returncode == 0 and list(rows) == ["type", "Q8_0", "Q3_K"], first.stdout + first.stderr)
    raw = kept()["q3_k"]
    case("the peer's better setting, and ratios", rows["Q3_K"][1] == "8.000" and rows["Q3_K"][7] == "4.000"
         and rows["Q3_K"][2] == f"{raw['decode forge'] / 8:.2f}" and rows["Q3_K"][8] == f"{raw['prefill forge'] / 4:.2f}", (rows, raw))
    rate = {name: row["weight_bytes"] * row["decode forge"] for name, row in kept().items()}
    case("bytes/s, and their share of Q8_0's", rows["Q3_K"][3] == f"{rate['q3_k'] * 1e-9:.1f}" and rows["Q8_0"][4] == "100 %"
         and rows["Q3_K"][4] == f"{100 * rate['q3_k'] / rate['q8_0']:.0f} %", rows)
    docs = write("b.md", DOCS.encode())
    before = kept()["q8_0"]
    more = types("--peer", f"{peer}/", "--keep", "kept.json", "--types", "tq2_0,f16", *SHORT, "--docs", docs)
    with open(docs, encoding="utf-8") as file:
        text = file.read()
    case("another call adds to the kept results", more.returncode == 0 and not more.stdout and list(rows_of(text)) == ["type", "F16", "Q8_0", "Q3_K", "TQ2_0"]
         and kept()["q8_0"] == before, more.stderr + text)
    case("the table is placed between the markers, with its command", text.startswith("before\n<!-- bench_types: begin -->\nOn ")
         and text.endswith("<!-- bench_types: end -->\nafter\n") and "old" not in text and "--shape tiny" in text and peer not in text, text)
    late = types("--peer", peer, "--keep", "kept.json", *SHORT, "--minutes", "0", "--docs", "-")
    case("without names the first missing type is measured when time is up", late.returncode == 0 and len(kept()) == 5 and kept()["q8_0"] == before,
         (late.stderr, list(kept())))
    case("no model file is left", not [name for name in files() if name.endswith(".gguf")], files())


def refused():
    write("plain.md", b"no markers\n")
    write("other.json", b"[]")
    good = ("--peer", peer, "--keep", "kept.json", *SHORT)
    before = files()
    for args, word in ((("--keep", "x"), "--peer"), (("--peer", peer), "--keep"), ((*good, "--types", "q9_9", "--docs", "-"), "q9_9"),
                       ((*good, "--rounds", "0"), "--rounds"),
                       ((*good, "--docs", "plain.md"), "bench_types: begin"), ((*good, "--prompt", "9", "--docs", "-"), "lengths"),
                       ((*good, "--shape", "9b", "--docs", "-"), "kept.json"), (("--peer", peer, "--keep", "y", "--shape", "9b", "--docs", "-"), "shapes"),
                       (("--peer", peer, "--keep", "other.json", "--docs", "-"), "other.json"), (("--frobnicate",), "--help")):
        run = types(*args)
        case(f"bench_types {args[-2:]} is refused", run.returncode == 2 and not run.stdout and run.stderr.count("\n") == 1
             and word in run.stderr, (run.returncode, run.stderr))
    case("refused calls leave no files behind", files() == before, set(files()) - set(before))
    shown = types("--help")
    case("--help goes to stdout", shown.returncode == 0 and "--keep" in shown.stdout and not shown.stderr)


if __name__ == "__main__":
    measured()
    refused()
    finish()
