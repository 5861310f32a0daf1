#!/bin/sh
# Usage: check_symbols.sh CLASS LIBRARY ENTRY
# A class of CPU is compiled with flags of its own. Whatever it defines outside its namespace could be picked by the
# linker for code that runs on an older CPU, so there must be nothing of the kind. Tables of constants (u: inline constexpr)
# are the same in all.
set -eu
leaks=$(nm -C --defined-only "$2" | awk 'NF >= 3 && $2 ~ /^[A-Zvw]$/' | grep -v "forge::cpu::class_$1::" || true)
[ -z "$leaks" ] || { echo "class $1 defines symbols outside its namespace:"; echo "$leaks"; exit 1; }
nm -C --defined-only "$2" | grep -q "forge::cpu::class_$1::$3" || { echo "class $1 has no $3"; exit 1; }
