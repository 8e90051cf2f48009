"""A cache within a budget: what is taken, what goes for it, what is told, and that rollouts go on in any case."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend, FakeSandbox, fake_image
from tests.fakes.caches import bash, eventually, open_cache, prove, settle, sources, threads
from tests.unit.cli_helpers import make_command_line, rollout_line
from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.engine.live_sandbox import LiveSandbox, Origin
from tvsnap.engine.supply.pool import SandboxPool
from tvsnap.graph import Snapshot
from tvsnap.host.disk import DiskSpace
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import InfrastructureError, NotCheckpointable, UsageError
from tvsnap.model.limits import MIB, Limits
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.upkeep.maintenance import plan_gc, run_gc

NOT_PARKED = Budget(parked=0)
BIG = "printf %01000d 0 > big"  # 1000 bytes


@pytest.mark.parametrize("wrong", [{"disk": -1}, {"snapshots": 1.5}, {"sandboxes": 0}, {"memory": True}])
def test_a_budget_of_nonsense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=rf"Budget\.{next(iter(wrong))} must be a whole number"):
        Budget(**wrong)


def run(cache: Cache, *commands: str) -> list[ToolResult]:
    """Makes a rollout of `bash` calls, each once all is done that the one before left to be done."""
    results = []
    with cache.rollout("terminal") as rollout:
        for command in commands:
            results.append(bash(rollout, command))
            settle(rollout)
    return results


def kept_commands(cache: Cache) -> list[str]:
    """Returns the commands that led to the states with a snapshot, sorted."""
    edges = [cache.graph.edge_to(snapshot.state) for snapshot in cache.graph.snapshots()]
    return sorted(str(edge.call.arguments["command"]) for edge in edges if edge is not None)


def test_what_is_dear_to_rebuild_drives_out_what_is_not(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=Budget(snapshots=2, parked=0)) as cache:
        run(cache, "sleep 1; echo 1 > f")
        run(cache, "sleep 5; echo 2 > f")
        assert cache.trouble is None
        run(cache, "sleep 9; echo 3 > f")
        eventually(lambda: len(backend.snapshots()) == 2)
        assert kept_commands(cache) == ["sleep 5; echo 2 > f", "sleep 9; echo 3 > f"]
        stats = cache.stats()
        assert (stats.evicted, stats.snapshots_refused, stats.checkpoints) == (1, 0, 3)
        results = run(cache, "sleep 1; echo 1 > f", "cat f")  # evicted, and so executed anew
        assert (sources(results), results[1].output) == (["executed", "executed"], "1\n")
        results = run(cache, "sleep 9; echo 3 > f", "cat f")
        assert (sources(results), results[1].output) == (["hit", "executed"], "3\n")


def test_what_is_worth_less_than_all_that_there_are_is_not_taken(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=Budget(snapshots=1, parked=0)) as cache:
        run(cache, "sleep 9; echo 1 > f")
        results = run(cache, "sleep 1; echo 2 > f", "cat f")
        assert results[1].output == "2\n"
        assert backend.counts["checkpoint"] == 1, "decided before the checkpoint"
        assert kept_commands(cache) == ["sleep 9; echo 1 > f"]
        assert re.search(r"take all of the budget \(.* 1 snapshots\)", str(cache.trouble))
        assert cache.stats().snapshots_refused >= 1
        # One that is worth it makes its way all the same, though others were refused just now.
        run(cache, "sleep 12; echo 3 > f")
        assert kept_commands(cache) == ["sleep 12; echo 3 > f"]
        assert cache.trouble is None


@pytest.mark.usefixtures("proofs_at_once")
def test_a_state_that_is_rebuilt_often_gets_its_place(tmp_path: Path) -> None:
    backend = FakeBackend()
    prove(tmp_path, backend, ["sleep 9; echo 1 > f"], ["sleep 3; echo 2 > f"])
    with open_cache(tmp_path, backend, policy="default", budget=Budget(snapshots=1, parked=0)) as cache:
        run(cache, "sleep 9; echo 1 > f", "cat f")
        assert kept_commands(cache) == ["sleep 9; echo 1 > f"]
        for number in range(8):
            run(cache, "sleep 3; echo 2 > f", f"echo {number}; cat f")
        assert kept_commands(cache) == ["sleep 3; echo 2 > f"]


def test_the_size_is_looked_at_before_and_after(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=Budget(disk=900, parked=0)) as cache:
        run(cache, "sleep 9; echo 1 > f")  # nothing tells how big it might be, and 1 MiB is more than there may be
        assert backend.counts["checkpoint"] == 0
        assert "more than the budget" in str(cache.trouble)
    with open_cache(tmp_path, backend, budget=Budget(disk=2 * MIB, parked=0)) as cache:
        run(cache, "sleep 9; echo 1 > f", "sleep 9; echo 2 > f")
        assert cache.graph.snapshot_usage("fake")[0] > 0
    with open_cache(tmp_path, backend, budget=Budget(disk=900, parked=0)) as cache:
        taken = backend.counts["checkpoint"]
        run(cache, "sleep 9; echo 1 > f", "sleep 9; echo 2 > f", f"sleep 9; {BIG}")  # thought to be as the one above
        assert backend.counts["checkpoint"] == taken + 1
        assert 0 < cache.graph.snapshot_usage("fake")[1] <= 900
        run(cache, "sleep 9; echo 1 > f", "sleep 9; echo 2 > f", f"sleep 9; {BIG}", "cat f")
        assert backend.counts["checkpoint"] == taken + 1, "it is known by now to be too big"
        eventually(lambda: len(backend.snapshots()) == len(cache.graph.snapshots()))


def test_opening_with_a_smaller_budget_evicts(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend) as cache:
        run(cache, "sleep 1; echo 1 > f", "sleep 2; echo 2 > f", "sleep 3; echo 3 > f")
    with open_cache(tmp_path, backend, budget=Budget(snapshots=1)) as cache:
        assert len(cache.graph.snapshots()) == 1
    assert len(backend.snapshots()) == 1


def test_what_was_kept_by_hand_stays(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=Budget(snapshots=1, parked=0)) as cache:
        run(cache, "sleep 99; echo 1 > f")
        with cache.rollout("terminal") as rollout:
            rollout.sandbox().write_file("/task/g", b"by hand")
            state = rollout.keep("what I did")
        assert [snapshot.state for snapshot in cache.graph.snapshots()] == [state], "a person's goes before any"
        run(cache, "sleep 99; echo 2 > f")
        assert [snapshot.state for snapshot in cache.graph.snapshots()] == [state]
        with cache.rollout("terminal") as rollout:
            rollout.sandbox().write_file("/task/g", b"again")
            with pytest.raises(NotCheckpointable, match="kept by hand"):
                rollout.keep("something else")


def test_a_disk_that_is_nearly_full_stops_snapshots(tmp_path: Path) -> None:
    with open_cache(tmp_path, budget=Budget(reserve=1 << 62)) as cache:
        assert run(cache, "echo 1 > f", "cat f")[1].output == "1\n"
        assert cache.graph.snapshots() == []
        assert f"on the disk of {tmp_path}" in str(cache.trouble)
        assert "Budget.reserve" in str(cache.trouble)
    with open_cache(tmp_path / "other", budget=Budget(reserve=0)) as cache:
        run(cache, "echo 1 > f")
        assert len(cache.graph.snapshots()) == 1


def test_a_fork_whose_snapshot_goes_meanwhile_is_begun_again(tmp_path: Path) -> None:
    """Whatever error the backend then meets: damaged, gone, or something else."""
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=NOT_PARKED) as cache:
        run(cache, "echo 1 > f", "echo 2 >> f")
        last = cache.graph.snapshots()[-1]

        def evict(_: FakeSandbox | None, id: str) -> None:
            if id == last.id and cache.graph.drop_snapshots([last]):
                raise InfrastructureError("what it read had gone")

        backend.hooks["fork"] = evict
        backend.commands.clear()
        assert run(cache, "echo 1 > f", "echo 2 >> f", "cat f")[2].output == "1\n2\n"
        assert backend.commands == ["echo 2 >> f", "cat f"], "from the one above, not from the root"


def test_two_processes_within_one_budget(tmp_path: Path) -> None:
    """Each takes and evicts; at no moment are there more rows than may be."""
    backend, done = FakeBackend(), threading.Event()
    budget = Budget(snapshots=3, parked=0)
    with (
        open_cache(tmp_path, backend, budget=budget) as one,
        open_cache(tmp_path, backend, budget=budget) as other,
        threads(7) as pool,
    ):

        def watch() -> int:
            most = 0
            while not done.is_set():
                most = max(most, one.graph.snapshot_usage("fake")[0])
            return most

        def work(number: int) -> list[str]:
            cache = one if number % 2 else other
            results = run(cache, f"sleep {number % 5}; echo {number % 7} > f", f"echo {number} >> f", "cat f")
            return results[2].output.split()

        watching = pool.submit(watch)
        working = [pool.submit(work, number) for number in range(60)]
        for number, future in enumerate(working):
            assert future.result(60) == [str(number % 7), str(number)]
        done.set()
        most = watching.result(60)
        rows = {snapshot.id for snapshot in one.graph.snapshots()}
        assert 1 <= most <= 3
    assert set(backend.snapshots()) == rows


class Scales:
    """A pool with a limit of memory, whose sandboxes weigh what a test says."""

    def __init__(self, memory: int, count: int = 10) -> None:
        self.backend = FakeBackend()
        self.pool = SandboxPool(Budget(sandboxes=count, memory=memory), patience=30.0)

    def open(self, weight: int = 0) -> LiveSandbox:
        live = self.pool.open(lambda: self.backend.start(fake_image(), Limits()), "s")
        live._sandbox = Weighed(live.sandbox, weight)  # type: ignore[assignment]
        return live

    def open_ahead(self) -> LiveSandbox | None:
        return self.pool.open_ahead(lambda: LiveSandbox(self.backend.start(fake_image(), Limits()), ""))

    def alive(self, live: LiveSandbox) -> bool:
        return live.sandbox.id in self.backend.live


class Weighed:
    """A sandbox of a certain weight."""

    def __init__(self, sandbox: Sandbox, weight: int) -> None:
        self._sandbox = sandbox
        self.weight = weight

    def __getattr__(self, name: str) -> object:
        return getattr(self._sandbox, name)

    def memory(self) -> int:
        return self.weight


def test_idle_sandboxes_are_closed_while_all_weigh_too_much() -> None:
    scales = Scales(memory=100)
    parked, resting, busy = scales.open(30), scales.open(30), scales.open(30)
    for live in (parked, resting):
        scales.pool.rest(live)
    scales.pool.claim(parked)
    scales.pool.park(parked)
    eventually(lambda: scales.pool.memory == 60 and scales.pool.parked == 1)
    busy.sandbox.weight = 60  # type: ignore[attr-defined]
    scales.pool.rest(busy)
    eventually(lambda: not scales.alive(parked))
    assert scales.alive(resting)
    scales.pool.claim(busy)
    busy.sandbox.weight = 90  # type: ignore[attr-defined]
    scales.pool.rest(busy)
    eventually(lambda: not scales.alive(resting))
    busy.sandbox.weight = 900  # type: ignore[attr-defined]
    scales.pool.claim(busy)
    scales.pool.rest(busy)
    assert scales.alive(busy), "one may be as heavy as it likes"
    scales.pool.close()


def test_who_needs_a_sandbox_waits_for_memory_while_others_work() -> None:
    scales = Scales(memory=100)
    one, two = scales.open(40), scales.open(40)
    for live in (one, two):
        scales.pool.rest(live)
        assert scales.pool.claim(live)
    with threads(1) as pool:
        waiting = pool.submit(scales.open, 40)
        eventually(lambda: inside.waiting(scales.pool))
        assert not waiting.done()
        assert scales.open_ahead() is None
        scales.pool.rest(one)  # its rollout thinks: it can be spared
        waiting.result(60)
    assert not scales.alive(one)
    assert scales.alive(two)
    scales.pool.close()


def test_nobody_waits_for_memory_that_nobody_will_free() -> None:
    scales = Scales(memory=100)
    held = [scales.open(60), scales.open(60)]
    for live in held:
        live.expendable = False
        scales.pool.rest(live)
    assert scales.alive(scales.open(60)), "in excess of the budget, as the others cannot be spared and do not work"
    assert all(scales.alive(live) for live in held)
    scales.pool.close()


def test_nothing_heavy_is_kept_ready() -> None:
    scales = Scales(memory=100)
    busy, ready = scales.open(), scales.open()
    busy.memory, ready.memory = 80, 10
    assert scales.pool.keep_ready(ready, Origin("image", Limits()))
    another = scales.open_ahead()
    assert another is None, "another of the usual weight would be too much"
    assert scales.pool.take_ready(Origin("image", Limits())) is ready
    ready.memory = 30
    assert not scales.pool.keep_ready(ready, Origin("image", Limits()))
    scales.pool.close()


def test_a_cache_within_little_memory_answers_as_ever(tmp_path: Path) -> None:
    budget = Budget(memory=11 * MIB, sandboxes=8)  # a fake sandbox weighs 5 MiB
    with open_cache(tmp_path, policy="never", budget=budget) as cache, threads(6) as pool:

        def work(number: int) -> str:
            with cache.rollout("terminal") as rollout:
                for step in range(4):
                    bash(rollout, f"echo {number}.{step} >> f")
                    settle(rollout)
                return bash(rollout, "cat f").output

        found = list(pool.map(work, range(12)))
        assert found == ["".join(f"{number}.{step}\n" for step in range(4)) for number in range(12)]
        eventually(lambda: cache.pool.memory <= 11 * MIB)


def test_snapshots_leave_half_of_the_disk_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened once more, they have as much; and a tenth of the whole disk is never theirs."""
    free, backend = 12 * MIB, FakeBackend()
    monkeypatch.setattr(DiskSpace, "on", lambda _, where: DiskSpace(where, free, 0, total=50 * MIB))
    with open_cache(tmp_path, backend) as cache:
        assert cache.budget.disk == 6 * MIB
        run(cache, BIG)
        (one,) = cache.graph.snapshots()
        free -= one.size
    with open_cache(tmp_path, backend) as cache:
        assert cache.budget.disk == 6 * MIB
        free = 4 * MIB
        run(cache, "cd /tmp")
        assert "5 MiB are to be left" in str(cache.trouble)
    with open_cache(tmp_path / "other", budget=Budget(disk=1 << 50)) as cache:
        assert cache.budget.disk == 1 << 50


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        assert (cache.budget.snapshots, cache.budget.memory) == (None, None)
        run(cache, *(f"echo {number} > f" for number in range(20)))
        assert len(cache.graph.snapshots()) == 20
        assert isinstance(cache.graph.snapshots()[0], Snapshot)


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = make_command_line(tmp_path, monkeypatch)
    file = tmp_path / "rollouts.jsonl"
    lines = [rollout_line(f"sleep {seconds}; echo x > f", "cat f", name=str(seconds)) for seconds in (3, 9, 1)]
    file.write_text("\n".join(lines))
    limits = ["--max-disk", "1.5M", "--max-snapshots", "1", "--max-memory", "8G", "--max-sandboxes", "2"]
    arguments = ["replay", str(file), "--image", "terminal", "--parallel", "1", "--policy", "eager", *limits]
    data = line.json(*arguments)
    assert {name: entry["limit"] for name, entry in data["budget"].items()} == {
        "disk": 3 << 19,
        "snapshots": 1,
        "memory": 8 << 30,
        "sandboxes": 2,
    }
    assert data["budget"]["snapshots"]["used"] == len(line.backend.snapshots()) == 1
    assert (data["evicted"], data["snapshots_refused"], data["failed"]) == (1, 1, [])
    assert "take all of the budget" in data["trouble"]
    stats = line.json("stats")
    assert (stats["evicted"], stats["snapshots_refused"], stats["snapshots"]) == (1, 1, 1)
    assert stats["free_bytes"] > stats["reserve_bytes"] > 0
    shown = line("stats").stdout
    assert "evicted" in shown
    assert "no snapshots are taken below" in shown
    assert line.error("run", "terminal", "-c", "true", "--max-disk", "much", status=2) == (
        '"much" is no size; write it as 500M or 2G'
    )


def test_a_living_rollout_is_graded_and_resumed_without_room_for_a_snapshot(tmp_path: Path) -> None:
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=Budget(snapshots=0, parked=0)) as cache:
        with cache.rollout("terminal") as rollout:
            bash(rollout, "echo $RANDOM > f")
            token = bash(rollout, "cat f").output
            with cache.materialise(rollout.state) as fork:
                assert fork.exec("cat f", timeout=5).output.decode() == token
                fork.exec("echo graded > f", timeout=5)
            with cache.resume(rollout.state) as other:
                assert bash(other, "cat f; echo on > f").output == token
            assert bash(rollout, "cat f").output == token
            left = rollout.state
            bash(rollout, "echo more > f")
            assert rollout._engine.fork_if_idle(left) is None, "it has gone on"
        assert backend.snapshots() == []


def test_what_rollouts_stand_on_does_not_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little it saves: nothing else leads them on. What finds no room answers nothing."""
    monkeypatch.setattr("tvsnap.engine.keeping.budgets.REFUSING", 0.0)
    backend = FakeBackend()
    with open_cache(tmp_path, backend, budget=Budget(snapshots=1, parked=0)) as cache:
        run(cache, "echo 1 > f")
        with cache.rollout("terminal") as rollout:
            assert bash(rollout, "echo 1 > f").source == "hit"
            for _ in range(2):
                assert sources(run(cache, "sleep 99; echo 2 > f")) == ["executed"]
            assert kept_commands(cache) == ["echo 1 > f"]
            assert re.search(r"budget \(.* 1 snapshots\)", str(cache.trouble))
            assert bash(rollout, "cat f").output == "1\n"
        run(cache, "sleep 99; echo 2 > f")
        assert kept_commands(cache) == ["sleep 99; echo 2 > f"]
        assert cache.trouble is None


def test_what_snapshots_share_is_counted_once(tmp_path: Path) -> None:
    """The size of each contains what it has in common with others; the budget is of what the disk really holds."""

    class Sharing(FakeBackend):
        def occupied(self) -> int:
            return 3 * MIB

    commands = [f"sleep 9; echo {number} > f" for number in range(8)]
    budget = Budget(disk=4 * MIB, parked=0)
    for backend, all_are_kept in ((FakeBackend(), False), (Sharing(), True)):
        home = tmp_path / str(all_are_kept)
        with open_cache(home, backend, budget=budget) as cache:
            run(cache, *commands)
            for snapshot in cache.graph.snapshots():
                cache.graph._change("UPDATE snapshots SET size = ? WHERE id = ?", (2 * MIB, snapshot.id))
        with open_cache(home, backend, budget=budget) as cache:
            assert (len(cache.graph.snapshots()) == len(commands)) is all_are_kept


@pytest.mark.parametrize(("limit", "kept"), [(5 * MIB, 8), (4 * MIB, 4), (MIB, 0)])
def test_gc_leaves_what_fits_where_snapshots_share(tmp_path: Path, limit: int, kept: int) -> None:
    """No more is deleted than must be, and so much that the rest fits: what they share does not become less."""

    class Sharing(FakeBackend):
        def occupied(self) -> int:
            return 3 * MIB + len(self.snapshots()) * MIB // 4

    backend = Sharing()
    with open_cache(tmp_path, backend, budget=Budget(parked=0)) as cache:
        run(cache, *(f"sleep 9; echo {number} > f" for number in range(8)))
        for snapshot in cache.graph.snapshots():
            cache.graph._change("UPDATE snapshots SET size = ? WHERE id = ?", (4 * MIB, snapshot.id))
    with open_cache(tmp_path, backend, budget=Budget(parked=0)) as again:
        plan = plan_gc(tmp_path, again.graph, backend, keep_bytes=limit)
        report = run_gc(tmp_path, again.graph, backend, plan)
        left = again.graph.snapshots()
        assert (len(left), len(backend.snapshots())) == (kept, kept)
        assert (len(report.evicted), report.kept_bytes) == (8 - kept, kept * 4 * MIB)
        assert report.taken_bytes == 3 * MIB + kept * MIB // 4
