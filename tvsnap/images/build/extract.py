"""Unpacks tar archives that may be hostile into a tree, and never outside of it.

Names with `..` are refused, symbolic links on the way are resolved inside the tree, hard links must point to a file in
it, device nodes are left out. Layers of container images are archives in which a name `.wh.NAME` deletes a file of the
layers below (the image specification of the Open Container Initiative, layer.md).
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import re
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from tvsnap.images import archives
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import UnsafePath, keeps_xattr, make_directories, remove_entry, remove_tree, resolve_inside
from tvsnap.model.errors import MachineLacks
from tvsnap.model.images import UID_COUNT

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SHOWN = 100
"""Characters of a name in a message."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_TIME = re.compile(r"(?P<sign>-?)(?P<seconds>[0-9]{1,20})(\.(?P<fraction>[0-9]*))?", re.ASCII)
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_WHITEOUT_META = ".wh..wh."
_XATTR_PREFIX = "SCHILY.xattr."
_CHUNK = 1 << 20
_BLOCK = 1 << 16
_EMPTY = bytes(_BLOCK)
MOST_ENTRIES = 10_000_000
MOST_BYTES = 1 << 39
"""The most that all files may contain, holes included."""
MOST_NAMES = 1 << 28
"""Bytes of the paths kept in memory: of directories, and of everything that a layer adds."""
MOST_DEPTH = 200
"""Names in one path, because code that inspects a tree recurses into it."""


def extract_tar(archive: Path, root: Path, fraction: Callable[[float | None], None], *, layer: bool = False) -> None:
    """Unpacks an archive.

    Raises BuildStepFailed if it is no tar archive, damaged, or hostile, and MachineLacks if zstd is needed and missing.

    Args:
        archive: a tar, plain or compressed with gzip, bzip2, xz or zstd.
        root: the tree, with unshifted owners; existing files of the same names are replaced.
        fraction: gets the progress.
        layer: whether it is a layer of a container image, in which `.wh.` names delete.
    """
    with _decompressed(archive, fraction) as stream:
        _extract(stream, str(archive), root, layer)


def extract_chunks(chunks: Iterable[bytes], name: str, root: Path, progress: Callable[[int], None]) -> None:
    """Unpacks an uncompressed archive that arrives in chunks; raises BuildStepFailed as `extract_tar` does.

    `name` is for error messages; `progress` gets the number of bytes so far.
    """
    with io.BufferedReader(_Incoming(chunks, progress), _CHUNK) as stream:
        _extract(stream, name, root, layer=False)


def _extract(stream: IO[bytes], name: str, root: Path, layer: bool) -> None:
    extraction = _Extraction(root, layer)
    try:
        with archives.opened(stream) as tar:
            while (member := tar.next()) is not None:
                try:
                    extraction.add(tar, member)
                except (OverflowError, ValueError) as error:
                    raise BuildStepFailed(f'failed: "{member.name}" in {name} is damaged ({error})') from error
                # Otherwise it keeps all members.
                tar.members = []  # type: ignore[attr-defined]
    except (tarfile.TarError, EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise BuildStepFailed(f"failed: {name} is no tar archive or damaged ({error})") from error
    extraction.finish()


def _modified_ns(member: tarfile.TarInfo) -> int:
    """Returns a member's modification time in nanoseconds since 1970, exactly, whereas tarfile uses floats.

    Raises OverflowError if no file system can store it.
    """
    exact = _TIME.fullmatch(member.pax_headers.get("mtime", ""))
    if exact is None:
        nanoseconds = round(member.mtime * 10**9)
    else:
        fraction = int(f"{exact['sign']}{exact['fraction'] or ''}000000000"[: 9 + len(exact["sign"])])
        nanoseconds = int(exact["sign"] + exact["seconds"]) * 10**9 + fraction
    if abs(nanoseconds) >= 1 << 63:
        raise OverflowError(f"its time, {member.mtime} s after 1970, is out of range")
    return nanoseconds


@dataclass(slots=True)
class _Extraction:
    """One archive that is being unpacked into a tree."""

    root: Path
    layer: bool
    # The files of this archive, because whiteouts apply only to the layers below.
    added: set[str] = field(default_factory=set)
    # Set at the end, because writing into a directory changes its times.
    directory_times: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    size: int = 0
    names: int = 0

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._count(member)
        target = resolve_inside(self.root, member.name)
        if self.layer and target.name.startswith(_WHITEOUT):
            self._white_out(target)
            return
        if member.ischr() or member.isblk():
            return
        if not member.isdir() and target == self.root:
            raise UnsafePath(f'failed: "{member.name}" would replace the root of the image')
        make_directories(self.root, str(PurePosixPath(member.name).parent))
        self._put(tar, member, target)
        if self.layer:
            self._remember(target)

    def _count(self, member: tarfile.TarInfo) -> None:
        """Refuses more than any image has, before a small archive is expanded that far."""
        self.entries += 1
        self.size += member.size
        if self.entries > MOST_ENTRIES:
            raise BuildStepFailed(f"failed: the archive has more than {MOST_ENTRIES:,} entries")
        if member.size < 0 or self.size > MOST_BYTES:
            raise BuildStepFailed(
                f'failed: up to "{member.name[:_SHOWN]}" the archive has files of more than {MOST_BYTES >> 30} GiB'
            )
        if member.name.count("/") >= MOST_DEPTH:
            raise BuildStepFailed(f'failed: "{member.name[:_SHOWN]}..." lies more than {MOST_DEPTH} directories deep')

    def finish(self) -> None:
        for directory, modified in self.directory_times.items():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.utime(directory, ns=(modified, modified), follow_symlinks=False)

    def _put(self, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
        if member.isdir():
            if target.is_symlink() or not target.is_dir():
                remove_entry(target)
                target.mkdir()
            if (name := str(target)) not in self.directory_times:
                self._keep(name)
            self.directory_times[name] = _modified_ns(member)
        elif member.islnk():
            source = resolve_inside(self.root, member.linkname)
            if not os.path.lexists(source):
                raise UnsafePath(
                    f'failed: "{member.name}" is a hard link to "{member.linkname}", which is not in the image'
                )
            if stat.S_ISDIR(source.lstat().st_mode):
                raise UnsafePath(f'failed: "{member.name}" is a hard link to a directory, "{member.linkname}"')
            if source != target:
                remove_entry(target)
                os.link(source, target, follow_symlinks=False)
            return
        elif member.issym():
            remove_entry(target)
            os.symlink(member.linkname, target)
        elif member.isfifo():
            remove_entry(target)
            os.mkfifo(target)
        elif member.isreg():
            remove_entry(target)
            self._write(tar, member, target)
        else:
            raise BuildStepFailed(f'failed: "{member.name}" is of an unknown kind ({member.type!r})')
        self._attributes(member, target)

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
        content = tar.extractfile(member)
        assert content is not None
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb", _CHUNK) as stream:
            while block := content.read(_BLOCK):
                if block == _EMPTY:
                    stream.seek(_BLOCK, os.SEEK_CUR)  # a hole
                else:
                    stream.write(block)
            stream.truncate()

    def _attributes(self, member: tarfile.TarInfo, target: Path) -> None:
        if not (0 <= member.uid < UID_COUNT and 0 <= member.gid < UID_COUNT):
            raise BuildStepFailed(
                f'failed: "{member.name}" belongs to {member.uid}:{member.gid}; '
                f"{UID_COUNT - 1} is the last user or group there is inside"
            )
        os.chown(target, member.uid, member.gid, follow_symlinks=False)
        if not member.issym():
            os.chmod(target, stat.S_IMODE(member.mode))
            for key, value in member.pax_headers.items():
                name = key.removeprefix(_XATTR_PREFIX)
                if name != key and keeps_xattr(name):
                    os.setxattr(target, name, value.encode("utf-8", "surrogateescape"))
        if not member.isdir():
            modified = _modified_ns(member)
            os.utime(target, ns=(modified, modified), follow_symlinks=False)

    def _remember(self, target: Path) -> None:
        for path in (target, *target.parents):
            name = str(path)
            if path == self.root or name in self.added:
                break
            self._keep(name)
            self.added.add(name)

    def _keep(self, name: str) -> None:
        """Counts a path that is kept until the end."""
        self.names += len(name)
        if self.names > MOST_NAMES:
            raise BuildStepFailed(f"failed: the archive has paths of more than {MOST_NAMES >> 20} MiB in all")

    def _white_out(self, target: Path) -> None:
        if target.name == _OPAQUE:
            if target.parent.is_dir():
                self._remove_below(target.parent)
        elif not target.name.startswith(_WHITEOUT_META):
            name = target.name.removeprefix(_WHITEOUT)
            if name in ("", ".", ".."):
                raise UnsafePath(f'failed: "{target.name}" deletes nothing that has a name')
            hidden = target.parent / name
            if str(hidden) not in self.added:
                remove_entry(hidden)
            elif hidden.is_dir() and not hidden.is_symlink():
                self._remove_below(hidden)

    def _remove_below(self, directory: Path) -> None:
        for entry in list(os.scandir(directory)):
            path = Path(entry.path)
            if entry.path not in self.added:
                remove_tree(path) if entry.is_dir(follow_symlinks=False) else path.unlink()
            elif entry.is_dir(follow_symlinks=False):
                self._remove_below(path)


@contextlib.contextmanager
def _decompressed(archive: Path, fraction: Callable[[float | None], None]) -> Iterator[IO[bytes]]:
    with contextlib.ExitStack() as stack:
        watched = stack.enter_context(io.BufferedReader(_Watched(archive, fraction), _CHUNK))
        magic = watched.peek(6)
        if magic.startswith(b"\x1f\x8b"):
            yield cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=watched)))
        elif magic.startswith(b"BZh"):
            yield cast("IO[bytes]", stack.enter_context(bz2.BZ2File(watched)))
        elif magic.startswith(b"\xfd7zXZ\x00"):
            yield cast("IO[bytes]", stack.enter_context(lzma.LZMAFile(watched)))
        elif magic.startswith(_ZSTD_MAGIC):
            yield stack.enter_context(_unzstd(archive))
        else:
            yield watched


class _Watched(io.FileIO):
    """A file that reports how much of it has been read."""

    def __init__(self, path: Path, fraction: Callable[[float | None], None]) -> None:
        super().__init__(path)
        self._size = max(path.stat().st_size, 1)
        self._bytes_read = 0
        self._fraction = fraction

    def readinto(self, buffer: Buffer, /) -> int | None:
        count = super().readinto(buffer)
        self._bytes_read += count or 0
        self._fraction(self._bytes_read / self._size)
        return count


class _Incoming(io.RawIOBase):
    """A stream of chunks."""

    def __init__(self, chunks: Iterable[bytes], progress: Callable[[int], None]) -> None:
        super().__init__()
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")
        self._progress = progress
        self._bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        view = memoryview(buffer)
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._bytes_read += count
        self._progress(self._bytes_read)
        return count


@contextlib.contextmanager
def _unzstd(archive: Path) -> Iterator[IO[bytes]]:
    try:
        process = subprocess.Popen(
            ["zstd", "--decompress", "--stdout", "--quiet", str(archive)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise MachineLacks(f"{archive} is compressed with zstd, which is missing: apt-get install zstd") from None
    assert process.stdout is not None
    try:
        yield process.stdout
        # A tar may end before its file.
        while process.stdout.read(_CHUNK):
            pass
        if process.wait():
            raise BuildStepFailed(f"failed: {archive} is damaged")
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
