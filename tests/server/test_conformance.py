"""A cache in this process and a server's client give the same, whether they block or are awaited: one suite for all."""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tvsnap
from tests.conformance.helpers import eventually, is_running
from tvsnap.errors import StateLost
from tvsnap.graph import PROOF_APART
from tvsnap.model.calls import fork_seed
from tvsnap.protocols import AnyCache, AnyRollout, AnySandbox
from tvsnap.types import Command

SERVICE = """
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("/tmp/service")
listener.listen()
while True:
    one, _ = listener.accept()
    asked = one.makefile("rb").read()
    one.sendall(asked[::-1])
    one.close()
"""
"""Answers with what it is asked, backwards."""

CHECK = """
import json, os

print(json.dumps({name: os.path.exists(f"/tmp/a/{name}") for name in ("one", "two")}))
os.unlink("/tmp/a/one")
"""
SOURCES = ("executed", "hit")


def test_a_second_rollout_is_answered(cache: AnyCache) -> None:
    salt, command = secrets.token_hex(4), {"command": "echo one > /tmp/a; cat /tmp/a"}
    for source in ("executed", "executed", "hit"):
        time.sleep(PROOF_APART if source == "executed" else 0)
        with cache.rollout("terminal", task="conformance", salt=salt) as rollout:
            result = rollout.call("bash", {"command": "cd /tmp; pwd; sleep 0.05"}, timeout=20)
            assert (result.output, result.exit_code, result.timed_out) == ("/tmp\n", 0, False)
            made = rollout.call("bash", command)
            assert made.output == "one\n"
            assert rollout.depth == 2
            assert len(rollout.state) == 64
            assert rollout.state != rollout.root
            assert rollout.private is None
            if source == "hit":
                assert result.source == "hit"


def test_commands_side_by_side_and_calls_that_grade(cache: AnyCache) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        first, second = rollout.exec_all(["echo 1", Command("pwd; exit 3", cwd="/tmp")], user="root")
        assert (first.output, second.output, second.exit_code) == ("1\n", "/tmp\n", 3)
        graded = rollout.call("bash", {"command": "echo 1 > /tmp/reward"}, grade=["/tmp/reward"])
        assert graded.exit_code == 0
        state = rollout.state
        assert [edge.grade is not None for edge in cache.graph.lineage(state) if edge.call.name == "bash"] == [True]
        with cache.materialise(state) as sandbox:
            outcomes = sandbox.exec_all([Command("cat /tmp/reward"), Command("exit 4")], timeout=10)
            assert [outcome.exit_code for outcome in outcomes] == [0, 4]


def test_a_grade_is_of_the_moment_at_which_the_rollout_stands(cache: AnyCache) -> None:
    """What a call has left to run goes on while the model thinks, and a grade finds what the next call would find."""
    verifier, salt = tvsnap.Verifier("test -f /tmp/done && echo 1 || echo 0"), secrets.token_hex(4)
    for _ in range(2):
        with cache.rollout("terminal", "worth", salt) as rollout:
            rollout.call("bash", {"command": "(sleep 1; touch /tmp/done) & sleep 0.1"})
            rollout.grade(verifier)
            time.sleep(2)
            assert rollout.grade(verifier).reward == 1.0
            with rollout.fork() as (fork,):
                assert fork.grade(verifier).reward == 1.0
                assert fork.sandbox().run("ls /tmp/done", timeout=20).exit_code == 0
            assert rollout.call("bash", {"command": "ls /tmp/done"}).exit_code == 0


def test_a_group_is_graded(cache: AnyCache) -> None:
    verifier = tvsnap.Verifier(
        "cat /tests/said; python3 /tests/check", {"/tests/check": CHECK, "/tests/said": b"log\n"}
    )
    group: Sequence[AnyRollout] = cache.group("terminal", "graded", 2, salt=secrets.token_hex(4))
    for rollout, source in zip(group, SOURCES, strict=True):
        with rollout:
            # The same state however often it is executed: on a busy machine it may not be kept.
            rollout.call("bash", {"command": "mkdir -p /tmp/a; touch -d @1 /tmp/a/one /tmp/a /tmp; sleep 0.05"})
            state = rollout.state
            grade = rollout.grade(verifier)
            assert (grade.reward, grade.tests, grade.log) == (0.5, {"one": 1.0, "two": 0.0}, "log\n")
            assert grade.source == source
            assert rollout.state == state
            assert rollout.call("bash", {"command": "ls /tests /tmp/a"}).output.endswith("one\n")
            with pytest.raises(tvsnap.errors.GradingFailed, match="status 3"):
                rollout.grade("exit 3")
    with pytest.raises(tvsnap.UsageError, match="n must be"):
        cache.group("terminal", n=0)


def test_a_call_is_cancelled_by_another_thread(cache: AnyCache) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        assert not rollout.cancel()
        results: list[tvsnap.ToolResult] = []
        sleep = f"sleep 9{secrets.randbelow(10**9)}"
        thread = threading.Thread(
            target=lambda: results.append(rollout.call("bash", {"command": f"echo begun; {sleep}"}, timeout=90))
        )
        thread.start()
        eventually(lambda: is_running(sleep))
        assert rollout.cancel()
        thread.join(60)
        assert (results[0].timed_out, "begun" in results[0].output) == (True, True)
        assert rollout.call("bash", {"command": "echo on"}).output == "on\n"


def test_several_at_a_state(cache: AnyCache) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "X=kept"})
        rollout.snapshot_if_idle()
        state = rollout.state
        with cache.fork(state, 2) as forks:
            assert len(forks) == 2
            assert [one.run("echo $X", timeout=10).output for one in forks] == [b"kept\n"] * 2
            assert forks[0].id != forks[1].id
        with cache.fork(state, 2, as_rollouts=True, task="forked", label="one") as begun:
            for one in begun:
                assert one.state == state
                assert one.call("bash", {"command": "echo $X"}).output == "kept\n"


def test_an_image_that_runs_no_service_needs_no_warming(cache: AnyCache) -> None:
    root = cache.warm("terminal")
    with cache.rollout("terminal") as rollout:
        assert rollout.root == root


def test_rollouts_are_announced(cache: AnyCache) -> None:
    """They are made while processors are idle, which this machine need not be: see tests/unit/test_preforking.py."""
    cache.expect("terminal", 2, salt=secrets.token_hex(), limits=tvsnap.Limits(processes=77), network="none")
    with pytest.raises(tvsnap.UsageError, match="n must be"):
        cache.expect("terminal", 0)
    with pytest.raises(tvsnap.errors.NotFound):
        cache.expect("no-such-image")


def test_errors_are_of_the_same_classes(cache: AnyCache) -> None:
    with pytest.raises(tvsnap.errors.NotFound, match="have: "):
        cache.rollout("no-such-image")
    with pytest.raises(tvsnap.errors.NotFound):
        cache.resume("0" * 64)
    with cache.rollout("terminal") as rollout:
        with pytest.raises(tvsnap.UsageError, match="unknown tool"):
            rollout.call("nothing", {})
        with pytest.raises(tvsnap.UsageError, match="plain JSON"):
            rollout.call("bash", {"command": {1, 2}})
    with pytest.raises(tvsnap.UsageError, match="closed"):
        rollout.call("bash", {"command": "true"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limits": 3}, "limits must be a tvsnap.Limits, not 3"),
        ({"task": 3}, "task must be a string, not 3"),
        ({"salt": b"x"}, "salt must be a string, not b'x'"),
        ({"label": "\0"}, "label must not hold a NUL character"),
        ({"network": 3}, "network cannot be 3"),
        ({"network": ["no host"]}, "network cannot allow 'no host'"),
        ({"deadline": "soon"}, "deadline must be a number of seconds of at least 0, not 'soon'"),
        ({"image": 3}, "image must be a string, not 3"),
    ],
)
def test_arguments_that_make_no_sense(cache: AnyCache, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(tvsnap.UsageError, match=re.escape(message)):
        cache.rollout(**{"image": "terminal", **arguments})


def test_forks_go_on_by_themselves(cache: AnyCache) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "X=here; echo $X > /tmp/x"})
        forks: Sequence[AnyRollout] = rollout.fork(2)
        for number, fork in enumerate(forks):
            assert fork.call("bash", {"command": f"echo $X {number}"}).output == f"here {number}\n"
            fork.close()
        with rollout.fork() as more:
            assert more[0].state == rollout.state
        with pytest.raises(tvsnap.UsageError, match="closed"):
            more[0].call("bash", {"command": "true"})


def test_forks_with_random_numbers_of_their_own(cache: AnyCache) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "RANDOM=1"})
        start, draw = rollout.state, {"command": "echo $RANDOM $TVSNAP_SEED"}
        with rollout.fork(2, reseed=True) as forks:
            states = [fork.state for fork in forks]
            drawn = [fork.call("bash", draw).output for fork in forks]
        assert [line.split()[1] for line in drawn] == [str(fork_seed(start, number)) for number in range(2)]
        assert len({start, *states}) == 3
        with cache.fork(start, 2, as_rollouts=True, reseed=True) as again:
            assert [fork.state for fork in again] == states
            assert [fork.call("bash", draw).output for fork in again] == drawn
        assert rollout.reseed(5).exit_code == 0
        assert rollout.call("bash", draw).output.split()[1] == "5"


def test_a_sandbox_in_a_state(cache: AnyCache, tmp_path: Path) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "cd /tmp && echo kept > f"})
        with cache.materialise(rollout.state) as sandbox:
            assert sandbox.run("pwd; cat f", timeout=10).output == b"/tmp\nkept\n"
            assert sandbox.exec("exit 3").exit_code == 3
            sandbox.write_file("/tmp/g", b"\0\xff")
            assert sandbox.read_file("/tmp/g") == b"\0\xff"
            with pytest.raises(FileNotFoundError):
                sandbox.read_file("/tmp/none")
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "file").write_bytes(b"x" * 300_000)
            sandbox.put(b"mine", "/tmp/mine", mode=0o600, user="root")
            assert sandbox.exec("stat -c %a:%u /tmp/mine", timeout=10).output == b"600:0\n"
            sandbox.put(tmp_path / "folder", "/tmp/folder")
            sandbox.get("/tmp/folder", tmp_path / "back")
            assert (tmp_path / "back" / "file").read_bytes() == b"x" * 300_000
            sandbox.exec("printf x > $'/tmp/folder/\\xff\\n'; ln -s $'\\xfe' /tmp/folder/link", timeout=10)
            listing = sandbox.list_folder("/tmp/folder")
            assert [(one.name, one.target) for one in listing.entries] == [
                ("file", None),
                ("link", "\udcfe"),
                ("\udcff\n", None),
            ]
            assert sandbox.read_file("/tmp/folder/\udcff\n") == b"x"
            sandbox.write_file("/tmp/folder/\udcfd", b"y")
            assert sandbox.list_folder("/tmp/folder", limit=3).cut
            with pytest.raises(FileNotFoundError, match="udc80"):
                sandbox.list_folder("/tmp/\udc80")
            assert "/tmp/g" in sandbox.changes()
            assert sandbox.shell_state()["cwd"] == "/tmp"
        assert rollout.call("bash", {"command": "ls /tmp/g"}).exit_code == 2


def test_files_by_way_of_a_rollout(cache: AnyCache, tmp_path: Path) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.put(b"content", "/tmp/in")
        assert rollout.call("bash", {"command": "cat /tmp/in"}).output == "content"
        assert rollout.get("/tmp/in").read() == b"content"
        rollout.put(b"rights", "/tmp/rights", mode=0o751, owners=True)
        assert rollout.call("bash", {"command": "stat -c %a /tmp/rights"}).output == "751\n"
        rollout.get("/tmp/in", tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == b"content"
        with pytest.raises(OSError, match="No such file"):
            rollout.get("/tmp/none").read()


def test_the_graph_can_be_looked_at(cache: AnyCache) -> None:
    salt = secrets.token_hex(4)
    with cache.rollout("terminal", task=salt, salt=salt) as rollout:
        rollout.call("bash", {"command": "echo seen > /tmp/seen"})
        state = rollout.state
    found = cache.graph.resolve(state[:16])
    assert (found.hash, found.depth) == (state, 1)
    (edge,) = cache.graph.lineage(state)
    assert (edge.call.arguments["command"], edge.next_state) == ("echo seen > /tmp/seen", state)
    assert {node.state.hash for node in cache.graph.tree(task=salt)} == {rollout.root, state}
    assert [one.task for one in cache.graph.rollouts(salt)] == [salt]
    assert any(image.name == "terminal" for image in cache.images.list())
    assert cache.graph.root_of(state).image_name == "terminal"
    assert all(snapshot.state == state for snapshot in cache.graph.snapshots_of(state))
    assert salt in cache.graph.tasks()
    assert cache.images.get("terminal").environment == "terminal"
    assert cache.stats().calls >= 1


def test_calls_are_outlined_listed_and_searched(cache: AnyCache) -> None:
    salt = secrets.token_hex(4)
    with cache.rollout("terminal", task=salt, salt=salt) as rollout:
        rollout.call("bash", {"command": "echo 'Inner Text' | rev > /tmp/turned"})
        rollout.call("bash", {"command": "rev /tmp/turned"})
        state = rollout.state
    calls = [one for one in cache.graph.outline() if one.id in cache.graph.matching(task=salt)]
    made, looked = calls
    assert (made.state, made.next_state) == (rollout.root, state)
    assert (looked.state, looked.next_state, looked.exit_code) == (state, None, 0)
    assert made.duration > 0
    assert not made.private
    listed = cache.graph.listed([looked.id, made.id, looked.id + 10**9])
    assert {edge.id: (edge.call.arguments["command"][:4], edge.result.output) for edge in listed} == {
        made.id: ("echo", ""),
        looked.id: ("rev ", ""),
    }
    assert cache.graph.listed([]) == []
    assert cache.graph.edge(looked.id).result.output == "Inner Text\n"
    with pytest.raises(tvsnap.errors.NotFound, match="is not in the graph"):
        cache.graph.edge(looked.id + 10**9)
    assert cache.graph.matching(task=salt, text="inner TEXT") == {made.id, looked.id}
    assert cache.graph.matching(task=salt, text="inner text\n") == {looked.id}
    assert cache.graph.matching(task=salt, tool="python") == set()
    assert {made.id, looked.id} <= cache.graph.matching(tool="bash")
    assert {made.id, looked.id} <= cache.graph.matching()


def test_rollouts_are_told(cache: AnyCache) -> None:
    salt = secrets.token_hex(4)
    with cache.rollout("terminal", task=salt, salt=salt, label=f"{salt}-good", epoch=2) as good:
        good.call("bash", {"command": "echo 1 > /tmp/f"})
        good.call("bash", {"command": "cat /tmp/f"})
        assert good.grade("echo 0.5").reward == 0.5
    bad = cache.rollout("terminal", task=salt, salt=salt)
    bad.call("bash", {"command": "echo 1 > /tmp/f"})
    with pytest.raises(ValueError, match="of the harness"), bad:
        raise ValueError("of the harness")
    second, first = cache.graph.summaries(task=salt)
    assert (first.rollout.id, first.rollout.epoch, first.rollout.reward, first.ended) == (good.id, 2, 0.5, "closed")
    assert (first.calls, first.hits, first.failing) == (2, 0, 0)
    assert (second.rollout.id, second.ended, second.hits) == (bad.id, "ValueError: of the harness", 1)
    good.record(0.75)
    found = cache.graph.find_rollout(f"{salt}-good")
    assert found is not None
    assert (found.id, found.reward) == (good.id, 0.75)
    assert [one.rollout.id for one in cache.graph.summaries(task=salt, failed=True)] == [bad.id]
    made, looked = cache.graph.steps(found.id)
    assert (made.source, looked.source) == ("started", "executed")
    assert looked.edge is not None
    assert (looked.edge.result.output, looked.edge.changed) == ("1\n", False)
    assert made.processor_s is None or made.processor_s > 0
    assert cache.graph.find_rollout(salt) is None
    with pytest.raises(tvsnap.UsageError, match="reward must be a finite number"):
        good.record(float("inf"))


def test_calls_are_valued_by_what_rollouts_came_to(cache: AnyCache) -> None:
    task = secrets.token_hex(4)
    for command, reward in (("touch a", 1.0), ("touch a", 0.0), ("touch b", 0.0)):
        with cache.rollout("terminal", task, salt=task, epoch=1) as rollout:
            for each in ("cd /tmp", command):
                rollout.call("bash", {"command": each})
        rollout.record(reward)
    values = cache.values(task, epoch=1)
    assert [one.advantages for one in values.rollouts] == [(0.0, 0.25), (0.0, 0.25), (0.0, -0.5)]
    assert [None if one.call is None else one.call.name for one in values.states[0].calls] == ["bash"]
    assert values.of(rollout.id or "").advantage == -0.5
    alone = cache.values(task, epoch=1, rollouts=[rollout.id or ""])
    assert [(one.rollout, one.advantages) for one in alone.rollouts] == [(rollout.id, (0.0, 0.0))]
    assert cache.values(task, epoch=2).states == cache.values(f"not {task}").states == ()
    with pytest.raises(tvsnap.UsageError, match="epoch must be a whole number"):
        cache.values(task, epoch=-1)


def test_the_sandbox_of_a_rollout(cache: AnyCache) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "cd /tmp; X=kept"})
        before = rollout.state
        sandbox: AnySandbox = rollout.sandbox()
        assert sandbox.run("echo $X", timeout=10).output == b"kept\n"
        assert sandbox.image.name == "terminal"
        assert (rollout.state, rollout.private) == (before, None), "nothing was changed"
        sandbox.write_file("/tmp/own", b"own")
        assert rollout.state != before
        assert rollout.private is not None
        again: AnySandbox = rollout.sandbox()
        assert again.id == sandbox.id
        again.write_file("/tmp/more", b"more")
        kept = rollout.keep("by hand", "what it printed")
        assert kept == rollout.state
        with cache.materialise(kept) as fork:
            assert fork.run("cat own more; echo $X", timeout=10).output == b"ownmorekept\n"
        assert rollout.call("bash", {"command": "cat own"}).output == "own"
        (edge,) = [one for one in cache.graph.lineage(kept) if one.next_state == kept]
        assert (edge.reason, edge.result.output) == ("by hand", "what it printed")


def kept_state(cache: AnyCache, rollout: AnyRollout) -> str:
    """Returns a state at which a rollout stands and that is kept: while processors are short, not each one is."""
    for _ in range(50):
        state = rollout.state
        with contextlib.suppress(StateLost), cache.materialise(state):
            return state
    raise AssertionError("none of 50 states was kept")


def test_the_state_of_a_sandbox_that_changes_by_itself(cache: AnyCache) -> None:
    """Each look at a sandbox that was given out finds another state; whoever was told of one can be brought there."""
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "(while :; do date +%N >> /tmp/ticks; sleep 0.02; done) & cd /tmp"})
        sandbox: AnySandbox = rollout.sandbox()
        sandbox.write_file("/tmp/own", b"own")
        state = kept_state(cache, rollout)
        sandbox.write_file("/tmp/own", b"newer")
        assert rollout.state != state
        with cache.materialise(state) as there:
            assert there.read_file("/tmp/own") == b"own"
        with cache.fork(state, 2) as forks:
            assert [fork.read_file("/tmp/own") for fork in forks] == [b"own", b"own"]
        with cache.resume(state) as resumed:
            assert resumed.call("bash", {"command": "cat own"}).output == "own"
        with rollout.fork(2) as branches:
            for branch in branches:
                assert branch.call("bash", {"command": "cat own"}).output == "newer"
        assert rollout.call("bash", {"command": "cat own"}).output == "newer"


def test_keeping_needs_a_sandbox(cache: AnyCache) -> None:
    with (
        cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout,
        pytest.raises(tvsnap.UsageError, match=r"ask for one with Rollout\.sandbox"),
    ):
        rollout.keep("nothing")


def test_the_terminal_of_a_sandbox(cache: AnyCache) -> None:
    with cache.materialise(cache.warm("terminal")) as sandbox:
        sandbox.send_keys(b"echo typed-$((40 + 2))\n", wait=20.0)
        eventually(lambda: b"typed-42" in sandbox.terminal().data)
        screen = sandbox.terminal()
        assert screen.columns > screen.rows > 0


def test_a_service_in_a_sandbox_is_asked(cache: AnyCache) -> None:
    with cache.materialise(cache.warm("terminal")) as sandbox:
        sandbox.write_file("/tmp/service.py", SERVICE.encode())
        sandbox.run("python3 /tmp/service.py & until [ -S /tmp/service ]; do sleep 0.1; done", timeout=60)
        assert sandbox.request("/tmp/service", b"\0ask\xff", timeout=20) == b"\xffksa\0"
        with pytest.raises(OSError, match="No such file"):
            sandbox.request("/tmp/none", b"", timeout=20)


def test_digests_tell_whether_sandboxes_hold_the_same(cache: AnyCache) -> None:
    with cache.fork(cache.warm("terminal"), 2) as (one, two):
        digest = one.digest()
        assert digest == two.digest()
        assert digest is not None
        one.write_file("/tmp/only-here", b"")
        assert one.digest() != two.digest()


def test_a_recorded_call_is_made_again(cache: AnyCache) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "echo first > /tmp/first"})
        rollout.call("bash", {"command": "cat /tmp/first /proc/sys/kernel/random/uuid"})
        rollout.call("bash", {"command": "echo last > /tmp/last"})
        first, last = cache.graph.lineage(rollout.state)
        (drawn,) = [edge for edge in cache.graph.out_edges(first.next_state) if not edge.changed]
    for edge in (first, last):
        remade = cache.reexecute(edge)
        assert remade.result.output == ""
        assert remade.difference(edge) is None
    again = cache.reexecute(drawn)
    assert again.result.output.startswith("first\n")
    assert "was recorded (line 2)" in str(again.difference(drawn))
    with pytest.raises(tvsnap.UsageError, match=r"edge must be a tvsnap\.graph\.Edge"):
        cache.reexecute(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"arguments": ["true"]}, "arguments must be an object"),
        ({"arguments": None}, "arguments must be an object"),
        ({"arguments": {"command": float("nan")}}, "."),
        ({"name": None}, "."),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"after": float("nan")}, "after"),
        ({"deadline": float("inf")}, "deadline"),
    ],
    ids=str,
)
def test_calls_that_make_no_sense_are_refused_by_name(cache: AnyCache, asked: dict[str, Any], said: str) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        with pytest.raises(tvsnap.UsageError, match=said):
            rollout.call(**{"name": "bash", "arguments": {"command": "true"}, **asked})
        with pytest.raises(tvsnap.UsageError, match="must be a list"):
            rollout.exec_all("true")
        assert rollout.call("bash", {"command": "echo all right"}).output == "all right\n"
