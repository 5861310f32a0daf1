#!/usr/bin/env python3
"""Counts test cases for tools/check: prints 'PASSED FAILED SKIPPED', and one line per skipped case on standard error.

usage: count_cases.py meson BUILD_DIR     from meson-logs/testlog.json: Catch2's cases; a program without cases counts as one
       count_cases.py tail LOG            from the last line of the form 'N passed, N failed[, N skipped]' in LOG
       count_cases.py self-test           checks the counting on sample outputs

A program that failed counts at least one failed case, whatever its output says. No result at all is one failure. A case
that the machine cannot run counts as skipped, never as passed: the program prints 'skipped: CASE: WHY', or 'skipped in
part: CASE: WHY' for a case that runs in part (tests/support/skip.h, tests/cli/lib_cli.py), or exits with status 77 if
everything is skipped.
"""
import json
import os
import re
import sys
import tempfile

CATCH_ALL = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)", re.M)
CATCH_NONE = re.compile(r"^No tests ran", re.M)  # no case matches the filter
CATCH_SOME = re.compile(r"^test cases: +(\d+)(?: \| +(\d+) passed)?(?: \| +(\d+) failed)?", re.M)
TAIL = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)
SKIPPED = re.compile(r"^skipped( in part)?: (.+)$", re.M)


def cases(output):
    """(passed, failed, skipped) according to a test program's output, or None if the output has no counts."""
    lines = SKIPPED.findall(output)
    whole = sum(not part for part, _ in lines)  # Catch2 counts them as passed
    if found := CATCH_ALL.findall(output):
        return int(found[-1]) - whole, 0, len(lines)
    if found := CATCH_SOME.findall(output):
        total, passed, failed = (int(x or 0) for x in found[-1])
        return max(passed - whole, 0), max(failed, total - passed), len(lines)
    if found := TAIL.findall(output):
        return tuple(int(x or 0) for x in found[-1])
    return (0, 1, 0) if CATCH_NONE.search(output) else None


def meson(build):
    totals = [0, 0, 0]
    with open(os.path.join(build, "meson-logs", "testlog.json"), encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            output = test.get("stdout") or ""
            ok, left = test["result"] in ("OK", "EXPECTEDFAIL"), test["result"] == "SKIP"
            good, bad, skipped = cases(output) or (int(ok), 0, 0)
            if left:
                skipped = max(skipped, 1)
            elif not ok:
                bad = max(bad, 1)
            for i, count in enumerate((good, bad, skipped)):
                totals[i] += count
            reasons = [reason for _, reason in SKIPPED.findall(output)]
            for reason in reasons or ["the whole test"] * left:
                print(f"skipped in {test['name']}: {reason}", file=sys.stderr)
    return tuple(totals) if any(totals) else (0, 1, 0)


def tail(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        found = TAIL.findall(log.read())
    return tuple(int(x or 0) for x in found[-1]) if found else (0, 1, 0)


def self_test():
    """Each row: a program's output, how it ended, and the counts expected."""
    some = "test cases: 5 | 3 passed | 2 failed\n"
    rows = [
        ("All tests passed (9 assertions in 5 test cases)\n", "OK", (5, 0, 0)),
        ("skipped: a: no data\nAll tests passed (9 assertions in 5 test cases)\n", "OK", (4, 0, 1)),
        ("skipped in part: a: gfx1: none\nAll tests passed (1 assertion in 1 test case)\n", "OK", (1, 0, 1)),
        ("x skipped: a\nAll tests passed (1 assertion in 1 test case)\n", "OK", (1, 0, 0)),
        ("skipped: a: no data\n" + some, "FAIL", (2, 2, 1)),
        ("All tests passed (9 assertions in 5 test cases)\n", "FAIL", (5, 1, 0)),
        ("3 passed, 0 failed, 2 skipped\n", "OK", (3, 0, 2)),
        ("0 passed, 0 failed, 2 skipped\n", "SKIP", (0, 0, 2)),
        ("no numpy\n", "SKIP", (0, 0, 1)),
        ("No test cases matched '[x]'\nNo tests ran\n", "OK", (0, 1, 0)),
        ("", "OK", (1, 0, 0)),
        ("", "TIMEOUT", (0, 1, 0)),
    ]
    bad = 0
    sys.stderr = open(os.devnull, "w", encoding="utf-8")
    with tempfile.TemporaryDirectory() as build:
        os.mkdir(os.path.join(build, "meson-logs"))
        for output, result, expected in [*rows, (None, None, (0, 1, 0))]:
            with open(os.path.join(build, "meson-logs", "testlog.json"), "w", encoding="utf-8") as log:
                if result:
                    log.write(json.dumps({"name": "a", "stdout": output, "result": result}) + "\n")
            if (found := meson(build)) != expected:
                bad += 1
                print(f"self-test: {output!r} {result}: counted {found}, expected {expected}")
    print(f"{len(rows) + 1 - bad} passed, {bad} failed")
    return bad


if __name__ == "__main__":
    if sys.argv[1:] == ["self-test"]:
        sys.exit(1 if self_test() else 0)
    print(*{"meson": meson, "tail": tail}[sys.argv[1]](sys.argv[2]))
