"""Restores what `docker commit` loses of files: nanoseconds, attributes, sockets; and merges layers, if they are many.

A layer of the engine is a tar archive whose times are whole seconds, without sockets and without extended attributes
except file capabilities (observed with 20.10). A build that compares times would see the difference.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import struct
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from tvsnap.host.libc import closing
from tvsnap.images import archives
from tvsnap.model.errors import InfrastructureError
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.looks import observing
from tvsnap.sandboxes.looks.observing import Entry

_KEPT_BY_COMMIT = ("trusted.", "security.")
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602


def repair(entries: Iterable[Entry], upper: Path, layer: Path) -> None:
    """Makes the files of a committed layer equal to those in the container's writable layer.

    Args:
        entries: the files of the writable layer.
        upper: the writable layer; nothing may write to it meanwhile.
        layer: the engine's layer made of it.
    """
    with paths.directory(layer) as root:
        # Adding a file to a directory changes the directory's times, so these are set from the bottom up.
        for entry in sorted(entries, key=lambda entry: entry.path.count("/"), reverse=True):
            if not entry.deleted:
                _repair_one(entry, upper, root)


def _repair_one(entry: Entry, upper: Path, root: int) -> None:
    parent, name = os.path.split(entry.path)
    with closing(paths.open_in_root(root, parent)) as directory:
        here = f"/proc/self/fd/{directory}/{name}"
        if stat.S_ISSOCK(entry.mode):
            with contextlib.suppress(FileExistsError):
                os.mknod(here, entry.mode)
            os.chown(here, entry.uid, entry.gid, follow_symlinks=False)
            os.chmod(here, stat.S_IMODE(entry.mode))
        there = f"{upper}{entry.path}"
        if stat.S_ISREG(entry.mode) and os.lstat(there).st_blocks * 512 < entry.size:
            # Archives fill holes.
            subprocess.run(["cp", "--sparse=auto", there, here], pass_fds=[directory], check=True)
        if entry.path == "/":  # is in no archive
            os.chown(here, entry.uid, entry.gid)
            os.chmod(here, stat.S_IMODE(entry.mode))
        if entry.has_attributes:
            _copy_attributes(there, here, leave=_KEPT_BY_COMMIT)
        if entry.flags:
            _set_flags(here, entry.flags)
        os.utime(here, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)


def _copy_attributes(there: str | Path, here: str | Path, leave: tuple[str, ...]) -> None:
    for attribute in os.listxattr(there, follow_symlinks=False):
        if not attribute.startswith(leave):
            value = os.getxattr(there, attribute, follow_symlinks=False)
            os.setxattr(here, attribute, value, follow_symlinks=False)


def _set_flags(directory: str, flags: int) -> None:
    """Adds flags to a directory (chattr); a file system without flags is left unchanged."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with closing(opened) as descriptor, contextlib.suppress(OSError):
        there = struct.unpack("i", fcntl.ioctl(descriptor, _GET_FLAGS, bytes(4)))[0]
        fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("i", there | flags))


def unmask(init: Path, upper: Path, lower: Sequence[Path]) -> None:
    """Restores the files that the engine hides from a new container behind empty ones of its own.

    It inserts a layer `init` with /etc/hosts, /etc/resolv.conf, /etc/mtab and /.dockerenv, on which it may mount. The
    container's writable layer is not mounted yet; the layers below `init` are given topmost first.
    """
    folders: dict[Path, Path] = {}
    for entry in observing.walk(init):
        if stat.S_ISDIR(entry.mode) or entry.path.startswith("/dev/"):
            continue
        if not _lift(entry.path, upper, lower, folders):
            # This is how an overlay marks a deleted file.
            os.mknod(f"{upper}{entry.path}", stat.S_IFCHR, os.makedev(0, 0))
    for here, there in folders.items():
        _look_like(there, here)


def relink(groups: Iterable[Sequence[str]], upper: Path, lower: Sequence[Path]) -> None:
    """Makes names of one file hard links in a container: otherwise a write to a lower layer's file splits them.

    Each group is of one file; layers as of `unmask`.
    """
    folders: dict[Path, Path] = {}
    for first, *others in groups:
        if _lift(first, upper, lower, folders):
            for path in others:
                _make_folders(path, upper, lower, folders)
                os.link(f"{upper}{first}", f"{upper}{path}", follow_symlinks=False)
    for here, there in folders.items():
        _look_like(there, here)


def _lift(path: str, upper: Path, lower: Sequence[Path], folders: dict[Path, Path]) -> bool:
    """Copies a path from the layers below into the writable layer; returns whether it exists there."""
    _make_folders(path, upper, lower, folders)
    hidden = _topmost(path, lower)
    if hidden is not None:
        shutil.copyfile(hidden, f"{upper}{path}", follow_symlinks=False)
        _look_like(hidden, Path(f"{upper}{path}"))
    return hidden is not None


def _make_folders(path: str, upper: Path, lower: Sequence[Path], folders: dict[Path, Path]) -> None:
    """Makes the folders above a path, and adds each to `folders` with the one below that it must finally look like."""
    for folder in reversed(PurePosixPath(path).parents):
        here, there = Path(f"{upper}{folder}"), _topmost(str(folder), lower)
        here.mkdir(exist_ok=True)
        if there is not None:
            folders[here] = there


def _topmost(path: str, layers: Sequence[Path]) -> Path | None:
    place = paths.topmost(layers, path)
    return place[0] if place else None


def _look_like(there: Path, here: Path) -> None:
    info = there.lstat()
    os.chown(here, info.st_uid, info.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(info.st_mode):
        os.chmod(here, stat.S_IMODE(info.st_mode))
    _copy_attributes(there, here, leave=("trusted.",))
    os.utime(here, ns=(info.st_atime_ns, info.st_mtime_ns), follow_symlinks=False)


def flattened(
    export: Iterator[bytes], entries: Iterable[Entry], leave_out: Callable[[str], bool] = lambda name: False
) -> AbstractContextManager[IO[bytes]]:
    """A block with all files of a container as one archive with exact times.

    Args:
        export: the engine's export of the container.
        entries: all its files, as seen inside.
        leave_out: returns, by a file's name in the archive, whether it is skipped.

    Raises:
        InfrastructureError: the export broke off; raised at the end of the block.
    """
    times = {entry.path: entry.mtime_ns for entry in entries}

    def change(member: tarfile.TarInfo) -> bool:
        seconds, nanoseconds = divmod(times.get("/" + member.name.strip("/"), 0), 10**9)
        if seconds != int(member.mtime):  # it has changed since it was listed
            seconds, nanoseconds = int(member.mtime), 0
        # The number itself would be rounded: it is a float.
        member.pax_headers = {**member.pax_headers, "mtime": f"{seconds}.{nanoseconds:09}"}
        return not leave_out(member.name)

    return rewritten(_Chunks(export), change)


@contextlib.contextmanager
def rewritten(source: Any, change: Callable[[tarfile.TarInfo], bool]) -> Iterator[IO[bytes]]:
    """A block with a changed copy of a tar archive, made while it is read.

    `change` may change a member, and returns whether it is kept.

    Raises:
        InfrastructureError: the archive could not be read to its end; raised at the end of the block.
    """
    reader, writer = os.pipe()
    failure: list[InfrastructureError] = []

    def rewrite() -> None:
        try:
            with open(writer, "wb") as output:
                _rewrite(source, output, change)
        except BrokenPipeError:  # the reader has given up, and raises the reason
            pass
        except Exception as error:
            failure.append(InfrastructureError(f"files could not be read to their end: {error}"))

    worker = threading.Thread(target=rewrite, name="tvsnap-rewrite")
    worker.start()
    try:
        with open(reader, "rb") as stream:
            yield stream
    finally:
        worker.join()
    if failure:
        raise failure[0]


def _rewrite(source: Any, output: IO[bytes], change: Callable[[tarfile.TarInfo], bool]) -> None:
    with (
        archives.opened(source) as old,
        tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as new,
    ):
        while (member := old.next()) is not None:
            old.members = []  # type: ignore[attr-defined]  # otherwise it remembers all of them
            if change(member):
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
            new.members = []  # type: ignore[attr-defined]


class _Chunks:
    """An iterator of bytes for `tarfile`, which accepts more or less than it requests."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = filter(None, chunks)

    def read(self, size: int) -> bytes:
        return next(self._chunks, b"")
