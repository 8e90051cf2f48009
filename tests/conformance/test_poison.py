"""What a rollout does to its own shell or to PID 1, it does to nobody else: a false "unchanged" is found out."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from tests.conformance.helpers import eventually, is_running, pid_of, unique_sleep
from tests.conformance.injection import program
from tests.conformance.targets import TARGETS
from tvsnap import Cache
from tvsnap.host.native import INIT
from tvsnap.images import Image
from tvsnap.model.errors import MachineLacks
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.kernel.procfs import inner_pid

FORGED = "cat() { builtin echo forged; }; make() { builtin echo forged; }"
PATCH = """
import os
shell = os.getppid()
for line in open(f"/proc/{shell}/maps"):
    where, rights, *_, path = line.split(maxsplit=5)
    if path.strip().endswith("/bash") and rights == "r--p":
        start, end = (int(number, 16) for number in where.split("-"))
        with open(f"/proc/{shell}/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            found = memory.read(end - start).find(b": command not found")
            if found >= 0:
                memory.seek(start + found)
                memory.write(b": command is forged")
"""
LIARS = {
    "report": f'__tvsnap_report="unset -f cat make; $__tvsnap_report; {FORGED}"',
    "program": "python3 -c 'exec(open(\"/tmp/patch\").read())'",
}
"""Commands after which the shell says that nothing has changed, and lies."""
ORPHAN = "(p=$(sh -c 'sleep 7 > /tmp/o & echo $!'); ps -o ppid= -p $p; kill $p) | tr -d ' '"
MADE_TO_CALL = {
    "securebits": ("process.call(157, 28, 3)", "(touch /tmp/o; chown 5:5 /tmp/o; stat -c %u /tmp/o)", "5\n"),
    "dumpable": ("process.call(157, 4, 0)", "(readlink /proc/$$/fd/0)", "/dev/pts/0\n"),
    "orphans": ("process.call(157, 36, 1)", ORPHAN, "1\n"),
}
"""What a liar has the shell do, without a trace in its memory; a call that shows it, and what that shows otherwise."""
LOOK = "cat /etc/hostname; type cat; no-such-command"


@pytest.fixture(params=["local", "docker"])
def backend(request: pytest.FixtureRequest) -> str:
    if TARGETS[request.param].engine:
        request.getfixturevalue("docker_engine")
    return str(request.param)


@pytest.fixture
def cache(backend: str, tvsnap_home: Path) -> Iterator[Cache]:
    try:
        cache = Cache(tvsnap_home, backend=backend)
    except MachineLacks as lack:
        pytest.skip(str(lack))
    with cache:
        yield cache


def rolled(cache: Cache, image: Image, salt: str = "") -> Rollout:
    return cache.rollout(image, salt=salt or f"poison {time.time_ns()}")


def bash(rollout: Rollout, command: str) -> str:
    return rollout.call("bash", {"command": command}, 60).output


@pytest.mark.parametrize("lie", LIARS.values(), ids=LIARS)
def test_a_lying_shell_is_believed_by_nobody(cache: Cache, terminal_image: Image, lie: str) -> None:
    with rolled(cache, terminal_image) as fresh:
        truth = bash(fresh, LOOK)
    salt = f"poison {time.time_ns()}"
    with cache.rollout(terminal_image, salt=salt) as liar:
        prepare(liar)
        bash(liar, lie)
        for number in range(3):
            bash(liar, f"{LOOK} # {number}")
    for number in range(5):  # some of these the liar has asked
        with rolled(cache, terminal_image, salt) as victim:
            prepare(victim)
            assert bash(victim, f"{LOOK} # {number}") == truth
            assert bash(victim, f"cd /usr; {LOOK}") == truth
            assert bash(victim, LOOK) == truth


@pytest.mark.parametrize(("action", "look", "truth"), MADE_TO_CALL.values(), ids=MADE_TO_CALL)
def test_what_a_shell_was_made_to_do_reaches_nobody(
    cache: Cache, terminal_image: Image, action: str, look: str, truth: str
) -> None:
    salt = f"poison {time.time_ns()}"

    def begun() -> Rollout:
        rollout = cache.rollout(terminal_image, salt=salt)
        rollout.call("write_file", {"path": "/tmp/inject.py", "content": program(action)}, 60)
        return rollout

    with begun() as liar:
        assert bash(liar, "python3 /tmp/inject.py") == "done\n"
        bash(liar, look)
    for number in range(2):
        with begun() as victim:
            assert bash(victim, look) == truth
            assert bash(victim, f": {number}; {look}") == truth


def test_a_lying_pid_1_is_believed_by_nobody(cache: Cache, terminal_image: Image) -> None:
    """It is patched while a call is made, and from then on no command has any output."""
    salt = f"poison {time.time_ns()}"
    with cache.rollout(terminal_image, salt=salt) as liar:
        assert bash(liar, "echo first") == "first\n"
        init = pid_1_of(liar)
        marker = unique_sleep()
        with ThreadPoolExecutor(1) as threads:
            call = threads.submit(liar.call, "exec", {"command": marker}, 600)
            eventually(lambda: is_running(marker))
            silence(init)
            os.kill(cast("int", pid_of(marker)), signal.SIGKILL)
            call.result()
        assert bash(liar, "echo second") == ""
        assert bash(liar, "echo third") == ""
    for command in ("second", "third", "fourth"):
        with rolled(cache, terminal_image, salt) as victim:
            assert bash(victim, f"echo {command}") == f"{command}\n"


def prepare(rollout: Rollout) -> None:
    rollout.call("write_file", {"path": "/tmp/patch", "content": PATCH}, 60)


def pid_1_of(rollout: Rollout) -> int:
    """Returns the PID 1 of a rollout's sandbox as this machine sees it."""
    sandbox = rollout.sandbox()
    found = getattr(sandbox, "init", 0) or getattr(sandbox, "_init", 0)
    assert inner_pid(found) == 1
    return int(found)


def silence(init: int) -> None:
    """Has PID 1 drop what commands print."""
    listed = subprocess.run(["nm", str(INIT)], capture_output=True, text=True, check=True).stdout
    (address,) = (int(line.split()[0], 16) for line in listed.splitlines() if line.endswith(" capture_add"))
    with open(f"/proc/{init}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(b"\xc3")  # ret
