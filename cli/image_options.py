"""What the verbs of `tvsnap image` have in common: options, and how an image looks on the screen."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options

if TYPE_CHECKING:
    from tvsnap.images import Image

MIB = 1024 * 1024

Home = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="The data directory.", envvar=options.HOME_VARIABLE, show_envvar=True),
]
ImageName = Annotated[str, typer.Argument(metavar="IMAGE", help="A name, or a digest or any unique prefix of it.")]


def as_json(image: Image) -> dict[str, Any]:
    """An image as the JSON of all these verbs."""
    said = {"limits": image.limits.said(), "timeouts": image.timeouts.said()}
    return {**asdict(image), "rootfs": str(image.rootfs), **said}


def size_text(size: int) -> str:
    """Bytes for people."""
    return f"{size / MIB:.1f} MiB" if size < 10 * MIB else f"{size / MIB:.0f} MiB"


def moment(seconds: int) -> str:
    """A moment as image.yaml has it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def when(seconds: float) -> str:
    """A moment for people."""
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
