"""Makes cases: histories of motifs, filling and recorded calls, mutated and spliced, and scenarios that share them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.fuzz import chance as silent
from tests.fuzz import developing, grammar, systems, tables, unseen, videos
from tests.fuzz.cases import Action, Case, Motif, Step
from tests.fuzz.probes import probes
from tests.fuzz.recorded import LONGEST, TOPIC, Recorded

POLICIES = ("default", "default", "default", "eager", "eager", "never")


@dataclass(frozen=True)
class Taste:
    """What cases are made of.

    Attributes:
        environment: of their world.
        programs: there are real ones.
        policies: to choose from.
        recorded: histories of real agents.
        times: times of files are asked for as well.
        processes: some rollouts are made by other processes, some of which are killed.
        only: topics that every case has one of, by how they begin; empty for any.
        without: topics that no case has, by how they begin.
        slow: sandboxes are dear: cases are short.
    """

    environment: str = "terminal"
    programs: bool = True
    policies: tuple[str, ...] = POLICIES
    recorded: Recorded = field(default_factory=lambda: Recorded(()))
    times: bool = False
    processes: bool = True
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    slow: bool = False


class Maker:
    """Makes one case."""

    def __init__(self, name: str, world: str, taste: Taste) -> None:
        """Prepares it.

        Args:
            name: of the case, which determines it together with the rest.
            world: see `Case.world`.
            taste: what it is made of.
        """
        self._name, self._world, self._taste = name, world, taste
        self._chance = Random(f"{name} {world}")
        self._steps: dict[int, Step] = {}
        self._letters = "abcdefghij"

    def make(self) -> Case:
        """Returns the case."""
        history, views = self._history()
        first = self._number(history)
        asked = self._number(views)
        probing = self._number(probes(self._taste.environment) if self._taste.programs else [])
        return Case(self._name, self._world, self._steps, self._actions(first, asked, probing), self._options())

    # Histories.

    def _history(self) -> tuple[list[Step], list[Step]]:
        """Returns a history, and views of what it makes."""
        chance, recorded = self._chance, self._taste.recorded.of(self._taste.environment)
        only = self._taste.only
        if recorded and (chance.random() < 0.35 if not only else TOPIC.startswith(only)):
            return self._recorded(recorded), []
        motifs = [self._motif() for _ in range(chance.choice((1, 1, 1, 2) if self._taste.slow else (1, 1, 1, 2, 2, 3)))]
        history = self._merged([list(motif.steps) for motif in motifs])
        views = [view for motif in motifs for view in motif.views]
        for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
            history.insert(chance.randint(0, len(history)), self._filling())
        for motif in motifs:
            last = max(index for index, step in enumerate(history) if step in motif.steps)
            for view in chance.sample(motif.views, min(len(motif.views), chance.choice((0, 1, 1, 2)))):
                history.insert(chance.randint(last + 1, len(history)), view)
        return self._mutated(history), views

    def _motif(self) -> Motif:
        taste = self._taste
        for _ in range(1000):
            found = self._some_motif(f"/app/m{self._letters[0]}")
            if (not taste.only or found.topic.startswith(taste.only)) and not found.topic.startswith(taste.without):
                self._letters = self._letters[1:]
                return found
        raise ValueError(f"no motif is called {' or '.join(taste.only)}")

    def _some_motif(self, d: str) -> Motif:
        chance, taste = self._chance, self._taste
        if taste.environment == "video":
            return videos.motif(chance, d)
        if taste.environment != "terminal":
            return systems.motif(chance, taste.environment, d)
        if not taste.programs:
            return silent.placed(chance, d, programs=False)
        kind = chance.random()
        if kind < 0.3:
            return silent.placed(chance, d)
        if kind < 0.5:
            special: list[Callable[[Random, str], Motif]] = [*silent.SPECIAL, *(silent.TIMES if taste.times else ())]
            return chance.choice(special)(chance, d)
        if kind < 0.65:
            return chance.choice(developing.SPECIAL)(chance, d)
        if kind < 0.68:
            return unseen.keys_cut_short(chance, d)
        return unseen.unseen(chance, d)

    def _filling(self) -> Step:
        if self._taste.environment == "terminal":
            return grammar.step(self._chance, programs=self._taste.programs)
        if self._taste.environment == "video":
            return videos.step(self._chance)
        return tables.step(self._chance, self._taste.environment)

    def _merged(self, parts: list[list[Step]]) -> list[Step]:
        """Returns the steps of all parts, each part's in their order."""
        found = []
        while parts := [part for part in parts if part]:
            found.append(self._chance.choice(parts).pop(0))
        return found

    def _mutated(self, history: list[Step]) -> list[Step]:
        """Returns a history from which a call was dropped, in which one comes twice, or two have changed places."""
        chance = self._chance
        # What makes a fact stays as it is: views of one that was half made would not agree.
        free = [index for index, step in enumerate(history) if not step.sets]
        if not free or chance.random() > 0.25:
            return history
        found, at = list(history), chance.choice(free)
        what = chance.choice(("drop", "double", "swap", "replace", "timeout"))
        if what == "drop" and len(found) > 1:
            del found[at]
        elif what == "double":
            found.insert(chance.randint(at, len(found)), found[at])
        elif what == "swap" and len(found) > 1:
            other = chance.choice(free)
            found[at], found[other] = found[other], found[at]
        elif what == "replace":
            found[at] = self._filling()
        elif what == "timeout":
            found[at] = replace(found[at], timeout=chance.choice((10.0, 40.0)))
        return found

    def _recorded(self, recorded: list[list[Step]]) -> list[Step]:
        """Returns a part of a recorded history: its beginning, spliced with another's end, or with filling in it."""
        chance = self._chance
        history = chance.choice(recorded)
        found = history[: chance.randint(1, LONGEST)]
        if chance.random() < 0.4:
            other = chance.choice(recorded)
            begin = chance.randrange(len(other))
            found = [*found[: LONGEST // 2], *other[begin : begin + LONGEST // 2]]
        if chance.random() < 0.3:
            found.insert(chance.randint(0, len(found)), self._filling())
        return self._mutated(found)

    # Scenarios.

    def _number(self, steps: list[Step]) -> list[int]:
        numbers = range(len(self._steps), len(self._steps) + len(steps))
        self._steps.update(zip(numbers, steps, strict=True))
        return list(numbers)

    def _options(self) -> dict[str, Any]:
        chance = self._chance
        found: dict[str, Any] = {"policy": chance.choice(self._taste.policies)}
        if chance.random() < 0.6:
            found["park"] = 0
        if chance.random() < 0.15:
            found["snapshots"] = chance.choice((0, 1, 2))
        found["prefork"] = chance.choice((0, 0, 0, 2))
        return found

    def _actions(self, history: list[int], views: list[int], probing: list[int]) -> tuple[Action, ...]:
        chance = self._chance

        def tail(most: int = 3) -> list[int]:
            """Other calls than those of the history: views, probes, filling."""
            found = []
            for _ in range(chance.randint(1, most)):
                kind = chance.random()
                if views and kind < 0.6:
                    found.append(chance.choice(views))
                elif probing and kind < 0.8:
                    found.append(chance.choice(probing))
                else:
                    found += self._number([self._filling()])
            return found

        def departing() -> tuple[int, ...]:
            """A part of the history, and then something else."""
            end = chance.choice((len(history), len(history), chance.randint(1, len(history))))
            return (*history[:end], *tail())

        def look() -> tuple[int, ...]:
            return tuple(tail(2)) if chance.random() < 0.4 else ()

        actions = [Action("play", (tuple(history),), look())]
        ways: list[tuple[float, Callable[[], list[Action]]]] = [
            (8, lambda: [Action("play", (departing(),), look())]),
            (2, lambda: [Action("together", tuple(departing() for _ in range(chance.choice((2, 2, 3)))))]),
            (2, lambda: [Action("evict"), Action("play", (departing(),), look())]),
            (2, lambda: [Action("reopen", options=self._options()), Action("play", (departing(),), look())]),
            (1, lambda: [Action("resume", (tuple(tail()),), of=0)]),
            (1, lambda: [Action("evict"), Action("revisit", look=tuple(tail()), of=0)]),
            (2, lambda: self._held(len(actions), tuple(history[: chance.randint(1, len(history))]), tuple(tail()))),
        ]
        if self._taste.processes:
            ways.append((0.7, lambda: [Action("processes", (departing(), departing()))]))
            ways.append(
                (
                    0.7,
                    lambda: [
                        Action(
                            "kill", (tuple(history),), at=chance.randint(0, len(history)), delay=chance.uniform(0, 0.03)
                        ),
                        Action("play", (departing(),), look()),
                    ],
                )
            )
        weights, makes = zip(*ways, strict=True)
        for _ in range(chance.choice((1, 1, 2) if self._taste.slow else (1, 1, 2, 2, 3, 4))):
            actions += chance.choices(makes, weights)[0]()
        return tuple(actions)

    def _held(self, index: int, play: tuple[int, ...], rest: tuple[int, ...]) -> list[Action]:
        """A rollout that goes on after all snapshots were dropped."""
        between = self._chance.choice(([], [Action("evict")]))
        return [Action("play", (play,), hold=True), *between, Action("continue", (rest,), of=index)]


def make_case(name: str, world: str, taste: Taste) -> Case:
    """Returns a case; the same for the same arguments.

    Args:
        name: `SEED:NUMBER`.
        world: the name of the world that it is for.
        taste: what it is made of.
    """
    return Maker(name, world, taste).make()
