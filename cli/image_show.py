"""`tvsnap image show`: all that is known about one image."""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.text import Text

from tvsnap.host.home import resolve_home
from tvsnap.images import ImageStore
from tvsnap.model.images import BUILD_LOG

from . import image_options as shown
from . import options
from .text import visible

HELP = """Show what is known about an image.

\b
Examples:
  tvsnap image show terminal
  tvsnap image show 3968f8 --json

\b
Exit status:
  0    done
  1    failed
  2    bad usage
  3    no such image
  5    no rights to the data directory
  130  interrupted
"""


def register(verbs: typer.Typer) -> None:
    """Adds the verb to those of `tvsnap image`."""
    verbs.command("show", help=HELP)(show)


def show(name: shown.ImageName, as_json: options.AsJson = False, home: shown.Home = None) -> None:
    """Prints all that is known about one image."""
    store = ImageStore(resolve_home(home))
    image = store.get(name)
    manifest = store.manifest(image)
    log = image.rootfs.with_name(BUILD_LOG)
    more: dict[str, object] = {
        "notes": manifest.notes,
        "databases": manifest.databases,
        "source": manifest.source,
        "recipe": manifest.recipe,
        "build_seconds": manifest.build_seconds,
    }
    if as_json:
        typer.echo(json.dumps({**shown.as_json(image), **more, "log": str(log)}, indent=2))
        return
    said = image.limits.said()
    limits = {name: shown.size_text(value) if name in ("memory", "disk") else value for name, value in said.items()}
    rows = {
        "name": image.name or "(superseded)",
        "digest": image.digest,
        "environment": image.environment,
        "size": shown.size_text(image.size),
        "created": f"{shown.when(image.created)}, in {manifest.build_seconds:.1f} s",
        "built from": manifest.source,
        "user": image.user,
        "no new privileges": "yes" if image.no_new_privileges else "no",
        "clock": "" if image.clock is None else shown.moment(image.clock),
        "random seed": "" if image.random_seed is None else str(image.random_seed),
        "workdir": image.workdir,
        "hostname": image.hostname,
        "databases": visible(", ".join(manifest.databases)),
        "env": "\n".join(f"{key}={value}" for key, value in sorted(image.env.items())),
        "limits": ", ".join(f"{name} {value}" for name, value in limits.items()),
        "timeouts": ", ".join(f"{name} {value:g} s" for name, value in image.timeouts.said().items()),
        "notes": "\n".join(manifest.notes),
        "files": str(image.rootfs),
        "build log": str(log),
    }
    console = Console(highlight=False)
    width = max(map(len, rows)) + 2
    for label, value in rows.items():
        for number, line in enumerate(value.splitlines()):
            # Not broken at the terminal's width: digests and paths are there to be copied.
            console.print(Text.assemble((("" if number else label).ljust(width), "bold"), line), soft_wrap=True)
