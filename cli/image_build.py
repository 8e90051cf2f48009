"""`tvsnap image build`: builds an image and shows the progress."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Argument, Option

from tvsnap.environments import environment_of
from tvsnap.images import Image, ImageNotFound, ImageStore, find_source, shipped_images
from tvsnap.model.errors import MachineLacks, NotCheckpointable, UsageError
from tvsnap.model.limits import MIB
from tvsnap.sandboxes.network.attach import network_complaint

from . import context, options
from .build_progress import watched
from .image_databases import with_databases
from .text import visible

DATABASE_HELP = "A .sql, .dump, .csv or .sqlite file (or .gz of it) to load; may be repeated. Needs --name."
FROM_DOCKERFILE_HELP = "Build from the Dockerfile of a task, although the task names an image."
ALLOW_HELP = "Holds what image.yaml may start from (directory, tar, oci) beside its own folder; may be repeated."


@options.verb(
    "0",
    begins=True,
    url=True,
    s1="a step failed; nothing of the build is left",
    s2="bad usage, or a mistake in a file of SOURCE",
    s3="no such SOURCE",
    s5="this machine lacks what is needed",
)
def build(
    source: Annotated[str, Argument(metavar="SOURCE", help="An image's name, or a folder.")],
    name: Annotated[str | None, Option(help="Name for the image, instead of its own.")] = None,
    force: Annotated[bool, Option("--force", help="Build even if nothing changed.")] = False,
    keep_layers: Annotated[
        bool, Option("--keep-layers", help="Leave a Dockerfile's layers in the engine: its next build is quicker.")
    ] = False,
    databases: Annotated[list[str] | None, Option("--database", metavar="[NAME=]FILE", help=DATABASE_HELP)] = None,
    dialect: Annotated[
        str | None,
        Option(
            metavar="mysql|mariadb|postgres|sqlite", help="Of --database's .sql files; default: told by their looks."
        ),
    ] = None,
    allow: Annotated[list[Path] | None, Option(metavar="DIR", help=ALLOW_HELP)] = None,
    from_dockerfile: Annotated[bool, Option("--from-dockerfile", help=FROM_DOCKERFILE_HELP)] = False,
    warm: Annotated[bool, Option("--warm/--no-warm", help="Start the image's server once and snapshot it.")] = True,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Print all output of the steps.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Build an image, unless it is there already and nothing changed.

    SOURCE is the name of an image that comes with tvsnap, or a folder: with an image.yaml, a task of terminal-bench
    (task.yaml) or of Harbor (task.toml), or with a Dockerfile. The image's name is that in image.yaml or of --name; by
    default it is the folder's.

    \b
    An image.yaml; only its first key is required:
      debian: {suite: bookworm}     or one of:
                                      dockerfile: Dockerfile
                                      dockerfile: {context: ., path: Dockerfile, args: {A: "1"}, target: run}
                                      docker_image: python:3.12-slim
                                      directory: DIR, tar: FILE, oci: LAYOUT (or a tar of docker save); see --allow
                                      image: mariadb      another image; it has the values of missing keys
      packages: [git, python3]
      files: [{source: tools, dest: /opt/tools/}, {content: "hi", dest: /etc/motd}]
      run: [make -C /opt/tools]
      env: {LANG: C.UTF-8}
      workdir: /app
      user: root
      no_new_privileges: true       no set-user-id program (sudo, su) gives rights; by default so if the user is root
      clock: 2024-01-01T00:00:00Z   a sandbox's clock starts here and runs on (docs/chance.md: the exceptions)
      random_seed: 7                random data of the system is the same in each execution; no secret
      reseed: /opt/reseed.sh        gives programs other random numbers, by $TVSNAP_SEED, in forks that are to differ
      limits: {memory: 4G, cpus: 2, processes: 99, disk: 20G}  of its sandboxes, if the caller gives none
      network: {allow: [example.org, .example.net]}       hosts outside; or public; by default none
      timeouts: {agent: 900, verifier: 300}               seconds; for the program that runs the task
      environment: mariadb                                or sqlite, postgres: for `databases`; else terminal
      databases:                                          loaded last; a list if names do not matter
        shop: shop.sql                                    in the database system's own dialect
        stock: [schema.sql, items.csv.gz]                 in this order; the CSV becomes the table items
        legacy: old.sqlite                                its tables, for any database system
        world: {from: world.sql, dialect: mysql}          MySQL's dialect is usually recognised by itself
      database: shop                                      in use from the start; by default the first

    Dockerfiles and Docker images come through a Docker Engine (DOCKER_HOST), or buildah if there is none.
    Environment, WORKDIR and USER are taken over. Settings that a sandbox ignores (ENTRYPOINT, ports, ...) are named in
    a line each.

    --database makes an image NAME out of another with databases in it, without an image.yaml. A file without a name
    fills the databases that it names itself, or else one of the file's name. After the build, the server of such an
    image is started once and snapshotted, so that no rollout waits for its start.

    \b
    Examples:
      tvsnap image build terminal
      tvsnap image build ./my-image --name mine
      tvsnap image build tasks/fix-git                    a task's folder
      tvsnap image build tasks/fix-git --from-dockerfile  without the image that the task names
      tvsnap image build terminal --force                 with the newest packages
      tvsnap image build mariadb --name spider --database spider_mysql.sql
      tvsnap image build sqlite --name shop --database shop=schema.sql --database shop=items.csv
      tvsnap image build tasks/fix-git --url http://sandboxes:8420      on a server, to which the folder is sent
    """
    if dialect is not None and not databases:
        raise UsageError("--dialect is for the files of --database; image.yaml says it of each of its files")
    allow = allow or []
    how: dict[str, Any] = {
        "name": name,
        "force": force,
        "keep_layers": keep_layers,
        "from_dockerfile": from_dockerfile,
    }
    started = time.time()
    with context.any_images() as store:
        if not isinstance(store, ImageStore):
            if databases or allow:
                raise UsageError("--database and --allow go with no --url: put the files beside an image.yaml")
            before = max((image.created for image in store.list()), default=0.0)  # by the server's clock
            with watched(verbose) as progress:
                image = store.build(_elsewhere(source), progress=progress, **how)
            built = image.created > before
        else:
            origin = (
                with_databases(store, source, name, databases, dialect, allow) if databases else find_source(source)
            )
            with watched(verbose) as progress:
                image = store.build(origin, progress=progress, allow=allow, **how)
            # An image that was rebuilt with the same content keeps its date; for the user, it was not built.
            built = image.created >= started
            _tell_of_network(image)
    seconds = time.time() - started
    warmed = _warm(image) if warm else None
    came_to = f"built in {seconds:.1f} s" if built else "unchanged"
    line = f"{image.name}  {image.digest[:12]}  {size_text(image.size)}  {came_to}"
    data = {**image_data(image), "built": built, "seconds": round(seconds, 3), "warmed": warmed}
    context.answer(data, as_json=as_json, show=lambda: typer.echo(line))


def _elsewhere(source: str) -> Path | str:
    """Returns the source for a server: a folder of this machine, or a name, which the server looks up."""
    path = Path(source).expanduser()
    if source in shipped_images() or not path.exists():
        if "/" in source:
            raise ImageNotFound(f"there is no folder {source}")
        return source
    return find_source(source)


def _tell_of_network(image: Image) -> None:
    """Says which network the sandboxes of an image have if it asks for one, or why this machine cannot give it."""
    if not image.network.attached:
        return
    words = f"it asks for the network: its sandboxes have {image.network}"
    label = ("note: ", "yellow")
    if complaint := network_complaint():
        label = ("warning: ", "bold red")
        words = f"it asks for the network ({image.network}), which no sandbox can have here: {complaint}"
    context.console(stderr=True, soft_wrap=True).print(Text.assemble(label, visible(words)))


def _warm(image: Image) -> float | None:
    """Starts an image's server, if it has one, and snapshots it; returns how many seconds that took.

    If a running server cannot be snapshotted, prints a note.
    """
    console = context.console(stderr=True, soft_wrap=True)
    started, otherwise = time.monotonic(), ""
    try:
        if not environment_of(image).serves:
            return None
        otherwise = "; each rollout starts the server itself"
        with context.any_cache(policy=options.POLICY) as cache:
            cache.warm(image)
    except (UsageError, MachineLacks, NotCheckpointable) as error:
        if isinstance(error, UsageError) and otherwise:
            raise  # otherwise the environment belongs to a package that is not installed
        console.print(Text.assemble(("note: ", "yellow"), f"not warmed up: {visible(str(error))}{otherwise}"))
        return None
    seconds = round(time.monotonic() - started, 3)
    console.print(f"warming up: server started and snapshotted in {seconds:.1f} s")
    return seconds


def image_data(image: Image) -> dict[str, Any]:
    """Returns an image as plain JSON, the same for all verbs."""
    fields = {"limits": image.limits.said(), "timeouts": image.timeouts.said()}
    places = {"rootfs": str(image.rootfs), "below": [str(tree) for tree in image.below]}
    return {**asdict(image), **places, **fields}


def size_text(size: int) -> str:
    """Returns a readable number of bytes: `3.4 MiB`, `120 MiB`."""
    return f"{size / MIB:.1f} MiB" if size < 10 * MIB else f"{size / MIB:.0f} MiB"
