"""Opens tar archives whose headers may be hostile.

`tarfile` reads a header's extension (a long name, pax records, a map of holes) whole, whatever size it claims: some
kilobytes, compressed, become gigabytes of memory. Here one member's extensions have a limit, and so have an archive's
global ones, which it keeps.
"""

from __future__ import annotations

import tarfile
from typing import IO, Any

from tvsnap.model.limits import MIB

MOST_HEADER = MIB
"""Bytes; Linux knows no path beyond 4 KiB, and no attribute beyond 64 KiB."""


def opened(stream: IO[bytes]) -> tarfile.TarFile:
    """Returns an archive that is read once, from its beginning to its end.

    Raises:
        tarfile.TarError: it is none, or one of its headers is longer than any is; also when its members are read.
    """
    # Values that are no text (file capabilities) come through unharmed.
    return _Archive.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape")


class _Limited:
    """What an archive is read from, of which so many bytes may be read."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream = stream
        self._left = most

    def read(self, size: int) -> bytes:
        self._left -= size
        if size < 0 or self._left < 0:
            raise tarfile.ReadError(f"a header of more than {MOST_HEADER >> 20} MiB")
        found: bytes = self._stream.read(size)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Member(tarfile.TarInfo):
    def _proc_member(self, archive: _Archive) -> Any:
        """Reads what follows a member's header, up to the next one's; tarfile has it overridden for such ends."""
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
