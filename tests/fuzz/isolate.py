"""Executes a case in a process of its own, which is ended if it hangs."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Hung(Exception):
    """It did not end in time."""


class Crashed(Exception):
    """It ended without a result."""


def isolated(work: Callable[[], T], seconds: float) -> T:
    """Returns what `work` returns in a forked process. To be called where no other thread runs.

    Args:
        work: what to do; what it returns can be pickled.
        seconds: after which the process is killed, with all that it started.

    Raises:
        Hung: it took longer.
        Crashed: it failed; its traceback is the message.
    """
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(here)
            try:
                answer: tuple[bool, object] = True, work()
            except BaseException:
                answer = False, traceback.format_exc()
            with os.fdopen(there, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(there)
    try:
        data = _read(here, time.monotonic() + seconds)
    finally:
        os.close(here)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not data:
        raise Crashed("the process that executed the case was killed")
    good, found = pickle.loads(data)
    if not good:
        raise Crashed(found)
    result: T = found
    return result


def _read(descriptor: int, deadline: float) -> bytes:
    """Returns what comes until the end.

    Raises:
        Hung: that does not come in time.
    """
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise Hung
        part = os.read(descriptor, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
