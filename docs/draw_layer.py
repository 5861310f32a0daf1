#!/usr/bin/env python3
"""Cuts one layer out of a DOT dump of `forge-compile --dump-dot` and prints DOT for it and what it touches.

usage: draw_layer.py DUMP.dot LAYER | dot -Tsvg > layer.svg
docs/layer.svg is layer 1 of SmolLM2's decode variant (the dump named NN-decode1.dot).
"""
import re
import sys


def cut(text, layer):
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.strip() == f"subgraph cluster_layer_{layer} {{"), None)
    if begin is None:
        sys.exit(f"no layer {layer} in this dump")
    depth, end = 0, begin
    while True:
        depth += lines[end].strip().endswith("{") - (lines[end].strip() == "}")
        if depth == 0:
            break
        end += 1
    inside = lines[begin : end + 1]
    names = {m.group(1): line for line in lines if (m := re.match(r"\s*(n\d+) \[", line))}
    own = {m.group(1) for line in inside if (m := re.match(r"\s*(n\d+) \[", line))}
    edges = [(m.group(1), m.group(2), line) for line in lines if (m := re.match(r"\s*(n\d+) -> (n\d+)", line))]
    # Neighbours: what the layer reads, and the first steps that read its results.
    touching = [e for e in edges if e[0] in own or e[1] in own]
    outer = sorted({n for e in touching for n in e[:2]} - own, key=lambda n: int(n[1:]))
    return "\n".join([*lines[:4], *(names[n] for n in outer), *inside, *(e[2] for e in touching), "}"])


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as dump:
        print(cut(dump.read(), int(sys.argv[2])))
