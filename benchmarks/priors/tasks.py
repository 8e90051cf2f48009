"""Tasks whose states are told in words: levels of BabyAI, and games that TextWorld generates."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class View:
    """What an agent sees, and what would be best.

    Attributes:
        goal: what it is to do.
        text: the abstraction of the state in words.
        actions: the admissible ones.
        best: those among them that begin a shortest way to the goal; only the oracle and the figures know them.
    """

    goal: str
    text: str
    actions: tuple[str, ...]
    best: frozenset[str]


class Task(Protocol):
    """An environment with a bounded number of steps."""

    def reset(self, number: int) -> View:
        """Begins the rollout of a number, which always begins alike; negative ones are of examples only."""
        ...

    def step(self, action: str) -> tuple[View | None, float]:
        """Takes an action; returns what is seen then, None at the end, and the reward."""
        ...


_EXAMPLES = 1_000_000
"""From this seed on, levels are those of examples."""
_TURNS = ("turn left", "turn right", "go forward")
_COUNTS = ("no steps", "one step", "two steps", "three steps", "four steps", "five steps", "six steps", "seven steps")


class BabyAI:
    """A level of BabyAI in one room (MiniGrid). What is told: where the goal is, as far as it is in sight, and what is
    beside the agent. The reward is 1 - 0.9 steps / 64, as MiniGrid has it."""

    def __init__(self, level: str, *, picks_up: bool) -> None:
        import gymnasium
        import minigrid  # noqa: F401, registers its levels

        self._environment: Any = gymnasium.make(level)
        self._actions = (*_TURNS, "pick up") if picks_up else _TURNS
        self._mission = ""

    def reset(self, number: int) -> View:
        """Begins the rollout of a number."""
        observation, _ = self._environment.reset(seed=number if number >= 0 else _EXAMPLES - number)
        self._mission = observation["mission"]
        return self._view()

    def step(self, action: str) -> tuple[View | None, float]:
        """Takes an action."""
        _, reward, ended, cut_off, _ = self._environment.step(self._actions.index(action))
        return None if ended or cut_off else self._view(), float(reward)

    def _view(self) -> View:
        inside = self._environment.unwrapped
        targets = {(int(x), int(y)) for x, y in inside.instrs.desc.obj_poss}
        place, facing = (int(inside.agent_pos[0]), int(inside.agent_pos[1])), int(inside.agent_dir)
        seen = sorted(
            (abs(ahead) + abs(aside), ahead, aside)
            for x, y in targets
            if inside.in_view(x, y)
            for ahead, aside in [_relative(place, facing, (x, y))]
        )
        told = f"The goal is {_way(*seen[0][1:])}." if seen else "The goal is not in sight."
        sides = ((0, "Ahead"), (3, "Left"), (1, "Right"))
        told += "".join(f" {name}: {self._there(place, (facing + turn) % 4)}." for turn, name in sides)
        return View(self._mission, told, self._actions, self._best(place, facing, targets))

    def _there(self, place: tuple[int, int], facing: int) -> str:
        cell = self._environment.unwrapped.grid.get(*_ahead(place, facing))
        return "free" if cell is None else f"a {cell.color} {cell.type}" if cell.type != "wall" else "a wall"

    def _best(self, place: tuple[int, int], facing: int, targets: set[tuple[int, int]]) -> frozenset[str]:
        """Returns the first actions of the shortest ways to stand before a target, or to pick it up if one does."""
        if _ahead(place, facing) in targets:
            return frozenset(self._actions[3:] or self._actions)
        grid = self._environment.unwrapped.grid
        distance: dict[tuple[tuple[int, int], int], int] = {}
        waiting: deque[tuple[tuple[int, int], int, str, int]] = deque([(place, facing, "", 0)])
        firsts: set[str] = set()
        shortest: int | None = None
        while waiting:
            at, looks, first, steps = waiting.popleft()
            if shortest is not None and steps > shortest:
                break
            if _ahead(at, looks) in targets:
                shortest = steps
                firsts.add(first)
                continue
            if distance.setdefault((at, looks), steps) < steps:
                continue
            ahead = _ahead(at, looks)
            nexts = [("turn left", at, (looks + 3) % 4), ("turn right", at, (looks + 1) % 4)]
            if grid.get(*ahead) is None:
                nexts.append(("go forward", ahead, looks))
            waiting.extend((there, way, first or action, steps + 1) for action, there, way in nexts)
        return frozenset(firsts or self._actions)


def _ahead(place: tuple[int, int], facing: int) -> tuple[int, int]:
    along, down = ((1, 0), (0, 1), (-1, 0), (0, -1))[facing]
    return place[0] + along, place[1] + down


def _relative(place: tuple[int, int], facing: int, other: tuple[int, int]) -> tuple[int, int]:
    """Returns how many steps ahead and to the right of the agent a place is."""
    along, down = other[0] - place[0], other[1] - place[1]
    return ((along, down), (down, -along), (-along, -down), (-down, along))[facing]


def _way(ahead: int, right: int) -> str:
    parts = [f"{_COUNTS[ahead]} ahead"] if ahead else []
    parts += [f"{_COUNTS[abs(right)]} to the {'right' if right > 0 else 'left'}"] if right else []
    return " and ".join(parts)


class TextWorld:
    """Games that TextWorld generates, by turns: six rooms, a quest of four commands. The reward is 1 at the end."""

    STEPS = 25
    GAMES = 12
    EXAMPLES = 3

    def __init__(self, folder: Path) -> None:
        import textworld

        told = textworld.EnvInfos(
            admissible_commands=True, policy_commands=True, description=True, inventory=True, objective=True, won=True
        )
        self._games = [textworld.start(str(file), told) for file in sorted(folder.glob("*.z8"))]
        self._environment: Any = None
        self._left = 0

    def reset(self, number: int) -> View:
        """Begins the rollout of a number."""
        self._environment = self._games[number % self.GAMES if number >= 0 else self.GAMES + -number % self.EXAMPLES]
        self._left = self.STEPS
        return _told(self._environment.reset())

    def step(self, action: str) -> tuple[View | None, float]:
        """Takes an action."""
        state, _, done = self._environment.step(action)
        self._left -= 1
        return None if done or not self._left else _told(state), float(bool(state["won"]))


def _told(state: Any) -> View:
    idle = ("examine ", "look", "inventory")  # they change nothing, and the text says what they would
    actions = tuple(each for each in state["admissible_commands"] if not each.startswith(idle))
    text = " ".join(f"{state['description']} {state['inventory']}".split())
    policy: Sequence[str] = state["policy_commands"] or ()
    best = frozenset(policy[:1]) & frozenset(actions)
    return View(" ".join(state["objective"].split()), text, actions, best or frozenset(actions))


def make_games(folder: Path) -> None:
    """Has TextWorld generate its games into a folder; it takes a second for each."""
    import textworld.generator

    for number in range(TextWorld.GAMES + TextWorld.EXAMPLES):
        options = textworld.GameOptions()
        options.seeds, options.nb_rooms, options.nb_objects, options.quest_length = number, 6, 8, 4
        options.path = str(folder / f"{number:02}.z8")
        textworld.generator.compile_game(textworld.generator.make_game(options), options)


def examples(task: Task, count: int) -> list[tuple[View, str]]:
    """Returns states of rollouts that are not measured, each with a best action."""
    found: list[tuple[View, str]] = []
    number = 0
    while len(found) < count:
        number -= 1
        view: View | None = task.reset(number)
        while view is not None and len(found) < count:
            action = min(view.best)
            found.append((view, action))
            view, _ = task.step(action)
    return found


def make(name: str, games: Path) -> Task:
    """Returns a task by its name; the games of TextWorld lie in a folder."""
    if name == "textworld":
        return TextWorld(games)
    level, picks_up = LEVELS[name]
    return BabyAI(level, picks_up=picks_up)


LEVELS = {
    "red-ball": ("BabyAI-GoToRedBallNoDists-v0", False),
    "go-to": ("BabyAI-GoToLocal-v0", False),
    "pick-up": ("BabyAI-PickupLoc-v0", True),
}
TASKS = (*LEVELS, "textworld")
