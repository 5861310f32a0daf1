#!/usr/bin/env python3
"""Checks every kernel in the full cross product of types, shapes and splits. Runs gpu_kernels_test in as many shards
at once as there are cores, each with its share of the kernels; takes hours of CPU time. Prints the last lines of
each shard, the whole output of a failed one, and 'N passed, N failed' shards; exit 1 if any failed.

  kernels_nightly.py PROGRAM [--shards N]
"""

import argparse
import os
import subprocess
import sys
import tempfile


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="gpu_kernels_test")
    parser.add_argument("--shards", type=int, default=len(os.sched_getaffinity(0)), help="default: a core each")
    args = parser.parse_args()
    if args.shards < 1:
        parser.error("--shards is at least 1")

    shards = []
    for number in range(args.shards):
        log = tempfile.TemporaryFile("w+", errors="replace")
        env = os.environ | {
            "FORGE_TEST_CROSS": "full",
            "FORGE_TEST_SHARD": f"{number}/{args.shards}",
            "ASAN_OPTIONS": "detect_stack_use_after_return=0",
        }
        process = subprocess.Popen([args.program, "--durations", "yes"], stdout=log, stderr=subprocess.STDOUT, env=env)
        shards.append((process, log))

    failed = 0
    for number, (process, log) in enumerate(shards):
        status = process.wait()
        log.seek(0)
        lines = log.read().splitlines()
        failed += status != 0
        print(f"== shard {number}: exit status {status}")
        print("\n".join(lines if status else lines[-3:]), flush=True)
    print(f"{args.shards - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
