"""`tvsnap image export`: the files of a state or an image, for someone with plain Docker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import completion, context, options

if TYPE_CHECKING:
    from tvsnap.cache import Cache
    from tvsnap.images.export import Description, Exported, Format, Tag
    from tvsnap.sandboxes.protocol import Sandbox

HELP = options.help_text(
    """Write the files of a state, or of an image, as an image for Docker, Podman or any tool for OCI images.

\b
With --format docker, FILE is a tar for `docker load`, and an OCI layout as well.
With --format oci, it is a tar of an OCI layout, or a directory if FILE ends in / or is one.

A container that is started from it finds all files as they were at that moment, with owners, rights, links, times,
capabilities and access control lists; the environment variables and the user of the image; and the directory that the
shell stood in. What an image cannot hold is lost: processes, the shell's variables and functions, sockets, what was in
/dev and files named .wh.*, by which images say what they delete. Holes in files are filled with zeros.

A state without a snapshot is rebuilt by replay. With -o -, the image first goes to a temporary file ($TMPDIR).

\b
Examples:
  tvsnap image export 3fa9c1 -o broken.tar --tag shop:broken
  docker load -i broken.tar && docker run -it --rm shop:broken
  tvsnap image export terminal --format oci -o terminal/
  tvsnap image export 3fa9c1 --compress -o - | ssh there docker load
""",
    s0="",
    s1="failed, as on a full disk; nothing of FILE is left",
    s2="bad usage, or FILE is there already",
    s3="no such state or image, or a prefix that fits several",
    s5="",
)
STATE_LABEL = "tvsnap.state"
IMAGE_LABEL = "tvsnap.image"
"""On states that were rebuilt by a replay that printed something else than was recorded: `false`."""

LOOK_TIMEOUT = 20.0  # seconds


def register(verbs: typer.Typer) -> None:
    """Adds the verb to those of `tvsnap image`."""
    verbs.command("export", help=HELP, short_help="Write a state or an image for Docker and OCI tools.")(export)


def _offered(incomplete: str) -> list[str | tuple[str, str]]:
    return [*completion.images(incomplete), *completion.states(incomplete)]


def export(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STATE|IMAGE",
            help="A state's hash or a prefix of it, PREFIX~2 for two steps up; or an image's name or digest.",
            autocompletion=_offered,
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to; - for standard output. Default: tvsnap-HASH.tar here."
        ),
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", metavar="docker|oci", help="Default: docker; oci for a directory.")
    ] = None,
    tag_name: Annotated[
        str | None, typer.Option("--tag", metavar="NAME:TAG", help="What it will be called. Default: tvsnap:HASH.")
    ] = None,
    compress: Annotated[bool, typer.Option("--compress", help="Compress it with gzip.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    as_json: options.AsJson = False,
    home: options.Home = None,
    backend: options.Backend = options.DEFAULT_BACKEND,
) -> None:
    """Writes the image and prints what it came to."""
    from tvsnap.images import layout
    from tvsnap.images.export import Tag, write_image
    from tvsnap.model.errors import UsageError

    format = _format(format_name, output)
    tag = None if tag_name is None else Tag.parse(tag_name)
    if output == layout.STANDARD_OUTPUT and as_json:
        raise UsageError("-o - and --json both want standard output: name a file")
    if output is not None:
        layout.check_output(output, force)
    with context.open_cache(home, backend) as cache:
        source = _find(cache, name)
        target = output or f"tvsnap-{source.hash[:12]}.tar"
        tag = tag or Tag("tvsnap", source.hash[:12])
        with layout.opened(target, force) as place, source.sandbox(cache) as sandbox:
            about = _describe(sandbox, source)
            with _progress(sandbox.image.size) as progress, sandbox.archive() as files:
                exported = write_image(
                    place, files, about, format=format, tag=tag, compress=compress, progress=progress
                )
    _report(source, target, format, tag, exported, as_json)


def _format(name: str | None, output: str | None) -> Format:
    """Returns the format that is meant.

    Raises:
        UsageError: there is no such format, or it does not go with the output.
    """
    from tvsnap.images.layout import is_directory
    from tvsnap.model.errors import UsageError

    directory = output is not None and is_directory(output)
    if name == "oci" or (name is None and directory):
        return "oci"
    if name not in (None, "docker"):
        raise UsageError(f'there is no format "{name}": docker or oci')
    if directory:
        raise UsageError("docker load takes no directory: name a file, or choose --format oci")
    return "docker"


@dataclass
class _Source:
    """What is exported: a state, or an image as it is when it is freshly started.

    Attributes:
        hash: of the state, or the image's digest.
        created: seconds since the epoch.
        is_state: it is a state.
    """

    hash: str
    created: float
    is_state: bool

    @contextlib.contextmanager
    def sandbox(self, cache: Cache) -> Iterator[Sandbox]:
        """A block with a throw-away sandbox as it is."""
        if self.is_state:
            with cache.materialise(self.hash) as sandbox:
                yield sandbox
        else:
            image = cache.images.get(self.hash)
            with contextlib.closing(cache.backend.start(image, cache.limits_for(image))) as sandbox:
                yield sandbox


def _find(cache: Cache, name: str) -> _Source:
    """Returns what a person means; an image's name comes before all hashes.

    Raises:
        NotFound: nothing, or both a state and an image.
    """
    from tvsnap.model.errors import NotFound, UsageError

    image = None
    with contextlib.suppress(NotFound):
        image = cache.images.get(name)
    if image is not None and image.name == name:
        return _Source(image.digest, image.created, is_state=False)
    try:
        state = cache.graph.resolve(name)
    except (NotFound, UsageError) as error:
        if image is not None:
            return _Source(image.digest, image.created, is_state=False)
        raise NotFound(f'no image is called "{name}" (tvsnap image ls); as a state: {error}') from None
    if image is not None:
        raise NotFound(f"{name} fits state {state.hash[:16]} and image {image.digest[:16]}: give more digits")
    return _Source(state.hash, state.created, is_state=True)


def _describe(sandbox: Sandbox, source: _Source) -> Description:
    from tvsnap.images.export import Description

    image = sandbox.image
    labels = {IMAGE_LABEL: image.digest}
    if source.is_state:
        labels[STATE_LABEL] = source.hash
    return Description(
        env=image.env,
        workdir=_working_directory(sandbox) or image.workdir,
        user=image.user,
        labels=labels,
        created=source.created,
        origin=f"tvsnap image export {source.hash}",
    )


def _working_directory(sandbox: Sandbox) -> str | None:
    """Returns where the shell stands; None if that cannot be told, is gone, or is no text."""
    where = sandbox.shell_state().get("cwd", "")
    if not where.startswith("/"):
        return None
    seen = sandbox.exec("pwd", timeout=LOOK_TIMEOUT, cwd=where)
    try:
        return where if seen.exit_code == 0 and seen.output.decode().rstrip("\n").startswith("/") else None
    except UnicodeDecodeError:
        return None


@contextlib.contextmanager
def _progress(expected: int) -> Iterator[Callable[[int], None]]:
    """A block with a bar on standard error, if that is a terminal; `expected` bytes are but a guess."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = context.messages()
    if not console.is_terminal:
        yield lambda count: None
        return
    columns = (TextColumn("writing"), BarColumn(bar_width=None), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task("", total=max(expected, 1))
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.update(task, completed=done, total=max(expected, done))

        yield advance


def _report(source: _Source, target: str, format: Format, tag: Tag, exported: Exported, as_json: bool) -> None:
    from tvsnap.images.layout import STANDARD_OUTPUT

    from .text import size

    if as_json:
        context.print_json(_data(source, target, format, tag, exported))
        return
    if target == STANDARD_OUTPUT:
        return
    typer.echo(f"{target}  {size(_bytes(target))}  {tag}  {exported.image_id.removeprefix('sha256:')[:12]}")
    if format == "docker":
        typer.echo(f"load it: docker load -i {target} && docker run -it --rm {tag}")


def _data(source: _Source, target: str, format: Format, tag: Tag, exported: Exported) -> dict[str, Any]:
    return {
        "path": str(Path(target).absolute()),
        "format": format,
        "bytes": _bytes(target),
        "tag": str(tag),
        "state": source.hash if source.is_state else None,
        **asdict(exported),
    }


def _bytes(target: str) -> int:
    path = Path(target)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
