"""Signals that end a command are acted upon whatever the main thread waits for."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import NoReturn

_AGAIN = (0.05, 0.2, 1.0)
"""Seconds after a signal at which the main thread is interrupted."""
_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def arrange() -> None:
    """Lets signals end the process by way of everything that cleans up; begins a thread that sees to it.

    Python acts upon a signal in the main thread, between two instructions. A signal that comes after the last of these
    and just before a system call, or that the kernel gives to another thread, does not interrupt that call, and is
    acted upon when the call ends: never, if it waits for an engine that has nothing to say. So the main thread is
    interrupted once more, by a signal that has no other effect.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    signal.signal(signal.SIGURG, lambda number, frame: None)
    arrived, told = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_interrupt, args=(arrived,), name="tvsnap-signals", daemon=True).start()


def _interrupt(arrived: int) -> None:
    """Interrupts the main thread after each signal that ends a command."""
    main = threading.main_thread().ident
    while numbers := os.read(arrived, 64):
        if main is not None and not _ENDING.isdisjoint(numbers):
            for pause in _AGAIN:
                time.sleep(pause)
                signal.pthread_kill(main, signal.SIGURG)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
