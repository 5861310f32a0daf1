#!/bin/sh
# Usage: check_tiles.sh LIBRARY
# Checks the machine code of the AMX tile kernels. g++ 12 drops the stores that fill a tile configuration on the stack,
# because its intrinsics do not declare that they read it. The kernels' configurations are constants, so the operand of
# each ldtilecfg must be addressed relative to the instruction pointer. A function that configures tiles must release them.
set -eu
code=$(objdump -d --no-show-raw-insn "$1")
for instruction in ldtilecfg tilerelease tileloadd tilestored tdpbsud tdpbf16ps; do
  echo "$code" | grep -q "$instruction" || { echo "no $instruction"; exit 1; }
done
echo "$code" | sed "s/ *#.*//" | awk '
  / ret/ || />:$/ { if (set) { print "tiles are not released by " name; bad = 1 } }
  />:$/ { name = $2; set = 0 }
  /ldtilecfg/ { set = 1 }
  /tilerelease/ { set = 0 }
  /ldtilecfg/ && !/\(%rip\)/ {
    register = $NF; gsub(/[()]/, "", register)
    if (from[register] !~ /\(%rip\)/) { print "a configuration that is no constant: " $0 " in " name; bad = 1 }
  }
  { last = $NF; sub(/.*,/, "", last); from[last] = $0 }  # the destination register is the last operand
  END { exit bad }'
