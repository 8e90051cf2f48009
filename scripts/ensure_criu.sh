#!/usr/bin/env bash
# Prints the path of a CRIU that works on this machine, having built one if there is none (scripts/build_criu.sh); where
# that fails, the distribution's, if it is good (`tvsnap doctor` tells what that costs). Says on standard error what it does.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

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

one_set_up_at_a_time
binary=$(kept_criu)
if [ -z "$binary" ] && bash scripts/build_criu.sh >&2; then binary=$(kept_criu); fi
if [ -z "$binary" ]; then binary=$(distribution_criu); fi
[ -n "$binary" ] || die "no CRIU: it could not be built, or what was built does not run; see $CACHE/criu-build.log"
complaint=$("$binary" check 2>&1) ||
    die "CRIU does not work on this machine: $(grep -m 1 Error <<<"$complaint" || tail -n 1 <<<"$complaint")"
echo "$binary"
