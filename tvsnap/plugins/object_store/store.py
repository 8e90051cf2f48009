"""An object store: contents by their SHA-256, and small descriptions by name, at any address that fsspec knows.

Layout:

    tvsnap.json                 the format
    blobs/<ab>/<sha256>         contents, compressed with zstd; named by what they are when they are not compressed
    pushes/<kind>/<name>/...    descriptions of what was pushed, see `push`

A blob is written before anything names it, and never changes: so a push that is ended at any moment leaves whole blobs
only, which the next one finds, and any number of processes may push at once. A description is replaced as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tvsnap.model.calls import canonical_json
from tvsnap.model.errors import InfrastructureError, NotFound, UsageError

FORMAT = 2
PIECE = 4 << 20
"""Bytes of a blob at most, when it is not compressed: longer contents have several."""
AT_ONCE = 8
"""Blobs that are sent or fetched at once."""
_LEVEL = 3
_MARK = "tvsnap.json"
_HASH_LENGTH = 64

T = TypeVar("T")


class StoreFailed(InfrastructureError):
    """A store cannot be reached or written, or something in it is missing or damaged."""


class ObjectStore:
    """A place for blobs and descriptions. Thread-safe.

    Attributes:
        url: its address.
        sent_bytes: bytes that were sent, compressed.
        fetched_bytes: bytes that were fetched, compressed.
    """

    def __init__(self, url: str, *, writes: bool = False) -> None:
        """Opens a store.

        Args:
            url: a folder, or an address as fsspec takes it: `s3://bucket/folder`, `gs://...`, `file:///...`.
            writes: makes the store if there is none.

        Raises:
            UsageError: the address makes no sense, or a package for it is missing.
            NotFound: there is no store, and none is to be made.
            StoreFailed: it cannot be reached, or is of another format.
        """
        try:
            import fsspec
            import zstandard
        except ModuleNotFoundError as error:
            raise UsageError(f"the package {error.name} is missing: pip install 'tvsnap[registry]'") from None
        self.url = url
        self.sent_bytes = self.fetched_bytes = 0
        self._zstd = zstandard
        self._lock = threading.Lock()
        self._names_there: set[str] = set()
        if not url:
            raise UsageError("a store needs an address: a folder, or s3://bucket/folder")
        try:
            self._files, path = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            raise UsageError(f"nothing here can reach {url}: {error}") from None
        except ValueError as error:
            raise UsageError(f"{url} is no address of a store: {error}") from None
        self._root = path.rstrip("/")
        self._local = "file" in (self._files.protocol if isinstance(self._files.protocol, tuple) else ())
        if self._local and "://" not in url:
            self.url = path  # what was given may be relative to where a server was started
        self._open(writes)

    def _open(self, writes: bool) -> None:
        try:
            with self._failing("open it", missing=True):
                mark = self._read(_MARK)
        except FileNotFoundError:
            if not writes:
                raise NotFound(f"there is no store at {self.url} (tvsnap push makes one)") from None
            with self._failing("make it"):
                self._write(_MARK, json.dumps({"format": FORMAT}).encode())
            return
        try:
            format = json.loads(mark)["format"]
        except (ValueError, KeyError, TypeError):
            raise StoreFailed(f"{self.url}/{_MARK} is damaged; remove it if this is a store of tvsnap") from None
        if format != FORMAT:
            raise StoreFailed(f"the store at {self.url} has format {format}, and this tvsnap knows {FORMAT}")

    # -- blobs ------------------------------------------------------------------------------------------------------

    def put(self, data: bytes) -> str:
        """Adds a blob unless it is there; returns its name.

        Args:
            data: its contents.

        Raises:
            StoreFailed: it cannot be written.
        """
        name = hashlib.sha256(data).hexdigest()
        with self._lock:
            if name in self._names_there:
                return name
        with self._failing(f"write {name[:12]}"):
            if not self._files.exists(self._path(_blob(name))):
                packed = self._zstd.ZstdCompressor(level=_LEVEL).compress(data)
                self._write(_blob(name), packed)
                with self._lock:
                    self.sent_bytes += len(packed)
        with self._lock:
            self._names_there.add(name)
        return name

    def get(self, name: str) -> bytes:
        """Returns the contents of a blob.

        Args:
            name: a result of `put`.

        Raises:
            StoreFailed: it is missing or damaged, or the store cannot be reached.
        """
        if len(name) != _HASH_LENGTH or not set(name) <= set("0123456789abcdef"):
            raise StoreFailed(f"the store at {self.url} names a blob {name[:80]!r}, which makes no sense")
        try:
            with self._failing(f"read {name[:12]}", missing=True):
                packed = self._read(_blob(name))
        except FileNotFoundError:
            raise StoreFailed(f"the store at {self.url} lacks blob {name[:12]}; push again") from None
        with self._lock:
            self.fetched_bytes += len(packed)
        with contextlib.suppress(self._zstd.ZstdError):
            if self._zstd.frame_content_size(packed) > PIECE:  # a damaged header may claim any size
                raise self._zstd.ZstdError("it is longer than a blob")
            data: bytes = self._zstd.ZstdDecompressor().decompress(packed, max_output_size=PIECE)
            if hashlib.sha256(data).hexdigest() == name:
                return data
        raise StoreFailed(f"blob {name[:12]} of the store at {self.url} is damaged; delete it and push again")

    def put_all(self, pieces: Iterable[bytes]) -> list[str]:
        """Adds blobs, some at once; returns their names in order."""
        return list(_side_by_side(self.put, pieces))

    def get_all(self, names: Iterable[str]) -> Iterator[bytes]:
        """Yields the contents of blobs in order; some are fetched ahead."""
        return _side_by_side(self.get, names)

    # -- descriptions -----------------------------------------------------------------------------------------------

    def describe(self, path: str, values: Mapping[str, Any]) -> None:
        """Writes a description, or replaces it; it contains its own checksum.

        Args:
            path: its name, below `pushes/`.
            values: plain JSON.
        """
        sealed = {"sha256": _seal(values), "values": values}
        with self._failing(f"write {path}"):
            self._write(f"pushes/{path}", self._zstd.ZstdCompressor(level=_LEVEL).compress(json.dumps(sealed).encode()))

    def descriptions(self, folder: str) -> Iterator[Mapping[str, Any]]:
        """Yields the descriptions below a folder.

        Args:
            folder: below `pushes/`.

        Raises:
            StoreFailed: one is damaged, or the store cannot be reached.
        """
        with self._failing(f"list {folder}"):
            try:
                paths = sorted(self._files.find(self._path(f"pushes/{folder}")))
            except FileNotFoundError:
                paths = []
        for path in paths:
            if path.rpartition("/")[2].startswith("."):
                continue
            with self._failing(f"read {path}"):
                packed = self._files.cat_file(path)
            try:
                text = self._zstd.ZstdDecompressor().decompressobj().decompress(packed)
                sealed = json.loads(text)
                values = sealed["values"]
                if sealed["sha256"] != _seal(values):
                    raise ValueError("its checksum is another")
            except (self._zstd.ZstdError, ValueError, KeyError, TypeError) as error:
                raise StoreFailed(f"{path} in the store is damaged ({error}); push again") from None
            yield values

    def names(self, folder: str) -> list[str]:
        """Returns the names of the folders in a folder of descriptions.

        Args:
            folder: below `pushes/`.
        """
        with self._failing(f"list {folder}"):
            try:
                return sorted(
                    path.rstrip("/").rpartition("/")[2]
                    for path in self._files.ls(self._path(f"pushes/{folder}"), detail=False)
                )
            except FileNotFoundError:
                return []

    # -- files ------------------------------------------------------------------------------------------------------

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _read(self, path: str) -> bytes:
        data: bytes = self._files.cat_file(self._path(path))
        return data

    def _write(self, path: str, data: bytes) -> None:
        """Writes a file as a whole: object stores do, and of a folder it is a rename."""
        target = self._path(path)
        if not self._local:
            self._files.pipe_file(target, data)
            return
        folder, _, name = target.rpartition("/")
        self._files.makedirs(folder, exist_ok=True)
        unfinished = f"{folder}/.{name}.{secrets.token_hex(4)}"
        try:
            self._files.pipe_file(unfinished, data)
            self._files.mv(unfinished, target)
        except BaseException:
            with contextlib.suppress(Exception):
                self._files.rm_file(unfinished)
            raise

    @contextlib.contextmanager
    def _failing(self, what: str, *, missing: bool = False) -> Iterator[None]:
        """Turns what file systems raise, each its own, into one error; `missing`: but for what is not there."""
        try:
            yield
        except StoreFailed:
            raise
        except Exception as error:
            if missing and isinstance(error, FileNotFoundError):
                raise
            raise StoreFailed(f"the store at {self.url} failed ({what}): {error or type(error).__name__}") from error


def _blob(name: str) -> str:
    return f"blobs/{name[:2]}/{name}"


def _seal(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


def _side_by_side(function: Callable[[Any], T], arguments: Iterable[Any]) -> Iterator[T]:
    """Yields the results of a function in order, of which some are computed ahead."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tvsnap-store") as pool:
        waiting: list[Future[T]] = []
        try:
            for one in arguments:
                waiting.append(pool.submit(function, one))
                if len(waiting) >= 2 * AT_ONCE:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()
