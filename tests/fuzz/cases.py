"""What the fuzzer works on: steps of histories, and cases, which say what rollouts make of them. All of it is JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

ActionKind = Literal["play", "together", "processes", "kill", "evict", "reopen", "resume", "continue", "revisit"]
SIDE_BY_SIDE: tuple[ActionKind, ...] = ("together", "processes")
TIMEOUT = 20.0
"""Seconds, for calls that name none."""

DUE = 1.0
"""Seconds after which what was begun has happened."""
COUNT = "count "
"""How facts begin of what jobs count; the directory in which they do follows."""
EARLY, LATE = 0.35, 1.7
"""Seconds before which nothing of it has, and after which all of it has, also on a slow machine."""

FREE = {
    "chance": "values that programs draw by chance",
    "clock": "the time of day, and what programs make of it",
    "device": "device numbers",
    "made": "inode numbers of what calls make",
}
"""What a rollout may see other than another execution of its calls; within a rollout, it must stay what it was."""

IDS = {
    "pid": "process ids",
    "inode": "inode numbers of the image's files",
    "order": "the order in which directories list their entries",
}
"""What depends on how a sandbox was made: two executions of a history must agree, unless `--free` names it."""


@dataclass(frozen=True)
class Step:
    """One call of a history.

    Attributes:
        name, arguments: the call.
        timeout: seconds; None for `TIMEOUT`.
        pause: seconds that the agent thinks before the call.
        topic: what the call is there to try.
        free: why its output may differ from another execution's: a key of `FREE` or `IDS`; empty if it must not.
        shows: the fact that its output shows; until a step of `sets` comes, all that show it must agree.
        form: how facts agree: `text`, `rows` (the values in a JSON answer), `grows` (a number, never less than before),
            `distinct` (never the same twice).
        sets: facts that it makes or changes.
        lines: its output is compared line by line, in any order: it is a probe of a whole state.
        begins: it begins what falls due by itself, `DUE` seconds later: what is shown then depends on when it is asked.
    """

    name: str
    arguments: Mapping[str, Any]
    timeout: float | None = None
    pause: float = 0.0
    topic: str = ""
    free: str = ""
    shows: str = ""
    form: str = "text"
    sets: tuple[str, ...] = ()
    lines: bool = False
    begins: bool = False

    def __str__(self) -> str:
        text = (
            self.arguments.get("command") or self.arguments.get("query") or " ".join(map(str, self.arguments.values()))
        )
        paused = f"after {self.pause:g} s: " if self.pause else ""
        return f"{paused}{self.name} {text}"


def bash(command: str, **fields: Any) -> Step:
    """Returns a call in the persistent shell."""
    return Step("bash", {"command": command}, **fields)


def execute(command: str, **fields: Any) -> Step:
    """Returns a call in a fresh shell."""
    return Step("exec", {"command": command}, **fields)


def read(path: str, **fields: Any) -> Step:
    """Returns a call of `read_file`."""
    return Step("read_file", {"path": path}, **fields)


def sql(query: str, **fields: Any) -> Step:
    """Returns an SQL call."""
    return Step("sql", {"query": query}, **fields)


def failing(step: Step) -> Step:
    """Returns a view that fails where any command of its pipe does, so that an error is not taken for a value."""
    command = step.arguments.get("command", "")
    if " | " not in command:
        return step
    return replace(step, arguments={**step.arguments, "command": f"(set -o pipefail; {command})"})


@dataclass(frozen=True)
class Motif:
    """Steps that belong together, in order, and different ways to look at what they left.

    Attributes:
        topic: what it tries; the letters are those of the report's table.
        steps: in order; others may come in between.
        views: each may be asked at any time after the steps, any number of times.
    """

    topic: str
    steps: tuple[Step, ...]
    views: tuple[Step, ...]


@dataclass(frozen=True)
class Action:
    """One thing that is done with the data directory.

    Attributes:
        kind: `play` makes a rollout of plays[0]; `together` one of each in threads at once; `processes` in a process
            each; `kill` one in a process that is killed at call `at`, `delay` seconds after it began; `evict` drops all
            snapshots; `reopen` opens the directory anew with `options`; `resume` begins a rollout where that of action
            `of` ended; `continue` goes on with that rollout itself (it was held); `revisit` asks `look` in its state.
        plays: numbers of steps, for each rollout.
        look: numbers of steps that are asked in a sandbox made of the rollout's last state (`Cache.materialise`).
        hold: the rollout stays open.
    """

    kind: ActionKind
    plays: tuple[tuple[int, ...], ...] = ()
    look: tuple[int, ...] = ()
    of: int = 0
    at: int = 0
    delay: float = 0.0
    hold: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A scenario: steps by number, and what is done with them over one data directory.

    Attributes:
        name: what makes it again: `SEED:NUMBER`.
        world: the name of a world.
        steps: all steps, by number.
        actions: in order.
        options: how the cache is opened at first; see `worlds.World.open`.
    """

    name: str
    world: str
    steps: Mapping[int, Step]
    actions: tuple[Action, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def topics(self) -> tuple[str, ...]:
        """What its steps try, those that are no mere filling."""
        return tuple(sorted({step.topic for number in self.used() if (step := self.steps[number]).topic}))

    def used(self) -> set[int]:
        """Returns the numbers of the steps that an action names."""
        return {number for action in self.actions for play in (*action.plays, action.look) for number in play}

    def without(self, numbers: Iterable[int]) -> Case:
        """Returns the case with steps left out of all rollouts."""
        gone = set(numbers)

        def kept(play: Sequence[int]) -> tuple[int, ...]:
            return tuple(number for number in play if number not in gone)

        actions = tuple(
            replace(action, plays=tuple(map(kept, action.plays)), look=kept(action.look)) for action in self.actions
        )
        return replace(self, actions=actions, steps={n: step for n, step in self.steps.items() if n not in gone})

    def steady(self) -> Case:
        """Returns the case with nothing in it that depends on moments: rollouts are made one after the other, the first
        of those that were to run side by side, and nothing is parked or made ahead.
        """

        def steadied(options: Mapping[str, Any]) -> dict[str, Any]:
            return {**options, "park": 0, "prefork": 0}

        def alone(action: Action) -> Action:
            if action.kind == "reopen":
                return replace(action, options=steadied(action.options))
            return replace(action, kind="play", plays=action.plays[:1]) if action.kind in SIDE_BY_SIDE else action

        return replace(self, options=steadied(self.options), actions=tuple(alone(action) for action in self.actions))

    def to_json(self) -> str:
        """Returns the case as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Returns the case that `to_json` wrote."""
        data = json.loads(text)
        steps = {int(n): Step(**{**step, "sets": tuple(step["sets"])}) for n, step in data["steps"].items()}
        actions = tuple(
            Action(**{**action, "plays": tuple(map(tuple, action["plays"])), "look": tuple(action["look"])})
            for action in data["actions"]
        )
        return cls(data["name"], data["world"], steps, actions, data["options"])


@dataclass(frozen=True)
class Seen:
    """What a call came to.

    Attributes:
        since: when it was made, the seconds since the beginning and the end of each call that began something.
        took: seconds until its answer came.
    """

    output: str
    exit_code: int | None
    timed_out: bool = False
    blocked: bool = False
    truncated: bool = False
    source: str = ""
    since: tuple[tuple[float, float], ...] = ()
    took: float = 0.0

    @property
    def cut_short(self) -> bool:
        """It timed out while it was working: a faster machine might have finished."""
        return self.timed_out and not self.blocked

    def value(self) -> tuple[str, int | None, bool]:
        """What an agent sees."""
        return self.output, self.exit_code, self.timed_out


@dataclass(frozen=True)
class Violation:
    """A breach of the promise.

    Attributes:
        kind: `other answer` (than a fresh execution's), `other past` (than the rollout was shown), `other state` (a
            sandbox made of its state holds something else), `error`, `hang`.
        topic: of the step that showed it.
        action: which action, by number.
        step: the call, in words.
        expected, seen: what it should have come to, and did.
        how: where each comes from.
    """

    kind: str
    topic: str
    action: int
    step: str
    expected: str
    seen: str
    how: str

    @property
    def signature(self) -> tuple[str, str]:
        """What two findings of the same defect have in common, most probably."""
        return self.kind, self.topic
