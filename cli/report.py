"""`tvsnap report`: writes a page with charts of a cache's work."""

from __future__ import annotations

import json
from pathlib import Path

from typer import Argument, Option

from tvsnap.model.errors import NotFound, UsageError

from . import context, options, stats
from .results import write_result
from .tree import some


@options.verb("0235", url=True)
def report(
    file: Path | None = Argument(
        None, metavar="FILE", help="The page; - is standard output, as without it where --json is given."
    ),
    task: options.Task = None,
    as_json: bool = Option(False, "--json", help="Write the figures of the page as JSON."),
) -> None:
    """Write a page with charts: hit rates, times, and what was not shared.

    It has hit rate, mean reward and seconds a call by epoch, hit rate by a call's place in its rollout, the waiting and
    execution times of calls, the time saved, the calls that are not shared with the reasons, and the tasks. It is
    complete by itself, and can be sent to others. With --task, it is about that task's rollouts only.

    \b
    Examples:
      tvsnap report run.html
      tvsnap report run.html --url http://host:8420
      tvsnap report fix-git.html --task fix-git
      tvsnap report --json | jq '.epochs[].hit_rate'
    """
    from . import report_view

    if file is None and not as_json:
        raise UsageError("give the FILE of the page, or --json")
    with context.any_graph() as graph:
        epochs, tasks = graph.tallies("epoch", task=task), graph.tallies("task", task=task)
        nodes = graph.tree(task=task)
        latest = graph.rollouts(task)[-report_view.LATEST :]
        steps = [step for rollout in latest for step in graph.steps(rollout.id)]
        if not nodes and task is not None and task not in graph.tasks():
            raise NotFound(f'no rollouts of task "{task}" are known; have: {some(graph.tasks())}')
    if not nodes:
        raise NotFound("nothing was recorded yet that could be reported; try: tvsnap run terminal -c 'ls /'")
    figures = stats.collect() if task is None else report_view.figures_of(tasks, nodes, steps)
    if as_json:
        data = {"task": task, **report_view.as_data(figures, epochs, tasks, nodes, steps)}
        write_result(file or Path("-"), f"{json.dumps(data, indent=2)}\n")
        return
    assert file is not None
    write_result(file, report_view.report(figures, epochs, tasks, nodes, steps, task))
