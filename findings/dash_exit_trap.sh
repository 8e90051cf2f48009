#!/usr/bin/env bash
# dash 0.5.12 and bash 5.2.15 (of the system): `trap save EXIT` in a script that SIGTERM ends, as at a limit of time
#
# Guess: the trap is run, by both, as it is at each end of the script.
# Behaviour: bash runs it; dash, which is `sh` in Debian's images, and BusyBox's shell do not: what it stores, removes or stops is
# left. A trap for TERM that exits is run by all, and then the one for EXIT, too. The status is 143 without it.
. "$(dirname "$0")/common.sh"
needs dash
bash --version | sed -n 1p
command -v busybox >/dev/null || debian busybox
if command -v dpkg-query >/dev/null; then dpkg-query -W dash; fi

# shellcheck disable=SC2016 # for the shell that runs it
end='kill -TERM $$; sleep 1; echo "not ended"'
run() { "${shell[@]}" -c "$1 $end" 2>/dev/null || echo "status $?"; }
for shell in bash dash "busybox sh"; do
    read -r -a shell <<<"$shell"
    seen "${shell[0]}, trap for EXIT" "$(run 'trap "echo saved" EXIT;' | xargs)" \
        "$([ "${shell[0]}" = bash ] && echo saved status 143 || echo status 143)"
    seen "${shell[0]}, trap for TERM, too" "$(run 'trap "echo saved" EXIT; trap "exit 1" TERM;' | xargs)" "saved status 1"
done
