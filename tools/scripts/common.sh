# Functions of the shell scripts in tools/ and tools/scripts/, which source this file.
# Sets ROOT, the project's root folder, and PYTHON. Needs only Debian's bash 5.2 and coreutils.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Debian's Python, even if setup.sh has not installed it yet: another python3 earlier in PATH would lack the packages that
# setup.sh installs.
PYTHON=/usr/bin/python3
[ -e /etc/debian_version ] || PYTHON=$(command -v python3 || true)

# say TEXT...: prints progress to stderr; stdout is for results.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die TEXT: prints one line to stderr and exits with status 1.
die() {
  say "$*"
  exit 1
}

# now_ms: wall-clock time in ms.
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# seconds MS: prints 12345 as "12.3".
seconds() { printf '%d.%d' $(($1 / 1000)) $(($1 % 1000 / 100)); }

# models_dir: the folder of downloaded models.
models_dir() { echo "${FORGE_MODELS_DIR:-${XDG_DATA_HOME:-${HOME:?HOME is not set}/.local/share}/forge/models}"; }
