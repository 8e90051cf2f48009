"""Calls guessed while the model thinks: the same answers, sooner, and nothing left of wrong guesses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.control_groups import control_groups
from tests.fakes.caches import eventually
from tvsnap import Cache, Costs, ToolCall, TvsnapError, UsageError
from tvsnap.engine.keeping.policy import Rebuild
from tvsnap.guessing import GuessedRollout, Guesser, NextCalls
from tvsnap.images import Image

SLOW = "sleep 0.6; cat f; echo done >> f"


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A fresh data directory with the terminal image."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    return tmp_path


def run(rollout: GuessedRollout, command: str) -> str:
    return rollout.call("bash", {"command": command}).output


def teach(cache: Cache, guesser: Guesser, *commands: str) -> None:
    """Makes a rollout without guesses, so that the guesser knows what follows what."""
    with guesser.rollout("terminal", "t") as rollout:
        rollout._may_guess = False
        for command in commands:
            run(rollout, command)


def test_a_right_guess_hides_the_call(home: Path) -> None:
    # On a busy machine, a state whose checkpoint takes long need not be kept, and a guess that has just begun is not
    # waited for: then a right guess is of no use.
    with Cache(home, policy="eager") as cache, Guesser(cache, even_if_busy=True) as guesser:
        teach(cache, guesser, "echo 1 > f", SLOW, "cat f")
        with guesser.rollout("terminal", "t") as rollout:
            run(rollout, "echo 2 > f")
            state = rollout.state
            assert eventually(lambda: cache.graph.out_edges(state))
            assert rollout.call("bash", {"command": SLOW}).source in ("coalesced", "hit")
            assert run(rollout, "cat f") == "2\ndone\n", "made once"
        assert (guesser.stats.right, guesser.stats.used) == (1, 1)
        assert guesser.stats.failed == 0
        guesses = [one for one in cache.graph.rollouts("t") if one.label == "guess"]
        assert guesses, "people see what was guessed"


def test_a_predictor_that_fails_costs_no_call(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(NextCalls):
        def likely(self, *_: Any, **__: Any) -> Any:
            raise ValueError("no idea")

    with Cache(home, policy="record-all") as cache:
        with Guesser(cache, next_calls=Broken(), even_if_busy=True) as guesser, guesser.rollout("terminal") as rollout:
            assert run(rollout, "echo 1 > f; cat f") == "1\n"
            assert run(rollout, "cat f") == "1\n"
        with pytest.raises(UsageError, match="must have a method likely"):
            Guesser(cache, next_calls=5)  # type: ignore[arg-type]
    assert "no guess is made" in caplog.text


def test_a_wrong_guess_changes_nothing(home: Path) -> None:
    known = NextCalls()
    first = ToolCall("bash", {"command": "echo 2 > f"})
    known.learn("t", [first], ToolCall("bash", {"command": "echo wrong > f; sleep 60"}), 60.0)
    with Cache(home, policy="record-all") as cache:
        with (
            Guesser(cache, next_calls=known, even_if_busy=True) as guesser,
            guesser.rollout("terminal", "t") as rollout,
        ):
            rollout.call(first.name, first.arguments)
            assert eventually(lambda: guesser.stats.made == 1)
            assert run(rollout, "cat f") == "2\n"
            assert guesser.stats.right == 0
        owner = cache.owner
    assert eventually(lambda: not control_groups(owner)), "nothing is left of the guess"


def test_guesses_under_way_end_with_the_guesser(home: Path) -> None:
    """Whose call would take longer than any test may."""
    known = NextCalls()
    first = ToolCall("bash", {"command": "echo 2 > f"})
    known.learn("t", [first], ToolCall("bash", {"command": "sleep 5000"}), 5000.0)
    with Cache(home, policy="record-all") as cache:
        guesser = Guesser(cache, next_calls=known, even_if_busy=True)
        with guesser.rollout("terminal", "t") as rollout:
            rollout.call(first.name, first.arguments, 5000.0)
            assert eventually(lambda: guesser.stats.made == 1)
            guesser.close()
            assert run(rollout, "cat f") == "2\n"


def test_a_call_whose_guesses_cannot_be_used_is_guessed_less_and_less_often(home: Path) -> None:
    """The states that it leads to are not kept, and differ each time, so that none is ever proven."""

    class Short:
        """Keeps states to which short calls led."""

        name = "short"

        def should_checkpoint(self, rebuild: Rebuild, costs: Costs) -> bool:
            return rebuild.replay_s < 0.25

        def should_record(self, balance: Any) -> bool:
            return True

    step = "date +%N >> f; sleep 0.3"
    with Cache(home, policy=Short()) as cache, Guesser(cache, even_if_busy=True) as guesser:
        teach(cache, guesser, "echo first > f", step)
        guessed = []
        for number in range(8):
            with guesser.rollout("terminal", "t") as rollout:
                run(rollout, f"echo {number} > f")
                guessed.append(bool(rollout._begun))
                assert eventually(lambda: all(guess.done.done() for guess in rollout._begun.values()))
                run(rollout, step)
        stats = guesser.stats
    assert guessed[0]
    assert sum(guessed) <= 5
    assert stats.used == 0
    assert stats.right == sum(guessed)


def test_guesses_that_were_dropped_are_no_failed_rollouts(home: Path) -> None:
    known = NextCalls()
    first = ToolCall("bash", {"command": "echo 2 > f"})
    known.learn("t", [first], ToolCall("bash", {"command": "sleep 60"}), 60.0)
    with Cache(home, policy="record-all") as cache, Guesser(cache, next_calls=known, even_if_busy=True) as guesser:
        for number in range(5):  # where it is depends on the moment: before the call, or in it
            with guesser.rollout("terminal", "t") as rollout:
                run(rollout, f"echo {number} > g")
                rollout.call(first.name, first.arguments)
                assert eventually(lambda made=number + 1: guesser.stats.made == made)  # type: ignore[misc]
                run(rollout, "cat f")
        guesser.close()
        assert guesser.stats.failed == 0
        assert [one.rollout.label for one in cache.graph.summaries(failed=True)] == []


def test_a_closed_cache_has_no_guesses(home: Path) -> None:
    with Cache(home, policy="record-all") as cache:
        pass
    with pytest.raises(TvsnapError, match="it has been closed"):
        Guesser(cache)


def test_what_was_recorded_before_is_known(home: Path) -> None:
    with Cache(home, policy="record-all") as cache:
        with cache.rollout("terminal", "t") as rollout:
            for command in ("echo 1 > f", SLOW):
                rollout.call("bash", {"command": command})
        with Guesser(cache, even_if_busy=True) as guesser, guesser.rollout("terminal", "t") as rollout:
            run(rollout, "echo 2 > f")
            assert eventually(lambda: guesser.stats.made == 1)


@pytest.mark.parametrize("network", ["public", ["example.org"]])
def test_nothing_is_guessed_where_there_is_a_network(home: Path, network: str | list[str]) -> None:
    with Cache(home, policy="record-all") as cache, Guesser(cache, even_if_busy=True) as guesser:
        teach(cache, guesser, "echo 1 > f", SLOW)
        with guesser.rollout("terminal", "t", network=network) as rollout:
            run(rollout, "echo 2 > f")
            assert not rollout._begun


def test_short_calls_are_not_worth_a_fork(home: Path) -> None:
    with Cache(home, policy="record-all") as cache, Guesser(cache, worth=30.0, even_if_busy=True) as guesser:
        teach(cache, guesser, "echo 1 > f", SLOW)
        with guesser.rollout("terminal", "t") as rollout:
            run(rollout, "echo 2 > f")
            assert not rollout._begun


def test_a_closed_guesser_guesses_no_more(home: Path) -> None:
    with Cache(home, policy="record-all") as cache:
        guesser = Guesser(cache, even_if_busy=True)
        teach(cache, guesser, "echo 1 > f", SLOW)
        with guesser.rollout("terminal", "t") as rollout:
            guesser.close()
            run(rollout, "echo 2 > f")
            assert run(rollout, SLOW) == "2\n"
        guesser.close()
        assert guesser.stats.made == 0


@pytest.mark.parametrize("bad", [{"guesses": 0}, {"at_once": 1.5}, {"worth": -1.0}, {"worth": float("nan")}])
def test_bad_numbers_are_refused(home: Path, bad: dict[str, Any]) -> None:
    with Cache(home, policy="record-all") as cache, pytest.raises(UsageError, match=next(iter(bad))):
        Guesser(cache, **bad)


def test_without_recording_there_is_no_guessing(home: Path) -> None:
    with Cache(home, use_cache=False) as cache, pytest.raises(UsageError, match="records nothing"):
        Guesser(cache)
