#!/usr/bin/env python3
"""Writes golden.inc: hashes of what the PyPI package gguf (0.19) dequantises random blocks of each type to.

    python3 -m venv V && V/bin/pip install gguf==0.19.0 && V/bin/python tests/kernels/make_golden.py > tests/kernels/golden.inc
    ... make_golden.py --grid IQ2_XS        prints a grid as the header of its type has it

The blocks come from the same random generator here and in golden_test.cc, so that only hashes of results are stored.
"""
import sys

import gguf
import numpy as np
from gguf import quants

BLOCKS = 64
# Byte offsets in a block that hold the sign and exponent of an f16. They are set to 2^-7 .. 2^-4.
TYPES = {
    "Q8_0": [1], "Q4_0": [1], "Q4_1": [1, 3], "Q5_0": [1], "Q5_1": [1, 3], "Q2_K": [81, 83], "Q3_K": [109],
    "Q4_K": [1, 3], "Q5_K": [1, 3], "Q6_K": [209], "IQ4_NL": [1], "IQ4_XS": [1], "MXFP4": [], "IQ2_XXS": [1],
    "IQ2_XS": [1], "IQ2_S": [1], "IQ3_XXS": [1], "IQ3_S": [1], "IQ1_S": [1], "IQ1_M": [55], "TQ1_0": [53],
    "TQ2_0": [65], "Q1_0": [1], "Q2_0": [1], "NVFP4": [],
}
MASK = (1 << 64) - 1


def random_bytes(seed, count):
    """The lowest byte of each splitmix64 number."""
    out = bytearray()
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        z = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        out.append((z ^ z >> 31) & 255)
    return out


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & MASK
    return value


def grid(name):
    cls = getattr(quants, name)
    cls.init_grid()
    bits = 3 if len(cls.grid_map) == 8 else 2
    index = {int(v): i for i, v in enumerate(cls.grid_map)}
    rows = np.asarray(cls.grid).reshape(cls.grid_shape)
    words = [sum(index[int(v)] << bits * i for i, v in enumerate(row)) for row in rows]
    for at in range(0, len(words), 15):
        print("    " + ", ".join(f"0x{w:04x}" for w in words[at:at + 15]) + ",")


def signs(blocks):
    """Q1_0: an f16 scale, and one sign bit for each of 128 elements, set for plus. The package has only its block size."""
    d = blocks[:, :2].copy().view("<f2").astype("<f4")
    return np.where(np.unpackbits(blocks[:, 2:], axis=1, bitorder="little"), d, -d)


def pairs(blocks):
    """Q2_0: an f16 scale, and four quants of two bits a byte, lowest first, less 1. The package does not have it."""
    d = blocks[:, :2].copy().view("<f2").astype("<f4")
    return d * ((blocks[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(len(blocks), 64).astype("<f4") - 1)


OWN = {"Q1_0": signs, "Q2_0": pairs}


def main():
    if len(sys.argv) == 3:
        return grid(sys.argv[2])
    print("// Made by make_golden.py: type, bytes of an f16's exponent, FNV-1a of the results' bits, the first four of them.")
    for name, exponents in TYPES.items():
        number, elems, size = (gguf.GGMLQuantizationType[name], *gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]) \
            if name != "Q2_0" else (42, 64, 18)
        data = random_bytes(int(number), BLOCKS * size)
        for block in range(BLOCKS):
            for at in exponents:
                data[block * size + at] = data[block * size + at] & 0x8F | 0x20
        with np.errstate(over="ignore"):
            native = np.frombuffer(bytes(data), np.uint8)
            values = OWN[name](native.reshape(BLOCKS, size)) if name in OWN else quants.dequantize(native, number)
            values = values.astype("<f4")
        assert values.size == BLOCKS * elems
        first = ", ".join(f"0x{bits:08x}" for bits in values.view("<u4").ravel()[:4])
        print(f"{{DType::k{name}, {{{', '.join(map(str, exponents))}}}, 0x{fnv1a(values.tobytes()):016x}u, {{{first}}}}},")


main()
