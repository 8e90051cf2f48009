"""Finds the properties of processes that CRIU 4.2 restores differently without an error; they prevent a snapshot.

Each of these was found by experiment; `tests/conformance/test_refusals.py` repeats the experiments.

Three differences are accepted because common programs could not be snapshotted otherwise: an edge-triggered epoll
reports ready files once more (nginx, all Go programs; every user of one must expect that at any time); a connected
Unix socket reports the credentials of the process that restored the pair, not of its peer (tmux, database clients; they
are asked for when a connection is new); and a file made by O_TMPFILE can no longer be given a name (temporary files of
MariaDB and Python, which look like those that are to get one).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import re
import select
import signal
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host.libc import closing, libc
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.criu.copied_up import MappedFiles
from tvsnap.sandboxes.criu.excess import objects
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.kernel.borrowing import (
    borrowed,
    events,
    file_of,
    hung_up,
    is_exclusive,
    sends_packets,
    takes_output,
)
from tvsnap.sandboxes.kernel.procfs import DELETED, deleted_mappings, describe, head, lines, stat_fields, status
from tvsnap.sandboxes.looks import timers
from tvsnap.sandboxes.looks.pending import pending_signals
from tvsnap.sandboxes.repairs import socket_options

_SIGCHLD = 17
_STOP = 1 << signal.SIGSTOP - 1
"""The signal that CRIU leaves pending for processes that are already stopped; SIGCONT drops it."""
_EXIT_SIGNAL, _PERSONALITY = 35, 0  # an index in /proc/PID/stat after the name; the usual value
_IOPRIO_GET, _IOPRIO_WHO_PROCESS, _BEST_EFFORT = 252 if platform.machine() == "x86_64" else 31, 1, 2
_SCHED_GETATTR, _SCHED_ATTR, _SLICE = 315 if platform.machine() == "x86_64" else 275, 56, 24
"""The call, the bytes of its result, and the offset in that of the slice and the values after it."""
_LAST_OPERATION = 8
"""A column of /proc/sysvipc/sem: the time of the last semop(), seconds since the epoch."""
_POSIX_LOCK = re.compile(r"lock:\t\d+: POSIX .* \w+:\w+:(\d+) ")
_GROUP = re.compile(r"\t+([0-9A-F]{8}) ")
_SESSION, _TERMINAL = 3, 4
"""Indices in /proc/PID/stat, counted from the process' state."""
_TIME_STEP = 9.0
"""Seconds by which a terminal's times may lag, given how coarsely the kernel updates them, plus one."""
_MASTERS = ("/dev/ptmx", "/dev/pts/ptmx")
_AS_BEFORE = "a file of the image, as it was before it was written"
_DATAGRAM = (socket.SOCK_DGRAM, socket.SOCK_RDM)
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_USUAL_GROUPS = re.compile("010000E0|ff0[12]0{27}1|ff020{19}1ff.{6}")
"""The multicast groups that every interface joins by itself."""


def refuse(loss: str) -> None:
    """Raises NotCheckpointable if `loss` (the result of a function below) is not empty."""
    if loss:
        raise NotCheckpointable(f"{loss}, which CRIU does not bring back")


def find_loss_of_running(pids: Iterable[int]) -> str:
    """Returns, in words, a property of unfrozen processes that a fork would lose; empty if there is none."""
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            if stat_fields(pid)[0] == "T" and pending_signals(pid)[1] & ~_STOP:
                return f"{describe(pid)} is stopped, with signals that wait for it"
    return ""


@dataclass(frozen=True, slots=True)
class Keeps:
    """Properties that are restored although published CRIU does not restore them.

    Attributes:
        terminals: the controlling terminal of a process that is not a session leader.
        queues: data queued at a terminal with a slave that no process has open, and packet mode.
        roots: Unix sockets of a process with its own root directory.
        locks: locks of fcntl on files that are mapped, too.
        timers: the exact time of a timerfd that was set with TFD_TIMER_ABSTIME.
        settings: CPU affinity of threads, and what `repairs/settings.py` saves.
        options: those socket options that `repairs/socket_options.py` notes.
    """

    terminals: bool = True
    queues: bool = False
    roots: bool = False
    locks: bool = False
    timers: bool = False
    settings: bool = False
    options: bool = False


def refuse_loss(
    pids: Iterable[int],
    init: int,
    upper: Path | None = None,
    keeps: Keeps = Keeps(),
) -> list[socket_options.Options]:
    """Raises NotCheckpointable if a fork would lose or change anything of frozen processes.

    Raises AttemptFailed or OSError if they cannot be inspected, for example because one has ended.

    Args:
        pids: a sandbox's processes, as the host sees them.
        init: its PID 1.
        upper: the writable layer of its overlay; None if it is out of reach.
        keeps: the properties that are restored nevertheless.

    Returns:
        What to note of its sockets, if `keeps.options`: each is looked at only once.
    """
    options: list[socket_options.Options] = []
    refuse(_find_loss(pids, init, upper, keeps, options))
    return options


def refuse_changed_files(pids: Iterable[int], init: int, upper: Path) -> None:
    """As `refuse_loss`, for processes that it did not refuse, and around which only files have changed since."""
    if changed := _changed_in_devpts(init):
        refuse(f"a process has changed the mode or the times of {changed}")
    with paths.directory(upper) as layer:
        mapped = MappedFiles(layer)
        for pid in pids:
            if changed := mapped.changed_under(pid):
                refuse(f"{describe(pid)} has mapped {changed}, {_AS_BEFORE}")


def _find_loss(
    pids: Iterable[int], init: int, upper: Path | None, keeps: Keeps, options: list[socket_options.Options]
) -> str:
    """Returns a loss in words; empty if there is none. Adds the options of sockets that must be noted to `options`."""
    if _semaphores_were_used(init):
        # The changes that SEM_UNDO would undo are not visible.
        return "a process has used semaphores of System V, maybe with SEM_UNDO"
    if changed := _changed_in_devpts(init):
        return f"a process has changed the mode or the times of {changed}"
    targets: set[str] = set()
    usual, scheduling = None if keeps.settings else _Usual.of(init), _scheduling(init)
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(paths.directory(f"/proc/{init}/root"))
        mapped = MappedFiles(stack.enter_context(paths.directory(upper))) if upper else None
        for pid in pids:
            if not keeps.terminals and _shares_terminal(pid):
                return f"{describe(pid)} has its terminal from another process (the CRIU of tvsnap setup could keep it)"
            for look in (
                _losses_of_process(pid, usual, scheduling, root),
                _losses_of_descriptors(pid, root, targets, keeps, options),
            ):
                for loss in look:
                    return f"{describe(pid)} {loss}"
            changed = "" if mapped is None else mapped.changed_under(pid)
            if changed:
                return f"{describe(pid)} has mapped {changed}, {_AS_BEFORE}"
    return ""


def _changed_in_devpts(init: int) -> str:
    """Returns which of our files below /dev/pts has another mode than at first, or times that were set; else empty."""
    for path, mode in (("/dev/pts", 0o755), ("/dev/pts/ptmx", 0o666)):
        with contextlib.suppress(FileNotFoundError):  # something is mounted over it
            about = os.stat(f"/proc/{init}/root{path}")
            if stat.S_IMODE(about.st_mode) != mode or _were_set(about):
                return path
    return ""


def _were_set(about: os.stat_result) -> bool:
    """Whether a process set the times of a terminal's file; see `times_set` in native/init/terminal_state.c."""
    latest = time.time() + _TIME_STEP
    return any(at + _TIME_STEP < about.st_ctime or at > latest for at in (about.st_atime, about.st_mtime))


def _semaphores_were_used(init: int) -> bool:
    """Whether a process of a sandbox has ever called semop()."""
    return any(words[_LAST_OPERATION] != "0" for words in objects(init, "sem"))


@dataclass(frozen=True, slots=True)
class _Usual:
    """Settings that processes inherit from the sandbox's PID 1, and that those of a fork inherit again.

    Attributes:
        processors: the CPU affinity.
        slack: the timer slack in ns, as /proc shows it.
        core: the core dump filter, as /proc shows it.
    """

    processors: set[int]
    slack: str
    core: str

    @classmethod
    def of(cls, init: int) -> _Usual:
        return cls(
            os.sched_getaffinity(init), head(f"/proc/{init}/timerslack_ns"), head(f"/proc/{init}/coredump_filter")
        )


def _losses_of_process(pid: int, usual: _Usual | None, scheduling: bytes, root: int) -> Iterator[str]:
    fields = stat_fields(pid)
    if fields[0] == "Z":
        return
    if int(fields[_EXIT_SIGNAL]) != _SIGCHLD:
        yield "was made by clone() with another signal than SIGCHLD for its end"
    executable = os.readlink(f"/proc/{pid}/exe")
    if executable.startswith("/memfd:"):
        yield f"runs a program that is in memory only ({executable.removesuffix(DELETED)})"
    if int(head(f"/proc/{pid}/personality"), 16) != _PERSONALITY:
        yield "has another personality (setarch)"
    locked, *pending = status(pid, "VmLck", "SigPnd", "ShdPnd")
    if locked.partition(" ")[0] not in ("", "0") and _has_locked_heap(pid):
        yield "has locked its heap or stack in memory, as mlockall() does"
    if any(int(signals, 16) for signals in pending) and timers.has_rung_unnoticed(pid):
        yield "has set a timer whose signal it has not noticed yet"
    if usual and head(f"/proc/{pid}/coredump_filter") != usual.core:
        yield "has a filter of core dumps of its own"
    if _group_priority(pid) != 0:
        yield "belongs to a session with a priority of its own (autogroup)"
    directory = os.readlink(f"/proc/{pid}/cwd")
    if _misplaced(directory, root):
        yield f"is in a directory that was deleted, and whose place is not as it was ({_path(directory)})"
    for line in deleted_mappings(pid):
        if "/" in line and _leads_away(line[line.index("/") :], root):
            yield "has mapped a deleted file, and a symbolic link is where its directory was"
    for thread in os.listdir(f"/proc/{pid}/task"):
        if usual and os.sched_getaffinity(int(thread)) != usual.processors:
            yield "is bound to some processors (taskset)"
        if usual and head(f"/proc/{thread}/timerslack_ns") != usual.slack:
            yield "has a timer slack of its own"
        if _scheduling(int(thread)) != scheduling:
            yield "has a time slice or a range of processor speeds of its own (sched_setattr)"
        if _has_io_priority(int(thread)):
            yield "has an input and output priority (ionice)"
        if int(thread) != pid and os.readlink(f"/proc/{pid}/task/{thread}/cwd") != directory:
            yield "has threads with directories of their own"


def _shares_terminal(pid: int) -> bool:
    """Whether a process has a controlling terminal and is not a session leader."""
    fields = stat_fields(pid)
    return fields[_TERMINAL] != "0" and int(fields[_SESSION]) != pid


def _group_priority(pid: int) -> int:
    """Returns the autogroup niceness of a process' session; 0 if the kernel does not schedule by session."""
    with contextlib.suppress(OSError):
        match = re.search(r" nice (-?\d+)", head(f"/proc/{pid}/autogroup"))
        return int(match[1]) if match else 0
    return 0


def _scheduling(thread: int) -> bytes:
    """Returns a thread's settings of scheduling beyond policy, niceness and priority (sched_getattr(2))."""
    attributes = ctypes.create_string_buffer(_SCHED_ATTR)
    libc.syscall(_SCHED_GETATTR, thread, attributes, _SCHED_ATTR, 0)
    return attributes.raw[_SLICE:]


def _has_io_priority(thread: int) -> bool:
    kind, level = divmod(libc.syscall(_IOPRIO_GET, _IOPRIO_WHO_PROCESS, thread), 1 << 13)
    # If none was set, some kernels report the priority that follows from the niceness.
    return kind > 0 and (kind, level) != (_BEST_EFFORT, (os.getpriority(os.PRIO_PROCESS, thread) + 20) // 5)


def _losses_of_descriptors(
    pid: int, root: int, targets: set[str], keeps: Keeps, options: list[socket_options.Options]
) -> Iterator[str]:
    mapped: set[str] | None = None
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:  # a descriptor of CRIU's that was just closed
            continue
        if target.startswith("socket:"):
            if target not in targets:
                targets.add(target)
                loss = _loss_of_socket(pid, int(name), root, keeps, options)
                if loss:
                    yield f"has a socket {loss} (descriptor {name})"
        elif target == "anon_inode:[eventfd]":
            if "eventfd-semaphore: 1" in head(f"/proc/{pid}/fdinfo/{name}"):
                yield f"has an eventfd that counts as a semaphore (descriptor {name})"
        elif target.endswith(DELETED) and os.path.isdir(f"/proc/{pid}/fd/{name}") and _misplaced(target, root):
            yield f"holds a deleted directory whose place is not as it was ({_path(target)}, descriptor {name})"
        elif target.endswith(DELETED) and _leads_away(target, root):
            where = f"{_path(target)}, descriptor {name}"
            yield f"holds a deleted file, and a symbolic link is where its directory was ({where})"
        elif target in _MASTERS:
            with borrowed(pid, int(name)) as master:
                if not keeps.queues and hung_up(master):
                    yield f"has a terminal whose programs have ended (descriptor {name})"
                if not keeps.queues and sends_packets(master):
                    yield f"has a terminal in packet mode (descriptor {name})"
        elif target.startswith("/dev/pts/") or target == "/dev/tty":
            with borrowed(pid, int(name)) as terminal:
                if not takes_output(terminal):
                    yield f"has a terminal whose output was stopped, as by Ctrl-S (descriptor {name})"
                if is_exclusive(terminal):
                    yield f"has a terminal that nobody else may open (TIOCEXCL, descriptor {name})"
        elif target == timers.TIMERFD:
            if not keeps.timers and timers.rings_at_a_moment(pid, name):
                yield f"has a timer for an absolute time (descriptor {name})"
        elif target.startswith("/") and not keeps.locks:
            locked = next(filter(None, map(_POSIX_LOCK.match, lines(f"/proc/{pid}/fdinfo/{name}"))), None)
            if locked is not None:
                mapped = _mapped_files(pid) if mapped is None else mapped
                if locked[1] in mapped:  # all locks of a descriptor are of one file
                    yield f"has locked {_path(target)}, which it has mapped too (fcntl, descriptor {name})"


def _mapped_files(pid: int) -> set[str]:
    """Returns the inode numbers of the files that a process has mapped: CRIU closes these, which drops POSIX locks."""
    return {line.split(maxsplit=5)[4] for line in lines(f"/proc/{pid}/maps")}


def _has_locked_heap(pid: int) -> bool:
    """Whether a process' heap or stack is locked in memory, according to smaps."""
    wanted = False
    for line in lines(f"/proc/{pid}/smaps"):
        first, _, rest = line.partition(" ")
        if not first.endswith(":"):  # a mapping begins
            wanted = rest.endswith((" [heap]", " [stack]"))
        elif wanted and first == "VmFlags:" and "lo" in rest.split():
            return True
    return False


def _path(target: str) -> str:
    return target.removesuffix(DELETED)


def _misplaced(target: str, root: int) -> bool:
    """Whether CRIU would find another file at a deleted directory's path, or would have to create its parent."""
    if not target.endswith(DELETED):
        return False
    path = _path(target)
    return _identity(path, root) is not None or _identity(os.path.dirname(path), root) is None


def _leads_away(target: str, root: int) -> bool:
    """Whether a symbolic link, which CRIU would follow, replaced the directory of a deleted file."""
    try:
        os.close(paths.open_beneath(root, f"{os.path.dirname(_path(target))}/."))
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _identity(path: str, root: int) -> tuple[int, int] | None:
    """Returns the device and inode that a path leads to inside the sandbox; None if it leads nowhere."""
    with contextlib.suppress(OSError), closing(paths.open_in_root(root, path)) as descriptor:
        about = os.fstat(descriptor)
        return about.st_dev, about.st_ino
    return None


# -- sockets --------------------------------------------------------------------------------------------------------


def _loss_of_socket(pid: int, number: int, root: int, keeps: Keeps, options: list[socket_options.Options]) -> str:
    with borrowed(pid, number) as descriptor, socket.socket(fileno=os.dup(descriptor)) as sock:
        waiting = events(descriptor)
        if waiting & select.POLLERR:
            return "with an error that waits to be read"
        if sock.type in _DATAGRAM and waiting & select.POLLIN and not waiting & select.POLLRDHUP:
            return "with datagrams that wait to be read"
        renamed = sock.family == socket.AF_UNIX and _was_renamed(sock, root)
        if renamed and not (keeps.roots and _is_named_inside(sock, pid)):
            return f"whose file was renamed ({sock.getsockname()})"
        unusual = list(socket_options.unusual(sock))
        for option, _ in unusual:
            if not keeps.options or option.fate == "refused":
                return f"with {option.name} set"
        if unusual:
            options.append(socket_options.note(sock, pid, number, unusual))
        if sock.family in _INTERNET and sock.type in _DATAGRAM and not all(map(_USUAL_GROUPS.fullmatch, _groups(pid))):
            return "that is a member of a multicast group"
    return ""


def _was_renamed(sock: socket.socket, root: int) -> bool:
    """Whether the file that a Unix socket is bound to exists, but not under the name that the socket has."""
    name = sock.getsockname()
    if not isinstance(name, str) or not name.startswith("/"):
        return False
    with file_of(sock.fileno()) as bound:
        if bound is None:
            return False
        file = os.fstat(bound)
    return file.st_nlink > 0 and _identity(name, root) != (file.st_dev, file.st_ino)


def _is_named_inside(sock: socket.socket, pid: int) -> bool:
    """Whether the file that a Unix socket is bound to has that name in the process' own root directory."""
    with paths.directory(f"/proc/{pid}/root") as own:
        return not _was_renamed(sock, own)


def _groups(pid: int) -> set[str]:
    """Returns the multicast groups that a sandbox is in."""
    groups = {match[1] for match in map(_GROUP.match, lines(f"/proc/{pid}/net/igmp")) if match}
    return groups | {line.split()[2] for line in lines(f"/proc/{pid}/net/igmp6")}
