"""Tenants see nothing of each other, and share sandboxes."""

from __future__ import annotations

import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tvsnap
from tests.server.conftest import Server, start
from tests.server.test_verbs import verb
from tvsnap.engine.auditing.checking import CheckReport
from tvsnap.model.errors import Forbidden
from tvsnap.plugins.client.wire.errors import Busy
from tvsnap.plugins.server.tenants import Shares, Tenant, read_tokens

ALL, ONE, TWO = "a" * 32, "b" * 32, "c" * 32
COMMAND = {"command": "echo $RANDOM > secret; cat secret"}


@pytest.fixture(scope="module")
def guarded(server_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two tenants."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"{ALL}\n{ONE} one rollouts=2\n{TWO} two sandboxes=1\n")
    tokens.chmod(0o600)
    server = start(server_home, "--token-file", str(tokens), "--max-sandboxes", "4", socket="tenants.sock")
    yield server
    assert server.stop() == 0


def ask(
    server: Server, token: str, path: str, method: str = "GET", body: Any = None, key: str | None = None
) -> tuple[int, Any]:
    request = urllib.request.Request(
        server.url + path,
        method=method,
        headers={"Authorization": f"Bearer {token}"} | ({} if key is None else {"Idempotency-Key": key}),
        data=None if body is None else json.dumps(body).encode(),
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_no_tenant_is_told_of_anothers_rollouts(guarded: Server) -> None:
    ids = {}
    for token in (ONE, TWO):
        with (
            tvsnap.connect(guarded.url, token) as client,
            client.rollout("terminal", task="told", label="mine") as rollout,
        ):
            rollout.call("bash", {"command": "true"})
            ids[token] = str(rollout.id)
    for token, other in ((ONE, TWO), (TWO, ONE)):
        with tvsnap.connect(guarded.url, token) as client:
            assert [one.rollout.id for one in client.graph.summaries(task="told")] == [ids[token]]
            for name in ("mine", ids[token]):
                found = client.graph.find_rollout(name)
                assert found is not None
                assert found.id == ids[token]
            assert client.graph.find_rollout(ids[other]) is None
            assert client.graph.steps(ids[other]) == []
            assert ask(guarded, token, f"/v1/transcripts/{ids[other]}/reward", "POST", {"reward": 1}) == (
                *(200, {"done": False}),
            )


def test_no_tenant_finds_anothers_calls(guarded: Server) -> None:
    found: dict[str, list[int]] = {}
    for token, said in ((ONE, "first"), (TWO, "second")):
        with tvsnap.connect(guarded.url, token) as client, client.rollout("terminal", task="found") as rollout:
            rollout.call("bash", {"command": f"echo needle {said}"})
            state = rollout.state
            found[token] = [edge.id for edge in client.graph.out_edges(state) if said in edge.result.output]
    both = {id for ids in found.values() for id in ids}
    for token, own in ((ONE, set(found[ONE])), (TWO, set(found[TWO])), (ALL, both)):
        with tvsnap.connect(guarded.url, token) as client:
            outlined = {one.id for one in client.graph.outline()}
            assert outlined & both == own
            assert {edge.id for edge in client.graph.listed(sorted(both))} == own
            for chosen in ({"task": "found"}, {"tool": "bash"}, {"text": "NEEDLE"}, {}):
                matching = client.graph.matching(**chosen)
                assert matching & both == own, chosen
                assert matching <= outlined
            for id in both:
                if id in own:
                    assert "needle" in client.graph.edge(id).result.output
                else:
                    with pytest.raises(tvsnap.errors.NotFound, match="is not in the graph"):
                        client.graph.edge(id)


def test_no_tenant_is_answered_from_what_another_has_recorded(guarded: Server) -> None:
    outputs: dict[str, set[str]] = {}
    for token in (ONE, TWO, ALL):
        with tvsnap.connect(guarded.url, token) as client:
            for executed in (True, False):
                with client.rollout("terminal", task="tenants") as rollout:
                    result = rollout.call("bash", COMMAND)
                    assert (result.source == "executed") is executed
                    outputs.setdefault(token, set()).add(result.output)
    assert all(len(seen) == 1 for seen in outputs.values())


def test_a_tenant_checks_and_forgets_what_is_its_own(guarded: Server) -> None:
    with tvsnap.connect(guarded.url, ONE) as one, tvsnap.connect(guarded.url, TWO, patience=0) as two:
        with one.rollout("terminal", task="forgotten", salt="forgotten") as rollout:
            rollout.call("bash", {"command": "echo here > /tmp/here"})
            root, state = rollout.root, rollout.state
        (edge,) = one.graph.lineage(state)
        for refused in (
            lambda: two.reexecute(edge),
            lambda: two.check(CheckReport, edge.id),
            lambda: two.forget(state=state),
            lambda: two.forget(state=root, dry_run=True),
        ):
            with pytest.raises(tvsnap.errors.NotFound, match=r"no state|is not in the graph"):
                refused()
        for task, image in (("forgotten", None), (None, "terminal")):
            with pytest.raises(Forbidden, match="name the state"):
                one.forget(task=task, image=image)
        with pytest.raises(Forbidden, match="removeImage is not for tenants"):
            one.images.remove("terminal")
        assert one.reexecute(edge).difference(edge) is None
        assert one.check(CheckReport, edge.id).same == 1
        assert one.forget(state=root)[0].states == 2
        with pytest.raises(tvsnap.errors.NotFound):
            one.graph.resolve(state)


def test_the_sandbox_of_a_rollout_is_its_tenants(guarded: Server) -> None:
    with tvsnap.connect(guarded.url, ONE) as one, one.rollout("terminal", salt="given") as rollout:
        sandbox = rollout.sandbox()
        assert sandbox.run("echo mine", timeout=60).output == b"mine\n"
        body = {"command": "echo theirs", "timeout": 60}
        assert ask(guarded, TWO, f"/v1/sandboxes/{sandbox.id}/run", "POST", body)[0] == 404
        assert ask(guarded, ONE, f"/v1/sandboxes/{sandbox.id}/run", "POST", body)[0] == 200
        rollout.close()
        assert ask(guarded, ONE, f"/v1/sandboxes/{sandbox.id}/run", "POST", body)[0] == 404


def test_sandboxes_of_rollouts_count_for_a_tenant(guarded: Server) -> None:
    with tvsnap.connect(guarded.url, TWO, patience=0) as two:  # it may have one
        first, second = (two.rollout("terminal", salt=salt) for salt in ("first", "second"))
        first.sandbox().run("true", timeout=60)
        first.sandbox().run("true", timeout=60)
        with pytest.raises(Busy, match="two uses 1 sandboxes, and may use 1"):
            second.sandbox()
        first.close()
        second.sandbox().run("true", timeout=60)


def test_a_tenant_replays_rollout_files(guarded: Server, tmp_path: Path) -> None:
    calls = [{"name": "bash", "arguments": {"command": "echo replayed"}}]
    (tmp_path / "rollouts").write_text(json.dumps({"task": "t", "rollout": "r", "calls": calls}) + "\n")
    words = ("replay", str(tmp_path / "rollouts"), "--image", "terminal", "--url", guarded.url)
    status, text = verb(*words, TVSNAP_TOKEN=ONE)
    assert (status, "executed" in text, "saved" in text) == (0, True, False), text
    status, text = verb(*words, "--json", TVSNAP_TOKEN=ONE)
    report = json.loads(text)
    assert (report["calls"], report["hits"], "forks" in report) == (1, 1, False), "what others did is not told"


def test_a_tenant_sees_its_own_states_and_rollouts_only(guarded: Server) -> None:
    with tvsnap.connect(guarded.url, ONE) as one, tvsnap.connect(guarded.url, TWO) as two:
        rollout = one.rollout("terminal", task="hidden", salt="s")
        rollout.call("bash", {"command": "echo hidden > f"})
        state = rollout.state
        (id,) = [one["id"] for one in ask(guarded, ONE, "/v1/rollouts")[1]["rollouts"]]
        with one.materialise(state) as sandbox:
            assert sandbox.run("cat f", timeout=60).output == b"hidden\n"
        for refused in (lambda: two.resume(state), lambda: two.materialise(state).__enter__()):
            with pytest.raises(tvsnap.errors.NotFound, match="no state"):
                refused()
        for path in (f"/v1/states/{state}", f"/v1/states/{state}/archive", f"/v1/states/{state}/diff/{state}"):
            assert ask(guarded, TWO, path)[0] == 404
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/tools"), ("POST", "/forks")):
            status, answer = ask(guarded, TWO, f"/v1/rollouts/{id}{path}", method, {} if method == "POST" else None)
            assert status == 404 or answer == {"done": False}, (method, path)
        assert rollout.call("bash", {"command": "cat f"}).output == "hidden\n", "it was not closed"
        for path in ("/v1/tree", "/v1/roots", "/v1/tasks", "/v1/history", "/v1/timeline"):
            for token, there in ((ONE, True), (TWO, False), (ALL, True)):
                status, answer = ask(guarded, token, path)
                assert status == 200
                seen = any(word in json.dumps(answer) for word in (state, "hidden", rollout.root))
                assert seen is there, (path, token)
        assert [one["id"] for one in ask(guarded, TWO, "/v1/rollouts")[1]["rollouts"]] == []
        assert id in [one["id"] for one in ask(guarded, ONE, "/v1/rollouts")[1]["rollouts"]]
        rollout.close()


def test_what_concerns_all_is_not_for_tenants(guarded: Server) -> None:
    for method, path in (("GET", "/v1/stats"), ("POST", "/v1/images/terminal/warm")):
        status, answer = ask(guarded, ONE, path, method)
        assert status == 403
        assert answer["error"]["type"] == "Forbidden"
    assert ask(guarded, ALL, "/v1/stats")[0] == 200


def test_a_tenant_has_limits(guarded: Server) -> None:
    with tvsnap.connect(guarded.url, ONE, patience=0) as client:
        held = [client.rollout("terminal") for _ in range(2)]
        for rollout in held:
            rollout.tools  # noqa: B018  (begins it)
        with pytest.raises(Busy, match="may have 2"):
            client.rollout("terminal").tools  # noqa: B018
        for rollout in held:
            rollout.close()
    with tvsnap.connect(guarded.url, TWO, patience=0) as client:
        with client.rollout("terminal") as rollout:
            rollout.call("bash", {"command": "echo 1 > f"})
            state = rollout.state
        with client.materialise(state), pytest.raises(Busy, match="may use 1"):
            client.materialise(state).__enter__()
        with client.materialise(state):
            pass


def test_what_can_never_be_is_refused_at_once(guarded: Server) -> None:
    """It is no matter of patience; of a group that found no room, nothing is left."""
    with tvsnap.connect(guarded.url, TWO) as client, client.rollout("terminal") as rollout:
        rollout.call("bash", {"command": "echo 1 > f"})
        with pytest.raises(tvsnap.UsageError, match="9 sandboxes were asked for, and there may be 1"):
            client.fork(rollout.state, 9).__enter__()
    with tvsnap.connect(guarded.url, ONE, patience=0) as client:
        with pytest.raises(Busy, match="may have 2"):
            client.group("terminal", n=3)
        with client.rollout("terminal") as rollout:
            rollout.call("bash", {"command": "true"})
            with pytest.raises(tvsnap.UsageError, match="5 rollouts were asked for, and there may be 2"):
                rollout.fork(5)
        for rollout in client.group("terminal", n=2):
            rollout.close()


def test_nobody_takes_the_salt_of_a_tenant(guarded: Server) -> None:
    with tvsnap.connect(guarded.url, ALL) as client, pytest.raises(tvsnap.UsageError, match="as those of tenants do"):
        client.rollout("terminal", salt="tenant one: x")


def test_a_key_of_another_tenant_is_another_key(guarded: Server) -> None:
    key = secrets.token_hex(8)
    opened = [ask(guarded, token, "/v1/rollouts", "POST", {"image": "terminal"}, key) for token in (ONE, TWO, ONE)]
    assert [status for status, _ in opened] == [201] * 3
    one, other, again = (answer["id"] for _, answer in opened)
    assert one == again != other
    for token, id in ((ONE, one), (TWO, other)):
        assert ask(guarded, token, f"/v1/rollouts/{id}", "DELETE")[0] in (200, 204)


def test_a_call_of_another_tenant_is_as_one_that_is_not_there(guarded: Server) -> None:
    with tvsnap.connect(guarded.url, ONE) as client, client.rollout("terminal") as rollout:
        rollout.call("bash", {"command": "echo 1 > f"})
        (edge,) = client.graph.lineage(rollout.state)
    for what in ("executions", "checks"):
        status, answer = ask(guarded, TWO, f"/v1/calls/{edge.id}/{what}", "POST", {})
        expected = ask(guarded, TWO, f"/v1/calls/{10**12}/{what}", "POST", {})
        assert (status, answer["error"]["type"]) == (404, "NotFound")
        assert str(answer).replace(str(edge.id), str(10**12)) == str(expected[1])


def test_shares_are_kept_for_those_who_ask() -> None:
    one, two = Tenant("one", weight=2), Tenant("two")
    shares = Shares({one, two})
    shares.asked(one)
    shares.check(one, 8, 8, 8)  # alone, it may have all
    shares.add(one, 6)
    shares.asked(two)
    shares.check(two, 1, 2, 8)
    with pytest.raises(Busy, match="their share"):
        shares.check(one, 1, 2, 8)
    shares.add(two, 2)
    with pytest.raises(Busy):
        shares.check(two, 1, 0, 8)
    shares.add(one, -3)
    shares.check(one, 1, 3, 8)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("short", "at least 16"),
        (f"{ONE} no/name", "no name of a tenant"),
        (f"{ONE} one weight=0", "makes no sense"),
        (f"{ONE} one colour=2", "makes no sense"),
        (f"{ONE} one budget=0", "makes no sense"),
        (f"{ONE} one budget=2X", "makes no sense"),
        (f"{ONE} one\n{TWO} one weight=2", "first line that names it"),
        (f"{ONE} one\n{ONE} two", "there already"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(line)
    path.chmod(0o600)
    with pytest.raises(tvsnap.UsageError, match=f"line [12] .*{reason}"):
        read_tokens(path)


@pytest.fixture
def two(server_home: Path, tmp_path: Path) -> Iterator[Server]:
    """A server with four sandboxes and two tenants, neither of which has asked for anything."""
    (tmp_path / "tokens").write_text(f"{ONE} one\n{TWO} two\n")
    (tmp_path / "tokens").chmod(0o600)
    server = start(server_home, "--token-file", str(tmp_path / "tokens"), "--max-sandboxes", "4", socket="two.sock")
    yield server
    assert server.stop() == 0


def test_a_tenant_that_waits_gets_the_sandbox_of_another_as_soon_as_one_ends(two: Server) -> None:
    with (
        tvsnap.connect(two.url, ONE, patience=0) as noisy,
        tvsnap.connect(two.url, TWO, patience=60) as quiet,
        ThreadPoolExecutor(1) as threads,
    ):
        with noisy.rollout("terminal", salt="noisy") as rollout:
            rollout.call("bash", {"command": "echo noisy > f"})
            state = rollout.state
        held = [noisy.materialise(state) for _ in range(4)]
        for one in held:
            one.__enter__()
        waiting = threads.submit(lambda: quiet.rollout("terminal", salt="waiting").call("bash", COMMAND))
        time.sleep(2.5)  # it has asked, and asks again each second
        assert not waiting.done()
        held.pop().__exit__(None, None, None)
        deadline = time.monotonic() + 60
        while not waiting.done() and time.monotonic() < deadline:
            with pytest.raises(Busy):  # the one that is free is kept for the other
                noisy.materialise(state).__enter__()
            time.sleep(0.02)
        assert waiting.result(60).source == "executed"
        for one in held:
            one.__exit__(None, None, None)
