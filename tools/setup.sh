#!/usr/bin/env bash
# Installs the Debian 12 (bookworm) packages that forge needs and that are not installed yet.
#
#   tools/setup.sh [--group build|test|cross|all] [--list] [--check]
#
#   --group  which packages: `build` to build the tools, `test` for tests and checks, `cross` for the ARM compiler and QEMU
#            of tools/scripts/build_aarch64, `all` (default) for all of these
#   --list   print the packages of the group, one per line, and exit
#   --check  install nothing; if packages are missing, name them and exit with status 1
#
# If nothing is missing, only dpkg is asked: no network, no root. Otherwise sudo is used unless the user is root.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"

# The list of packages: group, package, purpose.
packages() {
  grep -v '^ *\(#\|$\)' <<'TABLE'
build g++                      compiler, version 12 for C++23
build meson                    build description
build ninja-build              build
build ccache                   makes repeated builds fast
build pkg-config               finds the libraries below
build libboost1.81-dev         Boost headers
build libboost-graph1.81-dev   graph of the IR
build libboost-context1.81-dev fibers of the lane-by-lane kernel executor
build libhwy-dev               portable SIMD
build libflatbuffers-dev       plan format
build flatbuffers-compiler     generates the plan format's code
build libcli11-dev             command lines
build libfmt-dev               text formatting
build libamdhip64-dev          HIP headers, hipRTC
build nlohmann-json3-dev       JSON
build libxxhash-dev            content hashes
build prometheus-cpp-dev       metrics of the server
build libmimalloc-dev          memory allocator of the tools
build libutf8proc-dev          Unicode tables
build libpcre2-dev             regular expressions of pre-tokenizers
build libedit-dev              line editing of the chat prompt
build python3-pip              downloads the model
build ca-certificates          downloads the model
test  catch2                   unit tests
test  librapidcheck-dev        property tests
test  libbenchmark-dev         GoogleBenchmark programs
test  graphviz                 pictures of graphs, and their tests
test  python3-numpy            reference logits
test  python3-venv             isolated Python tools: clang-tidy
test  clang-format-19          formatting check
test  clang-19                 kernels for GPUs that hipRTC 5.2 does not know
test  libclang-rt-19-dev       sanitizers and libFuzzer of clang-19
test  lld-19                   links GPU kernels
test  llvm-19                  disassembles code objects
cross g++-aarch64-linux-gnu    cross compiler for ARM
cross qemu-user                runs ARM programs
TABLE
}

# installed PACKAGE...: prints those that are installed, one per line.
installed() { dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^.i  *//p' | sort -u; }

group=all
action=install
while [ $# -gt 0 ]; do
  case $1 in
    --group) [ $# -ge 2 ] || die "--group needs a name: build, test, cross or all"; group=$2; shift ;;
    --list) action=list ;;
    --check) action=check ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) die "unknown argument '$1'; --help lists them" ;;
  esac
  shift
done
case $group in build | test | cross | all) ;; *) die "unknown group '$group': build, test, cross or all" ;; esac

mapfile -t wanted < <(packages | awk -v group="$group" 'group == "all" || $1 == group { print $2 }')
if [ $action = list ]; then
  printf '%s\n' "${wanted[@]}"
  exit 0
fi
command -v dpkg-query >/dev/null || die "this is not Debian (no dpkg-query); install by hand: ${wanted[*]}"

mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort) <(installed "${wanted[@]}"))
[ ${#missing[@]} -gt 0 ] || exit 0
if [ $action = check ]; then
  die "missing: ${missing[*]}; tools/setup.sh installs them"
fi

# Debian allows the headers of only one Boost version. Another one is not replaced: other projects may need it.
conflicting=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 'libboost1.[0-9]*-dev' 2>/dev/null |
  sed -n 's/^.i  *//p' | grep -v '^libboost1\.81-dev$' || true)
if [ -n "$conflicting" ] && printf '%s\n' "${missing[@]}" | grep -q '^libboost.*1\.81-dev$'; then
  die "$conflicting is installed and conflicts with libboost1.81-dev; remove it first: apt-get remove $conflicting"
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "missing: ${missing[*]}; run tools/setup.sh as root, because sudo is not installed"
  if [ ! -t 0 ] && ! sudo -n true 2>/dev/null; then
    die "missing: ${missing[*]}; sudo needs a password, and there is no terminal to enter it; run tools/setup.sh as root"
  fi
  as_root=(sudo)
fi

say "installing ${#missing[@]} of ${#wanted[@]} packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" </dev/null >>"$log" 2>&1; }

# A failed update is only reported, because it may concern an apt source that is not needed; a failed install is an error.
apt update || say "apt-get update reported: $(grep -m1 -E '^(E|Err|W):?' "$log" || tail -n1 "$log")"
if ! apt install -y --no-install-recommends "${missing[@]}"; then
  die "apt-get install failed: $(grep -m1 '^E:' "$log" || tail -n1 "$log"); check the network and that apt has Debian 12's main sources"
fi
say "installed"
