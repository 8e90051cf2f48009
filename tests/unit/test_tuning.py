"""The parameters of a cache: bounds, the file of a data directory, what is learned, and trials that are undone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.caches import open_cache, run
from tests.unit.cli_helpers import make_command_line
from tvsnap import Costs, Tuning, UsageError
from tvsnap.cache import Cache
from tvsnap.engine.keeping.policy import BreakEven, Rebuild
from tvsnap.host.tuning_file import TUNING_FILE, read_tuning, remove_tuning, write_tuning
from tvsnap.model.stats import Stats
from tvsnap.model.tuning import TUNING_BOUNDS
from tvsnap.upkeep.tuning import (
    MachineCosts,
    OnlineTuner,
    RecordedCall,
    RecordedRollout,
    Setting,
    Weights,
    learn,
    read_recorded,
    simulate,
)
from tvsnap.upkeep.tuning.learning import divide
from tvsnap.upkeep.tuning.online import saved_share
from tvsnap.upkeep.tuning.simulation import without_cache

TUNINGS = st.builds(Tuning, **{name: st.floats(low, high) for name, (low, high) in TUNING_BOUNDS.items()})


@pytest.mark.parametrize(
    "values",
    [
        {"break_even": 0.0},
        {"break_even": float("nan")},
        {"youth_s": -1.0},
        {"new_call_chance": 1.5},
        {"incumbency": True},
        {"trial_s": "1"},
    ],
)
def test_what_is_out_of_bounds_is_named(values: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(values))):
        Tuning(**values)


@given(TUNINGS)
def test_a_tuning_is_read_as_it_was_written(tuning: Tuning) -> None:
    assert Tuning.of(json.loads(json.dumps(tuning.as_dict()))) == tuning


def test_a_data_directory_has_its_own(tmp_path: Path) -> None:
    assert read_tuning(tmp_path) == Tuning()
    write_tuning(tmp_path, Tuning(break_even=3.0))
    with open_cache(tmp_path) as cache:
        assert cache.tuning == Tuning(break_even=3.0)
        cache.tuning = Tuning(youth_s=60.0)
        assert cache.tuning.youth_s == 60.0
        with pytest.raises(UsageError, match="tuning"):
            cache.tuning = 5  # type: ignore[assignment]
    with open_cache(tmp_path, tuning=Tuning()) as cache:
        assert cache.tuning == Tuning()
    assert [file.name for file in tmp_path.glob("*tuning*")] == [TUNING_FILE]
    assert remove_tuning(tmp_path)
    assert not remove_tuning(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"break_even": 99}', '{"no such": 1}', '{"break_even": null}'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / TUNING_FILE).write_text(text)
    with pytest.raises(UsageError, match=f"{TUNING_FILE} holds no tuning: .*--reset"):
        open_cache(tmp_path)


def test_what_is_set_counts_at_once() -> None:
    tuning = Tuning()
    costs = Costs("any", tuning=lambda: tuning)
    rebuild = Rebuild(from_root=False, calls=1, replay_s=1.2 * (costs.checkpoint_s + costs.fork_s) - costs.fork_s)
    assert BreakEven().should_checkpoint(rebuild, costs)
    tuning = Tuning(break_even=2.0)
    assert not BreakEven().should_checkpoint(rebuild, costs)
    unproven = Rebuild(from_root=False, calls=1, replay_s=2.0, proven=False)
    assert BreakEven().should_checkpoint(unproven, replaced := _without_allowance(costs, Tuning(unproven_share=0.2)))
    assert replaced.tuning.unproven_share == 0.2
    assert not BreakEven().should_checkpoint(unproven, _without_allowance(costs, Tuning(unproven_share=0.005 + 0.005)))


def _without_allowance(costs: Costs, tuning: Tuning) -> Costs:
    found = Costs("any", tuning=lambda: tuning)
    found.spent(100.0)
    return found


def test_a_cache_of_any_tuning_shows_what_no_cache_shows(tmp_path: Path) -> None:
    commands = ["echo 1 > f", "echo 2 >> f", "cat f", "x=3", "echo $x", "rm f"]
    with open_cache(tmp_path / "none", use_cache=False) as cache:
        expected = [result.output for result in run(cache, *commands)]
    low = Tuning(**{name: low for name, (low, _) in TUNING_BOUNDS.items()})
    high = Tuning(**{name: high for name, (_, high) in TUNING_BOUNDS.items()})
    for number, tuning in enumerate((low, high)):
        with open_cache(tmp_path / str(number), tuning=tuning) as cache:
            for _ in range(3):
                assert [result.output for result in run(cache, *commands)] == expected
                assert [result.output for result in run(cache, *commands[:2], "cat f; echo end")][:2] == ["", ""]


def _rollouts(tasks: int = 20, each: int = 3, seconds: float = 0.2) -> list[RecordedRollout]:
    """Rollouts whose first calls are the same within a task, and whose last are their own."""
    found = []
    for task in range(tasks):
        for number in range(each):
            shared = [RecordedCall(f"s{place}", seconds, seconds / 2, f"{task}.{place}") for place in range(4)]
            own = RecordedCall(f"own{number}", seconds, seconds / 2, f"{task}.own{number}")
            found.append(RecordedRollout(f"task {task}", f"root {task}", "image", (*shared, own)))
    return found


def test_without_a_cache_each_call_is_executed() -> None:
    rollouts = _rollouts()
    costs = MachineCosts()
    setting = Setting(parallel=1, think_s=0.0, costs=costs)
    outcome = without_cache(rollouts, setting)
    assert outcome.calls == 300
    assert outcome.answered == outcome.checkpoints == 0
    assert outcome.waited_s == pytest.approx(300 * 0.2 + 60 * costs.start)
    assert outcome.processor_s >= 300 * 0.1


def test_what_was_made_before_is_answered_and_what_is_new_is_forked() -> None:
    rollouts = _rollouts()
    setting = Setting(parallel=1, think_s=1.0)
    outcome, none = simulate(rollouts, Tuning(), setting), without_cache(rollouts, setting)
    assert outcome.answered >= 20 * 4, "the third rollout of a task at the latest finds its states proven or kept"
    assert outcome.waited_s < 0.8 * none.waited_s
    assert outcome.forks > 0
    assert 0 < outcome.checkpoints <= 20 * 7
    assert outcome.kept_byte_s > 0
    again = simulate(rollouts, Tuning(), replace(setting, epochs=2))
    assert again.answered >= outcome.answered + 20 * 3 * 5 - 20 * 4


def test_what_the_machine_takes_is_what_was_measured() -> None:
    counters = {"cost.local.fork.n": 10.0, "cost.local.fork.s": 0.5, "cost.docker.fork.n": 5.0, "cost.docker.fork.s": 9}
    assert MachineCosts.measured(counters) == MachineCosts(fork=0.05)
    assert MachineCosts.measured({}) == MachineCosts()


def test_snapshots_keep_to_their_room() -> None:
    rollouts = _rollouts()
    size = rollouts[0].calls[0].size
    outcome = simulate(rollouts, Tuning(), Setting(parallel=2, room=3 * size))
    assert outcome.kept_byte_s <= 3 * size * outcome.lasted_s


def test_nothing_is_shared_behind_a_call_that_timed_out() -> None:
    late = RecordedCall("late", 5.0, 0.0, "late", shared=False)
    rollouts = [RecordedRollout("t", "r", "i", (late, RecordedCall("x", 1.0, 0.0, "x"))) for _ in range(5)]
    assert simulate(rollouts, Tuning(), Setting(parallel=1)).answered == 0


@settings(max_examples=30, deadline=None)
@given(TUNINGS)
def test_any_tuning_answers_no_more_calls_than_there_are(tuning: Tuning) -> None:
    outcome = simulate(_rollouts(6), tuning, Setting(parallel=3, think_s=0.1))
    assert outcome.calls == 90
    assert outcome.answered <= 90 - 6 * 7, "each call of a task was executed once"


def test_a_search_is_judged_by_other_tasks_and_repeatable() -> None:
    rollouts = _rollouts()
    setting = Setting(parallel=4, think_s=0.5, epochs=2)
    learned, held = divide(rollouts)
    assert not {one.task for one in learned} & {one.task for one in held}
    assert len(learned) + len(held) == len(rollouts)
    made: list[int] = []
    first = learn(rollouts, setting, trials=20, seed=3, progress=lambda: made.append(1))
    assert len(made) == 20
    assert learn(rollouts, setting, trials=20, seed=3) == first
    weights = Weights()
    assert weights.cost(simulate(learned, first.found, setting)) <= weights.cost(simulate(learned, Tuning(), setting))
    assert first.is_better == (first.tuning != Tuning())
    assert (first.learned_from, first.held_out) == (len(learned), len(held))


def test_a_bad_tuning_is_left() -> None:
    """A search that begins with too few snapshots finds that more of them pay."""
    rollouts = _rollouts(each=6, seconds=0.03)
    begin = Tuning(break_even=8.0, unproven_share=0.01)
    judgement = learn(rollouts, Setting(parallel=4), begin=begin, trials=40)
    assert judgement.is_better
    assert judgement.tuning.break_even < begin.break_even
    assert judgement.after.forks != judgement.before.forks


def test_too_few_rollouts_are_refused() -> None:
    with pytest.raises(UsageError, match="3 recorded rollouts were read, too few"):
        learn(_rollouts(1), Setting())


def test_rollouts_of_a_graph(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        for task in ("one", "two"):
            for last in "ab":
                with cache.rollout("terminal", task) as rollout:
                    for command in ("echo 1 > f", "cat f", f"echo {last} > f"):
                        rollout.call("bash", {"command": command})
        with cache.rollout("terminal", "idle"):
            pass
        recorded = read_recorded(cache.graph)
        assert [one.task for one in read_recorded(cache.graph, most=2)] == ["two", "two"]
    assert [one.task for one in recorded] == ["one", "one", "two", "two"]
    first, second = recorded[:2]
    assert [call.key for call in first.calls[:2]] == [call.key for call in second.calls[:2]]
    assert first.calls[0].after == second.calls[0].after
    assert first.calls[1].after is None, "it changed nothing"
    assert first.calls[2].after != second.calls[2].after
    assert all(call.shared for call in first.calls)


def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tvsnap = make_command_line(tmp_path, monkeypatch)
    assert "too few" in tvsnap.error("tune", status=2)
    for task in range(10):
        for last in "ab":
            tvsnap.rollout("echo 1 > f", f"echo {last} > f", task=str(task))
    found = tvsnap.json("tune", "--trials", "5")
    assert found["learned_from"] + found["held_out"] == 20
    assert not found["saved"]
    assert found["before"]["calls"] == 2 * 2 * found["held_out"]
    shown = " ".join(tvsnap("tune", "--trials", "5").stdout.split())
    assert shown.startswith("learned from 10 rollouts, judged by 10 rollouts of other tasks:")
    assert shown.endswith("tvsnap tune --save uses it" if found["better"] else "nothing is changed")
    write_tuning(tvsnap.home, Tuning(break_even=3.0))
    assert tvsnap.json("tune", "--show")["break_even"] == 3.0
    assert tvsnap.json("tune", "--reset") == {"reset": True}
    assert tvsnap("tune", "--reset").stdout == "no other tuning was in use\n"
    assert "one of --save" in tvsnap.error("tune", "--save", "--reset", status=2)
    saved = tvsnap.json("tune", "--save", "--trials", "5")["saved"]
    assert (tvsnap.json("tune", "--show") != Tuning().as_dict()) == saved


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with open_cache(tmp_path) as cache:
        yield cache


def _window(cache: Cache, tuner: OnlineTuner, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """A window in which that share of the time of calls was saved."""
    before = cache.stats()
    after = replace(before, answered_s=before.answered_s + share, tool_time_s=before.tool_time_s + 1.0 - share)
    monkeypatch.setattr(cache, "stats", lambda: after)
    for _ in range(tuner.rollouts):
        tuner.record()


def test_a_trial_is_kept_only_where_it_is_better(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = OnlineTuner(cache, rollouts=3, seed=1)
    for shares, kept in (((0.5, 0.3, 0.5), False), ((0.5, 0.6, 0.62), False), ((0.5, 0.7, 0.5), True)):
        base = cache.tuning
        _window(cache, tuner, monkeypatch, shares[0])
        tried = cache.tuning
        assert tried != base
        _window(cache, tuner, monkeypatch, shares[1])
        assert cache.tuning == base, "the window after a trial has the old tuning"
        _window(cache, tuner, monkeypatch, shares[2])
        trial = tuner.trials[-1]
        assert trial.kept is kept
        assert [trial.before, trial.during, trial.after] == pytest.approx(shares)
        assert cache.tuning == (tried if kept else base)
    assert sum(trial.kept for trial in tuner.trials) == 1


def test_a_trial_under_way_is_ended(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = OnlineTuner(cache, rollouts=1)
    _window(cache, tuner, monkeypatch, 0.5)
    assert cache.tuning != Tuning()
    tuner.stop()
    assert cache.tuning == Tuning()


def test_a_tuning_that_is_set_during_a_trial_stays(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = OnlineTuner(cache, rollouts=1)
    _window(cache, tuner, monkeypatch, 0.5)
    cache.tuning = Tuning(break_even=4.0)
    tuner.stop()
    assert cache.tuning == Tuning(break_even=4.0)
    tuner = OnlineTuner(cache, rollouts=1)
    _window(cache, tuner, monkeypatch, 0.5)
    cache.tuning = Tuning(break_even=5.0)
    for _ in range(3):
        _window(cache, tuner, monkeypatch, 0.5)
    assert not tuner.trials[0].kept
    assert cache.tuning == Tuning(break_even=5.0)
    tuner.stop()
    assert cache.tuning == Tuning(break_even=5.0)


def test_a_tuner_that_was_stopped_tries_nothing_more(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = OnlineTuner(cache, rollouts=1)
    tuner.stop()
    for _ in range(4):
        _window(cache, tuner, monkeypatch, 0.5)
    assert (tuner.trials, cache.tuning) == ([], Tuning())


def test_a_tuning_file_that_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / TUNING_FILE
    os.mkfifo(file)
    with pytest.raises(UsageError, match="no ordinary file"):
        read_tuning(tmp_path)
    assert remove_tuning(tmp_path)
    file.mkdir()
    with pytest.raises(UsageError, match="no ordinary file"):
        read_tuning(tmp_path)
    with pytest.raises(UsageError, match="cannot be deleted"):
        remove_tuning(tmp_path)
    file.rmdir()
    file.write_text('{"break_even": 2, "break_even": 3}')
    with pytest.raises(UsageError, match="twice"):
        read_tuning(tmp_path)


def test_what_a_cache_saved() -> None:
    assert saved_share(Stats(), Stats()) == 0.0
    assert saved_share(Stats(), Stats(answered_s=3.0, tool_time_s=1.0, fork_time_s=0.5, checkpoint_time_s=0.5)) == 0.5
    assert saved_share(Stats(), Stats(tool_time_s=2.0, start_time_s=1.0)) == -0.5


def test_nothing_is_tuned_without_a_cache(tmp_path: Path) -> None:
    with open_cache(tmp_path, use_cache=False) as cache, pytest.raises(UsageError, match="use_cache"):
        OnlineTuner(cache)
    with open_cache(tmp_path) as cache, pytest.raises(UsageError, match="rollouts"):
        OnlineTuner(cache, rollouts=0)
