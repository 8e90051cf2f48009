"""Options that several verbs have, and the table of exit statuses that ends each verb's help."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import completion

if TYPE_CHECKING:
    from tvsnap.model.limits import Budget

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


def check_backend(name: str) -> str:
    """Returns the name of a backend, which there is.

    Args:
        name: the name.

    Returns:
        `name`.

    Raises:
        UsageError: there is no such backend.
    """
    from tvsnap import sandboxes as backends
    from tvsnap.model.errors import UsageError

    try:
        backends.check_name(name)
    except UsageError as error:
        raise UsageError(f"{error} (--backend, ${BACKEND_VARIABLE})") from None
    return name


Home = Annotated[
    str | None,
    typer.Option("--home", metavar="DIR", help="The data directory.", envvar=HOME_VARIABLE, show_envvar=True),
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="What runs the sandboxes.",
        envvar=BACKEND_VARIABLE,
        show_default=True,
        callback=check_backend,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MaxDisk = Annotated[
    str | None,
    typer.Option("--max-disk", metavar="SIZE", help="Let snapshots take so much, as in 20G; the least useful ones go."),
]
MaxSnapshots = Annotated[
    int | None, typer.Option("--max-snapshots", metavar="N", min=0, help="Keep so many snapshots at most.")
]
MaxMemory = Annotated[
    str | None, typer.Option("--max-memory", metavar="SIZE", help="Let live sandboxes take so much memory, as in 8G.")
]
MaxSandboxes = Annotated[
    int | None, typer.Option("--max-sandboxes", metavar="N", min=1, help="Let so many sandboxes live at once.")
]
UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
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


def input_lines() -> Iterator[str]:
    """Yields the lines of standard input, each as soon as it is there, without its line feed.

    Raises:
        UsageError: one is no text, or cannot be a command's.
    """
    from tvsnap.model.errors import UsageError

    for number, line in enumerate(typer.get_binary_stream("stdin"), 1):
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            wrong = f"is not UTF-8: byte {error.start + 1} is 0x{line[error.start]:02x}"
        else:
            if "\0" not in text:
                yield text
                continue
            wrong = "must not hold a NUL character"
        raise UsageError(f"line {number} of standard input {wrong}; neither it nor what follows was run")


def seconds(name: str, help: str, *, least: float | None = None) -> Any:
    """Returns an option that is a number of seconds; see `check_seconds`."""

    def check(value: float) -> float:
        from tvsnap.model.arguments import check_seconds

        return check_seconds(value, name, least=least)

    return typer.Option(name, metavar="S", help=help, callback=check)


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


def budget(
    max_disk: str | None, max_snapshots: int | None, max_memory: str | None, max_sandboxes: int | None
) -> Budget:
    """Returns the budget that the options of these names ask for.

    Raises:
        UsageError: one of the sizes is none.
    """
    from tvsnap.model.limits import Budget

    return Budget(
        disk=None if max_disk is None else parse_size(max_disk),
        snapshots=max_snapshots,
        memory=None if max_memory is None else parse_size(max_memory),
        sandboxes=Budget().sandboxes if max_sandboxes is None else max_sandboxes,
    )


def parse_size(text: str) -> int:
    """Returns a number of bytes written as `500M`, `2G`, `1048576`.

    Raises:
        UsageError: it is none.
    """
    from tvsnap.model.errors import UsageError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f'"{text}" is no size; write it as 500M or 2G')
    return int(float(match[1]) * UNITS[match[2].upper()])
