"""`tvsnap exec`: runs one command in a throw-away fork of a state."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import typer
from typer import Argument

from tvsnap.model.errors import UsageError

from . import context, options
from .text import visible

if TYPE_CHECKING:
    from tvsnap.model.observations import Outcome

# Everything after STATE belongs to the command, even if it looks like an option.
SETTINGS = {"allow_interspersed_args": False}
TIMED_OUT = 124
NOT_RUN = 125


@options.verb(
    "25",
    backend=True,
    url=True,
    s0="the command's own, whatever it is, 128 + N if signal N ended it; 124 if it timed out, 125 if it was not run "
    "(a program has the terminal)",
    s1="tvsnap failed, as its message says",
    s3="no such state, or a prefix that fits several",
)
def exec(
    state: options.StateName,
    command: list[str] = Argument(..., metavar="CMD", help="The command.", show_default=False),
    timeout: float = options.seconds(60.0, "--timeout", "Seconds."),
    network: options.Network = None,
    as_json: options.AsJson = False,
) -> None:
    """Run one command in a throw-away fork of a state. Nothing is recorded; the state stays as it is.

    The command runs in the state's shell, with its cwd, variables and functions. One word is a line for the shell;
    several are a command and its arguments, taken as they are. Options go before STATE.

    \b
    Examples:
      tvsnap exec 3fa9c1 -- git status
      tvsnap exec 3fa9c1 'ls | wc -l'
      tvsnap exec --network public 3fa9c1 -- bash /tests/test.sh
    """
    if command[0].startswith("-") and command[0] != "--":
        raise UsageError(f"{command[0]}: options go before STATE, a command that begins so after --")
    words = command[1:] if command[0] == "--" and len(command) > 1 else command
    line = words[0] if len(words) == 1 else shlex.join(words)
    with context.any_cache() as cache:
        record = cache.graph.resolve(state)
        with cache.materialise(record.hash, network=options.network(network)) as sandbox:
            outcome = sandbox.run(line, timeout=timeout)
    data = {
        "state": record.hash,
        "command": line,
        "output": outcome.output.decode("utf-8", "replace"),
        "exit_code": outcome.exit_code,
        "duration": outcome.duration,
        "timed_out": outcome.timed_out,
        "truncated": outcome.truncated,
    }
    context.answer(data, as_json=as_json, show=lambda: print_output(outcome.output))
    if outcome.truncated:
        typer.echo("tvsnap: the output was too long, and is cut in the middle (Limits.output)", err=True)
    raise typer.Exit(exit_status(outcome))


def print_output(data: bytes) -> None:
    """Prints a command's output: unchanged, or made harmless if it goes to a terminal."""
    if sys.stdout.isatty():
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        typer.echo(visible(text), nl=bool(text) and not text.endswith("\n"))
    else:
        stream = typer.get_binary_stream("stdout")
        stream.write(data)
        stream.flush()


def exit_status(outcome: Outcome) -> int:
    """Returns the exit status that represents a command's outcome."""
    if outcome.timed_out:
        return TIMED_OUT
    return NOT_RUN if outcome.exit_code is None else outcome.exit_code
