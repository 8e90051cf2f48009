"""Runs one program: in a sandbox that is never snapshotted, and in one that is snapshotted and forked twice."""

from __future__ import annotations

import difflib
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from tests.zoo.table import DIFFERS, EQUAL, FAILED, REFUSED, Program, Step
from tvsnap import Cache, InfrastructureError, Rollout
from tvsnap.errors import StateLost

SHOWN_WITHIN = 60.0
"""Seconds within which a screen must show what it is to show."""
BRANCH = "/var/tmp/branch"
"""A file in which each branch has another text, so that no call of one is answered by that of another."""


@dataclass(frozen=True)
class Seen:
    """What a call returned, without what legitimately differs."""

    step: Step
    output: str
    exit_code: int | None
    timed_out: bool

    @property
    def told(self) -> tuple[str, int | None, bool]:
        return self.output, self.exit_code, self.timed_out

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and not self.timed_out and self.step.shows in self.output


@dataclass(frozen=True)
class Outcome:
    """What a program came to.

    Attributes:
        result: one of `RESULTS`, perhaps with a colon and the reason.
        processes: how many the snapshot holds beside PID 1 and the idle shell.
        snapshot: bytes of the snapshot on the disk; None where there is none.
        report: more about a difference or a failure, in lines.
    """

    result: str
    processes: int = 0
    snapshot: int | None = None
    report: str = ""


class ProgramFailed(Exception):
    """A call did not do what it is to do in a sandbox that was never snapshotted: the table is wrong, or the image."""


def run(program: Program, image: str, home: Path) -> Outcome:
    """Runs a program as the table says.

    Args:
        program: the program.
        image: the name of the image that it is in.
        home: a data directory with that image.
    """
    with Cache(home, use_cache=False, same_ids=True) as cache:
        try:
            plain = _never_snapshotted(program, cache, image)
        except ProgramFailed as failure:
            reason, _, report = str(failure).partition("\n")
            return Outcome(f"{FAILED}: {reason}", report=report)
    with Cache(home, same_ids=True) as cache:
        found = _snapshotted(program, cache, image, plain)
    if not found.result.startswith(DIFFERS):
        return found
    # Would it have differed without a snapshot as well? Then the table does not say all that legitimately differs.
    with Cache(home, use_cache=False, same_ids=True) as cache:
        again = _never_snapshotted(program, cache, image)
    if told := _difference(plain, again):
        return Outcome(f"{FAILED}: it does not do the same each time: {told[0]}", report=told[1])
    return found


def _never_snapshotted(program: Program, cache: Cache, image: str) -> list[Seen]:
    with cache.rollout(image, task=program.name) as rollout:
        _prepare(rollout, program)
        seen = _play(rollout, program, program.start, strict=True)
        return seen + _branch(rollout, program, "never snapshotted", strict=True)


def _snapshotted(program: Program, cache: Cache, image: str, plain: Sequence[Seen]) -> Outcome:
    with cache.rollout(image, task=program.name, salt=secrets.token_hex(8)) as rollout:
        _prepare(rollout, program)
        seen = _play(rollout, program, program.start)
        refusal, forks = "", list[Rollout]()
        try:
            forks = list(rollout.fork(2))
        except (InfrastructureError, StateLost) as error:
            refusal = cache.refusal(rollout.state) or str(error)
        snapshot = cache.graph.snapshot(rollout.state, cache.backend.name)
        kept = Outcome(EQUAL) if snapshot is None else Outcome(EQUAL, len(snapshot.processes), snapshot.size)
        branches = {"the first fork": forks[:1], "the second fork": forks[1:], "where it went on": [rollout]}
        for title, rollouts in branches.items():
            for each in rollouts:
                try:
                    later = _branch(each, program, title)
                except InfrastructureError as error:
                    return replace(kept, result=f"{DIFFERS}: {title} could not be made: {error}")
                finally:
                    if each is not rollout:
                        each.close()
                if told := _difference(plain, seen + later):
                    return replace(kept, result=f"{DIFFERS}: {title}: {told[0]}", report=told[1])
    if refusal:
        return Outcome(f"{REFUSED}: {refusal}")
    return kept


def _prepare(rollout: Rollout, program: Program) -> None:
    for path, content in program.files.items():
        rollout.call("write_file", {"path": path, "content": content})


def _branch(rollout: Rollout, program: Program, name: str, *, strict: bool = False) -> list[Seen]:
    rollout.call("write_file", {"path": BRANCH, "content": name})
    return _play(rollout, program, program.after, strict=strict)


def _play(rollout: Rollout, program: Program, steps: Sequence[Step], *, strict: bool = False) -> list[Seen]:
    played = []
    for step in steps:
        result = rollout.call(step.tool, step.arguments, step.timeout)
        output = result.output
        if step.tool in ("keys", "screen"):
            output = _settled_screen(rollout, output, step.shows)
        seen = Seen(step, _without(output, program.ignore), result.exit_code, result.timed_out)
        if strict and not seen.succeeded:
            how = "timed out" if seen.timed_out else f"exit status {seen.exit_code}"
            raise ProgramFailed(f"{_brief(str(step))} ({how})\n{output[-2000:]}")
        played.append(seen)
    return played


def _settled_screen(rollout: Rollout, output: str, shows: str) -> str:
    """Returns the screen once it shows a text and has not changed for a moment."""
    end = time.monotonic() + SHOWN_WITHIN
    before = None
    while (shows not in output or output != before) and time.monotonic() < end:
        time.sleep(0.15)
        before, output = output, rollout.call("screen", {}).output
    return output


def _without(output: str, ignored: Sequence[str]) -> str:
    for pattern in ignored:
        output = re.sub(pattern, "*", output, flags=re.MULTILINE)
    return output


def _difference(expected: Sequence[Seen], found: Sequence[Seen]) -> tuple[str, str] | None:
    """Returns the first call that returned something else, and how: in a line, and in several; None if all is equal."""
    for one, other in zip_longest(expected, found):
        if one.told == other.told:
            continue
        lines = list(
            difflib.unified_diff(one.output.splitlines(), other.output.splitlines(), "never snapshotted", "here", n=1)
        )
        if one.told[1:] != other.told[1:]:
            lines.append(f"exit status {one.exit_code} and {other.exit_code}, timed out {other.timed_out}")
        return _brief(str(one.step)), "\n".join(lines)
    return None


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:77]}..."
