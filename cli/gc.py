"""`tvsnap gc`: frees space that is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer import Option

from . import context, options
from .text import count, size

if TYPE_CHECKING:
    from tvsnap.upkeep.maintenance import GcPlan, GcReport


SHARED = "(each with what it shares with others)"


@options.verb("0125", backend=True)
def gc(
    keep_bytes: str | None = Option(
        None, metavar="SIZE", help="Delete snapshots until the rest fits in SIZE: 500M, 2G."
    ),
    packages: bool = Option(
        False, "--packages", help="Delete the packages that builds of images have downloaded, too."
    ),
    dry_run: bool = Option(False, "--dry-run", "-n", help="Only tell what would be freed."),
    as_json: options.AsJson = False,
) -> None:
    """Free what nothing needs.

    That is the remains of killed processes, snapshots that the graph does not know, records of missing snapshots, and
    files that forgotten calls had put into sandboxes or fetched. Recorded results always stay.

    It also returns the space of files deleted before to the disk, such as snapshots that a budget had deleted: a dry
    run cannot tell their size.

    With --keep-bytes, snapshots are deleted too, those first that save least time per byte, until the others take no
    more than that on the disk; shared data counts once. If nothing else leads to such a state, the next rollout that
    comes there executes the call again. Snapshots kept by hand, and those of running rollouts' states, stay.

    It works on a full disk, too: a few MiB are kept in reserve for it in the data directory.

    That is done once: --keep-bytes sets no budget. Only `tvsnap replay` and `tvsnap run` keep to one while they run,
    with these options of theirs (in Python: Cache(budget=...)):

    \b
      --max-disk SIZE, --max-snapshots N     limits of snapshots
      --max-memory SIZE, --max-sandboxes N   limits of live sandboxes

    \b
    Examples:
      tvsnap gc --dry-run
      tvsnap gc --keep-bytes 2G
      tvsnap gc --packages --keep-bytes 0
    """
    from tvsnap.upkeep.maintenance import plan_gc, run_gc

    limit = None if keep_bytes is None else options.parse_size(keep_bytes)
    report = None
    with context.open_parts() as parts:
        plan = plan_gc(parts.home, parts.graph, parts.backend, keep_bytes=limit, packages=packages)
        if not dry_run:
            with context.waiting("freeing"):
                report = run_gc(parts.home, parts.graph, parts.backend, plan)
    context.answer(_data(plan, report), as_json=as_json, show=lambda: _print(plan, report))


def _print(plan: GcPlan, report: GcReport | None) -> None:

    console = context.console()
    freed = [
        (len(plan.dead_owners), "killed process, with what it left", "killed processes, with what they left"),
        (len(plan.rows_without_files), "row of a snapshot that is gone", "rows of snapshots that are gone"),
        (len(plan.files_without_row), "snapshot unknown to the graph", "snapshots unknown to the graph"),
    ]
    if report is not None:
        freed += [
            (report.reaped.sandboxes, "sandbox of a dead process", "sandboxes of dead processes"),
            (report.reaped.snapshots, "unfinished snapshot", "unfinished snapshots"),
            (report.reaped.temporary, "temporary directory", "temporary directories"),
            (report.leases, "lease of a dead process", "leases of dead processes"),
        ]
    lines = [count(number, one, many) for number, one, many in freed if number]
    evicted = plan.evicted if report is None else report.evicted
    if evicted:
        freed_size = size(sum(snapshot.size for snapshot in evicted))
        lines.append(f"{count(len(evicted), 'snapshot')} to keep within the limit, which held {freed_size} {SHARED}")
    if plan.contents:
        lines.append(f"{count(plan.contents, 'content')} that no recorded call names, {size(plan.contents_bytes)}")
    if plan.packages and plan.packages_bytes:
        lines.append(f"downloaded packages, {size(plan.packages_bytes)}")
    returned = report.returned_bytes if report is not None else 0
    if returned and not lines:
        lines.append(f"the space of what was deleted before, {size(returned)}")
    elif returned:
        lines.append(f"{size(returned)} went back to the disk")
    if not lines:
        console.print(f"nothing to free; {_left(plan, report)}")
        _print_rest(plan)
        return
    console.print("would free:" if report is None else "freed:", style="bold")
    for line in lines:
        console.print(f"  {line}")
    console.print(_left(plan, report))
    _print_rest(plan)


def _left(plan: GcPlan, report: GcReport | None) -> str:
    """Returns a line about the bytes of the remaining snapshots, and on the disk if that was measured."""
    if report is None:
        return f"snapshots would then hold {size(plan.kept_bytes)} {SHARED}"
    on_disk = "" if report.taken_bytes is None else f"; with sandboxes they take {size(report.taken_bytes)} on the disk"
    return f"snapshots now hold {size(report.kept_bytes)} {SHARED}{on_disk}"


def _print_rest(plan: GcPlan) -> None:
    """Names other users of space, and the way to free it."""
    rest = [f"images {size(plan.images_bytes)} (tvsnap image ls, tvsnap image rm)"] if plan.images_bytes else []
    if plan.packages_bytes and not plan.packages:
        rest.append(f"downloaded packages {size(plan.packages_bytes)} (tvsnap gc --packages)")
    if plan.kept_bytes:
        rest.append("the snapshots (tvsnap gc --keep-bytes, tvsnap forget)")
    if rest:
        context.console().print(f"not touched: {', '.join(rest)}", soft_wrap=True)


def _data(plan: GcPlan, report: GcReport | None) -> dict[str, Any]:
    from dataclasses import asdict

    evicted = plan.evicted if report is None else report.evicted
    return {
        "dry_run": report is None,
        "dead_owners": list(plan.dead_owners),
        "rows_without_files": [snapshot.id for snapshot in plan.rows_without_files],
        "files_without_row": list(plan.files_without_row),
        "evicted": [snapshot.id for snapshot in evicted],
        "evicted_bytes": sum(snapshot.size for snapshot in evicted),
        "kept_bytes": plan.kept_bytes if report is None else report.kept_bytes,
        "taken_bytes": None if report is None else report.taken_bytes,
        "contents": plan.contents,
        "contents_bytes": plan.contents_bytes,
        "images_bytes": plan.images_bytes,
        "packages_bytes": plan.packages_bytes,
        "reaped": asdict(report.reaped) if report is not None else None,
        "leases": report.leases if report is not None else None,
        "returned_bytes": report.returned_bytes if report is not None else None,
    }
