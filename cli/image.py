"""`tvsnap image`: builds, lists, shows and removes environment images."""

from __future__ import annotations

import datetime
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tvsnap.home import resolve_home
from tvsnap.images import BuildProgress, Image, ImageBuildError, ImageStore, find_source
from tvsnap.images.image import BUILD_LOG

MIB = 1024 * 1024

HELP = """Build, list, show and remove environment images.

An image is the root filesystem that sandboxes start from, described by an image.yaml.
"""

BUILD_HELP = """Build an image, unless it is there already and nothing changed.

SOURCE is the name of an image that comes with tvsnap, or a folder with an image.yaml.

\b
An image.yaml, of whose keys only the first is a must:
  debian: {suite: bookworm}     or directory: DIR, tar: FILE, oci: LAYOUT
  packages: [git, python3]
  files: [{source: tools, dest: /opt/tools/}, {content: "hi", dest: /etc/motd}]
  run: [make -C /opt/tools]
  env: {LANG: C.UTF-8}
  workdir: /app
  user: root

\b
Examples:
  tvsnap image build terminal
  tvsnap image build ./my-image --name mine
  tvsnap image build terminal --force        with the newest packages

\b
Exit status:
  0  done
  1  a step failed; nothing of the build is left
  2  bad usage, or a mistake in image.yaml
  3  no such SOURCE
  5  this machine lacks what is needed
"""

LS_HELP = """List the images.

An image without a name was superseded by a newer build; what was recorded with it may still need it.

\b
Examples:
  tvsnap image ls
  tvsnap image ls --json

\b
Exit status:
  0  done
  1  failed
  2  bad usage
  5  no rights to the data directory
"""

SHOW_HELP = """Show what is known about an image.

\b
Examples:
  tvsnap image show terminal
  tvsnap image show 3968f8 --json

\b
Exit status:
  0  done
  1  failed
  2  bad usage
  3  no such image
  5  no rights to the data directory
"""

RM_HELP = """Remove images.

By name: the name, and the image if it has no other name. By digest: the image and all its names.

\b
Examples:
  tvsnap image rm terminal
  tvsnap image rm 3968f8 mine

\b
Exit status:
  0  done
  1  failed
  2  bad usage
  3  no such image
  5  no rights to the data directory
"""

Home = Annotated[Path | None, typer.Option("--home", metavar="DIR", help="Data directory; default $TVSNAP_HOME.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ImageName = Annotated[str, typer.Argument(metavar="IMAGE", help="A name, or a digest or any unique prefix of it.")]
ImageNames = Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Names, or digests or prefixes of them.")]


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    verbs = typer.Typer(help=HELP, no_args_is_help=True)
    verbs.command("build", help=BUILD_HELP)(build)
    verbs.command("ls", help=LS_HELP)(ls)
    verbs.command("show", help=SHOW_HELP)(show)
    verbs.command("rm", help=RM_HELP)(rm)
    app.add_typer(verbs, name="image")


def build(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="An image's name, or a folder with an image.yaml.")],
    name: Annotated[str | None, typer.Option("--name", help="Name for the image, instead of its own.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all output of the steps.")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Builds, showing progress on standard error."""
    folder = find_source(source)
    store = ImageStore(resolve_home(home))
    console = Console(stderr=True, highlight=False)
    started = time.time()
    try:
        with _watcher(console, verbose) as progress:
            image = store.build(folder, name=name, progress=progress, force=force)
    except ImageBuildError as error:
        if error.output and not verbose:
            console.print(Text(error.output, "dim"), soft_wrap=True)
        raise
    # An image that was built anew and came out the same keeps its date, and is not built for the user either.
    built = image.created >= started
    seconds = time.time() - started
    if as_json:
        typer.echo(json.dumps({**_as_json(image), "built": built, "seconds": round(seconds, 3)}))
    else:
        came_to = f"built in {seconds:.1f} s" if built else "unchanged"
        typer.echo(f"{image.name}  {image.digest[:12]}  {_size(image.size)}  {came_to}")


def ls(as_json: AsJson = False, home: Home = None) -> None:
    """Prints a line an image."""
    images = ImageStore(resolve_home(home)).list()
    if as_json:
        typer.echo(json.dumps([_as_json(image) for image in images], indent=2))
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
        table.add_row(name, image.digest[:12], image.environment, _when(image.created), _size(image.size))
    Console(highlight=False).print(table)


def show(name: ImageName, as_json: AsJson = False, home: Home = None) -> None:
    """Prints all that is known about one image."""
    store = ImageStore(resolve_home(home))
    image = store.get(name)
    manifest = store.manifest(image)
    log = image.rootfs.with_name(BUILD_LOG)
    more = {"source": manifest.source, "recipe": manifest.recipe, "build_seconds": manifest.build_seconds}
    if as_json:
        typer.echo(json.dumps({**_as_json(image), **more, "log": str(log)}, indent=2))
        return
    rows = {
        "name": image.name or "(superseded)",
        "digest": image.digest,
        "environment": image.environment,
        "size": _size(image.size),
        "created": f"{_when(image.created)}, in {manifest.build_seconds:.1f} s",
        "built from": manifest.source,
        "user": image.user,
        "workdir": image.workdir,
        "hostname": image.hostname,
        "env": "\n".join(f"{key}={value}" for key, value in sorted(image.env.items())),
        "files": str(image.rootfs),
        "build log": str(log),
    }
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows.items():
        table.add_row(label, Text(value))
    Console(highlight=False).print(table)


def rm(names: ImageNames, as_json: AsJson = False, home: Home = None) -> None:
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


def _as_json(image: Image) -> dict[str, Any]:
    return {**asdict(image), "rootfs": str(image.rootfs)}


def _size(size: int) -> str:
    return f"{size / MIB:.1f} MiB" if size < 10 * MIB else f"{size / MIB:.0f} MiB"


def _when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


class _Watcher(BuildProgress, Protocol):
    """Progress that is shown between its enter and exit."""

    def __enter__(self) -> BuildProgress: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def _watcher(console: Console, verbose: bool) -> _Watcher:
    return _LiveProgress(console, verbose) if console.is_terminal else _PlainProgress(verbose)


class _PlainProgress:
    """A line a step, for logs; with `verbose` the steps' output as well."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose

    def __enter__(self) -> BuildProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Has nothing to put away."""

    def step(self, index: int, total: int, text: str) -> None:
        print(f"step {index} of {total}: {text}", file=sys.stderr, flush=True)

    def output(self, line: str) -> None:
        if self._verbose:
            print(f"  {line}", file=sys.stderr, flush=True)

    def fraction(self, done: float | None) -> None:
        """Not shown."""


class _LiveProgress:
    """The step under way with a spinner, a bar where there is a measure, its time, and the last line it printed."""

    def __init__(self, console: Console, verbose: bool) -> None:
        self._console = console
        self._verbose = verbose
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=console,
        )
        self._step = self._bars.add_task("starting", total=None)
        self._title = ""
        self._started = time.monotonic()
        self._line = ""
        self._live = Live(console=console, transient=True, refresh_per_second=10, get_renderable=self._render)

    def __enter__(self) -> BuildProgress:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_step(done=kind is None)
        self._live.stop()

    def step(self, index: int, total: int, text: str) -> None:
        self._leave_step(done=True)
        self._title = f"{index}/{total} {text}"
        self._started = time.monotonic()
        self._line = ""
        room = max(self._console.width - 36, 20)
        shown = self._title if len(self._title) <= room else f"{self._title[: room - 3]}..."
        self._bars.reset(self._step, total=None, description=shown)

    def output(self, line: str) -> None:
        if line.strip():
            self._line = line.strip()
        if self._verbose:
            self._console.print(Text(f"  {line}", "dim"), soft_wrap=True)

    def fraction(self, done: float | None) -> None:
        if done is None:
            self._bars.update(self._step, total=None)
        else:
            self._bars.update(self._step, total=1.0, completed=done)

    def _render(self) -> RenderableType:
        return Group(self._bars, Text(f"  {self._line}", "dim", no_wrap=True, overflow="ellipsis"))

    def _leave_step(self, done: bool) -> None:
        """Leaves the step's line on the screen."""
        if self._title:
            mark = Text("✓ ", "green") if done else Text("✗ ", "red")
            seconds = f" {time.monotonic() - self._started:.1f} s"
            self._console.print(Text.assemble(mark, self._title, (seconds, "dim")))
        self._title = ""
