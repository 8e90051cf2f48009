"""Thousands of rollouts on one data directory, many at once: does anything grow that should not, or become slower?

`python -m benchmarks.soak`, or `make soak`. The start is the second tenth of the rollouts (in the first, caches and
pools of threads fill), the end the last one; throughput is told from a line through all samples but the first tenth's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks import machine
from benchmarks.soak_gauges import Gauges
from benchmarks.soak_report import MB, TENTHS, WIDTH, Verdict, Window, as_json, growth_of_tables, judge, to_table
from benchmarks.soak_workload import LAST, Script, Step, script
from benchmarks.workspace import IMAGE, workspace
from tvsnap import AsyncRollout, Budget, Cache, Limits
from tvsnap.engine.supply.pool import CLOSERS
from tvsnap.host.memory import keep_few_arenas
from tvsnap.images import Image, ImageStore
from tvsnap.images.descriptions.shipped import find_source
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import StateLost, TvsnapError
from tvsnap.model.limits import MIB
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.local.storage.layers import _RECENT, _TOGETHER

ROLLOUTS, PARALLEL, SAMPLES = 5000, 16, 50
LIMITS = Limits(memory=256 * MIB, processes=64)
BUDGET = Budget(disk=64 * MIB, snapshots=200, memory=2048 * MIB, sandboxes=64)
PREFORK = 2
VISIT = 8  # rollouts that another process makes on the same directory each time that it comes
GONE_AFTER = 0.1  # seconds after which a caller goes
POOL_ITSELF = 64 * MIB  # bytes that the pool may take beyond its snapshots
COMPLAINTS = 10  # that are kept


@dataclass(slots=True)
class Soak:
    """Makes rollouts on a cache.

    Attributes:
        cache: the cache.
        image: what the rollouts start from.
        parallel: how many are made at once.
        seed: see `soak_workload.script`.
        visits: how often another process comes.
        complaints: what went wrong, in words, the first few.
    """

    cache: Cache
    image: Image
    parallel: int = PARALLEL
    seed: int = 0
    visits: int = TENTHS
    complaints: list[str] = field(default_factory=list)
    _calls: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def windows(self, rollouts: int, every: int) -> Iterator[Window]:
        """Makes rollouts; yields after each `every` of them how that went, and how things stand.

        Now and then, another process makes some of the same on the same directory.
        """
        gauges = Gauges(self.cache)
        visits = {(2 * n + 1) * rollouts // (2 * self.visits) // every * every for n in range(self.visits)}
        with self._threads("soak") as callers, self._threads("soak-loop") as threads:
            for first in range(0, rollouts, every):
                last = min(first + every, rollouts)
                began, processor = time.perf_counter(), _processor_s()
                visit = callers.submit(self._be_visited, first) if first in visits else None
                self.make(range(first, last), callers, threads)
                if visit is not None:
                    visit.result()
                seconds, processor = time.perf_counter() - began, _processor_s() - processor
                calls, self._calls = self._calls, Counter()
                yield Window(last, seconds, processor, calls, gauges.levels(), gauges.tables())

    def make(self, numbers: Iterable[int], callers: ThreadPoolExecutor, threads: ThreadPoolExecutor) -> None:
        """Makes the rollouts with these numbers.

        Args:
            numbers: which.
            callers: each makes one at a time.
            threads: for those that are made from event loops.
        """
        list(callers.map(lambda number: self._play(script(number, self.seed), threads), numbers))

    def visit(self, first: int) -> int:
        """Makes a few rollouts; returns the exit status: 1 if one did not go as it should."""
        with self._threads("soak") as callers, self._threads("soak-loop") as threads:
            self.make(range(first, first + VISIT), callers, threads)
        for complaint in self.complaints:
            print(complaint)
        return 1 if self.complaints else 0

    def _threads(self, name: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.parallel, thread_name_prefix=name)

    def _be_visited(self, first: int) -> None:
        """Has another process make the next few rollouts at the same time."""
        command = [sys.executable, "-m", "benchmarks.soak", "--home", str(self.cache.home), "--visit", str(first)]
        command += ["--images", str(self.image.rootfs.parents[2]), self.image.digest, "--seed", str(self.seed)]
        here = Path(__file__).parents[1]
        run = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
        if run.returncode:
            self._complain("failed", f"another process: {(run.stdout + run.stderr).strip()[-1000:]}")

    def _play(self, script: Script, threads: ThreadPoolExecutor) -> None:
        try:
            if script.ending == "cancelled":
                asyncio.run(self._be_cancelled(script, threads))
                return
            rollout = self._begin(script)
            for step in script.steps:
                self._look_at(step, rollout.call(step.name, step.arguments, step.timeout))
            self._end(rollout, script)
            if script.ending != "dropped":
                rollout.close()
        except Exception as error:
            self._complain("failed", f"{script.word} of {script.task}: {type(error).__name__}: {error}")

    def _begin(self, script: Script) -> Rollout:
        return self.cache.rollout(self.image, script.task, script.salt, script.word)

    async def _be_cancelled(self, script: Script, threads: ThreadPoolExecutor) -> None:
        """Makes half of the calls, and goes away in the middle of one more."""
        async with AsyncRollout(lambda: self._begin(script), threads) as rollout:
            for step in script.steps[: len(script.steps) // 2]:
                self._look_at(step, await rollout.call(step.name, step.arguments, step.timeout))
            last = LAST.step(script.word)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(rollout.call(last.name, last.arguments, last.timeout), GONE_AFTER)

    def _end(self, rollout: Rollout, script: Script) -> None:
        """Does with the state that a rollout came to what its script says."""
        if script.ending == "graded":
            rollout.sandbox().exec(f"echo {script.word} > /tmp/graded", timeout=120)
            step = Step("bash", {"command": "cat /tmp/graded"}, expected=script.word)
            self._look_at(step, rollout.call(step.name, step.arguments, step.timeout))
        elif script.ending == "forked":
            with self.cache.materialise(rollout.state) as fork:
                fork.exec(f"ls; touch /tmp/{script.word}", timeout=120)
        elif script.ending == "repeated":
            for edge in self.cache.graph.lineage(rollout.state)[-2:]:
                with contextlib.suppress(StateLost):  # of a state further up, which was evicted
                    self.cache.reexecute(edge)

    def _look_at(self, step: Step, result: ToolResult) -> None:
        with self._lock:
            self._calls[result.source] += 1
        cut_short = result.timed_out and result.source == "executed"  # on a busy machine; but nobody else may see that
        if step.expected not in result.output and not cut_short:
            self._complain("wrong", f"{step.name} {dict(step.arguments)!r} returned {result.output[:200]!r}")

    def _complain(self, kind: str, complaint: str) -> None:
        with self._lock:
            self._calls[kind] += 1
            if len(self.complaints) < COMPLAINTS:
                self.complaints.append(f"{kind}: {complaint}")


def ceilings(parallel: int) -> dict[str, float]:
    """Returns how much there may be of what fills up to a limit, by the name of the level."""
    companions = 1 + max(2, len(os.sched_getaffinity(0)))
    # Those of rollouts, of those that go on about one that is closed, of looks, and of sandboxes made ahead.
    threads = 5 * parallel + CLOSERS + 1 + companions
    assert BUDGET.disk is not None
    assert BUDGET.snapshots is not None
    return {
        "pooled threads": threads,
        "connections": threads + 1,
        "graph memory": (32 + 2 * threads) * MIB,  # the caches of the one that writes, and of those that read
        # Of this process and of another; those that snapshots hold data of are tried in turn, too.
        "quota groups": 2 * (_RECENT + _TOGETHER + BUDGET.snapshots),
        "snapshots": BUDGET.snapshots,
        "snapshot bytes": BUDGET.disk,
        "pool": BUDGET.disk + POOL_ITSELF,
    }


def _processor_s() -> float:
    """Returns seconds of processor time of this process, and of all that it started and that has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def open_cache(home: Path, images: ImageStore) -> Cache:
    """Opens a cache with the limits and the budget of a soak."""
    return Cache(home, images=images, limits=LIMITS, budget=BUDGET, prefork=PREFORK)


@contextlib.contextmanager
def _opened(home: Path | None, console: Console) -> Iterator[tuple[Cache, Image]]:
    """A block with a cache on a data directory that is kept, or on a fresh one, and the image to work with."""
    with contextlib.ExitStack() as stack:
        if home is None:
            space = stack.enter_context(workspace(quick=False, console=console))
            home, images, image = space.home, space.images, space.image
        else:
            images = ImageStore(home)
            image = images.build(find_source(IMAGE))
        yield stack.enter_context(open_cache(home, images)), image


def _report(options: argparse.Namespace, console: Console) -> int:
    """Makes the rollouts and reports what came of it; returns the exit status."""
    described = machine.describe()
    console.print(machine.in_words(described))
    began = time.perf_counter()
    windows: list[Window] = []
    every = max(1, options.rollouts // SAMPLES)
    with _opened(options.home, console) as (cache, image):
        soak = Soak(cache, image, options.parallel, options.seed)
        for window in soak.windows(options.rollouts, every):
            windows.append(window)
            done = f"{window.rollouts} of {options.rollouts} rollouts, {time.perf_counter() - began:.0f} s"
            console.print(f"[dim]{done}[/]", end="\r" if console.is_terminal else "\n")
        most = 2 * ceilings(options.parallel)["pool"]
        given_back = Gauges(cache).give_back(int(most))
    verdicts = judge(windows, ceilings(options.parallel))
    verdicts.append(
        Verdict(
            "given back", "the pool's file in the end, MB", [given_back / MB], f"≤ {most / MB:.0f}", given_back <= most
        )
    )
    broken = [verdict.name for verdict in verdicts if verdict.holds is False]
    seconds = time.perf_counter() - began
    for line in [*soak.complaints, *growth_of_tables(windows)]:
        console.print(line, markup=False)
    if options.json != "-":
        Console(width=WIDTH, highlight=False).print(to_table(verdicts))
    console.print(f"{seconds:.0f} s; " + (f"not within bounds: {', '.join(broken)}" if broken else "all within bounds"))
    if options.json:
        report = {"machine": described, "seconds": round(seconds, 1), **as_json(verdicts, windows)}
        text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
        else:
            Path(options.json).write_text(text, encoding="utf-8")
    return 1 if broken else 0


def _visit(options: argparse.Namespace) -> int:
    """Makes a few rollouts in another process's data directory; returns the exit status."""
    home, digest = options.images
    images = ImageStore(Path(home))
    with open_cache(options.home, images) as cache:
        return Soak(cache, images.get(digest), options.parallel, options.seed).visit(options.visit)


def main() -> int:
    """Runs what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS, help=f"by default {ROLLOUTS}")
    parser.add_argument("--parallel", type=int, default=PARALLEL, help=f"at once; by default {PARALLEL}")
    parser.add_argument("--seed", type=int, default=0, help="of what the rollouts do")
    parser.add_argument("--home", type=Path, help="a data directory to use and keep; by default a fresh one")
    parser.add_argument(
        "--json", metavar="FILE", nargs="?", const="-", help="write JSON; by default to standard output"
    )
    parser.add_argument("--visit", type=int, help=argparse.SUPPRESS)  # what _be_visited starts
    parser.add_argument("--images", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    console = Console(stderr=True, highlight=False)
    keep_few_arenas()
    if options.rollouts < 10:
        parser.error("--rollouts must be at least 10")
    try:
        return _report(options, console) if options.visit is None else _visit(options)
    except TvsnapError as error:
        console.print(f"[red]error:[/] {error}")
        return error.exit_status
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
