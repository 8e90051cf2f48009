"""A MySQL dump, statement by statement, as the mysql client would send them; in memory is one statement at a time."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from tvsnap.images.dumps.errors import DumpError

_CHUNK = 1 << 20
_LOOKAHEAD = 16  # longer than any sign that has to be seen whole, but for the DELIMITER command
_BLANK = re.compile(rb"(?:\s|\xef\xbb\xbf)+")  # with a byte order mark
_COMMAND = re.compile(rb"(?i)delimiter[ \t]+(\S+)[^\n]*\n?")
_DASHES = re.compile(rb"--(?:\s|$)")
_STOPS = {quote: re.compile(rb"[\\" + quote + rb"]") for quote in (b"'", b'"')}
_SANDBOX_MODE = re.compile(rb"/\*M?!999999\\-")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as it stands in the file.

    Attributes:
        line: where it begins, from 1.
        text: without its delimiter and the comments before it.
        delimiter: what ended it; `;` unless a DELIMITER command had changed that.
    """

    line: int
    text: bytes
    delimiter: str = ";"


def statements(source: Path) -> Iterator[Statement]:
    """Reads a dump.

    Args:
        source: a file of SQL, or the same through gzip, whatever its name.

    Raises:
        DumpError: it cannot be read, or ends within a string or comment.
    """
    try:
        with opened(source) as file:
            yield from _Splitter(source, file)
    except (OSError, EOFError, zlib.error) as error:
        raise DumpError(f"{source}: cannot be read: {error}") from None


def opened(source: Path) -> IO[bytes]:
    """Opens a file that may be compressed by gzip."""
    with source.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(source)) if compressed else source.open("rb")


def _plain(delimiter: bytes) -> re.Pattern[bytes]:
    """What holds neither the delimiter nor a comment, in one match for speed. It never ends within a sign."""
    first = re.escape(delimiter[:1])
    parts = [rb"[^'\"`#/*\-" + first + rb"]+", rb"'[^'\\]*'", rb"`[^`]*`"]
    for sign, rest in ((rb"-", rb"-"), (rb"/", rb"*"), (rb"\*", rb"/")):
        if sign != first:
            parts.append(sign + rb"(?=[^" + rest + rb"])")
    # The bound keeps what the regular expression engine remembers of its way small.
    return re.compile(rb"(?:" + rb"|".join(parts) + rb"){1,1000}")


class _Splitter:
    def __init__(self, source: Path, file: IO[bytes]) -> None:
        self._source = source
        self._file = file
        self._buffer = b""
        self._position = 0
        self._ended = False
        self._line = 1
        self._delimiter = b";"
        self._plain = _plain(b";")

    def __iter__(self) -> Iterator[Statement]:
        while self._begin():
            text = self._statement()
            line = self._line
            self._line += text.count(b"\n")
            if text := text.rstrip():
                yield Statement(line, text, self._delimiter.decode("latin-1"))
            if self._buffer.startswith(self._delimiter, self._position):
                self._position += len(self._delimiter)

    def _more(self) -> bool:
        """Reads on, and forgets what lies before the position; False at the end of the file."""
        kept = self._buffer[self._position :]
        # As much as there is already: what is longer than a chunk is then not copied over and over.
        read = b"" if self._ended else self._file.read(max(_CHUNK, len(kept)))
        self._ended = not read
        self._buffer, self._position = kept + read, 0
        return bool(read)

    def _sees(self, count: int) -> None:
        while len(self._buffer) - self._position < count and not self._ended:
            self._more()

    def _pass(self, end: int) -> None:
        """Goes on to a position, outside of statements."""
        self._line += self._buffer.count(b"\n", self._position, end)
        self._position = end

    def _begin(self) -> bool:
        """Goes to the beginning of the next statement; False if there is none."""
        while True:
            self._sees(_LOOKAHEAD)
            if blank := _BLANK.match(self._buffer, self._position):
                self._pass(blank.end())
                continue
            if self._position == len(self._buffer):
                return False
            start = self._buffer[self._position : self._position + _LOOKAHEAD]
            if start[:1] == b"#" or _DASHES.match(start):
                self._pass(self._end_of_line(self._position))
            elif _SANDBOX_MODE.match(start) or (start.startswith(b"/*") and start[2:3] != b"!" and start[2:4] != b"M!"):
                self._pass(self._after(b"*/", self._position + 2))
            elif start[:9].lower() == b"delimiter" and self._command():
                continue
            else:
                return True

    def _command(self) -> bool:
        end = self._end_of_line(self._position)
        command = _COMMAND.match(self._buffer, self._position, end + 1)
        if not command:
            return False
        self._delimiter = command[1]
        self._plain = _plain(command[1])
        self._pass(command.end())
        return True

    def _end_of_line(self, start: int) -> int:
        """Where the line ends; the position of what was read before may move."""
        offset = start - self._position
        while (end := self._buffer.find(b"\n", self._position + offset)) < 0:
            if not self._more():
                return len(self._buffer)
        return end

    def _after(self, sign: bytes, start: int) -> int:
        offset = start - self._position
        while (end := self._buffer.find(sign, self._position + offset)) < 0:
            offset = max(offset, len(self._buffer) - self._position - len(sign) + 1)
            if not self._more():
                raise DumpError(f"{self._source}: line {self._line}: a comment does not end")
        return end + len(sign)

    def _statement(self) -> bytes:
        """Reads up to the delimiter, and stands at it."""
        offset = 0  # from the position, which stays at the beginning and so moves with the buffer
        executable = False
        while True:
            at = self._position + offset
            if plain := self._plain.match(self._buffer, at):
                offset = plain.end() - self._position
                continue
            if len(self._buffer) - at < _LOOKAHEAD and not self._ended:
                self._more()
                continue
            if at == len(self._buffer):
                break
            sign = self._buffer[at : at + 4]
            if not executable and self._buffer.startswith(self._delimiter, at):
                break
            if sign[:1] in (b"'", b'"'):
                offset = self._after_string(offset)
            elif sign[:1] == b"`":
                offset = self._after(b"`", at + 1) - self._position
            elif sign[:1] == b"#" or _DASHES.match(self._buffer, at):
                offset = self._end_of_line(at) - self._position
            elif sign.startswith((b"/*!", b"/*M!")):
                executable = True
                offset += 3
            elif sign[:2] == b"/*":
                offset = self._after(b"*/", at + 2) - self._position
            elif sign[:2] == b"*/":
                executable = False
                offset += 2
            else:
                offset += 1
        text = self._buffer[self._position : self._position + offset]
        self._position += offset
        return text

    def _after_string(self, offset: int) -> int:
        quote = self._buffer[self._position + offset : self._position + offset + 1]
        offset += 1
        while True:
            stop = _STOPS[quote].search(self._buffer, self._position + offset)
            if stop and stop.group() == quote:
                return stop.end() - self._position
            if stop:
                offset = stop.start() + 2 - self._position
                continue
            offset = max(offset, len(self._buffer) - self._position)
            if not self._more():
                raise DumpError(f"{self._source}: line {self._line}: a string does not end")
