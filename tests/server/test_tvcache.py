"""TVCache's clients at `tvsnap serve --tvcache`: with a client that sends what theirs sends, and with theirs."""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tvsnap
from tests.server.conftest import Server, start
from tests.server.test_workers import workers_of
from tests.server.tvcache_client import Client, published
from tvsnap.plugins.server.tvcache.environments import Environments
from tvsnap.plugins.server.tvcache.records import MOST_CALLS

PUBLISHED = os.environ.get("TVSNAP_TVCACHE", "")
"""The folder `tvcache/client` of a copy of TVCache's repository."""
CLIENTS = ["unsharded", "sharded", "tvcache_client_unsharded", "tvcache_client"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory without images: no call is executed there."""
    return tmp_path_factory.mktemp("tvcache-home")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    """A server of two processes, in which a task may have four environments."""
    started = start(home, "--tvcache", "--workers", "2", "--max-environments", "4")
    yield started
    assert started.stop() == 0


@pytest.fixture
def client(server: Server) -> Client:
    """A client of our own."""
    return Client(server.url)


@pytest.fixture
def task() -> str:
    """A task that nothing was recorded of."""
    return f"task-{secrets.token_hex(4)}"


@pytest.fixture(params=CLIENTS)
def any_client(request: pytest.FixtureRequest, server: Server) -> Any:
    """A client of ours, as those of TVCache are, and both of TVCache's."""
    if not request.param.startswith("tvcache"):
        return Client(server.url, sharded=request.param == "sharded")
    if not PUBLISHED:
        pytest.skip("TVSNAP_TVCACHE does not name the folder tvcache/client of a copy of TVCache's repository")
    pytest.importorskip("requests")
    return published(Path(PUBLISHED), request.param, server.url)


def test_all_that_a_client_asks_for(any_client: Any, task: str) -> None:
    client = any_client
    assert not client.exact_match(task, ["a"])
    assert client.prefix_match(task, ["a"]) == (None, [])
    assert client.intel_prefix_match(task, ["a"]) == (None, [], [])
    assert client.should_fork(task, ["a"]) == (False, None)
    assert client.get_all_envs(task) == []
    assert client.put(task, ["a", "b"], f"{task}-1", ["va", "vb"], [0.5, 1.5]) == []
    assert client.exact_match(task, ["a", "b"])
    assert client.get(task, ["a", "b"])[-3:] == (f"{task}-1", "vb", 1.5)
    assert client.get(task, ["a"])[-3:] == (None, "va", 0.5)
    assert client.prefix_match(task, ["a", "b", "c"]) == (f"{task}-1", ["a", "b"])
    assert client.intel_prefix_match(task, ["a", "b", "c"]) == (f"{task}-1", ["a", "b"], ["c"])
    assert client.should_fork(task, ["a", "b"]) == (True, f"{task}-1")
    assert client.should_fork(task, ["a"]) == (False, None)
    assert client.put(task, ["a", "b", "c"], f"{task}-2", ["vc"], [2.0], 2) == []
    assert client.put(task, ["a", "d"], None, ["vd"], [0.25], 1) == []
    assert client.get_all_envs(task) == [f"{task}-1", f"{task}-2"]
    assert client.check_env_marked(f"{task}-2")
    assert not client.check_env_marked(f"{task}-3")
    assert client.unref(f"{task}-1", task)
    assert client.unref(f"{task}-1")
    assert client.unref(f"{task}-3")
    assert client.mark_stateless(task, ["a", "b", "c"], f"{task}-2")
    assert not client.mark_stateless(task, ["a", "b", "c"], f"{task}-1")
    assert client.get_hot_nodes(1)[task] == [["a"]]
    assert client.get_hot_nodes(2)[task] == []
    assert client.get_test_result(task, ["a", "b"]) == (False, None)
    assert client.store_test_result(task, ["a", "b"], "passed")
    assert client.get_test_result(task, ["a", "b"]) == (True, "passed")
    assert client.can_extend(task, ["a", "b"], ["e"]) == (True, ["e"])
    assert client.remove(task, ["a", "d"])
    assert not client.exact_match(task, ["a", "d"])
    assert client.exact_match(task, ["a"])
    assert not client.remove(task, ["a"])


def test_what_returns_something_else_is_not_answered_any_more(client: Client, task: str) -> None:
    client.put(task, ["a", "b"], f"{task}-1", ["1", "2"], [0, 0])
    client.put(task, ["a", "b", "c"], None, ["3"], [0], 2)
    assert client.get(task, ["a", "b", "c"])[2] == "3"
    client.put(task, ["a", "b"], None, ["1", "2"], [0, 0])  # the same again
    assert client.exact_match(task, ["a", "b", "c"])
    assert client.put(task, ["a", "b"], f"{task}-2", ["one", "2"], [0, 0]) == [f"{task}-2"]
    for calls in (["a"], ["a", "b"], ["a", "b", "c"]):
        assert not client.exact_match(task, calls)
    assert client.prefix_match(task, ["a", "b", "c"]) == (None, [])
    assert client.should_fork(task, ["a", "b"]) == (False, None)
    assert client.can_extend(task, [], ["a", "b"]) == (False, [])  # nobody is to wait for an answer that never comes
    assert client.put(task, ["a", "b", "d"], f"{task}-3", ["4"], [0], 2) == [f"{task}-1", f"{task}-3"]


def test_a_record_waits_for_those_before_it(client: Client, task: str) -> None:
    assert client.put(task, ["a", "b", "c"], f"{task}-1", ["vc"], [0], 2) == []
    assert client.put(task, ["a", "b"], None, ["vb"], [0], 1) == []
    assert not client.store_test_result(task, ["a", "b"], "passed")
    assert not client.exact_match(task, ["a", "b"])
    client.put(task, ["a"], None, ["va"], [0])
    assert client.get(task, ["a", "b", "c"])[1:3] == (f"{task}-1", "vc")
    assert client.get(task, ["a", "b"])[2] == "vb"
    assert client.get_test_result(task, ["a", "b"]) == (True, "passed")


def test_environments_that_are_not_needed_are_told_once(client: Client, task: str) -> None:
    put = client.put
    assert put(task, ["a"], f"{task}-1", ["v"], [0]) == []
    assert put(task, ["a"], f"{task}-1", ["v"], [0]) == []  # sent again: it is still the one that is kept
    assert put(task, ["a"], f"{task}-2", ["v"], [0]) == [f"{task}-2"]
    assert put(task, ["a"], None, ["v"], [0]) == []
    assert put(task, ["a", "b"], f"{task}-1", ["w"], [0], 1) == []  # it has moved
    assert client.prefix_match(task, ["a"]) == (None, [])
    assert client.prefix_match(task, ["a", "b", "c"]) == (f"{task}-1", ["a", "b"])  # in use from here on
    made = [f"{task}-x{number}" for number in range(4)]
    removed = [one for id in made for one in put(task, [id], id, ["v"], [0])]
    assert removed == made[:3]  # the one in use stays, though it is the oldest; it is kept with the latest
    assert sorted(client.get_all_envs(task)) == sorted([f"{task}-1", made[3]])
    assert not client.check_env_marked(made[0])
    assert put(task, ["late"], made[0], ["v"], [0]) == [made[0]]  # its client has ended it


def test_the_environment_with_more_to_follow_is_kept(client: Client, task: str) -> None:
    client.put(task, ["a"], f"{task}-1", ["v"], [0])
    for text in ("b", "c"):
        client.put(task, ["a", text], None, ["v"], [0], 1)
    for number in range(2, 6):
        client.put(task, [f"x{number}"], f"{task}-{number}", ["v"], [0])
    assert f"{task}-1" in client.get_all_envs(task)


def test_tests_of_histories_with_equal_calls_are_told_apart(client: Client, task: str) -> None:
    client.put(task, ["a", "b", "a"], None, ["1", "2", "3"], [0, 0, 0])
    client.store_test_result(task, ["a"], "of one")
    assert client.get_test_result(task, ["a", "b", "a"]) == (False, None)
    assert client.get_test_result(task, ["x", "a"]) == (False, None)
    client.store_test_result(task, ["a", "b", "a"], "of three")
    assert client.get_test_result(task, ["a"]) == (True, "of one")
    client.store_test_result(task, ["a"], "something else")
    assert client.get_test_result(task, ["a"]) == (False, None)


def test_one_client_at_a_time_goes_on_in_an_environment(client: Client, task: str) -> None:
    client.put(task, ["a"], f"{task}-1", ["v"], [0])
    assert client.can_extend(task, ["a"], ["b"]) == (True, ["b"])
    assert client.can_extend(task, ["a"], ["b"]) == (False, ["b"])  # it is to wait
    assert client.can_extend(task, [], ["a", "b"]) == (False, ["a", "b"])
    assert client.can_extend(task, ["a"], ["c"]) == (False, [])
    for found in (client.prefix_match(task, ["a", "c"]), client.should_fork(task, ["a"])[::-1]):
        assert found[0] is None  # it is being changed
    assert client.get_all_envs(task) == []
    client.put(task, ["a", "b"], f"{task}-1", ["w"], [0], 1)
    client.unref(f"{task}-1")
    assert client.prefix_match(task, ["a", "b"]) == (f"{task}-1", ["a", "b"])
    assert client.can_extend(task, ["a", "b"], ["c"]) == (True, ["c"])


def test_its_maker_does_not_use_an_environment_that_was_changed(client: Client, task: str) -> None:
    for change in (True, False):
        own = f"{task}-{change}"
        client.put(task, [own], own, ["v"], [0])
        assert client.check_env_marked(own)
        client.can_extend(task, [own], ["b"])
        if change:
            client.put(task, [own, "b"], own, ["w"], [0], 1)
        assert not client.check_env_marked(own)
        assert client.prefix_match(task, [own, "b"]) == (None, [])
        removed = client.put(task, [own, "c"], own, ["x"], [0], 1)
        assert set(removed) == {own}


def test_a_lease_that_nobody_ends_is_over_after_a_while() -> None:
    environments = Environments(10, 0.2, lambda _: 0)
    environments.put("t", "s1", "e1")
    assert environments.lease("s1", "s2")
    assert environments.is_leased("s2")
    time.sleep(0.25)
    assert not environments.is_leased("s2")
    assert environments.at("s1") is None  # nobody knows what was done in it
    assert environments.take_ended("t") == ["e1"]
    assert environments.lease(None, "s2")


def test_all_processes_answer(server: Server, task: str) -> None:
    client = Client(server.url)
    client.put(task, ["a"], f"{task}-1", ["v"], [0.5])
    first, *_ = workers_of(server)
    os.kill(first, signal.SIGSTOP)  # it knows the environments
    try:
        assert Client(server.url).get(task, ["a"]) == (True, f"{task}-1", "v", 0.5)
        assert Client(server.url).get(task, ["b"]) == (False, None, None, None)
    finally:
        os.kill(first, signal.SIGCONT)
    client.put(task, ["a", "b"], f"{task}-1", ["w"], [0], 1)
    assert [Client(server.url).get(task, ["a"])[1] for _ in range(8)] == [None] * 8


def test_who_was_told_of_one_environment_does_not_go_on_in_another(client: Client, task: str) -> None:
    one, other = f"{task}-1", f"{task}-2"
    client.put(task, ["a"], one, ["v"], [0])
    for _ in range(2):  # two clients find it
        assert client.prefix_match(task, ["a", "b"])[0] == one
    assert client.can_extend(task, ["a"], ["b"])[0]
    client.put(task, ["a", "b"], one, ["w"], [0], 1)
    client.unref(one)
    client.put(task, ["a"], other, ["v"], [0])
    assert client.can_extend(task, ["a"], ["c"]) == (False, [])  # the second would do it in the first environment
    assert client.should_fork(task, ["a"]) == (True, other)


def test_calls_that_change_nothing_are_passed(client: Client, task: str) -> None:
    client.put(task, ["a", "read"], f"{task}-1", ["1", "2"], [0, 0])
    client.put(task, ["a", "read", "b"], f"{task}-2", ["3"], [0], 2)
    assert client.intel_prefix_match(task, ["a", "b"]) == (None, [], [])
    assert client.mark_stateless(task, ["a", "read"], f"{task}-1")
    assert client.intel_prefix_match(task, ["a", "b"]) == (f"{task}-2", ["a", "read", "b"], [])
    assert client.intel_prefix_match(task, ["a", "b", "c"]) == (f"{task}-2", ["a", "read", "b"], ["c"])
    assert client.intel_prefix_match(task, ["a", "x"]) == (None, [], [])
    assert client.intel_prefix_match(task, ["a", "read", "b"]) == (f"{task}-2", ["a", "read", "b"], [])


def test_an_executor_that_counts_reads_twice_gets_no_prefix(server: Server, client: Client, task: str) -> None:
    client.put(task, ["a"], f"{task}-1", ["1"], [0])
    other = Client(server.url, agent="python-httpx/0.28.1")
    assert other.prefix_match(task, ["a", "b"]) == (None, [])
    assert other.get(task, ["a"])[2] == "1"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "\ud800 \0 \u2028 é",
        {"b": 1, "a": [None, True, 1.0, 12345678901234567890123]},
        None,
        math.inf,
        "x" * 100_000,
    ],
)
def test_a_value_comes_back_as_it_was(client: Client, task: str, value: Any) -> None:
    client.put(task, ["a"], None, [value], [0.125])
    found, _, got, seconds = client.get(task, ["a"])
    assert (found, json.dumps(got), seconds) == (True, json.dumps(value), 0.125)


def test_long_histories(server: Server, client: Client, task: str) -> None:
    calls = [json.dumps({"command": f"echo {number} " + "x" * 100}) for number in range(MOST_CALLS)]
    client.put(task, calls, f"{task}-1", ["v"] * MOST_CALLS, [0.0] * MOST_CALLS)
    assert client.get(task, calls)[2] == "v"
    assert client.prefix_match(task, [*calls[:-1], "other"]) == (None, [])
    assert client.intel_prefix_match(task, calls)[1] == calls
    assert client.get_hot_nodes(0)[task][-1] == calls[:-1]
    with urllib.request.urlopen(f"{server.url}/visualize?path={task}") as answer:
        text = answer.read().decode()  # deeper than Python's own reader of JSON goes
    assert text.count("{") == text.count("}") == 3 * MOST_CALLS + 3


def test_what_makes_no_sense_is_refused(client: Client, task: str) -> None:
    good = {
        "task_name": task,
        "history": ["a"],
        "env_id": None,
        "values": ["v"],
        "tool_exec_times": [0],
        "start_idx": 0,
    }
    for change, words in (
        ({"history": []}, "no call"),
        ({"history": ["a"] * (MOST_CALLS + 1), "values": ["v"] * (MOST_CALLS + 1)}, "give one for each value"),
        ({"history": ["a"] * (MOST_CALLS + 1), "start_idx": MOST_CALLS}, "too long"),
        ({"history": "a"}, "history"),
        ({"history": [{"a": 1}]}, "history"),
        ({"task_name": ""}, "task_name"),
        ({"task_name": "x" * 2000}, "task_name"),
        ({"task_name": "\ud800"}, "task_name"),
        ({"task_name": "a\0"}, "NUL"),
        ({"env_id": "e" * 2000}, "env_id"),
        ({"env_id": 7}, "env_id"),
        ({"values": ["v", "w"]}, "give one for each"),
        ({"values": ["v", "w"], "tool_exec_times": [0, 0]}, "give one for each call"),
        ({"start_idx": -1}, "start_idx"),
        ({"start_idx": 1 << 70}, "start_idx"),
        ({"values": None, "tool_exec_times": None, "env_id": "e"}, "values"),
        ({"tool_exec_times": [-1]}, "seconds"),
        ({"tool_exec_times": [math.nan]}, "seconds"),
        ({"tool_exec_times": [1e300]}, "seconds"),
        ({"history": ['{"TV_CACHE_TOOL_TYPE": "TESTING TOOL"}', "a"], "start_idx": 1}, "a test must be the last"),
    ):
        status, data = client.ask("PUT", "put", {**good, **change})
        assert (status, data["error"]["type"]) == (400, "UsageError"), change
        assert words in data["error"]["message"], data
    for body in (b"", b"{", b"[]", b"[" * 200_000, b'{"task_name": "\xff"}', b'{"a": ' + b"9" * 5000 + b"}"):
        for method, path in (("PUT", "put"), ("POST", "prefix_match"), ("POST", "can_extend"), ("POST", "unref")):
            assert client.ask(method, path, body)[0] == 400
    assert client.ask("PUT", "put", b" " * (17 << 20))[0] == 413
    for path in ("get", "get_all_envs", "check_env_marked", "get_test_result"):
        assert client.ask("GET", path)[0] == 400
    assert client.ask("GET", "get_hot_nodes", k="-1")[0] == 400
    assert client.ask("GET", "visualize", path="../../etc/passwd") == (404, {"error": _missing("../../etc/passwd")})
    assert client.ask("POST", "get", {})[0] == 405
    assert client.put(task, ["a"], None, ["v"], [0]) == []


def _missing(task: str) -> str:
    return f"nothing was recorded of the task {task!r}; /api/runs lists the tasks"


def test_people_see_what_was_recorded(server: Server, home: Path, client: Client, task: str) -> None:
    client.put(task, ['{"command": "ls"}', '{"command": "make"}'], f"{task}-1", ["out\n", {"n": 1}], [0.5, 2])
    client.store_test_result(task, ['{"command": "ls"}'], "passed")
    client.exact_match(task, ['{"command": "ls"}'])
    node = client.ask("GET", "visualize", path=task)[1][task]["children"]['{"command": "ls"}']
    assert (node["value"], node["test_result"], node["tool_exec_time"], node["stateless"]) == (
        "out\n",
        "passed",
        0.5,
        False,
    )
    assert node["children"]['{"command": "make"}']["env_id"] == f"{task}-1"
    with urllib.request.urlopen(f"{server.url}/visualize") as answer:
        assert f'"{task}"' in answer.read().decode()
    assert task in [run["path"] for run in client.ask("GET", "runs")[1]["auto_saved_runs"]]
    with tvsnap.connect(server.url) as remote:
        made = [node for node in remote.graph.tree(task=task) if node.made_by is not None]
        assert [node.made_by.call.arguments["call"] for node in made if node.made_by] == [
            '{"command": "ls"}',
            '{"command": "make"}',
        ]
        with pytest.raises(tvsnap.TvsnapError, match="no sandbox can be in it"):
            remote.fork(made[0].state.hash)
    for verb, words in ((("tree", "--task", task), "make"), (("show", made[1].state.hash), "by a client of TVCache")):
        command = [sys.executable, "-m", "tests.server.main", "--home", str(home), *verb]
        shown = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
        assert shown.returncode == 0, shown.stderr
        assert words in " ".join(shown.stdout.split())


def test_what_is_forgotten_is_not_answered(home: Path, client: Client, task: str) -> None:
    client.put(task, ["a", "b"], f"{task}-1", ["1", "2"], [0, 0])
    with tvsnap.Cache(home) as cache:
        cache.graph.forget_task(task)
    assert not client.exact_match(task, ["a"])
    assert client.prefix_match(task, ["a", "b"]) == (None, [])
    client.put(task, ["a"], None, ["another"], [0])
    assert client.get(task, ["a"])[2] == "another"


def test_answers_outlast_the_server_and_environments_do_not(tmp_path: Path) -> None:
    for number in range(2):
        server = start(tmp_path, "--tvcache")
        try:
            client = Client(server.url)
            if not number:
                client.put("t", ["a"], "e1", ["1"], [0])
            assert client.get("t", ["a"])[1:3] == (None if number else "e1", "1")
            assert client.prefix_match("t", ["a", "b"]) == ((None, []) if number else ("e1", ["a"]))
        finally:
            assert server.stop() == 0


def test_a_server_that_was_not_told_to_does_not_answer(tmp_path: Path) -> None:
    server = start(tmp_path)
    try:
        assert Client(server.url).ask("GET", "get", task_name="t", tool_calls=["a"])[0] == 404
    finally:
        assert server.stop() == 0


class World:
    """Environments of rollouts, with what was executed in each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[str, list[str]] = {}

    def make(self, parent: str | None = None) -> str:
        """Returns a new environment: a fork of another, or a fresh one."""
        with self._lock:
            id = secrets.token_hex(8)
            self._done[id] = [] if parent is None else list(self._done[parent])
            return id

    def end(self, ids: list[str]) -> None:
        """Ends environments."""
        with self._lock:
            for id in ids:
                self._done.pop(id, None)

    def execute(self, id: str, call: str) -> str:
        """Executes a call; returns what it tells of all that was executed there before."""
        with self._lock:
            return seen(self._done[id], call)


def seen(done: list[str], call: str) -> str:
    """Executes a call where some have been executed; returns its output."""
    if call != "read":
        done.append(call)
    return " ".join(done)


def roll_forking(client: Client, world: World, task: str, calls: list[str]) -> list[str]:
    """Makes calls as TVCache's executor for environments that are never changed does."""
    outputs = []
    for count in range(1, len(calls) + 1):
        asked = calls[:count]
        found, _, value, _ = client.get(task, asked)
        if not found:
            environment, prefix = client.prefix_match(task, asked)
            if len(prefix) == count:  # another rollout has made it meanwhile
                outputs.append(client.get(task, asked)[2])
                continue
            if environment is not None:
                should, environment = client.should_fork(task, prefix)
                assert should
                assert environment is not None
            own = world.make(environment)
            if environment is not None:
                client.unref(environment, task)
            values = [world.execute(own, call) for call in asked[len(prefix) :]]
            world.end(client.put(task, asked, own, values, [0.0] * len(values), len(prefix)))
            value = values[-1]
        outputs.append(value)
    return outputs


def roll_extending(client: Client, world: World, task: str, calls: list[str]) -> list[str]:
    """Makes calls as TVCache's executor that goes on in environments does."""
    outputs, own, done = [], None, 0
    for count in range(1, len(calls) + 1):
        asked = calls[:count]
        if not client.exact_match(task, asked):
            environment, prefix = client.prefix_match(task, asked)
            given, suffix = client.can_extend(task, prefix, asked[len(prefix) :])
            if given:
                used = environment or world.make()
                values = [world.execute(used, call) for call in asked[len(prefix) :]]
                world.end(client.put(task, asked, used, values, [0.0] * len(values), len(prefix)))
                if environment is not None:
                    client.unref(environment)
                outputs.append(values[-1])
                continue
            if suffix != asked[len(prefix) :]:
                if own is None or not client.check_env_marked(own):
                    own, done = world.make(), 0
                values = [world.execute(own, call) for call in asked[done:]]
                world.end(client.put(task, asked, own, values, [0.0] * len(values), done))
                done = len(asked)
                outputs.append(values[-1])
                continue
            until = time.monotonic() + 60
            while not client.exact_match(task, asked):
                assert time.monotonic() < until, "the answer that it was told to wait for never came"
                time.sleep(0.01)
        outputs.append(client.get(task, asked)[2])
    return outputs


@pytest.mark.parametrize("roll", [roll_forking, roll_extending])
def test_rollouts_see_what_they_see_without_a_cache(
    server: Server, task: str, roll: Callable[[Client, World, str, list[str]], list[str]]
) -> None:
    world, chance, failures = World(), random.Random(7), list[str]()

    def run(calls: list[str]) -> None:
        try:
            done = list[str]()
            expected = [seen(done, call) for call in calls]
            got = roll(Client(server.url), world, task, calls)
            assert got == expected
        except BaseException as error:
            failures.append(repr(error))

    for _ in range(6):
        threads = [
            threading.Thread(target=run, args=([chance.choice(["a", "b", "read"]) for _ in range(5)],))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
