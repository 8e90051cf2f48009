"""`tvsnap image export`: writes the files of a state or an image, for use with plain Docker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from tvsnap.images import Image, layout
from tvsnap.images.export import Description, Exported, Format, Tag, write_image
from tvsnap.model.errors import NotFound, UsageError

from . import completion, context, options
from .text import size

if TYPE_CHECKING:
    from tvsnap.graph import State
    from tvsnap.protocols import AnyCache, AnySandbox

STATE_LABEL = "tvsnap.state"
IMAGE_LABEL = "tvsnap.image"
"""Set to `false` on states that were rebuilt by a replay with another output than the recorded one."""

LOOK_TIMEOUT = 20.0  # seconds


def _offered(incomplete: str) -> list[str | tuple[str, str]]:
    return [*completion.images(incomplete), *completion.states(incomplete)]


@options.verb(
    "05",
    backend=True,
    url=True,
    s1="failed, as on a full disk; nothing of FILE is left",
    s2="bad usage, or FILE is there already",
    s3="no such state or image, or a prefix that fits several",
)
def export(
    name: str = Argument(
        ...,
        metavar="STATE|IMAGE",
        help="A state's hash or a prefix of it, PREFIX~2 for two steps up; or an image's name or digest.",
        autocompletion=_offered,
    ),
    output: str | None = Option(
        None, "--output", "-o", metavar="FILE", help="Where to; - for standard output. Default: tvsnap-HASH.tar here."
    ),
    format_name: str | None = Option(
        None, "--format", metavar="docker|oci", help="Default: docker; oci for a directory."
    ),
    tag: str | None = Option(None, metavar="NAME:TAG", help="What it will be called. Default: tvsnap:HASH."),
    compress: bool = Option(False, "--compress", help="Compress it with gzip."),
    force: bool = Option(False, "--force", help="Replace FILE if it is there."),
    as_json: options.AsJson = False,
) -> None:
    """Write the files of a state, or of an image, as an image for Docker, Podman or any tool for OCI images.

    \b
    With --format docker, FILE is a tar for `docker load`, and an OCI layout as well.
    With --format oci, it is a tar of an OCI layout, or a directory if FILE ends in / or is one.

    A container that is started from it finds all files as they were at that moment, with owners, rights, links, times,
    capabilities and access control lists; the environment variables and the user of the image; and the shell's working
    directory. An image cannot hold processes, the shell's variables and functions, sockets, the contents of /dev and
    files named .wh.*, which mark deletions in images: these are lost. Holes in files are filled with zeros.

    A state without a snapshot is rebuilt by replay. With -o -, the image first goes to a temporary file ($TMPDIR).

    \b
    Examples:
      tvsnap image export 3fa9c1 -o broken.tar --tag shop:broken
      docker load -i broken.tar && docker run -it --rm shop:broken
      tvsnap image export terminal --format oci -o terminal/
      tvsnap image export 3fa9c1 --compress -o - | ssh there docker load
    """
    format = _format(format_name, output)
    chosen = None if tag is None else Tag.parse(tag)
    if output == layout.STANDARD_OUTPUT and as_json:
        raise UsageError("-o - and --json both want standard output: name a file")
    if output is not None:
        layout.check_output(output, force)
    with context.any_cache() as cache:
        source = _find(cache, name)
        short = _hash(source)[:12]
        target, called = output or f"tvsnap-{short}.tar", chosen or Tag("tvsnap", short)
        exported = _write(cache, source, target, called, format=format, compress=compress, force=force, progress=_bar)
    if as_json or target != layout.STANDARD_OUTPUT:
        data = {
            "path": str(Path(target).absolute()),
            "format": format,
            "bytes": _bytes(target),
            "tag": str(called),
            "state": None if isinstance(source, Image) else source.hash,
            **asdict(exported),
        }
        context.answer(data, as_json=as_json, show=lambda: _print(target, data, format))


def export_state(cache: AnyCache, state: State, target: str) -> int:
    """Writes the files of a state as an archive that `docker load` takes; returns its bytes.

    Args:
        cache: has the state.
        state: the state.
        target: the file, which must not be there yet.

    Raises:
        UsageError: the file is there already, or cannot be written.
    """
    _write(cache, state, target, Tag("tvsnap", state.hash[:12]))
    return _bytes(target)


def _write(
    cache: AnyCache,
    source: State | Image,
    target: str,
    tag: Tag,
    *,
    format: Format = "docker",
    compress: bool = False,
    force: bool = False,
    progress: Callable[[int], AbstractContextManager[Callable[[int], None]]] | None = None,
) -> Exported:
    """Writes the files of a state or an image; `progress` is given the bytes that are expected, an estimate."""
    with layout.opened(target, force) as place, _started(cache, source) as sandbox:
        about = _describe(sandbox, source)
        shown = contextlib.nullcontext(lambda _: None) if progress is None else progress(max(sandbox.image.size, 1))
        with shown as advance, sandbox.archive() as files:
            return write_image(place, files, about, format=format, tag=tag, compress=compress, progress=advance)


@contextlib.contextmanager
def _bar(expected: int) -> Iterator[Callable[[int], None]]:
    """Shows how many bytes are written; yields what adds to them."""
    from rich.progress import DownloadColumn, TextColumn, TransferSpeedColumn

    bytes_done = 0
    with context.progress(expected, DownloadColumn(), TextColumn("written"), TransferSpeedColumn()) as update:

        def advance(count: int) -> None:
            nonlocal bytes_done
            bytes_done += count
            if update:
                update(completed=bytes_done, total=max(expected, bytes_done))

        yield advance


def _print(target: str, data: dict[str, Any], format: Format) -> None:
    digest = data["image_id"].removeprefix("sha256:")[:12]
    typer.echo(f"{target}  {size(data['bytes'])}  {data['tag']}  {digest}")
    if format == "docker":
        typer.echo(f"load it: docker load -i {target} && docker run -it --rm {data['tag']}")


def _format(name: str | None, output: str | None) -> Format:
    """Returns the chosen format; raises `UsageError` if it is unknown or does not fit the output."""
    directory = output is not None and layout.is_directory(output)
    if name == "oci" or (name is None and directory):
        return "oci"
    if name not in (None, "docker"):
        raise UsageError(f'there is no format "{name}": docker or oci')
    if directory:
        raise UsageError("docker load takes no directory: name a file, or choose --format oci")
    return "docker"


def _find(cache: AnyCache, name: str) -> State | Image:
    """Returns the image or state of a name, with image names before hashes; raises `NotFound` if it could be both."""
    image = None
    with contextlib.suppress(NotFound):
        image = cache.images.get(name)
    if image is not None and image.name == name:
        return image
    try:
        state = cache.graph.resolve(name)
    except (NotFound, UsageError) as error:
        if image is not None:
            return image
        raise NotFound(f'no image is called "{name}" (tvsnap image ls); as a state: {error}') from None
    if image is not None:
        raise NotFound(f"{name} fits state {state.hash[:16]} and image {image.digest[:16]}: give more digits")
    return state


@contextlib.contextmanager
def _started(cache: AnyCache, source: State | Image) -> Iterator[AnySandbox]:
    """A block with a throw-away sandbox in a state, or freshly started from an image."""
    from tvsnap.cache import Cache

    if not isinstance(source, Image):
        with cache.materialise(source.hash) as sandbox:
            yield sandbox
    elif isinstance(cache, Cache):
        with contextlib.closing(cache.backend.start(source, cache.limits_for(source))) as sandbox:
            yield sandbox
    else:
        with cache.rollout(source) as rollout, cache.materialise(rollout.root) as sandbox:
            yield sandbox


def _describe(sandbox: AnySandbox, source: State | Image) -> Description:
    image = sandbox.image
    state = {} if isinstance(source, Image) else {STATE_LABEL: source.hash}
    return Description(
        env=image.env,
        workdir=_working_directory(sandbox) or image.workdir,
        user=image.user,
        labels={IMAGE_LABEL: image.digest, **state},
        created=source.created,
        origin=f"tvsnap image export {_hash(source)}",
    )


def _hash(source: State | Image) -> str:
    return source.digest if isinstance(source, Image) else source.hash


def _working_directory(sandbox: AnySandbox) -> str | None:
    """Returns the shell's working directory; None if it is unknown, deleted, or not valid text."""
    where = sandbox.shell_state().get("cwd", "")
    if not where.startswith("/"):
        return None
    outcome = sandbox.exec("pwd", timeout=LOOK_TIMEOUT, cwd=where)
    try:
        return where if outcome.exit_code == 0 and outcome.output.decode().rstrip("\n").startswith("/") else None
    except UnicodeDecodeError:
        return None


def _bytes(target: str) -> int:
    path = Path(target)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
