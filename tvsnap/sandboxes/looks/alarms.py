"""Finds the owners of alarms and POSIX timers by a small program in the kernel, since /proc does not show them.

It is a BPF iterator over tasks that writes a record for each alarm (alarm, setitimer) and each POSIX timer that is set.
The kernel's type information (BTF) tells the offsets in the kernel's structures.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import platform
import struct
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

from tvsnap.host.libc import checked, closing, libc
from tvsnap.sandboxes.looks.clocks import CLOCKS, of_the_kernel

_TYPES = Path("/sys/kernel/btf/vmlinux")
_SYS_BPF = 321 if platform.machine() == "x86_64" else 280
_PROG_LOAD, _LINK_CREATE, _ITER_CREATE = 5, 28, 33
_TRACING, _TRACE_ITER, _SEQ_WRITE, _READ_KERNEL = 26, 28, 127, 113
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_RECORD = struct.Struct("=IIQ")  # process, clock, expiration by that clock
_ALARM, _TOO_MANY, _MOST = 0xFFFF, 0xFFFE, 64
_ALL, _FEW = 0, 8
"""In place of an id; and up to how many processes are queried one by one, as this machine may have thousands."""

# Kinds of types in BTF, and the size of what follows a type's header: per counted item, or once.
_INT, _ARRAY, _STRUCT, _UNION, _ENUM, _FUNC, _FUNC_PROTO, _VAR, _DATASEC, _DECL_TAG, _ENUM64 = (
    *(1, 3, 4, 5, 6, 12, 13, 14, 15, 17, 19),
)
_EACH = {_STRUCT: 12, _UNION: 12, _ENUM: 8, _FUNC_PROTO: 8, _DATASEC: 12, _ENUM64: 12}
_ONCE = {_INT: 4, _ARRAY: 12, _VAR: 4, _DECL_TAG: 4}


class Alarms:
    """Reads the alarms of this machine. Thread-safe."""

    def __init__(self) -> None:
        self._program: int | None = None
        self._lack = ""
        self._lock = threading.Lock()

    def left(self, pids: Collection[int]) -> tuple[dict[int, float], dict[int, float]]:
        """Returns the seconds until each process' alarm, and until its first POSIX timer, by process id.

        Other processes than those asked for may be included. Raises OSError if this kernel does not tell the owners.
        """
        with self._lock:
            if self._program is None and not self._lack:
                try:
                    self._program = _load()
                except (OSError, KeyError, ValueError, struct.error) as error:
                    self._lack = str(error) or type(error).__name__
        if self._program is None:
            raise OSError(self._lack)
        one_by_one = len(pids) <= _FEW
        data = b"".join(_records(self._program, pid) for pid in (pids if one_by_one else (_ALL,)))
        if not data:
            return {}, {}
        now = {clock: of_the_kernel(clock) for clock in CLOCKS}
        alarms: dict[int, float] = {}
        timers: dict[int, float] = {}
        for pid, clock, rings in _RECORD.iter_unpack(data):
            kind, shows = (alarms, now[1]) if clock == _ALARM else (timers, now.get(clock, math.inf))
            kind[pid] = min(kind.get(pid, math.inf), max(0.0, (rings - shows) / 1e9))
        return alarms, timers


ALARMS = Alarms()
"""Shared by all sandboxes of this process."""


def _records(program: int, pid: int) -> bytes:
    """Returns the program's records of one process; of all if asked for, or if the kernel cannot filter by process."""
    which = ctypes.create_string_buffer(struct.pack("=III", 0, pid, 0), 16)
    about = (0, 0) if pid == _ALL else (ctypes.addressof(which), len(which))
    try:
        link = _bpf(_LINK_CREATE, struct.pack("=IIIIQI", program, 0, _TRACE_ITER, 0, *about))
    except OSError as error:
        if error.errno != errno.E2BIG or pid == _ALL:  # E2BIG: Linux before 6.1
            raise
        return _records(program, _ALL)
    data = b""
    with closing(link), closing(_bpf(_ITER_CREATE, struct.pack("=II", link, 0))) as iterator:
        while part := os.read(iterator, 1 << 16):
            data += part
    return data


def _bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 144))
    return checked(libc.syscall(_SYS_BPF, command, buffer, len(buffer)), f"bpf command {command}")


def _load() -> int:
    """Loads the program; returns its descriptor."""
    if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
        raise OSError("process ids are not the kernel's own here")
    types = _Types(_TYPES.read_bytes())
    code = _program(
        signal=types.offset("task_struct", "signal"),
        pid=types.offset("task_struct", "pid"),
        group=types.offset("task_struct", "tgid"),
        queued=types.offset("hrtimer", "state", "is_queued"),
        expires=types.offset("hrtimer", "node") + types.offset("timerqueue_node", "expires"),
        alarm=types.offset("signal_struct", "real_timer"),
        timers=types.offset("signal_struct", "posix_timers"),
        node=types.offset("k_itimer", "list"),
        base=types.offset("hrtimer", "base"),
        clock=types.offset("hrtimer_clock_base", "clockid"),
        timer=types.offset("k_itimer", "it"),
    )
    program = ctypes.create_string_buffer(code)
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = bytearray(144)
    struct.pack_into("=IIQQ", attributes, 0, _TRACING, len(code) // 8, *map(ctypes.addressof, (program, licence)))
    struct.pack_into("=I", attributes, 68, _TRACE_ITER)  # expected_attach_type
    struct.pack_into("=I", attributes, 108, types.function("bpf_iter_task"))  # attach_btf_id
    return _bpf(_PROG_LOAD, bytes(attributes))


def _program(
    *, signal: int, pid: int, group: int, queued: int, expires: int, alarm: int, timers: int, node: int,
    base: int, clock: int, timer: int,
) -> bytes:  # fmt: skip
    """Returns the program's code.

    Args:
        signal, pid, group: offsets in a task.
        queued, expires, base: offsets in the kernel's timer.
        clock: offset in the timer's base, whose clock may differ from the one that was asked for.
        alarm, timers: offsets in what `signal` points to, of the kernel's timer and of the list of POSIX timers.
        node, timer: offsets in a POSIX timer, of its list node and of the kernel's timer.
    """
    load8, load32, load64, store32, store64, store_constant = 0x71, 0x61, 0x79, 0x63, 0x7B, 0x7A
    move, move_constant, add_constant, and_constant = 0xBF, 0xB7, 0x07, 0x57
    if_equal, if_same, if_differs, call, leave = 0x15, 0x1D, 0x5D, 0x85, 0x95
    record, buffer, place = -_RECORD.size, -24, -32  # on the stack
    # Instructions: operation, target, source, offset or jump label, constant. A text is a label.
    lines: list[str | tuple[int, int, int, int | str, int]] = []

    def read(size: int, source: int, offset: int, into: int) -> None:
        lines.extend(
            [
                *((move, 1, 10, 0, 0), (add_constant, 1, 0, 0, into), (move_constant, 2, 0, 0, size)),
                *((move, 3, source, 0, 0), (add_constant, 3, 0, 0, offset), (call, 0, 0, 0, _READ_KERNEL)),
            ]
        )

    def write() -> None:
        lines.extend(
            [
                *((load64, 1, 6, 0, 0), (move, 2, 10, 0, 0), (add_constant, 2, 0, 0, record)),
                *((move_constant, 3, 0, 0, _RECORD.size), (call, 0, 0, 0, _SEQ_WRITE)),
            ]
        )

    lines += [
        (load64, 7, 1, 8, 0),  # r7 = context->task
        (load64, 6, 1, 0, 0),  # r6 = context->meta, which begins with the output's seq_file
        (if_equal, 7, 0, "end", 0),  # the end of all tasks
        (load32, 1, 7, pid, 0),
        (load32, 2, 7, group, 0),
        (if_differs, 1, 2, "end", 0),  # not the main thread
        (load64, 8, 7, signal, 0),
        *((store_constant, 10, 0, at, 0) for at in (record, record + 8, buffer, place)),
        (store32, 10, 1, record, 0),
        (load8, 3, 8, alarm + queued, 0),
        (and_constant, 3, 0, 0, 1),
        (if_equal, 3, 0, "timers", 0),
        (move_constant, 1, 0, 0, _ALARM),
        (store32, 10, 1, record + 4, 0),
        (load64, 4, 8, alarm + expires, 0),
        (store64, 10, 4, record + 8, 0),
    ]
    write()
    lines.append("timers")
    read(8, 8, timers, place)
    for each in range(_MOST):
        lines += [
            (load64, 9, 10, place, 0),
            (if_equal, 9, 0, "end", 0),
            (move, 1, 8, 0, 0),
            (add_constant, 1, 0, 0, timers),
            (if_same, 9, 1, "end", 0),  # back at the head of the list
        ]
        read(8, 9, 0, place)
        read(1, 9, timer - node + queued, buffer)
        lines += [(load8, 1, 10, buffer, 0), (and_constant, 1, 0, 0, 1), (if_equal, 1, 0, f"next {each}", 0)]
        read(8, 9, timer - node + base, buffer)
        lines.append((load64, 3, 10, buffer, 0))
        read(4, 3, clock, record + 4)
        read(8, 9, timer - node + expires, record + 8)
        write()
        lines.append(f"next {each}")
    lines += [(move_constant, 1, 0, 0, _TOO_MANY), (store32, 10, 1, record + 4, 0)]
    write()
    lines += ["end", (move_constant, 0, 0, 0, 0), (leave, 0, 0, 0, 0)]
    return _assembled(lines)


def _assembled(lines: list[str | tuple[int, int, int, int | str, int]]) -> bytes:
    places: dict[str, int] = {}
    number = 0
    for line in lines:
        if isinstance(line, str):
            places[line] = number
        else:
            number += 1
    code: list[bytes] = []
    for line in lines:
        if not isinstance(line, str):
            operation, target, source, offset, constant = line
            if isinstance(offset, str):
                offset = places[offset] - len(code) - 1
            code.append(struct.pack("=BBhi", operation, target | source << 4, offset, constant))
    return b"".join(code)


class _Types:
    """A reader of the kernel's type information (BTF)."""

    def __init__(self, data: bytes) -> None:
        magic, _, _, header, types, length, strings, _ = struct.unpack_from("=HBBIIIII", data)
        if magic != 0xEB9F:
            raise ValueError("no type information of this machine's byte order")
        self._data = data
        self._types = header + types
        self._end = self._types + length
        self._strings = header + strings

    def offset(self, structure: str, *members: str) -> int:
        """Returns the offset in bytes of the first of `members` that exists in a structure."""
        names = {self._name(name) for name in members}
        for _, kind, count, at in self._named(structure):
            if kind == _STRUCT:
                for each in range(count):
                    name, _, bits = struct.unpack_from("=III", self._data, at + 12 * each)
                    if name in names:
                        return int(bits & 0xFFFFFF) // 8
        raise KeyError(f"{structure} has no {' or '.join(members)}")

    def function(self, name: str) -> int:
        """Returns the id of a function."""
        for number, kind, _, _ in self._named(name):
            if kind == _FUNC:
                return number
        raise KeyError(f"no function {name}")

    def _name(self, text: str) -> int:
        """Returns the offset of a name among all names; -1 if there is no such name."""
        found = self._data.find(b"\0" + text.encode() + b"\0", self._strings)
        return found + 1 - self._strings if found >= 0 else -1

    def _named(self, text: str) -> Iterator[tuple[int, int, int, int]]:
        """Yields, for each type of that name, its id, kind, count, and the position of what follows its header."""
        wanted, number, at = self._name(text), 0, self._types
        unpack = struct.Struct("=II").unpack_from
        while at < self._end:
            name, info = unpack(self._data, at)
            number += 1
            at += 12
            kind, count = info >> 24 & 31, info & 0xFFFF
            if name == wanted:
                yield number, kind, count, at
            at += _EACH[kind] * count if kind in _EACH else _ONCE.get(kind, 0)
