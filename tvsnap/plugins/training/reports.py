"""Compares runs of the experiment: what differs between them, tables, and plots for light and dark pages."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

BASE = "no cache"
"""The mode that the others are compared with."""
_GREY = "#808080"
_COLOURS = {"tvsnap": "#2a8fd8", "eager": "#27a36a", "no cache": "#d9822b", "stateless": "#c9507d"}
"""Each is readable on white and on nearly black."""


def mean(values: Sequence[float]) -> float:
    """Returns the mean; 0 of nothing."""
    return sum(values) / max(1, len(values))


def line(epoch: Mapping[str, Any]) -> str:
    """Returns an epoch's figures as a line."""
    words = ("reward", "hit_rate", "mean_call_s", "tools_s", "setup_s", "grading_s", "generating_s", "learning_s")
    return ", ".join(f"{name} {epoch[name]:.3f}" for name in words)


def write(folder: Path) -> str:
    """Writes report.md and plots of all runs in a folder; returns the report.

    Args:
        folder: where runs are, as the experiment writes them.
    """
    runs = sorted((json.loads(path.read_text()) for path in folder.glob("run-*.json")), key=_order)
    text = report(runs)
    (folder / "report.md").write_text(text)
    _plots(runs, folder)
    return text


def report(runs: Sequence[Mapping[str, Any]]) -> str:
    """Returns the tables of runs as Markdown, with the command that made them and the date.

    Args:
        runs: as the experiment writes them.
    """
    lines = [command(), ""]
    updates = sorted({each["updates"] for run in runs for each in run["tests"]})
    titles = ["seed", "mode", *(f"after {n}" for n in updates)]
    rows = [[run["seed"], run["mode"], *_rewards(run, updates)] for run in runs]
    lines += ["Reward on held-out tasks, after so many updates:", "", *markdown(titles, rows)]
    titles = ["seed", "mode", "epochs", "hit rate", "median call", "mean call"]
    titles += [f"{name} s" for name in ("calls", "set-up", "grades", "generation", "learning")]
    for title, first, end in (("the first epoch", 0, 1), ("the second epoch", 1, 2), ("all later epochs", 2, None)):
        rows = [_figures(run, run["epochs"][first:end]) for run in runs if run["epochs"][first:end]]
        lines += ["", f"Seconds in {title}, summed over rollouts:", "", *markdown(titles, rows)]
    rows = [
        [run["seed"], run["mode"], *difference.values()]
        for run in runs
        for base in runs
        if base["mode"] == BASE and base["seed"] == run["seed"] and run is not base
        for difference in [differences(run, base)]
    ]
    if rows:
        titles = ["seed", "mode", "epochs", "rollouts", "other tokens", "other outputs", "other rewards"]
        titles += ["in one only", "updates", "other updates"]
        lines += ["", f"Beside the mode `{BASE}`:", "", *markdown(titles, rows)]
    rows = [[run["seed"], run["mode"], *run["wrong"].values()] for run in runs if run["wrong"]]
    if rows:
        titles = ["seed", "mode", "calls answered", "wrongly", "rollouts", "wrong rewards"]
        lines += ["", "Beside an execution of the same calls:", "", *markdown(titles, rows)]
    return "\n".join([*lines, ""])


def command() -> str:
    """Returns the command of this process, and the date, as Markdown."""
    words = shlex.join(["python", "-m", "tvsnap.training.experiment", *sys.argv[1:]])
    return f"`{words}`, {time.strftime('%-d %B %Y')}"


def differences(run: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, int]:
    """Returns in what a run differs from another one of the same seed, in the epochs and tests that both have.

    An update that only one of them has made, as with another `--tasks-each`, counts as another one.

    Args:
        run: as the experiment writes it.
        base: the other.
    """
    epochs = list(zip(run["epochs"], base["epochs"], strict=False))
    ours = {each["updates"]: each for each in run["tests"]}
    tests = [(ours[each["updates"]], each) for each in base["tests"] if each["updates"] in ours]
    updates = [pair for a, b in epochs for pair in zip_longest(a["updates"], b["updates"])]
    if len(run["epochs"]) != len(base["epochs"]):
        tests = [pair for pair in tests if pair[0]["updates"] <= len(updates)]
    pairs, alone = [], 0
    for one, other in [*epochs, *tests]:
        a, b = _named(one["rollouts"]), _named(other["rollouts"])
        pairs += [(a[name], b[name]) for name in a if name in b]
        alone += len(a.keys() ^ b.keys())
    return {
        "epochs": len(epochs),
        "rollouts": len(pairs),
        "other_tokens": sum(a["tokens"] != b["tokens"] for a, b in pairs),
        "other_outputs": sum(_said(a) != _said(b) for a, b in pairs),
        "other_rewards": sum(a["reward"] != b["reward"] for a, b in pairs),
        "in_one_only": alone,
        "updates": len(updates),
        "other_updates": sum(a != b for a, b in updates),
    }


def _order(run: Mapping[str, Any]) -> tuple[int, int]:
    return run["seed"], list(_COLOURS).index(run["mode"])


def _named(rollouts: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Returns rollouts by task and number."""
    return {(one["task"], one["number"]): one for one in rollouts}


def _said(rollout: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(call["command"], call["output"]) for call in rollout["calls"]]


def _rewards(run: Mapping[str, Any], updates: Sequence[int]) -> list[str]:
    rewards = {each["updates"]: each["reward"] for each in run["tests"]}
    return [f"{rewards[n]:.2f}" if n in rewards else "" for n in updates]


def _figures(run: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> list[object]:
    """Returns the figures of some epochs of a run: sums of seconds, and of a call the median and the mean."""
    seconds = sorted(call["seconds"] for epoch in epochs for one in epoch["rollouts"] for call in one["calls"])
    hits = [call["source"] != "executed" for epoch in epochs for one in epoch["rollouts"] for call in one["calls"]]
    sums = [
        sum(epoch[name] for epoch in epochs)
        for name in ("tools_s", "setup_s", "grading_s", "generating_s", "learning_s")
    ]
    median = seconds[len(seconds) // 2] if seconds else 0.0
    times = [f"{1000 * each:.2f} ms" for each in (median, mean(seconds))]
    return [run["seed"], run["mode"], len(epochs), f"{mean(hits):.3f}", *times, *(f"{each:.1f}" for each in sums)]


def markdown(titles: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns the lines of a table.

    Args:
        titles: of its columns.
        rows: its cells.
    """
    lines = [titles, ["---"] * len(titles), *rows]
    return [f"| {' | '.join(map(str, each))} |" for each in lines]


def _plots(runs: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Draws held-out rewards by updates, and hit rate and seconds by epoch, as SVG without a background."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    grey = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _GREY)
    with matplotlib.rc_context({**grey, "svg.hashsalt": "tvsnap", "svg.fonttype": "none", "font.size": 10}):
        figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6))
        for run in runs:
            colour, label = _COLOURS[run["mode"]], run["mode"] if run["seed"] == runs[0]["seed"] else None
            style = {"color": colour, "linewidth": 1.4, "label": label}
            tests, epochs = run["tests"], run["epochs"]
            axes[0].plot([each["updates"] for each in tests], [each["reward"] for each in tests], marker=".", **style)
            axes[1].plot([epoch["hit_rate"] for epoch in epochs], **style)
            waited = [epoch["tools_s"] + epoch["setup_s"] + epoch["grading_s"] for epoch in epochs]
            axes[2].plot(waited, **style)
        titles = ("reward on held-out tasks", "hit rate", "seconds in tools, summed over rollouts")
        for axis, title in zip(axes, titles, strict=True):
            axis.set_title(title, color=_GREY)
            axis.set_xlabel("updates" if axis is axes[0] else "epoch")
            axis.grid(color=_GREY, alpha=0.25, linewidth=0.5)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylim(0, 1.03)
        axes[1].set_ylim(-0.03, 1.03)
        axes[2].set_ylim(bottom=0)
        axes[0].legend(frameon=False)
        figure.tight_layout()
        figure.savefig(folder / "training.svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
