"""Data on a sandbox's processes, and fingerprints of it, for all backends."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import NO_SERVICE, Process, Service

_SHELL_OWN_FILES = {
    **dict.fromkeys((0, 1, 2, 255), "/dev/pts/"),
    **dict.fromkeys((27, 28), "pipe:"),
    29: "/memfd:command",
}
"""Beginnings of the targets of the shell's own descriptors: its terminal, PID 1's pipes, and a command's text."""
_COMMAND = 29
_REPORTING = frozenset({10, 11, 12, 30})
"""Descriptors that bash still has shortly after the report of its state: saved ones, and a command's output."""
_SETTLE_TRIES, _SETTLE_PAUSE = 10, 0.0005
_LONGEST_REPORT = 1.0  # seconds
UNSEEN = "?"  # replaces the hash of something that was not seen entirely, so that it counts as changed
_NO_LOCKS = hashlib.blake2s().hexdigest()  # of empty input (hash.h)


@dataclass(frozen=True, slots=True)
class Activity:
    """The facts by which two looks at a process are compared: whether it is the same, and whether it has run since."""

    pid: int
    start: int  # clock ticks after boot; unique together with the id
    state: str  # as in ps
    ran: int  # nanoseconds of processor time used by its tasks
    # A hash of the properties that others can change while it sleeps (holds.c); `UNSEEN` if one of them is not visible
    holds: str
    locks: str  # a hash of only its locks and leases


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A descriptor."""

    number: int  # in its process
    target: str  # the link in /proc
    position: int  # in bytes
    flags: str  # of open(2), in octal

    @property
    def of_the_shell(self) -> bool:
        """Whether, for a descriptor of the shell, it connects the shell to PID 1."""
        own = _SHELL_OWN_FILES.get(self.number)
        return own is not None and self.target.startswith(own)


@dataclass(frozen=True, slots=True)
class ShellHold:
    """The shell's properties that it does not report. It runs with every call, so its processor time means nothing."""

    pid: int
    start: int  # clock ticks after boot
    nice: int
    processors: str  # its CPU affinity, as /proc shows it
    cwd_deleted: bool  # its working directory was deleted
    files: tuple[OpenFile, ...]  # all open descriptors, by number
    # A hash of the state of descriptors that it does not always have (holds.c): their locks, the contents of deleted
    # files, a terminal's modes; `UNSEEN` if part of that cannot be seen
    holds: str = ""
    locked: bool = False  # it has locked a file, or has a lease on one

    @property
    def further_files(self) -> list[OpenFile]:
        """The descriptors except those that connect the shell to PID 1."""
        return [file for file in self.files if not file.of_the_shell]

    @property
    def fingerprint(self) -> str:
        # No call can see the position in the file of its commands.
        own = [(file.number, file.target, file.flags, file.number != _COMMAND and file.position) for file in self.files]
        return f"{self.pid} {self.start} {self.nice} {self.processors} {self.cwd_deleted} {own} {self.holds}"


def settled(look: Callable[[], tuple[OpenFile, ...]], runs: Callable[[], bool] = lambda: False) -> tuple[OpenFile, ...]:
    """Returns the shell's open files, as seen by `look`, after it has undone the redirections of its report.

    On a busy machine that takes a while: the wait lasts as long as the shell `runs`, or waits for a processor.
    """
    deadline, tries = time.monotonic() + _LONGEST_REPORT, 0
    while True:
        files = look()
        if _REPORTING.isdisjoint(file.number for file in files):
            return files
        tries += not runs()  # descriptors that belong to a command stay
        if tries >= _SETTLE_TRIES or time.monotonic() > deadline:
            return files
        time.sleep(_SETTLE_PAUSE)


def descendants(parents: Mapping[int, int], roots: Iterable[int]) -> frozenset[int]:
    """Returns those of `roots` that exist, and their descendants, given each process' parent by id."""
    family = set(roots).intersection(parents)
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return frozenset(family)


def processes_fingerprint(others: Sequence[Activity], shell: ShellHold | None, serving: Sequence[Activity] = ()) -> str:
    """Returns a hash that changes when a process starts, ends, stops or has run.

    Args:
        others: all processes except PID 1 and the shell, in any order.
        shell: None if it is unknown; then the hash is random.
        serving: the root processes of a service: their locks count, but not whether they have run.
    """
    if shell is None or UNSEEN in (shell.holds, *(one.holds for one in others), *(one.locks for one in serving)):
        return secrets.token_hex()
    hasher = hashlib.sha256(shell.fingerprint.encode("utf-8", "surrogateescape"))
    for one in sorted(serving, key=lambda one: one.pid):
        hasher.update(f"\nserving {one.pid} {one.start} {one.state in 'Tt'} {one.state == 'Z'} {one.locks}".encode())
    for one in sorted(others, key=lambda one: one.pid):
        stands = f"{one.state in 'Tt'} {one.state == 'Z'}"
        hasher.update(f"\n{one.pid} {one.start} {stands} {one.ran} {one.holds}".encode())
    return hasher.hexdigest()


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The live processes of a sandbox except its PID 1."""

    processes: tuple[Process, ...]  # by id
    activities: tuple[Activity, ...]  # of the same processes
    shell: ShellHold | None  # None if it has ended or cannot be inspected

    @property
    def others(self) -> tuple[Process, ...]:
        """All except the shell."""
        return tuple(one for one in self.processes if self.shell is None or one.pid != self.shell.pid)

    def serving(self, service: Service) -> frozenset[int]:
        """Returns the ids of a service's processes."""
        return descendants({one.pid: one.parent for one in self.processes}, service.processes)

    def fingerprint(self, service: Service = NO_SERVICE) -> str:
        left_out = self.serving(service) | {self.shell.pid if self.shell else 0}
        others = [one for one in self.activities if one.pid not in left_out]
        serving = [one for one in self.activities if one.pid in service.processes]
        return processes_fingerprint(others, self.shell, serving)


def parse_processes(records: bytes) -> ProcessTable:
    """Parses the output of `tvsnap-init processes` (census.c).

    Raises InfrastructureError if it is something else, as it may be if a program in the sandbox took its place.
    """
    processes: list[Process] = []
    activities: list[Activity] = []
    shell = None
    fields = records.split(b"\0")
    try:
        for numbers, text in zip(fields[0::2], fields[1::2], strict=False):
            words = numbers.decode().split()
            if words[0] == "shell":
                pid, start, nice, processors, gone, holds, locks = words[1:]
                files = tuple(map(_parse_file, os.fsdecode(text).split("\n")[:-1]))
                locked = UNSEEN in (holds, locks) or locks != _NO_LOCKS
                shell = ShellHold(int(pid), int(start), int(nice), processors, gone == "1", files, holds, locked)
                continue
            pid, parent, state, start, ran, memory, holds, locks = words
            processes.append(Process(int(pid), int(parent), state, text.decode(errors="replace"), int(memory)))
            activities.append(Activity(int(pid), int(start), state, int(ran), holds, locks))
    except (ValueError, IndexError):
        raise InfrastructureError(f"a list of processes is none: {records[:40]!r}") from None
    return ProcessTable(tuple(sorted(processes, key=lambda one: one.pid)), tuple(activities), shell)


def _parse_file(line: str) -> OpenFile:
    number, position, flags, target = line.split(" ", 3)
    plain = re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], target)
    return OpenFile(int(number), plain, int(position), flags)
