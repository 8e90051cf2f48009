"""Finds the owners of alarms and POSIX timers by a small program in the kernel, because /proc does not show them.

It is a BPF iterator over tasks that writes a record for each alarm (alarm, setitimer) and each POSIX timer that is set.
The kernel's type information (BTF) has the offsets in the kernel's structures.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import struct
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host.libc import closing
from tvsnap.sandboxes.kernel.bpf import ITERATOR_CREATE, LINK_CREATE, STACK, Code, bpf, load_program
from tvsnap.sandboxes.looks.clocks import CLOCKS, of_the_kernel

_TYPES = Path("/sys/kernel/btf/vmlinux")
_TRACING, _TRACE_ITER, _SEQ_WRITE, _READ_KERNEL = 26, 28, 127, 113
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_RECORD = struct.Struct("=IIQ")  # process, clock, expiration by that clock
_ALARM, _TOO_MANY, _MOST = 0xFFFF, 0xFFFE, 64
_AT_RECORD, _AT_BUFFER, _AT_NODE = -_RECORD.size, -24, -32  # places on the program's stack
_ALL = 0
"""In place of a process id: all processes."""
_FEW = 8
"""Processes that are queried one by one at most, because a query of all reads those of the whole machine."""

# Kinds of types in BTF, and the bytes after a type's header: per counted item, or once.
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

        Other processes may be included, too. Raises OSError if this kernel does not show the owners.
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
        link = bpf(LINK_CREATE, struct.pack("=IIIIQI", program, 0, _TRACE_ITER, 0, *about), "a link")
    except OSError as error:
        if error.errno != errno.E2BIG or pid == _ALL:  # E2BIG: Linux before 6.1
            raise
        return _records(program, _ALL)
    data = b""
    with closing(link), closing(bpf(ITERATOR_CREATE, struct.pack("=II", link, 0), "an iterator")) as iterator:
        while part := os.read(iterator, 1 << 16):
            data += part
    return data


@dataclass(frozen=True)
class _Offsets:
    """Offsets in the kernel's structures, in bytes.

    Attributes:
        signal, pid, group: in a task.
        queued, expires, base: in the kernel's timer.
        clock: in the timer's base; it may differ from the clock that the program named.
        alarm, timers: in the structure at `signal`: the kernel's timer, and the list of POSIX timers.
        node, timer: in a POSIX timer: its list node, and the kernel's timer.
    """

    signal: int
    pid: int
    group: int
    queued: int
    expires: int
    alarm: int
    timers: int
    node: int
    base: int
    clock: int
    timer: int

    @classmethod
    def of(cls, types: _Types) -> _Offsets:
        """Returns those of this kernel."""
        return cls(
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


def _load() -> int:
    """Loads the program; returns its descriptor."""
    if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
        raise OSError("process ids are not the kernel's own here")
    types = _Types(_TYPES.read_bytes())
    code = _program(_Offsets.of(types))
    return load_program(code, _TRACING, _TRACE_ITER, function=types.function("bpf_iter_task"))


def _program(at: _Offsets) -> bytes:
    """Returns the program, which runs once for each task, and once after the last.

    Register 6 has the output's seq_file, 7 the task, 8 its `signal_struct`, 9 the node of a POSIX timer.
    """
    code = Code()
    code.load(8, 7, 1, 8)  # context->task
    code.load(8, 6, 1, 0)  # context->meta, which begins with the output's seq_file
    code.jump_if(7, 0, "end")  # the end of all tasks
    code.load(4, 1, 7, at.pid)
    code.load(4, 2, 7, at.group)
    code.jump_unless_same(1, 2, "end")  # not the main thread
    code.load(8, 8, 7, at.signal)
    for offset in (_AT_RECORD, _AT_RECORD + 8, _AT_BUFFER, _AT_NODE):
        code.store_constant(8, STACK, offset, 0)
    code.store(4, STACK, _AT_RECORD, 1)
    _tell_alarm(code, at)
    code.label("timers")
    _read(code, 8, 8, at.timers, _AT_NODE)
    for index in range(_MOST):
        _tell_timer(code, at, f"next {index}")
    code.set(1, _TOO_MANY)
    code.store(4, STACK, _AT_RECORD + 4, 1)
    _write(code)
    code.label("end")
    code.leave(0)
    return code.to_bytes()


def _tell_alarm(code: Code, at: _Offsets) -> None:
    """Writes a record of the task's alarm if one is set."""
    code.load(1, 3, 8, at.alarm + at.queued)
    code.mask(3, 1)
    code.jump_if(3, 0, "timers")
    code.set(1, _ALARM)
    code.store(4, STACK, _AT_RECORD + 4, 1)
    code.load(8, 4, 8, at.alarm + at.expires)
    code.store(8, STACK, _AT_RECORD + 8, 4)
    _write(code)


def _tell_timer(code: Code, at: _Offsets, following: str) -> None:
    """Writes a record of the next POSIX timer if it is set; `following` is the label after it."""
    code.load(8, 9, STACK, _AT_NODE)
    code.jump_if(9, 0, "end")
    code.move(1, 8)
    code.add(1, at.timers)
    code.jump_if_same(9, 1, "end")  # back at the head of the list
    _read(code, 8, 9, 0, _AT_NODE)
    _read(code, 1, 9, at.timer - at.node + at.queued, _AT_BUFFER)
    code.load(1, 1, STACK, _AT_BUFFER)
    code.mask(1, 1)
    code.jump_if(1, 0, following)
    _read(code, 8, 9, at.timer - at.node + at.base, _AT_BUFFER)
    code.load(8, 3, STACK, _AT_BUFFER)
    _read(code, 4, 3, at.clock, _AT_RECORD + 4)
    _read(code, 8, 9, at.timer - at.node + at.expires, _AT_RECORD + 8)
    _write(code)
    code.label(following)


def _read(code: Code, size: int, source: int, offset: int, place: int) -> None:
    """Copies the kernel's memory at a register's address plus an offset to a place on the stack."""
    code.set_address(1, place)
    code.set(2, size)
    code.move(3, source)
    code.add(3, offset)
    code.call(_READ_KERNEL)


def _write(code: Code) -> None:
    """Writes the record on the stack to the output."""
    code.load(8, 1, 6, 0)
    code.set_address(2, _AT_RECORD)
    code.set(3, _RECORD.size)
    code.call(_SEQ_WRITE)


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
        offset = self._data.find(b"\0" + text.encode() + b"\0", self._strings)
        return offset + 1 - self._strings if offset >= 0 else -1

    def _named(self, text: str) -> Iterator[tuple[int, int, int, int]]:
        """Yields, for each type of that name, its id, kind, count, and the position after its header."""
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
