"""A backend in memory: the protocol's semantics without processes, fast, deterministic, with faults on request.

Time in it is virtual: `sleep 100` takes none, and counts. What it does not have: real programs, a kernel, users.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import itertools
import math
import os
import posixpath
import random
import socket
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.fakes.files import FileTree, join
from tests.fakes.shell import (
    TERMINAL,
    CallTimedOut,
    FunctionReturn,
    Interpreter,
    LoopControl,
    Machine,
    Shell,
    ShellExit,
    Sink,
    Streams,
    Variable,
    decode,
)
from tvsnap.images import Image
from tvsnap.model.errors import NotCheckpointable, SandboxDied, SnapshotUnusable
from tvsnap.model.limits import MIB, Limits
from tvsnap.model.observations import (
    NO_SERVICE,
    Captures,
    FileChange,
    Observation,
    Outcome,
    Process,
    ReapReport,
    Service,
    SnapshotInfo,
    TerminalBytes,
)

Hook = Callable[["FakeSandbox | None", str], None]
DIRECTORIES = ("/bin", "/dev", "/etc", "/home", "/home/user", "/root", "/task", "/tmp", "/usr", "/usr/bin", "/var")
FILES = {"/etc/hostname": b"sandbox\n", "/etc/os-release": b'NAME="Fake"\n'}
TERMINAL_LIMIT = 256 * 1024
EVERYTHING = Captures(files=True, processes=True, shell=True)


@dataclass
class Faults:
    """Errors to be raised by coming operations.

    Operations are named for the methods: `start`, `fork`, `run`, `exec`, `read_file`, `write_file`, `send_keys`,
    `observe`, `checkpoint`, `delete_snapshot`. A `SandboxDied` also ends the sandbox.
    """

    planned: list[tuple[str, BaseException, int]] = field(default_factory=list)

    def fail(self, operation: str, error: BaseException, *, times: int = 1, after: int = 0) -> Faults:
        """Lets `operation` raise `error` the next `times` times, once `after` calls of it have passed."""
        with self.lock:
            if after:
                self.planned.append((operation, _NO_ERROR, after))
            self.planned.append((operation, error, times))
        return self

    def take(self, operation: str) -> BaseException | None:
        """Returns what the present call of `operation` should raise."""
        with self.lock:
            for index, (name, error, times) in enumerate(self.planned):
                if name != operation:
                    continue
                if times > 1:
                    self.planned[index] = (name, error, times - 1)
                else:
                    del self.planned[index]
                return None if error is _NO_ERROR else error
        return None

    def __post_init__(self) -> None:
        self.lock = threading.Lock()


_NO_ERROR = Exception("no error")


class FakeBackend:
    """Fulfils `tvsnap.sandboxes.protocol.Backend` in memory.

    Args:
        captures: what its snapshots hold; without `processes`, a sandbox with background jobs is not checkpointable.
        faults: errors to raise.
        delays: real seconds that an operation takes, by name.
        hooks: called at the start of an operation, by name, with the sandbox (None for the backend's own) and the
            command or snapshot it is about: gates and probes for tests of concurrency.
        sleep_scale: real seconds that one virtual second of a foreground `sleep` takes.
        checkpoint_duration: what snapshots report as their duration, seconds.
        command_duration: virtual seconds that every call takes.
        seed: of `$RANDOM` and `date`, which no two sandboxes share.

    Attributes:
        counts: how often each operation was called.
        commands: the commands that were run, in order.
        live: the sandboxes that are not closed, by id.
        trouble: what all sandboxes say of the machine.
    """

    name = "fake"
    platform = "fake"

    def __init__(
        self,
        *,
        captures: Captures = EVERYTHING,
        faults: Faults | None = None,
        delays: Mapping[str, float] | None = None,
        hooks: Mapping[str, Hook] | None = None,
        sleep_scale: float = 0.0,
        checkpoint_duration: float = 0.02,
        command_duration: float = 0.001,
        seed: int = 0,
    ) -> None:
        self.captures = captures
        self.faults = faults or Faults()
        self.delays = dict(delays or {})
        self.hooks = dict(hooks or {})
        self.sleep_scale = sleep_scale
        self.checkpoint_duration = checkpoint_duration
        self.command_duration = command_duration
        self.chance = random.Random(seed)
        self.trouble: str | None = None
        self.counts: Counter[str] = Counter()
        self.commands: list[str] = []
        self.live: dict[str, FakeSandbox] = {}
        self._snapshots: dict[str, tuple[Machine, str]] = {}
        self._numbers = itertools.count(1)
        self._bases: dict[str, FileTree] = {}
        self._lock = threading.Lock()

    def enter(self, operation: str, sandbox: FakeSandbox | None, subject: str = "") -> None:
        """Counts an operation, waits its delay, calls its hook and raises its planned fault."""
        with self._lock:
            self.counts[operation] += 1
            if operation in ("run", "exec"):
                self.commands.append(subject)
        hook = self.hooks.get(operation)
        if hook is not None:
            hook(sandbox, subject)
        delay = self.delays.get(operation, 0.0)
        if delay:
            time.sleep(delay)
        error = self.faults.take(operation)
        if error is not None:
            if isinstance(error, SandboxDied) and sandbox is not None:
                sandbox.close()
            raise error

    def number(self) -> int:
        with self._lock:
            return next(self._numbers)

    def base(self, image: Image) -> FileTree:
        """Returns the file tree of an image: always the same few directories, and its workdir."""
        with self._lock:
            found = self._bases.get(image.digest)
            if found is None:
                found = FileTree()
                for path in (*DIRECTORIES, image.workdir):
                    found.make_directories(path)
                for path, data in FILES.items():
                    found.write(path, data)
                self._bases[image.digest] = found
            return found

    def start(self, image: Image, limits: Limits) -> FakeSandbox:
        self.enter("start", None, image.name)
        base = self.base(image)
        machine = Machine(base.copy(), base, fresh_shell(image), self.chance)
        return self.admit(machine, image, limits)

    def fork(self, snapshot: str, image: Image, limits: Limits) -> FakeSandbox:
        self.enter("fork", None, snapshot)
        held = self._snapshots.get(snapshot)
        if held is None:
            raise SnapshotUnusable(f"snapshot {snapshot} is gone")
        machine, digest = held
        if digest != image.digest:
            raise SnapshotUnusable(f"snapshot {snapshot} is of another image")
        copy = machine.copy()
        if not self.captures.processes and not self.captures.shell:
            copy.shell = fresh_shell(image)
        return self.admit(copy, image, limits)

    def admit(self, machine: Machine, image: Image, limits: Limits) -> FakeSandbox:
        machine.process_limit = limits.processes
        sandbox = FakeSandbox(self, f"fake-{self.number()}", image, machine, limits)
        with self._lock:
            self.live[sandbox.id] = sandbox
        return sandbox

    def keep(self, machine: Machine, image: Image) -> str:
        """Stores a snapshot; returns its id."""
        snapshot = f"snapshot-{self.number()}"
        self._snapshots[snapshot] = (machine, image.digest)
        return snapshot

    def snapshots(self) -> list[str]:
        return list(self._snapshots)

    def delete_snapshot(self, snapshot: str) -> None:
        self.enter("delete_snapshot", None, snapshot)
        self._snapshots.pop(snapshot, None)

    def reap(self) -> ReapReport:
        return ReapReport()

    def reclaim(self) -> None:
        pass

    def disk_usage(self) -> Mapping[str, int]:
        snapshots = [machine for machine, _ in list(self._snapshots.values())]
        sandboxes = [sandbox.machine for sandbox in list(self.live.values())]
        return {"snapshots": sum(map(size_of, snapshots)), "sandboxes": sum(map(size_of, sandboxes))}

    def close(self) -> None:
        for sandbox in list(self.live.values()):
            sandbox.close()


class FakeSandbox:
    """Fulfils `tvsnap.sandboxes.protocol.Sandbox`: a machine in memory."""

    def __init__(self, backend: FakeBackend, identity: str, image: Image, machine: Machine, limits: Limits) -> None:
        self.backend = backend
        self.machine = machine
        self.limits = limits
        self._id = identity
        self._image = image
        self._screen = bytearray()
        self._typed = ""
        self._lock = threading.RLock()

    @property
    def id(self) -> str:
        return self._id

    @property
    def image(self) -> Image:
        return self._image

    def enter(self, operation: str, subject: str = "") -> None:
        """Begins an operation; raises if the sandbox has ended."""
        if self._id not in self.backend.live:
            raise SandboxDied(f"sandbox {self._id} has ended")
        self.backend.enter(operation, self, subject)

    def trouble(self, said: str) -> str | None:
        self.backend.enter("trouble", self)
        return self.backend.trouble

    def run(self, command: str, *, timeout: float) -> Outcome:
        self.enter("run", command)
        with self._lock:
            self.machine.begin_call()
            return self.interpret(self.machine.shell, command, timeout, persistent=True)

    def exec(
        self,
        command: str,
        *,
        timeout: float,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
    ) -> Outcome:
        self.enter("exec", command)
        with self._lock:
            shell = fresh_shell(self._image)
            self.machine.begin_call()
            shell.pid = self.machine.take_pid()
            shell.user = user or shell.user
            if cwd is not None:
                inode = self.machine.files.lookup(cwd)
                if inode is None or inode.kind != "directory":
                    return Outcome(f"bash: line 1: cd: {cwd}: No such file or directory\n".encode(), 1, 0.0)
                shell.cwd = cwd
                shell.set("PWD", cwd)
            for name, value in env.items():
                shell.variables[name] = Variable(value, True)
            return self.interpret(shell, command, timeout, persistent=False)

    def interpret(self, shell: Shell, command: str, timeout: float, *, persistent: bool) -> Outcome:
        machine = self.machine
        machine.calls += 1
        sink = Sink()
        stdin = TERMINAL if persistent else "null"
        streams: Streams = {0: stdin, 1: sink, 2: sink}
        scale = self.backend.sleep_scale
        sleeper = (lambda seconds: time.sleep(seconds * scale)) if scale else None
        began = machine.clock
        interpreter = Interpreter(machine, shell, streams, deadline=began + timeout, sleeper=sleeper)
        status: int | None
        timed_out = blocked = shell_lost = False
        try:
            status = interpreter.run_text(command)
            if not persistent:
                status = interpreter.at_exit(status)
        except ShellExit as end:
            status = interpreter.at_exit(end.status)
            shell_lost = persistent
        except (FunctionReturn, LoopControl):
            status = shell.status
        except CallTimedOut as end:
            status, timed_out, blocked = None, True, end.blocked
            shell.status = 137
            machine.clock = max(machine.clock, began + timeout)
            for job in list(machine.jobs.values()):
                if job.born_in == machine.calls:
                    machine.end_job(job.pid, 137)
        if shell_lost:
            machine.shell = fresh_shell(self._image)
        duration = machine.clock - began + (0.0 if timed_out else self.backend.command_duration)
        output, truncated = cut(bytes(sink.data), self.limits.output)
        return Outcome(output, status, duration, timed_out, blocked, truncated, shell_lost)

    def read_file(self, path: str, *, limit: int = 16 * MIB) -> bytes:
        self.enter("read_file", path)
        data = self.machine.files.read(join(self.machine.shell.cwd, path))
        if len(data) > limit:
            raise OSError(errno.EFBIG, "File too large", path)
        return data

    def write_file(self, path: str, data: bytes, *, user: str | None = None) -> None:
        self.enter("write_file", path)
        with self._lock:
            absolute = join(self.machine.shell.cwd, path)
            self.machine.files.make_directories(posixpath.dirname(absolute.rstrip("/")))
            self.machine.files.write(absolute, data)

    def request(self, path: str, data: bytes, *, timeout: float, limit: int = 16 * MIB) -> bytes:
        self.enter("request", path)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)  # it runs no services

    def send_keys(self, data: bytes, *, wait: float) -> None:
        self.enter("send_keys", decode(data))
        self.type(data, wait)

    def type(self, data: bytes, wait: float) -> None:
        """Types into the shell: complete lines are run, and their output shows on the terminal."""
        with self._lock:
            self.machine.begin_call()
            self._typed += decode(data).replace("\r", "\n")
            while "\n" in self._typed:
                line, self._typed = self._typed.split("\n", 1)
                outcome = self.interpret(self.machine.shell, line, max(wait, 1.0), persistent=True)
                self._screen += outcome.output.replace(b"\n", b"\r\n")
            del self._screen[:-TERMINAL_LIMIT]

    def terminal(self) -> TerminalBytes:
        self.enter("terminal")
        return TerminalBytes(bytes(self._screen), 80, 24)

    def attach(self, columns: int, rows: int) -> socket.socket:
        self.enter("attach")
        ours, theirs = socket.socketpair()

        def serve() -> None:
            with contextlib.closing(ours), contextlib.suppress(OSError, SandboxDied):
                while data := ours.recv(4096):
                    before = len(self._screen)
                    self.type(data, 1.0)
                    ours.sendall(bytes(self._screen[before:]))

        threading.Thread(target=serve, daemon=True, name=f"attach-{self._id}").start()
        return theirs

    def shell_state(self) -> Mapping[str, str]:
        self.enter("shell_state")
        return self.machine.shell.state()

    def processes(self) -> list[Process]:
        self.enter("processes")
        shell = self.machine.shell.pid
        jobs = self.machine.jobs.values()
        return [
            Process(shell, 1, "S", "bash", 4 * MIB),
            *(Process(job.pid, shell, "T" if job.stopped else "S", job.command, MIB) for job in jobs),
        ]

    def changes(self) -> Mapping[str, FileChange]:
        self.enter("changes")
        return self.machine.files.changes(self.machine.base)

    def observe(self, service: Service = NO_SERVICE) -> Observation:
        self.enter("observe")
        machine = self.machine
        jobs = [(job.pid, job.command, job.stopped, job.steps) for job in machine.jobs.values()]
        state = sorted(machine.shell.state().items())
        awake = sorted((job for job in machine.jobs.values() if not job.stopped), key=lambda job: job.wake)
        return Observation(
            machine.files.fingerprint(machine.base),
            fingerprint(jobs),
            fingerprint(state),
            alone=not machine.jobs,
            active="; ".join(f"process {job.pid} ({job.command}) goes on by itself" for job in awake),
            quiet_s=max(0.0, awake[0].wake - machine.clock) if awake else math.inf,
        )

    def settle(self, *, changed: bool) -> None:
        self.machine.changes += changed

    def note(self) -> None:
        """Nothing in it can lie."""

    def go_back(self) -> bool:
        return True

    def digest(self) -> str | None:
        self.enter("digest")
        machine = self.machine
        if machine.jobs or machine.finished:
            return None
        held = machine.files.digest(machine.base), sorted(machine.shell.state().items()), self._screen, machine.changes
        return fingerprint(held)

    def checkpoint(self) -> SnapshotInfo:
        self.enter("checkpoint")
        with self._lock:
            jobs = tuple(job.command for job in self.machine.jobs.values())
            captures = self.backend.captures
            if jobs and not captures.processes:
                raise NotCheckpointable(f"live processes cannot be captured by this backend: {', '.join(jobs)}")
            snapshot = self.backend.keep(self.machine.copy(), self._image)
        duration = self.backend.checkpoint_duration
        return SnapshotInfo(snapshot, captures, size_of(self.machine), duration, duration / 2, jobs)

    @contextlib.contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        self.enter("archive")
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, number in sorted(self.machine.files.names.items()):
                inode = self.machine.files.inodes[number]
                member = tarfile.TarInfo(f".{name}")
                member.mode, member.mtime = inode.mode, inode.mtime
                if inode.kind == "file":
                    member.size = len(inode.data)
                elif inode.kind == "symlink":
                    member.type, member.linkname = tarfile.SYMTYPE, inode.data.decode()
                elif inode.kind in ("directory", "fifo"):
                    member.type = tarfile.DIRTYPE if inode.kind == "directory" else tarfile.FIFOTYPE
                else:
                    continue
                tar.addfile(member, io.BytesIO(inode.data) if inode.kind == "file" else None)
        stream.seek(0)
        yield stream

    def memory(self) -> int:
        self.enter("memory")
        return 5 * MIB + len(self.machine.jobs) * MIB

    def close(self) -> None:
        with self.backend._lock:
            self.backend.live.pop(self._id, None)


def fake_image(name: str = "terminal") -> Image:
    """Returns an image that the fake backend can start; it has nothing on disk."""
    return Image(
        name=name,
        digest=hashlib.sha256(name.encode()).hexdigest(),
        environment="terminal",
        rootfs=Path("/nonexistent"),
        env={"HOME": "/root", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        workdir="/task",
        user="root",
        hostname="sandbox",
        size=0,
        created=0.0,
    )


def fresh_shell(image: Image) -> Shell:
    """Returns the persistent shell as it is right after the start."""
    variables = {name: Variable(value, True) for name, value in image.env.items()}
    variables.setdefault("HOME", Variable("/root", True))
    variables["PWD"] = Variable(image.workdir, True)
    return Shell(image.workdir, variables, user=image.user)


def cut(data: bytes, limit: int) -> tuple[bytes, bool]:
    """Returns output cut in the middle at `limit` bytes, and whether it was."""
    if len(data) <= limit:
        return data, False
    head = limit // 2
    return data[:head] + data[len(data) - (limit - head) :], True


def fingerprint(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogateescape")).hexdigest()


def size_of(machine: Machine) -> int:
    """Returns the bytes of files that a machine has beyond its image."""
    return sum(change.size for change in machine.files.changes(machine.base).values())


__all__ = ["FakeBackend", "FakeSandbox", "Faults", "fake_image"]
