"""What goes wrong below the cache: never a tool's output, never recorded, never the end of a rollout that can go on."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend, Faults
from tests.fakes.caches import (
    Gate,
    backend_of,
    bash,
    eventually,
    open_cache,
    prove,
    run,
    settle,
    sources,
    threads,
    writes,
)
from tvsnap import Budget
from tvsnap.engine.keeping import pauses, snapshotter
from tvsnap.engine.supply import rebuilding
from tvsnap.model.errors import (
    CheckpointFailed,
    ForkFailed,
    InfrastructureError,
    NoRoom,
    NotCheckpointable,
    NotRestorable,
    SandboxDied,
    SnapshotUnusable,
    StateLost,
)
from tvsnap.model.observations import Captures
from tvsnap.rollout import Rollout

NOT_PARKED = Budget(parked=0)


def test_a_sandbox_that_dies_is_rebuilt_once(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        backend.faults.fail("run", SandboxDied("killed"))
        assert bash(rollout, "cat f").output == "1\n"
        assert not rollout.private
        assert backend.counts["fork"] == 1
        backend.faults.fail("run", SandboxDied("killed"), times=2)
        with pytest.raises(InfrastructureError, match=r"died twice over .*echo 2 > f"):
            bash(rollout, "echo 2 > f")
        state = rollout.state
        assert cache.graph.leases() == []
        assert cache.graph.children(state) == []
        # The rollout stands where it stood.
        assert bash(rollout, "cat f").output == "1\n"
        assert bash(rollout, "echo 2 > f").source == "executed"


@pytest.mark.parametrize("operation", ["start", "run", "observe"])
def test_an_infrastructure_error_is_raised_and_not_recorded(tmp_path: Path, operation: str) -> None:
    backend = FakeBackend(faults=Faults().fail(operation, InfrastructureError("out of order")))
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
        with pytest.raises(InfrastructureError, match="out of order"):
            bash(rollout, "echo 1 > f")
        assert cache.graph.leases() == []
        assert cache.graph.out_edges(rollout.root) == []
        eventually(lambda: not backend.live)
        assert bash(rollout, "echo 1 > f; cat f").output == "1\n"


def test_a_sandbox_that_dies_after_a_call_is_the_end_of_its_state(tmp_path: Path) -> None:
    """Nobody looked at what the call left behind, and no other execution of it is the past of that."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            settle(rollout)
            backend.faults.fail("observe", SandboxDied("killed"))
            assert bash(rollout, "cat f").output == "1\n"
            assert rollout.depth == 2
            for _ in range(2):
                with pytest.raises(
                    StateLost, match=r"would leave the same behind again cannot be told; a rollout that is begun anew"
                ):
                    bash(rollout, "cat f")
            assert cache.graph.leases() == []
        assert sources(run(cache, "echo 1 > f", "cat f", "echo 2 > f")) == ["hit", "executed", "executed"]
        assert sources(run(cache, "echo 1 > f", "cat f", "echo 2 > f")) == ["hit", "hit", "hit"]


def test_a_full_disk_stops_snapshots_and_nothing_else(tmp_path: Path) -> None:
    error = NoRoom("the disk is full")
    backend = FakeBackend(faults=Faults().fail("checkpoint", error))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        assert [result.output for result in run(cache, "echo 1 > f", "cat f", "echo 2 >> f", "cat f")][1::2] == [
            "1\n",
            "1\n2\n",
        ]
        assert backend.counts["checkpoint"] == 1
        assert cache.trouble == str(error)
        results = run(cache, "echo 1 > f", "echo 2 >> f", "x=1; cat f")  # unkept, and so executed
        assert sources(results) == ["executed"] * 3
        assert results[2].output == "1\n2\n"
        inside.snapshot_again(cache)
        run(cache, "y=1")
        eventually(lambda: cache.trouble is None)
        assert cache.stats().checkpoints == 1
        assert sources(run(cache, "y=1", "echo 3 > f")) == ["hit", "executed"]


def test_a_state_that_cannot_be_checkpointed_answers_no_call_beyond_it(tmp_path: Path) -> None:
    backend = FakeBackend(captures=Captures(files=True, processes=False, shell=True))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "sleep 1000 &")
            state = rollout.state
            settle(rollout)
            assert "sleep 1000" in bash(rollout, "jobs").output, "its own sandbox stands there"
        assert "sleep 1000" in str(cache.refusal(state))
        assert cache.refusal(rollout.root) is None
        edge = cache.graph.edge_to(state)
        assert edge is not None
        assert "sleep 1000" in edge.refusals[cache.backend.name]
        backend.commands.clear()
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, "sleep 1000 &").source == "executed"
            assert rollout.state != state
            assert "sleep 1000" in bash(rollout, "jobs").output
        assert backend.commands == ["sleep 1000 &", "jobs"]
        with pytest.raises(StateLost, match="would leave the same behind again cannot be told"):
            cache.resume(state)
        with pytest.raises(StateLost), cache.materialise(state):
            pass


def test_a_sandbox_that_dies_over_its_checkpoint(tmp_path: Path) -> None:
    backend = FakeBackend(faults=Faults().fail("checkpoint", SandboxDied("killed")))
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        assert bash(rollout, "cat f").output == "1\n"
        assert not rollout.private


def test_what_the_same_calls_lead_to_is_not_tried_again(tmp_path: Path) -> None:
    """Each execution of what chance enters has a state of its own, but what stands in the way is the same."""
    one, two = "echo $RANDOM > f", "echo $RANDOM >> f"
    backend = FakeBackend(faults=Faults().fail("checkpoint", NotCheckpointable("never seen before"), times=9))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        run(cache, one, two)
        assert backend.counts["checkpoint"] == 2
        run(cache, one, "ls", two)
        with cache.rollout("terminal") as rollout:
            bash(rollout, one)
            settle(rollout)
            assert cache.refusal(rollout.state) == "never seen before"
        assert backend.counts["checkpoint"] == 2


def test_a_refusal_that_cannot_be_noted_fails_no_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend(faults=Faults().fail("checkpoint", NotCheckpointable("never seen before"), times=9))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:

        def full(*_: object) -> None:
            raise InfrastructureError("the disk is full")

        monkeypatch.setattr(cache.graph, "note_refusal", full)
        for _ in range(2):  # the second knows of it
            assert run(cache, "echo $RANDOM > f", "test -s f")[1].exit_code == 0


def test_what_the_same_calls_lead_to_does_not_end_each_rollout(tmp_path: Path) -> None:
    backend = FakeBackend(faults=Faults().fail("checkpoint", SandboxDied("killed"), times=9))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo $RANDOM > f")
            with pytest.raises(StateLost):
                bash(rollout, "cat f")
        assert run(cache, "echo $RANDOM > f", "test -s f")[1].exit_code == 0
        assert backend.counts["checkpoint"] == 1


def test_a_damaged_snapshot_is_dropped_and_the_next_way_taken(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        run(cache, "echo 1 > f", "echo 2 >> f")
        backend.faults.fail("fork", SnapshotUnusable("damaged"))
        backend.commands.clear()
        assert run(cache, "echo 1 > f", "echo 2 >> f", "cat f")[2].output == "1\n2\n"
        assert backend.commands == ["echo 2 >> f", "cat f"]
        # It was rebuilt at a price, and so has a snapshot again.
        assert len(cache.graph.snapshots()) == len(backend.snapshots()) == 2
        backend.faults.fail("fork", SnapshotUnusable("damaged"), times=2)
        assert run(cache, "echo 1 > f", "echo 2 >> f", "ls")[2].output == "f\n"


@pytest.mark.parametrize("error", [InfrastructureError("no memory"), ForkFailed("no memory")])
def test_a_fork_that_fails_otherwise_is_got_around(tmp_path: Path, error: Exception) -> None:
    """The snapshot may be sound: it is kept however often that happens, and the state is replayed from the root."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        run(cache, "echo 1 > f", "echo 2 >> f")
        eventually(lambda: len(cache.graph.snapshots()) == 2)
        kept = set(backend.snapshots())
        for last in ("cat f", "cat f; :", "cat f; : again"):
            backend.faults.fail("fork", error)
            backend.commands.clear()
            assert run(cache, "echo 1 > f", "echo 2 >> f", last)[2].output == "1\n2\n"
            assert backend.commands == ["echo 1 > f", "echo 2 >> f", last]
            assert set(backend.snapshots()) == {snapshot.id for snapshot in cache.graph.snapshots()} == kept
        backend.commands.clear()
        run(cache, "echo 1 > f", "echo 2 >> f", "ls")
        assert backend.commands == ["ls"]
        backend.faults.fail("fork", InfrastructureError("no memory")).fail("start", InfrastructureError("none at all"))
        with pytest.raises(InfrastructureError, match="no memory"):
            run(cache, "echo 1 > f", "pwd")


def test_a_snapshot_that_can_never_be_brought_back_answers_nothing(tmp_path: Path) -> None:
    backend = FakeBackend()
    chance = "echo $RANDOM > f; cat f"
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        shown = run(cache, chance)[0].output
        backend.faults.fail("fork", NotRestorable("CRIU: never seen before"))
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, chance).output == shown
            with pytest.raises(StateLost, match="can no longer be reached"):
                bash(rollout, "cat f")
            assert "never seen before" in str(cache.refusal(rollout.state))
        assert not list(backend.snapshots())
        assert not cache.graph.snapshots()
        one, two = run(cache, chance, "cat f")
        assert (one.source, one.output) == ("executed", two.output)


def test_what_was_kept_by_hand_is_not_dropped_because_it_cannot_be_brought_back(tmp_path: Path) -> None:
    """Not here and now; perhaps elsewhere, or by a later version."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            rollout.sandbox().run("echo 1 > f", timeout=5)
            kept = rollout.keep("by hand")
        backend.faults.fail("fork", NotRestorable("CRIU: never seen before"))
        with pytest.raises(InfrastructureError), cache.materialise(kept):
            pass
        with cache.materialise(kept) as sandbox:
            assert sandbox.read_file("/task/f") == b"1\n"


@pytest.mark.parametrize(
    "error", [CheckpointFailed("No space left"), InfrastructureError("strange"), OSError(errno.ENOSPC, "no room")]
)
def test_trouble_in_one_sandbox_stops_its_own_snapshots_only(tmp_path: Path, error: Exception) -> None:
    """What CRIU says may be what the sandbox made it say."""
    backend = FakeBackend(faults=Faults().fail("checkpoint", error, times=1))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        run(cache, "echo 1 > f", "echo 2 > f")
        assert (backend.counts["checkpoint"], cache.stats().checkpoints) == (1, 0)
        assert cache.trouble == str(error)
        run(cache, "echo 3 > f")
        eventually(lambda: cache.stats().checkpoints == 1)
        assert cache.trouble is None


def test_trouble_of_several_tasks_in_a_row_stops_all_snapshots(tmp_path: Path) -> None:
    backend = FakeBackend(faults=Faults().fail("checkpoint", CheckpointFailed("few descriptors"), times=9))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        for number in range(pauses.INDEPENDENT + 2):
            run(cache, f"echo {number} > f", f"echo {number} >> f", task=f"task {number}")
        assert backend.counts["checkpoint"] == pauses.INDEPENDENT


def test_trouble_of_one_task_stops_its_own_snapshots_only(tmp_path: Path) -> None:
    """However many sandboxes it has: they run the same programs, which may make checkpoints fail."""
    trouble = CheckpointFailed("few descriptors")
    backend = FakeBackend(faults=Faults().fail("checkpoint", trouble, times=pauses.INDEPENDENT))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        for number in range(pauses.INDEPENDENT + 2):
            run(cache, f"echo {number} > f", f"echo {number} >> f", task="hostile")
        assert backend.counts["checkpoint"] == pauses.INDEPENDENT
        run(cache, "echo honest > f", task="honest")
        assert cache.stats().checkpoints == 1


def test_trouble_of_several_causes_is_not_the_machine_s(tmp_path: Path) -> None:
    several = pauses.Pauses()
    for number in range(2 * pauses.INDEPENDENT):
        several.failed(f"sandbox {number}", f"task {number}", f"cause {'x' * number}")
    assert not several.hold("another", "another")
    for number in range(pauses.INDEPENDENT):
        several.failed(f"sandbox {number}", f"task {number}", f"process {number} is in the way")
    assert several.hold("another", "another")


def test_a_snapshot_that_succeeds_between_them_shows_that_it_is_not_the_machine(tmp_path: Path) -> None:
    several = pauses.Pauses()
    for number in range(2 * pauses.INDEPENDENT):
        several.failed(f"hostile {number}", f"task {number}", "trouble")
        several.succeeded("honest", "task")
        several.failed("hostile", "hostile", "trouble")
    assert not several.hold("honest", "task")
    assert several.hold("hostile", "hostile")


def test_trouble_of_the_machine_is_not_held_against_a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "SHORTEST_PAUSE", 0.05)
    backend = FakeBackend(faults=Faults().fail("checkpoint", CheckpointFailed("too many descriptors"), times=2))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            settle(rollout)
            state = rollout.state
        edge = cache.graph.edge_to(state)
        assert edge is not None
        assert (cache.trouble, cache.refusal(state), edge.refusals) == ("too many descriptors", None, {})
        eventually(lambda: run(cache, "echo 1 > f", "ls", f"cat f; : {time.monotonic()}") and cache.graph.snapshots())
        assert cache.trouble is None


def test_a_reason_with_a_name_that_is_no_text_fails_no_call(tmp_path: Path) -> None:
    backend = FakeBackend(faults=Faults().fail("checkpoint", NotCheckpointable("is in /root/na\udcffme"), times=1))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        settle(rollout)
        edge = cache.graph.edge_to(rollout.state)
        assert edge is not None
        assert list(edge.refusals.values()) == ["is in /root/na\\udcffme"]
        assert bash(rollout, "cat f").output == "1\n"


def test_a_refusal_is_forgotten_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend(faults=Faults().fail("checkpoint", NotCheckpointable("never seen before"), times=1))
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo 1 > f")
            settle(rollout)
            state = rollout.state
        run(cache, "echo 1 > f", "ls; :")
        assert (cache.refusal(state), backend.counts["checkpoint"]) == ("never seen before", 1)
        monkeypatch.setattr(snapshotter, "FORGOTTEN_AFTER", 0.0)
        assert cache.refusal(state) is None
        run(cache, "echo 1 > f", "ls; : again")
        eventually(lambda: cache.graph.snapshot(state, "fake") is not None)


@pytest.mark.usefixtures("proofs_at_once")
def test_a_replay_that_takes_too_long_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend()
    prove(tmp_path, backend, ["sleep 0.2; echo 1 > f; echo done", "cat f"])
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        with monkeypatch.context() as hurry:
            hurry.setattr(rebuilding, "REBUILD_TIMEOUT", 0.05)
            hurry.setattr(rebuilding, "SLOWER", 0.1)
            with pytest.raises(InfrastructureError, match="did not end within"):
                run(cache, "sleep 0.2; echo 1 > f; echo done", "ls")
        replayed = run(cache, "sleep 0.2; echo 1 > f; echo done", "ls")
        assert (sources(replayed), replayed[1].output) == (["hit", "executed"], "f\n")


@pytest.mark.usefixtures("proofs_at_once")
def test_a_sandbox_that_dies_in_a_replay(tmp_path: Path) -> None:
    backend = FakeBackend()
    prove(tmp_path, backend, ["echo 1 > f", "echo 2 >> f"])
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        backend.faults.fail("run", SandboxDied("killed"), after=1)
        assert run(cache, "echo 1 > f", "echo 2 >> f", "cat f")[2].output == "1\n2\n"
        assert len(cache.graph.leases()) == 0


def test_an_interrupt_records_nothing_and_leaves_no_lease(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        settle(rollout)
        for operation in ("run", "fork"):  # in a call; while its sandbox is being rebuilt
            backend.faults.fail(operation, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                bash(rollout, "echo 2 >> f")
            assert cache.graph.leases() == []
            assert cache.graph.children(rollout.state) == []
            eventually(lambda: not backend.live)
        assert bash(rollout, "echo 2 >> f; cat f").output == "1\n2\n"


def test_who_waits_for_one_that_is_interrupted_takes_its_place(tmp_path: Path) -> None:
    gate = Gate("make")
    backend = FakeBackend(hooks={"run": gate}, faults=Faults().fail("run", KeyboardInterrupt()))
    with open_cache(tmp_path, backend) as cache, threads(4) as pool:
        first = pool.submit(run, cache, "make")
        assert gate.arrived.wait(60)
        others = [pool.submit(run, cache, "make") for _ in range(3)]
        eventually(lambda: len(inside.rollouts(cache)) == 4)
        gate.open.set()
        with pytest.raises(KeyboardInterrupt):
            first.result(60)
        results = [other.result(60) for other in others]
    found = sources([result[0] for result in results])
    assert sorted(found).pop() == "executed"
    assert set(sorted(found)[:2]) <= {"coalesced", "hit"}  # one that arrives late need not wait
    assert gate.passed == 2


def test_a_graph_that_cannot_be_written_does_not_fail_a_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        settle(rollout)
        with monkeypatch.context() as patch:
            patch.setattr(cache.graph, "record", failing)
            assert bash(rollout, "echo 2 >> f").source == "executed"
            assert rollout.private == "could not be recorded: no room left on the disk"
        assert bash(rollout, "cat f").output == "1\n2\n"
        assert cache.graph.leases() == []
    with open_cache(tmp_path, backend) as cache:
        assert sources(run(cache, "echo 1 > f", "echo 2 >> f")) == ["hit", "executed"]


def test_a_rollout_begins_and_ends_though_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_cache(tmp_path) as cache:
        run(cache, "x=1")
        with monkeypatch.context() as patch:
            for name in ("begin_rollout", "end_rollout", "claim", "record", "flush", "add_snapshot"):
                patch.setattr(cache.graph, name, failing)
            results = run(cache, "echo 1 > f", "cat f", "x=1; cat f")
            assert [result.output for result in results] == ["", "1\n", "1\n"]
            patch.setattr(cache.graph, "begin_rollout", lambda **options: cache.graph.rollouts()[0])
            with cache.rollout("terminal") as rollout:
                assert bash(rollout, "x=1").source == "hit"
                assert bash(rollout, "y=1").source == "executed"
                assert "no room left" in str(rollout.private)
            cache.close()
    assert backend_of(cache).live == {}


def failing(*arguments: object, **options: object) -> None:
    raise InfrastructureError("no room left on the disk")


def test_a_snapshot_without_a_row_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_cache(tmp_path) as cache:
        monkeypatch.setattr(cache.graph, "add_snapshot", failing)
        run(cache, "echo 1 > f")
        assert backend_of(cache).snapshots() == []


def test_opening_makes_rows_and_files_of_snapshots_agree(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        run(cache, "echo 1 > f", "echo 2 >> f")
    one, two = backend.snapshots()
    backend.delete_snapshot(two)
    backend.kept["stray"] = backend.kept[one]
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        assert backend.snapshots() == [one]
        assert [snapshot.id for snapshot in cache.graph.snapshots()] == [one]
        # A snapshot without a row may be one that a live process has just taken.
        stray = f"{cache.owner}.stray"
        backend.kept[stray] = backend.kept[one]
        with open_cache(tmp_path, backend):
            assert set(backend.snapshots()) == {one, stray}
    with open_cache(tmp_path, backend):
        assert backend.snapshots() == [one]


def test_the_death_of_a_graders_sandbox_is_got_over(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        rollout.sandbox().close()
        assert bash(rollout, "cat f").output == "1\n"
        assert not rollout.private


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rollout: rollout.call("bash", {"command": 1}),
        lambda rollout: bash(rollout, "make", timeout=-1),
    ],
)
def test_a_refused_call_holds_nothing(tmp_path: Path, spoil: Callable[[Rollout], object]) -> None:
    with open_cache(tmp_path) as cache, cache.rollout("terminal") as rollout:
        with pytest.raises(Exception, match="must be"):
            spoil(rollout)
        assert cache.graph.leases() == []
        assert not inside.calls_under_way(cache)


def test_a_mistake_of_ours_is_told_by_the_next_call(tmp_path: Path) -> None:
    backend = FakeBackend(faults=Faults().fail("checkpoint", NotCheckpointable("a job is stopped")))
    with open_cache(tmp_path, backend) as cache:
        rollout = cache.rollout("terminal")
        bash(rollout, "x=1")
        settle(rollout)
        backend.faults.fail("observe", ValueError("a mistake"))
        bash(rollout, "y=1")
        with pytest.raises(ValueError, match="a mistake"):
            bash(rollout, "z=1")
        assert cache.graph.leases() == []
        with pytest.raises(ValueError, match="a mistake"):
            rollout.close()
    assert backend.live == {}


def test_what_a_full_disk_may_have_caused_is_not_shared(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        backend.trouble = "the disk is nearly full"
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, "echo 1 > f").source == "executed"
            assert rollout.private == "may have failed by no fault of its own: the disk is nearly full"
            assert bash(rollout, "cat f").output == "1\n"
        assert cache.graph.out_edges(rollout.root)[0].shared is False
        backend.trouble = ""
        assert sources(run(cache, "echo 1 > f", "cat f")) == ["executed", "executed"]
        assert sources(run(cache, "echo 1 > f", "cat f")) == ["hit", "hit"]


@pytest.mark.usefixtures("proofs_at_once")
def test_what_a_full_disk_may_have_caused_is_no_difference(tmp_path: Path) -> None:
    """A replay that fails for want of room says nothing about the call."""
    backend = FakeBackend()
    make = "cat big 2> /dev/null || echo made; x=1"
    prove(tmp_path, backend, [make, "y=1"])
    with open_cache(tmp_path, backend, policy="never", budget=NOT_PARKED) as cache:
        backend.trouble = "the disk is nearly full"
        backend.hooks["run"] = writes("/task/big", b"no room left on device\n")
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, make).source == "hit"
            with pytest.raises(InfrastructureError, match="made again as it was recorded: the disk is nearly full"):
                bash(rollout, "x=2")
            assert bash(rollout, "y=1").source == "hit", "it stands where it stood"
        backend.trouble = ""
        backend.hooks.clear()
        assert sources(run(cache, make, "x=2")) == ["hit", "executed"]


def test_a_sandbox_on_a_damaged_disk_is_rebuilt(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
        bash(rollout, "echo 1 > f")
        settle(rollout)

        def break_the_disk(*_: object) -> None:
            backend.hooks.clear()
            backend.faults.fail("trouble", SandboxDied("the disk returned errors"))

        backend.hooks["run"] = break_the_disk
        assert bash(rollout, "cat f").output == "1\n"
        assert rollout.private is None
        assert backend.commands == ["echo 1 > f", "cat f", "cat f"]


def test_a_disk_that_was_full_only_when_the_call_began(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
        backend.trouble = "the disk is nearly full"
        backend.hooks["run"] = lambda *_: setattr(backend, "trouble", None)
        assert bash(rollout, "echo 1 > f").source == "executed"
        assert rollout.private == "may have failed by no fault of its own: the disk is nearly full"


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """Nothing waits for the clock to come back, and no owner, lease or snapshot ends by it."""
    real = time.time
    backend = FakeBackend(command_duration=2.0)  # long enough for others to wait for a snapshot that is on its way
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        gate = Gate("make")
        backend.hooks["run"] = gate
        run(cache, "echo 1 > f")
        with open_cache(tmp_path, backend) as beside, threads(2) as pool:
            making = pool.submit(run, cache, "make")
            assert gate.arrived.wait(60)
            monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
            # The lease of the one that makes it holds all the same.
            waiting = pool.submit(run, beside, "make")
            eventually(lambda: len(inside.rollouts(beside)) == 1)
            assert len(cache.graph.leases()) == 1
            gate.open.set()
            made = [each.result(60)[0] for each in (making, waiting)]
            assert made[0].source == "executed"
            assert made[1].source in ("coalesced", "hit"), "a hit, if it came to look only now"
        assert sources(run(cache, "echo 1 > f", "cat f")) == ["hit", "executed"]
        assert run(cache, "echo 1 > f", "cat f; :")[1].output == "1\n"
        cache.stats()
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        run(cache, "echo 2 > f", "cat f")
        monkeypatch.setattr(time, "time", lambda: real() - 2 * hours * 3600)
        assert [result.output for result in run(cache, "echo 2 > f", "cat f; x=1")] == ["", "2\n"]
    kept = len(backend.snapshots())
    assert kept >= 1
    with open_cache(tmp_path, backend) as cache:
        assert len(backend.snapshots()) == len(cache.graph.snapshots()) == kept


def test_no_call_waits_for_snapshots_of_many_processes(tmp_path: Path) -> None:
    """What stands beside one job is kept at once; beside 60, the next call would wait for it."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="default") as cache, cache.rollout("terminal") as rollout:
        for command in ("sleep 1000 &", "echo 1 > f"):
            bash(rollout, command)
        settle(rollout)
        assert backend.counts["checkpoint"] == 2
        for command in ("sleep 1000 & " * 60, "echo 2 > f"):
            bash(rollout, command)
        settle(rollout)
        assert backend.counts["checkpoint"] == 2


def test_one_slow_snapshot_beside_a_job_does_not_end_all_sharing(tmp_path: Path) -> None:
    """Two in a row do, as the next one would be slow, too."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend, policy="default") as cache, cache.rollout("terminal") as rollout:
        counts = []
        for number, seconds in enumerate((0.0, 0.4, 0.0, 0.4, 0.4, 0.0)):
            backend.delays["checkpoint"] = seconds
            bash(rollout, f"sleep 1000 & echo {number} > f" if number == 0 else f"echo {number} > f")
            settle(rollout)
            counts.append(backend.counts["checkpoint"])
        assert counts == [1, 2, 3, 4, 5, 5]
