"""Priors for continuous control: SAC and CQL without a prior, with one, and with one that is cached by symbols.

    python -m benchmarks.priors.continuous --tasks pendulum --json build/continuous.json

It needs `pip install 'tvsnap[continuous]'`. The model is an oracle: a noisy expert with a delay, which is charged, not
waited for.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

try:
    import gymnasium
    import numpy
    import torch
    from stable_baselines3 import SAC
except ModuleNotFoundError as error:
    raise SystemExit(
        f"benchmarks.priors.continuous needs {error.name}, which is missing: {sys.executable} -m pip install -e "
        "'.[continuous]'"
    ) from None

from benchmarks import machine
from tvsnap.plugins.priors import Cooling, PriorCache
from tvsnap.plugins.priors.sac import PriorSAC
from tvsnap.plugins.priors.symbolic import Fading, SymbolicAction, SymbolicPrior
from tvsnap.plugins.priors.symbols import Pair, Symbols

ENVIRONMENTS = {"pendulum": "Pendulum-v1", "half-cheetah": "HalfCheetah-v5"}
VARIANTS = ("no prior", "asked each time", "cached")
PAIRS, SYMBOLS = 400, {"pendulum": 24, "half-cheetah": 48}
PROPOSALS, NOISE, DELAY_S = 5, 0.2, 0.35
"""Of the oracle: so many actions a question, each any with this probability; the median of its delays, in seconds."""
NETWORK: Mapping[str, Any] = {"net_arch": [64, 64]}
WEIGHT, COOLING = 10.0, Cooling(highest=50.0, lowest=2.5, half=500.0)
"""Of SAC with a prior, in units of return: the pendulum's are hundreds. Found on it with seed 1, which is not measured.
For CQL, whose rewards are standardised, the weight is 1."""
EVALUATED = 10
"""Rollouts after learning, without exploration, whose mean return is reported."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run was like.

    Attributes:
        task, method, variant, seed: of it.
        learning: the mean return of the rollouts while it learned; None offline.
        final: the mean return of the rollouts after it.
        asked: questions that the model was asked; `hits`: those that the cache answered.
        model_s: seconds that the oracle is charged for.
        run_s: seconds that learning took, without the oracle's.
    """

    task: str
    method: str
    variant: str
    seed: int
    learning: float | None
    final: float
    asked: int
    hits: int
    model_s: float
    run_s: float


class Expert:
    """Knows what to do; for the pendulum by its energy, for the cheetah from a policy that was trained before."""

    def __init__(self, task: str, policy: Path | None) -> None:
        self._policy = None if policy is None else SAC.load(policy, device="cpu")
        self._space = gymnasium.make(ENVIRONMENTS[task]).action_space

    def __call__(self, seen: Any) -> Any:
        """Returns its action, in coordinates from -1 to 1."""
        if self._policy is not None:
            action, _ = self._policy.predict(numpy.asarray(seen, numpy.float32), deterministic=True)
            return action
        cosine, sine, speed = map(float, seen)
        angle = math.atan2(sine, cosine)
        if cosine > 0.85:
            torque = -12.0 * angle - 3.0 * speed
        else:  # the energy of standing still at the top is 10, in the units of this environment
            torque = 2.0 * math.copysign(1.0, speed) * (1.0 if speed * speed / 6.0 + 5.0 * cosine < 5.0 else -1.0)
        return numpy.array([max(-1.0, min(1.0, torque / 2.0))], numpy.float32)


class Oracle:
    """Proposes the names of the symbolic actions that are nearest to the expert's action, with noise.

    Attributes:
        charged_s: the sum of its delays.
    """

    def __init__(self, expert: Expert, actions: Mapping[str, SymbolicAction], seed: int) -> None:
        self._expert, self._names, self._random = expert, tuple(actions), random.Random(seed)
        self._means = numpy.array([action.mean for action in actions.values()])
        self.charged_s = 0.0

    def best(self, seen: Any) -> str:
        """Returns the undisturbed answer; it is not charged."""
        return self._names[int(((self._means - self._expert(seen)) ** 2).sum(1).argmin())]

    def __call__(self, seen: Any) -> list[str]:
        """Returns five proposals."""
        self.charged_s += DELAY_S * math.exp(self._random.gauss(0.0, 0.4))
        best = self.best(seen)
        return [self._random.choice(self._names) if self._random.random() < NOISE else best for _ in range(PROPOSALS)]


def symbolic_actions(task: str, expert: Expert, seen: Sequence[Any]) -> dict[str, SymbolicAction]:
    """Returns five torques of the pendulum, or eight of the expert's own actions that are far from each other."""
    if task == "pendulum":
        names = {"hard left": -1.0, "left": -0.4, "none": 0.0, "right": 0.4, "hard right": 1.0}
        return {name: SymbolicAction((mean,)) for name, mean in names.items()}
    taken = numpy.array([expert(each) for each in seen])
    chosen = [taken[0]]
    while len(chosen) < 8:
        distances = ((taken[:, None] - numpy.array(chosen)[None]) ** 2).sum(2).min(1)
        chosen.append(taken[int(distances.argmax())])
    return {f"posture {number}": SymbolicAction(tuple(map(float, each)), 0.3) for number, each in enumerate(chosen)}


def observations(task: str, expert: Expert, count: int, seed: int, noise: float) -> list[Any]:
    """Returns observations of an expert that is disturbed: with the probability `noise` its action is any."""
    return [step[0] for step in recorded(task, expert, count, seed, noise)]


def recorded(
    task: str, expert: Expert, count: int, seed: int, noise: float
) -> list[tuple[Any, Any, float, bool, bool]]:
    """Returns steps: observation, action from -1 to 1, reward, whether it ended, and whether for lack of time."""
    environment, generator = gymnasium.make(ENVIRONMENTS[task]), numpy.random.default_rng(seed)
    high, steps = environment.action_space.high, list[tuple[Any, Any, float, bool, bool]]()
    seen, _ = environment.reset(seed=seed)
    while len(steps) < count:
        action = expert(seen)
        if generator.random() < noise:
            action = generator.uniform(-1, 1, len(high)).astype(numpy.float32)
        following, reward, ended, cut_off, _ = environment.step(action * high)
        steps.append((seen, action, float(reward), ended, cut_off))
        seen = environment.reset()[0] if ended or cut_off else following
    return steps


def symbols_of(task: str, expert: Expert, oracle: Oracle, seed: int) -> Symbols:
    """Learns symbols from pairs; they are of the same situation if the expert takes the same symbolic action."""
    seen = observations(task, expert, 4000, seed + 500, noise=0.5)
    draw = random.Random(seed)
    both = [(draw.choice(seen), draw.choice(seen)) for _ in range(4 * PAIRS)]
    labelled = [Pair(one, other, oracle.best(one) == oracle.best(other)) for one, other in both]
    same = [pair for pair in labelled if pair.same][: PAIRS // 2]
    return Symbols.learn(same + [pair for pair in labelled if not pair.same][: PAIRS - len(same)], SYMBOLS[task])


def evaluated(task: str, predict: Any, seed: int) -> float:
    """Returns the mean return of rollouts of a policy, given what it does for an observation."""
    environment, returns = gymnasium.make(ENVIRONMENTS[task]), []
    for number in range(EVALUATED):
        seen, _ = environment.reset(seed=10_000 * (seed + 1) + number)
        total, over = 0.0, False
        while not over:
            seen, reward, ended, cut_off, _ = environment.step(predict(seen))
            total, over = total + float(reward), ended or cut_off
        returns.append(total)
    return statistics.fmean(returns)


@dataclass(frozen=True, slots=True)
class Run:
    """What one process does.

    Attributes:
        task, method, variant, seed: as of `Outcome`.
        steps: in the environment (SAC), or of the optimiser (CQL).
        policy: the expert's, if it has one.
    """

    task: str
    method: str
    variant: str
    seed: int
    steps: int
    policy: Path | None


def carry_out(run: Run) -> Outcome:
    """Learns a task once, and says what that was like."""
    torch.set_num_threads(1)
    expert = Expert(run.task, run.policy)
    actions = symbolic_actions(run.task, expert, observations(run.task, expert, 1000, 77, noise=0.1))
    oracle = Oracle(expert, actions, run.seed)
    symbols = symbols_of(run.task, expert, oracle, run.seed)
    with tempfile.TemporaryDirectory(prefix="tvsnap-priors-") as folder:
        refresh = 1.0 if run.variant == "asked each time" else 0.02
        cache = PriorCache(Path(folder) / "priors.db", delta=1.5, refresh=refresh, embedder=symbols, seed=run.seed)
        with cache:
            prior = SymbolicPrior(cache, run.task, actions, symbols, oracle)
            begun = time.perf_counter()
            learn = sac if run.method == "SAC" else cql
            learning, predict = learn(run, None if run.variant == "no prior" else prior, expert)
            run_s = time.perf_counter() - begun
    final = evaluated(run.task, predict, run.seed)
    print(f"{run.task}, {run.method}, {run.variant}, seed {run.seed}: {final:.0f}", file=sys.stderr, flush=True)
    return Outcome(
        run.task,
        run.method,
        run.variant,
        run.seed,
        learning,
        final,
        prior.asked,
        prior.answered,
        oracle.charged_s,
        run_s,
    )


def sac(run: Run, prior: SymbolicPrior | None, expert: Expert) -> tuple[float | None, Any]:
    """Learns by acting; returns the mean return meanwhile, and the policy."""
    environment = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(ENVIRONMENTS[run.task]), 10_000)
    options: dict[str, Any] = {"seed": run.seed, "policy_kwargs": NETWORK, "learning_rate": 1e-3, "device": "cpu"}
    options |= {"learning_starts": 200 if run.task == "pendulum" else 1000}
    if prior is None:
        learner = SAC("MlpPolicy", environment, **options)
    else:
        fading = Fading(WEIGHT, run.steps)
        learner = PriorSAC("MlpPolicy", environment, prior=prior, fading=fading, temperature=COOLING, **options)
    learner.learn(run.steps)
    return statistics.fmean(environment.return_queue), lambda seen: learner.predict(seen, deterministic=True)[0]


def cql(run: Run, prior: SymbolicPrior | None, expert: Expert) -> tuple[float | None, Any]:
    """Learns from 5,000 steps of an expert whose action is any in three cases of four; returns the policy."""
    import d3rlpy
    import structlog

    from tvsnap.plugins.priors.cql import add_prior

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    seen, actions, rewards, ends, cut_off = map(
        numpy.array, zip(*recorded(run.task, expert, 5000, run.seed, noise=0.75), strict=True)
    )
    cut_off[-1] = True
    d3rlpy.seed(run.seed)
    data = d3rlpy.dataset.MDPDataset(seen, actions, rewards.astype(numpy.float32), ends, cut_off)
    encoder = d3rlpy.models.VectorEncoderFactory([64, 64])
    config = d3rlpy.algos.CQLConfig(
        batch_size=128,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        conservative_weight=1.0,
        n_action_samples=4,
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        observation_scaler=d3rlpy.preprocessing.StandardObservationScaler(),
        reward_scaler=d3rlpy.preprocessing.StandardRewardScaler(),
    )
    learner = config.create(device="cpu:0")
    learner.build_with_dataset(data)
    if prior is not None:
        for each in seen:
            prior.weights(each)
        add_prior(learner, prior, Fading(1.0, run.steps))
    silent = {"logger_adapter": d3rlpy.logging.NoopAdapterFactory(), "show_progress": False}
    learner.fit(data, n_steps=run.steps, n_steps_per_epoch=run.steps, **silent)
    high = gymnasium.make(ENVIRONMENTS[run.task]).action_space.high
    return None, lambda seen: learner.predict(seen[None].astype(numpy.float32))[0] * high


def train_expert(path: Path, steps: int) -> None:
    """Trains the cheetah's expert, by SAC without a prior."""
    torch.set_num_threads(1)
    environment = gymnasium.make(ENVIRONMENTS["half-cheetah"])
    SAC("MlpPolicy", environment, seed=99, learning_starts=1000, learning_rate=1e-3, device="cpu").learn(steps).save(
        path
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """Returns the means of the seeds, with standard deviations of returns, as a table of Markdown."""
    lines = [
        "| task, method | prior | return while learning | return after it | asked | by the cache | model | learning |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group in dict.fromkeys((each.task, each.method, each.variant) for each in outcomes):
        rows = [each for each in outcomes if (each.task, each.method, each.variant) == group]
        asked, hits = sum(each.asked for each in rows), sum(each.hits for each in rows)
        learning = [each.learning for each in rows if each.learning is not None]
        cells = [
            f"{group[0]}, {group[1]}",
            group[2],
            _spread(learning) if learning else "",
            _spread([each.final for each in rows]),
            f"{asked / len(rows):,.0f}",
            f"{hits / (asked + hits):.1%}" if asked else "",
            f"{statistics.fmean(each.model_s for each in rows):,.0f} s",
            f"{statistics.fmean(each.run_s for each in rows):,.0f} s",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):,.0f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:,.0f}"


def main() -> int:
    """Runs what was asked for; returns the exit status: 0 done, 2 bad usage."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.priors.continuous",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tasks", nargs="+", choices=ENVIRONMENTS, default=("pendulum",), help="pendulum")
    parser.add_argument("--methods", nargs="+", choices=("SAC", "CQL"), default=("SAC", "CQL"), help="by default both")
    parser.add_argument("--seeds", type=int, default=3, help="how many (3)")
    parser.add_argument("--seed", type=int, default=2, help="the first of them (2)")
    parser.add_argument("--steps", type=int, default=3000, help="of learning (3000)")
    parser.add_argument("--expert-steps", type=int, default=10_000, help="of the cheetah's expert (10000)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once (1)")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON; - for standard output")
    options = parser.parse_args()
    if options.seed < 0:
        parser.error("--seed must be at least 0")
    if min(options.seeds, options.jobs) < 1 or min(options.steps, options.expert_steps) < 1000:
        parser.error("--seeds and --jobs must be at least 1, --steps and --expert-steps at least 1000")
    described = machine.describe()
    with tempfile.TemporaryDirectory(prefix="tvsnap-expert-") as folder:
        policy = Path(folder) / "expert.zip"
        if "half-cheetah" in options.tasks:
            train_expert(policy, options.expert_steps)
        runs = [
            Run(task, method, variant, seed, options.steps, policy if task == "half-cheetah" else None)
            for task in options.tasks
            for method in options.methods
            for variant in VARIANTS
            for seed in range(options.seed, options.seed + options.seeds)
        ]
        with ProcessPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(carry_out, runs))
        experts = {
            task: evaluated(task, _acting(task, policy if task == "half-cheetah" else None), 0)
            for task in options.tasks
        }
    figures = {
        "machine": described,
        "seeds": [options.seed, options.seeds],
        "steps": options.steps,
        "experts": experts,
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    text = json.dumps(figures, indent=2) + "\n"
    if options.json and options.json != "-":
        Path(options.json).write_text(text, encoding="utf-8")
    elif options.json:
        sys.stdout.write(text)
    if options.json != "-":
        sys.stdout.write(table(outcomes) + "\n")
        for task, value in experts.items():
            sys.stdout.write(f"{task}: the expert's return is {value:,.0f}\n")
    return 0


def _acting(task: str, policy: Path | None) -> Any:
    expert, high = Expert(task, policy), gymnasium.make(ENVIRONMENTS[task]).action_space.high
    return lambda seen: expert(seen) * high


if __name__ == "__main__":
    sys.exit(main())
