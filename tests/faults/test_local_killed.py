"""The PID 1 of a sandbox, killed from outside at every step: its rollout goes on elsewhere and sees what it should.

Or it is told that its state is lost, where nothing was kept of it; and another one gets it all.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.helpers import eventually, on_host, unique_sleep
from tests.fakes.caches import bash, settle
from tvsnap import Budget, Cache, Limits
from tvsnap.images import Image
from tvsnap.model.errors import InfrastructureError, SandboxDied, StateLost
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.criu import client as criu
from tvsnap.sandboxes.local import LocalBackend, backend, sandbox
from tvsnap.sandboxes.local.storage import layers as storage
from tvsnap.sandboxes.looks.seen_files import SeenFiles

CALLS = ("cd /tmp; echo one > f; x=1", "echo two >> f; x=2; sleep 1000 &")
LOOK = "cat f; echo $x; jobs -r | wc -l"
SEEN = "one\ntwo\n2\n1\n"
_salts = itertools.count()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, terminal_image: Image) -> Iterator[Cache]:
    """Each test uses roots of its own in it."""
    home = tmp_path_factory.mktemp("killed")
    (home / "images").symlink_to(terminal_image.rootfs.parents[1])
    with Cache(home, policy="eager", budget=Budget(parked=0), prefork=0) as cache:
        yield cache


@pytest.fixture
def rollout(cache: Cache, terminal_image: Image) -> Iterator[Rollout]:
    """A rollout; after it nothing is left of its sandboxes, and another one gets the same answers."""
    salt = str(next(_salts))
    with cache.rollout(terminal_image, salt=salt) as rollout:
        yield rollout
        assert rollout.private is None
    with cache.rollout(terminal_image, salt=salt) as another:
        assert [bash(another, command).output for command in (*CALLS, LOOK)] == ["", "", SEEN]
        settle(another)
    eventually(lambda: cache.graph.leases() == [])
    local = cache.backend
    assert isinstance(local, LocalBackend)
    eventually(lambda: not local._sandboxes, timeout=60)
    eventually(lambda: os.listdir(local._pool.live) == ["template"], timeout=60)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def live(cache: Cache) -> list[sandbox.LocalSandbox]:
    assert isinstance(cache.backend, LocalBackend)
    return list(cache.backend._sandboxes.values())


def kill_all(cache: Cache) -> None:
    for one in live(cache):
        kill(one.init)


def once(
    patch: pytest.MonkeyPatch, owner: Any, name: str, action: Callable[..., None], *, after: bool = False, nth: int = 1
) -> list[int]:
    """Does something with the arguments, and the result if `after`, of the nth call of a method; returns a counter."""
    real, count = getattr(owner, name), [0]

    def wrapped(*arguments: Any, **named: Any) -> Any:
        count[0] += 1
        due = count[0] == nth
        if due and not after:
            action(*arguments)
        result = real(*arguments, **named)
        if due and after:
            action(result)
        return result

    patch.setattr(owner, name, wrapped)
    return count


def test_between_calls(cache: Cache, rollout: Rollout) -> None:
    for number, command in enumerate(CALLS):
        bash(rollout, command)
        settle(rollout)
        eventually(lambda: len(live(cache)) == 1)  # a dead one goes in the background
        if number % 2 == 0:
            kill_all(cache)
    kill_all(cache)
    assert bash(rollout, LOOK).output == SEEN


def test_amid_a_call(cache: Cache, rollout: Rollout) -> None:
    bash(rollout, CALLS[0])
    settle(rollout)
    nap = unique_sleep()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(bash, rollout, f"touch g; timeout 2 {nap}; cat f")
        eventually(lambda: on_host(f"timeout 2 {nap}"), timeout=60)
        kill_all(cache)
        assert answer.result(60).output == "one\n"
    assert bash(rollout, "ls g").output == "g\n"


def test_amid_an_observation(cache: Cache, rollout: Rollout, monkeypatch: pytest.MonkeyPatch) -> None:
    bash(rollout, CALLS[0])
    settle(rollout)
    hit = once(monkeypatch, SeenFiles, "fingerprints", lambda *_: kill_all(cache))
    bash(rollout, CALLS[1])
    settle(rollout)
    assert hit[0] >= 1
    with pytest.raises(StateLost):  # what the call left behind was never looked at
        bash(rollout, LOOK)


@pytest.mark.parametrize("moment", ["before the dump", "files not copied", "files copied", "after the dump"])
def test_amid_a_checkpoint(cache: Cache, rollout: Rollout, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    owner, name, after = {
        "before the dump": (criu.Criu, "dump", False),
        "files not copied": (storage.BtrfsStorage, "copy", False),
        "files copied": (storage.BtrfsStorage, "copy", True),
        "after the dump": (criu.Criu, "dump", True),
    }[moment]
    bash(rollout, CALLS[0])
    settle(rollout)
    hit = once(monkeypatch, owner, name, lambda *_: kill_all(cache), after=after)
    bash(rollout, CALLS[1])
    settle(rollout)
    assert hit[0] >= 1
    if moment == "before the dump":
        with pytest.raises(StateLost):  # its process is gone, and another would not be the same
            bash(rollout, LOOK)
    else:
        assert bash(rollout, LOOK).output == SEEN


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        (storage.BtrfsStorage, "copy", True),
        (criu.Criu, "restore", True),
        (backend.LocalBackend, "_adopt", False),
        (sandbox.LocalSandbox, "run", False),
    ],
)
def test_amid_a_fork(
    cache: Cache, terminal_image: Image, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    def kill_new(*seen: Any) -> None:
        kill_all(cache)
        if name == "restore":
            kill(*seen)

    salt = str(next(_salts))
    with cache.rollout(terminal_image, salt=salt) as rollout:
        for command in CALLS:
            bash(rollout, command)
            settle(rollout)
    with cache.rollout(terminal_image, salt=salt) as rollout:
        assert [bash(rollout, command).source for command in CALLS] == ["hit", "hit"]
        hit = once(monkeypatch, owner, name, kill_new, after=after)
        assert bash(rollout, LOOK).output == SEEN
        assert hit[0] >= 1
        assert rollout.private is None


def test_again_and_again(cache: Cache, terminal_image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever kills every sandbox gets an error, and the rollout stands where it stood."""
    with cache.rollout(terminal_image, salt=str(next(_salts))) as rollout:
        bash(rollout, CALLS[0])
        settle(rollout)
        with monkeypatch.context() as patch:
            real = sandbox.LocalSandbox.run

            def run(self: sandbox.LocalSandbox, *arguments: Any, **named: Any) -> Any:
                kill(self.init)
                return real(self, *arguments, **named)

            patch.setattr(sandbox.LocalSandbox, "run", run)
            with pytest.raises(InfrastructureError, match="died twice over"):
                bash(rollout, "cat f")
        assert bash(rollout, "cat f").output == "one\n"
        assert rollout.private is None


def test_why_it_died_is_told(cache: Cache, terminal_image: Image) -> None:
    small = Limits(memory=64 << 20)
    greedy = "for i in $(seq 30); do (head -c 4M /dev/zero | tail -n 1 | sleep 60) & done; wait"
    for limits, kill, message in (
        (Limits(), None, "killed from outside with signal 9: by a program of this machine, and not for want of memory"),
        (
            small,
            f"echo 1000 > /proc/1/oom_score_adj; {greedy}",
            r"the 64 MiB of memory .*give it more \(Limits.memory",
        ),
    ):
        made = cache.backend.start(terminal_image, limits)
        assert isinstance(made, sandbox.LocalSandbox)
        with contextlib.closing(made):
            assert made.run("echo here", timeout=20).output == b"here\n"
            if kill is None:
                os.kill(made.init, signal.SIGKILL)
            for _ in range(2):
                with pytest.raises(SandboxDied, match=message):
                    made.run(kill or "true", timeout=60)
            with pytest.raises(SandboxDied, match=message), made.archive():
                pass
        with pytest.raises(SandboxDied, match="is closed"):
            made.run("true", timeout=20)


def test_what_else_the_kernel_killed_for_memory_is_no_reason(cache: Cache, terminal_image: Image) -> None:
    """A program that took too much is killed, and its sandbox goes on."""
    made = cache.backend.start(terminal_image, Limits(memory=64 << 20))
    assert isinstance(made, sandbox.LocalSandbox)
    with contextlib.closing(made):
        assert made.run("tail /dev/zero", timeout=60).exit_code == 137
        assert made.cgroup.memory_kills() == (1, True)
        assert made.run("echo on", timeout=20).output == b"on\n"
