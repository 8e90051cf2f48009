"""The cache of priors: what is a hit, what is asked for anew, what is kept, by several threads and processes."""

from __future__ import annotations

import functools
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tvsnap import InfrastructureError, TvsnapError, UsageError
from tvsnap.graph import Graph
from tvsnap.plugins.priors import PriorCache
from tvsnap.plugins.priors.embedding import name_of
from tvsnap.plugins.proxy.store import AnswerStore

ACTIONS = ("north", "east", "south")
GOAL = "find the key"


class Model:
    """Proposes what it was told to, and counts how often it was asked."""

    def __init__(self, **weights: float) -> None:
        self.weights: Mapping[str, float] = weights or {"north": 3.0, "east": 1.0}
        self.asked = 0

    def __call__(self) -> Mapping[str, float]:
        self.asked += 1
        return self.weights


class Letters:
    """Counts letters: texts of similar letters have similar vectors."""

    name = "letters/1"

    def __call__(self, text: str) -> list[float]:
        return [float(text.count(chr(code))) for code in range(97, 123)]


def embed(text: str, scale: float = 1.0) -> list[float]:
    return [scale * float(text.count("a")), 1.0]


class Nameless:
    """One of several models, which nothing tells apart."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, text: str) -> list[float]:
        return embed(text, self.scale)

    def embed(self, text: str) -> list[float]:
        return embed(text, self.scale)


def made(scale: float) -> Callable[[str], list[float]]:
    def inner(text: str) -> list[float]:
        return embed(text, scale)

    return inner


def named(name: str, embedder: Callable[[str], list[float]]) -> Any:
    embedder.name = name  # type: ignore[attr-defined]
    return embedder


@pytest.fixture
def open_cache(tmp_path: Path) -> Iterator[Callable[..., PriorCache]]:
    opened: list[PriorCache] = []

    def make(**settings: object) -> PriorCache:
        settings = {"refresh": 0.0, "embedder": Letters(), **settings}
        cache = PriorCache(tmp_path / "priors.db", **settings)  # type: ignore[arg-type]
        opened.append(cache)
        return cache

    yield make
    for cache in opened:
        cache.close()


def test_the_same_state_is_asked_about_once(open_cache: Callable[..., PriorCache]) -> None:
    cache, model = open_cache(smoothing=0.3), Model()
    first = cache.prior(GOAL, ACTIONS, model, state="ab12")
    again = cache.prior(GOAL, ACTIONS, model, state="ab12")
    assert (first.source, again.source, model.asked) == ("asked", "exact", 1)
    assert first.probabilities == again.probabilities
    assert again.probabilities == pytest.approx({"north": 0.1 + 0.7 * 0.75, "east": 0.1 + 0.7 * 0.25, "south": 0.1})
    assert list(again.probabilities) == list(ACTIONS)
    assert again.similarity == 1.0
    assert again.error is None


@pytest.mark.parametrize(
    "other",
    [
        {"goal": "find the door"},
        {"actions": ("north", "east")},
        {"actions": ("north", "east", "west")},
        {"state": "ab13"},
        {"state": None, "text": "ab12"},
    ],
    ids=str,
)
def test_each_part_of_the_key_counts(open_cache: Callable[..., PriorCache], other: dict[str, object]) -> None:
    cache, model = open_cache(), Model()
    question: dict[str, object] = {"goal": GOAL, "actions": ACTIONS, "state": "ab12"}
    cache.prior(ask=model, **question)  # type: ignore[arg-type]
    assert cache.prior(ask=model, **{**question, **other}).source == "asked"  # type: ignore[arg-type]


def test_the_order_of_actions_does_not_count(open_cache: Callable[..., PriorCache]) -> None:
    cache, model = open_cache(), Model()
    first = cache.prior(GOAL, ACTIONS, model, state="ab12")
    again = cache.prior(GOAL, reversed(ACTIONS), model, state="ab12")
    assert again.source == "exact"
    assert list(again.probabilities) == list(reversed(ACTIONS))
    assert again.probabilities == first.probabilities


def test_a_similar_text_of_the_same_goal_and_actions_is_a_hit(open_cache: Callable[..., PriorCache]) -> None:
    cache, model = open_cache(delta=0.8), Model()
    cache.prior(GOAL, ACTIONS, model, text="a red door")
    near = cache.prior(GOAL, ACTIONS, model, text="the red door")
    assert near.source == "near"
    assert 0.8 <= near.similarity < 1.0
    assert cache.prior(GOAL, ACTIONS, model, text="a red door").source == "exact"
    assert cache.prior(GOAL, ACTIONS, model, text="xyz").source == "asked"
    assert cache.prior("another goal", ACTIONS, model, text="the red door").source == "asked"
    assert cache.prior(GOAL, ("north",), model, text="the red door").source == "asked"
    cache.delta = 1.5
    assert cache.prior(GOAL, ACTIONS, model, text="the red doors").source == "asked"


def test_the_nearest_of_several_is_taken(open_cache: Callable[..., PriorCache]) -> None:
    cache = open_cache(delta=0.5)
    for text, action in (("aaaab", "north"), ("aabbb", "east"), ("abbbbbbb", "south")):
        cache.delta = 1.5
        cache.prior(GOAL, ACTIONS, Model(**{action: 1.0}), text=text)
    cache.delta = 0.5
    near = cache.prior(GOAL, ACTIONS, Model(), text="aabbbb")
    assert max(near.probabilities, key=near.probabilities.__getitem__) == "east"


def test_a_hash_is_never_answered_by_a_text(open_cache: Callable[..., PriorCache]) -> None:
    cache, model = open_cache(delta=0.5), Model()
    cache.prior(GOAL, ACTIONS, model, state="ab12", text="a red door")
    assert cache.prior(GOAL, ACTIONS, model, state="cd34").source == "asked"
    assert cache.prior(GOAL, ACTIONS, model, state="ef56", text="a red door").source == "near"
    assert cache.prior(GOAL, ACTIONS, model, state="ab12", text="something else").source == "exact"


def test_vectors_of_another_embedder_are_not_compared(open_cache: Callable[..., PriorCache]) -> None:
    other = Letters()
    other.name = "letters/2"
    model = Model()
    open_cache(delta=0.5).prior(GOAL, ACTIONS, model, text="a red door")
    cache = open_cache(delta=0.5, embedder=other)
    assert cache.prior(GOAL, ACTIONS, model, text="the red door").source == "asked"
    assert cache.prior(GOAL, ACTIONS, model, text="a red door").source == "exact", "the text itself needs no vector"


def test_a_refresh_measures_what_it_replaces(open_cache: Callable[..., PriorCache]) -> None:
    cache = open_cache(smoothing=1e-6)
    cache.prior(GOAL, ACTIONS, Model(north=1.0), state="ab12")
    cache.refresh = 1.0
    replaced = cache.prior(GOAL, ACTIONS, Model(south=1.0), state="ab12")
    assert replaced.source == "asked"
    cache.refresh = 0.0
    again = cache.prior(GOAL, ACTIONS, Model(), state="ab12")
    assert again.probabilities["south"] > 0.99, "the new answer is kept"
    assert again.error == pytest.approx(math.log(2), abs=1e-3)
    stats = cache.stats()
    assert (stats.refreshes, stats.entries) == (1, 1)
    assert stats.divergence == pytest.approx(math.log(2), abs=1e-3)
    assert stats.near_divergence is None


def test_a_refresh_of_a_similar_state_measures_the_abstraction(open_cache: Callable[..., PriorCache]) -> None:
    cache = open_cache(delta=0.8, smoothing=1e-6)
    cache.prior(GOAL, ACTIONS, Model(north=1.0), text="a red door")
    cache.refresh = 1.0
    cache.prior(GOAL, ACTIONS, Model(north=1.0, south=1.0), text="the red door")
    cache.refresh = 0.0
    assert cache.prior(GOAL, ACTIONS, Model(), text="a red door").error == pytest.approx(0.2158, abs=1e-3)
    assert cache.prior(GOAL, ACTIONS, Model(), text="the red door").source == "exact", "it has an answer of its own now"
    stats = cache.stats()
    assert stats.near_divergence == pytest.approx(0.2158, abs=1e-3)
    assert stats.entries == 2


def test_the_refresh_rate_is_kept(open_cache: Callable[..., PriorCache]) -> None:
    cache, model = open_cache(refresh=0.25, seed=1), Model()
    for _ in range(401):
        cache.prior(GOAL, ACTIONS, model, state="ab12")
    assert 70 <= model.asked - 1 <= 130


def test_what_fails_is_not_kept(open_cache: Callable[..., PriorCache]) -> None:
    cache = open_cache()

    def fail() -> Mapping[str, float]:
        raise RuntimeError("the model is away")

    with pytest.raises(RuntimeError, match="away"):
        cache.prior(GOAL, ACTIONS, fail, state="ab12")
    with pytest.raises(UsageError, match="weight of the action 'north'"):
        cache.prior(GOAL, ACTIONS, lambda: {"north": -1.0}, state="ab12")
    assert cache.lookup(GOAL, ACTIONS, state="ab12") is None
    assert cache.prior(GOAL, ACTIONS, Model(), state="ab12").source == "asked"
    assert (cache.stats().asked, cache.stats().failed) == (3, 2)


def test_proposals_that_are_not_admissible_are_left_out(open_cache: Callable[..., PriorCache]) -> None:
    cache = open_cache(smoothing=0.1)
    prior = cache.prior(GOAL, ACTIONS, lambda: ["north", "fly", "north", "swim"], state="ab12")
    assert prior.probabilities["north"] == pytest.approx(0.9 + 0.1 / 3)
    even = cache.prior(GOAL, ACTIONS, lambda: ["fly"], state="cd34")
    assert set(even.probabilities.values()) == {1 / 3}
    assert cache.stats().refused == pytest.approx(0.75)


def test_it_is_durable(open_cache: Callable[..., PriorCache], tmp_path: Path) -> None:
    first = open_cache(delta=0.8)
    first.prior(GOAL, ACTIONS, Model(), text="a red door")
    for _ in range(3):
        first.prior(GOAL, ACTIONS, Model(), text="a red door")
    first.close()
    second = open_cache(delta=0.8)
    assert second.prior(GOAL, ACTIONS, Model(), text="a red door").uses == 3
    assert second.prior(GOAL, ACTIONS, Model(), text="the red door").source == "near"
    stats = second.stats()
    assert (stats.lookups, stats.exact_hits, stats.near_hits, stats.asked) == (6, 4, 1, 1)
    assert stats.hit_rate == pytest.approx(5 / 6)
    assert (tmp_path / "priors.db").stat().st_mode & 0o077 == 0


def test_another_process_adds_and_evicts(open_cache: Callable[..., PriorCache]) -> None:
    one, two = open_cache(delta=0.8), open_cache(delta=0.8)
    one.prior(GOAL, ACTIONS, Model(), text="a red door")
    assert two.prior(GOAL, ACTIONS, Model(), text="the red door").source == "near"
    two.prior(GOAL, ACTIONS, Model(), text="green xyz")
    assert one.prior(GOAL, ACTIONS, Model(), text="a green xyz").source == "near", "what came later is found, too"
    two.clear(GOAL)
    assert one.prior(GOAL, ACTIONS, Model(), text="the red door").source == "asked"


def test_one_thread_asks(open_cache: Callable[..., PriorCache]) -> None:
    cache, begun, sources = open_cache(), threading.Barrier(8), []
    asked = []

    def ask() -> Mapping[str, float]:
        asked.append(1)
        time.sleep(0.2)
        return {"north": 1.0}

    def look() -> None:
        begun.wait()
        sources.append(cache.prior(GOAL, ACTIONS, ask, state="ab12").source)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1
    assert sorted(sources) == ["asked", *["coalesced"] * 7]


def test_who_waits_for_one_that_fails_asks_itself(open_cache: Callable[..., PriorCache]) -> None:
    cache, inside = open_cache(), threading.Event()
    found = []

    def fail() -> Mapping[str, float]:
        inside.set()
        time.sleep(0.2)
        raise RuntimeError("away")

    def first() -> None:
        with pytest.raises(RuntimeError):
            cache.prior(GOAL, ACTIONS, fail, state="ab12")
        found.append("failed")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    assert cache.prior(GOAL, ACTIONS, Model(), state="ab12").source == "asked"
    thread.join()
    assert found == ["failed"]


PROCESS = """
import sys, time
from tvsnap.plugins.priors import PriorCache
def ask():
    print("asked", flush=True)
    time.sleep(float(sys.argv[2]))
    return {"north": 1.0}
cache = PriorCache(sys.argv[1], refresh=0.0)
print(cache.prior("find the key", ("north", "east", "south"), ask, state="ab12").source, flush=True)
cache.close()
"""


def _process(file: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(file), str(seconds)], stdout=subprocess.PIPE, text=True, env=os.environ
    )


def test_one_process_asks(tmp_path: Path) -> None:
    processes = [_process(tmp_path / "priors.db", 1.0) for _ in range(4)]
    said = [process.communicate(timeout=60)[0].split() for process in processes]
    assert sum("asked" in words[:-1] for words in said) == 1
    # One that started late finds the answer there.
    assert all(words[-1] in ("asked", "coalesced", "exact") for words in said)


def test_a_process_that_is_killed_while_it_asks_holds_up_nobody(
    open_cache: Callable[..., PriorCache], tmp_path: Path
) -> None:
    cache = open_cache()
    process = _process(tmp_path / "priors.db", 60.0)
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    timer = threading.Timer(0.3, process.kill)
    timer.start()
    assert cache.prior(GOAL, ACTIONS, Model(), state="ab12").source == "asked"
    assert process.wait(60) != 0


def test_what_is_worth_least_is_evicted(open_cache: Callable[..., PriorCache]) -> None:
    cache = open_cache(capacity=10)

    def slow() -> Mapping[str, float]:
        time.sleep(0.05)
        return {"north": 1.0}

    cache.prior(GOAL, ACTIONS, slow, state="slow")
    for number in range(30):
        cache.prior(GOAL, ACTIONS, Model(), state=f"{number}")
    assert cache.lookup(GOAL, ACTIONS, state="slow") is not None
    stats = cache.stats()
    assert stats.entries == 10
    assert stats.evicted == 21


def test_what_is_used_stays_and_what_was_used_once_goes_in_the_end(
    open_cache: Callable[..., PriorCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(float(number) for number in range(100_000))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))  # each question takes a second
    cache = open_cache(capacity=5)
    for _ in range(4):
        cache.prior(GOAL, ACTIONS, Model(), state="used")
    for number in range(12):
        cache.prior(GOAL, ACTIONS, Model(), state=f"a{number}")
    assert cache.lookup(GOAL, ACTIONS, state="used") is not None
    for number in range(60):
        cache.prior(GOAL, ACTIONS, Model(), state=f"b{number}")
    assert cache.lookup(GOAL, ACTIONS, state="used") is None


def test_a_damaged_entry_is_no_answer(open_cache: Callable[..., PriorCache], tmp_path: Path) -> None:
    cache = open_cache()
    cache.prior(GOAL, ACTIONS, Model(), state="ab12")
    cache.close()
    with sqlite3.connect(tmp_path / "priors.db") as connection:
        connection.execute("UPDATE entries SET probabilities = zeroblob(24)")
    connection.close()
    cache = open_cache()
    assert cache.prior(GOAL, ACTIONS, Model(), state="ab12").source == "asked"
    assert cache.prior(GOAL, ACTIONS, Model(), state="ab12").source == "exact"
    assert cache.stats().damaged == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "it is empty"), (b"no database at all" * 100, "damaged"), (None, "another program's file")],
    ids=["empty", "text", "sqlite"],
)
def test_a_file_that_is_none_of_ours(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "priors.db"
    if content is None:
        connection = sqlite3.connect(file)
        connection.execute("CREATE TABLE a (b)")
        connection.close()
    else:
        file.write_bytes(content)
    with pytest.raises(TvsnapError, match=reason) as caught:
        PriorCache(file)
    assert str(file) in str(caught.value)


def test_a_closed_cache_and_the_child_of_a_fork_say_so(open_cache: Callable[..., PriorCache]) -> None:
    cache = open_cache()
    child = os.fork()
    if child == 0:
        try:
            cache.prior(GOAL, ACTIONS, Model(), state="ab12")
        except InfrastructureError as error:
            os._exit(0 if "forked off" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache.prior(GOAL, ACTIONS, Model(), state="ab12").source == "asked", "the parent goes on"
    cache.close()
    cache.close()
    with pytest.raises(InfrastructureError, match="closed"):
        cache.prior(GOAL, ACTIONS, Model(), state="ab12")


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ({"state": None}, "needs the state"),
        ({"actions": ()}, "at least one admissible action"),
        ({"actions": "north"}, "several texts"),
        ({"actions": ("north", "north")}, "given twice"),
        ({"actions": ("north", 3)}, "must be a text"),
        ({"goal": None}, "the goal must be a text"),
        ({"goal": "\ud800"}, "surrogate"),
        ({"state": None, "text": 7}, "must be a text"),
    ],
    ids=str,
)
def test_a_question_that_makes_no_sense(
    open_cache: Callable[..., PriorCache], question: dict[str, object], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        open_cache().prior(ask=Model(), **{"goal": GOAL, "actions": ACTIONS, "state": "ab12", **question})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"delta": 0.0}, "delta must be above 0"),
        ({"delta": float("nan")}, "delta must be above 0"),
        ({"refresh": 1.5}, "refresh must be a probability"),
        ({"capacity": 0}, "capacity must be a whole number"),
        ({"smoothing": 0.0}, "smoothing must be above 0"),
        ({"embedder": 3}, "must be callable"),
        ({"delta": "1"}, "delta must be above 0"),
        ({"refresh": None}, "refresh must be a probability"),
        ({"smoothing": "a"}, "smoothing must be above 0"),
        ({"embedder": lambda text: [1.0]}, "attribute 'name'"),
        ({"embedder": functools.partial(embed, scale=2.0)}, "attribute 'name'"),
        ({"embedder": functools.lru_cache(lambda text: [1.0])}, "attribute 'name'"),
        ({"embedder": Nameless(2.0)}, "attribute 'name'"),
        ({"embedder": Nameless(2.0).embed}, "attribute 'name'"),
        ({"embedder": made(2.0)}, "attribute 'name'"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_setting_that_makes_no_sense(
    open_cache: Callable[..., PriorCache], setting: dict[str, object], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        open_cache(**setting)


@pytest.mark.parametrize("vector", [[[1.0]], [], [float("nan")], ["a"]], ids=str)
def test_an_embedder_that_returns_no_vector(open_cache: Callable[..., PriorCache], vector: list[float]) -> None:
    def broken(text: str) -> list[float]:
        return vector

    with pytest.raises(InfrastructureError, match="broken"):
        open_cache(embedder=named("broken", broken)).prior(GOAL, ACTIONS, Model(), text="a red door")


def test_an_embedder_whose_vectors_change_their_length(open_cache: Callable[..., PriorCache]) -> None:
    def changing(text: str) -> list[float]:
        return [1.0] * len(text)

    cache = open_cache(embedder=named("changing", changing))
    cache.prior(GOAL, ACTIONS, Model(), text="a")
    with pytest.raises(UsageError, match="another name"):
        cache.prior(GOAL, ACTIONS, Model(), text="ab")


def test_the_model_that_wordllama_carries(tmp_path: Path) -> None:
    pytest.importorskip("wordllama", reason="wordllama has no wheel for this Python")
    with PriorCache(tmp_path / "priors.db", delta=0.9, refresh=0.0) as cache:
        cache.prior(GOAL, ACTIONS, Model(), text="You are in a kitchen. There is a fridge.")
        near = cache.prior(GOAL, ACTIONS, Model(), text="You are in the kitchen; you see a fridge.")
        assert near.source == "near"
        assert cache.prior(GOAL, ACTIONS, Model(), text="The sun is a star.").source == "asked"
        assert cache.prior(GOAL, ACTIONS, Model(), text="").source == "asked", "no words are similar to nothing"


def test_many_similar_states_are_searched_by_a_graph(
    open_cache: Callable[..., PriorCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("usearch", reason="usearch has no wheel for this Python")
    monkeypatch.setattr("tvsnap.plugins.priors.neighbours.EXHAUSTIVE", 20)

    def circle(text: str) -> list[float]:
        return [math.cos(math.radians(float(text))), math.sin(math.radians(float(text))), 0.0]

    cache = open_cache(delta=1.5, embedder=named("circle", circle))
    for degrees in range(0, 360, 3):
        cache.prior(GOAL, ACTIONS, Model(**{ACTIONS[degrees // 3 % 3]: 1.0}), text=str(degrees))
    cache.delta = 0.99
    for degrees in range(0, 360, 3):
        near = cache.prior(GOAL, ACTIONS, Model(), text=str(degrees + 0.5))
        assert near.source == "near"
        assert max(near.probabilities, key=near.probabilities.__getitem__) == ACTIONS[degrees // 3 % 3]
        assert near.similarity == pytest.approx(math.cos(math.radians(0.5)), abs=1e-3)
    cache.clear()
    assert cache.prior(GOAL, ACTIONS, Model(), text="0.25").source == "asked", "what was deleted is found no more"
    assert cache.prior(GOAL, ACTIONS, Model(), text="0.75").source == "near"


@pytest.mark.parametrize("answer", [None, b"north", [1], {1: 1.0}, {"north": 10**400}, "north"])
def test_answers_that_make_no_sense_are_not_kept(tmp_path: Path, answer: object) -> None:
    with PriorCache(tmp_path / "priors.db") as cache:
        with pytest.raises(UsageError):
            cache.prior(GOAL, ACTIONS, lambda: answer, state="ab")  # type: ignore[arg-type,return-value]
        assert cache.prior(GOAL, ACTIONS, Model(), state="ab").source == "asked"


def test_who_asks_the_model_does_not_wait_for_itself(tmp_path: Path) -> None:
    with PriorCache(tmp_path / "priors.db") as cache:

        def ask() -> Mapping[str, float]:
            return dict(cache.prior(GOAL, ACTIONS, ask, state="ab").probabilities)

        with pytest.raises(UsageError, match="must not put the question"):
            cache.prior(GOAL, ACTIONS, ask, state="ab")
        assert cache.prior(GOAL, ACTIONS, Model(), state="ab").source == "asked"


def test_a_function_of_a_module_needs_no_name(open_cache: Callable[..., PriorCache]) -> None:
    assert name_of(embed) == f"{__name__}.embed"
    open_cache(embedder=embed).prior(GOAL, ACTIONS, Model(), text="a")


def test_threads_that_ask_each_others_questions_do_not_wait_for_ever(tmp_path: Path) -> None:
    """Both have begun to ask when each puts the other's question: one is refused, and the other gets its answer."""
    both = threading.Barrier(2)
    found: list[object] = []
    with PriorCache(tmp_path / "priors.db") as one, PriorCache(tmp_path / "priors.db") as another:

        def put(cache: PriorCache, mine: str, other: str) -> None:
            def ask() -> Mapping[str, float]:
                both.wait(60)
                return cache.prior(GOAL, ACTIONS, Model(), state=other).probabilities

            try:
                found.append(cache.prior(GOAL, ACTIONS, ask, state=mine).source)
            except UsageError as error:
                found.append(str(error))

        threads = [
            threading.Thread(target=put, args=args, daemon=True) for args in ((one, "ab", "cd"), (another, "cd", "ab"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(found) == 2, "they wait for each other"
        assert sorted("wait for each other" in str(each) for each in found) == [False, True]
        assert one.prior(GOAL, ACTIONS, Model(), state="ab").probabilities


def test_another_programs_file_is_left_as_it_was(tmp_path: Path) -> None:
    file, text = tmp_path / "foreign.db", tmp_path / "notes.txt"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE a (b)")
    connection.close()
    text.write_text("no database at all" * 100)
    for path, reason in ((file, "another program's file"), (text, "not a database")):
        path.chmod(0o644)
        before = path.read_bytes()
        for opening in (PriorCache, Graph, functools.partial(AnswerStore, max_bytes=1 << 20)):
            with pytest.raises(TvsnapError, match=reason):
                opening(path)
        assert path.read_bytes() == before
        assert path.stat().st_mode & 0o777 == 0o644
    assert {path.name for path in tmp_path.iterdir()} == {"foreign.db", "notes.txt"}


def test_lookups_and_deletions_are_of_the_models_own_answers(tmp_path: Path) -> None:
    with (
        PriorCache(tmp_path / "priors.db", model="tiny", refresh=0.0) as tiny,
        PriorCache(tmp_path / "priors.db", refresh=0.0) as nameless,
    ):
        tiny.prior(GOAL, ACTIONS, Model(), state="ab")
        assert tiny.lookup(GOAL, ACTIONS, state="ab") is not None
        assert nameless.lookup(GOAL, ACTIONS, state="ab") is None
        assert (nameless.clear(GOAL), tiny.clear(GOAL)) == (0, 1)
        for wrong in ("\ud800", 3):
            with pytest.raises(UsageError, match="the goal"):
                tiny.clear(wrong)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="the goal"):
                tiny.prior(wrong, ACTIONS, Model(), state="ab")  # type: ignore[arg-type]


def test_models_of_other_names_answer_for_themselves(tmp_path: Path) -> None:
    for name, source in (("tiny", "asked"), ("small", "asked"), ("", "asked"), ("tiny", "exact")):
        with PriorCache(tmp_path / "priors.db", model=name, refresh=0.0) as cache:
            assert cache.prior(GOAL, ACTIONS, Model(), state="ab").source == source
    with pytest.raises(UsageError, match="model must be a text"):
        PriorCache(tmp_path / "priors.db", model=3)  # type: ignore[arg-type]
