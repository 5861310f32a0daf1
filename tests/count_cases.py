#!/usr/bin/env python3
"""Counts test cases for tools/check; prints 'PASSED FAILED SKIPPED'.

usage: count_cases.py meson BUILD_DIR     from meson-logs/testlog.json: Catch2's cases, or one a program without them
       count_cases.py tail LOG            from the last line of the form 'N passed, N failed[, N skipped]' in LOG

A program that failed counts at least one failed case, whatever its output says. No result at all is one failure.
"""
import json
import os
import re
import sys

CATCH_ALL = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)", re.M)
CATCH_SOME = re.compile(r"^test cases: +(\d+)(?: \| +(\d+) passed)?(?: \| +(\d+) failed)?", re.M)
TAIL = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)


def cases(output):
    """(passed, failed) that a test program's output claims, or None when it claims nothing."""
    if found := CATCH_ALL.findall(output):
        return int(found[-1]), 0
    if found := CATCH_SOME.findall(output):
        total, passed, failed = (int(x or 0) for x in found[-1])
        return passed, max(failed, total - passed)
    if found := TAIL.findall(output):
        return int(found[-1][0]), int(found[-1][1])
    return None


def meson(build):
    passed = failed = skipped = 0
    with open(os.path.join(build, "meson-logs", "testlog.json"), encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            ok = test["result"] in ("OK", "EXPECTEDFAIL")
            if test["result"] == "SKIP":
                skipped += 1
                continue
            good, bad = cases(test.get("stdout") or "") or (int(ok), 0)
            passed += good
            failed += bad if ok else max(bad, 1)
    return passed, failed if passed + failed + skipped else 1, skipped


def tail(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        found = TAIL.findall(log.read())
    return tuple(int(x or 0) for x in found[-1]) if found else (0, 1, 0)


if __name__ == "__main__":
    print(*{"meson": meson, "tail": tail}[sys.argv[1]](sys.argv[2]))
