"""`tvsnap image`: the verbs for environment images; the larger ones have modules of their own."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text
from typer import Argument

from tvsnap.host.home import GRAPH_FILE, resolve_home
from tvsnap.images import Image
from tvsnap.model.errors import NotFound
from tvsnap.model.images import BUILD_LOG
from tvsnap.model.task import Task, TaskPhase

from . import context, image_base, image_build, image_export, options
from .forget import describe
from .image_build import image_data, size_text
from .text import visible

if TYPE_CHECKING:
    from tvsnap.graph import Forgotten


@options.verb("012", url=True, s5="no rights to the data directory")
def ls(as_json: options.AsJson = False) -> None:
    """List the images.

    An image without a name was superseded by a newer build; records of the older one may still need it.

    \b
    Examples:
      tvsnap image ls
      tvsnap image ls --json
    """
    with context.any_images() as store:
        images = store.list()
    context.answer([image_data(image) for image in images], as_json=as_json, show=lambda: _list(images))


def _list(images: list[Image]) -> None:
    if not images:
        typer.echo("no images; build one: tvsnap image build terminal")
        return
    headings = ("NAME", "DIGEST", "ENVIRONMENT", "CREATED", "SIZE")
    table = context.table(*headings, left=4, header_style="bold", padding=(0, 1))
    for image in images:
        name = Text(image.name) if image.name else Text("(superseded)", "dim")
        table.add_row(name, image.digest[:12], image.environment, _when(image.created), size_text(image.size))
    context.console().print(table)


@options.verb("012", url=True, s3="no such image", s5="no rights to the data directory")
def show(
    name: str = Argument(..., metavar="IMAGE", help="A name, or a digest or any unique prefix of it."),
    as_json: options.AsJson = False,
) -> None:
    """Show what is known about an image.

    \b
    Examples:
      tvsnap image show terminal
      tvsnap image show 3968f8 --json
    """
    with context.any_images() as store:
        image = store.get(name)
        manifest, log = store.manifest(image), str(image.rootfs.with_name(BUILD_LOG))
    more = asdict(manifest)
    data = {key: more[key] for key in ("notes", "source", "recipe", "build_seconds")}
    data |= {"databases": (), **manifest.contents}
    context.answer(
        {**image_data(image), **data, "log": log},
        as_json=as_json,
        show=lambda: _print(image, data, manifest.contents, log),
    )


def _task_rows(task: Task) -> dict[str, str]:
    """Returns a description of a task's parts, without the values of variables, which may be long."""
    phases = {"agent": task.agent, "verifier": task.verifier, "solution": task.solution}
    steps = []
    for step in task.steps:
        parts = [("agent", step.agent), ("verifier", step.verifier)]
        stated = [f"{name}: {words}" for name, phase in parts if (words := _phase_words(phase))]
        steps.append("; ".join([step.name, *stated]))
    return {**{name: _phase_words(phase) for name, phase in phases.items()}, "steps": "\n".join(map(visible, steps))}


def _phase_words(phase: TaskPhase) -> str:
    parts = [
        f"timeout {phase.timeout:g} s" if phase.timeout else "",
        f"user {phase.user}" if phase.user else "",
        f"network {phase.network}" if phase.network else "",
        f"env {' '.join(phase.env)}" if phase.env else "",
    ]
    return visible(", ".join(filter(None, parts)))


def _print(image: Image, manifest: Mapping[str, Any], contents: Iterable[str], log: str) -> None:
    stated = image.limits.said()
    limits = {name: size_text(value) if name in ("memory", "disk") else value for name, value in stated.items()}
    clock = "" if image.clock is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(image.clock))
    rows = {
        "name": image.name or "(superseded)",
        "digest": image.digest,
        "environment": image.environment,
        "size": size_text(image.size),
        "created": f"{_when(image.created)}, in {manifest['build_seconds']:.1f} s",
        "built from": manifest["source"],
        "user": image.user,
        "no new privileges": "yes" if image.no_new_privileges else "no",
        "clock": clock,
        "random seed": "" if image.random_seed is None else str(image.random_seed),
        "reseed": visible(image.reseed),
        "network": str(image.network),
        "workdir": image.workdir,
        "hostname": image.hostname,
        **{of: visible(", ".join(manifest[of])) for of in contents},
        "env": "\n".join(f"{key}={value}" for key, value in sorted(image.env.items())),
        "limits": ", ".join(f"{name} {value}" for name, value in limits.items()),
        "timeouts": ", ".join(f"{name} {value:g} s" for name, value in image.timeouts.said().items()),
        **_task_rows(image.task),
        "runs": "\n".join(visible(f"{one.name}: {shlex.join(one.command)}") for one in image.services.running),
        "notes": "\n".join(manifest["notes"]),
        "files": "\n".join(map(str, image.layers)),
        "build log": log,
    }
    console = context.console(soft_wrap=True)  # so that digests and paths can be copied
    width = max(map(len, rows)) + 2
    for label, value in rows.items():
        for number, line in enumerate(value.splitlines()):
            console.print(Text.assemble((("" if number else label).ljust(width), "bold"), line))


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@options.verb("012", url=True, s3="no such image", s5="no rights to the data directory")
def rm(
    names: list[str] = Argument(..., metavar="IMAGE", help="Names, or digests or prefixes of them."),
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Remove images.

    By name: the name, and the image if it has no other name. By digest: the image and all its names. States of a
    removed image stay on disk, and are of no use until the same image is built again: they are listed, with the way to
    delete them.

    At a terminal it asks first, unless --yes is given. Elsewhere --yes is needed: without it, nothing is removed, and
    the records on the images are only listed.

    \b
    Examples:
      tvsnap image rm terminal
      tvsnap image rm 3968f8 mine --yes
    """
    with context.any_images() as store:
        chosen = {name: store.get(name) for name in names}  # removes nothing unless all of them exist
        gone = _gone(store.list(), chosen)
        orphans = {digest: done_on for digest in gone if (done_on := _done_on(digest)) is not None}
        standing = {digest: f" (on which {describe(of, _size(of))} stand)" for digest, of in orphans.items()}
        doomed = [_name(image) + standing.get(image.digest, "") for image in chosen.values()]
        context.confirm(f"remove {', '.join(doomed)}", yes=yes)
        removed = [store.remove(name) for name in names]
    data = {
        "removed": [{"name": image.name, "digest": image.digest} for image in removed],
        "orphans": [
            {
                "image": digest,
                "states": of.states,
                "calls": of.edges,
                "snapshots": len(of.snapshots),
                "bytes": _size(of),
            }
            for digest, of in orphans.items()
        ],
    }
    lines = [f"removed {_name(image)}" for image in removed]
    for digest, of in orphans.items():
        lines += [
            f"what was done on {gone[digest] or digest[:12]} stays, of no use without it: {describe(of, _size(of))}",
            f"  to delete that: tvsnap forget --image {digest}",
        ]
    context.answer(data, as_json=as_json, show=lambda: typer.echo("\n".join(lines)))


def _gone(images: Iterable[Image], removed: Mapping[str, Image]) -> dict[str, str]:
    """Returns the digests of the images that are removed completely, each with the image's name.

    Args:
        images: all images, once for each name.
        removed: the images, by the name, digest or prefix that the user gave.
    """
    stay = {image.digest for image in images if image.name and image.name not in removed}
    whole = {image.digest for name, image in removed.items() if name != image.name}
    return {image.digest: image.name for image in removed.values() if image.digest in whole or image.digest not in stay}


def _name(image: Image) -> str:
    return image.name or image.digest[:12]


def _done_on(digest: str) -> Forgotten | None:
    """Returns the records on an image, on the chosen server or in the data directory; None if there are none."""
    client = context.connected()
    if client is not None:
        with client, contextlib.suppress(NotFound):
            return client.forget(image=digest, dry_run=True)[0]
        return None
    if not (resolve_home() / GRAPH_FILE).exists():
        return None
    from tvsnap.upkeep.forgetting import done_on

    with context.open_graph() as graph:
        return done_on(graph, digest)


def _size(of: Forgotten) -> int:
    return sum(snapshot.size for snapshot in of.snapshots)


HELP = """Build, list, show, export and remove environment images.

An image is the root filesystem that sandboxes start from, described by an image.yaml, a task's folder or a Dockerfile.
"""
image = typer.Typer(help=HELP, no_args_is_help=True)
for _verb in (image_build.build, ls, show, rm, image_base.base):
    image.command()(_verb)
image.command(short_help="Write a state or an image for Docker and OCI tools.")(image_export.export)
