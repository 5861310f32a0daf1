#!/usr/bin/env python3
"""Whole models of the reference set run on the host lane executor within the reference judge's bounds.

usage: conformance.py HOST_GPU_RUN SHARED [CASE,CASE]     $FORGE_SHARED, where set, instead of SHARED; exit 77 where the reference data or numpy is absent

Runs waves of 32 and 64: prefill and decode, and the embeddings of encoders. The judge is given a folder whose forge-run is HOST_GPU_RUN.
"""
import os
import re
import subprocess
import sys
import tempfile

CASES = "llama-q4_0,llama-f16,qwen2-q4_k_m,qwen3moe-q4_k_m,gptoss-mxfp4"
ROUTED = "afmoe-q4_0,exaone-moe-q4_0"  # of ../families: rounding activations to int8 would change the choice of experts
MTP = "step35-mtp-q8_0"  # of ../mtp: 4 gates of heads lie behind heads that are normalised
DEVICES = "gfx1100", "gfx90a"


def main():
    program, shared = os.path.abspath(sys.argv[1]), os.path.abspath(os.environ.get("FORGE_SHARED") or sys.argv[2])
    cases = sys.argv[3] if len(sys.argv) > 3 else CASES
    runs = [["conformance", os.path.join(shared, "conformance"), "--only", cases, "--device", device, *mode]
            for device in DEVICES for mode in ([], ["--decode"])]
    if len(sys.argv) <= 3:
        families = os.path.join(shared, "families")
        runs += [["embeddings", os.path.join(families, "embeddings"), "--device", device] for device in DEVICES]
        for folder, only in (families, ROUTED), (os.path.join(shared, "mtp"), MTP):
            runs += [["conformance", folder, "--only", only, "--device", device, "--decode"] for device in DEVICES]
    judge = os.path.join(shared, "judge.py")
    try:
        import numpy  # the judge needs it
    except ImportError:
        print("skipped: conformance on the host executor: numpy is absent")
        return 77
    if not os.path.exists(judge):
        print(f"skipped: conformance on the host executor: reference data is absent ({judge})")
        return 77
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(program, os.path.join(folder, "forge-run"))
        for run in runs:
            command = [sys.executable, judge, folder, *run, "-v"]
            print(" ".join(run), flush=True)
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            print(done.stdout, end="", flush=True)
            counts = re.findall(r"^(\d+) passed, (\d+) failed", done.stdout, re.M)
            good, bad = map(int, counts[-1]) if counts else (0, 0)
            passed += good
            failed += max(bad, int(done.returncode != 0 or good == 0))  # no case found counts as a failure
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
