"""Reads /proc files of untrusted processes in bounded pieces (proc(5)).

A process controls the length of its command line and of its lists of groups, locks and mappings. Ids are the host's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from tvsnap.sandboxes.kernel.allowance import go_on

HEAD = 4096
"""Bytes that are enough for content of limited length, and for the beginning of a command line."""
MOST_DESCRIPTORS = 20_000
"""Descriptors of all processes of a sandbox; more are not inspected: 150,000 took 7 s, and took CRIU 17 s."""
DELETED = " (deleted)"
"""The end of a deleted file's path in /proc."""
_LONGEST_COMM = 64
_LONGEST_COMMAND = 60
_LONGEST_STATUS = 1 << 20
"""Bytes: a process may belong to 65,536 groups, with ten digits each."""
_PART = 1 << 16
_LINES = 256
"""Lines between two checks of the time limit."""


def head(path: str, most: int = HEAD) -> str:
    """Returns the first bytes of a file; raises OSError if the process has ended."""
    return read(path, most).decode(errors="replace")


def sockets(pids: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Yields the inode, a process and its descriptor of the sockets that processes have open."""
    for pid in pids:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # a descriptor of CRIU's that was just closed
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    yield int(target[8:-1]), pid, int(name)


def lines(path: str) -> Iterator[str]:
    """Yields the lines of a file without reading it at once; raises OSError if the process has ended."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:  # names may contain other line ends
        for number, line in enumerate(file):
            if number % _LINES == 0:
                go_on()
            yield line.rstrip("\n")


def parts(path: str) -> Iterator[bytes]:
    """Yields the contents of a file in parts of whole lines; raises OSError if the process has ended."""
    rest = b""
    with open(path, "rb", buffering=0) as file:
        while part := file.read(_PART):
            go_on()
            whole, end, rest = (rest + part).rpartition(b"\n")
            yield whole + end


def deleted_mappings(pid: int) -> Iterator[str]:
    """Yields the lines of /proc/PID/maps that end in `DELETED`, decoded as by `os.fsdecode`."""
    for part in parts(f"/proc/{pid}/maps"):
        if f"{DELETED}\n".encode() in part:
            yield from (line for line in map(os.fsdecode, part.split(b"\n")) if line.endswith(DELETED))


def stat_fields(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat from the state on; raises OSError if the process has ended."""
    stat = head(f"/proc/{pid}/stat")
    return stat[stat.rindex(")") + 2 :].split()


def status(pid: int, *names: str) -> list[str]:
    """Returns values of /proc/PID/status (not of its first line), empty ones for missing names.

    Raises OSError if the process has ended.
    """
    path = f"/proc/{pid}/status"
    text = read(path, HEAD)
    if len(text) == HEAD:
        text = read(path, _LONGEST_STATUS)
    return [_value(text, f"\n{name}:".encode()).decode(errors="replace").strip() for name in names]


def _value(text: bytes, name: bytes) -> bytes:
    """Returns the rest of the line after `name`, which begins with a line feed; empty if there is no such line."""
    begins = text.find(name) + len(name)
    return text[begins : text.find(b"\n", begins)] if begins >= len(name) else b""


def command(pid: int) -> str:
    """Returns a process' command line, cut off after `HEAD` bytes, or its name in brackets if it has none.

    Raises OSError if it has ended.
    """
    words = head(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    return words or f"[{head(f'/proc/{pid}/comm', _LONGEST_COMM).strip()}]"


def has_too_many_descriptors(pids: Iterable[int]) -> bool:
    """Whether processes have more than `MOST_DESCRIPTORS` open altogether."""
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            count += os.stat(f"/proc/{pid}/fd").st_size or len(os.listdir(f"/proc/{pid}/fd"))  # 0 before Linux 6.2
    return count > MOST_DESCRIPTORS


def private_memory(pids: Iterable[int]) -> int:
    """Returns the bytes of resident memory that belong to no file; shared pages count once per process."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            _, resident, shared, *_ = map(int, head(f"/proc/{pid}/statm").split())
            pages += resident - shared
    return pages * os.sysconf("SC_PAGE_SIZE")


def inner_pid(pid: int) -> int:
    """Returns a process' id in its own PID namespace; 0 if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        return int(status(pid, "NSpid")[0].split()[-1])
    return 0


def insiders(init: int, pids: Iterable[int]) -> dict[int, int]:
    """Returns the processes among `pids` that are in the PID namespace of `init`, by their ids inside."""
    space = os.readlink(f"/proc/{init}/ns/pid")
    inside = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            if os.readlink(f"/proc/{pid}/ns/pid") == space:
                inside[inner_pid(pid)] = pid
    return inside


def describe(pid: int) -> str:
    """Returns a description with the id inside and the command line: `process 18 (python3 server.py)`."""
    inner, words = inner_pid(pid) or pid, ""
    with contextlib.suppress(OSError):
        words = command(pid)
    if len(words) > _LONGEST_COMMAND:
        words = words[: _LONGEST_COMMAND - 1] + "…"
    return f"process {inner} ({words})" if words else f"process {inner}"


def read(path: str, most: int = HEAD) -> bytes:
    """Returns the first bytes of a file; raises OSError if the process has ended, NotSeen after the time limit."""
    go_on()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)
