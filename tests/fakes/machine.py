"""What a fake sandbox holds, and the few commands that act on it. Time in it is virtual."""

from __future__ import annotations

import copy
import errno
import hashlib
import os
import posixpath
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.fakes.script import Command, Item, NotScripted, expand, parse
from tvsnap.model.observations import FileChange

WORK = "spin"
"""A command that works until its timeout."""
_DIRECTORIES = ("/dev", "/etc", "/root", "/task", "/tmp", "/usr", "/var")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")


@dataclass(frozen=True, slots=True)
class File:
    """One path; `data` holds a file's contents or a link's target, `stamp` tells one writing from the next."""

    kind: Literal["file", "directory", "symlink"]
    data: bytes = b""
    mode: int = 0o644
    stamp: int = 0


def image_files(workdir: str) -> dict[str, File]:
    """Returns the files of an image: always the same few, and its working directory."""
    files = {path: File("directory", mode=0o755) for path in ("/", *_DIRECTORIES, workdir)}
    files["/etc/hostname"] = File("file", b"sandbox\n")
    return files


@dataclass
class Shell:
    """What one shell holds."""

    cwd: str
    variables: dict[str, str]
    user: str = "root"
    status: int = 0
    background: int = 0

    def copy(self) -> Shell:
        return replace(self, variables=dict(self.variables))

    def state(self) -> dict[str, str]:
        """Returns what a later command could see of it, by name."""
        found = {f"var {name}": value for name, value in self.variables.items()}
        return {**found, "cwd": self.cwd, "background": str(self.background), "status": str(self.status)}


@dataclass
class Job:
    """A program in the background: what is left of it to be run, and when it goes on."""

    number: int
    pid: int
    command: str
    shell: Shell
    rest: tuple[Item, ...]
    wake: float
    born_in: int
    steps: int = 0


class TimedOut(Exception):
    """The call's time is over; `blocked` if it merely waited."""

    def __init__(self, blocked: bool) -> None:
        self.blocked = blocked


class ShellEnded(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


@dataclass
class Machine:
    """All state of one fake sandbox.

    Attributes:
        files: by absolute path.
        base: those of the image.
        shell: the persistent one.
        chance: of `$RANDOM` and `date`.
        jobs: by process id.
        ended: ids of jobs that have ended and were not waited for.
        changes: how many calls have changed the state.
        clock: virtual seconds since the start.
        ran: the same, when something ran last.
        calls: how many there were.
    """

    files: dict[str, File]
    base: Mapping[str, File]
    shell: Shell
    chance: random.Random
    jobs: dict[int, Job] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    changes: int = 0
    clock: float = 0.0
    ran: float = 0.0
    calls: int = 0
    stamp: int = 0
    next_pid: int = 3

    def copy(self) -> Machine:
        other = copy.copy(self)
        other.files, other.shell, other.ended = dict(self.files), self.shell.copy(), set(self.ended)
        other.jobs = {pid: replace(job, shell=job.shell.copy()) for pid, job in self.jobs.items()}
        return other

    def begin_call(self) -> None:
        """Numbers the processes to come as in any other execution of what came before."""
        self.calls += 1
        self.next_pid = 3 + self.changes * 64

    def advance(self, seconds: float) -> None:
        """Lets virtual time pass, and the jobs that are due in it run."""
        target = self.clock + seconds
        while due := [job for job in self.jobs.values() if job.wake <= target]:
            job = min(due, key=lambda candidate: (candidate.wake, candidate.pid))
            self.clock = max(self.clock, job.wake)
            self.go_on(job)
        self.clock = target

    def go_on(self, job: Job) -> None:
        """Runs a job until it sleeps or has ended."""
        run = Run(self, job.shell, float("inf"))
        self.ran = self.clock
        while job.rest:
            item, job.rest = job.rest[0], job.rest[1:]
            job.steps += 1
            words = item.commands[0][1].words
            if words[:1] == ("sleep",):
                job.wake = self.clock + float(words[1])
                return
            run.item(item)
        self.end_job(job.pid)

    def end_job(self, pid: int) -> None:
        if self.jobs.pop(pid, None):
            self.ended.add(pid)

    def read(self, path: str) -> bytes:
        """Returns a file's contents; a link is followed once."""
        file = self.files.get(path)
        if file is not None and file.kind == "symlink":
            file = self.files.get(posixpath.join(posixpath.dirname(path), file.data.decode()))
        if file is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if file.kind == "directory":
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return file.data

    def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """Writes a file, as the sandbox itself or something else in it would."""
        if path == "/dev/null":
            return
        file = self.files.get(path, File("file"))
        if file.kind == "directory":
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.add(path, replace(file, data=file.data + data if append else data))

    def add(self, path: str, file: File) -> None:
        """Puts a file in its directory, which must be there."""
        if posixpath.dirname(path) not in self.files:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.stamp += 1
        self.files[path] = replace(file, stamp=self.stamp)

    def make_directories(self, path: str) -> None:
        parts = [part for part in path.split("/") if part]
        for count in range(len(parts)):
            here = "/" + "/".join(parts[: count + 1])
            if here not in self.files:
                self.add(here, File("directory", mode=0o755))

    def differing(self) -> Mapping[str, FileChange]:
        """Returns how the files differ from the image's."""
        found: dict[str, FileChange] = {}
        for path, file in self.files.items():
            if self.base.get(path) != file:
                identity = hashlib.sha256(file.data).hexdigest()
                found[path] = FileChange(file.kind, len(file.data), file.mode, mtime_ns=file.stamp, identity=identity)
        return {**found, **{path: FileChange("deleted") for path in self.base if path not in self.files}}

    def contents(self) -> list[tuple[str, File]]:
        """Returns the files without times."""
        return sorted((path, replace(file, stamp=0)) for path, file in self.files.items())


class Run:
    """One run of commands in a shell of a machine.

    Attributes:
        output: what they printed.
        deadline: virtual time at which it is ended.
        sleeper: called with the seconds of a `sleep` in the foreground.
    """

    def __init__(
        self, machine: Machine, shell: Shell, deadline: float, sleeper: Callable[[float], None] | None = None
    ) -> None:
        self.machine = machine
        self.shell = shell
        self.deadline = deadline
        self.sleeper = sleeper
        self.output = bytearray()

    def text(self, text: str) -> int:
        for item in parse(text):
            self.item(item)
        return self.shell.status

    def item(self, item: Item) -> None:
        if item.background:
            self.in_background(item)
            return
        for operator, command in item.commands:
            if (operator == "&&" and self.shell.status) or (operator == "||" and not self.shell.status):
                continue
            began = len(self.output)
            errors = bytearray()
            self.shell.status = self.command(command, errors)
            said = {1: bytes(self.output[began:]), 2: bytes(errors)}
            del self.output[began:]
            for redirection in command.redirections:
                path = self.path(self.word(redirection.word))
                try:
                    self.machine.write(path, said.pop(redirection.descriptor), append=redirection.append)
                except OSError as error:
                    said[2], self.shell.status = f"bash: {path}: {error.strerror}\n".encode(), 1
            self.output += said.get(1, b"") + said.get(2, b"")

    def in_background(self, item: Item) -> None:
        machine = self.machine
        while machine.next_pid in machine.jobs:
            machine.next_pid += 1
        pid, machine.next_pid = machine.next_pid, machine.next_pid + 1
        command = item.commands[0][1]
        rest = command.inner if command.inner is not None else (replace(item, background=False),)
        number = max((job.number for job in machine.jobs.values()), default=0) + 1
        job = Job(number, pid, item.text, self.shell.copy(), rest, machine.clock, machine.calls)
        machine.jobs[pid] = job
        machine.ended.discard(pid)
        machine.go_on(job)
        self.shell.background, self.shell.status = pid, 0

    def command(self, command: Command, errors: bytearray) -> int:
        if command.inner is not None:
            inner = Run(self.machine, self.shell.copy(), self.deadline, self.sleeper)
            try:
                for item in command.inner:
                    inner.item(item)
            except ShellEnded as end:
                inner.shell.status = end.status
            finally:
                self.output += inner.output
            return inner.shell.status
        assignments = [match for word in command.words if (match := _ASSIGNMENT.match(word))]
        if len(assignments) == len(command.words):
            for match, word in zip(assignments, command.words, strict=True):
                self.shell.variables[match[1]] = self.word(word[match.end() :])
            return 0
        name, *arguments = [self.word(word) for word in command.words]
        known: Callable[..., int | None] | None = getattr(self, f"do_{'colon' if name == ':' else name}", None)
        if known is None:
            raise NotScripted(f"the fake has no command {name!r}")
        try:
            status = known(*arguments)
        except OSError as error:
            errors += f"{name}: {arguments[-1]}: {error.strerror}\n".encode()
            return 1
        return status or 0

    def word(self, word: str) -> str:
        values = {**self.shell.variables, "?": str(self.shell.status), "!": str(self.shell.background or "")}
        if "$RANDOM" in word:
            values["RANDOM"] = str(self.machine.chance.randrange(1 << 60))
        return expand(word, values)

    def path(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self.shell.cwd, name))

    def say(self, text: str) -> None:
        self.output += text.encode("utf-8", "surrogateescape")

    def do_echo(self, *words: str) -> None:
        self.say(" ".join(words) + "\n")

    def do_printf(self, form: str, *arguments: str) -> None:
        data = form.encode().replace(b"\\n", b"\n")
        data = re.sub(rb"\\([0-7]{1,3})", lambda found: bytes([int(found[1], 8)]), data)
        self.output += data % tuple(map(int, arguments))

    def do_cat(self, *names: str) -> None:
        if not names:
            self.wait_for_ever()
        for name in names:
            self.output += self.machine.read(self.path(name))

    def do_ls(self) -> None:
        here = self.shell.cwd.rstrip("/") + "/"
        below = (path.removeprefix(here) for path in self.machine.files if path.startswith(here))
        self.say("".join(f"{name}\n" for name in sorted(below) if name and "/" not in name))

    def do_cd(self, name: str) -> None:
        file = self.machine.files.get(self.path(name))
        if file is None or file.kind != "directory":
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self.shell.cwd = self.path(name)

    def do_pwd(self) -> None:
        self.say(self.shell.cwd + "\n")

    def do_rm(self, *names: str) -> None:
        for name in names:
            if self.machine.files.pop(self.path(name), None) is None and "-f" not in names:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    def do_mkdir(self, *words: str) -> None:
        if words[0] == "-p":
            self.machine.make_directories(self.path(words[1]))
        else:
            self.machine.add(self.path(words[0]), File("directory", mode=0o755))

    def do_chmod(self, mode: str, name: str) -> None:
        path = self.path(name)
        file = self.machine.files.get(path)
        if file is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self.machine.add(path, replace(file, mode=int(mode, 8)))

    def do_ln(self, option: str, target: str, name: str) -> None:
        if option != "-s":
            raise NotScripted("the fake has symbolic links only")
        self.machine.add(self.path(name), File("symlink", target.encode(), 0o777))

    def do_test(self, option: str, name: str) -> int:
        if option != "-s":
            raise NotScripted("the fake has test -s only")
        file = self.machine.files.get(self.path(name))
        return 0 if file is not None and file.data else 1

    def do_true(self) -> None:
        pass

    def do_false(self) -> int:
        return 1

    def do_colon(self, *words: str) -> None:
        pass

    def do_exit(self, status: str) -> None:
        raise ShellEnded(int(status))

    def do_make(self) -> None:
        self.machine.write(self.path("made"), b"made\n")

    def do_whoami(self) -> None:
        self.say(self.shell.user + "\n")

    def do_date(self, *form: str) -> None:
        self.say(f"{self.machine.chance.random()}\n")

    def do_jobs(self) -> None:
        self.say("".join(f"[{job.number}]  Running  {job.command} &\n" for job in self.machine.jobs.values()))

    def do_kill(self, which: str) -> int:
        found = [pid for pid, job in self.machine.jobs.items() if which in (str(pid), f"%{job.number}")]
        for pid in found:
            self.machine.end_job(pid)
        return 0 if found else 1

    def do_wait(self) -> None:
        while self.machine.jobs:
            self.do_sleep(str(min(job.wake for job in self.machine.jobs.values()) - self.machine.clock))
        self.machine.ended.clear()

    def do_sleep(self, seconds: str) -> None:
        allowed = self.deadline - self.machine.clock
        pause = min(float(seconds), allowed)
        if self.sleeper is not None:
            self.sleeper(pause)
        self.machine.advance(pause)
        if float(seconds) >= allowed:
            raise TimedOut(blocked=True)

    def do_spin(self) -> None:
        raise TimedOut(blocked=False)

    def wait_for_ever(self) -> None:
        self.machine.advance(self.deadline - self.machine.clock)
        raise TimedOut(blocked=True)
