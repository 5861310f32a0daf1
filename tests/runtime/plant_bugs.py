#!/usr/bin/env python3
"""Writes a copy of one of the scheduler's sources with bugs in it; planted_bugs.h selects the active one at run time.

usage: plant_bugs.py SOURCE COPY

A bug is a statement inserted after a line of the source. It is an error if the source has that line not exactly once.
"""
import os
import sys

# Source -> (name of the bug, the line that it is inserted after, the statement).
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
    "batch.cc": [
        ("kSnapshotNotCopied", "      state_write_.push_back(part.kv->state_write());",
         "if (part.kv->state_read() >= 0) state_write_.back() = part.kv->state_read();"),
    ],
    "snapshots.cc": [
        ("kStateReleasedTwice", "  if (keeps_states()) (void)job.kv->keep_state(std::span(job.ids).first(job.fed()));",
         "if (keeps_states() && job.kv->state_write() >= 0) pool_.release_state(job.kv->state_write());"),
    ],
    "state_slots.cc": [
        ("kStaleSnapshotReused", "void StateSlots::forget_all() {", "return;"),
    ],
}


def main():
    source, copy = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for bug, behind, statement in BUGS[os.path.basename(source)]:
        if lines.count(behind) != 1:
            sys.exit(f"{source}: {lines.count(behind)} lines {behind.strip()!r}, where {bug} is to be planted")
        # On the same line, so that line numbers do not change.
        lines[lines.index(behind)] += f" if (test::planted == test::PlantedBug::{bug}) {{ {statement} }}"
    with open(copy, "w", encoding="utf-8") as file:
        file.write('#include "tests/runtime/planted_bugs.h"\n#line 1\n' + "\n".join(lines))


if __name__ == "__main__":
    main()
