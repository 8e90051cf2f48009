"""`tvsnap image build`: builds an image, showing how it goes."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tvsnap.home import resolve_home
from tvsnap.images import ImageBuildError, ImageStore, find_source

from . import image_options as shown
from . import options
from .build_progress import watcher

HELP = """Build an image, unless it is there already and nothing changed.

SOURCE is the name of an image that comes with tvsnap, or a folder: with an image.yaml, a task of terminal-bench
(task.yaml) or of Harbor (task.toml), or with a Dockerfile. The image is called as the folder is, unless image.yaml or
--name says otherwise.

\b
An image.yaml, of whose keys only the first is a must:
  debian: {suite: bookworm}     or one of:
                                  dockerfile: Dockerfile
                                  dockerfile: {context: ., path: Dockerfile, args: {A: "1"}, target: run}
                                  docker_image: python:3.12-slim
                                  directory: DIR, tar: FILE, oci: LAYOUT (or a tar of docker save)
  packages: [git, python3]
  files: [{source: tools, dest: /opt/tools/}, {content: "hi", dest: /etc/motd}]
  run: [make -C /opt/tools]
  env: {LANG: C.UTF-8}
  workdir: /app
  user: root
  limits: {memory: 4G, cpus: 2, processes: 1024}      of its sandboxes, where the caller gives none
  timeouts: {agent: 900, verifier: 300}               seconds; for who runs the task

Dockerfiles and Docker images come through a Docker Engine (DOCKER_HOST), or buildah where there is none. Environment,
WORKDIR and USER are taken over. What a sandbox does not do (ENTRYPOINT, ports, ...) is named in a line each.

\b
Examples:
  tvsnap image build terminal
  tvsnap image build ./my-image --name mine
  tvsnap image build tasks/fix-git                    a task's folder
  tvsnap image build terminal --force                 with the newest packages

\b
Exit status:
  0  done
  1  a step failed; nothing of the build is left
  2  bad usage, or a mistake in a file of SOURCE
  3  no such SOURCE
  5  this machine lacks what is needed
"""


def register(verbs: typer.Typer) -> None:
    """Adds the verb to those of `tvsnap image`."""
    verbs.command("build", help=HELP)(build)


def build(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="An image's name, or a folder.")],
    name: Annotated[str | None, typer.Option("--name", help="Name for the image, instead of its own.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    keep_layers: Annotated[
        bool,
        typer.Option("--keep-layers", help="Leave a Dockerfile's layers in the engine: its next build is quicker."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all output of the steps.")] = False,
    as_json: options.AsJson = False,
    home: shown.Home = None,
) -> None:
    """Builds, showing progress on standard error."""
    folder = find_source(source)
    store = ImageStore(resolve_home(home))
    console = Console(stderr=True, highlight=False)
    started = time.time()
    try:
        with watcher(console, verbose) as progress:
            image = store.build(folder, name=name, progress=progress, force=force, keep_layers=keep_layers)
    except ImageBuildError as error:
        if error.output and not verbose:
            console.print(Text(error.output, "dim"), soft_wrap=True)
        raise
    # An image that was built anew and came out the same keeps its date, and is not built for the user either.
    built = image.created >= started
    seconds = time.time() - started
    if as_json:
        typer.echo(json.dumps({**shown.as_json(image), "built": built, "seconds": round(seconds, 3)}))
    else:
        came_to = f"built in {seconds:.1f} s" if built else "unchanged"
        typer.echo(f"{image.name}  {image.digest[:12]}  {shown.size_text(image.size)}  {came_to}")
