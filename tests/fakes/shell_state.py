"""What an idle bash says of itself, and how a fresh one is made the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

DUMP = r"""
declare -p; printf '\1'; declare -f; printf '\1'; alias -p; printf '\1'; set +o; shopt -p; printf '\1'; trap -p
printf '\1'; umask; printf '\1'; echo $#; [ $# = 0 ] || printf '%q ' "$@"; printf '\1'; pwd; printf '\1'; jobs -l
"""
DYNAMIC = re.compile(
    r"_|BASH\w*|COLUMNS|DIRSTACK|EPOCH\w+|EUID|FUNCNAME|GROUPS|HIST\w+|LINENO|LINES|OPT\w+|PIPESTATUS|PPID|PS\d|RANDOM"
    r"|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID|COMP_WORDBREAKS|HOSTNAME|HOSTTYPE|MACHTYPE|OSTYPE|IFS|TERM"
)
_JOB = re.compile(r"^\[(\d+)\][-+ ]\s*(\d+) Running\s+(.*?) ?&?$", re.MULTILINE)


@dataclass(frozen=True)
class Job:
    """A job of the shell in the background."""

    number: int
    pid: int
    command: str

    @property
    def seconds(self) -> float:
        """How long it sleeps; 0 if it does something else."""
        match = re.fullmatch(r"sleep (\d+)", self.command)
        return float(match[1]) if match else 0.0


@dataclass(frozen=True)
class ShellState:
    """What an idle shell says of itself, and its exit status."""

    variables: Mapping[str, str]
    parts: tuple[str, ...]
    jobs: tuple[Job, ...]
    status: int

    @property
    def said(self) -> tuple[object, ...]:
        """What is compared: process ids are not."""
        jobs = [(job.number, job.command) for job in self.jobs]
        return sorted(self.variables.items()), self.parts, jobs, self.status

    def script(self, fresh: ShellState) -> str:
        """Returns commands that make a fresh shell the same."""
        functions, aliases, options, traps, umask, arguments, cwd = self.parts
        old = self.variables.get("OLDPWD", "unset OLDPWD")
        gone = [f"unset {name}" for name in fresh.variables if name not in self.variables]
        lines = [*gone, *self.variables.values(), functions, aliases, f"umask {umask}"]
        lines += [f"set -- {arguments.partition(chr(10))[2]}", f"cd {shlex.quote(cwd.rstrip())}", old]
        live = {job.number: job.command for job in self.jobs}
        numbers = range(1, max(live, default=0) + 1)
        lines += [f"{live.get(number, 'sleep 1000')} &" for number in numbers]
        lines += [f"kill %{number}; wait %{number}" for number in numbers if number not in live]
        return "\n".join([*lines, options, traps, ""])


def read_state(dump: str, status: int) -> ShellState:
    """Takes what `DUMP` printed apart."""
    declared, *parts, jobs = dump.split("\1")
    variables = {}
    for line in re.split(r"^(?=declare -)", declared, flags=re.MULTILINE):
        match = re.match(r"declare -(\S+) (\w+)", line)
        if match and not DYNAMIC.fullmatch(match[2]) and match[2] != "PWD":
            variables[match[2]] = line
    running = tuple(Job(int(number), int(pid), command) for number, pid, command in _JOB.findall(jobs))
    return ShellState(variables, tuple(parts), running, status)
