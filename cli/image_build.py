"""`tvsnap image build`: builds an image, showing how it goes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tvsnap.environments import environment
from tvsnap.host.home import resolve_home
from tvsnap.images import Image, ImageBuildError, ImageStore, find_source
from tvsnap.images.build.databases import DIALECTS
from tvsnap.model.errors import MachineLacks, NotCheckpointable, UsageError

from . import context, options
from . import image_options as shown
from .build_progress import watcher
from .image_databases import with_databases
from .text import visible

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
                                  directory: DIR, tar: FILE, oci: LAYOUT (or a tar of docker save); see --allow
                                  image: mariadb      another image, and what is not said here
  packages: [git, python3]
  files: [{source: tools, dest: /opt/tools/}, {content: "hi", dest: /etc/motd}]
  run: [make -C /opt/tools]
  env: {LANG: C.UTF-8}
  workdir: /app
  user: root
  no_new_privileges: true       no set-user-id program (sudo, su) gives rights; by default so where the user is root
  clock: 2024-01-01T00:00:00Z   where a sandbox's clock begins; it runs on from there (docs/chance.md: what it reaches)
  random_seed: 7                what programs draw from the system is the same in each execution; no secret
  limits: {memory: 4G, cpus: 2, processes: 99, disk: 20G}  of its sandboxes, where the caller gives none
  timeouts: {agent: 900, verifier: 300}               seconds; for who runs the task
  environment: mariadb                                or sqlite, postgres: what `databases` go with; else terminal
  databases:                                          loaded when all else is done; a list where names do not matter
    shop: shop.sql                                    in the database system's own dialect
    stock: [schema.sql, items.csv.gz]                 in this order; the CSV becomes the table items
    legacy: old.sqlite                                its tables, for any database system
    world: {from: world.sql, dialect: mysql}          what looks like MySQL's is known without being told
  database: shop                                      in use from the start; by default the first

Dockerfiles and Docker images come through a Docker Engine (DOCKER_HOST), or buildah where there is none. Environment,
WORKDIR and USER are taken over. What a sandbox does not do (ENTRYPOINT, ports, ...) is named in a line each.

--database makes an image NAME out of another with databases in it, without an image.yaml. A file without a name fills
the databases that it names itself, or else one of the file's name. After the build, the server of such an image is
started once and snapshotted, so that no rollout waits for its start.

\b
Examples:
  tvsnap image build terminal
  tvsnap image build ./my-image --name mine
  tvsnap image build tasks/fix-git                    a task's folder
  tvsnap image build terminal --force                 with the newest packages
  tvsnap image build mariadb --name spider --database spider_mysql.sql
  tvsnap image build sqlite --name shop --database shop=schema.sql --database shop=items.csv

\b
Exit status:
  0    done
  1    a step failed; nothing of the build is left
  2    bad usage, or a mistake in a file of SOURCE
  3    no such SOURCE
  5    this machine lacks what is needed
  130  interrupted
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
    databases: Annotated[
        list[str] | None,
        typer.Option(
            "--database",
            metavar="[NAME=]FILE",
            help="A .sql, .csv or .sqlite file (or .gz of it) to load; may be repeated. Needs --name.",
        ),
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option(
            "--dialect", metavar="|".join(DIALECTS), help="Of --database's .sql files; default: told by their looks."
        ),
    ] = None,
    allow: Annotated[
        list[Path] | None,
        typer.Option(
            "--allow",
            metavar="DIR",
            help="Holds what image.yaml may start from (directory, tar, oci) beside its own folder; may be repeated.",
        ),
    ] = None,
    warm: Annotated[
        bool, typer.Option("--warm/--no-warm", help="Start the image's server once and snapshot it.")
    ] = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all output of the steps.")] = False,
    as_json: options.AsJson = False,
    home: shown.Home = None,
) -> None:
    """Builds, showing progress on standard error."""
    store = ImageStore(resolve_home(home))
    if dialect is not None and not databases:
        raise UsageError("--dialect is for the files of --database; image.yaml says it of each of its files")
    allow = allow or []
    found = with_databases(store, source, name, databases, dialect, allow) if databases else find_source(source)
    console = Console(stderr=True, highlight=False)
    started = time.time()
    try:
        with watcher(console, verbose) as progress:
            image = store.build(found, name=name, progress=progress, force=force, keep_layers=keep_layers, allow=allow)
    except ImageBuildError as error:
        if error.output and not verbose:
            console.print(Text(error.output, "dim"), soft_wrap=True)
        raise
    # An image that was built anew and came out the same keeps its date, and is not built for the user either.
    built = image.created >= started
    seconds = time.time() - started
    warmed = _warm(image, home, console) if warm else None
    if as_json:
        typer.echo(json.dumps({**shown.as_json(image), "built": built, "seconds": round(seconds, 3), "warmed": warmed}))
    else:
        came_to = f"built in {seconds:.1f} s" if built else "unchanged"
        typer.echo(f"{image.name}  {image.digest[:12]}  {shown.size_text(image.size)}  {came_to}")


def _warm(image: Image, home: Path | None, console: Console) -> float | None:
    """Starts an image's server and snapshots it; returns how long that took, in seconds.

    Nothing happens for an image without a server. Where a running server cannot be snapshotted, a line says so.
    """
    try:
        if not environment(image.environment).serves:
            return None
    except UsageError as error:  # it is another package's, which is not installed here
        console.print(Text.assemble(("note: ", "yellow"), f"not warmed up: {visible(str(error))}"), soft_wrap=True)
        return None
    backend = os.environ.get(options.BACKEND_VARIABLE) or options.DEFAULT_BACKEND
    started = time.monotonic()
    try:
        with context.open_cache(None if home is None else str(home), backend) as cache:
            cache.warm(image)
    except (MachineLacks, NotCheckpointable) as error:
        reason = f"not warmed up: {visible(str(error))}; each rollout starts the server itself"
        console.print(Text.assemble(("note: ", "yellow"), reason), soft_wrap=True)
        return None
    seconds = round(time.monotonic() - started, 3)
    console.print(f"warming up: server started and snapshotted in {seconds:.1f} s", soft_wrap=True)
    return seconds
