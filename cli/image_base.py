"""`tvsnap image base`: a Debian system under a public image's name, where no registry is in reach."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tvsnap.host.home import resolve_home
from tvsnap.images import ImageBuildError, ImageStore
from tvsnap.images.build.base_image import full_reference, suite_of
from tvsnap.model.errors import UsageError

from . import image_options as shown
from . import options
from .build_progress import watcher

PLACES = ("auto", "engine", "buildah")

HELP = """Make a base image for Dockerfiles, without a registry.

Bootstraps a minimal Debian or Ubuntu system from this machine's package archive, and puts it into the Docker Engine (or
buildah's storage) under NAME, so that a Dockerfile that says FROM NAME finds it. It is not the public image of that
name: it has the same distribution, and what --package adds. It stays there until you remove it (docker rmi NAME).

\b
Examples:
  tvsnap image base debian:bookworm-slim
  tvsnap image base python:3.11-slim --package python3 --package python3-pip --package python-is-python3
  tvsnap image base ghcr.io/laude-institute/t-bench/ubuntu-24-04:latest --suite noble --package tmux --package curl
  tvsnap image base debian:trixie --into buildah --force

\b
Exit status:
  0    done
  1    a step failed; nothing of it is left
  2    bad usage, or there is an image of that name
  5    this machine lacks what is needed
  130  interrupted
"""


def register(verbs: typer.Typer) -> None:
    """Adds the verb to those of `tvsnap image`."""
    verbs.command("base", help=HELP)(base)


def base(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The image's name and tag, as a Dockerfile's FROM says.")],
    suite: Annotated[
        str | None, typer.Option("--suite", help="Of Debian or Ubuntu; default: the one in NAME's tag, or bookworm.")
    ] = None,
    packages: Annotated[
        list[str] | None, typer.Option("--package", metavar="P", help="A package to install; may be repeated.")
    ] = None,
    into: Annotated[str, typer.Option("--into", metavar="|".join(PLACES), help="Where to.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace an image that has the name.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all output of the steps.")] = False,
    as_json: options.AsJson = False,
    home: shown.Home = None,
) -> None:
    """Makes it, showing progress on standard error."""
    if into not in PLACES:
        raise UsageError(f'--into: must be {", ".join(PLACES)}, not "{into}"')
    reference = full_reference(name)
    chosen = suite or suite_of(reference)
    started = time.monotonic()
    store = ImageStore(resolve_home(home))
    console = Console(stderr=True, highlight=False)
    try:
        with watcher(console, verbose) as progress:
            place = store.make_base(reference, chosen, packages or (), into=into, force=force, progress=progress)
    except ImageBuildError as error:
        if error.output and not verbose:
            console.print(Text(error.output, "dim"), soft_wrap=True)
        raise
    seconds = round(time.monotonic() - started, 3)
    if as_json:
        typer.echo(json.dumps({"image": reference, "suite": chosen, "place": place, "seconds": seconds}))
    else:
        typer.echo(f"{reference}  {chosen}  in {place}, made in {seconds:.1f} s")
