#!/bin/sh
# Usage: check_symbols.sh CLASS LIBRARY ENTRY
# Proves that a CPU class's library defines no symbol outside the class's namespace. Each class has its own compiler
# flags, and the linker could otherwise use such a symbol in code that runs on an older CPU. Tables of constants (symbol
# type u: inline constexpr) are equal in all classes and therefore allowed.
set -eu
leaks=$(nm -C --defined-only "$2" | awk 'NF >= 3 && $2 ~ /^[A-Zvw]$/' | grep -v "forge::cpu::class_$1::" || true)
[ -z "$leaks" ] || { echo "class $1 defines symbols outside its namespace:"; echo "$leaks"; exit 1; }
nm -C --defined-only "$2" | grep -q "forge::cpu::class_$1::$3" || { echo "class $1 has no $3"; exit 1; }
