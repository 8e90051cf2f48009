"""Records all of a sandbox's own processes but their memory, and tells later whether only memory has changed."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvsnap.model.errors import SandboxDied
from tvsnap.sandboxes.looks.tracing import HALF_MADE, LONGEST_REASON, library, tries, while_stopped

PAGE = 4096
"""Bytes of a page of memory on the only architecture that the library knows (x86-64)."""
REGISTERS = 27
"""Registers of a process in user_regs_struct."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a process that stands still, and its registers.

    Attributes:
        pid: its id on the host.
        own: the addresses of its own pages, in ascending order.
        contents: of these pages, one after the other.
        registers: those that differ from the record, by their place in user_regs_struct.
    """

    pid: int
    own: Sequence[int]
    contents: bytes
    registers: Mapping[int, int]


class _Seen(ctypes.Structure):
    """`struct rewind_memory` in rewind.h."""

    _fields_ = (
        ("own", ctypes.POINTER(ctypes.c_uint64)),
        ("owns", ctypes.c_size_t),
        ("contents", ctypes.c_void_p),
        ("registers_were", ctypes.POINTER(ctypes.c_ulong)),
        ("registers", ctypes.POINTER(ctypes.c_ulong)),
    )

    def memory(self, pid: int) -> Memory:
        pairs = zip(self.registers_were[:REGISTERS], self.registers[:REGISTERS], strict=True)
        changed = {place: now for place, (before, now) in enumerate(pairs) if before != now}
        contents = ctypes.string_at(self.contents, self.owns * PAGE) if self.owns else b""
        return Memory(pid, self.own[: self.owns], contents, changed)


class Frame:
    """A record of a sandbox's PID 1 and idle shell without their memory.

    It tells later whether they have changed in anything but memory and registers.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        """Records waiting processes (ids on the host, PID 1 first); `is_valid` is False if they cannot be recorded."""
        self.pids = tuple(pids)
        self._handle = library().rewind_new()
        if not self._handle:
            raise MemoryError
        array, reason = (ctypes.c_int * len(pids))(*pids), ctypes.create_string_buffer(LONGEST_REASON)

        def record() -> int:
            return int(library().rewind_frame(self._handle, array, len(pids), reason, LONGEST_REASON))

        self.is_valid = any(while_stopped(self._handle, record) == 0 for _ in tries(pids))

    def registers(self) -> Iterator[tuple[int, list[int]]]:
        """Yields each process and its registers, in the order of user_regs_struct; only if `is_valid`."""
        for number, pid in enumerate(self.pids):
            yield pid, library().rewind_registers(self._handle, number)[:REGISTERS]

    def while_standing(self, act: Callable[[list[Memory]], None]) -> str:
        """Runs `act`, with the memory of the processes, while they stand still; raises its errors.

        Returns an empty text then; else they have changed in more than memory and registers, and it is the difference.

        Raises SandboxDied if a process was ended.
        """
        seen, reason = (_Seen * len(self.pids))(), ctypes.create_string_buffer(LONGEST_REASON)
        failures: list[BaseException] = []

        def see() -> int:
            result: int = library().rewind_see(self._handle, seen, reason, LONGEST_REASON)
            if result:
                return result
            try:
                act([one.memory(pid) for one, pid in zip(seen, self.pids, strict=True)])
            except BaseException as error:
                failures.append(error)
            return int(library().rewind_go_on(self._handle))

        for _ in tries(self.pids):
            result = while_stopped(self._handle, see)
            if result == HALF_MADE:
                raise SandboxDied("a process of the sandbox did not go on after it was looked at")
            if failures:
                raise failures[0]
            if result == 0:
                return ""
        return reason.value.decode(errors="replace") or "there is no memory to compare them in"

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, TypeError):  # the interpreter is exiting, see `Note`
            library().rewind_free(self._handle)
