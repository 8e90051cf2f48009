"""One live sandbox of the local backend."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tvsnap.backends.base import (
    MIB,
    FileChange,
    Limits,
    Observation,
    Outcome,
    Process,
    SnapshotInfo,
    TerminalBytes,
)
from tvsnap.backends.local import observe, syscalls
from tvsnap.backends.local.cgroups import Cgroup
from tvsnap.errors import SandboxDied
from tvsnap.guest.protocol import CONTROL, INIT, Guest, NoSuchUser, TerminalBusy, file_error
from tvsnap.images import Image

_START_TIMEOUT = 20.0
_FILE_TIMEOUT = 60.0
_LONGEST_ARGUMENT = 100_000
"""Bytes; the kernel takes 128 KiB in one argument."""
_EVAL_STDIN = 'IFS= read -r -d "" command; eval "unset command; $command" </dev/null'


class LocalSandbox:
    """A process tree in namespaces of its own, on an overlay of the image and a writable layer in the pool."""

    def __init__(
        self,
        id: str,
        image: Image,
        limits: Limits,
        *,
        init: int,
        layer: Path,
        cgroup: Cgroup,
        tree: observe.ImageTree,
        checkpoint: Callable[[LocalSandbox], SnapshotInfo],
        discard: Callable[[LocalSandbox], None],
    ) -> None:
        """Takes charge of a running PID 1.

        Args:
            id: its name.
            image: what it was started from.
            limits: what it may use.
            init: process id of its PID 1, a child of this process.
            layer: directory with the writable layer (`upper`, `work`).
            cgroup: its control groups.
            tree: what the image has below the writable layer.
            checkpoint: takes a snapshot of a sandbox.
            discard: removes the layer of one that has ended.
        """
        self.id = id
        self.image = image
        self.limits = limits
        self.init = init
        self.layer = layer
        self.cgroup = cgroup
        self._tree = tree
        self._checkpoint = checkpoint
        self._discard = discard
        self._guest: Guest | None = None
        self._shell = (0, 0)  # inside, on the host
        self._closing = threading.Lock()
        self._closed = False

    # -- actions ------------------------------------------------------------------------------------------------

    def run(self, command: str, *, timeout: float) -> Outcome:
        try:
            return self.guest().run(_text(command), timeout, self.limits.output)
        except TerminalBusy as busy:
            message = f"the terminal is in use by `{busy}`; send it keys, or run the command with exec\n"
            return Outcome(message.encode(), None, 0.0)

    def exec(
        self,
        command: str,
        *,
        timeout: float,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
    ) -> Outcome:
        script = _text(command)
        long = len(script) > _LONGEST_ARGUMENT
        try:
            return self.guest().execute(
                ["/bin/bash", "-c", _EVAL_STDIN if long else script.decode("utf-8", "surrogateescape")],
                stdin=script if long else b"",
                timeout=timeout,
                limit=self.limits.output,
                user=user or "",
                cwd=cwd or "",
                env=list(env.items()),
            )
        except NoSuchUser:
            return Outcome(f"no user {user} in the image {self.image.name}\n".encode(), 126, 0.0)

    def read_file(self, path: str, *, limit: int = 16 * MIB) -> bytes:
        outcome = self.guest().execute(
            [INIT, "get", path, str(limit)], timeout=_FILE_TIMEOUT, limit=limit + 4096, cwd="."
        )
        if error := file_error(outcome, path):
            raise error
        return outcome.output

    def write_file(self, path: str, data: bytes) -> None:
        # An empty stdin would be /dev/null, which is as good.
        outcome = self.guest().execute([INIT, "put", path], timeout=_FILE_TIMEOUT, limit=4096, cwd=".", stdin=data)
        if error := file_error(outcome, path):
            raise error

    def send_keys(self, data: bytes, *, wait: float) -> None:
        self.guest().keys(data, wait)

    def terminal(self) -> TerminalBytes:
        return TerminalBytes(*self.guest().terminal())

    def attach(self, columns: int, rows: int) -> socket.socket:
        return self._connect().detach(columns, rows)

    # -- what it is like ------------------------------------------------------------------------------------------

    def shell_state(self) -> Mapping[str, str]:
        return observe.shell_items(self.guest().shell_state() or b"")

    def processes(self) -> list[Process]:
        self.guest()
        return observe.list_processes(self.cgroup.pids(), self.init)

    def changes(self) -> Mapping[str, FileChange]:
        self.guest()
        return observe.file_changes(self.layer / "upper", self._tree)

    def observe(self) -> Observation:
        guest = self.guest()
        dump = guest.shell_state()
        info = guest.info()
        shell = self._host_pid(info.shell)
        return Observation(
            files=observe.files_fingerprint(self.layer / "upper", self._tree),
            processes=observe.processes_fingerprint(self.cgroup.pids(), self.init, shell),
            shell=secrets.token_hex() if dump is None else f"{observe.shell_fingerprint(dump)} {info.inner}",
        )

    def memory(self) -> int:
        total = 0
        for pid in self.cgroup.pids():
            with contextlib.suppress(OSError):
                match = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
                total += int(match[1]) * 1024 if match else 0
        return total

    def checkpoint(self) -> SnapshotInfo:
        return self._checkpoint(self)

    # -- life -------------------------------------------------------------------------------------------------------

    def guest(self) -> Guest:
        """Returns the connection to PID 1, made anew if there is none.

        Raises:
            SandboxDied: it has ended.
        """
        if self._closed:
            raise SandboxDied(f"sandbox {self.id} is closed")
        if self._guest is None:
            self._guest = self._connect()
        return self._guest

    def disconnect(self) -> None:
        """Closes the connection, as a checkpoint needs it."""
        if self._guest is not None:
            guest, self._guest = self._guest, None
            guest.close()

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        if self._guest is not None:
            self._guest.abandon()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, 9)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.init, 0)
        self.cgroup.destroy()
        self._discard(self)

    def _connect(self) -> Guest:
        """Connects to the socket that PID 1 itself listens on, not to one put in its place."""
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            if self._closed:
                raise SandboxDied(f"sandbox {self.id} is closed")
            if self._ended():
                raise SandboxDied(f"sandbox {self.id} has ended: its PID 1 is gone")
            try:
                connection = self._try_connect()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ECONNREFUSED) or time.monotonic() > deadline:
                    raise SandboxDied(f"sandbox {self.id} cannot be reached: {error}") from None
                time.sleep(0.0003)
                continue
            return Guest(connection)

    def _try_connect(self) -> socket.socket:
        root = os.open(f"/proc/{self.init}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            control = syscalls.open_in_root(root, CONTROL)
        finally:
            os.close(root)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_START_TIMEOUT)
            connection.connect(f"/proc/self/fd/{control}")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            listener = struct.unpack("3i", credentials)[0]
            if listener != self.init:
                raise SandboxDied(f"sandbox {self.id}: its control socket was replaced by process {listener}")
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(control)
        return connection

    def _ended(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.init, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def _host_pid(self, inner: int) -> int:
        if self._shell[0] != inner or not os.path.exists(f"/proc/{self._shell[1]}"):
            self._shell = (inner, 0)
            for pid in self.cgroup.pids():
                if observe.inner_pid(pid) == inner:
                    self._shell = (inner, pid)
                    break
        return self._shell[1]


def _text(command: str) -> bytes:
    """Returns a command as the shell gets it; it cannot hold a NUL."""
    return command.replace("\0", "").encode("utf-8", "surrogateescape")
