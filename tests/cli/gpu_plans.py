#!/usr/bin/env python3
"""Plans for GPUs that this machine lacks: real model shapes, every target, and the facts in the code objects.

Model files are sparse: header and tensor table are real, the weights are a hole in the file. No kernel is run. With a
second argument small reference models in that folder are compiled too: FAMILIES, which between them have every kernel.

usage: FORGE_BIN=DIR FORGE_EXEC_MASK_CHECK=PROGRAM gpu_plans.py [TARGET,... [FOLDER]]
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time

from lib_cli import CACHE, GUARD, _string, _value, at, case, finish, tool

TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q8_0": (8, 32, 34),
         "bf16": (30, 1, 2)}
# name -> layers, width, FFN width, heads, KV heads, head_dim, vocabulary, tied embedding
SHAPES = {"8b": (32, 4096, 14336, 32, 8, 128, 128256, False), "smollm2": (30, 576, 1536, 9, 3, 64, 49152, True)}
ALL = "gfx90a,gfx1030,gfx942,gfx1100,gfx1201"
BATCHED = "smollm2-q4_1"  # decodes up to 16 sequences in one step
MASKS = os.environ.get("FORGE_EXEC_MASK_CHECK") or sys.exit("FORGE_EXEC_MASK_CHECK is not set: exec_mask_check")
TARGETS = (sys.argv[1] if len(sys.argv) > 1 else ALL).split(",")
FOLDER = sys.argv[2] if len(sys.argv) > 2 else None
# Latent attention and choice of keys, ALiBi and LayerNorm, self-attention, heads of 512 with K = V, layers that share a
# cache, attention in chunks, convolutions, delta rules with decays of heads and of rows, selective scans, RWKV-7.
FAMILIES = ("deepseek32-q4_0", "bloom-q4_0", "embeddings/bert-f16", "gemma4-moe-q8_0", "gemma3n-q4_0", "llama4-q4_0",
            "lfm2moe-q4_0", "qwen35moe-q8_0", "kimi-linear-f16", "mamba-f16", "mamba2-q4_0", "rwkv7-q4_0")
LDS_LIMIT = 65536  # of a block on every AMD target here (gfx950 has 160 KiB); source: AMD's ISA manuals
# The instruction with which each target multiplies int8; source: LLVM's AMDGPU user guide, PTX ISA.
DOT = {"gfx90a": "v_dot4", "gfx942": "v_dot4", "gfx1030": "v_dot4", "gfx1100": "v_dot4_i32_iu8",
       "gfx1101": "v_dot4_i32_iu8", "gfx1150": "v_dot4_i32_iu8", "gfx1152": "v_dot4_i32_iu8", "gfx1200": "v_dot4_i32_iu8",
       "gfx1201": "v_dot4_i32_iu8", "gfx906": "v_dot4", "gfx908": "v_dot4"}


def share_kernels():
    """Shares compiled kernels between all tests that run with the same $FORGE_CACHE_DIR."""
    if not (folder := os.environ.get("FORGE_CACHE_DIR")):
        return
    kept = os.path.join(folder, "kernels")
    os.makedirs(kept, mode=0o700, exist_ok=True)
    os.makedirs(CACHE, mode=0o700, exist_ok=True)
    os.symlink(kept, os.path.join(CACHE, "kernels"))


def hollow(name, shape, kind, embedding=None):
    """Writes a llama of `shape` whose matrices have type `kind`, with a hole in place of its weights."""
    layers, width, ffn, heads, kv_heads, head_dim, vocab, tied = SHAPES[shape]
    embedding = embedding or kind
    metadata = {
        "general.architecture": "llama", "general.name": name, "llama.block_count": layers,
        "llama.context_length": 8192, "llama.embedding_length": width, "llama.feed_forward_length": ffn,
        "llama.attention.head_count": heads, "llama.attention.head_count_kv": kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": head_dim,
        "llama.rope.freq_base": 500000.0, "llama.vocab_size": vocab, "tokenizer.ggml.model": "none",
    }
    tensors = [("token_embd.weight", (width, vocab), embedding), ("output_norm.weight", (width,), "f32")]
    tensors += [] if tied else [("output.weight", (width, vocab), embedding)]
    for i in range(layers):
        stem = f"blk.{i}."
        tensors += [(stem + "attn_norm.weight", (width,), "f32"), (stem + "ffn_norm.weight", (width,), "f32"),
                    (stem + "attn_q.weight", (width, heads * head_dim), kind),
                    (stem + "attn_k.weight", (width, kv_heads * head_dim), kind),
                    (stem + "attn_v.weight", (width, kv_heads * head_dim), kind),
                    (stem + "attn_output.weight", (heads * head_dim, width), kind),
                    (stem + "ffn_gate.weight", (width, ffn), kind), (stem + "ffn_up.weight", (width, ffn), kind),
                    (stem + "ffn_down.weight", (ffn, width), kind)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        number, body = _value(value)
        head += _string(key) + struct.pack("<I", number) + body
    offset = 0
    for tensor, dims, dtype in tensors:
        number, block, block_bytes = TYPES[dtype]
        head += _string(tensor) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        head += struct.pack("<IQ", number, offset)
        elements = 1
        for d in dims:
            elements *= d
        offset += (elements // block * block_bytes + 31) // 32 * 32
    head += b"\0" * (-len(head) % 32)
    with open(at(name), "wb") as out:
        out.write(head)
        out.truncate(len(head) + offset)
    return at(name)


def inspect(plan):
    run = tool("inspect", plan, "--json", "--all")
    return json.loads(run.stdout) if run.returncode == 0 else {"programs": [], "error": run.stderr}


def check_objects(label, program):
    """Kernels of decode keep all values in registers, and each kernel's resources are known and within limits."""
    objects = {o["name"]: o for o in program["code_objects"]}
    for variant in program["variants"]:
        if not variant["name"].startswith("decode"):
            continue
        used = {step["kernel"] for step in variant["steps"]}
        spills = {k: objects[k]["spill_bytes"] for k in used if objects[k]["spill_bytes"] != 0}
        case(f"{label} {variant['name']}: no spills", not spills, spills)
    unknown = [o["name"] for o in objects.values() if o["registers"] <= 0 or o["occupancy"] <= 0 or o["lds_bytes"] < 0]
    case(f"{label}: registers, LDS and occupancy are known", not unknown, unknown)
    if program["target"].startswith("gfx"):
        over = {o["name"]: o["lds_bytes"] for o in objects.values() if o["lds_bytes"] > LDS_LIMIT}
        case(f"{label}: LDS fits", objects and not over, over)


def check_layers(label, program, layers):
    """Layers of one kind share their kernels, and none takes more launches than a dense layer needs."""
    case(f"{label}: layers share kernels", 0 < len(program["code_objects"]) < 90, len(program["code_objects"]))
    names = [variant["name"] for variant in program["variants"]]
    case(f"{label}: it has decode and prefill variants", len(names) >= 2 and any(name.startswith("decode") for name in names), names)
    for variant in program["variants"]:
        launches = {}
        for step in variant["steps"]:
            launches[step["layer"]] = launches.get(step["layer"], 0) + 1
        most = max(count for layer, count in launches.items() if layer >= 0)
        case(f"{label} {variant['name']}: at most 5 launches a layer", most <= 5 and len(launches) >= layers, most)


def disassemble(label, plan, target):
    """Names of the listings of the plan's kernels; empty if there are none."""
    folder = at("code-" + target)
    shutil.rmtree(folder, ignore_errors=True)
    run = tool("inspect", plan, "--code", folder)
    if not case(f"{label}: code objects are written", run.returncode == 0, run.stderr):
        return []
    listings = sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".s"))
    case(f"{label}: code objects are disassembled", listings, os.listdir(folder))
    return listings


def check_masks(label, listings):
    """No cross-lane instruction runs while lanes are off."""
    if not listings:
        return
    masks = subprocess.run([MASKS, *listings], capture_output=True, text=True, timeout=GUARD)
    case(f"{label}: all lanes are on at cross-lane instructions", masks.returncode == 0, masks.stdout[-1000:] + masks.stderr)


def check_dots(label, listings, target):
    """Decode matmuls use the dot instruction, if there is one."""
    matmuls = [n for n in listings if re.match("matmul_q.*_t1_", os.path.basename(n))]
    if target not in DOT or not case(f"{label}: it has matmuls of one token", matmuls, listings):
        return
    without = [n for n in matmuls if DOT[target] not in open(n).read()]
    case(f"{label}: every decode matmul uses {DOT[target]}", not without, without)


def check_families(folder):
    """The reference models compile for each target, under the rules that hold for every model."""
    for name in FAMILIES:
        for target in TARGETS:
            file, label, plan = os.path.join(folder, name + ".gguf"), f"{name} {target}", at("family.plan")
            start = time.monotonic()
            run = tool("compile", file, "--target", target, "-o", plan)
            print(f"{label}: compiled in {time.monotonic() - start:.1f} s", flush=True)
            if not case(f"{label}: compiles", run.returncode == 0, run.stderr[-400:]):
                continue
            check_objects(label, inspect(plan)["programs"][0])
            if target.startswith("gfx"):
                check_masks(label, disassemble(label, plan, target))


share_kernels()
models = {"8b-q4_0": (hollow("8b-q4_0.gguf", "8b", "q4_0"), 32), "8b-q8_0": (hollow("8b-q8_0.gguf", "8b", "q8_0"), 32),
          "smollm2-q4_1": (hollow("smollm2-q4_1.gguf", "smollm2", "q4_1", "q8_0"), 30)}
for name, (path, layers) in models.items():
    for target in TARGETS:
        label, plan = f"{name} {target}", at(f"{name}-{target}.plan")
        start = time.monotonic()
        batch = ["--max-batch", 16] if name == BATCHED else []
        run = tool("compile", path, "--target", target, "-o", plan, *batch)
        print(f"{label}: compiled in {time.monotonic() - start:.1f} s")
        if not case(f"{label}: compiles", run.returncode == 0, run.stderr[-400:]):
            continue
        program = inspect(plan)["programs"][0]
        case(f"{label}: is for its target", program["target"] == target, program["target"])
        check_objects(label, program)
        check_layers(label, program, layers)
        if target.startswith("gfx"):
            listings = disassemble(label, plan, target)
            check_masks(label, listings)
            check_dots(label, listings, target)
small = models["smollm2-q4_1"][0]
both = tool("compile", small, "--target", f"{TARGETS[0]},{TARGETS[-1]}", "-o", at("both.plan"))
case("one plan for two GPUs", both.returncode == 0 and
     [p["target"] for p in inspect(at("both.plan"))["programs"]] == [TARGETS[0], TARGETS[-1]], both.stderr)
bad = tool("compile", small, "--target", "gfx1", "-o", at("bad.plan"))
case("an unknown target is refused with the list of known ones", bad.returncode == 2 and b"gfx1100" in bad.stderr
     and bad.stderr.count(b"\n") == 1 and not os.path.exists(at("bad.plan")), bad.stderr)
if FOLDER:
    check_families(FOLDER)
finish()
