"""Work inside a namespace of a sandbox, done by a thread of its own that ends there."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Literal, TypeVar

from tvsnap.host.libc import checked, libc

T = TypeVar("T")


def in_namespace_of(pid: int, kind: Literal["net", "ipc"], work: Callable[[], T]) -> T:
    """Returns what `work` returns, done in a namespace of a process; raises what it raises.

    Args:
        pid: the process, as the host sees it.
        kind: of the namespace, as in /proc/PID/ns.
        work: what is to be done; sockets that it makes are of that namespace for good.

    Raises:
        OSError: the namespace cannot be entered.
    """
    results: list[T] = []
    failures: list[BaseException] = []
    done = _thread.allocate_lock()  # a threading.Thread is waited for twice, which takes longer than the work
    done.acquire()

    def run() -> None:
        try:
            with open(f"/proc/{pid}/ns/{kind}", "rb") as namespace:
                checked(libc.setns(namespace.fileno(), 0), f"namespace {kind} of process {pid}")
            results.append(work())
        except BaseException as error:
            failures.append(error)
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    done.acquire()
    if failures:
        raise failures[0]
    return results[0]


def in_network_of(pid: int, work: Callable[[], T]) -> T:
    """See `in_namespace_of`."""
    return in_namespace_of(pid, "net", work)
