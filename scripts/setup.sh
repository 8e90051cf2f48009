#!/usr/bin/env bash
# Sets up what tvsnap needs on Debian 12 or newer or Ubuntu, and only what is missing:
#
#   1. system packages: btrfs tools, mmdebstrap, mount, the C library's headers, and musl, a smaller one
#   2. CRIU 4.2 or newer: built from the source that apt fetches from a newer suite, with what it lacks
#      (scripts/build_criu.sh); the binary is kept under ~/.cache/tvsnap for the next time. Where it cannot be built,
#      the distribution's, if it is good (`tvsnap doctor` tells what that costs)
#   3. .venv: tvsnap in editable mode, its development tools, and a link to criu
#
# Run it as often as you like; when nothing is missing it takes a fraction of a second.
#
#   PYTHON=python3.12 scripts/setup.sh        make .venv with this interpreter
#   TVSNAP_WITHOUT_CRIU=1 scripts/setup.sh    go on without CRIU (`tvsnap doctor` tells what that costs)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

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
    local wanted=(btrfs-progs libc6-dev mmdebstrap mount musl-tools util-linux)
    # Debian packs what `python3 -m venv` needs apart; a Python that came another way has it.
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
        wanted+=("$("$PYTHON" -c 'import sys; print(f"python3.{sys.version_info.minor}-venv")')")
    install_packages "${wanted[@]}"
}

# The newest CRIU that an earlier run kept.
kept_criu() {
    local binary
    while read -r binary; do
        if at_least "$(criu_version "$binary")" "$OLDEST_CRIU"; then
            echo "$binary"
            return
        fi
    done < <(find "$CACHE" -mindepth 2 -maxdepth 2 -path "*/criu-*-$CRIU_ADDITIONS/criu" -type f | sort -rV)
}

# The distribution's CRIU, installed now if it is new enough, unless it would not do.
distribution_criu() {
    local offered
    # Its run directory is /run; CRIU takes 40-80 ms more for every start where that is not in memory.
    [ "$(stat -f -c %T /run)" = tmpfs ] || return 0
    if ! command -v criu >/dev/null; then
        offered=$(apt-cache policy criu 2>/dev/null | sed -n 's/^  Candidate: //p')
        at_least "${offered%-*}" "$OLDEST_CRIU" || return 0
        install_packages criu >&2
    fi
    if at_least "$(criu_version "$(command -v criu)")" "$OLDEST_CRIU" && criu check >/dev/null 2>&1; then
        command -v criu
    fi
}

ensure_criu() {
    local binary complaint
    binary=$(kept_criu)
    if [ -z "$binary" ] && scripts/build_criu.sh; then binary=$(kept_criu); fi
    if [ -z "$binary" ]; then binary=$(distribution_criu); fi
    [ -n "$binary" ] || die "no CRIU: it could not be built, or what was built does not run; see $CACHE/criu-build.log"
    complaint=$("$binary" check 2>&1) ||
        die "CRIU does not work on this machine: $(grep -m 1 Error <<<"$complaint" || tail -n 1 <<<"$complaint");" \
            "to go on without it: TVSNAP_WITHOUT_CRIU=1 make setup"
    if [ "$(readlink .venv/bin/criu || true)" != "$binary" ]; then
        say "linking .venv/bin/criu to CRIU $(criu_version "$binary"), $binary"
        ln -sfn "$binary" .venv/bin/criu
    fi
}

# What .venv was made from; when it changes, the package is installed anew.
venv_stamp() {
    pwd
    "$PYTHON" -c 'import sys; print(sys.version)'
    ls -d tvsnap/__init__.py cli images 2>/dev/null || true
    sha256sum pyproject.toml setup.py
}

ensure_venv() {
    local stamp
    stamp=$(venv_stamp)
    if [ "$stamp" = "$(cat .venv/tvsnap.stamp 2>/dev/null)" ]; then
        make --no-print-directory --silent native
        return
    fi
    # A .venv of another interpreter or another place holds wrong paths.
    if [ "$(head -n 2 <<<"$stamp")" != "$(head -n 2 .venv/tvsnap.stamp 2>/dev/null)" ]; then
        say "making .venv with $("$PYTHON" --version)"
        run_logged venv "$PYTHON -m venv .venv" "$PYTHON" -m venv --clear .venv
    fi
    say "installing tvsnap and its development tools into .venv"
    run_logged pip "pip install" .venv/bin/python -m pip install --disable-pip-version-check -e '.[dev]'
    echo "$stamp" >.venv/tvsnap.stamp
}

one_set_up_at_a_time
check_platform
install_system_packages
ensure_venv
if [ -z "${TVSNAP_WITHOUT_CRIU:-}" ]; then ensure_criu; fi
