"""Time: states in which something runs by itself, and facts that fall due.

All waits leave most of a second to either side of what is due, so that a slow machine sees the same as a quick one.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.fuzz.cases import COUNT, DUE, Motif, Step, bash, execute, read

LONG = 2.2
"""Seconds of thinking after which it has, for sure."""


def _motif(topic: str, steps: list[Step], views: list[Step]) -> Motif:
    """Returns steps after which the views are asked at once and after a long pause."""
    steps = [replace(step, topic=topic, begins=index == 0) for index, step in enumerate(steps)]
    late = [replace(view, topic=topic, pause=LONG) for view in views]
    return Motif(topic, tuple(steps), tuple(late))


def _polled(chance: Random, topic: str, first: list[Step], polls: list[Step]) -> Motif:
    """Returns a history that polls at once and later; the same question, or another."""
    poll = chance.choice(polls)
    again = replace(chance.choice([poll, poll, *polls]), pause=LONG)
    steps = chance.choice([[*first, poll, again], [*first, poll], [*first, replace(poll, pause=LONG)], first])
    return _motif(topic, steps, polls)


def job(chance: Random, d: str) -> Motif:
    """A job writes a file after a while."""
    begin = bash(f"mkdir -p {d}; (sleep {DUE}; echo done > {d}/f) > /dev/null 2>&1 &", free="pid")
    polls = [
        bash(f"cat {d}/f"),
        read(f"{d}/f"),
        execute(f"cat {d}/f"),
        bash(f"test -e {d}/f; echo $?"),
        bash(f"pgrep -fx 'sleep {DUE}' | wc -l"),
        bash(f"ls {d}"),
    ]
    return _polled(chance, "B job", [begin], polls)


def server(chance: Random, d: str) -> Motif:
    """A server is up only after a while."""
    port = chance.randint(8000, 8999)
    serve = f"python3 -m http.server {port} --directory {d}"
    begin = bash(f"mkdir -p {d}; echo page > {d}/index.html; (sleep 0.4; exec {serve}) > /dev/null 2>&1 &", free="pid")
    polls = [
        bash(f"curl -s http://localhost:{port}/; echo $?"),
        execute(f"curl -s -o /dev/null http://localhost:{port}/; echo $?"),
        bash(f"curl -s http://127.0.0.1:{port}/index.html; true"),
    ]
    return _polled(chance, "B server", [begin], polls)


def saved_page(chance: Random, d: str) -> Motif:
    """What a silent call saved depends on how long it came after the server's start."""
    port = chance.randint(9000, 9999)
    serve = f"python3 -m http.server {port} --directory {d}"
    begin = bash(f"mkdir -p {d}; echo page > {d}/index.html; (sleep 0.4; exec {serve}) > /dev/null 2>&1 &", free="pid")
    save = bash(f"curl -s http://localhost:{port}/ > {d}/saved; true", pause=LONG)
    return _motif(
        "B saved page", [begin, save], [bash(f"cat {d}/saved"), read(f"{d}/saved"), execute(f"wc -c < {d}/saved")]
    )


def typed(chance: Random, d: str) -> Motif:
    """A program in the terminal prints after a while."""
    steps = [Step("keys", {"keys": f"clear; sleep {DUE}; echo finished\n", "wait": 0.2})]
    screen = Step("screen", {})
    late = replace(screen, pause=LONG)
    return _motif("B screen", [*steps, *chance.choice([[screen, late], [screen], [late], []])], [screen])


def signal(chance: Random, d: str) -> Motif:
    """The shell itself is sent a signal after a while."""
    begin = bash(
        f"mkdir -p {d}; trap 'echo caught >> {d}/f' USR1; (sleep {DUE}; kill -USR1 $$) > /dev/null 2>&1 &", free="pid"
    )
    return _motif("B signal", [begin], [bash(f"cat {d}/f"), execute(f"cat {d}/f"), read(f"{d}/f")])


def ending(chance: Random, d: str) -> Motif:
    """A job ends after a while."""
    begin = bash(f"sleep {DUE} > /dev/null 2>&1 & ended_{d[-1]}=$!", free="pid")
    polls = [
        bash(f"kill -0 $ended_{d[-1]} 2> /dev/null; echo $?"),
        bash("jobs -r | wc -l"),
        bash(f"test -d /proc/$ended_{d[-1]}; echo $?"),
    ]
    return _polled(chance, "B ending", [begin], polls)


def counting(chance: Random, d: str) -> Motif:
    """A job goes on counting: what was seen never comes back."""
    begin = bash(f"mkdir -p {d}; (while sleep 0.05; do echo x >> {d}/f; done) > /dev/null 2>&1 &", free="pid")
    fact = COUNT + d
    begin = replace(begin, sets=(fact,), topic="B counting")
    views = [
        bash(f"cat {d}/f 2> /dev/null | wc -l", shows=fact, form="grows", free="clock", pause=0.4),
        execute(f"cat {d}/f 2> /dev/null | wc -l", shows=fact, form="grows", free="clock", pause=0.2),
        bash(f"grep -c x {d}/f", shows=fact, form="grows", free="clock", pause=0.3),
    ]
    views = [replace(view, topic="B counting") for view in views]
    return Motif("B counting", (begin, *chance.sample(views, 2)), tuple(views))


def chain(chance: Random, d: str) -> Motif:
    """A build: one thing after the other."""
    build = f"sleep 0.5; echo one > {d}/log; sleep 0.5; echo two >> {d}/log; touch {d}/built"
    begin = bash(f"mkdir -p {d}; nohup sh -c '{build}' > /dev/null 2>&1 &", free="pid")
    polls = [bash(f"ls {d}/built 2>&1"), bash(f"cat {d}/log"), read(f"{d}/log"), execute(f"tail -n 1 {d}/log")]
    return _polled(chance, "B build", [begin], polls)


SPECIAL = (job, server, saved_page, typed, signal, ending, counting, chain)
