"""A client of a sandbox's PID 1; native/init/protocol.h defines their messages.

Commands may have root's rights inside, and so may take over PID 1. So only the requested part of an answer is kept, no
answer is waited for beyond its time, and a malformed answer ends the sandbox.

If PID 1's standard input and output, as pipes, serve as the connection, `a` is refused and `q` does nothing.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tvsnap.host import native
from tvsnap.model.errors import InfrastructureError, SandboxDied, SandboxRefused
from tvsnap.model.limits import MIB
from tvsnap.model.observations import Outcome

CONTROL = "run/tvsnap/control"
HOME = "/run/tvsnap"  # PID 1's own directory
INIT = "/run/tvsnap/init"
GUEST_FILES = {"init": native.INIT, "rc": Path(__file__).with_name("rc"), "fixed.so": native.FIXED}
"""The files of tvsnap in `INIT`'s directory of each sandbox, and their paths on this machine."""
DISTINCTION = "run/tvsnap/layer"
"""In containers, a file that the host writes before it commits one, so that no two layers of the engine are equal."""
FIXED = "run/tvsnap/fixed"
"""Parameters for the preloaded library: the begin of the clock, and the seed (preload/page.c)."""
TURN = "/run/tvsnap/turn"
"""The number of times that process ids have started over, for the same library (preload/chance.c)."""
SEED = "/run/tvsnap/seed"
"""The number with which a fork was reseeded; PID 1 sets `TVSNAP_SEED` to it (users.c), the library depends on it."""
BARE = {"TVSNAP_BARE": "1"}
"""The last variable in PID 1's environment: the shell reads no startup file, because it becomes a copy of another."""
GRACE = 20.0
"""Seconds after a call's timeout until PID 1 counts as dead; it ends a call within 2 s of its timeout."""
_REPORTING = 0.001
"""Seconds that a shell takes, at least, to report its state after a command."""
_LARGEST_ANSWER = 16 * MIB
"""Bytes of any answer except a call's output. The shell's state is the largest; PID 1 allows half of this for it."""
_MOST_PARTS = 3
"""Answers that make up an output: its head, and a ring buffer in up to two parts (protocol.h)."""
_LONGEST_MESSAGE = 500
_PERHAPS = "; give it more memory, or see what its programs do"
_LONGEST_DURATION = 10 * 366 * 86400 * 10**6


_NUMBER = re.compile(rb"-?[0-9]{1,20}")
_DIGEST = re.compile(rb"[0-9a-f]{64}")
_INNER = re.compile(rb"[0-9]{1,20}-[0-9a-f]{64}")


class TerminalBusy(Exception):
    """A program uses the shell's terminal; the message is its command line."""


class NoSuchUser(Exception):
    """The image has no such user."""


@dataclass(frozen=True, slots=True)
class GuestInfo:
    """PID 1's report on the sandbox.

    Attributes:
        shell: the persistent shell's process id inside.
        idle: it waits for a command.
        inner: changes with facts that are visible from inside only: bytes sent to the terminal, its modes, speeds,
            size, owner and foreground, System V objects.
        commands: the number of commands that the shell was given.
        plain: the terminal's modes and tvsnap's own directory are those of the start, there are no System V objects,
            and every end of the shell was reported to a call.
        kernel: changes with the kernel's state of the shell: scheduling, limits, name, ... (holds.c).
        ordinary: that state is the one of the shell's start, except for limits.
    """

    shell: int
    idle: bool
    inner: str
    commands: int
    plain: bool
    kernel: str
    ordinary: bool

    @property
    def shown(self) -> int:
        """Bytes that the terminal was sent so far."""
        return int(self.inner.partition("-")[0])


class Connection(Protocol):
    """A connection to PID 1: the methods of a socket that are used."""

    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class Guest:
    """One connection to a sandbox's PID 1. Not thread-safe except for `interrupt` and `abandon`."""

    def __init__(self, connection: Connection, why_gone: Callable[[], str] = lambda: _PERHAPS) -> None:
        """`why_gone` is called if the sandbox is gone, and returns the reason and a remedy as the end of a sentence."""
        self._socket = connection
        self._why_gone = why_gone
        self._sending = threading.Lock()
        self._buffer = b""
        self._ahead = 65536  # bytes to read beyond those that are needed
        self._deadline = 0.0  # for the answer
        self._given_away = False
        self._first = b""  # a request that is sent together with the next one
        self._silent = False  # waiting for the shell was in vain, and it got no command since
        self._has_run = True  # a command has run, and the shell may be about to report its state
        self._heeding = True  # interrupts are passed on
        self._terminal: tuple[str, tuple[bytes, int, int]] | None = None  # of the last answer, with `GuestInfo.inner`
        self.requests = 0  # the number of requests that were sent

    def __del__(self) -> None:
        if not self._given_away:
            self._socket.close()

    def close(self) -> None:
        """Closes the connection after PID 1 has closed its end, so that a checkpoint finds neither.

        PID 1 never closes its standard streams: use `abandon` for a connection to those.
        """
        try:
            self._socket.settimeout(2.0)
            self._send("q")
            deadline = time.monotonic() + 2.0
            while self._socket.recv(4096) and time.monotonic() < deadline:
                pass
        except (OSError, SandboxDied):
            pass
        finally:
            self._socket.close()

    def abandon(self) -> None:
        """Ends the connection at once; PID 1 may be dead. May be called while another thread waits for an answer.

        That thread gets SandboxDied; the descriptor itself is closed with this object, when it is no longer used.
        """
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def attach(self, columns: int, rows: int) -> None:
        """Makes the connection a raw stream to and from the shell's terminal, for its creator.

        Raises InfrastructureError for PID 1's standard streams, which could not be used for anything else afterwards.
        """
        self._ahead = 0  # all that follows the answer belongs to the terminal
        self._send("a", columns, rows)
        self._expect("A")
        self._socket.settimeout(None)
        self._given_away = True

    def detach(self, columns: int, rows: int) -> socket.socket:
        """Does `attach`, and returns the connection, which must be a socket."""
        assert isinstance(self._socket, socket.socket)
        self.attach(columns, rows)
        return self._socket

    def number_processes(self, last: int) -> None:
        """Gives the processes of the next request the ids after `last`, as far as these are free.

        Has no effect if PID 1 lacks the rights. The request is sent together with the next one.
        """
        self._first = _frame("n", last)

    def run(self, command: bytes, timeout: float, limit: int) -> Outcome:
        """Runs a command (without NUL) in the persistent shell, with at most `limit` bytes of output.

        Raises TerminalBusy if a program that was started by keys uses the terminal.
        """
        self._send("r", int(timeout * 1e6), limit, command)
        return self._outcome(timeout, limit)

    def interrupt(self) -> None:
        """Ends the running command, as its timeout would; called by another thread than the one that waits for it."""
        with contextlib.suppress(OSError), self._sending:  # PID 1 has ended, which the waiting thread detects
            if self._heeding:
                self._socket.sendall(_frame("c"))

    @contextlib.contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """A context manager in which `interrupt` does not end commands."""
        with self._sending:
            self._heeding = False
        try:
            yield
        finally:
            self._heeding = True

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        limit: int,
        user: str = "",
        cwd: str = "",
        stdin: bytes = b"",
        env: Sequence[tuple[str, str]] = (),
    ) -> Outcome:
        """Runs a program separately from the shell, with at most `limit` bytes of output.

        Raises NoSuchUser if the image does not have `user`.

        Args:
            argv: program and arguments.
            timeout: seconds.
            limit: bytes.
            user: name or number; empty for the image's.
            cwd: empty for the image's, `.` for the shell's.
            stdin: its input; /dev/null if empty.
            env: additions to the environment.
        """
        pairs = [text for pair in env for text in pair]
        self._send("e", int(timeout * 1e6), limit, user, cwd, stdin, len(argv), *argv, *pairs)
        return self._outcome(timeout, limit)

    def keys(self, data: bytes, wait: float) -> None:
        """Types `data` and waits until the terminal has been quiet for 0.1 s, at most `wait` seconds."""
        self._send("k", int(wait * 1e6), int(wait * 1e6), data)
        self._outcome(wait, 0)

    def terminal(self) -> tuple[bytes, int, int]:
        """Returns the (last part of the) bytes that the terminal was sent, its columns and its rows."""
        self._send("t")
        return self._read_terminal()

    def _read_terminal(self) -> tuple[bytes, int, int]:
        columns, rows = _numbers(self._expect("W"), 2, 0xFFFF)
        return self._expect("T"), columns, rows

    def shell_state(self, wait: float = 5.0) -> bytes | None:
        """Returns the idle shell's report on its state, or None if it is not idle (a prompt is open).

        Waits up to `wait` seconds for a shell that is about to report, unless waiting was in vain before.
        """
        deadline = time.monotonic() + (0.0 if self._silent else wait)
        pause = 0.0005
        while True:
            self._send("s")
            kind, payload = self._receive(_LARGEST_ANSWER)
            if kind == "D":
                self._silent = False
                return payload
            if kind != "L" or time.monotonic() > deadline:
                self._silent = kind == "L"
                return None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)

    def report(self) -> tuple[bytes | None, GuestInfo]:
        """Returns the results of `shell_state` and `info`, by one exchange unless the shell has to be waited for."""
        if self._has_run:
            self._has_run = False
            time.sleep(_REPORTING)  # no shell is quicker
            return self.shell_state(), self.info()
        self._first += _frame("s")
        self._send("i")
        kind, payload = self._receive(_LARGEST_ANSWER)
        info = self._read_info()
        if kind == "D":
            self._silent = False
            return payload, info
        return self.shell_state(), self.info()

    def terminal_and_info(self) -> tuple[tuple[bytes, int, int], GuestInfo]:
        """Returns the results of `terminal` and `info`, by one exchange."""
        self._first += _frame("t")
        self._send("i")
        terminal, info = self._read_terminal(), self._read_info()
        self._terminal = info.inner, terminal
        return terminal, info

    def terminal_of(self, info: GuestInfo) -> tuple[bytes, int, int]:
        """Returns the result of `terminal` while `info` holds; PID 1 is asked if the terminal has changed since."""
        if self._terminal is None or self._terminal[0] != info.inner:
            self._terminal = info.inner, self.terminal()
        return self._terminal[1]

    def info(self) -> GuestInfo:
        self._send("i")
        return self._read_info()

    def _read_info(self) -> GuestInfo:
        words = self._expect("I").split()
        if len(words) != 8 or not _INNER.fullmatch(words[3]) or not _DIGEST.fullmatch(words[6]):
            raise _nonsense(b" ".join(words))
        numbers = b" ".join((*words[:2], *words[4:6], words[7]))
        shell, mode, commands, plain, ordinary = _numbers(numbers, 5, 0xFFFFFFFF)
        inner, kernel = words[3].decode(), words[6].decode()
        return GuestInfo(shell, mode == 1, inner, commands, plain == 1, kernel, ordinary == 1)

    def data_waits(self, files: Iterable[int], processes: Iterable[int]) -> bool:
        """Returns whether a pipe, fifo or socket has unread data, or may have: not all of them can be inspected.

        Args:
            files: the shell's descriptors to inspect.
            processes: ids, inside, of processes whose descriptors are all inspected.
        """
        self._send("w", " ".join(map(str, files)), " ".join(map(str, processes)))
        return _numbers(self._expect("H"), 1, 1) != [0]

    def put_terminal_back(self, shown: bytes, count: int, commands: int) -> None:
        """Gives the terminal the contents of another sandbox's, whose shell was recreated here.

        `shown` are the last of `count` bytes sent to that terminal; its shell was given `commands` commands.
        """
        self._terminal = None
        self._send("p", shown, count, commands)
        self._expect("P")

    def _outcome(self, timeout: float, limit: int) -> Outcome:
        self._silent, self._has_run = False, True
        self._deadline = time.monotonic() + timeout + GRACE
        output = bytearray()
        for part in range(_MOST_PARTS + 1):
            kind, payload = self._receive(max(limit, _LARGEST_ANSWER))
            if kind != "O":
                break
            if part == _MOST_PARTS:
                raise SandboxDied(f"the sandbox sent its output in more than {_MOST_PARTS} parts")
            output += payload
            if len(output) > limit:
                raise SandboxDied(f"the sandbox sent more output than the {limit} bytes that were asked for")
        if kind == "B":
            raise TerminalBusy(_message(payload))
        if kind == "U":
            raise NoSuchUser
        if kind != "X":
            raise SandboxRefused(f"the sandbox refused a request: {_message(payload)}")
        code, duration, total, timed_out, blocked, lost = _numbers(payload, 6, 2**64)
        if code > 0xFF or duration > _LONGEST_DURATION:
            raise _nonsense(payload)
        return Outcome(
            output=bytes(output),
            exit_code=None if code < 0 else code,
            duration=duration / 1e6,
            timed_out=bool(timed_out),
            blocked=bool(blocked),
            truncated=total > len(output),
            shell_lost=bool(lost),
        )

    def _send(self, operation: str, *fields: str | int | bytes) -> None:
        first, self._first = self._first, b""
        self.requests += 1
        self._deadline = time.monotonic() + GRACE
        try:
            with self._sending:
                self._socket.settimeout(GRACE)
                self._socket.sendall(first + _frame(operation, *fields))
        except OSError as error:
            raise SandboxDied(f"the sandbox is gone ({error.strerror}){self._why_gone()}") from None

    def _receive(self, most: int) -> tuple[str, bytes]:
        """Returns the next answer, which may have at most `most` bytes."""
        (length,) = struct.unpack("<I", self._take(4))
        if not 0 < length <= most + 1:
            raise SandboxDied(f"the sandbox announced an answer of {length} bytes, where {most} are the most")
        body = self._take(length)
        return chr(body[0]), body[1:]

    def _expect(self, kind: str) -> bytes:
        answer, payload = self._receive(_LARGEST_ANSWER)
        if answer == "E":
            raise InfrastructureError(f"the sandbox refused a request: {_message(payload)}")
        if answer != kind:
            raise InfrastructureError(f"the sandbox answered {answer!r} where {kind!r} belongs")
        return payload

    def _take(self, length: int) -> bytes:
        while len(self._buffer) < length:
            try:
                remaining = self._deadline - time.monotonic()
                if remaining <= 0:
                    raise TimeoutError
                self._socket.settimeout(remaining)
                chunk = self._socket.recv(max(self._ahead, length - len(self._buffer)))
            except TimeoutError:
                raise SandboxDied("the sandbox does not answer") from None
            except OSError as error:
                raise SandboxDied(f"the sandbox is gone ({error.strerror}){self._why_gone()}") from None
            if not chunk:
                raise SandboxDied(f"the sandbox is gone: its PID 1 has ended{self._why_gone()}")
            self._buffer += chunk
        data, self._buffer = self._buffer[:length], self._buffer[length:]
        return data


def _frame(operation: str, *fields: str | int | bytes) -> bytes:
    body = bytearray(operation.encode())
    for field in fields:
        data = field if isinstance(field, bytes) else str(field).encode("utf-8", "surrogateescape")
        body += struct.pack("<I", len(data)) + data
    return struct.pack("<I", len(body)) + body


def _numbers(payload: bytes, count: int, most: int) -> list[int]:
    """Returns the numbers that an answer consists of, each from -1 to `most`."""
    words = payload.split()
    if len(words) != count or not all(_NUMBER.fullmatch(word) for word in words):
        raise _nonsense(payload)
    numbers = [int(word) for word in words]
    if not all(-1 <= number <= most for number in numbers):
        raise _nonsense(payload)
    return numbers


def _message(payload: bytes) -> str:
    return payload[:_LONGEST_MESSAGE].decode(errors="replace")


def _nonsense(payload: bytes) -> SandboxDied:
    return SandboxDied(f"the sandbox answers nonsense: {payload[:40]!r}")
