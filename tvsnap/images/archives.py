"""Opens tar archives safely if their headers are hostile.

`tarfile` reads a header's extension (a long name, pax records, a map of holes) completely, whatever size it claims:
some compressed kilobytes can become gigabytes of memory. Here the size of one member's extensions is limited, and so is
that of an archive's global ones, which are kept.
"""

from __future__ import annotations

import tarfile
from typing import IO, Any

from tvsnap.model.limits import MIB

MOST_HEADER = MIB
"""Bytes; Linux allows no path beyond 4 KiB, and no attribute beyond 64 KiB."""


def opened(stream: IO[bytes]) -> tarfile.TarFile:
    """Returns an archive that is read once, from its beginning to its end.

    Raises tarfile.TarError, also while its members are read, if it is no archive, or if a header is too long.
    """
    # Values that are not text (file capabilities) are preserved.
    return _Archive.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape")


class _Limited:
    """A stream of which only a limited number of bytes may be read."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream = stream
        self._bytes_left = most

    def read(self, size: int) -> bytes:
        self._bytes_left -= size
        if size < 0 or self._bytes_left < 0:
            raise tarfile.ReadError(f"a header of more than {MOST_HEADER >> 20} MiB")
        data: bytes = self._stream.read(size)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Member(tarfile.TarInfo):
    def _proc_member(self, archive: _Archive) -> Any:
        """Reads the rest of a member, up to the next header; tarfile intends this to be overridden."""
        if self.type == tarfile.XGLTYPE:
            archive.global_headers += max(self.size, 0)
            if archive.global_headers > MOST_HEADER:
                raise tarfile.ReadError(f"global headers of more than {MOST_HEADER >> 20} MiB")
        whole, archive.fileobj = archive.fileobj, _Limited(archive.fileobj, MOST_HEADER)
        try:
            return super()._proc_member(archive)  # type: ignore[misc]
        except (RecursionError, ValueError, OverflowError) as error:
            raise tarfile.ReadError(f"a header that makes no sense: {error}") from None
        finally:
            archive.fileobj = whole


class _Archive(tarfile.TarFile):
    tarinfo = _Member
    global_headers = 0
