"""A cache in this process and a server's client give the same: one suite for both."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

import tvsnap


def test_a_second_rollout_is_answered(cache: Any) -> None:
    salt, command = secrets.token_hex(4), {"command": "echo one > /tmp/a; cat /tmp/a"}
    for source in ("executed", "executed", "hit"):
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


def test_errors_are_of_the_same_classes(cache: Any) -> None:
    with pytest.raises(tvsnap.NotFound, match="have: "):
        cache.rollout("no-such-image")
    with pytest.raises(tvsnap.NotFound):
        cache.resume("0" * 64)
    with cache.rollout("terminal") as rollout:
        with pytest.raises(tvsnap.UsageError, match="unknown tool"):
            rollout.call("nothing", {})
        with pytest.raises(tvsnap.UsageError, match="plain JSON"):
            rollout.call("bash", {"command": {1, 2}})
    with pytest.raises(tvsnap.UsageError, match="closed"):
        rollout.call("bash", {"command": "true"})


def test_forks_go_on_by_themselves(cache: Any) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "X=here; echo $X > /tmp/x"})
        forks = rollout.fork(2)
        for number, fork in enumerate(forks):
            assert fork.call("bash", {"command": f"echo $X {number}"}).output == f"here {number}\n"
            fork.close()


def test_a_sandbox_in_a_state(cache: Any, tmp_path: Path) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "cd /tmp && echo kept > f"})
        with cache.materialise(rollout.state) as sandbox:
            assert sandbox.run("pwd; cat f", timeout=10).output == b"/tmp\nkept\n"
            assert sandbox.exec("exit 3", timeout=10).exit_code == 3
            sandbox.write_file("/tmp/g", b"\0\xff")
            assert sandbox.read_file("/tmp/g") == b"\0\xff"
            with pytest.raises(FileNotFoundError):
                sandbox.read_file("/tmp/none")
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "file").write_bytes(b"x" * 300_000)
            sandbox.put(tmp_path / "folder", "/tmp/folder")
            sandbox.get("/tmp/folder", tmp_path / "back")
            assert (tmp_path / "back" / "file").read_bytes() == b"x" * 300_000
            assert "/tmp/g" in sandbox.changes()
            assert sandbox.shell_state()["cwd"] == "/tmp"
        assert rollout.call("bash", {"command": "ls /tmp/g"}).exit_code == 2


def test_files_by_way_of_a_rollout(cache: Any, tmp_path: Path) -> None:
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.put(b"content", "/tmp/in")
        assert rollout.call("bash", {"command": "cat /tmp/in"}).output == "content"
        assert rollout.get("/tmp/in").read() == b"content"
        rollout.get("/tmp/in", tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == b"content"
        with pytest.raises(OSError, match="No such file"):
            rollout.get("/tmp/none").read()


def test_the_graph_can_be_looked_at(cache: Any) -> None:
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
    assert cache.images.get("terminal").environment == "terminal"
    assert cache.stats().calls >= 1
