#!/usr/bin/env bash
# Sets up what tvsnap needs on Debian 12 or newer or Ubuntu, and only what is missing:
#
#   1. what compiles: the C library's headers, and musl, a smaller one; iptables, for tests, which `plain` leaves out
#   2. .venv: tvsnap in editable mode, and its development tools, which `scripts/setup.sh plain` leaves out
#   3. what `tvsnap setup` installs or builds for those who use tvsnap: btrfs tools, mmdebstrap, CRIU
#
# Run it as often as you like; when nothing is missing it takes a fraction of a second.
#
#   PYTHON=python3.12 scripts/setup.sh        make .venv with this interpreter
#   TVSNAP_WITHOUT_CRIU=1 scripts/setup.sh    go on without CRIU (`tvsnap doctor` tells what that costs)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

EXTRA=dev
[ "${1:-}" != plain ] || EXTRA=

CONSTRAINTS=tests/constraints/newest.txt # what the tests run with; `make constraints` renews it

# A .venv keeps its interpreter unless another is asked for.
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$(.venv/bin/python -c 'import sys; print(sys._base_executable)' 2>/dev/null) || PYTHON=python3
fi

require() { # COMMAND PACKAGE
    command -v "$1" >/dev/null || die "$1 is missing: apt-get install $2"
}

check_platform() {
    [ "$(uname -s)" = Linux ] || die "tvsnap runs on Linux, and this is $(uname -s)"
    require gcc "gcc libc6-dev"
    require make make
    require "$PYTHON" python3
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        die "Python 3.10 or newer is needed, and $PYTHON is $("$PYTHON" --version); choose another: PYTHON=python3.12 make setup"
}

install_system_packages() {
    local wanted=(libc6-dev musl-tools)
    # Debian packs what `python3 -m venv` needs apart; a Python that came another way has it.
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
        wanted+=("$("$PYTHON" -c 'import sys; print(f"python3.{sys.version_info.minor}-venv")')")
    [ -z "$EXTRA" ] || wanted+=(iptables) # tests of broken connections
    install_packages "${wanted[@]}"
}

# What is imported is compiled then: most of what is installed never is.
pip_install() { .venv/bin/python -m pip install --disable-pip-version-check --no-compile -c "$CONSTRAINTS" "$@"; }

# What .venv was made from; when it changes, the package is installed anew.
venv_stamp() {
    pwd
    "$PYTHON" -c 'import sys; print(sys.version)'
    ls -d tvsnap/__init__.py cli images 2>/dev/null || true
    sha256sum pyproject.toml setup.py "$CONSTRAINTS"
}

# Builds CRIU beside pip, which uses one processor; `tvsnap setup` says what came of it, and would build it otherwise.
criu=
build_criu_meanwhile() {
    [ "$(id -u)" = 0 ] && [ -z "${TVSNAP_CRIU:-}${TVSNAP_WITHOUT_CRIU:-}" ] || return 0
    scripts/ensure_criu.sh >/dev/null 8>&- &
    criu=$!
    trap '[ -z "$criu" ] || kill "$criu"' EXIT
}

# Whether .venv was made from what there is now: plain.stamp says it of tvsnap, tvsnap.stamp of the development tools, too.
is_current() { [ "$STAMP" = "$(cat "$1" 2>/dev/null)" ]; }

ensure_venv() {
    STAMP=$(venv_stamp)
    if is_current .venv/tvsnap.stamp || { [ -z "$EXTRA" ] && is_current .venv/plain.stamp; }; then
        MAKEFLAGS='' make --no-print-directory --silent native
        return
    fi
    # A .venv of another interpreter or another place holds wrong paths.
    if [ "$(head -n 2 <<<"$STAMP")" != "$(head -n 2 .venv/plain.stamp 2>/dev/null)" ]; then
        say "making .venv with $("$PYTHON" --version)"
        run_logged venv "$PYTHON -m venv .venv" "$PYTHON" -m venv --clear .venv
    fi
    build_criu_meanwhile
    say "installing tvsnap${EXTRA:+ and its development tools} into .venv"
    # The build backend comes first: where pip fetched one by itself, it would be another with each release.
    run_logged pip-build "pip install setuptools" pip_install setuptools wheel
    run_logged pip "pip install" pip_install --no-build-isolation -e ".${EXTRA:+[$EXTRA]}"
    echo "$STAMP" >.venv/plain.stamp
    [ -z "$EXTRA" ] || echo "$STAMP" >.venv/tvsnap.stamp
}

one_set_up_at_a_time
check_platform
install_system_packages
exec 9>&- # the scripts that follow wait for their turn, too
exec 8<scripts && flock 8 # .venv is this checkout's
ensure_venv
exec 8>&-
[ -z "$criu" ] || wait "$criu" || true
criu=
.venv/bin/tvsnap setup --yes >/dev/null
