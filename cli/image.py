"""`tvsnap image`: what is done with environment images, one module a verb."""

from __future__ import annotations

import typer

from . import image_base, image_build, image_export, image_ls, image_rm, image_show

HELP = """Build, list, show, export and remove environment images.

An image is the root filesystem that sandboxes start from, described by an image.yaml, a task's folder or a Dockerfile.
"""


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    verbs = typer.Typer(help=HELP, no_args_is_help=True)
    for verb in (image_build, image_ls, image_show, image_rm, image_base, image_export):
        verb.register(verbs)
    app.add_typer(verbs, name="image")
