"""`tvsnap shell`: opens a shell in any state of any rollout."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer
from typer import Option

from tvsnap.model.errors import UsageError

from . import context, options
from .exec import print_output

if TYPE_CHECKING:
    from tvsnap.client.client import RemoteSandbox
    from tvsnap.protocols import AnySandbox
    from tvsnap.sandboxes.protocol import Sandbox

PROMPT = "$ "
DETACH = 0x1D  # Ctrl-]
CHUNK = 65536
LINE_TIMEOUT = 3600.0  # seconds for a command read from standard input
TRANSCRIPT_LIMIT = 1024 * 1024
RESET = b"\x1b[0m\x1b[?25h\x1b[?1l\x1b[?1000l\x1b[?2004l\x1b[?1049l"
"""Resets terminal modes that a program in the sandbox may have changed."""


@options.verb("0125", backend=True, url=True, s3="no such state, or a prefix that fits several")
def shell(
    state: options.StateName,
    keep: bool = Option(False, "--keep", help="Record what was done as a new branch."),
    task: str = Option("", metavar="TASK", help="With --keep: the task that it belongs to."),
    as_json: bool = Option(False, "--json", help="Print what --keep recorded as JSON."),
) -> None:
    """Open an interactive shell in a fork of a state.

    It is as it was then: files, processes, variables, cwd. Ctrl-] leaves. The state stays as it is. With --keep, what
    was done in the fork becomes a new branch below it, of which no rollout knows. Without a terminal, commands are read
    from standard input, a line each; one that asks for input of its own gets none, and is ended after an hour.

    With --url there is no terminal, and no --keep: each line that you type, or of standard input, is a command.

    Your terminal is joined to the sandbox's: what runs there may send it any control sequence, as over ssh.

    \b
    Examples:
      tvsnap shell 3fa9c1
      tvsnap shell 3fa9c1 --keep          ends by printing the new state
      echo 'git log --oneline' | tvsnap shell 3fa9c1~2
    """
    kept = None
    client = context.connected()
    if client is not None:
        with client:
            if keep:
                raise UsageError("--keep goes with no --url: the server keeps what a rollout does (tvsnap run --url)")
            found = client.graph.resolve(state)
            with client.materialise(found.hash) as fork:
                _converse(fork, found.hash, quiet=as_json)
        if as_json:
            context.print_json({"state": found.hash, "kept": None})
        return
    with context.open_cache() as cache:
        found = cache.graph.resolve(state)
        if keep:
            with cache.resume(found.hash, task=task, label="shell") as rollout:
                transcript = _session(rollout.sandbox(), found.hash, quiet=as_json)
                kept = rollout.keep("shell", transcript.decode("utf-8", "replace").replace("\r\n", "\n"))
        else:
            with cache.materialise(found.hash) as sandbox:
                _session(sandbox, found.hash, quiet=as_json)
    if as_json:
        context.print_json({"state": found.hash, "kept": kept})
    elif kept == found.hash:
        typer.echo("nothing was changed, so there is nothing to keep", err=True)
    elif kept is not None:
        typer.echo(kept)


def _session(sandbox: Sandbox, state: str, *, quiet: bool) -> bytes:
    """Runs a person's input, or that of standard input, in a sandbox; returns the transcript."""
    if context.is_terminal():
        typer.echo(f"a fork of state {state[:12]}; Ctrl-] leaves it", err=True)
        return _interact(sandbox)
    return _read_commands(sandbox, options.input_lines(), quiet=quiet)


def _converse(sandbox: RemoteSandbox, state: str, *, quiet: bool) -> None:
    """Runs the lines that a person types, or those of standard input, in a sandbox of a server."""
    if not context.is_terminal():
        _read_commands(sandbox, options.input_lines(), quiet=quiet)
        return
    typer.echo(f"a fork of state {state[:12]}, a line at a time, without a terminal; Ctrl-D leaves it", err=True)
    _read_commands(sandbox, _typed_lines(), quiet=quiet)


def _typed_lines() -> Iterator[str]:
    """Yields the lines that a person types, until the end of input."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives `input` editing and history)
    with contextlib.suppress(EOFError):
        while True:
            yield input(PROMPT)
    typer.echo()


def _read_commands(sandbox: AnySandbox, lines: Iterator[str], *, quiet: bool) -> bytes:
    """Runs lines; returns the transcript."""
    transcript = bytearray()
    for line in lines:
        outcome = sandbox.run(line, timeout=LINE_TIMEOUT)
        transcript += f"$ {line}\n".encode() + outcome.output
        if not quiet:
            print_output(outcome.output)
    return bytes(transcript[-TRANSCRIPT_LIMIT:])


def _interact(sandbox: Sandbox) -> bytes:
    """Connects this terminal to the sandbox's until the person leaves or its shell ends; returns the transcript."""
    columns, rows = shutil.get_terminal_size()
    transcript = bytearray()
    with contextlib.closing(sandbox.attach(columns, rows)) as stream, _raw_terminal():
        stream.setblocking(True)
        for data in _exchange(stream):
            transcript += data
            del transcript[:-TRANSCRIPT_LIMIT]
    return bytes(transcript)


def _exchange(stream: socket.socket) -> Iterator[bytes]:
    """Copies bytes in both directions, and yields those from the sandbox."""
    keyboard, screen = sys.stdin.fileno(), sys.stdout.fileno()
    with selectors.PollSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        selector.register(keyboard, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if stream in ready:
                try:
                    data = stream.recv(CHUNK)
                except OSError:
                    return
                if not data:
                    return
                _write(screen, data)
                yield data
            if keyboard in ready:
                typed = os.read(keyboard, CHUNK)
                before, leave, _ = typed.partition(bytes([DETACH]))
                with contextlib.suppress(OSError):
                    stream.sendall(before)
                if leave or not typed:
                    return


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
        tty.setraw(descriptor, termios.TCSADRAIN)  # keeps what was already typed
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        _write(sys.stdout.fileno(), RESET + b"\r\n")
