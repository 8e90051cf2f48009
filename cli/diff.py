"""`tvsnap diff`: how two states differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import completion, context, options

if TYPE_CHECKING:
    from rich.console import Console

    from tvsnap.upkeep.diff import FileDifference, StateDifference

HELP = options.help_text(
    """Show how two states differ: files, processes, shell.

Both are looked at in live throw-away sandboxes. + is only in B, - only in A, M in both but not the same; times of
files do not count.

\b
Examples:
  tvsnap diff 3fa9c1~ 3fa9c1            what the last call changed
  tvsnap diff 3fa9c1 77d0aa --patch     with the lines of text files
""",
    s0="done (with --exit-code: nothing differs)",
    s1="",
    s2="bad usage, or states of different images",
    s3="no such state, or a prefix that fits several",
    s4="something differs, and --exit-code was given",
    s5="",
)


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("diff", help=HELP)(diff)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The first state.", autocompletion=completion.states)],
    b: Annotated[str, typer.Argument(metavar="B", help="The second state.", autocompletion=completion.states)],
    patch: Annotated[bool, typer.Option("--patch", "-p", help="Show text files line by line.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 4 if anything differs.")] = False,
    as_json: options.AsJson = False,
    home: options.Home = None,
    backend: options.Backend = options.DEFAULT_BACKEND,
) -> None:
    """Prints how two states differ."""
    from tvsnap.model.errors import UsageError
    from tvsnap.upkeep.diff import compare

    with context.open_cache(home, backend) as cache:
        first, second = cache.graph.resolve(a), cache.graph.resolve(b)
        images = {root.hash: root.image_digest for root in cache.graph.roots()}
        if images[first.root] != images[second.root]:
            raise UsageError(f"{a} and {b} are states of different images")
        with (
            cache.materialise(first.hash) as before,
            cache.materialise(second.hash) as after,
        ):
            difference = compare(before, after, patch=patch)
    if as_json:
        context.print_json({"a": first.hash, "b": second.hash, **_data(difference)})
    else:
        _print(difference, context.console())
    if exit_code and difference:
        raise typer.Exit(options.DIFFERS)


def _print(difference: StateDifference, console: Console) -> None:
    from rich.text import Text

    from .text import cut, one_line

    for file in difference.files:
        _print_file(file, console)
    if difference.ended or difference.started:
        console.print("\nprocesses" if difference.files else "processes", style="bold")
        for sign, style, processes in (("-", "red", difference.ended), ("+", "green", difference.started)):
            for process in processes:
                line = cut(one_line(process.command), console.width - 12)
                console.print(Text(f"{sign} {process.pid:>6}  {line}", style), soft_wrap=True)
    if difference.shell:
        console.print(
            "\nshell" if difference.files or difference.ended or difference.started else "shell", style="bold"
        )
        for item in difference.shell:
            for sign, style, value in (("-", "red", item.before), ("+", "green", item.after)):
                if value is not None:
                    text = cut(f"{sign} {one_line(item.name)}: {one_line(value)}", console.width)
                    console.print(Text(text, style), soft_wrap=True)
    if not difference:
        console.print("no difference", style="dim")


def _print_file(file: FileDifference, console: Console) -> None:
    from rich.text import Text

    from .text import one_line, size, visible

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
    console.print(line, soft_wrap=True)
    for text in file.patch.splitlines():
        color = {"+": "green", "-": "red", "@": "cyan"}.get(text[:1], "")
        console.print(Text("  " + visible(text), color), soft_wrap=True)


def _data(difference: StateDifference) -> dict[str, Any]:
    from dataclasses import asdict

    return {"differs": bool(difference), **asdict(difference)}
