"""`tvsnap doctor`: what works on this machine, what each lack costs, and how to mend it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tvsnap.doctor import Check, run_checks

MACHINE_LACKS = 5
"""Exit status: this machine lacks what is needed."""

HELP = """Tell what works on this machine, what each lack costs, and how to mend it.

Exit status: 0 if everything that is required works, 5 if not.
"""


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("doctor", help=HELP)(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Runs every check and prints what came of it."""
    checks = run_checks(_home())
    able = all(check.ok for check in checks if check.required)
    if as_json:
        typer.echo(json.dumps({"ok": able, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        _print(checks, able, Console(highlight=False))
    if not able:
        raise typer.Exit(MACHINE_LACKS)


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
