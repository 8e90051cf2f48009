"""`tvsnap image rm`: removes images."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tvsnap.host.home import resolve_home
from tvsnap.images import ImageStore

from . import image_options as shown
from . import options

HELP = """Remove images.

By name: the name, and the image if it has no other name. By digest: the image and all its names.

\b
Examples:
  tvsnap image rm terminal
  tvsnap image rm 3968f8 mine

\b
Exit status:
  0    done
  1    failed
  2    bad usage
  3    no such image
  5    no rights to the data directory
  130  interrupted
"""

ImageNames = Annotated[list[str], typer.Argument(metavar="IMAGE", help="Names, or digests or prefixes of them.")]


def register(verbs: typer.Typer) -> None:
    """Adds the verb to those of `tvsnap image`."""
    verbs.command("rm", help=HELP)(rm)


def rm(names: ImageNames, as_json: options.AsJson = False, home: shown.Home = None) -> None:
    """Removes the images, after looking that all of them are there."""
    store = ImageStore(resolve_home(home))
    for name in names:
        store.get(name)
    removed = [store.remove(name) for name in names]
    if as_json:
        typer.echo(json.dumps({"removed": [{"name": image.name, "digest": image.digest} for image in removed]}))
        return
    for image in removed:
        typer.echo(f"removed {image.name or image.digest[:12]}")
