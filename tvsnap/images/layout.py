"""The destination of an exported image: a tar, a directory or standard output; in the end complete, or absent.

The size and the digest of a layer are known only at its end. It is still written only once: a tar's header is filled in
afterwards, and in a directory the file is renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol

from tvsnap.model.errors import TvsnapError, UsageError

STANDARD_OUTPUT = "-"
LAYOUT_FILE = "oci-layout"
INDEX_FILE = "index.json"
BLOBS = "blobs/sha256"

_BLOCK = tarfile.BLOCKSIZE


class Blob:
    """A file that is named by the SHA-256 of its contents."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self._hash.update(data)
        self.size += len(data)
        with _writing():
            self._file.write(data)

    @property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        return self._hash.hexdigest()


class Layout(Protocol):
    """The files of an image, which are written one after the other."""

    def add(self, name: str, data: bytes) -> None:
        """Writes a small file."""

    def large_blob(self) -> AbstractContextManager[Blob]:
        """Returns a context manager in which a blob of any size is written."""


def is_directory(output: str) -> bool:
    """Whether a user means a directory by this output."""
    return output.endswith("/") or os.path.isdir(output)


def check_output(output: str, force: bool) -> None:
    """Raises UsageError if an image may not be written to `output`, before any work is done for it.

    With `force`, an existing image file or layout may be replaced. See `opened` for `output`.
    """
    if output == STANDARD_OUTPUT:
        if sys.stdout.isatty():
            raise UsageError("an image is nothing for a terminal: name a file with -o FILE, or redirect the output")
        return
    path = Path(output)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no directory {path.parent} to write {path.name} in")
    if is_directory(output):
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is there and is no directory")
        if not path.is_dir() or not any(path.iterdir()):
            return
        if not (path / LAYOUT_FILE).is_file():
            raise UsageError(f"the directory {path} holds something that is no OCI layout: name an empty or a new one")
    elif not path.exists():
        return
    elif not path.is_file():
        raise UsageError(f"{path} is no file; -o - writes to standard output")
    if not force:
        raise UsageError(f"{output} is there already: name another with -o, or replace it with --force")


@contextlib.contextmanager
def opened(output: str, force: bool) -> Iterator[Layout]:
    """A context manager for writing an image, which exists at its end, or not at all if it fails.

    `output` is a path (a directory if it ends in `/` or is one) or `-` for standard output. Raises UsageError as
    `check_output` does, and TvsnapError if writing fails, for example on a full disk.
    """
    check_output(output, force)
    try:
        if output == STANDARD_OUTPUT:
            with _standard_output() as tar:
                yield tar
        elif is_directory(output):
            with _new_directory(Path(output)) as directory:
                yield directory
        else:
            with _new_file(Path(output).resolve()) as tar:
                yield tar
    except _WriteError as error:
        name = "standard output" if output == STANDARD_OUTPUT else output
        raise TvsnapError(f"cannot write {name}: {error}; nothing of it is left") from None


class _WriteError(Exception):
    """The system's reason why something could not be written."""


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _WriteError(error.strerror or str(error)) from None


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[Layout]:
    temporary = _beside(path)
    try:
        # Not mkstemp, so that the file has the usual permissions.
        with _file(lambda: temporary.open("xb")) as file:
            tar = _Tar(file)
            yield tar
            tar.end()
        with _writing():
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _standard_output() -> Iterator[Layout]:
    # The header cannot be filled in afterwards there, so everything is first written to an unnamed file.
    with _file(tempfile.TemporaryFile) as file:
        tar = _Tar(file)
        yield tar
        tar.end()
        with _writing():
            file.seek(0)
            shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
            sys.stdout.buffer.flush()


@contextlib.contextmanager
def _file(create: Callable[[], IO[bytes]]) -> Iterator[IO[bytes]]:
    with _writing():
        file = create()
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # the data was flushed, or an error was raised
            file.close()


@contextlib.contextmanager
def _new_directory(path: Path) -> Iterator[Layout]:
    """An existing directory is filled, so that it keeps its mode, its mount or its identity as a working directory."""
    there = path.is_dir()
    temporary = _beside(path / "image" if there else path.absolute())
    try:
        with _writing():
            temporary.mkdir()
        yield _Directory(temporary)
        with _writing():
            if there:
                _fill(path, temporary)
            else:
                temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fill(path: Path, temporary: Path) -> None:
    """Moves an image into a directory, replacing an old one; the index comes last, because it makes the image valid."""
    (path / INDEX_FILE).unlink(missing_ok=True)
    for old in [entry for entry in path.iterdir() if entry != temporary]:
        shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    for new in sorted(temporary.iterdir(), key=lambda entry: entry.name == INDEX_FILE):
        new.rename(path / new.name)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:200]}-{secrets.token_hex(4)}.part")


class _Tar:
    """A tar in a seekable file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def add(self, name: str, data: bytes) -> None:
        with _writing():
            self._file.write(tar_header(name, len(data)) + data)
            self._pad(len(data))

    @contextlib.contextmanager
    def large_blob(self) -> Iterator[Blob]:
        with _writing():
            start = self._file.tell()
            self._file.seek(_BLOCK, os.SEEK_CUR)
        blob = Blob(self._file)
        yield blob
        with _writing():
            self._pad(blob.size)
            end = self._file.tell()
            self._file.seek(start)
            self._file.write(tar_header(f"{BLOBS}/{blob.digest}", blob.size))
            self._file.seek(end)

    def end(self) -> None:
        """Writes the end of the archive."""
        with _writing():
            self._file.write(bytes(2 * _BLOCK))
            self._file.flush()

    def _pad(self, size: int) -> None:
        self._file.write(bytes(-size % _BLOCK))


def tar_header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    # The only format with a header of always one block; all tools read it.
    return member.tobuf(tarfile.GNU_FORMAT)


class _Directory:
    """A directory with the files of an image."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, name: str, data: bytes) -> None:
        with _writing():
            (self._path / name).parent.mkdir(parents=True, exist_ok=True)
            (self._path / name).write_bytes(data)

    @contextlib.contextmanager
    def large_blob(self) -> Iterator[Blob]:
        growing = self._path / "layer"
        with _file(lambda: growing.open("xb")) as file:
            blob = Blob(file)
            yield blob
            with _writing():
                file.flush()
        with _writing():
            (self._path / BLOBS).mkdir(parents=True, exist_ok=True)
            growing.rename(self._path / BLOBS / blob.digest)
