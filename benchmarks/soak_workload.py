"""What the soak's rollouts do: generated from a seed, so that each five hundred of them are like any others.

Tasks come and go as in training: each has one usual way and turnings off it, is tried for a while by many rollouts,
and is never seen again. So the part of the calls that are answered is the same early and late.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

BLOCK = 100  # rollouts, among which each ending, and the number of unique ways, has its exact share
NEW_TASKS = 4  # in each block
LIVE_TASKS = 8  # that are tried at any time
STEPS = 6
TURN = 0.05  # the part of the steps at which a rollout leaves the usual way
PERIOD = 5  # blocks, after which all comes again with other words: what is compared is of one kind
UNIQUE = 20  # rollouts of a block that go on alone from some step on

Ending = Literal["closed", "dropped", "cancelled", "graded", "forked", "repeated"]
ENDINGS: Mapping[Ending, int] = {"closed": 64, "dropped": 6, "cancelled": 8, "graded": 8, "forked": 7, "repeated": 7}
"""How rollouts of a block end: by being closed, or not; with its caller gone in the middle of a call; with a grader in
its own sandbox, or in a fork; with recorded calls made once more."""


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call.

    Attributes:
        name, arguments: the call.
        timeout: seconds.
        expected: what its output must hold.
    """

    name: str
    arguments: Mapping[str, Any]
    timeout: float = 120.0
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """One rollout.

    Attributes:
        task, salt: of the rollout.
        steps: its calls.
        ending: what happens after them.
        word: that no other rollout uses.
    """

    task: str
    salt: str | None
    steps: Sequence[Step]
    ending: Ending
    word: str


@dataclass(frozen=True, slots=True)
class Kind:
    """What a step does; `{w}` in its texts is the word that tells the ways of a task apart.

    Attributes:
        name: the tool.
        arguments: its arguments.
        expected: see `Step`.
        timeout: seconds.
    """

    name: str
    arguments: Mapping[str, Any]
    expected: str = ""
    timeout: float = field(default=120.0, kw_only=True)

    def step(self, word: str) -> Step:
        """Returns the step with a word filled in."""
        arguments = {
            name: value.replace("{w}", word) if isinstance(value, str) else value
            for name, value in self.arguments.items()
        }
        return Step(self.name, arguments, self.timeout, self.expected.replace("{w}", word))


def _bash(command: str, expected: str = "", *, timeout: float = 120.0) -> Kind:
    return Kind("bash", {"command": command}, expected, timeout=timeout)


# As many as a block's new tasks have steps: each block brings each of them once.
KINDS = (
    _bash("mkdir -p work; cd work; echo {w} > {w}.txt; cat {w}.txt", "{w}"),
    _bash("echo more {w} >> notes; tail -n 1 notes", "more {w}"),
    _bash("export name={w}; f() { echo $name $1; }; cd /tmp; f called", "{w} called"),
    _bash("set -- {w} b c; trap 'true' USR1; alias g='echo {w}'; echo $# $1", "3 {w}"),
    _bash("sleep 1000 & echo {w} > began; cat began", "{w}"),
    _bash("(sleep 1000; echo late) > late-{w} 2>&1 & ls late-{w}*", "late-{w}"),
    _bash("""python3 -c 'open("{w}.data", "w").write("{w}" * 50000)'; wc -c < {w}.data"""),
    _bash("""python3 -c 'import json; print(json.dumps({"word": "{w}", "sum": sum(range(1000))}))'""", '"{w}"'),
    _bash("ls -la / /app /tmp > listed; wc -l < listed; echo {w}", "{w}"),
    _bash("find /etc -name '*.conf' | sort | head; echo {w}", "{w}"),
    _bash("no-such-program-{w}", "no-such-program-{w}"),
    _bash("echo {w}; (exit 3)", "{w}"),
    _bash("cat /nowhere-{w}; false", "/nowhere-{w}"),
    _bash("seq 1 60000 | sed 's/$/ {w}/'", "60000 {w}"),
    _bash("echo {w}; cat", "{w}", timeout=0.3),  # reads the terminal, and waits until its timeout
    _bash("python3 -c 'x = bytes(1) * (1 << 30); print(len(x))'; echo after {w}", "after {w}"),  # more than it may have
    _bash("for i in $(seq 1 20); do sleep 1000 & done; echo crowd {w}", "crowd {w}"),
    _bash("echo {w} > kept; kill -9 $$"),
    Kind("write_file", {"path": "written/{w}.txt", "content": "first\n{w}\n"}, "{w}"),
    Kind("read_file", {"path": "/etc/passwd"}, "root:"),
    Kind("read_file", {"path": "/nowhere/{w}"}, "/nowhere/{w}"),
    Kind("exec", {"command": "id -un; echo {w} > /tmp/by-{w}; cat /tmp/by-{w}", "user": "nobody"}, "{w}"),
    Kind("keys", {"keys": "echo {w}\n", "wait": 0.3}),
    Kind("screen", {}),
)
_WORKING = Kind("bash", {"command": ": {w}; while :; do :; done"}, timeout=0.2)
"""Timed out while it was working: its rollout goes on in a private branch."""
LAST = Kind("bash", {"command": "sleep 0.3; echo {w}"}, "{w}")
"""Under way when its caller goes."""


def script(number: int, seed: int = 0) -> Script:
    """Returns what rollout `number`, from 0 on, does."""
    block, place = divmod(number, BLOCK)
    drawn = random.Random(f"{seed} block {block % PERIOD}")
    endings: list[Ending] = [ending for ending, count in ENDINGS.items() for _ in range(count)]
    drawn.shuffle(endings)
    loners = set(drawn.sample(range(BLOCK), UNIQUE))
    own = random.Random(f"{seed} rollout {number % (PERIOD * BLOCK)}")
    newest = number * NEW_TASKS // BLOCK
    task = newest - own.randrange(LIVE_TASKS)
    alone_from = own.randrange(STEPS) if place in loners else STEPS
    word, steps = f"t{task}", []
    for index, kind in enumerate(_usual_way(task, seed)):
        if index == alone_from:
            word = f"r{number}"
            if own.random() < 0.1:
                kind = _WORKING
        elif own.random() < TURN:
            word += "x"
        steps.append(kind.step(word))
    return Script(f"task-{task}", "other" if task % 3 == 0 else None, steps, endings[place], f"r{number}")


def _usual_way(task: int, seed: int) -> Sequence[Kind]:
    """Returns the steps of a task; the tasks that are new in one block share out the kinds among them."""
    group, place = divmod(task, NEW_TASKS)
    kinds = list(KINDS)
    random.Random(f"{seed} tasks {group % PERIOD}").shuffle(kinds)
    return kinds[place * STEPS : (place + 1) * STEPS]
