"""`tvsnap replay`: runs rollout files through the cache, and prints the time saved."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from tvsnap.model.errors import UsageError
from tvsnap.model.limits import Budget
from tvsnap.model.network import lacks_network

from . import completion, context, options
from .network_hint import NetworkHint
from .results import result_file, start_over
from .text import count, visible

if TYPE_CHECKING:
    from tvsnap.engine.supply.recipes import ImageSource
    from tvsnap.environments.base import Environment
    from tvsnap.protocols import AnyCache
    from tvsnap.upkeep.replay import ReplayReport
    from tvsnap.upkeep.rollout_files import BrokenLine, PlannedRollout

SWITCH_S = 2e-4
"""Python's thread switch interval in seconds: with the default of 5 ms, a hit of some 20 µs waits for other threads."""

BROKEN_SHOWN = 10


@dataclass(frozen=True)
class CacheOptions:
    """How the cache of a replay is opened."""

    policy: options.Policy = options.POLICY
    prefork: Annotated[
        int | None,
        Option(metavar="N", min=0, help="Keep N sandboxes ready for hot states; else only where forks are slow."),
    ] = None
    audit: Annotated[
        float,
        Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="Make this share of the answers again in the background, 0 to 1, and tell of those that differ.",
        ),
    ] = 0.0
    no_cache: Annotated[bool, Option("--no-cache", help="Execute everything, one fresh sandbox a rollout.")] = False

    @contextlib.contextmanager
    def opened(self, budget: Budget) -> Iterator[AnyCache]:
        """Opens the cache for the block; raises `UsageError` for options that a chosen server decides by itself."""
        client = context.connected()
        if client is None:
            settings: dict[str, Any] = {"prefork": self.prefork, "audit": self.audit, "budget": budget}
            with context.open_cache(policy=self.policy, use_cache=not self.no_cache, **settings) as cache:
                yield cache
            return
        with client:
            context.server_decides(
                ("--policy", self.policy != options.POLICY),
                ("--no-cache", self.no_cache),
                ("--prefork", self.prefork is not None),
                ("--audit", self.audit > 0),
                ("--max-...", budget != Budget()),
            )
            yield client


@dataclass(frozen=True)
class ResultFiles:
    """The files that a replay writes."""

    report: Annotated[Path | None, Option("--report", metavar="FILE", help="Write the figures to FILE, as JSON.")] = (
        None
    )
    outputs: Annotated[
        Path | None, Option("--outputs", metavar="FILE", help="Write each call to FILE, a line of JSON each.")
    ] = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[Callable[[ReplayReport], None]]:
        """Opens the files for the block, and yields what writes a report to them."""
        with result_file(self.report) as figures, result_file(self.outputs) as outputs:

            def write(report: ReplayReport) -> None:
                if figures is not None:
                    start_over(figures)
                    figures.write(json.dumps(report.data(), indent=2) + "\n")
                if outputs is not None:
                    start_over(outputs)
                    report.write_outputs(outputs)

            yield write


@options.verb(
    "5",
    begins=True,
    backend=True,
    url=True,
    s0="every rollout came to its end (whatever its commands returned)",
    s1="tvsnap failed a rollout, or --keep-going skipped lines",
    s2="bad usage, or a line that is no rollout: nothing was run",
    s3="no such image",
    s4="an audit found answers that cannot be relied on",
)
def replay(
    files: list[str] = Argument(..., metavar="FILE", help="Rollout files.", show_default=False),
    image: str | None = Option(
        None,
        metavar="IMAGE",
        help="For all rollouts, also those that name another one.",
        autocompletion=completion.images,
    ),
    parallel: int | None = Option(None, metavar="N", min=1, help="Rollouts at once; else two a processor."),
    repeat: int = Option(1, metavar="N", min=1, help="Run everything so many times."),
    limit: int | None = Option(None, metavar="N", min=1, help="Only the first N rollouts."),
    task: list[str] | None = Option(None, metavar="GLOB", help="Only these tasks, as in 'fix-*'."),
    think: float = options.seconds(0.0, "--think", "Seconds between calls, as a model would think.", least=0),
    timeout: float = options.seconds(30.0, "--timeout", "Seconds for calls that name none."),
    *,
    opening: CacheOptions,
    salt: str | None = Option(None, metavar="TEXT", help="Share states only with replays of this salt."),
    keep_going: bool = Option(False, "--keep-going", help="Skip lines that are no rollouts; the status is 1 then."),
    results: ResultFiles,
    bounds: options.BudgetOptions,
    as_json: options.AsJson = False,
) -> None:
    """Run rollout files through the cache: the main job.

    Every call is answered from the graph if it was made before in the same state, else executed in a fork of that
    state. With --url, a server's sandboxes execute it; its figures include the work of others there meanwhile.

    FILE holds one rollout a line, as JSON: {"task": ..., "rollout": ..., "image": ... (optional), "calls": [{"name":
    ..., "arguments": {...}, "timeout": seconds (optional)}, ...]}; - is standard input.

    \b
    Examples:
      tvsnap replay rollouts.jsonl --image terminal --parallel 8
      tvsnap replay rollouts.jsonl --image terminal --task 'fix-*' --repeat 3
      tvsnap replay rollouts.jsonl --image terminal --backend docker --prefork 8
      tvsnap replay rollouts.jsonl --image terminal --no-cache --outputs fresh
      tvsnap replay rollouts.jsonl --image terminal --audit 0.05
      tvsnap replay rollouts.jsonl --image terminal --max-disk 20G --max-memory 8G
    """
    from tvsnap.host.memory import keep_few_arenas
    from tvsnap.upkeep.replay import Replay, ReplayOptions

    from . import replay_view

    rollouts, skipped = _rollouts_of(files, task or (), limit, image, keep_going=keep_going)
    chosen = ReplayOptions(image, parallel or 2 * (os.cpu_count() or 1), repeat, think, timeout, salt)
    budget = bounds.budget()
    sys.setswitchinterval(SWITCH_S)
    keep_few_arenas()
    with results.opened() as write:
        with (
            opening.opened(budget) as cache,
            replay_view.progress(sum(len(rollout.calls) for rollout in rollouts) * repeat) as listener,
        ):
            report = Replay(cache, rollouts, chosen, listener).run()
        write(report)
    show = functools.partial(replay_view.print_report, report, context.console(), cached=not opening.no_cache)
    context.answer(report.data(), as_json=as_json, show=show)
    _hint_at_network(report, image)
    raise typer.Exit(_status(report, skipped=skipped))


def _status(report: ReplayReport, *, skipped: bool) -> int:
    """Returns the exit status of a replay, before which lines may have been skipped."""
    if report.interrupted:
        return options.INTERRUPTED
    if report.failed or skipped:
        return options.FAILED
    return options.DIFFERS if report.audit.differences else 0


def _rollouts_of(
    files: Sequence[str], tasks: Sequence[str], limit: int | None, image: str | None, *, keep_going: bool
) -> tuple[list[PlannedRollout], bool]:
    """Returns the rollouts of some files that are to be run, and whether lines of the files were skipped.

    Raises:
        UsageError: there are no rollouts to run, or lines are no rollouts and not to be skipped.
    """
    from tvsnap.upkeep.rollout_files import read_rollouts, select

    rollouts, broken = read_rollouts(files)
    rollouts = select(rollouts, tasks=tasks, limit=limit)
    with context.any_images() as store:
        sound, unsound = check_rollouts(rollouts, image, store)
    report_broken([*broken, *unsound], keep_going=keep_going)
    if not sound:
        raise UsageError("no rollouts to run" + (f"; none is of a task like {', '.join(tasks)}" if tasks else ""))
    _tell_of_others(sound, image)
    return sound, bool(broken or unsound)


def _hint_at_network(report: ReplayReport, image: str | None) -> None:
    """Prints a hint if a call failed because it had no network; `image` is that of all rollouts, if any."""
    hint = NetworkHint()
    with context.any_images() as store:
        for run in report.runs:
            name = image or run.planned.image or ""
            for record in run.calls:
                if lacks_network(record.result.output):
                    hint.look(record.result.output, name, store.get(name).network)


def _tell_of_others(rollouts: Sequence[PlannedRollout], image: str | None) -> None:
    """Notes on standard error that rollouts name another image than that of `--image`, which is used."""
    others = [rollout.image for rollout in rollouts if rollout.image not in (None, image)]
    if image is not None and others:
        named = ", ".join(f'"{visible(str(name))}"' for name in sorted(set(others), key=str)[:3])
        does = "rollout names" if len(others) == 1 else "rollouts name"
        typer.echo(f'note: {len(others):,} {does} another image ({named}); --image "{image}" is used', err=True)


def check_rollouts(
    rollouts: Sequence[PlannedRollout], chosen: str | None, images: ImageSource
) -> tuple[list[PlannedRollout], list[BrokenLine]]:
    """Returns the rollouts in which all calls name existing tools and fit them, and the lines of the others.

    Raises:
        UsageError: a rollout names no image and none was chosen.
        NotFound: an image does not exist.
    """
    from tvsnap.environments import environment_of
    from tvsnap.upkeep.rollout_files import BrokenLine

    environments: dict[str, Environment | None] = {}
    sound, unsound = [], []
    for rollout in rollouts:
        name = chosen or rollout.image
        if name is None:
            raise UsageError(f"{rollout.file}:{rollout.line}: the rollout names no image; give one with --image")
        if name not in environments:
            built = images.get(name)
            try:
                environments[name] = environment_of(built)
            except UsageError:
                from tvsnap.images import ImageStore

                if isinstance(images, ImageStore):
                    raise
                environments[name] = None  # known to the server only
        environment = environments[name]
        mistake = "" if environment is None else _first_mistake(rollout, environment)
        if mistake:
            unsound.append(BrokenLine(rollout.file, rollout.line, mistake))
        else:
            sound.append(rollout)
    return sound, unsound


def _first_mistake(rollout: PlannedRollout, environment: Environment) -> str:
    """Returns the mistake of the first call that fits no tool; empty if all calls are valid."""
    from tvsnap.environments.tools import check_call

    for index, step in enumerate(rollout.calls):
        try:
            check_call(environment.tools, rollout.made(step))
        except UsageError as error:  # noqa: PERF203
            return f"call {index}: {error}"
    return ""


def report_broken(broken: Sequence[BrokenLine], *, keep_going: bool) -> None:
    """Prints which lines are not valid rollouts; raises `UsageError` if there are any, unless `keep_going` is set."""
    if not broken:
        return
    ordered = sorted(broken, key=lambda line: (line.file, line.line))
    if not keep_going and len(ordered) == 1:
        raise UsageError(f"{ordered[0]}; nothing was run (--keep-going skips such lines)")
    for line in ordered[:BROKEN_SHOWN]:
        typer.echo(f"tvsnap: {visible(str(line))}", err=True)
    if len(ordered) > BROKEN_SHOWN:
        typer.echo(f"tvsnap: ... and {count(len(ordered) - BROKEN_SHOWN, 'more such line')}", err=True)
    if not keep_going:
        number = count(len(ordered), "line is no rollout", "lines are no rollouts")
        raise UsageError(f"{number}; nothing was run (--keep-going skips them)")
    typer.echo(f"tvsnap: skipping {count(len(ordered), 'line')}", err=True)
