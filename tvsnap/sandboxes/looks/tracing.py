"""Calls the library that stops a sandbox's own processes by ptrace, and reads them (native/rewind)."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue

from tvsnap.host import native
from tvsnap.sandboxes.looks.observe import is_running

_TRIES, _PAUSE, _PATIENCE = 3, 0.002, 0.5
"""A shell that has just reported to be idle takes a moment to wait, seconds: longer if it gets no processor. An attempt
that took long is not repeated.
"""
LONGEST_REASON = 512
HALF_MADE = -1

_loaded: list[ctypes.CDLL] = []


def library() -> ctypes.CDLL:
    """Returns the library, with the types of its functions."""
    if not _loaded:
        loaded = ctypes.CDLL(str(native.REWIND))
        handle, pointer, size, text = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
        loaded.rewind_new.restype = handle
        loaded.rewind_note.argtypes = [handle, pointer, ctypes.c_int, text, size]
        loaded.rewind_frame.argtypes = loaded.rewind_note.argtypes
        loaded.rewind_to.argtypes = [handle, text, size]
        loaded.rewind_registers.argtypes = [handle, ctypes.c_int]
        loaded.rewind_registers.restype = ctypes.POINTER(ctypes.c_ulong)
        loaded.rewind_see.argtypes = [handle, pointer, text, size]
        for function in (loaded.rewind_go_on, loaded.rewind_holds, loaded.rewind_free):
            function.argtypes = [handle]
        _loaded.append(loaded)
    return _loaded[0]


def tries(pids: Sequence[int]) -> Iterator[None]:
    """Yields before each attempt, once none of the processes runs."""
    end = time.monotonic() + _PATIENCE
    for tried in range(_TRIES):
        if tried:
            time.sleep(_PAUSE)
            while any(map(is_running, pids)) and time.monotonic() < end:
                time.sleep(_PAUSE)
            if time.monotonic() > end:
                return
        yield


class _Tracer(threading.Thread):
    """A thread that stops processes by ptrace, and can be reused once it has detached from them.

    When it ends, the kernel detaches it from all.
    """

    def __init__(self) -> None:
        super().__init__(name="tvsnap-work-tracer", daemon=True)
        self._calls: SimpleQueue[Callable[[], int] | None] = SimpleQueue()
        self._answered: SimpleQueue[int] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while act := self._calls.get():
            result = act()
            del act  # otherwise its references would stay until the next one
            self._answered.put(result)

    def do(self, act: Callable[[], int]) -> int:
        self._calls.put(act)
        return self._answered.get()

    def end(self) -> None:
        self._calls.put(None)


_idle: list[_Tracer] = []
os.register_at_fork(after_in_child=_idle.clear)


def while_stopped(handle: int, act: Callable[[], int]) -> int:
    """Runs `act`, which stops the processes of a record, in a thread that traces no others meanwhile."""
    try:
        tracer = _idle.pop()
    except IndexError:
        tracer = _Tracer()
    free = False
    try:
        result = tracer.do(act)
        free = not library().rewind_holds(handle)
    finally:
        if free:
            _idle.append(tracer)
        else:
            tracer.end()
    return result
