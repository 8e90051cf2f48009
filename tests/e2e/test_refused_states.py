"""States that cannot be checkpointed: the rollout goes on, later ones make theirs themselves, and people are told."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.helpers import eventually
from tests.fakes import inside
from tvsnap import Budget, Cache
from tvsnap.engine.claiming import patience
from tvsnap.host import attempts
from tvsnap.images import Image
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import InfrastructureError

TVSNAP = Path(sys.executable).with_name("tvsnap")

WATCHING = """
import ctypes, os, time
libc = ctypes.CDLL(None)
gone = os.open("/tmp/watched", os.O_RDWR | os.O_CREAT)
watch = libc.inotify_init()
libc.inotify_add_watch(watch, b"/tmp/watched", 2)
os.unlink("/tmp/watched")
open("/tmp/watching", "w").close()
os.read(watch, 4096)
open("/tmp/noticed", "w").write("noticed")
time.sleep(1000)
"""

# Name -> what leads to the state, what is asked there, what it answers, and what is said of the state.
STATES = {
    "a deleted file that is watched": (
        f"cat > /tmp/w.py <<'END'\n{WATCHING}\nEND\npython3 /tmp/w.py & until [ -e /tmp/watching ]; do sleep 0.1; done",
        "echo x > /proc/$!/fd/3; until [ -s /tmp/noticed ]; do sleep 0.1; done; cat /tmp/noticed",
        "noticed",
        "(python3 /tmp/w.py) watches files with inotify (descriptor 4): one was deleted, or no name of it was found",
    ),
    "an error that waits": (
        "exec 9<> /dev/udp/127.0.0.1/9; echo x >&9",
        "read -u 9 2>&1; echo $?",
        "Connection refused\n1\n",
        "has a socket with an error that waits to be read (descriptor 9)",
    ),
}

# CRIU dumps it, and cannot restore it: the deleted file that is open would have to lie where a file stands now.
NO_WAY_BACK = "cd /tmp; mkdir d; exec 9> d/f; rm -r d; echo instead > d"


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A fresh data directory with the terminal image."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    return tmp_path


def make(cache: Cache, image: Image, *commands: str) -> tuple[list[ToolResult], str]:
    """Makes a rollout; returns its results, and the state after its first call."""
    with cache.rollout(image.name) as rollout:
        results, states = [], []
        for command in commands:
            results.append(rollout.call("bash", {"command": command}, 60))
            states.append(rollout.state)
        return results, states[0]


def is_told(cache: Cache, state: str, reason: str) -> bool:
    return reason in str(cache.refusal(state))


@pytest.mark.parametrize("kind", STATES)
def test_refused_state(kind: str, home: Path, terminal_image: Image) -> None:
    reach, ask, answer, reason = STATES[kind]
    with Cache(home, policy="eager") as cache:
        # Each asks by a call of its own, which leads elsewhere: no sandbox is left standing there for the next.
        states = []
        for number in range(3):
            results, state = make(cache, terminal_image, reach, f"touch /tmp/asked.{number}; {ask}")
            # What could not be kept answers nothing: each makes the call itself, and is in a state of its own.
            assert [result.source for result in results] == ["executed", "executed"]
            assert results[1].output.endswith(answer), results
            eventually(partial(is_told, cache, state, reason))
            states.append(state)
        assert len(set(states)) == len(states)
        assert cache.stats().replayed == 0
        assert not [snapshot for snapshot in cache.graph.snapshots() if snapshot.state in states]
    assert_told(home, state, reason)


AT_ONCE = 5  # rollouts
UNTIL_ALL_HAVE_BEGUN = (
    "touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.05; done; exec 9<> /dev/udp/127.0.0.1/9; echo x >&9"
)


def let_go_on(cache: Cache) -> bool:
    """Ends the calls of `UNTIL_ALL_HAVE_BEGUN` once all rollouts are executing one."""
    found = [Path(f"/proc/{sandbox.init}/root/tmp") for sandbox in inside.sandboxes(cache.pool)]
    # The sandboxes of rollouts that have ended may not be gone yet.
    executing = [tmp for tmp in found if (tmp / "begun").exists() and not (tmp / "go").exists()]
    if len(executing) == AT_ONCE:
        for tmp in executing:
            owner = (tmp / "begun").stat()
            (tmp / "go").touch()
            os.chown(tmp / "go", owner.st_uid, owner.st_gid)
    return len(executing) == AT_ONCE


def is_told_or_private(cache: Cache, state: str) -> bool:
    """Who ends while the first one's state is being looked at goes on in a private branch, which is not kept."""
    return is_told(cache, state, STATES["an error that waits"][-1]) or cache.graph.state(state).private is not None


def test_rollouts_execute_side_by_side_what_cannot_be_kept(
    home: Path, terminal_image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a call to its end and then executes it: all are executing it before the first has ended.

    From then on it is known that it leads to what cannot be kept, so that nobody waits for it at all.
    """
    with Cache(home, policy="eager", budget=Budget(parked=0)) as cache, ThreadPoolExecutor(AT_ONCE) as pool:
        for free in (patience.FREE, 600.0):
            monkeypatch.setattr(patience, "FREE", free)
            calls = [pool.submit(make, cache, terminal_image, UNTIL_ALL_HAVE_BEGUN) for _ in range(AT_ONCE)]
            eventually(partial(let_go_on, cache))
            made = [call.result(240) for call in calls]
            assert [results[0].source for results, _ in made] == ["executed"] * AT_ONCE
            assert len({state for _, state in made}) == AT_ONCE
            for _, state in made:
                eventually(partial(is_told_or_private, cache, state))
            told = [state for _, state in made if is_told(cache, state, STATES["an error that waits"][-1])]
            assert told, "the first of them was not tried"
        assert cache.stats().executed == 2 * AT_ONCE


def test_a_snapshot_that_cannot_be_restored(home: Path, terminal_image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "LONGEST", 600.0)  # else a slow machine gives up before the reason was the same often
    ask = "echo $? >&9; echo $?; cat d"
    with Cache(home, policy="eager") as cache:
        results, state = make(cache, terminal_image, NO_WAY_BACK, f"touch /tmp/asked; {ask}")
        assert [result.source for result in results] == ["executed", "executed"]
        # Nobody knows yet. Who is answered and must go on from there cannot, and is told so.
        with cache.rollout(terminal_image.name) as rollout:
            assert rollout.call("bash", {"command": NO_WAY_BACK}).source == "hit"
            assert rollout.state == state
            with pytest.raises(InfrastructureError, match="CRIU: "):
                rollout.call("bash", {"command": f"touch /tmp/asked.again; {ask}"})
        assert "CRIU: " in str(cache.refusal(state))
        assert cache.graph.snapshot(state, "local") is None
        # From then on it is known, and who comes next makes the call himself.
        results, another = make(cache, terminal_image, NO_WAY_BACK, f"touch /tmp/asked.anew; {ask}")
        assert [result.source for result in results] == ["executed", "executed"]
        assert results[1].output.endswith("0\ninstead\n")
        assert another != state
    assert_told(home, state, "CRIU: ")


def assert_told(home: Path, state: str, reason: str) -> None:
    """Asserts that people are told why a state cannot be checkpointed."""
    environment = {**os.environ, "TVSNAP_HOME": str(home), "COLUMNS": "300"}
    for verb in (["show", state], ["tree"]):
        told = subprocess.run([TVSNAP, *verb], env=environment, capture_output=True, text=True, check=True, timeout=120)
        assert "cannot be checkpointed" in told.stdout
        assert reason in told.stdout
