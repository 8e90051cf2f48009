"""Handling of the signals that end a command, whatever the main thread waits for."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import NoReturn

_AGAIN = (0.05, 0.2, 1.0)
"""Seconds between a signal and the interruption of the main thread."""
_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def arrange() -> None:
    """Makes signals end the process with all its cleanup, and starts a thread that enforces this.

    Python handles a signal in the main thread, between two instructions. A signal that arrives after the last
    instruction before a system call, or that the kernel delivers to another thread, does not interrupt that call, and
    is handled only when the call ends. That may be never, if the call waits for an engine that sends nothing. So the
    thread interrupts the main thread again, with a signal that has no other effect.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    signal.signal(signal.SIGURG, lambda number, frame: None)
    arrived, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
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
