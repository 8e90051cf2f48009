"""What backends see of a sandbox's processes, and fingerprints of them, however each came to see them."""

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
"""How what descriptors of the shell are begins that are its terminal, PID 1's pipes, and a command's text."""
_COMMAND = 29
_REPORTING = frozenset({10, 11, 12, 30})
"""Descriptors that bash has for a moment more when it has just said its state: saved ones, and a command's output."""
_SETTLE_TRIES, _SETTLE_PAUSE = 10, 0.0005
UNSEEN = "?"  # in place of a hash, of what cannot all be seen: it may have changed
_NO_LOCKS = hashlib.blake2s().hexdigest()  # of nothing (hash.h)


@dataclass(frozen=True, slots=True)
class Activity:
    """What tells whether a process is the same as before, and has run since."""

    pid: int
    start: int  # clock ticks after boot; with its id it names the process for good
    state: str  # as in ps
    ran: int  # nanoseconds of processor time that its tasks used
    # What others can change of it while it sleeps, a hash (holds.c); `UNSEEN` if part of that cannot be seen
    holds: str
    locks: str  # a hash of its locks and leases alone


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A descriptor."""

    number: int  # in its process
    target: str  # as /proc names it
    position: int  # in bytes
    flags: str  # of open(2), in octal

    @property
    def of_the_shell(self) -> bool:
        """Whether it is one of those by which PID 1 talks to the shell, if it is the shell's."""
        own = _SHELL_OWN_FILES.get(self.number)
        return own is not None and self.target.startswith(own)


@dataclass(frozen=True, slots=True)
class ShellHold:
    """What the shell holds that it does not say of itself. It runs with every call, so its time says nothing."""

    pid: int
    start: int  # clock ticks after boot
    nice: int  # its priority
    processors: str  # those it may use, as /proc shows them
    cwd_deleted: bool  # its working directory is no more
    files: tuple[OpenFile, ...]  # all that it has open, by number
    # What else there is to know of those that it does not have by itself, a hash (holds.c): their locks, what a deleted
    # file holds, a terminal's modes; `UNSEEN` if part of that cannot be seen
    holds: str = ""
    locked: bool = False  # it has locked a file, or holds a lease on one

    @property
    def further_files(self) -> list[OpenFile]:
        """All but those by which PID 1 talks to the shell."""
        return [file for file in self.files if not file.of_the_shell]

    @property
    def fingerprint(self) -> str:
        # Where it stands in the file of its commands, no call can see.
        own = [(file.number, file.target, file.flags, file.number != _COMMAND and file.position) for file in self.files]
        return f"{self.pid} {self.start} {self.nice} {self.processors} {self.cwd_deleted} {own} {self.holds}"


def settled(look: Callable[[], tuple[OpenFile, ...]]) -> tuple[OpenFile, ...]:
    """Returns the shell's open files, at which `look` looks, once it has undone the redirections of its report."""
    for _ in range(_SETTLE_TRIES):
        files = look()
        if _REPORTING.isdisjoint(file.number for file in files):
            break
        time.sleep(_SETTLE_PAUSE)  # or they are a command's own: then they stay
    return files


def descendants(parents: Mapping[int, int], roots: Iterable[int]) -> frozenset[int]:
    """Returns those processes that are one of `roots` or descend from one; `parents` has each one's, by id."""
    found = set(roots).intersection(parents)
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return frozenset(found)


def processes_fingerprint(others: Sequence[Activity], shell: ShellHold | None, serving: Sequence[Activity] = ()) -> str:
    """Returns a hash that changes when a process starts, ends, stops or has run.

    Args:
        others: all but PID 1 and the shell, in any order.
        shell: None if it cannot be told; then nothing is equal to the hash.
        serving: the first processes of a service: whether they have run does not count, what they have locked does.
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
    """The live processes of a sandbox but for its PID 1."""

    processes: tuple[Process, ...]  # all of them, by id
    activities: tuple[Activity, ...]  # of the same
    shell: ShellHold | None  # None if it has ended or may not be looked at

    @property
    def others(self) -> tuple[Process, ...]:
        """All but the shell."""
        return tuple(one for one in self.processes if self.shell is None or one.pid != self.shell.pid)

    def serving(self, service: Service) -> frozenset[int]:
        """Returns the ids of the processes of a service."""
        return descendants({one.pid: one.parent for one in self.processes}, service.processes)

    def fingerprint(self, service: Service = NO_SERVICE) -> str:
        left_out = self.serving(service) | {self.shell.pid if self.shell else 0}
        others = [one for one in self.activities if one.pid not in left_out]
        serving = [one for one in self.activities if one.pid in service.processes]
        return processes_fingerprint(others, self.shell, serving)


def parse_processes(records: bytes) -> ProcessTable:
    """Returns what `tvsnap-init processes` printed (census.c).

    Raises:
        InfrastructureError: something else printed this, as it may where what a sandbox runs took its place.
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
