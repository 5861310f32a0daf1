#!/usr/bin/env python3
"""Writes a copy of a source of the engine with bugs in it, each active where planted_bugs.h says so.

usage: plant_bugs.py SOURCE COPY

A bug is a statement behind a line of the source. Error: the line is not there, or is there twice.
"""
import os
import sys

# Source -> bug, the line that it stands behind, what it does.
BUGS = {
    "scheduler.cc": [
        ("kStarvingPriority", "  job->rank = now - spec.priority * limits_.aging;", "job->rank = -spec.priority * limits_.aging;"),
        ("kLeakOnCancel", "      found = true;", "if ((*it)->fed() > 0) pool_.retain((*it)->kv->blocks().back());"),
    ],
    "plan_step.cc": [
        ("kDoubleReleaseOnPreemption", "  running_.pop_back();",
         "const std::int32_t last = job->kv->blocks().empty() ? -1 : job->kv->blocks().back();"
         " job->kv.reset(); if (last >= 0) pool_.release(last);"),
    ],
}


def main():
    source, copy = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for bug, behind, statement in BUGS[os.path.basename(source)]:
        if lines.count(behind) != 1:
            sys.exit(f"{source}: {lines.count(behind)} lines {behind.strip()!r}, where {bug} is to be planted")
        # On the same line, so that numbers stay what they are.
        lines[lines.index(behind)] += f" if (test::planted == test::PlantedBug::{bug}) {{ {statement} }}"
    with open(copy, "w", encoding="utf-8") as file:
        file.write('#include "tests/runtime/planted_bugs.h"\n#line 1\n' + "\n".join(lines))


if __name__ == "__main__":
    main()
