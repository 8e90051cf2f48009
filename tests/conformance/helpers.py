"""What the tests share: a laboratory for sandboxes, and short ways to run and to wait."""

from __future__ import annotations

import contextlib
import secrets
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from tvsnap.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Outcome, SnapshotInfo
from tvsnap.sandboxes.protocol import Backend, Sandbox

T = TypeVar("T")
TIMEOUT = 60.0
"""Seconds for a command that takes far less, on a machine that has much else to do."""
LIMITS = Limits()


class Lab:
    """Makes sandboxes and snapshots of one backend and remembers them, to remove them all. Thread-safe."""

    def __init__(self, backend: Backend, image: Image) -> None:
        self.backend = backend
        self.image = image
        self._sandboxes: list[Sandbox] = []
        self._snapshots: list[str] = []
        self._lock = threading.Lock()

    def start(self, limits: Limits = LIMITS) -> Sandbox:
        return self._remember(self.backend.start(self.image, limits))

    def checkpoint(self, sandbox: Sandbox) -> SnapshotInfo:
        info = sandbox.checkpoint()
        with self._lock:
            self._snapshots.append(info.id)
        return info

    def fork(self, snapshot: SnapshotInfo, limits: Limits = LIMITS) -> Sandbox:
        return self._remember(self.backend.fork(snapshot.id, self.image, limits))

    def fork_of(self, sandbox: Sandbox, limits: Limits = LIMITS) -> Sandbox:
        """Returns a fork of a sandbox as it stands."""
        return self.fork(self.checkpoint(sandbox), limits)

    def close(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda sandbox: sandbox.close(), self._sandboxes))
        for snapshot in self._snapshots:
            self.backend.delete_snapshot(snapshot)

    def _remember(self, sandbox: Sandbox) -> Sandbox:
        with self._lock:
            self._sandboxes.append(sandbox)
        return sandbox


class Worn:
    """One sandbox for all cases of a test, one after another: to start one takes longer than most of them do."""

    def __init__(self, backend: Backend, image: Image) -> None:
        self._lab = Lab(backend, image)
        self._sandbox: Sandbox | None = None
        self._test = ""
        self._cases = 0

    def lend(self, test: str) -> Sandbox:
        """Returns the sandbox of a test, with a fresh shell in an empty directory."""
        sandbox = self._sandbox
        if sandbox is None or test != self._test or not run(sandbox, 'kill -9 "$$"').shell_lost:
            if sandbox is not None:
                sandbox.close()
            sandbox = self._sandbox = self._lab.start()
            self._test = test
        self._cases += 1
        sh(sandbox, f"mkdir /root/{self._cases}; cd /root/{self._cases}; true")
        return sandbox

    def close(self) -> None:
        self._lab.close()


def sh(sandbox: Sandbox, command: str, timeout: float = TIMEOUT) -> str:
    """Runs a command in the persistent shell; returns its output. It must neither time out nor end the shell."""
    outcome = sandbox.run(command, timeout=timeout)
    assert not outcome.timed_out, (command, outcome)
    assert not outcome.shell_lost, (command, outcome)
    return outcome.output.decode("utf-8", "surrogateescape")


def run(sandbox: Sandbox, command: str, timeout: float = TIMEOUT) -> Outcome:
    return sandbox.run(command, timeout=timeout)


def usable(sandbox: Sandbox) -> None:
    """Asserts that the sandbox still answers, with output and status of its own."""
    outcome = sandbox.run("echo usable; (exit 5)", timeout=TIMEOUT)
    assert (outcome.output, outcome.exit_code, outcome.timed_out) == (b"usable\n", 5, False), outcome


def changed(sandbox: Sandbox, command: str) -> set[str]:
    """Returns which parts of the observation a command changed: `files`, `processes`, `shell`."""
    before = sandbox.observe()
    sh(sandbox, command)
    after = sandbox.observe()
    return {part for part in ("files", "processes", "shell") if getattr(before, part) != getattr(after, part)}


def acl(path: str, kind: str = "") -> str:
    """Returns a command that sets an access control list, which the image has no program for.

    Args:
        path: of the file or directory.
        kind: `u:ID:PERMISSIONS` for what one user may, `default` for what new files in a directory are to have; empty
            to have none.
    """
    entries = [(1, 7, -1), (4, 5, -1), (0x20, 5, -1)]
    if kind == "default":
        entries = [(1, 6, -1), (4, 0, -1), (0x20, 0, -1)]
    elif kind:
        _, user, permissions = kind.split(":")
        entries += [(2, int(permissions), int(user)), (0x10, 7, -1)]
    value = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, mode, id & 0xFFFFFFFF) for tag, mode, id in sorted(entries)
    )
    name = "system.posix_acl_default" if kind == "default" else "system.posix_acl_access"
    change = f"os.setxattr('{path}', '{name}', bytes.fromhex('{value.hex()}'))"
    if not kind:
        change = f"[os.removexattr('{path}', name) for name in os.listxattr('{path}') if name.startswith('system.')]"
    return f'python3 -c "import os; {change}"'


def attribute(path: str, value: str = "") -> str:
    """Returns a command that sets an extended attribute, `user.k`; or removes it if `value` is empty."""
    change = f"setxattr('{path}', 'user.k', b'{value}')" if value else f"removexattr('{path}', 'user.k')"
    return f'python3 -c "import os; os.{change}"'


def eventually(probe: Callable[[], T], *, timeout: float = 60.0, every: float = 0.02) -> T:
    """Calls `probe` until what it returns is true; returns that. Fails with the last value after `timeout` seconds."""
    end = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"still {value!r} after {timeout} s")
        time.sleep(every)


def pid_of(command: str) -> int | None:
    """Returns a process of this machine, sandboxes included, with this command line."""
    wanted = command.replace(" ", "\0").encode() + b"\0"
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if file.read_bytes() == wanted:
                return int(file.parent.name)
    return None


def is_running(command: str) -> bool:
    """Whether a process of this machine, sandboxes included, has this command line."""
    return pid_of(command) is not None


def make_beside(command: str, path: str) -> None:
    """Makes an empty file in the sandbox in which a process with this command line runs, once there is one."""

    def made() -> bool:
        pid = pid_of(command)
        with contextlib.suppress(OSError):  # it has just ended
            Path(f"/proc/{pid}/root{path}").touch()
            return True
        return False

    eventually(made)


def asleep(program: str = "", pid: str = "$!") -> str:
    """Returns a command that waits until a process sleeps, and executes a program; the shell stays as it is."""
    shown = f"({program}) S " if program else ") S "
    return f"(until read -r s < /proc/{pid}/stat && [[ $s == *'{shown}'* ]]; do :; done)"


def job(sandbox: Sandbox, command: str) -> None:
    """Starts a background job and waits until it sleeps: at first it is a copy of the shell."""
    sh(sandbox, f"{command} &")
    settled(sandbox, command)


def still(sandbox: Sandbox, command: str = "true") -> bool:
    """Whether a command changes nothing, and nothing runs: what waits for a processor looks the same twice, too."""
    return changed(sandbox, command) == set() and all(each.state != "R" for each in sandbox.processes())


def settled(sandbox: Sandbox, command: str) -> None:
    """Waits until a process with this command line sleeps."""
    eventually(lambda: any(each.command == command and each.state == "S" for each in sandbox.processes()))
    time.sleep(0.02)  # it may not have come to its sleep yet


def commands(sandbox: Sandbox) -> str:
    """Returns the command lines of the sandbox's processes, one a line."""
    return "\n".join(process.command for process in sandbox.processes())


def unique_sleep() -> str:
    """Returns a command that sleeps long and can be told from every other process of this machine."""
    return f"sleep {100_000 + secrets.randbelow(900_000)}.{secrets.randbelow(10**9):09}"


def on_host(marker: str) -> bool:
    """Whether a process whose command line holds `marker` runs anywhere on this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if marker in line:
            return True
    return False


def screen(sandbox: Sandbox) -> str:
    """Returns what the terminal was sent, as text with its control sequences."""
    return sandbox.terminal().data.decode("utf-8", "replace")


def keys(sandbox: Sandbox, data: str, *, shows: str, timeout: float = TIMEOUT) -> None:
    """Types, then waits until the terminal was sent `shows` after that."""
    before = screen(sandbox).count(shows)
    sandbox.send_keys(data.encode(), wait=0.3)
    eventually(lambda: screen(sandbox).count(shows) > before, timeout=timeout)
