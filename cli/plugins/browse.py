"""`tvsnap browse`: the tree of states on a screen of its own, with all that can be done with a state."""

from __future__ import annotations

import sys

from typer import Argument

from tvsnap.model.errors import UsageError

from .. import completion, context, options


@options.verb("0125", backend=True, url=True, s3="no such state, or a prefix that fits several")
def browse(
    state: str | None = Argument(
        None,
        metavar="STATE",
        help="The state at which to begin.",
        autocompletion=completion.states,
        show_default=False,
    ),
    task: options.Task = None,
) -> None:
    """Walk through the tree of states on a screen. It grows while rollouts run.

    Keys go along a rollout, to the sibling where another one diverged, and to the next failure, hit or state without a
    snapshot. Beside the tree are the call, its output with its colours, and, from a fork, processes, shell and files.
    Other keys compare two states, open a shell in a fork, run a command, make a call again, export and grade; ? lists
    all keys. It needs Textual: pip install 'tvsnap[screens]'.

    \b
    Examples:
      tvsnap browse
      tvsnap browse 3fa9c1
      tvsnap browse --task fix-git
      tvsnap browse --url http://sandboxes:8420
    """
    try:
        from .screens.browser import Browser
        from .screens.work import Work
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "textual":
            raise
        raise UsageError("the package textual is missing: pip install 'tvsnap[screens]'") from None
    if not (context.is_terminal() and sys.stderr.isatty()):  # it is drawn on standard error
        raise UsageError(
            "browse needs a terminal as its input, output and error output; without one: tvsnap tree, tvsnap show, "
            "tvsnap rollouts"
        )
    work = Work()
    with context.any_graph() as graph:
        at = None if state is None else graph.resolve(state).hash
        browser = Browser(graph, work, task, at=at)
        try:
            browser.run()
        finally:
            browser.closing.set()
            work.close()
