"""`tvsnap setup`: installs or builds missing programs."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

from tvsnap.host.home import find_home
from tvsnap.model.errors import MachineLacks, UsageError

from . import context, options
from .text import visible

if TYPE_CHECKING:
    from tvsnap.host.checks import Check
    from tvsnap.upkeep.host_setup import Step


@options.verb("25", begins=True, s0="nothing that is required is missing", s1="a step failed, or was not confirmed")
def setup(
    yes: bool = Option(False, "--yes", "-y", help="Do not ask."),
    dry_run: bool = Option(False, "--dry-run", "-n", help="Only tell what would be done."),
    without_criu: bool = Option(
        False, "--without-criu", help="Do without CRIU where it is missing (env: TVSNAP_WITHOUT_CRIU)."
    ),
    as_json: options.AsJson = False,
) -> None:
    """Install or build what this machine lacks.

    That is packages of Debian or Ubuntu (btrfs-progs, mmdebstrap), and CRIU if this installation has none that runs
    here: it is built from source, with the compiler that apt installs for that, into /usr/local/lib/tvsnap. It lists
    the steps, and asks. If nothing is missing it does nothing. It names the lacks that it cannot remedy, like
    `tvsnap doctor`.

    Ctrl-C stops it at any time, after the packages that are being installed. Logs are in ~/.cache/tvsnap.

    \b
    Examples:
      tvsnap setup
      tvsnap setup --dry-run
      tvsnap setup --yes --json
    """
    from tvsnap.upkeep import host_setup

    wanted = not (without_criu or os.environ.get("TVSNAP_WITHOUT_CRIU"))
    steps = host_setup.plan(criu=wanted)
    console = context.console(stderr=as_json)
    if not dry_run:
        host_setup.check_possible(steps)
        _confirm(steps, yes=yes, as_json=as_json)
        for step in steps:
            with context.waiting(step.what):
                host_setup.carry_out(step, lambda line: console.print(visible(line), soft_wrap=True))
    lacks = _lacks() if not (dry_run and steps) else []
    data: dict[str, Any] = {
        "dry_run": dry_run,
        "steps": [asdict(step) for step in steps],
        "lacks": [asdict(check) for check in lacks],
        "ok": not (dry_run and steps) and not any(check.required for check in lacks),
    }
    context.answer(data, as_json=as_json, show=lambda: _print(steps, lacks, dry_run=dry_run))
    if any(check.required for check in lacks):
        raise typer.Exit(MachineLacks.exit_status)


def _confirm(steps: list[Step], *, yes: bool, as_json: bool) -> None:
    """Shows the steps and asks for permission, unless `--yes` was given."""
    if not steps or yes:
        return
    if as_json or not context.is_terminal():
        raise UsageError("tvsnap setup changes this machine: add --yes, or --dry-run to be told how")
    _print_steps(steps, "tvsnap setup will:")
    typer.confirm("go on?", default=True, abort=True)


def _lacks() -> list[Check]:
    """Returns the failed checks, except Docker's, which `setup` does not install, and those that need root."""
    from tvsnap.upkeep.doctor import run_checks

    checks = run_checks(find_home())
    return [check for check in checks if check.known and not check.ok and not check.name.startswith("Docker")]


def _print_steps(steps: list[Step], heading: str) -> None:
    console = context.console(soft_wrap=True)
    console.print(heading, style="bold")
    for step in steps:
        console.print(f"  - {step.what}\n    for {step.why}")


def _print(steps: list[Step], lacks: list[Check], *, dry_run: bool) -> None:
    console = context.console(soft_wrap=True)
    if not steps:
        console.print("nothing to install")
    elif dry_run:
        _print_steps(steps, "would:")
        return
    else:
        console.print(f"done: {'; '.join(step.name for step in steps)}")
    for check in lacks:
        console.print(f"{'MISSING' if check.required else 'lacks'}  {check.name}: {check.detail}")
        console.print(f"  mend: {check.remedy}", style="cyan")
    if not any(check.required for check in lacks):
        console.print("tvsnap works here", style="green")
