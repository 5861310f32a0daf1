#!/usr/bin/env python3
"""forge-bench --roofline: measured steps on the CPU, estimates from code for a GPU that is not here, and bad input.
No check depends on speed.

usage: FORGE_BIN=DIR roofline.py
"""
import json
import os
import re

from lib_cli import SANITIZED, at, case, finish, said, skip, tiny, tool

model = tiny(context=512)


def rows(*args):
    run = tool("bench", *args, "--roofline", "-o", "json")
    case(f"{' '.join(map(str, args[1:]))} prints no error", run.returncode == 0, run.stderr)
    return json.loads(run.stdout) if run.returncode == 0 else []


def refused(name, status, words, *args):
    run = tool("bench", *args)
    case(f"{name}: one line, the right exit status", run.returncode == status and len(said(run)) == 1, (run.returncode, run.stderr))
    case(f"{name}: it says why", all(word.encode() in run.stderr for word in words), run.stderr)


def measured():
    tests = {}
    for row in rows(model, "--device", "cpu", "-t", 2, "-p", 8, "-n", 4, "-r", 2):
        tests.setdefault(row["test"], []).append(row)
    case("prefill and decode are measured", list(tests) == ["pp8", "tg4"], list(tests))
    for test, kernels in tests.items():
        *parts, whole = kernels
        case(f"{test}: the last row is the sum", whole["kernel"] == "all" and len(parts) > 3 and all(
            abs(sum(k[name] for k in parts) - whole[name]) <= 1e-6 * whole[name] for name in ("calls", "seconds", "bytes", "flops")), whole)
        case(f"{test}: kernels are sorted by time", [k["seconds"] for k in parts] == sorted((k["seconds"] for k in parts), reverse=True))
        case(f"{test}: rates follow", all(abs(k["bytes_per_second"] * k["seconds"] - k["bytes"]) <= 1e-6 * k["bytes"] + 1e-3
                                          and k["read_rate"] > 0 and abs(k["read_share"] * k["read_rate"] - k["bytes_per_second"])
                                          <= 1e-6 * k["bytes_per_second"] for k in kernels), kernels[:1])
        case(f"{test}: a CPU has no rate of matrix instructions, nor a driver", all(
            k[name] is None for k in kernels for name in ("matrix_rate", "matrix_share", "memory_bandwidth")), kernels[:1])
    # Each of the 2 runs of 4 steps; warm-up and depth are not counted. f32 weights: q, o: 32x32, k, v: 16x32, 3 of 64x32, twice.
    glu = [k for k in tests["tg4"] if "glu" in k["kernel"]]
    case("only timed calls count", len(glu) == 1 and glu[0]["calls"] == 2 * 4 * 2, glu)
    prefill = [k for k in tests["pp8"] if "glu" in k["kernel"]]
    case("FLOPs count real rows", glu[0]["flops"] * 2 == prefill[0]["flops"] > 0, (glu, prefill))
    shown = tool("bench", model, "--device", "cpu", "-p", 0, "-n", 2, "-r", 1, "--roofline")
    case("the limits are said once", shown.stderr.count(b"limits measured on ") == 1 and b"GB/s read" in shown.stderr, shown.stderr)
    head, _, *lines = shown.stdout.decode().splitlines()
    column = [cell.strip() for cell in head.split("|")].index("of matrix rate")
    case("the column of matrix instructions is blank", all(line.split("|")[column].strip() == "" for line in lines), lines[:1])
    case("the table has them too", b"of read rate" in shown.stdout and b"all" in shown.stdout.splitlines()[-1], shown.stdout)


def listing(folder, kernel):
    """Mnemonics of a kernel up to its end."""
    lines = [line.split("//")[0].split() for line in open(os.path.join(folder, kernel + ".s")) if line.startswith("\t")]
    names = [line[0] for line in lines if line]
    return names[:names.index("s_endpgm") + 1]


def estimated():
    plan, code = at("gpu.plan"), at("code")
    made = tool("bench", "--synthetic", "tiny:q8_0", "--save", at("tiny-q8.gguf"))
    case("the synthetic model is written", made.returncode == 0, made.stderr)
    made = tool("compile", at("tiny-q8.gguf"), "-c", 512, "-o", plan, "--target", "gfx1100")
    if made.returncode != 0 or tool("inspect", plan, "--code", code).returncode != 0:
        return skip("estimates for gfx1100", made.stderr.decode())
    if not any(name.endswith(".s") for name in os.listdir(code)):
        return skip("estimates for gfx1100", "no disassembler")
    # RoPE's table in a launch of its own.
    apart = [tool("compile", at("tiny-q8.gguf"), "-c", 512, "-o", at("apart.plan"), "--target", "gfx1100", "--tune", "beside=0"),
             tool("inspect", at("apart.plan"), "--code", at("code-apart"))]
    case("a plan with launches apart", all(run.returncode == 0 for run in apart), [run.stderr for run in apart])
    os.remove(at("tiny-q8.gguf"))  # a plan is enough
    kernels = rows(plan, "--target", "gfx1100", "-p", 256, "-n", 1)
    names = {"test", "target", "kernel", "launches", "waves", "wave_instructions", "valu", "salu", "matrix", "load", "store", "lds", "wait",
             "branch", "others_per_matrix", "registers", "scalar_registers", "spill_bytes", "lds_bytes", "waves_per_simd", "bytes", "flops",
             "guessed_branches", "guessed_loops", "sampled", "complete"}
    case("fields", names <= set(kernels[0]), names - set(kernels[0]))
    classes = ("valu", "salu", "matrix", "load", "store", "lds", "wait", "branch")
    case("classes add up", all(abs(sum(k[c] for c in classes) - k["wave_instructions"]) <= 4 for k in kernels), kernels)
    case("all are walked to the end", all(k["complete"] for k in kernels))
    case("each step ends with its sums", [k["kernel"] for k in kernels if k["kernel"] in ("forward", "all")] == ["forward", "all"] * 2)
    # The tiny shape: 4 layers of width 512, FFN 1024, 8 heads and 2 KV heads of 64. A WMMA is 16 x 16 x 16.
    weights = 4 * 512 * ((8 + 2 * 2) * 64 + 512 + 2 * 1024 + 1024)
    wmma = lambda stem: sum(k["matrix"] for k in kernels if k["test"] == "pp256" and re.match(stem, k["kernel"]))
    tiles, head, attention = wmma(r"tiles_.*_t512_"), wmma(r"tiles_.*_32000x512_"), wmma("attention_")
    case("prefill needs as many WMMA as the shapes say", tiles == weights * 256 // 16 ** 3, (tiles, weights * 256 // 16 ** 3))
    case("the head multiplies one tile of rows, of which one is wanted", abs(head / (32000 * 512 // 16 ** 2) - 1) < 0.02, head)
    # 16 rows of a head see 64 tokens at a time: 4 tiles of keys and 4 of values, each of 4 slices.
    chunks = sum((row + 63) // 64 for row in range(16, 257, 16))
    case("prefill's attention sees each row's past in chunks", attention == 4 * 8 * chunks * 32, (attention, 4 * 8 * chunks * 32))
    decode = [k for k in kernels if k["test"] == "tg1" and k["kernel"] not in ("forward", "all")]
    case("decode needs them in attention only", all((k["matrix"] > 0) == k["kernel"].startswith("attention") for k in decode), decode)
    # The table of one token's angles: one wave whose only branch leads round lanes without work.
    (table,) = [k for k in rows(at("apart.plan"), "--target", "gfx1100", "-p", 0, "-n", 1) if k["kernel"].startswith("rope_table_")]
    line = listing(at("code-apart"), table["kernel"])
    counts = {"salu": r"s_(?!wait|delay|clause|nop|barrier|endpgm|sendmsg|cbranch)", "valu": "v_", "load": "global_load", "branch": "s_cbranch|s_endpgm"}
    case("rope_table executes its listing once", table["waves"] == 1 and table["wave_instructions"] == len(line)
         and all(table[c] == sum(bool(re.match(stem, name)) for name in line) for c, stem in counts.items()), (table, len(line)))
    deep = rows(plan, "--target", "gfx1100", "-p", 0, "-n", 1, "-d", "0,400")
    attention = [sum(k["wave_instructions"] for k in deep if k["test"] == test and k["kernel"].startswith("attention")) for test in ("tg1", "tg1 @ d400")]
    case("attention grows with the context", len(deep) > 0 and attention[1] > 1.5 * attention[0] > 0, attention)
    read = [sum(k["bytes"] for k in deep if k["test"] == test and k["kernel"].startswith("attention")) for test in ("tg1", "tg1 @ d400")]
    case("and so do its bytes: f16 keys and values of 2 heads of 64 in 4 layers", read[1] - read[0] == 400 * 4 * 2 * 2 * 64 * 2, read)
    shown = tool("bench", plan, "--roofline", "--target", "gfx1100", "-p", 0, "-n", 1)
    case("the table", b"waves/SIMD" in shown.stdout and b"forward" in shown.stdout, shown.stdout)
    refused("a plan for another model", 3, ["another model"], plan, "--roofline", "--target", "gfx1100", "--model", model)


def bad_input():
    refused("an unknown target", 2, ["gfx1234", "gfx1100"], model, "--roofline", "--target", "gfx1234")
    refused("an NVIDIA target", 2, ["sm_90", "AMD"], model, "--roofline", "--target", "sm_90")
    refused("a CPU as target", 2, ["AMD"], model, "--roofline", "--target", "cpu")
    refused("two targets", 2, ["one"], model, "--roofline", "--target", "gfx1100,gfx942")
    refused("--target alone", 2, ["--roofline"], model, "--target", "gfx1100")
    refused("--target and --device", 2, ["--device"], model, "--roofline", "--target", "gfx1100", "--device", "cpu")
    refused("--compare", 2, ["--roofline"], "--roofline", "--compare", "a.json", "b.json")


measured()
bad_input()
if not SANITIZED:
    estimated()
finish()
