"""`tvsnap doctor`: the abilities of this machine, the cost and remedy of each lack, and the self-test."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text
from typer import Option

from tvsnap.host.checks import AS_ROOT, Check
from tvsnap.host.home import find_home
from tvsnap.model.errors import MachineLacks, UsageError
from tvsnap.upkeep.doctor import run_checks

from . import completion, context, options
from .text import one_line, seconds

if TYPE_CHECKING:
    from tvsnap.self_test import Result


@options.verb(
    "25",
    begins=True,
    backend=True,
    s0="everything that is required works",
    s1="a check of the self-test failed",
    s3="no such image",
)
def doctor(
    self_test: bool = Option(False, "--self-test", help="Try it with real sandboxes."),
    image: str | None = Option(
        None, metavar="IMAGE", help="The self-test's image; has bash.", autocompletion=completion.images
    ),
    as_json: bool = Option(False, "--json", help="Print the checks as JSON."),
) -> None:
    """Tell what works on this machine, what each lack costs, and how to mend it.

    With --self-test, tries tvsnap's promises with real sandboxes: independent forks, background processes, timeouts,
    limits, isolation, a cached rollout against a fresh one, a killed process, and that nothing is left behind. It takes
    some seconds, in a data directory of its own beside yours and, unless --image names another, an image made of this
    machine's own bash.

    \b
    Examples:
      tvsnap doctor
      tvsnap doctor --self-test
      tvsnap doctor --self-test --backend docker
      tvsnap doctor --self-test --image terminal --json
    """
    if image is not None and not self_test:
        raise UsageError("--image is for the self-test: add --self-test")
    checks = [] if self_test and context.backend_name() != "local" else run_checks(find_home())
    able = all(check.ok for check in checks if check.required)
    if self_test and able:
        _self_test(image, as_json)
        return
    data = {"ok": able, "checks": [asdict(check) for check in checks]}
    context.answer(data, as_json=as_json, show=lambda: _print(checks, able, context.console()))
    if not able:
        raise typer.Exit(MachineLacks.exit_status)


def _self_test(image: str | None, as_json: bool) -> None:
    """Runs the self-test and shows each check when it ends."""
    from tvsnap.self_test import self_test

    results: list[Result] = []
    console = context.console()
    with console.status("") if context.is_terminal() and not as_json else contextlib.nullcontext() as status:

        def begin(name: str) -> None:
            if status is not None:
                status.update(name)

        for result in self_test(find_home(), context.backend_name(), image, begin):
            results.append(result)
            if not as_json:
                console.print(_line(result), soft_wrap=True)
    ok = all(result.ok for result in results)
    spent = sum(result.seconds for result in results)
    if ok:
        line = Text(f"\ntvsnap keeps its word here ({len(results)} checks in {seconds(spent)})", "green")
    else:
        failed = sum(not result.ok for result in results)
        line = Text(f"\n{failed} of {len(results)} checks failed: do not trust tvsnap here", "bold red")
    data = {"ok": ok, "seconds": spent, "checks": [asdict(each) for each in results]}
    context.answer(data, as_json=as_json, show=lambda: console.print(line))
    if not ok:
        raise typer.Exit(options.FAILED)


def _line(result: Result) -> Text:
    line = Text.assemble(
        ("✓ ", "green") if result.ok else ("✗ ", "bold red"),
        f"{result.name:<48}",
        (f"{seconds(result.seconds):>7}", "dim"),
        (f"  {one_line(result.detail)}", "dim" if result.ok else "red"),
    )
    line.rstrip()
    return line


def _print(checks: Sequence[Check], able: bool, console: Console) -> None:
    table = context.table("", "", show_header=False, left=2)
    table.add_column(overflow="fold")
    for check in checks:
        table.add_row(_mark(check), check.name, _finding(check))
    console.print(table)
    console.print()
    missing = [check.name for check in checks if check.required and check.known and not check.ok]
    if able:
        lacking = sum(not check.ok for check in checks)
        aside = f", {lacking} optional thing(s) aside" if lacking else ""
        console.print(Text.assemble(("tvsnap works here", "green"), aside))
    else:
        console.print(Text.assemble(("tvsnap cannot run here", "red"), f": {', '.join(missing)}"))
        if not all(check.known for check in checks):
            console.print(f"what is marked unknown: {AS_ROOT}")


def _mark(check: Check) -> Text:
    if check.ok:
        return Text("ok", "green")
    if not check.known:
        return Text("unknown", "yellow")
    return Text("MISSING", "bold red") if check.required else Text("lacks", "yellow")


def _finding(check: Check) -> Text:
    """Returns the finding of a check and, if it failed, its cost and remedy below."""
    text = Text(check.detail)
    if check.known and not check.ok:
        text.append(f"\ncosts: {check.cost}", "dim")
        text.append(f"\nmend:  {check.remedy}", "cyan")
    return text
