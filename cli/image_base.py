"""`tvsnap image base`: builds a Debian system under a public image's name, for use without a registry."""

from __future__ import annotations

import time

import typer
from typer import Argument, Option

from tvsnap.images.build.base_image import suite_of
from tvsnap.images.build.references import full_reference
from tvsnap.model.errors import UsageError

from . import context, options
from .build_progress import watched

PLACES = ("auto", "engine", "buildah")


@options.verb(
    "0",
    begins=True,
    s1="a step failed; nothing of it is left",
    s2="bad usage, or there is an image of that name",
    s5="this machine lacks what is needed",
)
def base(
    name: str = Argument(..., metavar="NAME", help="The image's name and tag, as a Dockerfile's FROM says."),
    suite: str | None = Option(None, help="Of Debian or Ubuntu; default: the one in NAME's tag, or bookworm."),
    packages: list[str] | None = Option(None, "--package", metavar="P", help="A package to install; may be repeated."),
    into: str = Option("auto", metavar="|".join(PLACES), help="Where to."),
    force: bool = Option(False, "--force", help="Replace an image that has the name."),
    verbose: bool = Option(False, "--verbose", "-v", help="Print all output of the steps."),
    as_json: options.AsJson = False,
) -> None:
    """Make a base image for Dockerfiles, without a registry.

    Bootstraps a minimal Debian or Ubuntu system from this machine's package archive, and puts it into the Docker Engine
    (or buildah's storage) under NAME, so that a Dockerfile with FROM NAME finds it. It is not the public image of that
    name: it has the same distribution, and the packages of --package. It stays there until you remove it (docker rmi
    NAME).

    \b
    Examples:
      tvsnap image base debian:bookworm-slim
      tvsnap image base python:3.11-slim --package python3 --package python3-pip --package python-is-python3
      tvsnap image base ghcr.io/laude-institute/t-bench/ubuntu-24-04:latest --suite noble --package tmux --package curl
      tvsnap image base debian:trixie --into buildah --force
    """
    if into not in PLACES:
        raise UsageError(f'--into: must be {", ".join(PLACES)}, not "{into}"')
    reference = full_reference(name)
    chosen = suite or suite_of(reference)
    started = time.monotonic()
    with watched(verbose) as progress:
        place = context.open_images().make_base(
            reference, chosen, packages or (), into=into, force=force, progress=progress
        )
    seconds = round(time.monotonic() - started, 3)
    data = {"image": reference, "suite": chosen, "place": place, "seconds": seconds}
    line = f"{reference}  {chosen}  in {place}, made in {seconds:.1f} s"
    context.answer(data, as_json=as_json, show=lambda: typer.echo(line))
