"""`tvsnap report`: writes a page with charts of what a cache did."""

from __future__ import annotations

from pathlib import Path

from typer import Argument

from tvsnap.model.errors import NotFound

from . import context, options, stats
from .results import write_result


@options.verb("0235", url=True)
def report(
    file: Path = Argument(metavar="FILE", help="The page; - is standard output.", show_default=False),
) -> None:
    """Write a page with charts: hit rates, times, and what was not shared.

    It has hit rate and seconds a call by epoch, hit rate by a call's place in its rollout, how long rollouts wait
    for calls and how long these take, what was saved, what was not shared and why, and the tasks. It is complete by
    itself, and can be sent to others. The same figures as JSON: tvsnap stats --json, tvsnap stats --by epoch --json.

    \b
    Examples:
      tvsnap report run.html
      tvsnap report run.html --url http://host:8420
    """
    from . import report_view

    with context.any_graph() as graph:
        epochs, tasks = graph.tallies("epoch"), graph.tallies("task")
        nodes = graph.tree()
        steps = [step for rollout in graph.rollouts()[-report_view.LATEST :] for step in graph.steps(rollout.id)]
    if not nodes:
        raise NotFound("nothing was recorded yet that could be reported; try: tvsnap run terminal -c 'ls /'")
    text = report_view.report(stats.collect(), epochs, tasks, nodes, steps)
    write_result(file, text)
