#!/usr/bin/env python3
"""Writes the Unicode tables of the chat-template engine, taken from Python's own str methods, which it imitates.

usage: gen_unicode.py OUT.inc
A class is a list of sorted, disjoint ranges. A case mapping is a list of rows (first, last, stride, delta): each stride-th
code point from first to last is mapped by adding delta. Mappings to several code points are a list of their own.
"""
import sys

CLASSES = {
    "kSpace": str.isspace, "kAlpha": str.isalpha, "kDigit": str.isdigit, "kDecimal": str.isdecimal,
    "kNumeric": str.isnumeric, "kPrintable": str.isprintable, "kUpper": str.isupper, "kLower": str.islower,
    "kTitle": lambda c: c.istitle() and not c.isupper(), "kIdentStart": str.isidentifier,
    "kIdentPart": lambda c: ("a" + c).isidentifier(),
}
MAPS = {"kToUpper": str.upper, "kToLower": str.lower, "kToTitle": str.title, "kFold": str.casefold}
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(test):
    rows = []
    for code in POINTS:
        if test(chr(code)):
            if rows and rows[-1][1] == code - 1: rows[-1][1] = code
            else: rows.append([code, code])
    return rows


def mapping(change):
    rows, several = [], []
    for code in POINTS:
        to = change(chr(code))
        if to == chr(code): continue
        if len(to) > 1: several.append((code, [*map(ord, to), 0, 0][:3])); continue
        delta = ord(to) - code
        last = rows[-1] if rows else None
        if last and last[3] == delta and (last[1] == code - last[2] or (last[0] == last[1] and code - last[1] <= 2)):
            last[2] = code - last[1]; last[1] = code
        else: rows.append([code, code, 1, delta])
    return rows, several


with open(sys.argv[1], "w") as out:
    for name, test in CLASSES.items():
        rows = ranges(test)
        print(f"constexpr Range {name}[] = {{{','.join('{%d,%d}' % tuple(r) for r in rows)}}};", file=out)
    for name, change in MAPS.items():
        rows, several = mapping(change)
        print(f"constexpr CaseRange {name}[] = {{{','.join('{%d,%d,%d,%d}' % tuple(r) for r in rows)}}};", file=out)
        body = ",".join("{%d,{%d,%d,%d}}" % (c, *t) for c, t in several)
        print(f"constexpr CaseMany {name}Many[] = {{{body}}};", file=out)
