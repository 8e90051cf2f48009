"""Owners that share the processors: many busy sandboxes of one leave another its part."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_groups import control_groups
from tests.homes import with_images_of
from tvsnap import Limits
from tvsnap.cache import Cache
from tvsnap.images import Image
from tvsnap.model.limits import MIB
from tvsnap.model.shares import Share
from tvsnap.sandboxes.local.backend import LocalBackend
from tvsnap.sandboxes.local.sandbox import LocalSandbox

BUSY, MEASURED, PATIENCE = 8, 3.0, 60.0
"""Noisy sandboxes; seconds of processor time that are compared; seconds within which a busy machine must give them."""
LOOPS = "for i in $(seq $(nproc)); do (while :; do :; done) & done"


@pytest.fixture
def home(terminal_image: Image, tvsnap_home: Path, tmp_path: Path) -> Path:
    """A data directory of its own, with the images of the session."""
    return with_images_of(tvsnap_home, tmp_path)


@contextlib.contextmanager
def busy(cache: Cache, owner: str, count: int) -> Iterator[list[LocalSandbox]]:
    """Gives an owner so many sandboxes in which something computes on all processors."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            sandbox = stack.enter_context(cache.rollout("terminal", salt=f"{owner}: ")).sandbox()
            assert isinstance(sandbox, LocalSandbox)
            assert sandbox.run(LOOPS, timeout=60).exit_code == 0
            made.append(sandbox)
        yield made


def used(sandboxes: list[LocalSandbox]) -> float:
    """Returns the seconds of processor time that the processes of sandboxes have used."""
    ticks = 0
    for sandbox in sandboxes:
        for pid in sandbox.cgroup.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("weight", [1, 4])
def test_one_sandbox_of_one_owner_has_its_part_beside_many_of_another(home: Path, weight: int) -> None:
    """Its part is `weight / (1 + weight)`, of which other work on the machine may take some."""
    shares = [Share("noisy", "noisy: "), Share("quiet", "quiet: ", weight=weight)]
    limits = Limits(memory=64 * MIB)
    with Cache(home, shares=shares, limits=limits) as cache, busy(cache, "noisy", BUSY) as noisy:
        with busy(cache, "quiet", 1) as quiet:
            before, until = (used(noisy), used(quiet)), time.monotonic() + PATIENCE
            theirs = its = 0.0
            while theirs + its < MEASURED and time.monotonic() < until:
                time.sleep(0.1)
                theirs, its = used(noisy) - before[0], used(quiet) - before[1]
        assert theirs + its >= MEASURED, "the machine is too busy to tell anything"
        part, alone = weight / (1 + weight), 1 / (1 + BUSY)
        assert (part + alone) / 2 < its / (theirs + its) < part + 0.15, f"{its:.2f} s beside {theirs:.2f} s"


def test_groups_of_owners_go_with_their_sandboxes(home: Path) -> None:
    with Cache(home, shares=[Share("one", "one: ")]) as cache:
        assert isinstance(cache.backend, LocalBackend)
        tag = cache.backend._cgroups.roots[0].name
        with cache.rollout("terminal", salt="one: ") as mine, cache.rollout("terminal") as other:
            for rollout in (mine, other):
                assert rollout.call("bash", {"command": "(while :; do :; done) & sleep 0.2"}).exit_code == 0
            for group in ("group.one", "group."):
                assert control_groups(f"*/tvsnap/{tag}/{group}/{cache.owner}/{cache.owner}.*"), group
            assert len(list(cache.backend._cgroups.sandboxes(cache.owner))) >= 2
            assert set(cache.backend._cgroups.owners()) == {cache.owner}
    assert control_groups(f"*/tvsnap/{tag}*") == []


def test_groups_of_owners_that_died_are_removed(home: Path) -> None:
    """A process that is killed leaves sandboxes in its groups; the next one that opens the data directory ends them."""
    child = os.fork()
    if child == 0:
        try:
            cache = Cache(home, shares=[Share("one", "one: ")])
            cache.rollout("terminal", salt="one: ").sandbox().run("sleep 1000 &", timeout=60)
        finally:
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    with Cache(home) as cache:
        assert isinstance(cache.backend, LocalBackend)
        tag = cache.backend._cgroups.roots[0].name
        assert [one for one in control_groups(f"*/tvsnap/{tag}/group.*") if "/group.one/" in one] == []
        assert "one" not in " ".join(cache.backend._cgroups.owners())
    assert control_groups(f"*/tvsnap/{tag}*") == []
