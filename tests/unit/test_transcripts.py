"""What is recorded of rollouts for people: their calls in order, how they ended, rewards, labels and epochs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.fakes.caches import BUSY, FakeImages, bash, open_cache, run, settle
from tests.unit.graph_helpers import add_root, call, look, walk
from tvsnap import AsyncCache, AsyncRollout, Budget, Cache
from tvsnap.graph import Graph, RolloutSummary, Step, StepRow
from tvsnap.model.errors import InfrastructureError, NotFound, UsageError

NOT_PARKED = Budget(parked=0)


def told(steps: list[Step]) -> list[tuple[str, str, int | None]]:
    return [(str(step.call and step.call.arguments["command"]), step.source, step.exit_code) for step in steps]


def summary(cache: Cache, id: str | None) -> RolloutSummary:
    (found,) = cache.graph.summaries(id=id)
    return found


def test_the_transcript_has_every_call_in_order(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal", "task") as first:
            for command in ("echo 1 > f", "cat f", "false"):
                bash(first, command)
                settle(first)
        with cache.rollout("terminal", "task") as second:
            for command in ("echo 1 > f", "cat f", "false", "echo 2 > g"):
                bash(second, command)
                settle(second)
        steps = cache.graph.steps(str(first.id))
        assert told(steps) == [("echo 1 > f", "started", 0), ("cat f", "executed", 0), ("false", "executed", 1)]
        assert [step.place for step in steps] == [1, 2, 3]
        assert {step.note for step in steps} == {"it was not made in this state before"}
        assert [step.edge and step.edge.result.output for step in steps] == ["", "1\n", ""]
        assert [step.edge and step.edge.changed for step in steps] == [True, False, True]
        assert all(step.seconds > 0 for step in steps)
        steps = cache.graph.steps(str(second.id))
        assert [step.source for step in steps] == ["hit", "hit", "hit", "forked"]
        assert [step.note for step in steps[:3]] == [None] * 3
        assert (summary(cache, first.id).calls, summary(cache, first.id).hits, summary(cache, first.id).failing) == (
            *(3, 0, 1),
        )
        found = summary(cache, second.id)
        assert (found.calls, found.hits, found.failing, found.ended) == (4, 3, 1, "closed")
        assert found.seconds == pytest.approx(sum(step.seconds for step in steps))


def test_a_private_branch_is_told_too(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "x=1")
            rollout.sandbox().run("echo 2 > h", timeout=5)
            bash(rollout, "cat h")
            bash(rollout, "echo 3 > h")
            settle(rollout)
        steps = cache.graph.steps(str(rollout.id))
    assert [step.call and step.call.name for step in steps] == ["bash", "(outside)", "bash", "bash"]
    assert [step.place for step in steps] == [1, 2, 3, 4]
    private = "the rollout is private: changed from outside, in the sandbox that was given out"
    assert [step.note for step in steps[2:]] == [private, private]
    assert [step.edge and step.edge.result.output for step in steps[2:]] == ["2\n", ""]


def test_why_a_call_was_not_answered(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=NOT_PARKED) as cache:
        run(cache, "sleep 9", "echo $RANDOM > lost")
        (snapshot,) = cache.graph.snapshots()
        cache.graph.drop_snapshots([snapshot])
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo $RANDOM > lost")
            rollout.call("bash", {"command": "sleep 9"}, 1.0)
            settle(rollout)
        with cache.rollout("terminal") as again:
            again.call("bash", {"command": "sleep 9"}, 1.0)
            settle(again)
        notes = [step.note for step in cache.graph.steps(str(rollout.id))]
        assert notes[0] == "the state that it had led to is not kept, nor is it known to do the same each time"
        (step,) = cache.graph.steps(str(again.id))
        assert step.note == "it had taken longer than its timeout is now"


def test_a_call_that_came_to_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InfrastructureError("no room")

    with open_cache(tmp_path) as cache:
        rollout = cache.rollout("terminal")
        bash(rollout, "x=1")
        settle(rollout)
        monkeypatch.setattr(rollout._engine._executor, "execute", refuse)
        with pytest.raises(InfrastructureError, match="no room"), rollout:
            bash(rollout, "ls")
        steps = cache.graph.steps(str(rollout.id))
        assert [(step.source, step.note) for step in steps[1:]] == [("failed", "InfrastructureError: no room")]
        assert told(steps)[1][0] == "ls"
        found = summary(cache, rollout.id)
        assert (found.ended, found.failing, found.calls) == ("InfrastructureError: no room", 1, 2)
        assert [one.rollout.id for one in cache.graph.summaries(failed=True)] == [rollout.id]


def test_rewards_labels_and_epochs(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        with cache.rollout("terminal", "a", label="best", epoch=3) as rollout:
            bash(rollout, "echo 1 > f")
            assert rollout.grade("echo 0.25").reward == 0.25
            assert summary(cache, rollout.id).rollout.reward == 0.25
            (fork,) = rollout.fork()
            fork.close()
        rollout.record(1)
        record = summary(cache, rollout.id).rollout
        assert (record.reward, record.label, record.epoch, record.start) == (1.0, "best", 3, rollout.root)
        forked = summary(cache, fork.id).rollout
        assert (forked.label, forked.epoch, forked.start, forked.reward) == ("best", 3, record.state, None)
        with cache.resume(record.state, "b", epoch=4) as resumed:
            resumed.record(-1.0)
        assert [one.rollout.id for one in cache.graph.summaries()] == [resumed.id, fork.id, rollout.id]
        assert [one.rollout.id for one in cache.graph.summaries(failed=True)] == [resumed.id]
        assert [one.rollout.id for one in cache.graph.summaries(label="best", limit=1)] == [fork.id]
        assert [one.rollout.id for one in cache.graph.summaries(task="b", image="terminal")] == [resumed.id]
        assert cache.graph.summaries(since=record.started + 1e6) == []
        with pytest.raises(UsageError, match="reward must be a finite number"):
            rollout.record(float("nan"))
        with pytest.raises(UsageError, match="limit must be at most"):
            cache.graph.summaries(limit=1 << 63)
        with pytest.raises(UsageError, match="since must be a number"):
            cache.graph.summaries(since=float("nan"))
        with pytest.raises(UsageError, match="epoch must be a whole number"):
            cache.rollout("terminal", epoch=-1)


def test_rollouts_are_found_by_id_prefix_and_label(tmp_path: Path) -> None:
    with Graph(tmp_path / "tvsnap.db") as graph:
        root = add_root(graph)
        old, new = (graph.begin_rollout(task="t", image="terminal", root=root, label="one") for _ in range(2))
        assert graph.find_rollout(old.id) == old
        assert graph.find_rollout(old.id[:12].upper()) == old
        assert graph.find_rollout("one") == new
        assert graph.find_rollout("two") is None
        assert graph.find_rollout("") is None
        graph._change("UPDATE rollouts SET id = 'abcd' || substr(id, 5)", ())
        with pytest.raises(NotFound, match="abcd fits several rollouts"):
            graph.find_rollout("abcd")


def test_awaited_rollouts_are_told_too(tmp_path: Path) -> None:
    async def fail(rollout: AsyncRollout) -> None:
        async with rollout:
            await rollout.call("bash", {"command": "x=1"})
            raise ValueError("wrong\nway")

    async def work() -> tuple[str | None, str | None]:
        async with AsyncCache(tmp_path, backend=FakeBackend(), images=FakeImages()) as cache:
            async with cache.rollout("terminal", "t", label="l", epoch=0) as good:
                await good.call("bash", {"command": "x=1"})
                await good.record(0.5)
            bad = cache.rollout("terminal", "t")
            with pytest.raises(ValueError, match="wrong"):
                await fail(bad)
            return good.id, bad.id

    good, bad = asyncio.run(work())
    with Graph(tmp_path / "tvsnap.db") as graph:
        second, first = graph.summaries()
        assert (first.rollout.id, first.rollout.reward, first.rollout.epoch, first.ended) == (good, 0.5, 0, "closed")
        assert (second.rollout.id, second.ended, second.hits) == (bad, "ValueError: wrong way", 1)


def test_forgetting_takes_the_transcript_with_it(tmp_path: Path) -> None:
    with Graph(tmp_path / "tvsnap.db") as graph:
        root = add_root(graph)
        states = walk(graph, root, "a", "b", task="t")
        looked = look(graph, root, "ls", task="t")
        rollout = graph.begin_rollout(task="t", image="terminal", root=root).id
        edges = [*graph.lineage(states[-1]), looked]
        for place, edge in enumerate(edges, 1):
            step = StepRow(rollout, place, edge.id, "hit", 1.0, 0.1, 0.2, None, 0, False, None, None)
            graph.touch_hit(edge, "t", step)
        assert [step.call for step in graph.steps(rollout)] == [call("a"), call("b"), call("ls")]
        graph.forget(states[2])
        assert [step.call for step in graph.steps(rollout)] == [call("a"), call("ls")]
        graph.forget_task("t")
        assert graph.steps(rollout) == []
        assert graph._row("SELECT count(*) FROM steps") == (0,)


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from tests.fakes.caches import bash, open_cache, settle
    cache = open_cache(Path(sys.argv[1]))
    rollout = cache.rollout("terminal", "killed")
    for command in ("x=1", "y=2"):
        bash(rollout, command)
        settle(rollout)
    print(rollout.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_rollout_whose_process_was_killed_keeps_what_was_written(tmp_path: Path) -> None:
    code = textwrap.dedent(KILLED)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with open_cache(tmp_path) as cache:
        found = summary(cache, done.stdout.strip())
        assert (found.ended, found.calls) == ("process died", 2)
        assert told(cache.graph.steps(found.rollout.id)) == [("x=1", "started", 0), ("y=2", "executed", 0)]
        assert [one.rollout.id for one in cache.graph.summaries(failed=True)] == [found.rollout.id]
        last = cache.graph.steps(found.rollout.id)[-1].edge
        assert last is not None
        (listed,), named = cache.graph.rollouts(), cache.graph.find_rollout(found.rollout.id)
        assert named is not None
        assert last.next_state == found.rollout.state == listed.state == named.state != found.rollout.root


def test_a_damaged_reason_keeps_no_call_from_being_made(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        with cache.rollout("terminal") as rollout:
            rollout.call("bash", {"command": BUSY}, 0.1)  # it is not shared
            settle(rollout)
        cache.graph._change("UPDATE edges SET reason = CAST(X'ff' AS TEXT)", ())
        with cache.rollout("terminal") as again:
            assert again.call("bash", {"command": BUSY}, 0.1).source == "executed"
            settle(again)
        (step,) = cache.graph.steps(str(again.id))
        assert step.note == "its record cannot be read"
