"""Finds system calls that return early, with only part of their work done, when their thread is stopped.

A write that waits for room has written as much as there was room for. When CRIU stops the thread, or a control group is
frozen, the call returns that count (signal(7)). A program that does not write the rest, which is never needed without
signals, loses data, also in the rollout that goes on. Restarting the call would not return the full count. So no
snapshot is taken while a thread waits in such a call.
"""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Callable, Iterable

from tvsnap.sandboxes.kernel.borrowing import borrowed
from tvsnap.sandboxes.kernel.procfs import describe, head
from tvsnap.sandboxes.looks.waits import TERMINALS, call_of

_WHOLE = 4096
"""Bytes that are written atomically (PIPE_BUF)."""
_WAIT_FOR_ALL = 0x100  # MSG_WAITALL
_SHARES_MEMORY = 0x4000  # CLONE_VFORK
_Arguments = tuple[int, ...]


def _long(index: int) -> Callable[[_Arguments], bool]:
    return lambda arguments: arguments[index] > _WHOLE


def _waits_for_all(index: int) -> Callable[[_Arguments], bool]:
    return lambda arguments: bool(arguments[index] & _WAIT_FOR_ALL)


_WRITES = "writes what there is no room for"
_READS = "reads what has only come in part"
_CUT_SHORT: dict[str, tuple[Callable[[_Arguments], bool], str]] = {
    **dict.fromkeys(("write", "pwrite64", "sendto"), (_long(2), _WRITES)),
    **dict.fromkeys(
        ("writev", "pwritev", "pwritev2", "sendmsg", "sendmmsg", "sendfile", "splice", "tee", "vmsplice"),
        (lambda _: True, _WRITES),
    ),
    "recvfrom": (_waits_for_all(3), _READS),
    "recvmsg": (_waits_for_all(2), _READS),
    "recvmmsg": (lambda _: True, _READS),
    **dict.fromkeys(("io_getevents", "io_pgetevents"), (lambda _: True, "waits for asynchronous input and output")),
    "connect": (lambda _: True, "waits for a connection"),  # with SO_SNDTIMEO, it fails with EINTR (signal(7))
}


_UNSTOPPABLE: dict[str, Callable[[_Arguments], bool]] = {
    "vfork": lambda _: True,
    "clone": lambda arguments: bool(arguments[0] & _SHARES_MEMORY),
}
"""Calls in which a thread waits for a child, and no signal reaches it: CRIU would wait for it, too, for 10 s."""


_BECOMING = ("execve", "execveat")
"""Calls in which a thread waits until the others of its process have ended; they replace the memory that CRIU read."""


def find(pids: Iterable[int]) -> str:
    """Returns, in words, which thread waits in a call that a stop would cut short or must wait for; empty if none.

    The processes (ids on the host) are not stopped meanwhile.
    """
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for thread in os.listdir(f"/proc/{pid}/task"):
                name, arguments = call_of(head(f"/proc/{pid}/task/{thread}/syscall"))
                would, does = _CUT_SHORT.get(name, (None, ""))
                if would and would(arguments):
                    return f"{describe(pid)} {does} ({name}), which a snapshot would cut short"
                if name in ("read", "readv") and _wants_more_than_one_key(pid, arguments[0]):
                    return f"{describe(pid)} {_READS} ({name} of a terminal), which a snapshot would cut short"
                if name in _UNSTOPPABLE and _UNSTOPPABLE[name](arguments):
                    return f"{describe(pid)} waits for a child that uses its memory ({name}), and cannot be stopped"
                if name in _BECOMING:
                    return f"{describe(pid)} is becoming another program ({name}), and cannot be stopped"
    return ""


def _wants_more_than_one_key(pid: int, number: int) -> bool:
    """Whether a descriptor is a terminal at which a read waits for several keys, of which some may have been taken."""
    if not os.readlink(f"/proc/{pid}/fd/{number}").startswith(TERMINALS):
        return False
    with contextlib.suppress(OSError, termios.error), borrowed(pid, number) as descriptor:
        modes = termios.tcgetattr(descriptor)
        least = modes[6][termios.VMIN]
        return not modes[3] & termios.ICANON and (ord(least) if isinstance(least, bytes) else least) > 1
    return False
