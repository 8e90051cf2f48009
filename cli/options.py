"""Options that several verbs have, and the table of exit statuses that ends each verb's help."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from . import completion

HOME_VARIABLE = "TVSNAP_HOME"
BACKEND_VARIABLE = "TVSNAP_BACKEND"
DEFAULT_BACKEND = "local"

FAILED = 1
DIFFERS = 4
INTERRUPTED = 130

_MEANINGS = {
    0: "done",
    1: "failed",
    2: "bad usage",
    3: "no such image, state or task",
    4: "something differs",
    5: "this machine lacks what is needed (tvsnap doctor)",
}

Home = Annotated[
    str | None,
    typer.Option("--home", metavar="DIR", help="The data directory.", envvar=HOME_VARIABLE, show_envvar=True),
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend", metavar="NAME", help="What runs the sandboxes.", envvar=BACKEND_VARIABLE, show_default=True
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Task = Annotated[
    str | None, typer.Option("--task", metavar="TASK", help="Only this task.", autocompletion=completion.tasks)
]
Image = Annotated[
    str | None, typer.Option("--image", metavar="IMAGE", help="Only this image.", autocompletion=completion.images)
]
StateName = Annotated[
    str,
    typer.Argument(
        metavar="STATE",
        help="A state's hash or a prefix of it; PREFIX~2 is two steps up.",
        autocompletion=completion.states,
    ),
]


def help_text(text: str, **statuses: str) -> str:
    """Returns a verb's help with its table of exit statuses.

    Args:
        text: what the verb does, and examples.
        statuses: as `s0="the command's own"`: the meaning of a status; an empty one stands for the usual meaning.
    """
    meanings = {name[1:]: meaning or _MEANINGS[int(name[1:])] for name, meaning in statuses.items()}
    rows = [
        textwrap.fill(meaning, 74, initial_indent=f"  {status:<4} ", subsequent_indent=" " * 7)
        for status, meaning in {**meanings, "130": "interrupted"}.items()
    ]
    return "\n".join([text.strip(), "", "\b", "Exit status:", *rows])
