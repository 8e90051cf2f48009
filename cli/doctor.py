"""`tvsnap doctor`: what works on this machine, what each lack costs, how to mend it; and the self-test."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tvsnap.model.errors import UsageError
from tvsnap.upkeep.doctor import Check, run_checks

from . import completion, context, options
from .text import one_line, seconds

if TYPE_CHECKING:
    from tvsnap.self_test import Result

MACHINE_LACKS = 5
"""Exit status: this machine lacks what is needed."""

HELP = options.help_text(
    """Tell what works on this machine, what each lack costs, and how to mend it.

With --self-test, tries what tvsnap promises with real sandboxes: forks that go their own ways, background processes,
timeouts, limits, isolation, a cached rollout against a fresh one, a killed process, and that nothing is left behind.
It takes some seconds, in a data directory of its own beside yours and, unless --image names another, an image made of
this machine's own bash.

\b
Examples:
  tvsnap doctor
  tvsnap doctor --self-test
  tvsnap doctor --self-test --backend docker
  tvsnap doctor --self-test --image terminal --json
""",
    s0="everything that is required works",
    s1="a check of the self-test failed",
    s2="",
    s3="no such image",
    s5="",
)


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("doctor", help=HELP)(doctor)


def doctor(
    self_test: Annotated[bool, typer.Option("--self-test", help="Try it with real sandboxes.")] = False,
    image: Annotated[
        str | None,
        typer.Option(
            "--image", metavar="IMAGE", help="The self-test's image; has bash.", autocompletion=completion.images
        ),
    ] = None,
    backend: options.Backend = options.DEFAULT_BACKEND,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Runs every check and prints what came of it."""
    if image is not None and not self_test:
        raise UsageError("--image is for the self-test: add --self-test")
    checks = [] if self_test and backend != "local" else run_checks(_home())
    able = all(check.ok for check in checks if check.required)
    if self_test and able:
        _self_test(backend, image, as_json)
        return
    if as_json:
        typer.echo(json.dumps({"ok": able, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        _print(checks, able, Console(highlight=False))
    if not able:
        raise typer.Exit(MACHINE_LACKS)


def _self_test(backend: str, image: str | None, as_json: bool) -> None:
    """Makes the self-test, each check shown as it ends."""
    from tvsnap.self_test import self_test

    results: list[Result] = []
    console = context.console()
    with console.status("") if context.is_terminal() and not as_json else contextlib.nullcontext() as status:

        def begin(name: str) -> None:
            if status is not None:
                status.update(name)

        for result in self_test(_home(), backend, image, begin):
            results.append(result)
            if not as_json:
                console.print(_line(result), soft_wrap=True)
    ok = all(result.ok for result in results)
    spent = sum(result.seconds for result in results)
    if as_json:
        typer.echo(json.dumps({"ok": ok, "seconds": spent, "checks": [asdict(each) for each in results]}, indent=2))
    elif ok:
        console.print(f"\ntvsnap keeps its word here ({len(results)} checks in {seconds(spent)})", style="green")
    else:
        failed = sum(not result.ok for result in results)
        console.print(f"\n{failed} of {len(results)} checks failed: do not trust tvsnap here", style="bold red")
    if not ok:
        raise typer.Exit(options.FAILED)


def _line(result: Result) -> Text:
    line = Text("✓ " if result.ok else "✗ ", "green" if result.ok else "bold red")
    line.append(f"{result.name:<48}")
    line.append(f"{seconds(result.seconds):>7}", "dim")
    line.append(f"  {one_line(result.detail)}", "dim" if result.ok else "red")
    line.rstrip()
    return line


def _home() -> Path:
    """Returns the data directory, which need not exist."""
    chosen = os.environ.get("TVSNAP_HOME")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/lib/tvsnap")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "tvsnap"


def _print(checks: Sequence[Check], able: bool, console: Console) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        table.add_row(_mark(check), check.name, _finding(check))
    console.print(table)
    console.print()
    missing = [check.name for check in checks if check.required and not check.ok]
    if able:
        lacking = sum(not check.ok for check in checks)
        console.print("[green]tvsnap works here[/green]" + (f", {lacking} optional thing(s) aside" if lacking else ""))
    else:
        console.print(f"[red]tvsnap cannot run here[/red]: {', '.join(missing)}")


def _mark(check: Check) -> Text:
    if check.ok:
        return Text("ok", "green")
    return Text("MISSING", "bold red") if check.required else Text("lacks", "yellow")


def _finding(check: Check) -> Text:
    """Returns what was found and, of a lack, its cost and its remedy below."""
    text = Text(check.detail)
    if not check.ok:
        text.append(f"\ncosts: {check.cost}", "dim")
        text.append(f"\nmend:  {check.remedy}", "cyan")
    return text
