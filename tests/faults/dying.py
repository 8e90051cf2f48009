"""A process that works on a data directory and dies at a chosen step of its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tvsnap import Cache
from tvsnap.images import Image

REPOSITORY = Path(__file__).parents[2]
CALLS = ("cd /tmp; echo one > f; x=1", "echo two >> f; x=2; sleep 1000 &", "cat f; echo $x; jobs -r | wc -l", "ls /")
EXPECTED = ["", "", "one\ntwo\n2\n1\n"]

PRELUDE = """
import inspect, itertools, os, signal, sys
from tvsnap import Cache
{imports}
from tvsnap.graph import Graph

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name, nth=1):
    wrap(owner, name, nth, True)

def after(owner, name, nth=1):
    wrap(owner, name, nth, False)

def wrap(owner, name, nth, first):
    real, numbers = getattr(owner, name), itertools.count(1)
    def call(*arguments, **named):
        fatal = next(numbers) == nth  # other threads may be in it, too
        if fatal and first:
            die()
        result = real(*arguments, **named)
        if fatal:
            die()
        return result
    static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(call) if static else call)

{fault}
"""
ROLLOUT = """
with Cache({home!r}, policy="eager", backend={backend!r}) as cache, cache.rollout({image!r}) as rollout:
    for command in {calls!r}:
        rollout.call({tool!r}, {{{argument!r}: command}})
print("survived")
"""
VERB = """
from cli.main import make_app
make_app()({arguments!r})
"""


def program(
    home: Path,
    image: Image,
    fault: str = "",
    *,
    backend: str,
    imports: str,
    calls: tuple[str, ...] = CALLS,
    tool: tuple[str, str] = ("bash", "command"),
) -> str:
    """Returns the text of a program that makes a rollout.

    Args:
        home: the data directory.
        image: what its rollout starts from.
        fault: what kills it: `before(OWNER, NAME, NTH)` or `after(...)` a call of a method or function.
        backend: the backend's name.
        imports: what `fault` speaks of.
        calls: commands that it runs.
        tool: what runs them: the tool's name, and that of the argument that takes a command.
    """
    return (PRELUDE + ROLLOUT).format(
        fault=fault,
        home=str(home),
        image=image.name,
        calls=calls,
        backend=backend,
        imports=imports,
        tool=tool[0],
        argument=tool[1],
    )


def program_of(work: str, fault: str = "", *, imports: str) -> str:
    """Returns the text of a program that does any other work.

    Args:
        work: its statements.
        fault, imports: see `program`.
    """
    return PRELUDE.format(fault=fault, imports=imports) + work


def verb(home: Path, *arguments: str) -> str:
    """Returns the statements that run a verb of the command line, for `program_of`."""
    return VERB.format(arguments=[*arguments, "--home", str(home)])


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    """Runs it to whatever end it comes to."""
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=120,
        check=False,
    )


def see_it_die(text: str) -> None:
    """Runs a program that must not survive its fault."""
    died = run_program(text)
    assert died.returncode == -signal.SIGKILL, (died.returncode, died.stdout, died.stderr)


def outputs(cache: Cache, image: Image) -> list[str]:
    """Makes the same calls in a cache; returns what they print."""
    with cache.rollout(image.name) as rollout:
        return [rollout.call("bash", {"command": command}).output for command in CALLS]
