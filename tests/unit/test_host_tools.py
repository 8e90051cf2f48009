"""Tools that run on the host: answered by state or by arguments alone, for a time, with what a hit saves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.text import costs
from tests.fakes import inside
from tests.fakes.backend import FakeBackend, fake_image
from tests.fakes.caches import IMAGE, FakeImages, backend_of, bash, eventually, threads
from tvsnap import Cache, Sandbox, TerminalEnvironment, UsageError, tool
from tvsnap.errors import ToolFailed
from tvsnap.graph import Graph
from tvsnap.types import CallContext, Part
from tvsnap.upkeep import verify
from tvsnap.upkeep.figures import figures


class Service:
    """What the tools ask: counts how often it was asked for what."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def ask(self, what: str) -> str:
        self.asked.append(what)
        assert self.gate.wait(60)
        return f"{what}: {len(self.asked)}"


def opened(home: Path, service: Service, **options: Any) -> Cache:
    """Opens a cache whose environment has tools that ask a service."""

    @tool(on_host=True, cost={"usd": 0.25})
    def price(what: str) -> str:
        """Returns a price, in the present state."""
        return service.ask(what)

    @tool(on_host=True, stateless=True, cost={"usd": 2.0, "tokens": 10})
    def search(what: str, pages: int = 1) -> list[Part]:
        """Returns what the world says."""
        if what == "nothing":
            raise ToolFailed("404")
        if what == "trouble":
            service.asked.append(what)
            raise ConnectionRefusedError(111, "refused")
        if what == "mistake":
            raise ZeroDivisionError("oops")
        return [Part.text(service.ask(what)), Part.png(b"png")]

    @tool(on_host=True, stateless=True, time_to_live=0.3)
    def weather(context: CallContext, where: str) -> str:
        """Returns the weather, which changes."""
        assert context.timeout > 0
        return service.ask(where)

    @tool(on_host=True, stochastic=True)
    def dice(sides: int) -> str:
        """Returns a throw."""
        return service.ask("dice")

    environment = TerminalEnvironment("terminal", "host", (price, search, weather, dice))
    return Cache(
        home, backend=FakeBackend(), images=FakeImages(), environments=[environment], policy="eager", **options
    )


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def cache(tmp_path: Path, service: Service) -> Iterator[Cache]:
    with opened(tmp_path, service) as cache:
        yield cache


def test_a_value_is_kept_under_the_state(cache: Cache, service: Service) -> None:
    for number in range(2):
        with cache.rollout("terminal") as rollout:
            state = rollout.state
            first = rollout.call("price", {"what": "a"})
            assert rollout.state == state
            bash(rollout, "echo 1 > f")
            second = rollout.call("price", {"what": "a"})
            assert (first.output, second.output) == ("a: 1", "a: 2")
            assert first.source == second.source == ("executed" if number == 0 else "hit")
            assert first.cost == {"usd": 0.25}
    assert service.asked == ["a", "a"]
    assert cache.stats().saved_cost == {"usd": 0.5}


def test_no_sandbox_is_made_for_it(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        rollout.call("price", {"what": "a"})
        rollout.call("search", {"what": "a"})
    assert backend_of(cache).counts["start"] == 0


def test_a_stateless_value_serves_in_any_state_of_one_salt(cache: Cache, service: Service, tmp_path: Path) -> None:
    with cache.rollout("terminal") as rollout:
        assert rollout.call("search", {"what": "a"}).source == "executed"
        bash(rollout, "echo 1 > f")
        again = rollout.call("search", {"what": "a"})
        assert (again.source, again.parts) == ("hit", (Part.text("a: 1"), Part.png(b"png")))
        assert rollout.call("search", {"what": "a", "pages": 2}).source == "executed"
        rollout.sandbox().run("echo 2 > f", timeout=5)
        assert rollout.call("search", {"what": "a"}).source == "hit", "in a private branch, too"
        assert rollout.private
        assert rollout.call("price", {"what": "a"}).source == "executed"
        assert rollout.call("price", {"what": "a"}).source == "executed"
    with cache.rollout("terminal", salt="other") as rollout:
        assert rollout.call("search", {"what": "a"}).source == "executed"
    assert cache.stats().saved_cost == {"usd": 4.0, "tokens": 20.0}


def test_a_value_is_asked_for_again_after_its_time_to_live(
    cache: Cache, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    with cache.rollout("terminal") as rollout:
        monkeypatch.setattr("time.time", lambda: now)
        first = rollout.call("weather", {"where": "a"})
        assert rollout.call("weather", {"where": "a"}).output == first.output
        now += 0.35
        second = rollout.call("weather", {"where": "a"})
        assert (second.source, second.output) == ("executed", "a: 2")
        assert rollout.call("weather", {"where": "a"}).output == "a: 2"


def test_a_value_from_before_the_clock_was_set_back_is_asked_for_again(
    cache: Cache, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How old it is, is not known."""
    with cache.rollout("terminal") as rollout:
        real = time.time
        with monkeypatch.context() as patch:
            patch.setattr("time.time", lambda: real() + 3600.0)
            rollout.call("weather", {"where": "a"})
        assert rollout.call("weather", {"where": "a"}).source == "executed"


def test_rollouts_that_ask_at_the_same_time_ask_once(
    cache: Cache, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.gate.clear()
    waits = inside.waits(monkeypatch)
    with threads(3) as pool:
        rollouts = [cache.rollout("terminal") for _ in range(3)]
        calls = [pool.submit(rollout.call, "search", {"what": "a"}) for rollout in rollouts]
        eventually(lambda: service.asked and len(waits) == 2)
        service.gate.set()
        assert sorted(call.result(60).source for call in calls) == ["coalesced", "coalesced", "executed"]
    assert service.asked == ["a"]


def test_a_failure_that_is_returned_is_kept_and_one_that_is_raised_is_not(cache: Cache, service: Service) -> None:
    with cache.rollout("terminal") as rollout:
        failed = rollout.call("search", {"what": "nothing"})
        assert (failed.output, failed.exit_code) == ("404\n", 1)
        assert rollout.call("search", {"what": "nothing"}).source == "hit"
        with pytest.raises(ZeroDivisionError):
            rollout.call("search", {"what": "mistake"})
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                rollout.call("search", {"what": "trouble"})
        assert service.asked == ["trouble", "trouble"]
        assert rollout.call("search", {"what": "a"}).source == "executed"


def test_chance_is_never_shared(cache: Cache, service: Service) -> None:
    with cache.rollout("terminal") as rollout:
        assert rollout.call("dice", {"sides": 6}).output == "dice: 1"
        assert "left to chance" in str(rollout.unshared)
        assert rollout.call("dice", {"sides": 6}).output == "dice: 2"


def test_without_the_cache_each_call_is_made(tmp_path: Path, service: Service) -> None:
    with opened(tmp_path, service, use_cache=False) as cache, cache.rollout("terminal") as rollout:
        assert [rollout.call("search", {"what": "a"}).output for _ in range(2)] == ["a: 1", "a: 2"]
        assert bash(rollout, "echo 1").output == "1\n"


def test_it_is_checked_by_nobody_in_a_sandbox(cache: Cache) -> None:
    with cache.rollout("terminal") as rollout:
        rollout.call("search", {"what": "a"})
        rollout.call("price", {"what": "a"})
        root = rollout.root
    assert verify.candidates(cache.graph.tree()) == []
    (edge,) = cache.graph.out_edges(root)
    with pytest.raises(UsageError, match="was made on the host"):
        cache.reexecute(edge)
    (stateless,) = (info.hash for info in cache.graph.roots() if not info.image_digest)
    with pytest.raises(UsageError, match="no sandbox can be in it"), cache.materialise(stateless):
        pass


def test_what_is_recorded_lasts(tmp_path: Path, service: Service) -> None:
    for source in ("executed", "hit"):
        with opened(tmp_path, service) as cache, cache.rollout("terminal") as rollout:
            assert rollout.call("search", {"what": "a"}).source == source
    with Graph(tmp_path / "tvsnap.db") as graph:
        assert graph.counters()["saved_cost.usd"] == 2.0
        assert figures(tmp_path, graph)["saved_cost"] == {"tokens": 10.0, "usd": 2.0}
    assert costs({"tokens": 12_000.0, "usd": 2.5}) == "12,000 tokens, 2.5 usd"


def test_options_that_contradict_each_other() -> None:
    def ask(sandbox: Sandbox) -> str:
        return ""

    with pytest.raises(UsageError, match="only a tool with on_host=True"):
        tool(stateless=True)(ask)
    with pytest.raises(UsageError, match="a tool on the host has no sandbox"):
        tool(on_host=True)(ask)
    assert IMAGE.digest == fake_image().digest
