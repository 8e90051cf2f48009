"""`tvsnap image ls`: lists the images."""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tvsnap.host.home import resolve_home
from tvsnap.images import ImageStore

from . import image_options as shown
from . import options

HELP = """List the images.

An image without a name was superseded by a newer build; what was recorded with it may still need it.

\b
Examples:
  tvsnap image ls
  tvsnap image ls --json

\b
Exit status:
  0    done
  1    failed
  2    bad usage
  5    no rights to the data directory
  130  interrupted
"""


def register(verbs: typer.Typer) -> None:
    """Adds the verb to those of `tvsnap image`."""
    verbs.command("ls", help=HELP)(ls)


def ls(as_json: options.AsJson = False, home: shown.Home = None) -> None:
    """Prints a line an image."""
    images = ImageStore(resolve_home(home)).list()
    if as_json:
        typer.echo(json.dumps([shown.as_json(image) for image in images], indent=2))
        return
    if not images:
        typer.echo("no images; build one: tvsnap image build terminal")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NAME", "DIGEST", "ENVIRONMENT", "CREATED"):
        table.add_column(heading, no_wrap=True)
    table.add_column("SIZE", justify="right", no_wrap=True)
    for image in images:
        name = Text(image.name) if image.name else Text("(superseded)", "dim")
        table.add_row(
            name, image.digest[:12], image.environment, shown.when(image.created), shown.size_text(image.size)
        )
    Console(highlight=False).print(table)
