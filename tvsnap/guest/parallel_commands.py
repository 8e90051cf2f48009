"""Parallel commands, or commands with separate standard error: input and output of native/init/together.c."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tvsnap.guest.cut import whole
from tvsnap.model.errors import UsageError
from tvsnap.model.limits import MIB
from tvsnap.model.observations import Command, Outcome

_FRAMES = MIB
"""Bytes, at most, of the headers around the outputs."""
_LONGEST_ARGUMENT = 100_000
"""Bytes; the kernel allows 128 KiB in one argument."""
EVAL_STDIN = 'IFS= read -r -d "" command; eval "unset command; $command" </dev/null'
"""A command that reads a command and executes it."""


def text(command: str) -> bytes:
    """Returns a command in the form for a shell, which cannot have a NUL in it.

    Raises:
        UsageError: it is no string, but for example a list of words.
    """
    if not isinstance(command, str):
        raise UsageError(f"a command is one string for a shell, not {command!r}")
    return command.replace("\0", "").encode("utf-8", "surrogateescape")


def script(command: str) -> tuple[bytes, bytes]:
    """Returns bash's argument and standard input that execute a command of any length."""
    whole = text(command)
    return (EVAL_STDIN.encode(), whole) if len(whole) > _LONGEST_ARGUMENT else (whole, b"")


def request(commands: Sequence[Command], limit: int) -> bytes:
    """Returns the input of the program; `limit` is the bytes kept of each output and each separate standard error."""
    fields: list[bytes] = [b"%d" % limit]
    for each in commands:
        argument, stdin = script(each.command)
        fields += [text(each.cwd or ""), b"1" if each.separate else b"0", argument, stdin, b"%d" % len(each.env)]
        fields += [text(one) for pair in each.env.items() for one in pair]
    return b"".join(one + b"\0" for one in fields)


def room(commands: Sequence[Command], limit: int) -> int:
    """Returns the most bytes that the program may print, twice, since PID 1 always keeps the first half."""
    return 2 * (sum(1 + each.separate for each in commands) * limit + _FRAMES)


@dataclass(slots=True)
class _Report:
    """The output of the program about one command."""

    streams: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    status: int | None = None
    duration: float = 0.0
    totals: tuple[int, int] = (0, 0)


def outcomes(commands: Sequence[Command], whole: Outcome, limit: int) -> list[Outcome]:
    """Returns the outcomes of the commands from the outcome of the program that ran them.

    A command may end that program. Then only its output until then counts.
    """
    reports = [_Report() for _ in commands]
    data, at = whole.output, 0
    while (end := data.find(b"\n", at)) >= 0:
        words = data[at:end].split()
        if not all(word.isdigit() and len(word) < 20 for word in words) or len(words) not in (3, 6):
            break
        numbers = [int(word) for word in words]
        at = end + 1
        if numbers[0] >= len(reports):
            break
        one = reports[numbers[0]]
        if len(numbers) == 6:
            one.status, one.duration, one.totals = min(numbers[2], 255), numbers[3] / 1e6, (numbers[4], numbers[5])
        elif numbers[1] in (1, 2) and at + numbers[2] <= len(data):
            one.streams[numbers[1] - 1].extend(data[at : at + numbers[2]])
            at += numbers[2]
        else:
            break
    return [_outcome(each, report, whole, limit) for each, report in zip(commands, reports, strict=True)]


def _outcome(command: Command, report: _Report, whole: Outcome, limit: int) -> Outcome:
    ended = report.status is not None
    output, errors = (_whole(bytes(stream[:limit]), limit, ended) for stream in report.streams)
    return Outcome(
        output,
        report.status if ended else whole.exit_code,
        report.duration if ended else whole.duration,
        timed_out=whole.timed_out and not ended,
        blocked=whole.blocked and not ended,
        truncated=report.totals[0] > len(output),
        errors=errors if command.separate else None,
        errors_truncated=report.totals[1] > len(errors),
    )


def _whole(stream: bytes, limit: int, ended: bool) -> bytes:
    """Returns an output; if its end is missing, with a line that says so."""
    if ended or len(stream) < max(1, limit // 2):
        return stream
    return whole(stream, b"")[0] + b"\n[... what followed is not known ...]\n"
