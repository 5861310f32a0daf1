#!/usr/bin/env bash
# Tests tools/quickstart and tools/check on a system without any packages installed for forge: makes a bare Debian 12 with
# debootstrap, clones the committed tree into it, and runs both there in a chroot, twice.
#
#   tools/scripts/debootstrap_test.sh DIR [--variant minbase|default] [--rounds N] [--only quickstart|check] [--reuse] [--keep]
#
#   DIR       folder for the root file system (about 3 GB); it must not exist yet
#   --rounds  how often both commands run; default 2: the second time everything is installed and built
#   --keep    do not delete DIR at the end
#   --reuse   use a DIR of an earlier run with --keep, after updating the clone in it; implies --keep
#
# Needs root and debootstrap. Uses this machine's mirror, proxy and certificates. Reference data ($FORGE_SHARED, else
# ../shared) is copied in. The last line is "N passed, N failed", counting commands.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target= variant=minbase rounds=2 only= keep=false reuse=false
while [ $# -gt 0 ]; do
  case $1 in
    --variant | --rounds | --only)
      [ $# -ge 2 ] || die "$1 needs a value"
      case $1 in --variant) variant=$2 ;; --rounds) rounds=$2 ;; --only) only=$2 ;; esac
      shift ;;
    --keep) keep=true ;;
    --reuse) reuse=true keep=true ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    -*) die "unknown option '$1'; --help lists them" ;;
    *) [ -z "$target" ] || die "more than one folder was given"; target=$1 ;;
  esac
  shift
done
[ -n "$target" ] || die "DIR is missing: tools/scripts/debootstrap_test.sh DIR"
[ "$(id -u)" -eq 0 ] || die "chroot and mount need root"
command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
if $reuse; then
  [ -d "$target/forge/.git" ] || die "$target is not the folder of an earlier run with --keep"
else
  [ ! -e "$target" ] || die "$target exists already; name a new folder, or give --reuse"
fi
mkdir -p "$target"
target=$(cd "$target" && pwd)

# mirror: the first apt source of this machine that serves bookworm, from both of apt's file formats.
mirror() {
  local files=()
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ ! -f "$file" ] || files+=("$file")
  done
  awk '
    FNR == 1 { uri = "" }
    $1 == "deb" { i = ($2 ~ /^\[/) ? 3 : 2; while ($2 ~ /^\[/ && $(i - 1) !~ /\]$/) i++; if ($(i + 1) == "bookworm") { print $i; exit } }
    $1 == "URIs:" { uri = $2 }
    $1 == "Suites:" { for (i = 2; i <= NF; i++) if ($i == "bookworm" && uri) { print uri; exit } }
  ' "${files[@]}"
}

unmount() {
  for mounted in dev sys proc; do
    ! mountpoint -q "$target/$mounted" || umount -R "$target/$mounted" || umount -lR "$target/$mounted" || true
  done
}
finish() {
  unmount
  if $keep; then return; fi
  # If something is still mounted, nothing is deleted, because rm would delete through the mount.
  grep -q " $target/" /proc/mounts || rm -rf --one-file-system "$target"
}
trap finish EXIT

# make_root: makes the bare system; from this machine it gets only the network settings, certificates and reference data.
make_root() {
  local uri options=()
  uri=$(mirror)
  [ -n "$uri" ] || die "no apt source of this machine serves bookworm"
  [ "$variant" = default ] || options+=(--variant="$variant")
  debootstrap "${options[@]}" bookworm "$target" "$uri" >"$target.debootstrap.log" 2>&1 ||
    { tail -n 5 "$target.debootstrap.log" >&2; die "debootstrap failed; see $target.debootstrap.log"; }
  rm -f "$target.debootstrap.log"
  apt-config dump | grep -iE '^Acquire::https?::(proxy|cainfo)|^Acquire::Retries' >"$target/etc/apt/apt.conf.d/99machine" || true
  if [ -d /usr/local/share/ca-certificates ]; then
    mkdir -p "$target/usr/local/share"
    cp -rL /usr/local/share/ca-certificates "$target/usr/local/share/"
  fi
  [ ! -f /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$target/etc/machine-ca.crt"
  # Services of installed packages must not start in a chroot.
  printf '#!/bin/sh\nexit 101\n' >"$target/usr/sbin/policy-rc.d"
  chmod +x "$target/usr/sbin/policy-rc.d"
  git clone --quiet --no-hardlinks "$ROOT" "$target/forge"
  local shared=${FORGE_SHARED:-$ROOT/../shared}
  [ ! -d "$shared" ] || cp -rL "$shared" "$target/shared"
}

# inside NAME COMMAND...: runs a command in the chroot with a clean environment; prints its time and its last lines.
passed=0 failed=0
inside() {
  local name=$1 begun status=0 pass=() variable home
  home=$(awk -F: '$3 == 0 { print $6; exit }' "$target/etc/passwd")
  shift
  for variable in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_DEFAULT_TIMEOUT; do
    [ -z "${!variable:-}" ] || pass+=("$variable=${!variable}")
  done
  [ ! -f "$target/etc/machine-ca.crt" ] || pass+=(PIP_CERT=/etc/machine-ca.crt)
  begun=$(now_ms)
  chroot "$target" /usr/bin/env -i "${pass[@]}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" \
    LANG=C.UTF-8 TERM=dumb bash -c 'cd /forge && exec "$@"' bash "$@" </dev/null >"$target/$name.log" 2>&1 || status=$?
  if [ $status -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  printf '== %-14s %7s s  exit %d\n' "$name" "$(seconds $(($(now_ms) - begun)))" $status
  if [ $status -ne 0 ] || [[ $name == check* ]]; then tail -n 40 "$target/$name.log"; else tail -n 12 "$target/$name.log"; fi
}

begun=$(now_ms)
if $reuse; then
  git -C "$target/forge" fetch --quiet "$ROOT" HEAD && git -C "$target/forge" reset --quiet --hard FETCH_HEAD
else
  make_root
fi
# The files for name resolution are copied each time, because the network may have changed since an earlier run.
cp -L /etc/resolv.conf /etc/hosts "$target/etc/"
mount -t proc proc "$target/proc"
mount -t sysfs sysfs "$target/sys" 2>/dev/null || true
mount --rbind /dev "$target/dev" 2>/dev/null || mount --bind /dev "$target/dev"
printf '== %-14s %7s s\n' "bare root" "$(seconds $(($(now_ms) - begun)))"

for round in $(seq "$rounds"); do
  [ "$only" = check ] || inside "quickstart-$round" tools/quickstart "Why is the sky blue? One sentence."
  [ "$only" = quickstart ] || inside "check-$round" .ci/run
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
