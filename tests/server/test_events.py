"""What a server tells of what happens at it: to whom, in which order, and where a client is slow."""

from __future__ import annotations

import asyncio
import json
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvsnap
import tvsnap.aio
from tests.server.conftest import Server, start, url_of
from tests.server.test_limits import home as home
from tests.server.test_tenants import ONE, TWO
from tests.server.test_tenants import guarded as guarded
from tvsnap.plugins.client.client import Client
from tvsnap.plugins.client.events import Event, EventParser
from tvsnap.plugins.server import events
from tvsnap.plugins.server.events import Events
from tvsnap.plugins.server.tenants import Tenant

SOURCES: dict[str | None, str] = {}
"""What answered the call of each rollout, as its client was told."""


def some_calls(client: Client, times: int = 1) -> list[str | None]:
    """Makes the same calls in several rollouts; returns their names."""
    salt, names = secrets.token_hex(4), []
    for _ in range(times):
        with client.rollout("terminal", salt=salt) as rollout:
            SOURCES[rollout.id] = rollout.call("bash", {"command": "cd /tmp"}).source
            names.append(rollout.id)
    return names


def until_closed(happened: Iterator[Event], names: list[str | None]) -> list[Event]:
    """Returns the events of some rollouts up to the one that tells that the last of them has ended."""
    found: list[Event] = []
    for event in happened:
        if event.data.get("name") in names:
            found.append(event)
        if (event.name, event.data.get("name")) == ("rollout_closed", names[-1]):
            break
    return found


@pytest.mark.parametrize("place", ["tcp", "unix", "workers"])
def test_rollouts_and_calls_are_told(request: pytest.FixtureRequest, place: str) -> None:
    request.param = place
    with tvsnap.connect(url_of(request)) as client, client.events() as happened:
        names = some_calls(client, 3)
        found = until_closed(happened, names)
        assert {name: [event.name for event in found if event.data["name"] == name] for name in names} == {
            name: ["rollout_opened", "call", "rollout_closed"] for name in names
        }
        calls = [event.data for event in found if event.name == "call"]
        assert [call["source"] for call in calls] == [SOURCES[name] for name in names]
        assert {call["tool"] for call in calls} == {"bash"}
        assert all(0 < call["seconds"] < 60 for call in calls)
        known = filter(None, (call["state"] for call in calls))  # where an executed call led may be known only later
        assert {client.graph.resolve(state).depth for state in known} <= {1}


def test_grades_are_told(server: Server) -> None:
    with tvsnap.connect(server.url) as client, client.events() as happened:
        with client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            rollout.call("bash", {"command": "echo 1 > /tmp/f"})
            for _ in range(2):
                rollout.grade(tvsnap.Verifier("cat /tmp/f"))
            state, name = rollout.state, rollout.id
        graded = [event.data for event in until_closed(happened, [name]) if event.name == "graded"]
    assert [(each["state"], each["reward"], each["source"]) for each in graded] == [
        (state, 1.0, "executed"),
        (state, 1.0, "hit"),
    ]


def test_they_are_awaited(server: Server) -> None:
    async def work() -> list[str]:
        async with await tvsnap.aio.connect(server.url) as client, client.events() as happened:
            async with client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
                await rollout.call("bash", {"command": "cd /tmp"})
                own = rollout.id
            names: list[str] = []
            async for event in happened:
                if event.data.get("name") == own:
                    names.append(event.name)
                if names[-1:] == ["rollout_closed"]:
                    break
            return names

    assert asyncio.run(asyncio.wait_for(work(), 120)) == ["rollout_opened", "call", "rollout_closed"]


def test_tenants_see_their_own(guarded: Server) -> None:
    with (
        tvsnap.connect(guarded.url, ONE) as one,
        tvsnap.connect(guarded.url, TWO) as two,
        one.events() as of_one,
        two.events() as of_two,
    ):
        others, own = some_calls(two), some_calls(one)
        seen: list[Event] = []
        for event in of_one:
            seen.append(event)
            if event.name == "rollout_closed":
                break
        assert {event.data["name"] for event in seen} == set(own)
        assert {event.data["name"] for event in until_closed(of_two, others)} == set(others)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_they_end_with_the_server_and_do_not_hold_it_up(home: Path, workers: str) -> None:
    server = start(home, "--grace", "300", "--workers", workers)
    with tvsnap.connect(server.url) as client, client.events() as happened:
        server.process.send_signal(signal.SIGTERM)
        assert list(happened) == []
        assert server.process.wait(60) == 0


def test_the_verb_writes_lines(server: Server) -> None:
    words = [sys.executable, "-m", "tests.server.main", "events", "--url", server.url]
    folder = Path(__file__).parents[2]
    with (
        subprocess.Popen([*words, "--json"], stdout=subprocess.PIPE, cwd=folder) as as_json,
        subprocess.Popen(words, stdout=subprocess.PIPE, cwd=folder) as as_text,
        tvsnap.connect(server.url) as client,
    ):
        assert as_json.stdout is not None
        assert as_text.stdout is not None
        pending = {as_json: "", as_text: ""}
        while not all(pending.values()):  # until both listen
            some_calls(client)
            for process in pending:
                assert process.stdout is not None
                if not pending[process] and _has_something(process.stdout.fileno()):
                    pending[process] = process.stdout.readline().decode()
        told = json.loads(pending[as_json])
        assert told["event"] in ("rollout_opened", "call", "rollout_closed")
        assert pending[as_text].startswith(("rollout_opened: rollout=", "call: rollout=", "rollout_closed: rollout="))
        for process in pending:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130


def _has_something(descriptor: int) -> bool:

    return bool(select.select([descriptor], [], [], 0)[0])


def test_a_slow_client_is_told_how_many_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_WAITING", 3)
    monkeypatch.setattr(events, "HEARTBEAT", 0.01)
    tenant = Tenant("mine")

    async def work() -> bytes:
        hub = Events()
        hub.tell("nobody", {})
        assert not hub.heard
        listening = hub.listen(tenant)
        seen = await anext(listening)
        assert hub.heard
        hub.tell("of_others", {}, Tenant("other"))
        hub.tell("of_nobody", {})
        for number in range(10):
            hub.tell("one", {"number": number}, tenant)
        for _ in range(5):
            seen += await anext(listening)
        hub.tell("one", {"number": 10}, tenant)
        seen += await anext(listening)
        hub.close()
        assert [one async for one in listening] in ([], [b": the server stops\n\n"])
        assert not hub.heard
        return seen

    found = asyncio.run(work())
    assert found.count(b"\n\n") == 7
    assert b": nothing happened\n\n" in found
    told = [(event.name, dict(event.data)) for event in EventParser().take(found)]
    assert told == [
        *(("one", {"number": number}) for number in range(3)),
        ("dropped", {"count": 7}),
        ("one", {"number": 10}),
    ]


def test_pieces_may_break_anywhere() -> None:
    parser, found = EventParser(), []
    for byte in 'event: call\ndata: {"tool": "ä"}\n\n: nothing\n\nevent: b\ndata: {}\n\n'.encode():
        found += parser.take(bytes([byte]))
    assert found == [Event("call", {"tool": "ä"}), Event("b", {})]
