#!/usr/bin/env python3
"""A long prompt on real models: prefill and decode give the same logits, bit for bit.

usage: long_prompt.py BIN_DIR [MODEL...]     default: the models of tools/scripts/fetch_model

4,000 tokens, so that sliding windows have dropped most of the context; the last 64 rows are compared. Takes minutes per
model. On GPUs, whose sums differ between the two, pass a bound: --nmse 1e-6.
"""
import argparse
import array
import os
import subprocess
import sys
import tempfile

ROWS, VOCAB_USED = 64, 1000
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def tokens(count):
    """Ids that every real vocabulary has, from a linear congruential generator, so that no row equals the one before."""
    state, out = 1, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        out.append(300 + (state >> 33) % VOCAB_USED)
    return out


def logits(forge_run, model, ids, extra):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logits")
        subprocess.run([forge_run, model, "--tokens", ",".join(map(str, ids)), "--dump-logits", path, "--logits-last", str(ROWS),
                        "-c", str(len(ids))] + extra, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        out = array.array("f")
        out.frombytes(open(path, "rb").read())
    return out


def nmse(x, reference):
    vocab = len(x) // ROWS
    error = power = 0.0
    for row in range(0, len(x), vocab):
        a, b = x[row:row + vocab], reference[row:row + vocab]
        mean = sum(b) / vocab
        error += sum((p - q) ** 2 for p, q in zip(a, b))
        power += sum((q - mean) ** 2 for q in b)
    return error / power


def compare(options, model):
    forge_run, ids = os.path.join(options.bin_dir, "forge-run"), tokens(options.tokens)
    whole = logits(forge_run, model, ids, options.extra)
    single = logits(forge_run, model, ids, options.extra + ["--decode"])
    same = sum(a == b for a, b in zip(whole, single))
    error = nmse(single, whole) if same < len(whole) else 0.0
    print(f"{os.path.basename(model)}: {len(ids)} tokens, {same} of {len(whole)} logits of the last {ROWS} rows are the same, "
          f"NMSE {error:.3g}", flush=True)
    return len(whole) == len(single) > 0 and error <= options.nmse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--nmse", type=float, default=0.0, help="what may differ at most; default: nothing")
    options, options.extra = parser.parse_known_args()  # unknown options are passed to forge-run
    if not options.models:
        names = [line.split("|")[0].strip() for line in open(os.path.join(ROOT, "tools", "scripts", "models.txt")) if line.strip() and line[0] != "#"]
        fetch = os.path.join(ROOT, "tools", "scripts", "fetch_model")
        options.models = [subprocess.run([fetch, name], check=True, capture_output=True, text=True).stdout.strip() for name in names]
    passed = [compare(options, model) for model in options.models]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) and passed else 1


if __name__ == "__main__":
    sys.exit(main())
