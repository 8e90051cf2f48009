"""Whose alarms are set (alarm, setitimer): /proc does not tell, so a small program in the kernel does.

It is a BPF iterator over tasks, which writes a record for each process whose alarm is set. Where in the kernel's
structures that stands, the kernel's own type information (BTF) says.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_TYPES = Path("/sys/kernel/btf/vmlinux")
_SYS_BPF = 321 if platform.machine() == "x86_64" else 280
_PROG_LOAD, _LINK_CREATE, _ITER_CREATE = 5, 28, 33
_TRACING, _TRACE_ITER, _SEQ_WRITE = 26, 28, 127
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_RECORD = struct.Struct("=QQ")

# Kinds of types in BTF: the bytes that follow a type's header, for each that it counts, or once.
_INT, _ARRAY, _STRUCT, _UNION, _ENUM, _FUNC, _FUNC_PROTO, _VAR, _DATASEC, _DECL_TAG, _ENUM64 = (
    *(1, 3, 4, 5, 6, 12, 13, 14, 15, 17, 19),
)
_EACH = {_STRUCT: 12, _UNION: 12, _ENUM: 8, _FUNC_PROTO: 8, _DATASEC: 12, _ENUM64: 12}
_ONCE = {_INT: 4, _ARRAY: 12, _VAR: 4, _DECL_TAG: 4}

_libc = ctypes.CDLL(None, use_errno=True)


class AlarmsUntold(OSError):
    """This kernel does not tell whose alarms are set."""


class Alarms:
    """Looks at the alarms of this machine. Thread-safe."""

    def __init__(self) -> None:
        self._link: int | None = None
        self._lack = ""
        self._lock = threading.Lock()

    def left(self) -> dict[int, float]:
        """Returns seconds until the alarm rings of each process that has set one, by its id.

        Raises:
            AlarmsUntold: they cannot be told.
        """
        with self._lock:
            if self._link is None and not self._lack:
                try:
                    self._link = _load()
                except (OSError, KeyError, ValueError, struct.error) as error:
                    self._lack = str(error) or type(error).__name__
        if self._link is None:
            raise AlarmsUntold(self._lack)
        iterator = _bpf(_ITER_CREATE, struct.pack("=II", self._link, 0))
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        with open(iterator, "rb", buffering=0) as records:
            data = b""
            while chunk := records.read(1 << 16):
                data += chunk
        return {pid: max(0.0, (expires - now) / 1e9) for pid, expires in _RECORD.iter_unpack(data)}


ALARMS = Alarms()
"""Shared by all sandboxes of this process."""


def _bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 144))
    result = int(_libc.syscall(_SYS_BPF, command, buffer, len(buffer)))
    if result < 0:
        error = ctypes.get_errno()
        raise AlarmsUntold(error, os.strerror(error), f"bpf command {command}")
    return result


def _load() -> int:
    """Loads the program; returns the descriptor of a link to it, of which iterators are made."""
    if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
        raise AlarmsUntold("process ids are not the kernel's own here")
    types = _Types(_TYPES.read_bytes())
    timer = types.offset("signal_struct", "real_timer")
    code = _program(
        signal=types.offset("task_struct", "signal"),
        pid=types.offset("task_struct", "pid"),
        group=types.offset("task_struct", "tgid"),
        queued=timer + types.offset("hrtimer", "state", "is_queued"),
        expires=timer + types.offset("hrtimer", "node") + types.offset("timerqueue_node", "expires"),
    )
    program = ctypes.create_string_buffer(code)
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = bytearray(144)
    struct.pack_into("=IIQQ", attributes, 0, _TRACING, len(code) // 8, *map(ctypes.addressof, (program, licence)))
    struct.pack_into("=I", attributes, 68, _TRACE_ITER)  # expected_attach_type
    struct.pack_into("=I", attributes, 108, types.function("bpf_iter_task"))  # attach_btf_id
    loaded = _bpf(_PROG_LOAD, bytes(attributes))
    try:
        return _bpf(_LINK_CREATE, struct.pack("=IIII", loaded, 0, _TRACE_ITER, 0))
    finally:
        os.close(loaded)


def _program(*, signal: int, pid: int, group: int, queued: int, expires: int) -> bytes:
    """Returns the program, of instructions `(operation, target, source, offset, constant)`.

    Args:
        signal, pid, group: offsets in a task.
        queued, expires: offsets in what `signal` points to.
    """
    load8, load32, load64, store64 = 0x71, 0x61, 0x79, 0x7B
    move, move_constant, add_constant, and_constant = 0xBF, 0xB7, 0x07, 0x57
    if_equal, if_differs, call, leave = 0x15, 0x5D, 0x85, 0x95
    lines = [
        (load64, 7, 1, 8, 0),  # r7 = context->task
        (load64, 6, 1, 0, 0),  # r6 = context->meta
        (if_equal, 7, 0, 15, 0),  # the end of all tasks
        (load32, 1, 7, pid, 0),
        (load32, 2, 7, group, 0),
        (if_differs, 1, 2, 12, 0),  # a thread beside the first
        (load64, 8, 7, signal, 0),
        (load8, 3, 8, queued, 0),
        (and_constant, 3, 0, 0, 1),
        (if_equal, 3, 0, 8, 0),
        (load64, 4, 8, expires, 0),
        (store64, 10, 1, -16, 0),
        (store64, 10, 4, -8, 0),
        (load64, 1, 6, 0, 0),  # meta->seq
        (move, 2, 10, 0, 0),
        (add_constant, 2, 0, 0, -16),
        (move_constant, 3, 0, 0, _RECORD.size),
        (call, 0, 0, 0, _SEQ_WRITE),
        (move_constant, 0, 0, 0, 0),
        (leave, 0, 0, 0, 0),
    ]
    return b"".join(
        struct.pack("=BBhi", op, target | source << 4, offset, k) for op, target, source, offset, k in lines
    )


class _Types:
    """The kernel's type information, as far as it is asked for."""

    def __init__(self, data: bytes) -> None:
        magic, _, _, header, types, length, strings, _ = struct.unpack_from("=HBBIIIII", data)
        if magic != 0xEB9F:
            raise ValueError("no type information of this machine's byte order")
        self._data = data
        self._types = header + types
        self._end = self._types + length
        self._strings = header + strings

    def offset(self, structure: str, *members: str) -> int:
        """Returns where the first of `members` that there is stands in a structure, in bytes."""
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
        """Returns where a name stands among all names; -1 if it is none."""
        found = self._data.find(b"\0" + text.encode() + b"\0", self._strings)
        return found + 1 - self._strings if found >= 0 else -1

    def _named(self, text: str) -> Iterator[tuple[int, int, int, int]]:
        """Yields number, kind, count and place of what follows it, of each type of that name."""
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
