"""Forks that are reseeded: siblings draw different numbers, and the same fork meets the same states again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tvsnap import Cache, Rollout, ToolResult, UsageError
from tvsnap.images import Image, ImageStore
from tvsnap.model.calls import fork_seed
from tvsnap.types import Forks

PYTHON = (
    "import os, random, secrets\nnumbers = iter(lambda: (random.random(), os.urandom(8).hex()), None)\nnext(numbers)"
)
DRAWS: Sequence[tuple[str, str]] = (
    ("bash", "echo $TVSNAP_SEED"),
    ("bash", "echo $RANDOM"),
    ("exec", "echo $TVSNAP_SEED"),
    ("exec", "head -c 8 /dev/urandom | xxd -p"),
    ("exec", "python3 -c 'import random; print(random.random())'"),
    ("bash", "cat /root/hooked"),
    ("python", "next(numbers)"),  # of a process that has drawn numbers before
)


@pytest.fixture(scope="module")
def seeded_image(tvsnap_home: Path, terminal_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """An image with a seed, an interpreter and a command of its own."""
    folder = tmp_path_factory.mktemp("seeded")
    (folder / "image.yaml").write_text(
        f"name: seeded\nimage: {terminal_image.name}\nenvironment: python\nrandom_seed: 7\n"
        "reseed: echo hooked $TVSNAP_SEED | tee /root/hooked\n"
    )
    return ImageStore(tvsnap_home).build(folder)


def draw(rollout: Rollout, tool: str, text: str) -> ToolResult:
    result = rollout.call(tool, {"code" if tool == "python" else "command": text})
    assert result.exit_code == 0, result.output
    return result


def drawn(rollout: Rollout) -> list[str]:
    return [draw(rollout, *each).output for each in DRAWS]


def begun(rollout: Rollout) -> Rollout:
    rollout.call("bash", {"command": "RANDOM=1; echo $RANDOM > /root/hooked"})
    draw(rollout, "python", PYTHON)
    return rollout


def test_siblings_differ_and_the_next_epoch_meets_their_states(seeded_image: Image, tvsnap_home: Path) -> None:
    with Cache(tvsnap_home, policy="eager") as cache:
        with begun(cache.rollout(seeded_image, "reseeded", salt="siblings")) as rollout:
            start = rollout.state
            with rollout.fork(2) as alike:
                same = [drawn(fork) for fork in alike]
            with rollout.fork(3, reseed=True) as forks:
                states = [fork.state for fork in forks]
                found = [drawn(fork) for fork in forks]
            assert rollout.state == start
            own = drawn(rollout)
        assert same[0] == same[1] == own
        assert len({start, *states}) == 4
        seeds = [fork_seed(start, number) for number in range(3)]
        for seed, outputs in zip(seeds, found, strict=True):
            assert outputs[0] == outputs[2] == f"{seed}\n"
            assert outputs[5] == f"hooked {seed}\n"
        for each in zip(own, *found, strict=True):
            assert len(set(each)) == 4, each
        python = [re.findall(r"[\w.]+", outputs[-1]) for outputs in (own, *found)]
        assert len({one[0] for one in python}) == len({one[1] for one in python}) == 4  # random, and os.urandom

    with Cache(tvsnap_home) as cache:
        forks = cache.fork(start, 3, as_rollouts=True, task="reseeded", reseed=True)
        with forks:
            assert [fork.state for fork in forks] == states
            again = [[draw(fork, *each) for each in DRAWS] for fork in forks]
        assert [[one.output for one in outputs] for outputs in again] == found
        assert {one.source for outputs in again for one in outputs} == {"hit"}
        assert cache.stats().executed == 0


def test_a_fork_of_a_fork_keeps_its_seed(seeded_image: Image, tvsnap_home: Path) -> None:
    """Also in another sandbox, after a snapshot."""
    with (
        Cache(tvsnap_home, policy="eager") as cache,
        begun(cache.rollout(seeded_image, salt="keeps")) as rollout,
        rollout.fork(1, reseed=True) as (fork,),
    ):
        seed = fork_seed(rollout.state, 0)
        draw(fork, "bash", "touch /root/later")
        with fork.fork(2) as below, cache.fork(fork.state, 1) as (sandbox,):
            assert sandbox.exec("echo $TVSNAP_SEED").output == f"{seed}\n".encode()
            assert sandbox.run("echo $TVSNAP_SEED").output == f"{seed}\n".encode()
            found = [drawn(each) for each in below]
        assert found[0] == found[1] == drawn(fork)
        assert found[0] != drawn(rollout)
        with fork.fork(1, reseed=True) as (twice,):
            assert draw(twice, "bash", "echo $TVSNAP_SEED").output == f"{fork_seed(fork.state, 0)}\n"


def test_what_the_shell_knows_stays(terminal_image: Image, tvsnap_home: Path) -> None:
    """And an image without a seed and a command of its own needs neither."""
    with Cache(tvsnap_home) as cache, cache.rollout(terminal_image, salt="stays") as rollout:
        rollout.call("bash", {"command": "cd /tmp; x=1; false"})
        with rollout.fork(2, reseed=True) as forks:
            said = [fork.call("bash", {"command": "echo $? $PWD $x $RANDOM $TVSNAP_SEED"}).output for fork in forks]
        for number, line in enumerate(said):
            code, where, value, _, seed = line.split()
            assert (code, where, value, seed) == ("1", "/tmp", "1", str(fork_seed(rollout.state, number)))
        assert said[0].split()[3] != said[1].split()[3]
        assert rollout.call("bash", {"command": "echo =$TVSNAP_SEED="}).output == "==\n"


def test_what_fails_is_told_and_leaves_no_fork(tvsnap_home: Path, terminal_image: Image, tmp_path: Path) -> None:
    (tmp_path / "image.yaml").write_text(
        f"name: not-reseeded\nimage: {terminal_image.name}\nreseed: echo no such generator; exit 3\n"
    )
    image = ImageStore(tvsnap_home).build(tmp_path)
    with Cache(tvsnap_home) as cache, cache.rollout(image, salt="fails") as rollout:
        rollout.call("bash", {"command": "true"})
        with pytest.raises(UsageError, match=r"cannot be reseeded: no such generator; correct `reseed`"):
            rollout.fork(2, reseed=True)
        with rollout.fork() as (fork,):
            assert (fork.reseed(5).exit_code, fork.reseed(5).output) == (3, "no such generator\n")
            with pytest.raises(UsageError, match="seed"):
                fork.reseed(-1)
        with pytest.raises(UsageError, match="as_rollouts=True"):
            cache.fork(rollout.state, reseed=True)  # type: ignore[call-overload]


def test_a_shell_that_is_in_use(terminal_image: Image, tvsnap_home: Path) -> None:
    with Cache(tvsnap_home, policy="eager") as cache, cache.rollout(terminal_image, salt="in use") as rollout:
        rollout.call("keys", {"keys": "cat<Enter>", "wait": 1})
        forks: Forks[Rollout]
        with pytest.raises(UsageError, match="the terminal is in use by `cat`"), rollout.fork(1, reseed=True) as forks:
            assert not forks
