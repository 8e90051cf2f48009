"""`tvsnap diff`: how two states differ."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import typer
from rich.text import Text
from typer import Argument, Option

from . import completion, context, options
from .text import cut, one_line, size, visible

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.cache import Cache
    from tvsnap.upkeep.diff import FileDifference, StateDifference


@options.verb(
    "15",
    backend=True,
    url=True,
    s0="done (with --exit-code: nothing differs)",
    s2="bad usage, or states of different images",
    s3="no such state, or a prefix that fits several",
    s4="something differs, and --exit-code was given",
)
def diff(
    a: str = Argument(..., metavar="A", help="The first state.", autocompletion=completion.states),
    b: str = Argument(..., metavar="B", help="The second state.", autocompletion=completion.states),
    patch: bool = Option(False, "--patch", "-p", help="Show text files line by line."),
    exit_code: bool = Option(False, "--exit-code", help="Exit with 4 if anything differs."),
    as_json: options.AsJson = False,
) -> None:
    """Show how two states differ: files, processes, shell.

    Both are looked at in live throw-away sandboxes. + is only in B, - only in A, M in both but not the same; times of
    files do not count.

    \b
    Examples:
      tvsnap diff 3fa9c1~ 3fa9c1            what the last call changed
      tvsnap diff 3fa9c1 77d0aa --patch     with the lines of text files
    """
    from tvsnap.upkeep.diff import StateDifference, compare_states

    client = context.connected()
    with context.open_cache() if client is None else client as cache:
        first, second = cache.graph.resolve(a), cache.graph.resolve(b)
        if client is None:
            difference = compare_states(cast("Cache", cache), a, b, patch=patch)
        else:
            difference = client.diff(StateDifference, a, b, patch=patch)
    data = {"a": first.hash, "b": second.hash, "differs": bool(difference), **asdict(difference)}
    context.answer(data, as_json=as_json, show=lambda: _print(difference, context.console(soft_wrap=True)))
    if exit_code and difference:
        raise typer.Exit(options.DIFFERS)


def _print(difference: StateDifference, console: Console) -> None:
    for file in difference.files:
        _print_file(file, console)
    parts: dict[str, list[Text]] = {"processes": [], "shell": []}
    for sign, style, processes in (("-", "red", difference.ended), ("+", "green", difference.started)):
        for process in processes:
            command = cut(one_line(process.command), console.width - 12)
            parts["processes"].append(Text(f"{sign} {process.pid:>6}  {command}", style))
    for item in difference.shell:
        for sign, style, value in (("-", "red", item.before), ("+", "green", item.after)):
            if value is not None:
                text = cut(f"{sign} {one_line(item.name)}: {one_line(value)}", console.width)
                parts["shell"].append(Text(text, style))
    has_output = bool(difference.files)
    for title, lines in parts.items():
        if lines:
            console.print(f"\n{title}" if has_output else title, style="bold")
            console.print(*lines, sep="\n")
            has_output = True
    if not difference:
        console.print("no difference", style="dim")


def _print_file(file: FileDifference, console: Console) -> None:
    style = {"+": "green", "-": "red", "M": "yellow"}[file.kind]
    line = Text(f"{file.kind} ", style)
    shown = file.after or file.before
    line.append(one_line(file.path) + ("/" if shown is not None and shown.kind == "directory" else ""), style)
    sizes = [size(side.size) for side in (file.before, file.after) if side is not None and side.kind == "file"]
    details = [" -> ".join(dict.fromkeys(sizes))] if sizes else []
    if shown is not None and shown.kind not in ("file", "directory") and not file.what:
        details.append(shown.kind)
    details += [file.what] if file.what else []
    if details:
        line.append(f"  {', '.join(details)}", "dim")
    console.print(line)
    for text in file.patch.splitlines():
        color = {"+": "green", "-": "red", "@": "cyan"}.get(text[:1], "")
        console.print(Text("  " + visible(text), color))
