"""CRIU when it fails: by its own fault injection, killed at any moment, and told that the files could not be copied."""

from __future__ import annotations

import errno
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.helpers import eventually, job, sh
from tests.faults.consistency import assert_consistent, local
from tvsnap import Budget, Cache
from tvsnap.images import Image
from tvsnap.model.errors import ForkFailed, InfrastructureError, NotRestorable, StateLost
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.criu.client import Criu

# Numbers of CRIU's criu/include/fault-injection.h, for its variable CRIU_FAULT, and what it then complains of.
FAILING_DUMPS = {
    1: "ended by signal",  # FI_DUMP_EARLY: it dies with the processes in its hands
    3: "Dump VMA pages failure",  # FI_DUMP_PAGES
    5: "Unable to connect a transport socket",  # FI_PARASITE_CONNECT: it cannot get out of a process again
}
FATAL = (1, 5)
"""Those over which the sandbox ends."""
FAILING_RESTORES = {2: "FI_RESTORE_ROOT_ONLY", 4: "FI_RESTORE_OPEN_LINK_REMAP", 6: "FI_POST_RESTORE"}
HARMLESS = {127: "FI_VDSO_TRAMPOLINES", 129: "FI_NO_MEMFD", 131: "FI_PARTIAL_PAGES", 135: "FI_DONT_USE_PAGEMAP_SCAN"}
"""Other ways to the same end."""
PREPARED = ("cd /tmp; echo one > f; x=1", "exec 5> gone; rm gone; echo kept >&5", "sleep 1000 & echo two >> f; x=2")
LOOK = "cat f; echo $x; jobs -r | wc -l; ls; cat /proc/$$/fd/5"
SEEN = "one\ntwo\n2\n1\nf\nkept\n"
ROUNDS = 6
LONGEST = 0.04  # seconds; about what a dump or a restore takes


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, terminal_image: Image) -> Iterator[Path]:
    """A data directory with the terminal image; all in it must be in order in the end."""
    path = tmp_path_factory.mktemp("home")
    (path / "images").symlink_to(terminal_image.rootfs.parents[1])
    yield path
    assert assert_consistent(path, terminal_image) > 0


@pytest.fixture
def cache(home: Path) -> Iterator[Cache]:
    """One that always forks, and snapshots all."""
    before = dead_children()
    with Cache(home, policy="eager", budget=Budget(parked=0)) as opened:
        yield opened
    eventually(lambda: dead_children() <= before)  # all that have ended are waited for


def dead_children() -> set[str]:
    """Returns the ids and names of the children of this process that have ended and are not waited for."""
    found = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                head, dead, _ = Path(f"/proc/{child}/stat").read_text().partition(") Z ")
                if dead:
                    found.add(head)
    return found


def roll(cache: Cache, salt: str, *calls: str) -> tuple[list[str], str]:
    """Makes a rollout; returns the outputs, and the state that it came to."""
    with cache.rollout("terminal", salt=salt) as rollout:
        seen = [rollout.call("bash", {"command": command}).output for command in calls]
        assert not rollout.private
        return seen, rollout.state


def lose(cache: Cache, salt: str) -> str:
    """Makes a rollout whose sandbox ends and whose state nothing leads to, of which it is told; returns that state."""
    with cache.rollout("terminal", salt=salt) as rollout, pytest.raises(StateLost):  # noqa: PT012
        for command in (*PREPARED, LOOK):
            rollout.call("bash", {"command": command})
    return rollout.state


@pytest.mark.parametrize("code", FAILING_DUMPS)
def test_faults_in_dumps(cache: Cache, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    with monkeypatch.context() as injected:
        injected.setenv("CRIU_FAULT", str(code))
        if code in FATAL:
            state = lose(cache, f"dump {code}")
        else:
            seen, state = roll(cache, f"dump {code}", *PREPARED)
            assert roll(cache, f"dump {code}", *PREPARED, LOOK)[0] == [*seen, SEEN]
        assert FAILING_DUMPS[code] in str(cache.refusal(state))
        assert cache.graph.snapshot(state, "local") is None
    assert roll(cache, f"dump {code}", *PREPARED, f"{LOOK}; echo again")[0][-1] == f"{SEEN}again\n"


@pytest.mark.parametrize("code", FAILING_RESTORES)
def test_faults_in_restores(cache: Cache, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    salt = f"restore {code}"
    roll(cache, salt, *PREPARED)
    before = cache.stats()
    calls = (*PREPARED, f"{LOOK}; echo {code}")
    with monkeypatch.context() as injected:
        injected.setenv("CRIU_FAULT", str(code))
        with pytest.raises((ForkFailed, NotRestorable)) as failure:
            roll(cache, salt, *calls)
        if failure.type is NotRestorable:  # it answers nothing any more, as do those above it, once that is known
            with pytest.raises(NotRestorable):
                roll(cache, salt, *calls)
            assert roll(cache, salt, *calls)[0][-1] == f"{SEEN}{code}\n"
    assert roll(cache, salt, *calls)[0][-1] == f"{SEEN}{code}\n"
    if failure.type is ForkFailed:  # what was kept serves as before
        after = cache.stats()
        assert (after.executed, after.replayed) == (before.executed + 1, before.replayed)


@pytest.mark.parametrize("code", HARMLESS)
def test_harmless_faults(cache: Cache, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    salt = f"harmless {code}"
    monkeypatch.setenv("CRIU_FAULT", str(code))
    roll(cache, salt, *PREPARED)
    assert roll(cache, salt, *PREPARED, LOOK)[0][-1] == SEEN
    assert cache.stats().forks >= 1  # more on a slow machine: one runs beside a rollout that thinks
    assert cache.stats().replayed == 0


class Killer:
    """Kills CRIU some time after it was started, or what is to become it.

    Attributes:
        delay: seconds; None to leave it alone.
        hits: how many did not live to give an answer.
    """

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real = real
        self.delay: float | None = None
        self.hits = 0

    def converse(self, *arguments: Any) -> Any:
        if self.delay is None:
            return self._real(*arguments)
        child = eventually(criu_of_this_thread)  # which waits for what it is to do
        timer = threading.Timer(self.delay, self._kill, (child,))
        timer.start()
        try:
            response = self._real(*arguments)
        except ConnectionError:
            response = None
        finally:
            timer.cancel()
            timer.join()
        self.hits += response is None
        return response

    @staticmethod
    def _kill(pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def criu_of_this_thread() -> int:
    """Returns the process that it has started to be CRIU; 0 if that has not got its command line yet."""
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    found = (child for child in children if b"\0swrk\0" in Path(f"/proc/{child}/cmdline").read_bytes())
    return int(next(found, 0))


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    made = Killer(Criu._converse)
    monkeypatch.setattr(Criu, "_converse", staticmethod(made.converse))
    return made


def moments(seed: int) -> list[float]:
    chance = random.Random(seed)
    return [0.0, *(chance.uniform(0, LONGEST) for _ in range(ROUNDS - 1))]


def test_killed_in_dumps(cache: Cache, killer: Killer) -> None:
    for number, killer.delay in enumerate(moments(1)):
        salt = f"killed in dump {number}"
        with suppress(StateLost):  # where the sandbox ended, too
            assert roll(cache, salt, *PREPARED, LOOK)[0][-1] == SEEN, killer.delay
        killer.delay = None
        assert roll(cache, salt, *PREPARED, f"{LOOK}; echo again")[0][-1] == f"{SEEN}again\n"
    assert killer.hits >= 2


def test_killed_in_restores(cache: Cache, killer: Killer) -> None:
    roll(cache, "killed in restores", *PREPARED)
    for number, delay in enumerate(moments(2)):
        with Cache(cache.home, policy="never") as other:
            calls = (*PREPARED, f"{LOOK}; echo {number}")
            killer.delay = delay
            with suppress(ForkFailed):
                assert roll(other, "killed in restores", *calls)[0][-1] == f"{SEEN}{number}\n", delay
            killer.delay = None
            assert roll(other, "killed in restores", *calls)[0][-1] == f"{SEEN}{number}\n", delay
            assert other.stats().replayed == 0
    assert killer.hits >= 2


def test_files_that_cannot_be_copied(cache: Cache, terminal_image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """CRIU is told, undoes what it did for the dump, and lets the processes go on."""
    backend = local(cache)
    sandbox = backend.start(terminal_image, Limits())
    sh(sandbox, PREPARED[1])
    job(sandbox, "sleep 1000")
    before, files = sandbox.observe(), sandbox.changes()
    with monkeypatch.context() as full:
        full.setattr(backend._storage, "copy", no_room)
        with pytest.raises(InfrastructureError, match="No space left"):
            sandbox.checkpoint()
    after = sandbox.observe()
    assert (after.files, after.shell, sandbox.changes()) == (before.files, before.shell, files)
    assert sh(sandbox, "cat /proc/$$/fd/5; jobs -r | wc -l") == "kept\n1\n"
    backend.delete_snapshot(sandbox.checkpoint().id)
    sandbox.close()


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
