# Shared by the shell tools of tools/ and tools/scripts/; sourced, never run.
# Sets ROOT (the project's root folder). Everything here works with Debian's bash 5.2 and coreutils alone.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Debian's interpreter, which setup.sh may have yet to install: another python3 that comes earlier on PATH lacks the
# packages that setup.sh installs.
PYTHON=/usr/bin/python3
[ -e /etc/debian_version ] || PYTHON=$(command -v python3 || true)

# say TEXT...: progress, on stderr, so that a tool's stdout stays its answer.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die TEXT: one clear line on stderr, then exit 1.
die() {
  say "$*"
  exit 1
}

# now_ms: milliseconds of the wall clock.
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# seconds MS: "12.3" for 12345.
seconds() { printf '%d.%d' $(($1 / 1000)) $(($1 % 1000 / 100)); }

# models_dir: where fetched models live.
models_dir() { echo "${FORGE_MODELS_DIR:-${XDG_DATA_HOME:-${HOME:?HOME is not set}/.local/share}/forge/models}"; }
