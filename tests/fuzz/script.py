"""Writes a case as a small Python program that shows what is wrong, for who is to mend it."""

from __future__ import annotations

import pprint
from collections.abc import Iterator

from tests.fuzz.cases import TIMEOUT, Action, Case, Violation

PROGRAM = '''\
"""{kind}: {topic} ({name}, {world})

call      {step}
expected  {expected}
seen      {seen}
          {how}

Run it from the repository's root: python {file}
It prints what each rollout sees, and ends with status 1 while anything is wrong.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, os.getcwd())

from tests.fuzz.cases import Seen, Step
from tests.fuzz.compare import agree, fact_value
from tests.fuzz.worlds import data_directory, open_world
from tvsnap.model.calls import ToolCall
from tvsnap.environments import environment
from tvsnap.model.errors import InfrastructureError
from tvsnap.upkeep.maintenance import plan_gc, run_gc

# Number: tool, arguments, timeout, seconds of thinking before, its output is free, the fact that it shows, how that
# must agree with what was shown before.
CALLS = {calls}
WORLD = open_world({world!r})
FRESH, WRONG = {{}}, []


def fresh(*numbers):
    """Makes the calls in one fresh sandbox, without the cache."""
    with WORLD.open(HOME, {{}}, use_cache=False) as cache, cache.rollout(WORLD.image) as rollout:
        for index, number in enumerate(numbers):
            FRESH[numbers[: index + 1]] = make(rollout.call, number).output


def make(call, number):
    tool, arguments, timeout, pause, *_ = CALLS[number]
    time.sleep(pause)
    return call(tool, arguments, timeout)


def play(call, numbers, past=((), {{}})):
    """Makes calls where `past` were made; returns that, and the facts that were shown."""
    (before, facts), facts = past, dict(past[1])
    for number in numbers:
        try:
            result, before = make(call, number), (*before, number)
        except InfrastructureError as error:  # the promise allows it
            print("  unreachable:", error)
            break
        *_, free, fact, form = CALLS[number]
        expected, output = FRESH[before], result.output
        print(" ", number, getattr(result, "source", ""), repr(output[:200]))
        if not free and output != expected:
            WRONG.append(number)
            print("!   fresh:", repr(expected[:200]))
        if fact:
            was, now = facts.get(fact), fact_value(Step("", {{}}, form=form), Seen(output, result.exit_code))
            if was is not None and not agree(form, was, now):
                WRONG.append(number)
                print("!   shown before:", was[:200])
            facts[fact] = now
    return before, facts


def look(cache, state, numbers, past):
    """Asks in a sandbox made of a state, as graders do."""
    tools, limits = environment(WORLD.image.environment), cache.limits_for(WORLD.image)
    try:
        with cache.materialise(state) as sandbox:
            play(lambda tool, *rest: tools.execute(sandbox, ToolCall(tool, rest[0]), rest[1], limits), numbers, past)
    except InfrastructureError as error:  # the promise allows it
        print("  unreachable:", error)


def roll(cache, numbers):
    """Makes a rollout."""
    with cache.rollout(WORLD.image) as rollout:
        return play(rollout.call, numbers)


def another_process(options, numbers, kill_after=None):
    """Makes a rollout in another process, which may be killed so many seconds after it began."""
    process = subprocess.Popen([sys.executable, __file__, "--play"], stdin=subprocess.PIPE, text=True)
    json.dump([str(HOME), options, numbers, list(FRESH.items())], process.stdin)
    process.stdin.close()
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    if process.wait() and kill_after is None:
        WRONG.append("another process")


if "--play" in sys.argv:
    home, options, numbers, known = json.load(sys.stdin)
    FRESH.update((tuple(sequence), output) for sequence, output in known)
    with WORLD.open(Path(home), options) as cache:
        roll(cache, numbers)
    sys.exit(1 if WRONG else 0)

with data_directory() as HOME:
{body}
sys.exit(1 if WRONG else 0)
'''


def script(case: Case, violation: Violation, file: str) -> str:
    """Returns the program.

    Args:
        case: what to do.
        violation: what it shows.
        file: the program's name.
    """
    calls = {
        number: (
            step.name,
            dict(step.arguments),
            step.timeout or TIMEOUT,
            step.pause,
            step.free,
            step.shows,
            step.form,
        )
        for number, step in sorted(case.steps.items())
    }
    fields = {name: _plain(getattr(violation, name)) for name in ("kind", "topic", "step", "expected", "seen", "how")}
    return PROGRAM.format(
        name=case.name,
        world=case.world,
        file=file,
        calls=pprint.pformat(calls, width=118, sort_dicts=False),
        body="\n".join(f"    {line}" for line in _body(case)),
        **fields,
    )


def _plain(text: str) -> str:
    return text.replace("\\", "/").replace('"""', "'''")[:400]


def _body(case: Case) -> Iterator[str]:
    whole: dict[int, tuple[int, ...]] = {}
    for index, action in enumerate(case.actions):
        before = whole.get(action.of, ()) if action.kind in ("resume", "continue", "revisit") else ()
        for play in action.plays or ((),):
            whole.setdefault(index, (*before, *play))
            asked = (*before, *play, *action.look)
            if asked:
                yield f"fresh({', '.join(map(str, asked))})"
    yield f"options = {dict(case.options)!r}"
    yield "cache = WORLD.open(HOME, options)"
    for index, action in enumerate(case.actions):
        yield f'print("{index}: {action.kind}")'
        yield from _act(index, action)
    yield "cache.close()"


def _act(index: int, action: Action) -> Iterator[str]:
    plays = [list(play) for play in action.plays]
    looks = f"look(cache, state_{index}, {list(action.look)}, past_{index})"
    if action.kind == "play":
        yield f"rollout_{index} = cache.rollout(WORLD.image)"
        yield f"past_{index} = play(rollout_{index}.call, {plays[0]})"
        yield f"state_{index} = rollout_{index}.state"
        if not action.hold:
            yield f"rollout_{index}.close()"
    elif action.kind in ("resume", "continue"):
        begun = f"cache.resume(state_{action.of})" if action.kind == "resume" else f"rollout_{action.of}"
        yield f"rollout_{index} = {begun}"
        yield f"past_{index} = play(rollout_{index}.call, {plays[0]}, past_{action.of})"
        yield f"state_{index} = rollout_{index}.state"
    elif action.kind == "revisit":
        yield f"state_{index}, past_{index} = state_{action.of}, past_{action.of}"
    elif action.kind == "together":
        yield f"with ThreadPoolExecutor({len(plays)}) as threads:"
        yield f"    list(threads.map(lambda numbers: roll(cache, numbers), {plays}))"
    elif action.kind == "processes":
        yield f"with ThreadPoolExecutor({len(plays)}) as threads:"
        yield f"    list(threads.map(lambda numbers: another_process(options, numbers), {plays}))"
    elif action.kind == "kill":
        yield f"another_process(options, {plays[0]}, kill_after={1 + 0.1 * action.at + action.delay:.2f})"
    elif action.kind == "evict":
        yield "run_gc(HOME, cache.graph, cache.backend, plan_gc(HOME, cache.graph, cache.backend, keep_bytes=0))"
    elif action.kind == "reopen":
        yield f"cache.close(); options = {dict(action.options)!r}; cache = WORLD.open(HOME, options)"
    if action.look:
        yield looks
