#!/usr/bin/env python3
"""--kv-type q8_0 on a real model: the negative log-likelihood of the reference ids is within 1 % of the one with f16,
and another one: the type was used.

usage: FORGE_BIN=DIR kv_types.py SHARED [--model FILE] [--name smollm2] [--device NAME] [--kv-types f16,q8_0] [--decode]
       $FORGE_SHARED, where set, instead of SHARED

SHARED has reference/NAME.json: prompts, and the ids that greedy decoding of the dequantised model gives after each. Every
prompt is run with the ids behind it, all of which are known (teacher forcing), by prefill or with --decode token by token.
Likelihoods are printed in nats per token: of the ids behind the prompts, which are the likeliest ones, and of all ids. The
model is $FORGE_TEST_MODEL unless given.
"""
import argparse
import array
import json
import math
import os
import sys

from lib_cli import at, case, finish, skip, tool

options = argparse.ArgumentParser()
options.add_argument("shared", nargs="?", default="")
options.add_argument("--model", default=os.environ.get("FORGE_TEST_MODEL"))
options.add_argument("--name", default="smollm2")
options.add_argument("--device", default="cpu")
options.add_argument("--kv-types", default="f16,q8_0")
options.add_argument("--decode", action="store_true")
given = options.parse_args()
SHARED = os.environ.get("FORGE_SHARED") or given.shared
BOUND = 0.01  # of the first type's


def likelihoods(prompt, vocab, kv_type):
    """-log p of each id but the first, given those before it."""
    ids = prompt["prompt_ids"] + prompt["greedy"]
    file = at("logits.f32")
    run = tool("run", os.path.abspath(given.model), "--device", given.device, "--kv-type", kv_type, "-c", 512, "--tokens",
               ",".join(map(str, ids[:-1])), "--dump-logits", file, *(["--decode"] if given.decode else []))
    if run.returncode != 0:
        sys.exit(f"forge-run with --kv-type {kv_type}: {run.stderr.decode().strip()}")
    logits = array.array("f")
    with open(file, "rb") as data:
        logits.frombytes(data.read())
    assert len(logits) == (len(ids) - 1) * vocab, (len(logits), len(ids), vocab)
    out = []
    for i, chosen in enumerate(ids[1:]):
        row = logits[i * vocab:(i + 1) * vocab]
        most = max(row)
        out.append(most + math.log(math.fsum(math.exp(x - most) for x in row)) - row[chosen])
    return out


def measured():
    path = os.path.join(SHARED, "reference", given.name + ".json")
    if not given.model or not os.path.exists(path):
        return skip("likelihoods of reference ids", "no model" if not given.model else "no reference data")
    with open(path, encoding="utf-8") as file:
        reference = json.load(file)
    means = {}
    for kv_type in given.kv_types.split(","):
        behind, every = [], []
        for prompt in reference["prompts"]:
            nats = likelihoods(prompt, reference["vocab"], kv_type)
            every += nats
            behind += nats[len(prompt["prompt_ids"]) - 1:]
        means[kv_type] = (sum(behind) / len(behind), sum(every) / len(every))
        print(f"{kv_type}: {means[kv_type][0]:.6f} nats per reference id ({len(behind)}), {means[kv_type][1]:.6f} per id with"
              f" the prompts' ({len(every)})", flush=True)
    first, *others = means
    for kv_type in others:
        case(f"{kv_type} is not {first}", means[kv_type] != means[first], means)
        for which, base, mean in zip(("reference ids", "all ids"), means[first], means[kv_type]):
            case(f"{kv_type}, {which}: within {BOUND:.0%} of {first}", abs(mean / base - 1) <= BOUND, f"{mean} and {base}")
            print(f"{kv_type}: {mean / base - 1:+.3%} of {first} on {which}")


measured()
finish()
