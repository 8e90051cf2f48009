"""A fleet of real servers, of which some are killed: all rollouts end right, or say that their past is lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import Block, blocks
from tests.homes import with_images_of
from tests.server.conftest import Server, server_home, start
from tvsnap import UsageError, Verifier
from tvsnap.cache import Cache
from tvsnap.errors import NotFound, StateLost
from tvsnap.graph import PROOF_APART
from tvsnap.plugins.client import connection, liveness, transport
from tvsnap.plugins.client.wire.errors import Unreachable
from tvsnap.plugins.fleet import AsyncFleet, Fleet, FleetRollout

__all__ = ["server_home"]

NOWHERE = "http://127.0.0.1:9"


@contextlib.contextmanager
def servers(count: int, server_home: Path, folder: Path) -> Iterator[list[Server]]:
    """Servers on data directories of their own, which share images."""
    started: list[Server] = []
    try:
        for number in range(count):
            home = with_images_of(server_home, folder / f"node-{number}")
            started.append(start(home))
        yield started
    finally:
        for number, server in enumerate(started):
            if server.process.poll() is None:
                assert server.stop() == 0
            else:  # it was killed: what it left behind goes when its data directory is opened again
                Cache(folder / f"node-{number}").close()


@pytest.fixture(scope="module")
def three(server_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with servers(3, server_home, tmp_path_factory.mktemp("fleet")) as started:
        yield started


@pytest.fixture
def fleet(three: list[Server]) -> Iterator[Fleet]:
    with Fleet(server.url for server in three) as fleet:
        yield fleet
    assert sum(node.rollouts for node in fleet.nodes) == 0


def bash(rollout: FleetRollout, command: str, timeout: float = 20.0) -> str:
    return rollout.call("bash", {"command": command}, timeout).output


def kill(fleet: Fleet, started: list[Server], url: str) -> None:
    (server,) = (each for each in started if each.url == url)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()


def test_a_task_is_at_one_server(fleet: Fleet) -> None:
    places: set[str] = set()
    for source in ("executed", "executed", "hit"):
        time.sleep(PROOF_APART if places else 0)
        with fleet.rollout("terminal", "one task") as rollout:
            result = rollout.call("bash", {"command": "echo 1 > /tmp/f; echo done"})
            assert result.output == "done\n"
            assert source == "executed" or result.source == "hit"
            places.add(rollout.url)
            state = rollout.state
            assert rollout.depth == 1
    assert len(places) == 1
    with fleet.materialise(state) as sandbox:
        assert sandbox.run("cat /tmp/f", timeout=20).output == b"1\n"
    with fleet.fork(state, 2) as forks:
        assert [each.run("cat /tmp/f", timeout=20).output for each in forks] == [b"1\n"] * 2
    with pytest.raises(NotFound, match="no server of the fleet"):
        fleet.fork("0" * 64)
    used = [url for url, stats in fleet.stats_by_server().items() if stats.rollouts]
    assert places <= set(used)


def test_tasks_are_dealt_out_and_a_large_one_spreads(three: list[Server]) -> None:
    with Fleet((server.url for server in three), spread=2) as fleet:
        group = fleet.group("terminal", "large", 5)
        places = [rollout.url for rollout in group]
        assert len(set(places[:2])) == 1
        assert len(set(places)) == 3
        for rollout in group:
            rollout.close()
            rollout.close()
        assert {node.rollouts for node in fleet.nodes} == {0}
        with fleet.rollout("terminal", "large") as again:
            assert again.url == places[0]


def test_a_server_that_is_not_there_is_passed_over(three: list[Server]) -> None:
    with Fleet([NOWHERE, three[0].url]) as fleet:
        for number in range(8):
            with fleet.rollout("terminal", f"task {number}") as rollout:
                assert bash(rollout, "echo there") == "there\n"
                assert rollout.url == three[0].url
        lost = {node.url: node.lost for node in fleet.nodes}
        assert lost[NOWHERE]
        assert lost[three[0].url] is None
        fleet.remove(NOWHERE)
        with pytest.raises(UsageError, match="at least one"):
            fleet.remove(three[0].url)
        with pytest.raises(NotFound):
            fleet.remove(NOWHERE)
        with pytest.raises(UsageError, match="already"):
            fleet.add(three[0].url)
    with Fleet([NOWHERE]) as fleet, pytest.raises(Unreachable, match="no server"):
        fleet.rollout("terminal")
    with pytest.raises(UsageError, match="closed"):
        fleet.rollout("terminal")
    with pytest.raises(UsageError, match="closed"):
        fleet.add("http://127.0.0.1:10")
    with pytest.raises(UsageError, match="at least one server"):
        Fleet([])
    for wrong in ("http://127.0.0.1:1", None, [None], ["ftp://x"], ["nonsense"], ["http://a:1", "http://a:1/"]):
        with pytest.raises(UsageError):
            Fleet(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="patience"):
        Fleet([NOWHERE], patience=-1)


CALLS = (
    "cd /tmp; A=1; echo begin > f",
    "sleep 0.3; echo $A >> f",
    "(while :; do sleep 0.1; done) & A=$((A + {number}))",
    "echo $A >> f; cat f",
    "seq 3 | paste -sd+; jobs -p | wc -l",
)


def shown(rollout: FleetRollout, place: int, number: int) -> str:
    """Makes one of the calls; returns what it printed but what bash tells of jobs, whose ids are not the same."""
    said = bash(rollout, CALLS[place].replace("{number}", str(number)), 60.0)
    return "".join(line for line in said.splitlines(keepends=True) if not line.startswith("["))


def test_a_server_that_is_killed_in_the_middle_of_an_epoch(server_home: Path, tmp_path: Path) -> None:
    """All rollouts end, and each has seen what it would have seen alone."""
    with servers(3, server_home, tmp_path) as started, Fleet(server.url for server in started) as fleet:
        half, made = threading.Event(), threading.Semaphore(0)

        def attempt(number: int) -> tuple[list[str], float, int, set[str]]:
            with fleet.rollout("terminal", f"task {number % 6}") as rollout:
                places, seen = {rollout.url}, []
                for place in range(len(CALLS)):
                    if place == 3:
                        made.release()
                        half.wait(60)
                    seen.append(shown(rollout, place, number % 3))
                grade = rollout.grade(Verifier(f"grep -qx {1 + number % 3} /tmp/f && echo 1"))
                rollout.record(grade.reward)
                places.add(rollout.url)
                return seen, grade.reward, rollout.moves, places

        with ThreadPoolExecutor(12) as pool:
            running = [pool.submit(attempt, number) for number in range(12)]
            for _ in range(12):
                assert made.acquire(timeout=120)
            victim = max(fleet.nodes, key=lambda node: node.rollouts).url
            kill(fleet, started, victim)
            half.set()
            found = [each.result(180) for each in running]
        for number in range(3):
            with fleet.rollout("terminal", f"alone {number}") as alone:
                expected = [shown(alone, place, number) for place in range(len(CALLS))]
            assert expected[3] == f"begin\n1\n{1 + number}\n"
            assert all(seen == expected for seen, _, _, _ in found[number::3])
        assert {reward for _, reward, _, _ in found} == {1.0}
        moved = [moves for _, _, moves, places in found if victim in places]
        assert moved
        assert all(moves == 1 for moves in moved)
        with fleet.rollout("terminal", "task 0") as later:
            assert later.url != victim
            assert bash(later, "echo later") == "later\n"


def test_a_past_that_cannot_be_made_again_is_lost(server_home: Path, tmp_path: Path) -> None:
    with servers(2, server_home, tmp_path) as started, Fleet(server.url for server in started) as fleet:
        drawn, given, kept = (fleet.rollout("terminal", "one") for _ in range(3))
        bash(drawn, "head -c 8 /dev/urandom | od -An -tx1")
        (tmp_path / "file").write_text("x")
        given.put(tmp_path / "file", "/tmp/file")
        kept.put(b"bytes", "/tmp/bytes")
        assert [one.output for one in kept.exec_all(["cat /tmp/bytes", "echo 2"])] == ["bytes", "2\n"]
        assert len({drawn.url, given.url, kept.url}) == 1
        kill(fleet, started, kept.url)
        with pytest.raises(StateLost, match=r"its step 1, made again at .*, came to something else"):
            bash(drawn, "echo more")
        with pytest.raises(StateLost, match=r"its step 1 cannot be made again at .*, as it put a file"):
            bash(given, "cat /tmp/file")
        with pytest.raises(StateLost, match="its step 1 cannot be made again"):
            given.record(1.0)
        assert bash(kept, "cat /tmp/bytes") == "bytes"
        assert kept.moves == 1
        for rollout in (drawn, given, kept):
            rollout.close()
        assert {node.rollouts for node in fleet.nodes} == {0}


def test_a_call_that_is_under_way_is_made_elsewhere(server_home: Path, tmp_path: Path) -> None:
    with (
        servers(2, server_home, tmp_path) as started,
        Fleet(server.url for server in started) as fleet,
        fleet.rollout("terminal", "slow") as rollout,
    ):
        bash(rollout, "echo 1 > /tmp/f")
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(bash, rollout, "sleep 3; cat /tmp/f", 60.0)
            time.sleep(1)
            kill(fleet, started, rollout.url)
            assert slow.result(120) == "1\n"
        assert rollout.moves == 1


@pytest.mark.parametrize("block", [each for each in blocks("python") if each.mark == "fleet"], ids=str)
def test_examples_of_the_guide(block: Block, three: list[Server]) -> None:
    text = block.text
    for number, server in enumerate(three[:2], 1):
        text = text.replace(f"http://sandboxes-{number}:8420", server.url)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert any(server.url in ran.stdout for server in three[:2])


def test_forks_and_rollouts_that_began_at_a_state_move_too(server_home: Path, tmp_path: Path) -> None:
    with servers(2, server_home, tmp_path) as started, Fleet(server.url for server in started) as fleet:
        with fleet.rollout("terminal", "one") as rollout:
            bash(rollout, "echo 1 > /tmp/f; X=here")
            assert rollout.get("/tmp/f").read() == b"1\n"
            forks = rollout.fork(2)
            for number, fork in enumerate(forks):
                bash(fork, f"echo {number} >> /tmp/f")
            resumed = fleet.resume(rollout.state)
            (one,) = fleet.fork(rollout.state, as_rollouts=True)
            assert sum(node.rollouts for node in fleet.nodes) == 5
            kill(fleet, started, rollout.url)
            for number, fork in enumerate(forks):
                assert bash(fork, "cat /tmp/f; echo $X") == f"1\n{number}\nhere\n"
                assert fork.moves == 1
                fork.get("/tmp/f", tmp_path / f"got-{number}")
                assert (tmp_path / f"got-{number}").read_text() == f"1\n{number}\n"
            assert bash(rollout, "cat /tmp/f") == "1\n"
            # The forks have made the calls at the other server, which knows the state since.
            assert bash(resumed, "cat /tmp/f") == "1\n"
            one.close()
            resumed.close()
            forks.close()
        assert {node.rollouts for node in fleet.nodes} == {0}


def test_a_state_that_no_other_server_knows_is_lost(server_home: Path, tmp_path: Path) -> None:
    with servers(2, server_home, tmp_path) as started, Fleet(server.url for server in started) as fleet:
        with fleet.rollout("terminal", "one") as rollout:
            bash(rollout, "echo 1 > /tmp/f")
            state = rollout.state
        resumed = fleet.resume(state)
        assert bash(resumed, "cat /tmp/f") == "1\n"
        kill(fleet, started, resumed.url)
        for _ in range(2):
            with pytest.raises(StateLost, match="server is lost"):
                bash(resumed, "cat /tmp/f")
        resumed.close()


def test_a_fleet_is_looked_at_as_one(fleet: Fleet) -> None:
    rollouts = [fleet.rollout("terminal", f"looked {number}") for number in range(12)]
    assert len({rollout.url for rollout in rollouts}) > 1
    for number, rollout in enumerate(rollouts):
        bash(rollout, f"echo {number} > /tmp/looked")
        rollout.close()
    assert {f"looked {number}" for number in range(12)} <= set(fleet.graph.tasks())
    found = fleet.graph.matching(text="/tmp/looked")
    assert len(found) == 12
    edges = fleet.graph.listed(found)
    assert {edge.id for edge in edges} == found
    assert {edge.id for edge in fleet.graph.outline()} >= found
    for edge in edges:
        assert fleet.graph.edge(edge.id).call == edge.call
        assert fleet.graph.lineage(edge.next_state)[-1].id == edge.id
        assert fleet.reexecute(edge).difference(edge) is None
    newest = fleet.graph.summaries(limit=3)
    assert [one.rollout.task for one in newest] == ["looked 11", "looked 10", "looked 9"]
    assert fleet.stats().calls == sum(stats.calls for stats in fleet.stats_by_server().values()) >= 12
    forgotten, _ = fleet.forget(task="looked 3")
    assert forgotten.edges == 1
    assert "looked 3" not in fleet.graph.tasks()
    assert fleet.forget(task="looked 3")[0].edges == 0
    with pytest.raises(NotFound):
        fleet.forget(state="0" * 64)


def test_a_server_that_is_started_anew_has_lost_its_rollouts(server_home: Path, tmp_path: Path) -> None:
    with servers(1, server_home, tmp_path) as started:
        port = started[0].url.rpartition(":")[2]
        with Fleet([started[0].url]) as fleet:
            made, drawn = fleet.rollout("terminal", "one"), fleet.rollout("terminal", "one")
            bash(made, "echo 1 > /tmp/f")
            bash(drawn, "head -c 8 /dev/urandom | od -An -tx1")
            for stop in (lambda: kill(fleet, started, started[0].url), lambda: started[0].stop()):
                stop()
                started[0] = start(tmp_path / "node-0", "--port", port)
                assert bash(made, "cat /tmp/f") == "1\n"
            assert made.moves == 2
            with pytest.raises(StateLost, match="came to something else"):
                bash(drawn, "echo more")
            with pytest.raises(UsageError, match="unknown tool"):
                made.call("nothing", {})
            made.close()
            drawn.close()
            assert {node.rollouts for node in fleet.nodes} == {0}


def test_time_that_passed_passes_again(server_home: Path, tmp_path: Path) -> None:
    """What runs beside a rollout has come as far at the new server as it would have at the old one."""
    with servers(2, server_home, tmp_path) as started, Fleet(server.url for server in started) as fleet:
        waited, graded, given_out, worth = (fleet.rollout("terminal", "one") for _ in range(4))
        for rollout in (waited, given_out, worth):
            bash(rollout, "(sleep 3; echo ready > /tmp/ready) & echo begun")
        time.sleep(4)
        bash(graded, "head -c 8 /dev/urandom > /tmp/f")
        drawn = graded.grade(Verifier("cksum < /tmp/f | cut -d' ' -f1"))
        kill(fleet, started, waited.url)
        assert bash(waited, "cat /tmp/ready") == "ready\n"
        assert waited.moves == 1
        assert worth.grade(Verifier("test -f /tmp/ready && echo 1 || echo 0")).reward == 1.0
        assert given_out.sandbox().run("cat /tmp/ready", timeout=20).output == b"ready\n"
        with pytest.raises(StateLost, match="its step 2, made again"):
            bash(graded, f"echo {drawn.reward}")
        for rollout in (waited, graded, given_out, worth):
            rollout.close()


def test_an_awaited_fleet_moves_rollouts_too(server_home: Path, tmp_path: Path) -> None:
    async def work(started: list[Server], fleet: Fleet) -> None:
        async with AsyncFleet(fleet) as awaited:
            rollouts = awaited.group("terminal", "one", 4)
            found = await asyncio.gather(*(one.call("bash", {"command": "X=1; echo $X"}) for one in rollouts))
            assert [result.output for result in found] == ["1\n"] * 4
            slow = asyncio.ensure_future(rollouts[0].call("bash", {"command": "sleep 30"}, 60.0))
            await asyncio.sleep(1)
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert (await rollouts[0].call("bash", {"command": "echo on"})).output == "on\n"
            kill(fleet, started, rollouts[1].url)
            moved = await asyncio.gather(*(one.call("bash", {"command": "echo $X"}) for one in rollouts[1:]))
            assert [result.output for result in moved] == ["1\n"] * 3
            assert [one.moves for one in rollouts[1:]] == [1] * 3
            with pytest.raises(UsageError, match="n must be"):
                awaited.group("terminal", n=0)
        with pytest.raises(UsageError, match="closed"):
            await awaited.rollout("terminal").call("bash", {"command": "true"})

    with servers(2, server_home, tmp_path) as started, Fleet(server.url for server in started) as fleet:
        asyncio.run(work(started, fleet))


def test_a_state_that_was_looked_at_is_not_exchanged_for_another(server_home: Path, tmp_path: Path) -> None:
    with servers(2, server_home, tmp_path) as started, Fleet(server.url for server in started) as fleet:
        drawn, blind, fixed, later = (fleet.rollout("terminal", "one") for _ in range(4))
        for rollout in (drawn, later):
            bash(rollout, "head -c 8 /dev/urandom > /tmp/f")
        bash(blind, "head -c 9 /dev/urandom > /tmp/f")
        bash(fixed, "echo 1 > /tmp/f")
        for rollout in (drawn, fixed, later):
            with fleet.materialise(rollout.state) as sandbox:
                assert sandbox.read_file("/tmp/f")
        bash(later, "echo 2 > /tmp/g")
        kill(fleet, started, drawn.url)
        for rollout, step in ((drawn, 1), (later, 1)):
            with pytest.raises(StateLost, match=rf"the state after its step {step}, into which was looked"):
                bash(rollout, "echo on")
        assert bash(blind, "echo on") == bash(fixed, "echo on") == "on\n"
        for rollout in (drawn, blind, fixed, later):
            rollout.close()


def test_one_server_is_not_taken_for_two(three: list[Server]) -> None:
    with Fleet([three[0].url, three[0].url.replace("127.0.0.1", "localhost"), f"unix:{three[1].socket}"]) as fleet:
        with pytest.raises(UsageError, match="are the same server"):
            fleet.stats()
        fleet.remove(three[0].url)
        with fleet.rollout("terminal") as rollout:
            assert bash(rollout, "echo on") == "on\n"


def test_commands_that_are_none_are_refused(fleet: Fleet) -> None:
    with fleet.rollout("terminal") as rollout, pytest.raises(UsageError, match=r"commands\[1\] must be a text"):
        rollout.exec_all(["true", {"command": "true"}])  # type: ignore[list-item]


def test_a_state_at_a_server_that_was_lost_for_a_moment_is_found(three: list[Server]) -> None:
    with Fleet([server.url for server in three]) as fleet:
        with fleet.rollout("terminal", salt="a moment") as rollout:
            bash(rollout, "echo kept > /tmp/f")
            state = rollout.state
        nodes = fleet._nodes
        nodes.mark_lost(nodes.knowing(state), TimeoutError("too late"))
        with fleet.materialise(state) as sandbox:
            assert sandbox.run("cat /tmp/f", timeout=10).output == b"kept\n"
        with pytest.raises(NotFound):
            nodes.knowing("f" * 64)


def test_a_server_that_was_lost_is_tried_once(
    server_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked of it after that fails at once, until it answers again."""
    made: list[connection.Connection] = []

    class Counted(connection.Connection):
        def __init__(self, *given: Any, **options: Any) -> None:
            made.append(self)
            super().__init__(*given, **options)

    monkeypatch.setattr(transport, "Connection", Counted)
    with servers(1, server_home, tmp_path) as started:
        port = started[0].url.rpartition(":")[2]
        with Fleet([started[0].url, NOWHERE]) as fleet:
            rollouts = fleet.group("terminal", "one", 12)
            bash(rollouts[0], "echo 1")
            kill(fleet, started, started[0].url)
            with pytest.raises(Unreachable):
                fleet.stats()
            made.clear()
            for rollout in rollouts[:6]:
                rollout.close()
            for rollout in rollouts[6:]:
                with pytest.raises(Unreachable):
                    bash(rollout, "echo on")
            assert len(made) <= 2 * len(rollouts)  # each asks either server once, and not five times
            assert all(node.lost for node in fleet.nodes)
            started[0] = start(tmp_path / "node-0", "--port", port)
            assert {node.url: node.lost is None for node in fleet.nodes} == {started[0].url: True, NOWHERE: False}
            with fleet.rollout("terminal", "one") as later:
                assert bash(later, "echo on") == "on\n"


def test_a_rollout_of_a_server_that_is_frozen_goes_on_elsewhere(
    server_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("LOOK_S", 0.5), ("CALL_S", 4.0), ("SHORT_S", 2.0), ("ANSWER_S", 1.0), ("LOST_S", 0.5)):
        for module in (liveness, connection, transport):
            monkeypatch.setattr(module, name, seconds, raising=False)
    with servers(2, server_home, tmp_path) as started, Fleet(server.url for server in started) as fleet:
        rollouts = fleet.group("terminal", "one", 3)
        for rollout in rollouts:
            bash(rollout, "echo 1 > /tmp/f")
        frozen = next(each for each in started if each.url == rollouts[0].url)
        with ThreadPoolExecutor(8) as threads:
            frozen.process.send_signal(signal.SIGSTOP)
            try:
                made = [threads.submit(bash, rollout, "cat /tmp/f") for rollout in rollouts[:2]]
                assert [one.result(60) for one in made] == ["1\n"] * 2
                assert threads.submit(fleet.stats).result(60).rollouts
                assert threads.submit(fleet.rollout, "terminal", "one").result(60).url != frozen.url
                threads.submit(rollouts[2].close).result(60)
                threads.submit(fleet.close).result(60)
            finally:
                frozen.process.send_signal(signal.SIGCONT)
