"""This working tree beside another commit: the same benchmarks of both, by turns in one run, each with its own data.

The other commit lies in a temporary folder meanwhile, with the benchmarks of this tree and its own C programs, compiled
there. Where a benchmark needs what the other commit has not, it fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tvsnap.model.errors import InfrastructureError, UsageError

ROOT = Path(__file__).parents[1]
ROUNDS = 3

_Figures: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""Figures as the JSON report has them, by group and name."""


@dataclass(frozen=True)
class Compared:
    """One figure of both.

    Attributes:
        group: of the benchmark.
        name, what, unit: see `Figure`.
        here, there: the medians of both, of each round; of this tree and of the other commit.
    """

    group: str
    name: str
    what: str
    unit: str
    here: Sequence[float]
    there: Sequence[float]

    @property
    def ratios(self) -> Sequence[float]:
        """This tree's figure : the other's, of each round, in order of size."""
        return sorted(ours / theirs for ours, theirs in zip(self.here, self.there, strict=True) if theirs)

    def as_json(self) -> dict[str, Any]:
        """Returns what the JSON report holds."""
        medians = {"here": statistics.median(self.here), "there": statistics.median(self.there)}
        named = {"group": self.group, "name": self.name, "what": self.what, "unit": self.unit}
        return {**named, **medians, "ratios": [round(ratio, 4) for ratio in self.ratios]}


def compare(reference: str, options: Sequence[str], tell: Callable[[str], None]) -> list[Compared]:
    """Runs benchmarks of this working tree and of another commit by turns.

    Args:
        reference: the commit, as git knows it.
        options: which benchmarks, as `python -m benchmarks` is told.
        tell: says what is being done.

    Raises:
        UsageError: there is no such commit here.
        InfrastructureError: it cannot be compiled, or a benchmark failed.
    """
    here: list[_Figures] = []
    there: list[_Figures] = []
    with _checked_out(reference) as other:
        for number in range(ROUNDS):
            turns = [("this tree", ROOT, here), (reference, other, there)]
            for name, root, found in turns if number % 2 == 0 else reversed(turns):
                tell(f"round {number + 1} of {ROUNDS}: {name}")
                found.append(_figures(root, options))
    return [
        Compared(
            group,
            name,
            f"{figure['what']} ({figure['subject']})" if "subject" in figure else figure["what"],
            figure["unit"],
            [figures[group, name]["median"] for figures in here],
            [figures[group, name]["median"] for figures in there],
        )
        for (group, name), figure in here[0].items()
        if all((group, name) in figures for figures in here + there)
    ]


@contextlib.contextmanager
def _checked_out(reference: str) -> Iterator[Path]:
    """A block with a folder in which a commit lies, ready to be run."""
    # No name of the benchmarks' own data directories: each run deletes those that are nobody's.
    with tempfile.TemporaryDirectory(prefix="tvsnap-beside-", dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        folder = Path(name)
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", reference, "--"], capture_output=True, check=False)
        if archive.returncode:
            raise UsageError(f"there is no commit {reference} here: {archive.stderr.decode(errors='replace').strip()}")
        subprocess.run(["tar", "-x", "-C", name], input=archive.stdout, check=True)
        shutil.rmtree(folder / "benchmarks", ignore_errors=True)
        shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
        made = subprocess.run(["make", "--silent", "-C", name, "native"], capture_output=True, text=True, check=False)
        if made.returncode:
            raise InfrastructureError(f"{reference} cannot be compiled: {made.stderr.strip()}")
        yield folder


def _figures(root: Path, options: Sequence[str]) -> _Figures:
    """Returns the figures of a run of the benchmarks, by group and name."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--json", "-", *options],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise InfrastructureError(f"the benchmarks of {root} failed:\n{run.stderr.strip()}")
    groups = json.loads(run.stdout)["figures"]
    return {(group, figure["name"]): figure for group, figures in groups.items() for figure in figures}
