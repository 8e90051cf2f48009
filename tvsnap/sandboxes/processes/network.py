"""Work inside the network namespace of a sandbox, done by a thread of its own that ends there."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def in_network_of(pid: int, work: Callable[[], T]) -> T:
    """Returns what `work` returns, done in the network namespace of a process; raises what it raises.

    Args:
        pid: the process, as the host sees it.
        work: what is to be done; sockets that it makes are of that namespace for good.

    Raises:
        OSError: the namespace cannot be entered.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with open(f"/proc/{pid}/ns/net", "rb") as namespace:
                if _libc.setns(namespace.fileno(), _CLONE_NEWNET):
                    error = ctypes.get_errno()
                    raise OSError(error, os.strerror(error), f"network of process {pid}")
            results.append(work())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name=f"network-{pid}")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
