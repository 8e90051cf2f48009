"""Finds differences from the image, and fingerprints: of files by the overlay's upper layer, of processes by /proc."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from tvsnap.host.memory import occupied
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.images import UID_BASE
from tvsnap.model.observations import FileChange, Process, Service
from tvsnap.sandboxes.kernel import allowance, paths, process_report
from tvsnap.sandboxes.kernel.process_report import Activity, OpenFile, ShellHold
from tvsnap.sandboxes.kernel.procfs import (
    command,
    has_too_many_descriptors,
    head,
    inner_pid,
    stat_fields,
)
from tvsnap.sandboxes.looks import native_look, observing, pending
from tvsnap.sandboxes.looks.digest import Contents, Files, gone
from tvsnap.sandboxes.looks.native_look import Holder

_REST = 0.05
"""Seconds, at most, to wait for processes to return to their system calls, or to be stopped again."""


def files_fingerprints(
    upper: Path, image: observing.ImageTree, service: Service, *, accessed: bool, known: frozenset[str] = frozenset()
) -> tuple[str, str]:
    """Returns fingerprints of all files but a service's, and of the service's files; see `observing.files_fingerprint`.

    Files with stamps in `known` were changed by the host itself, and are left out.
    """
    data: list[observing.Entry] = []
    print_of = partial(observing.files_fingerprint, image=image, accessed=accessed)
    try:
        entries = (entry for entry in observing.walk(upper, home=True) if entry.stamp not in known)
        others = print_of(observing.outside(entries, service.directories, data))
    except allowance.NotSeen:
        raise
    except InfrastructureError:
        return secrets.token_hex(), secrets.token_hex()  # they were not seen, so they may have changed
    return others, print_of(data, dated=False) if data else ""


@contextlib.contextmanager
def differing(
    upper: Path, entries: list[observing.Entry], image: observing.ImageTree, contents: Contents
) -> Iterator[Files]:
    """Yields the files of an upper layer, which has these entries, in the form that a digest takes."""
    with paths.directory(upper) as root:
        yield Files(entries, partial(gone, entries, image), root, UID_BASE, image, contents)


def file_changes(upper: Path, image: observing.ImageTree) -> Mapping[str, FileChange]:
    """Returns how the files differ from the image, by absolute path."""
    changes: dict[str, FileChange] = {}
    hidden: list[str] = []
    present: set[str] = set()
    with paths.directory(upper) as root:
        for entry in observing.walk(upper):
            present.add(entry.path)
            if not observing.differs(entry, image):
                continue
            if entry.deleted:
                changes[entry.path] = FileChange("deleted")
            if entry.deleted or entry.opaque:
                hidden.append(entry.path)
            if entry.deleted:
                continue
            identity = paths.contents(root, entry.path, observing.SMALL_FILE) or entry.stamp
            change = observing.change_of(entry, identity, id_base=UID_BASE)
            if change is not None:
                changes[entry.path] = change
    for directory in hidden:
        for path in image.below(directory):
            if path not in present:
                changes[path] = FileChange("deleted")
    return changes


def is_running(pid: int) -> bool:
    """Whether a process runs, or is runnable."""
    with contextlib.suppress(OSError, ValueError):  # it has ended
        return stat_fields(pid)[0] == "R"
    return False


def wait_for_rest(pids: Iterable[int]) -> None:
    """Waits until processes that were at rest are so again: they run for a moment when a dump detaches from them."""
    deadline = time.monotonic() + _REST
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.0005)


def processes_fingerprint(
    pids: list[int], init: int, shell: int, service: Service
) -> tuple[str, int, ShellHold | None]:
    """Returns a hash that changes when a process starts, ends, stops or has run, and how many belong to a service.

    Also the shell's resources; None if these, or a process, were not visible.
    """
    if has_too_many_descriptors(pids):
        return secrets.token_hex(), 0, None
    roots = [pid for pid in pids if inner_pid(pid) in service.processes] if service.processes else []
    try:
        serving = process_report.descendants({pid: int(stat_fields(pid)[1]) for pid in pids}, roots) if roots else ()
        running = [pid for pid in pids if pid not in (init, shell) and pid not in serving]
        hold = shell_hold(shell) if shell in pids else None
        holds = _holds(hold, running, roots)
        if hold is not None:
            hold = replace(hold, holds=holds[shell][0]) if shell in holds else hold
        others = [_activity(pid, *holds[pid]) for pid in running]
        if hold is not None and _in_doubt(hold, others):
            hold = None
        roots_now = [_activity(pid, *holds[pid]) for pid in roots]
        return process_report.processes_fingerprint(others, hold, roots_now), len(serving), hold
    except (OSError, LookupError):
        return secrets.token_hex(), 0, None  # a process just ended


def serving(pids: list[int], service: Service) -> frozenset[int]:
    """Returns the processes of a sandbox that belong to a service, as the host sees them."""
    parents = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            parents[pid] = int(stat_fields(pid)[1])
    return process_report.descendants(parents, (pid for pid in parents if inner_pid(pid) in service.processes))


def _holds(shell: ShellHold | None, others: list[int], serving: list[int]) -> dict[int, tuple[str, str]]:
    """Returns hashes of processes' resources and locks, by process (see `Activity`); raises NotSeen after a time limit.

    The idle shell is inspected if it has more descriptors than usual.
    """
    processes = [(pid, Holder.OTHER) for pid in others] + [(pid, Holder.SERVING) for pid in serving]
    if shell is not None and shell.further_files:
        processes.append((shell.pid, Holder.SHELL))
    return native_look.holds(processes) if processes else {}


def _activity(pid: int, holds: str, locks: str) -> Activity:
    fields = stat_fields(pid)
    ran = sum(int(head(f"{task.path}/schedstat").split()[0]) for task in os.scandir(f"/proc/{pid}/task"))
    return Activity(pid, int(fields[19]), fields[0], ran, holds, locks)


def _in_doubt(shell: ShellHold, others: list[Activity]) -> bool:
    """Whether there is data that waits to be read, so that calls could change something that is not visible."""
    if pending.data_waits(shell.pid, [file.number for file in shell.further_files]):
        return True
    return any(pending.data_waits(one.pid, map(int, os.listdir(f"/proc/{one.pid}/fd"))) for one in others)


def shell_hold(pid: int) -> ShellHold:
    """Returns the shell's resources, except `ShellHold.holds`; raises OSError if it has ended.

    A request for a signal when a file changes counts as a lock.
    """
    holds = []

    def look() -> tuple[OpenFile, ...]:
        holds.append(_parse_hold(pid, native_look.shell(pid)))
        return holds[-1].files

    process_report.settled(look, lambda: stat_fields(pid)[0] == "R")
    return holds[-1]


@lru_cache(maxsize=256)
def _parse_hold(pid: int, text: bytes) -> ShellHold:
    """Parses the output of `look_shell` (native/look/shell.c)."""
    first, *descriptors, _ = text.split(b"\0")
    start, nice, gone, processors = first.decode().split(" ", 3)
    files, locked = [], False
    for each in descriptors:
        number, position, flags, is_locked, signalled, target = each.split(b" ", 5)
        file = OpenFile(int(number), os.fsdecode(target), int(position), flags.decode())
        locked = locked or signalled == b"1" or (is_locked == b"1" and not file.of_the_shell)
        files.append(file)
    files.sort(key=lambda file: file.number)
    return ShellHold(pid, int(start), int(nice), processors, gone == "1", tuple(files), locked=locked)


def list_processes(pids: list[int], init: int) -> list[Process]:
    """Returns the sandbox's processes except its PID 1, with their ids inside."""
    processes = []
    for pid in pids:
        if pid == init:
            continue
        with contextlib.suppress(OSError):
            fields = stat_fields(pid)
            memory, unshared = occupied(pid)
            parent = inner_pid(int(fields[1]))
            processes.append(Process(inner_pid(pid), parent, fields[0], command(pid), memory, unshared))
    return sorted(processes, key=lambda process: process.pid)
