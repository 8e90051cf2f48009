"""The command that ends the processes of one service of a sandbox, while those of the others go on."""

from __future__ import annotations

import os
import shlex

from tvsnap.guest.protocol import INIT
from tvsnap.model.services import ImageService

GRACE = 10.0
"""Seconds that a service has to end after SIGTERM, as Docker gives it."""

FIRST_TERMINAL = os.makedev(136, 0)
"""The number of /dev/pts/0, of which the persistent shell is the controlling process."""

# The services of a sandbox differ by their root directories. Root may not read where another user's process has its
# own, but which mounts it sees: each root has a mount of /proc, with a number of its own. The persistent shell, which
# leads the session of the first terminal, and tvsnap's own programs are no part of a service.
_STOP = rf"""
mount_at() {{ while read -r number _ _ _ at _; do [ "$at" != "$2" ] || echo "$number"; done < "$1"; }} 2> /dev/null
is_ours() {{
    [ "$1" = 1 ] || [ "$1" = $$ ] || [ "$1" = "$BASHPID" ] || [ "/proc/$1/exe" -ef {INIT} ] && return
    read -r status < "/proc/$1/stat"
    [[ ${{status##*) }} =~ ^[A-Z]\ [0-9]+\ [0-9]+\ $1\ {FIRST_TERMINAL}\  ]]
}} 2> /dev/null
processes() {{
    for path in /proc/[0-9]*; do
        is_ours "${{path#/proc/}}" || [ "$(mount_at "$path/mountinfo" /proc)" != "$mount" ] || echo "${{path#/proc/}}"
    done
}}
parent() {{ while read -r key value; do [ "$key" != PPid: ] || echo "$value"; done < "/proc/$1/status"; }} 2> /dev/null
mount=$(mount_at /proc/self/mountinfo "$root/proc")
[ -n "$mount" ] || {{ echo "its root directory is not there"; exit 1; }}
if [ -n "$end" ] && [ ! -e "$end" ]; then
    for process in $(processes); do
        [ ! "/proc/$(parent "$process")/exe" -ef {INIT} ] || kill -TERM "$process"
    done
    for ((turn = 0; turn < {GRACE * 10:.0f}; turn++)); do [ ! -e "$end" ] || break; sleep 0.1; done
fi
for ((turn = 0; turn < 100; turn++)); do
    left=$(processes)
    [ -n "$left" ] || exit 0
    kill -KILL $left 2> /dev/null
    sleep 0.05
done
echo "these processes remain:" $left
exit 1
"""


def stop_command(service: ImageService | None) -> str:
    """Returns the command, for root in the main service's bash, that ends all processes of a service.

    Args:
        service: the service, whose program gets SIGTERM before; None for the main one without a program.
    """
    root, end = (service.root, service.end) if service else ("", "")
    return f"root={shlex.quote(root)} end={shlex.quote(end)}\n{_STOP.strip()}"
