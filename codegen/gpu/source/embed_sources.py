#!/usr/bin/env python3
"""Writes the headers of kernels/gpu, kernels/quant and kernels/elementwise into a C++ table, which codegen/gpu/source/sources.h declares.

usage: embed_sources.py SOURCE_ROOT OUTPUT.cc DEPFILE

The depfile lists the headers and their folders, so that the table is regenerated when a header changes, appears or disappears.
"""
import os
import sys

FOLDERS = ("kernels/elementwise", "kernels/gpu", "kernels/gpu/prelude", "kernels/gpu/self_test", "kernels/quant")
DELIMITER = "forge_text"


def main():
    root, output, depfile = sys.argv[1:]
    paths = sorted(f"{folder}/{name}" for folder in FOLDERS for name in os.listdir(os.path.join(root, folder))
                   if name.endswith(".h") and not name.startswith("."))
    rows = []
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        if ")" + DELIMITER in text:
            sys.exit(f"{path} contains the delimiter of the table's strings")
        # The size is written too: compilers refuse to count a million characters in a constant expression.
        rows.append(f'    {{"{path}", {{R"{DELIMITER}({text}){DELIMITER}", {len(text.encode())}}}}},\n')
    with open(output, "w", encoding="utf-8") as file:
        file.write('#include "codegen/gpu/source/sources.h"\n\nnamespace forge::codegen {\n\n'
                   "std::span<const EmbeddedSource> embedded_sources() {\n"
                   "  static constexpr EmbeddedSource kSources[] = {\n" + "".join(rows) +
                   "  };\n  return kSources;\n}\n\n}  // namespace forge::codegen\n")
    with open(depfile, "w", encoding="utf-8") as file:
        depends = [os.path.join(root, path).replace(" ", "\\ ") for path in (*paths, *FOLDERS)]
        file.write(f"{output}: " + " ".join(depends) + "\n")


if __name__ == "__main__":
    main()
