"""Runs functions inside a sandbox's namespace, in a thread that ends afterwards."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Literal, TypeVar

from tvsnap.host.libc import checked, libc

T = TypeVar("T")


def in_namespace_of(pid: int, kind: Literal["net", "ipc"], work: Callable[[], T]) -> T:
    """Runs `work` in a namespace of a process and returns its result; sockets that it makes belong to that namespace.

    Raises the exceptions of `work`, and OSError if the namespace cannot be entered.
    """
    results: list[T] = []
    failures: list[BaseException] = []
    end = _thread.allocate_lock()  # joining a threading.Thread takes longer than the work
    end.acquire()

    def run() -> None:
        try:
            with open(f"/proc/{pid}/ns/{kind}", "rb") as namespace:
                checked(libc.setns(namespace.fileno(), 0), f"namespace {kind} of process {pid}")
            results.append(work())
        except BaseException as error:
            failures.append(error)
        finally:
            end.release()

    _thread.start_new_thread(run, ())
    end.acquire()
    if failures:
        raise failures[0]
    return results[0]


def in_network_of(pid: int, work: Callable[[], T]) -> T:
    """See `in_namespace_of`."""
    return in_namespace_of(pid, "net", work)
