"""`tvsnap replay`: runs rollout files through the cache, and prints the time saved."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from typer import Argument, Option

from tvsnap.model.errors import UsageError
from tvsnap.model.network import lacks_network

from . import completion, context, options
from .network_hint import NetworkHint
from .results import result_file, start_over
from .text import count, visible

if TYPE_CHECKING:
    from tvsnap.engine.supply.recipes import ImageSource
    from tvsnap.environments.base import Environment
    from tvsnap.model.limits import Budget
    from tvsnap.protocols import AnyCache
    from tvsnap.upkeep.replay import ReplayReport
    from tvsnap.upkeep.rollout_files import BrokenLine, PlannedRollout

SWITCH_S = 2e-4
"""Python's thread switch interval in seconds: with the default of 5 ms, a hit of some 20 µs waits for other threads."""

BROKEN_SHOWN = 10


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
    policy: str = Option(options.POLICY, metavar="NAME", help="When to snapshot: default, eager or never."),
    prefork: int | None = Option(
        None, metavar="N", min=0, help="Keep N sandboxes ready for hot states; else only where forks are slow."
    ),
    audit: float = Option(
        0.0,
        metavar="SHARE",
        min=0,
        max=1,
        help="Make this share of the answers again in the background, 0 to 1, and tell of those that differ.",
    ),
    no_cache: bool = Option(False, "--no-cache", help="Execute everything, one fresh sandbox a rollout."),
    salt: str | None = Option(None, metavar="TEXT", help="Share states only with replays of this salt."),
    keep_going: bool = Option(False, "--keep-going", help="Skip lines that are no rollouts; the status is 1 then."),
    report_file: Path | None = Option(None, "--report", metavar="FILE", help="Write the figures to FILE, as JSON."),
    outputs_file: Path | None = Option(
        None, "--outputs", metavar="FILE", help="Write each call to FILE, a line of JSON each."
    ),
    max_disk: options.MaxDisk = None,
    max_snapshots: options.MaxSnapshots = None,
    max_memory: options.MaxMemory = None,
    max_sandboxes: options.MaxSandboxes = None,
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
    from tvsnap.upkeep.rollout_files import read_rollouts, select

    from . import replay_view

    rollouts, broken = read_rollouts(files)
    rollouts = select(rollouts, tasks=task or (), limit=limit)
    with context.any_images() as store:
        sound, unsound = check_rollouts(rollouts, image, store)
    report_broken([*broken, *unsound], keep_going=keep_going)
    if not sound:
        raise UsageError("no rollouts to run" + (f"; none is of a task like {', '.join(task)}" if task else ""))
    _tell_of_others(sound, image)
    chosen = ReplayOptions(image, parallel or 2 * (os.cpu_count() or 1), repeat, think, timeout, salt)
    budget = options.budget(max_disk, max_snapshots, max_memory, max_sandboxes)
    sys.setswitchinterval(SWITCH_S)
    keep_few_arenas()
    with result_file(report_file) as report_stream, result_file(outputs_file) as outputs_stream:
        with (
            _open_cache(policy=policy, use_cache=not no_cache, prefork=prefork, audit=audit, budget=budget) as cache,
            replay_view.progress(sum(len(rollout.calls) for rollout in sound) * repeat) as listener,
        ):
            report = Replay(cache, sound, chosen, listener).run()
        _write(report, report_stream, outputs_stream)
    show = functools.partial(replay_view.print_report, report, context.console(), cached=not no_cache)
    context.answer(report.data(), as_json=as_json, show=show)
    _hint_at_network(report, image)
    if report.interrupted:
        raise typer.Exit(options.INTERRUPTED)
    if report.failed or broken or unsound:
        raise typer.Exit(options.FAILED)
    if report.audit.differences:
        raise typer.Exit(options.DIFFERS)


def _write(report: ReplayReport, figures: TextIO | None, outputs: TextIO | None) -> None:
    """Writes the figures and the calls of a replay to the files that were opened for them."""
    if figures is not None:
        start_over(figures)
        figures.write(json.dumps(report.data(), indent=2) + "\n")
    if outputs is not None:
        start_over(outputs)
        report.write_outputs(outputs)


def _hint_at_network(report: ReplayReport, image: str | None) -> None:
    """Prints a hint if a call failed because it had no network; `image` is that of all rollouts, if any."""
    hint = NetworkHint()
    with context.any_images() as store:
        for run in report.runs:
            name = image or run.planned.image or ""
            for record in run.calls:
                if lacks_network(record.result.output):
                    hint.look(record.result.output, name, store.get(name).network)


@contextlib.contextmanager
def _open_cache(
    *, policy: str, use_cache: bool, prefork: int | None, audit: float, budget: Budget
) -> Iterator[AnyCache]:
    client = context.connected()
    if client is None:
        settings: dict[str, Any] = {"prefork": prefork, "audit": audit, "budget": budget}
        with context.open_cache(policy=policy, use_cache=use_cache, **settings) as cache:
            yield cache
        return
    with client:
        context.server_decides(
            ("--policy", policy != options.POLICY),
            ("--no-cache", not use_cache),
            ("--prefork", prefork is not None),
            ("--audit", audit > 0),
            ("--max-...", budget != options.budget(None, None, None, None)),
        )
        yield client


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
    from tvsnap.client.images_and_graph import RemoteImages
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
                if not isinstance(images, RemoteImages):
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
