#!/bin/sh
# Usage: check_tiles.sh LIBRARY
# What the compiler made of the tile operations. g++ 12 is known to drop the stores that fill a tile configuration on the
# stack (its intrinsics do not say that they read it); here configurations are constants, so what each ldtilecfg reads
# must be addressed from the instruction pointer. Whoever configures also releases.
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
  { last = $NF; sub(/.*,/, "", last); from[last] = $0 }  # the register that an instruction writes stands last
  END { exit bad }'
