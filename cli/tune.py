"""`tvsnap tune`: learns from recorded rollouts by which parameters a cache decides what pays."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from typer import Option

from tvsnap.host.home import resolve_home
from tvsnap.model.errors import UsageError

from . import context, options
from .text import count, percent, seconds, size

if TYPE_CHECKING:
    from pathlib import Path

    from tvsnap.model.tuning import Tuning
    from tvsnap.upkeep.tuning import Judgement, Outcome


@options.verb("012")
def tune(
    parallel: int = Option(8, metavar="N", min=1, help="How many rollouts run at once.", show_default=True),
    think: float = options.seconds(1.0, "--think", "Seconds that the model takes between two calls.", least=0.0),
    epochs: int = Option(2, metavar="N", min=1, help="How often each task's rollouts are made.", show_default=True),
    processor_weight: float = Option(
        0.5, metavar="W", min=0.0, help="What a second of processor time counts, in seconds waited.", show_default=True
    ),
    disk_weight: float = Option(
        10.0, metavar="W", min=0.0, help="What a GiB kept for an hour counts, in seconds waited.", show_default=True
    ),
    max_disk: str | None = Option(None, metavar="SIZE", help="What snapshots may take: 500M, 2G; else no limit."),
    trials: int = Option(100, metavar="N", min=1, help="How many tunings are tried.", show_default=True),
    rollouts: int = Option(500, metavar="N", min=1, help="Learn from the latest N at most.", show_default=True),
    seed: int = Option(0, metavar="N", help="Decides which tunings are tried."),
    save: bool = Option(False, "--save", help="Use what was found, if it is better, for this data directory."),
    reset: bool = Option(False, "--reset", help="Go back to the parameters chosen by hand; learn nothing."),
    show: bool = Option(False, "--show", help="Only show the parameters that are used."),
    as_json: options.AsJson = False,
) -> None:
    """Learn from recorded rollouts what pays.

    A cache decides which states it keeps, what it records and what it makes ahead of time by a few parameters that were
    chosen by hand, for machines of all kinds. This looks for better ones: the rollouts of half of the tasks in the data
    directory are simulated with many tunings, with what calls, forks and checkpoints took here, and the best of them is
    judged by the tasks that were held out. Nothing of that changes what a rollout sees.

    With --save, caches that are opened on the data directory from then on use it; a server does once it is started
    again. What share of answers is audited is no part of it.

    \b
    Examples:
      tvsnap tune                           look, and change nothing
      tvsnap tune --think 5 --parallel 64 --save
      tvsnap tune --show
      tvsnap tune --reset
    """
    from tvsnap.host.tuning_file import read_tuning, remove_tuning, write_tuning

    if sum((save, reset, show)) > 1:
        raise UsageError("give one of --save, --reset and --show")
    home = resolve_home()
    if reset:
        removed = remove_tuning(home)
        words = "back to the parameters chosen by hand" if removed else "no other tuning was in use"
        context.answer({"reset": removed}, as_json=as_json, show=lambda: context.console().print(words))
        return
    now = read_tuning(home)
    if show:
        context.answer(now.as_dict(), as_json=as_json, show=lambda: _print_tuning(now, now))
        return
    from tvsnap.upkeep.tuning import Setting, Weights

    setting = Setting(
        parallel, think, _processors(), epochs, None if max_disk is None else options.parse_size(max_disk)
    )
    for name, weight in (("--processor-weight", processor_weight), ("--disk-weight", disk_weight)):
        if not math.isfinite(weight):
            raise UsageError(f"{name} must be a finite number, not {weight}")
    weights = Weights(processor_weight, disk_weight)
    judgement = _learn(setting, weights, now, trials=trials, rollouts=rollouts, seed=seed)
    file = write_tuning(home, judgement.tuning) if save and judgement.is_better else None
    context.answer(_data(judgement, file), as_json=as_json, show=lambda: _print(judgement, now, file))


def _processors() -> int:
    import os

    return len(os.sched_getaffinity(0))


def _learn(setting: Any, weights: Any, now: Tuning, *, trials: int, rollouts: int, seed: int) -> Judgement:
    from dataclasses import replace

    from rich.progress import MofNCompleteColumn, TextColumn

    from tvsnap.upkeep.tuning import MachineCosts, learn, read_recorded

    with context.open_graph() as graph:
        with context.waiting("reading rollouts"):
            recorded = read_recorded(graph, most=rollouts)
        costs = MachineCosts.measured(graph.counters())
    with context.progress(trials, MofNCompleteColumn(), TextColumn("tunings")) as update:
        return learn(
            recorded,
            replace(setting, costs=costs),
            weights=weights,
            begin=now,
            trials=trials,
            seed=seed,
            progress=functools.partial(update, advance=1) if update else lambda: None,
        )


def _print(judgement: Judgement, now: Tuning, file: Path | None) -> None:
    console = context.console()
    held = count(judgement.held_out, "rollout")
    console.print(f"learned from {count(judgement.learned_from, 'rollout')}, judged by {held} of other tasks:")
    table = context.table("simulated", "waited", "processor", "answered", "snapshots", "kept", "cost")
    rows = (
        ("without a cache", judgement.without, None),
        ("as it is", judgement.before, judgement.before_cost),
        ("as found", judgement.after, judgement.after_cost),
    )
    for name, outcome, cost in rows:
        kept = outcome.kept_byte_s / outcome.lasted_s if outcome.lasted_s else 0.0
        table.add_row(
            name,
            seconds(outcome.waited_s),
            seconds(outcome.processor_s),
            percent(outcome.answered, outcome.calls),
            f"{outcome.checkpoints:,}",
            size(kept),
            "" if cost is None else f"{cost:,.1f}",
        )
    console.print(table)
    console.print()
    _print_tuning(now, judgement.found)
    if not judgement.is_better:
        console.print("what was found is no better for tasks that it was not learned from: nothing is changed")
    elif file is not None:
        console.print(f"saved as {file}; caches that are opened from now on use it", style="green")
    else:
        console.print("tvsnap tune --save uses it")


def _print_tuning(now: Tuning, found: Tuning) -> None:
    same = now == found
    table = context.table("parameter", "value") if same else context.table("parameter", "as it is", "as found")
    for name, value in now.as_dict().items():
        other = found.as_dict()[name]
        changed = () if same else ("" if other == value else f"{other:.4g}",)
        table.add_row(name, f"{value:.4g}", *changed)
    context.console().print(table)


def _data(judgement: Judgement, file: Path | None) -> dict[str, Any]:
    from dataclasses import asdict

    def outcome(of: Outcome) -> dict[str, float]:
        return asdict(of)

    return {
        "learned_from": judgement.learned_from,
        "held_out": judgement.held_out,
        "found": judgement.found.as_dict(),
        "better": judgement.is_better,
        "saved": file is not None,
        "without_cache": outcome(judgement.without),
        "before": {**outcome(judgement.before), "cost": judgement.before_cost},
        "after": {**outcome(judgement.after), "cost": judgement.after_cost},
    }
