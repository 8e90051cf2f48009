# Shared by the scripts of this folder: a temporary folder, packages, and checks. Sourced, not run.
# shellcheck shell=bash
set -euo pipefail

# shellcheck disable=SC2034 # for those that source this
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
at_end=()
end() {
    local each
    for each in "${at_end[@]}"; do $each; done
    cd /
    rm -rf "$work"
}
trap end EXIT
cd "$work"

# packages NAME==VERSION...: installs them, and what they need, into $work/venv; `python` is its interpreter then.
packages() {
    [ -d venv ] || "${FINDINGS_PYTHON:-python3}" -m venv venv
    venv/bin/pip install --quiet --no-compile --disable-pip-version-check "$@" 2>pip.log || { cat pip.log >&2; exit 2; }
    echo "versions: $*; $(venv/bin/python --version)"
}
packages_alone() { packages --no-deps "$@"; } # without what they need
python() { "$work/venv/bin/python" "$@"; }

# needs PROGRAM...: ends the script where one is missing.
needs() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "$program is missing: this finding cannot be shown here" >&2; exit 2; }
    done
}

# debian NAME: unpacks the distribution's package of this name into $work/debian, and installs nothing.
debian() {
    apt-get download --quiet "$1" >/dev/null 2>apt.log && dpkg -x "$1"_*.deb debian || { cat apt.log >&2; exit 2; }
    PATH=$work/debian/usr/bin:$work/debian/bin:$PATH
}

# seen WHAT SEEN EXPECTED: prints what was seen; ends the script with an error if it is something else.
seen() {
    printf '%s -> %s\n' "$1" "$2"
    [ "$2" = "$3" ] || { printf 'changed: it was %q\n' "$3" >&2; exit 1; }
}
