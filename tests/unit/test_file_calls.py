"""`Rollout.put` and `Rollout.get`: recorded calls that name contents by their digests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tvsnap
from tests.fakes.backend import FakeBackend, FakeSandbox
from tests.fakes.caches import FakeImages, backend_of, bash, open_cache, settle
from tvsnap.cache import Cache
from tvsnap.environments.files import contents_named
from tvsnap.environments.terminal import TerminalEnvironment
from tvsnap.environments.terminal import bash as bash_tool
from tvsnap.host.contents import Contents
from tvsnap.host.trees import TreeItem
from tvsnap.model.errors import InfrastructureError, StateLost, UsageError
from tvsnap.model.operations.rollouts import Put
from tvsnap.upkeep.maintenance import plan_gc, run_gc


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def cache(tmp_path: Path, backend: FakeBackend) -> Iterator[Cache]:
    with open_cache(tmp_path / "home", backend) as cache:
        yield cache


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "folder"
    (top / "sub").mkdir(parents=True)
    (top / "a").write_text("1\n")
    (top / "sub" / "b").write_text("2\n")
    return top


def contents(home: Path) -> set[str]:
    return {*os.listdir(home / "contents")}


def test_an_unchanged_upload_is_a_hit(cache: Cache, folder: Path) -> None:
    with cache.rollout("terminal") as first:
        assert first.put(folder, "/tests").source == "executed"
        assert bash(first, "cat /tests/a /tests/sub/b").output == "1\n2\n"
        settle(first)
    for path in (folder / "a", folder):
        os.utime(path, (1, 1))
    with cache.rollout("terminal") as second:
        assert second.put(str(folder), "/tests").source == "hit"
        assert bash(second, "cat /tests/a /tests/sub/b").source == "hit"
        assert second.state == first.state
        assert second.tools == TerminalEnvironment().tools
    (folder / "a").write_text("3\n")
    with cache.rollout("terminal") as third:
        assert third.put(folder, "/tests").source == "executed"
        assert bash(third, "cat /tests/a").output == "3\n"
        assert third.state != first.state


def test_what_was_fetched_is_given_without_a_sandbox(cache: Cache, tmp_path: Path) -> None:
    with cache.rollout("terminal") as first:
        bash(first, "echo 1 > /tmp/a; mkdir /tmp/d; echo 2 > /tmp/d/b")
        assert first.get("/tmp/a").read() == b"1\n"
        fetched = first.get("/tmp/d", tmp_path / "d")
        assert (fetched.kind, fetched.result.source) == ("directory", "executed")
        with pytest.raises(IsADirectoryError):
            fetched.read()
        settle(first)
    made = backend_of(cache).counts.copy()
    with cache.rollout("terminal") as second:
        bash(second, "echo 1 > /tmp/a; mkdir /tmp/d; echo 2 > /tmp/d/b")
        again = second.get("/tmp/a", tmp_path / "copy")
        assert again.result.source == "hit"
        assert (tmp_path / "copy").read_bytes() == again.read() == b"1\n"
        assert second.get("/tmp/d", tmp_path / "e").result.source == "hit"
        assert (tmp_path / "e" / "b").read_bytes() == b"2\n"
        assert second.state == first.state
    assert backend_of(cache).counts["read_tree"] == made["read_tree"] == 2


def test_failures_are_results_and_are_raised_when_used(cache: Cache, tmp_path: Path) -> None:
    with cache.rollout("terminal") as rollout:
        assert rollout.put(b"x", "/tmp").exit_code == 1
        fetched = rollout.get("/none")
        assert (fetched.result.exit_code, fetched.digest, fetched.kind) == (1, None, None)
        assert fetched.result.output == "get: /none: No such file or directory\n"
        for use in (fetched.read, lambda: rollout.get("/none", tmp_path / "x")):
            with pytest.raises(OSError, match="No such file"):
                use()
        for wrong in (3, None):
            with pytest.raises(UsageError, match="source must be"):
                rollout.put(wrong, "/tmp/x")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="cannot be read"):
            rollout.put(tmp_path / "none", "/tmp/x")
        assert bash(rollout, "echo on").output == "on\n"


def test_a_call_that_names_an_unknown_content(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        for digest in ("0" * 64, "../../etc/passwd", ""):
            with pytest.raises(UsageError, match=r'put "/x": the content .* is not in the data directory'):
                rollout.call("put", {"path": "/x", "digest": digest})
        assert rollout.perform(rollout._engine.files.put(Put(b"1", "/x"))).exit_code == 0


def test_a_tool_of_the_same_name_comes_first(tmp_path: Path) -> None:
    own = tvsnap.ToolEnvironment("terminal", "1", [*TerminalEnvironment().tools.values(), replaced("put")])
    with open_cache(tmp_path, environments=[own]) as cache, cache.rollout("terminal") as rollout:
        assert rollout.call("put", {"command": "echo mine"}).output == "mine\n"
        with pytest.raises(UsageError, match="a tool of its own"):
            rollout.put(b"", "/x")
        assert rollout.get("/etc/hostname").read() == b"sandbox\n"


def replaced(name: str) -> tvsnap.Tool:
    return replace(bash_tool, name=name)


def test_without_the_cache(tmp_path: Path, folder: Path) -> None:
    with open_cache(tmp_path / "home", use_cache=False) as cache, cache.rollout("terminal") as rollout:
        assert rollout.put(folder, "/t").source == "executed"
        assert rollout.get("/t/a").read() == b"1\n"
        assert rollout.get("/t/a").result.source == "executed"


def test_what_was_fetched_and_is_gone_is_fetched_again(cache: Cache) -> None:
    with cache.rollout("terminal") as first:
        digest = first.get("/etc/hostname").digest
    assert digest
    (cache.home / "contents" / digest).unlink()
    with cache.rollout("terminal") as second:
        fetched = second.get("/etc/hostname")
        assert (fetched.result.source, fetched.read()) == ("executed", b"sandbox\n")
        assert second.get("/etc/hostname").result.source == "hit"


def test_a_damaged_content_is_told_and_made_anew(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        fetched = rollout.get("/etc/hostname")
        path = cache.home / "contents" / str(fetched.digest)
        path.write_bytes(path.read_bytes().replace(b"sandbox\n", b"another\n"))
        with pytest.raises(InfrastructureError, match="is damaged"):
            fetched.read()
        assert rollout.get("/etc/hostname").read() == b"sandbox\n"


@pytest.mark.usefixtures("proofs_at_once")
def test_a_state_is_rebuilt_in_another_process(tmp_path: Path, backend: FakeBackend) -> None:
    def make(cache: Cache) -> str:
        with cache.rollout("terminal") as rollout:
            rollout.put(b"1\n", "/tmp/a")
            settle(rollout)
            return rollout.state

    with open_cache(tmp_path, backend, policy="never", budget=tvsnap.Budget(parked=0)) as cache:
        assert make(cache) == make(cache)
    other = FakeBackend()
    with Cache(tmp_path, backend=other, images=FakeImages(), policy="never") as cache:
        state = make(cache)
        with cache.materialise(state) as sandbox:
            assert sandbox.read_file("/tmp/a") == b"1\n"
        run_gc(cache.home, cache.graph, cache.backend, plan_gc(cache.home, cache.graph, cache.backend))
        with cache.materialise(state) as sandbox:
            assert sandbox.read_file("/tmp/a") == b"1\n"
        for name in contents(tmp_path):
            (tmp_path / "contents" / name).unlink()
        with (
            pytest.raises(StateLost, match=r"can no longer be reached: put .* is not in the data directory"),
            cache.materialise(state),
        ):
            pass


def test_gc_deletes_what_no_call_names(tmp_path: Path, backend: FakeBackend) -> None:
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal", task="one") as rollout:
        rollout.put(b"put", "/tmp/a")
        fetched = rollout.get("/etc/hostname")
        settle(rollout)
    kept = {str(fetched.digest), *contents(tmp_path)}
    assert len(kept) == 2
    (tmp_path / "contents" / ".new-left").write_bytes(b"by a killed process")
    os.utime(tmp_path / "contents" / ".new-left", (1, 1))
    with open_cache(tmp_path, FakeBackend()) as cache:
        orphan = Contents(tmp_path)
        held = orphan.add(lambda: [item_of(b"not recorded yet")])
        assert contents_named(cache.graph) == kept
        plan = plan_gc(cache.home, cache.graph, cache.backend)
        assert (plan.contents, plan.contents_bytes) == (1, 19)
        run_gc(cache.home, cache.graph, cache.backend, plan)
        assert contents(tmp_path) == {*kept, held}
        orphan.close()
        cache.graph.forget_task("one")
        plan = plan_gc(cache.home, cache.graph, cache.backend)
        assert plan.contents == 3
        assert contents(tmp_path) == {*kept, held}
        run_gc(cache.home, cache.graph, cache.backend, plan)
        assert contents(tmp_path) == set()


def item_of(data: bytes) -> TreeItem:
    return TreeItem("", "file", 0o644, size=len(data), content=(data,))


def test_a_transfer_that_times_out_is_not_shared(tmp_path: Path) -> None:
    class Slow(FakeSandbox):
        def put(self, *_: object, **__: object) -> None:
            raise TimeoutError(110, "Connection timed out")

    backend = FakeBackend()
    backend.sandbox_type = Slow
    with open_cache(tmp_path, backend) as cache, cache.rollout("terminal") as rollout:
        result = rollout.put(b"", "/x", timeout=1.0)
        assert (result.timed_out, result.exit_code) == (True, None)
        assert "timed out after 1 s" in str(rollout.private or rollout.unshared)


def test_awaited(tmp_path: Path, folder: Path) -> None:
    async def run() -> None:
        async with (
            tvsnap.AsyncCache(tmp_path / "home", backend=FakeBackend(), images=FakeImages()) as cache,
            cache.rollout("terminal") as rollout,
        ):
            await rollout.put(folder, "/t")
            fetched = await rollout.get("/t/sub", tmp_path / "sub")
            assert fetched.kind == "directory"
            assert (tmp_path / "sub" / "b").read_text() == "2\n"
            with pytest.raises(OSError, match="No such file"):
                await rollout.get("/none", tmp_path / "x")

    asyncio.run(run())


def test_several_commands_are_one_call(cache: Cache) -> None:
    commands: list[str | tvsnap.types.Command] = [
        "echo 1 > /tmp/a; echo one",
        tvsnap.types.Command("pwd", cwd="/tmp", separate=True),
        "exit 3",
    ]
    with cache.rollout("terminal") as first:
        one, two, three = first.exec_all(commands)
        assert (one.output, one.stderr, one.exit_code) == ("one\n", None, 0)
        assert (two.output, two.stderr, two.source) == ("/tmp\n", "", "executed")
        assert (three.exit_code, first.depth) == (3, 1)
        apart = first.call("exec", {"command": "echo x", "separate": True})
        assert (apart.output, apart.stderr, apart.as_json()) == ("x\n", "", {"output": "x\n", "stderr": ""})
        settle(first)
    with cache.rollout("terminal") as second:
        again = second.exec_all(commands)
        assert [each.source for each in again] == ["hit"] * 3
        assert all(each.same_value(other) for each, other in zip(again, (one, two, three), strict=True))
        assert second.state == first.state
        apart = second.call("exec", {"command": "echo x", "separate": True})
        assert (apart.stderr, apart.source) == ("", "hit")
        with pytest.raises(UsageError, match="exec_all"):
            second.call("exec_all", {"commands": [{"command": "true", "user": "root"}]})
        assert [(each.output, each.exit_code) for each in second.exec_all(["", "echo 1"])] == [("", 0), ("1\n", 0)]
        with pytest.raises(UsageError, match=r"\"commands\"\[1\]\['command'\] must not hold a NUL character$"):
            second.exec_all(["true", "a\0"])
