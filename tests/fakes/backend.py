"""A scripted backend in memory: the protocol's semantics without processes, fast, with faults on request.

Its commands are those of `machine`; what needs a real shell runs on `directories`. Time in it is virtual: `sleep 100`
takes none, and counts.
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
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from tests.fakes.machine import Machine, Run, Shell, ShellEnded, TimedOut, image_files
from tests.fakes.script import NotScripted
from tests.fakes.trees import listing_of
from tvsnap.host.load import Load
from tvsnap.host.trees import TreeItem, Upload, extract, items_of
from tvsnap.images import Image
from tvsnap.model.calls import DEFAULT_TIMEOUT
from tvsnap.model.errors import NotCheckpointable, SandboxDied, SnapshotUnusable
from tvsnap.model.limits import MIB, MOST_FETCHED, Limits
from tvsnap.model.network import Traffic
from tvsnap.model.observations import (
    NO_SERVICE,
    Captures,
    Command,
    FileChange,
    FolderListing,
    Observation,
    Outcome,
    Process,
    ReapReport,
    Service,
    SnapshotInfo,
    Stillness,
    TerminalBytes,
)

Hook = Callable[["FakeSandbox | None", str], None]
TAR_TYPES = {"file": tarfile.REGTYPE, "directory": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE}
EVERYTHING = Captures(files=True, processes=True, shell=True)


@dataclass
class Faults:
    """Errors to be raised by coming operations.

    Operations are named for the methods: `start`, `fork`, `run`, `exec`, `read_file`, `write_file`, `send_keys`,
    `observe`, `file_times`, `set_file_times`, `checkpoint`, `delete_snapshot`. A `SandboxDied` also ends the sandbox.
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
        held_up: the load of the machine holds up a command that works until its timeout.

    Attributes:
        counts: how often each operation was called.
        commands: the commands that were run, in order.
        live: the sandboxes that are not closed, by id.
        trouble: what all sandboxes say of the machine.
        kept: the snapshots, with the digests of their images, by id.
    """

    name = "fake"
    platform = "fake"
    sandbox_type: type[FakeSandbox]

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
        held_up: bool = True,
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
        self.held_up = held_up
        self.load = Load()
        self.counts: Counter[str] = Counter()
        self.commands: list[str] = []
        self.live: dict[str, FakeSandbox] = {}
        self.kept: MutableMapping[str, tuple[Machine, str]] = {}
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()

    def enter(self, operation: str, sandbox: FakeSandbox | None, subject: str = "") -> None:
        """Counts an operation, waits its delay, calls its hook and raises its planned fault."""
        with self.lock:
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
        with self.lock:
            return next(self.numbers)

    def start(self, image: Image, limits: Limits) -> FakeSandbox:
        self.enter("start", None, image.name)
        files = image_files(image.workdir)
        return self.admit(Machine(dict(files), files, fresh_shell(image), self.chance), image, limits)

    def fork(self, snapshot: str, image: Image, limits: Limits) -> FakeSandbox:
        self.enter("fork", None, snapshot)
        held = self.kept.get(snapshot)
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
        sandbox = self.sandbox_type(self, f"fake-{self.number()}", image, machine, limits)
        with self.lock:
            self.live[sandbox.id] = sandbox
        return sandbox

    def keep(self, machine: Machine, image: Image) -> str:
        """Stores a snapshot; returns its id."""
        snapshot = f"snapshot-{self.number()}"
        self.kept[snapshot] = (machine, image.digest)
        return snapshot

    def snapshots(self) -> list[str]:
        return list(self.kept)

    def delete_snapshot(self, snapshot: str) -> None:
        self.enter("delete_snapshot", None, snapshot)
        self.kept.pop(snapshot, None)

    def reap(self) -> ReapReport:
        return ReapReport()

    def reclaim(self) -> int:
        return 0

    def disk_usage(self) -> Mapping[str, int]:
        snapshots = [machine for machine, _ in list(self.kept.values())]
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
        self._lock = threading.RLock()
        self.interrupted = threading.Event()
        self._noted = False

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

    def machine_fault(self, said: str) -> str | None:
        self.backend.enter("trouble", self)
        return self.backend.trouble

    def run(self, command: str, *, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        self.enter("run", command)
        with self._lock:
            return self.interpret(self.machine.shell, command, timeout)

    def exec(
        self,
        command: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
        separate: bool = False,
        service: str | None = None,
    ) -> Outcome:
        self.enter("exec", command)
        shell = fresh_shell(self._image)
        shell.cwd, shell.user = cwd or shell.cwd, user or shell.user
        shell.variables.update(env)
        with self._lock:
            outcome = self.interpret(shell, command, timeout)
        return replace(outcome, errors=b"") if separate else outcome  # none of what it can run prints any

    def exec_all(
        self, commands: Sequence[Command], *, timeout: float = DEFAULT_TIMEOUT, user: str | None = None
    ) -> list[Outcome]:
        return [
            self.exec(one.command, timeout=timeout, cwd=one.cwd, env=one.env, user=user, separate=one.separate)
            for one in commands
        ]

    def interpret(self, shell: Shell, command: str, timeout: float) -> Outcome:
        machine = self.machine
        machine.begin_call()
        began, scale = machine.clock, self.backend.sleep_scale
        run = Run(machine, shell, began + timeout, (lambda seconds: time.sleep(seconds * scale)) if scale else None)
        status: int | None = None
        timed_out = blocked = lost = False
        try:
            status = run.text(command)
        except ShellEnded as end:
            status, lost = end.status, shell is machine.shell
        except TimedOut as end:
            timed_out, blocked = True, end.blocked
            if self.backend.held_up and not blocked:
                self.backend.load = Load(throttled=self.backend.load.throttled + timeout)
            shell.status = 137
            machine.clock = max(machine.clock, began + timeout)
            for job in [job for job in machine.jobs.values() if job.born_in == machine.calls]:
                machine.end_job(job.pid)
        if lost:
            machine.shell = fresh_shell(self._image)
        machine.ran = machine.clock
        duration = machine.clock - began + (0.0 if timed_out else self.backend.command_duration)
        output, truncated = cut(bytes(run.output), self.limits.output)
        return Outcome(output, status, duration, timed_out, blocked, truncated, lost)

    def load(self) -> Load:
        return self.backend.load

    def lend(self, variables: Mapping[str, str]) -> None:
        raise AssertionError("no sandbox of these has a network")

    def traffic(self) -> Traffic:
        return Traffic()

    def interrupt(self) -> None:
        """What a fake runs ends at once as it is, but for hooks, which may look at `interrupted`."""
        self.interrupted.set()

    def turn(self) -> contextlib.AbstractContextManager[Any]:
        return self._lock

    def uninterrupted(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def read_file(self, path: str, *, limit: int = 16 * MIB, service: str | None = None) -> bytes:
        self.enter("read_file", path)
        data = self.machine.read(posixpath.join(self.machine.shell.cwd, path))
        if len(data) > limit:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return data

    def write_file(self, path: str, data: bytes, *, user: str | None = None, service: str | None = None) -> None:
        self.enter("write_file", path)
        absolute = posixpath.join(self.machine.shell.cwd, path)
        with self._lock:
            self.machine.make_directories(posixpath.dirname(absolute))
            self.machine.write(absolute, data)

    def put(
        self,
        source: Upload,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> None:
        self.enter("put", path)
        top = posixpath.normpath(posixpath.join(self.machine.shell.cwd, path))
        with self._lock:
            self.machine.make_directories(posixpath.dirname(top))
            for item in items_of(source, mode=mode):
                place = posixpath.join(top, item.name) if item.name else top
                if item.kind == "directory":
                    self.machine.make_directories(place)
                else:
                    self.machine.write(place, b"".join(item.content))

    def get(
        self,
        path: str,
        destination: str | Path,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        return extract(self.read_tree(path, limit=limit), destination)

    def read_tree(self, path: str, *, limit: int = MOST_FETCHED, timeout: float | None = None) -> Iterator[TreeItem]:
        self.enter("read_tree", path)
        top = posixpath.normpath(posixpath.join(self.machine.shell.cwd, path))
        if top not in self.machine.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        for place, file in sorted(self.machine.files.items()):
            if place == top or place.startswith(f"{top}/"):
                content = (file.data,) if file.kind == "file" else ()
                size = len(file.data) if content else 0
                yield TreeItem(place[len(top) + 1 :], file.kind, file.mode, size=size, content=content)

    def list_folder(self, path: str, *, limit: int = 10_000) -> FolderListing:
        self.enter("list_folder", path)
        return listing_of(self.read_tree(path), limit)

    def request(self, path: str, data: bytes, *, timeout: float, limit: int = 16 * MIB) -> bytes:
        self.enter("request", path)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)  # it runs no services

    def send_keys(self, data: bytes, *, wait: float) -> None:
        """Types complete lines into the shell, whose output shows on the terminal."""
        keys = data.decode()
        self.enter("send_keys", keys)
        with self._lock:
            for line in keys.split("\r")[:-1]:
                outcome = self.interpret(self.machine.shell, line, max(wait, 1.0))
                self._screen += outcome.output.replace(b"\n", b"\r\n")

    def terminal(self) -> TerminalBytes:
        self.enter("terminal")
        return TerminalBytes(bytes(self._screen), 80, 24)

    def attach(self, columns: int, rows: int) -> socket.socket:
        raise NotScripted("nobody sits at a fake terminal")

    def shell_state(self) -> Mapping[str, str]:
        self.enter("shell_state")
        return self.machine.shell.state()

    def processes(self) -> list[Process]:
        self.enter("processes")
        jobs = self.machine.jobs.values()
        return [Process(2, 1, "S", "bash", 4 * MIB), *(Process(job.pid, 2, "S", job.command, MIB) for job in jobs)]

    def changes(self) -> Mapping[str, FileChange]:
        self.enter("changes")
        return self.machine.differing()

    def observe(self, service: Service = NO_SERVICE) -> Observation:
        self.enter("observe")
        machine = self.machine
        jobs = sorted(machine.jobs.values(), key=lambda job: job.wake)
        return Observation(
            fingerprint(sorted(machine.differing().items())),
            fingerprint(sorted((job.pid, job.command, job.steps) for job in jobs)),
            fingerprint(sorted(machine.shell.state().items())),
            alone=not jobs,
            active="; ".join(f"process {job.pid} ({job.command}) goes on by itself" for job in jobs) or None,
            quiet_s=max(0.0, jobs[0].wake - machine.clock) if jobs else math.inf,
        )

    def settle(self, *, changed: bool) -> None:
        self.machine.changes += changed
        self._noted = self._noted and not changed

    def stillness(self) -> Stillness:
        machine = self.machine
        first = min((job.wake for job in machine.jobs.values()), default=math.inf)
        return Stillness(machine.clock - machine.ran, first - machine.clock)

    def note(self) -> None:
        self._noted = True

    def go_back(self) -> bool:
        """Nothing in it can lie, but what was not noted cannot be compared."""
        return self._noted

    def file_times(self, since: int) -> dict[str, int]:
        """Each of its files has another time in each sandbox."""
        self.enter("file_times")
        return {path: time.time_ns() for path in self.machine.differing()}

    def set_file_times(self, times: Mapping[str, int]) -> None:
        self.enter("set_file_times")

    def digest(self) -> str | None:
        self.enter("digest")
        machine = self.machine
        if machine.jobs or machine.ended:
            return None
        return fingerprint((machine.contents(), sorted(machine.shell.state().items()), self._screen, machine.changes))

    def checkpoint(self) -> SnapshotInfo:
        self.enter("checkpoint")
        with self._lock:
            jobs = tuple(job.command for job in self.machine.jobs.values())
            captures = self.backend.captures
            if jobs and not captures.processes:
                raise NotCheckpointable(f"live processes cannot be captured by this backend: {', '.join(jobs)}")
            snapshot = self.backend.keep(self.machine.copy(), self._image)
            self._noted = False
        duration = self.backend.checkpoint_duration
        return SnapshotInfo(snapshot, captures, size_of(self.machine), duration, duration / 2, jobs)

    @contextlib.contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        self.enter("archive")
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, file in sorted(self.machine.files.items()):
                member = tarfile.TarInfo(f".{name}")
                member.mode, member.mtime, member.type = file.mode, file.stamp, TAR_TYPES[file.kind]
                if file.kind == "file":
                    member.size = len(file.data)
                elif file.kind == "symlink":
                    member.linkname = file.data.decode()
                tar.addfile(member, io.BytesIO(file.data) if file.kind == "file" else None)
        stream.seek(0)
        yield stream

    def memory(self) -> int:
        self.enter("memory")
        return 5 * MIB + len(self.machine.jobs) * MIB

    def close(self) -> None:
        with self.backend.lock:
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
    return Shell(image.workdir, dict(image.env), image.user)


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
    return sum(change.size for change in machine.differing().values())


FakeBackend.sandbox_type = FakeSandbox
