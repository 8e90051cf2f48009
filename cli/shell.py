"""`tvsnap shell`: opens a shell in any state of any rollout."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer
from typer import Option

from . import context, options
from .exec import exit_status, print_output

if TYPE_CHECKING:
    from tvsnap.client import Terminal
    from tvsnap.protocols import AnySandbox

DETACH = 0x1D  # Ctrl-]
CHUNK = 65536
LINE_TIMEOUT = 3600.0  # seconds for a command read from standard input
TRANSCRIPT_LIMIT = 1024 * 1024
RESET = b"\x1b[0m\x1b[?25h\x1b[?1l\x1b[?1000l\x1b[?2004l\x1b[?1049l"
"""Resets terminal modes that a program in the sandbox may have changed."""


@options.verb(
    "5",
    backend=True,
    url=True,
    s0="left; without a terminal the last command's own, whatever it is, 128 + N if signal N ended it; 124 if it timed "
    "out, 125 if it was not run",
    s1="tvsnap failed, as its message says",
    s2="bad usage",
    s3="no such state, or a prefix that fits several",
)
def shell(
    state: options.StateName,
    keep: bool = Option(False, "--keep", help="Record what was done as a new branch."),
    task: str = Option("", metavar="TASK", help="With --keep: the task that it belongs to."),
    as_json: bool = Option(False, "--json", help="Print what --keep recorded as JSON."),
) -> None:
    """Open an interactive shell in a fork of a state.

    It has the state's files, processes, variables and cwd. Ctrl-] leaves. The state does not change. With --keep, the
    changes in the fork become a new branch below it, which no rollout has. Without a terminal, commands are read from
    standard input, a line each; one that asks for input of its own gets none, and is ended after an hour.

    Your terminal is joined to the sandbox's: programs there may send it any control sequence, like over ssh.

    \b
    Examples:
      tvsnap shell 3fa9c1
      tvsnap shell 3fa9c1 --keep          ends by printing the new state
      echo 'git log --oneline' | tvsnap shell 3fa9c1~2
    """
    snapshot_note, status = None, 0
    client = context.connected()
    with client or context.open_cache() as cache:
        record = cache.graph.resolve(state)
        if keep:
            with cache.resume(record.hash, task=task, label="shell") as rollout:
                transcript, status = _session(rollout.sandbox(), record.hash, quiet=as_json)
                snapshot_note = rollout.keep("shell", transcript.decode("utf-8", "replace").replace("\r\n", "\n"))
        elif client is not None and context.is_terminal():
            greet(record.hash)
            interact(lambda columns, rows: client.terminal(record.hash, columns, rows))  # the fork ends with it
        else:
            with cache.materialise(record.hash) as sandbox:
                _, status = _session(sandbox, record.hash, quiet=as_json)
    if as_json:
        context.print_json({"state": record.hash, "kept": snapshot_note})
    elif snapshot_note == record.hash:
        typer.echo("nothing was changed, so there is nothing to keep", err=True)
    elif snapshot_note is not None:
        typer.echo(snapshot_note)
    raise typer.Exit(status)


def _session(sandbox: AnySandbox, state: str, *, quiet: bool) -> tuple[bytes, int]:
    """Runs a person's input, or that of standard input, in a sandbox; returns the transcript and the exit status."""
    if context.is_terminal():
        greet(state)
        return interact(sandbox.attach), 0
    return _read_commands(sandbox, options.input_lines(), quiet=quiet)


def greet(state: str) -> None:
    typer.echo(f"a fork of state {state[:12]}; Ctrl-] leaves it", err=True)


def _read_commands(sandbox: AnySandbox, lines: Iterator[str], *, quiet: bool) -> tuple[bytes, int]:
    """Runs lines; returns the transcript, and the exit status of the last one."""
    transcript, status = bytearray(), 0
    for line in lines:
        outcome = sandbox.run(line, timeout=LINE_TIMEOUT)
        transcript += f"$ {line}\n".encode() + outcome.output
        status = exit_status(outcome)
        if not quiet:
            print_output(outcome.output)
    return bytes(transcript[-TRANSCRIPT_LIMIT:]), status


def interact(attach: Callable[[int, int], socket.socket | Terminal]) -> bytes:
    """Connects this terminal to the sandbox's until the person leaves or its shell ends; returns the transcript."""
    columns, rows = shutil.get_terminal_size()
    transcript = bytearray()
    with contextlib.closing(attach(columns, rows)) as stream, _raw_terminal():
        terminal = _Local(stream, attach) if isinstance(stream, socket.socket) else stream
        for data in _exchange(terminal):
            transcript += data
            del transcript[:-TRANSCRIPT_LIMIT]
    return bytes(transcript)


class _Local:
    """The terminal of a sandbox of this machine, as `Terminal` is one of a sandbox elsewhere."""

    def __init__(self, stream: socket.socket, attach: Callable[[int, int], socket.socket | Terminal]) -> None:
        stream.setblocking(True)
        self._stream = stream
        self._attach = attach

    def fileno(self) -> int:
        """Returns the descriptor to wait at."""
        return self._stream.fileno()

    def receive(self) -> bytes | None:
        """Returns the next output for the screen; None at the end."""
        return self._stream.recv(CHUNK) or None

    def send(self, data: bytes) -> None:
        """Types bytes."""
        self._stream.sendall(data)

    def resize(self, columns: int, rows: int) -> None:
        """Sets the size."""
        self._attach(columns, rows).close()


def _exchange(terminal: _Local | Terminal) -> Iterator[bytes]:
    """Copies bytes in both directions, and yields those from the sandbox."""
    keyboard, screen = sys.stdin.fileno(), sys.stdout.fileno()
    with selectors.PollSelector() as selector, _resizes() as resized:
        for one in (terminal, keyboard, resized):
            selector.register(one, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            try:
                if terminal in ready:
                    data = terminal.receive()
                    if data is None:
                        return
                    _write(screen, data)
                    yield data
                if resized in ready:
                    resized.recv(CHUNK)
                    terminal.resize(*os.get_terminal_size(screen))
                if keyboard in ready:
                    typed = os.read(keyboard, CHUNK)
                    before, leave, _ = typed.partition(bytes([DETACH]))
                    terminal.send(before)
                    if leave or not typed:
                        return
            except OSError:
                return


@contextlib.contextmanager
def _resizes() -> Iterator[socket.socket]:
    """A block with a socket at which something comes when the size of this terminal changes."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    def tell(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            theirs.send(b".")

    with ours, theirs:
        before = signal.signal(signal.SIGWINCH, tell)
        try:
            yield ours
        finally:
            signal.signal(signal.SIGWINCH, before)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Sets the terminal to raw mode during the block, so that each key is passed on immediately."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)  # keeps text that was already typed
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        _write(sys.stdout.fileno(), RESET + b"\r\n")
