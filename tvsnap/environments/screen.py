"""A person's view of a terminal: converts named keys into a keyboard's bytes, and a terminal's bytes into a screen."""

from __future__ import annotations

import copy
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import pyte

from tvsnap.model.observations import TerminalBytes

_NAMED_KEYS = {
    "lt": "<",
    **dict(zip(("enter", "esc", "tab", "space", "backspace"), "\r\x1b\t \x7f", strict=True)),
    **{name: f"\x1b[{code}~" for name, code in (("insert", 2), ("delete", 3), ("pageup", 5), ("pagedown", 6))},
    **{name: f"\x1b[{end}" for name, end in zip(("up", "down", "right", "left", "end", "home"), "ABCDFH", strict=True)},
    **{f"f{number}": f"\x1bO{end}" for number, end in enumerate("PQRS", 1)},
    **{f"f{number}": f"\x1b[{code}~" for number, code in enumerate((15, 17, 18, 19, 20, 21, 23, 24), 5)},
}
"""The bytes that xterm sends, with cursor keys in normal mode."""
_KEY = re.compile(rf"<(?:({'|'.join(_NAMED_KEYS)})|C-([@-_a-z])|M-([!-~]))>", re.IGNORECASE | re.ASCII)

KEYS_HELP = (
    "Plain text is typed as it is; a line feed is the Enter key. Named keys are written in angle brackets: <Enter> "
    "<Esc> <Tab> <Space> <Backspace> <Delete> <Insert> <Up> <Down> <Left> <Right> <Home> <End> <PageUp> <PageDown> "
    "<F1> to <F12>, <C-x> for Control and x, <M-x> for Alt and x, <lt> for a < that would otherwise begin such a name"
)

_ALTERNATE_SCREENS = (47, 1047, 1049)
_REVERSE_VIDEO = 5

# Commands may write anything to their terminal, and set it to any size.
RENDERED = 256 * 1024
"""Bytes that are rendered at most, the last ones: a sandbox keeps at least as many."""
LARGEST, UNKNOWN = (300, 100), (80, 24)
"""The most columns and rows that are rendered, and the size of a terminal that reports none."""
_MOVES = 2_400_000
"""Rows and cells that may move. If more do, only the last quarter of the bytes is rendered, and so on."""
_COMBINING = 8
"""The most combining characters in a cell."""


def encode_keys(text: str) -> bytes:
    """Returns the bytes that a keyboard sends for `text`, see `KEYS_HELP`; an unknown <name> is typed as it is."""
    pieces = []
    end = 0
    for match in _KEY.finditer(text):
        pieces.append(text[end : match.start()].replace("\r\n", "\r").replace("\n", "\r"))
        named, control, meta = match.groups()
        if named:
            pieces.append(_NAMED_KEYS[named.lower()])
        elif control:
            pieces.append(chr(ord(control.upper()) & 0x1F))
        else:
            pieces.append("\x1b" + meta)
        end = match.end()
    pieces.append(text[end:].replace("\r\n", "\r").replace("\n", "\r"))
    return "".join(pieces).encode()


def render(terminal: TerminalBytes) -> str:
    """Returns the visible screen as text: a line per row, without trailing spaces and empty rows at the end."""
    data = terminal.data[-RENDERED:]
    columns = min(terminal.columns or UNKNOWN[0], LARGEST[0])
    rows = min(terminal.rows or UNKNOWN[1], LARGEST[1])
    while True:
        screen = _Screen(columns, rows)
        try:
            _Stream(screen).feed(data)
            break
        except _TooMuch:
            data = data[-len(data) // 4 :]
    text = "\n".join(screen.rows()).rstrip("\n")
    return f"{text}\n" if text else ""


class _TooMuch(BaseException):
    """The bytes sent to a terminal move its rows too often to be rendered in reasonable time."""


class _Stream(pyte.ByteStream):
    """pyte's parser of a terminal's bytes; a sequence that pyte cannot process is dropped, as a terminal does."""

    def _send_to_parser(self, data: str) -> bool | None:
        assert self._parser is not None
        try:
            return self._parser.send(data)
        except Exception:  # a sequence had arguments that its method does not take
            self._initialize_parser()
            return self._taking_plain_text


class _Unmarked(set[int]):
    """No rows, whichever are added: pyte marks those that are to be drawn anew, which nobody looks at here."""

    def add(self, row: int) -> None:
        pass

    def update(self, *rows: Iterable[int]) -> None:
        pass


_UNMARKED = _Unmarked()


def _moving(of: str, name: str) -> Any:
    """Returns a method of pyte's screen that moves `lines` or `columns`, and counts them."""
    method = getattr(pyte.Screen, name)

    def moving(self: _Screen, *args: Any) -> None:
        self._move(getattr(self, of))
        method(self, *args)

    return moving


class _Screen(pyte.Screen):
    """pyte's screen, with the alternate screen that full-screen programs use until their end.

    Only the text counts, not its colours. Work that a few bytes can cause is limited.
    """

    default_char = pyte.screens.Char(" ")
    dirty = property(lambda self: _UNMARKED, lambda self, rows: None)
    _main: tuple[Any, Any] | None = None
    _moved = 0

    def rows(self) -> list[str]:
        """Returns the text of each row; the second cell of a wide character is empty."""
        lines = (self.buffer[y] for y in range(self.lines))
        return ["".join(line[x].data for x in range(self.columns)).rstrip() for line in lines]

    reverse_index = _moving("lines", "reverse_index")
    insert_lines = _moving("lines", "insert_lines")
    insert_characters = _moving("columns", "insert_characters")
    delete_characters = _moving("columns", "delete_characters")
    erase_characters = _moving("columns", "erase_characters")
    reset = _moving("lines", "reset")

    def index(self) -> None:
        self._move(self.lines)
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom:
            self._move_up(top, bottom, 1)
        else:
            self.cursor_down()

    def delete_lines(self, count: int | None = None, /) -> None:
        self._move(self.lines)
        top, bottom = self.margins or (0, self.lines - 1)
        if top <= self.cursor.y <= bottom:
            self._move_up(self.cursor.y, bottom, count or 1)  # pyte moves no row up that was never written to
            self.carriage_return()

    def erase_in_line(self, how: int = 0, private: bool = False, /) -> None:
        self._move(self.columns)
        columns = {0: range(self.cursor.x, self.columns), 1: range(self.cursor.x + 1), 2: range(self.columns)}[how]
        self.buffer[self.cursor.y].update(dict.fromkeys(columns, self.cursor.attrs))

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        self._move(self.lines)
        super().set_mode(*self._of_text(modes), **kwargs)
        if kwargs.get("private") and self._main is None and any(mode in _ALTERNATE_SCREENS for mode in modes):
            self._main = self.buffer, copy.copy(self.cursor)
            self.buffer = copy.copy(self.buffer)
            self.buffer.clear()

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*self._of_text(modes), **kwargs)
        if kwargs.get("private") and self._main is not None and any(mode in _ALTERNATE_SCREENS for mode in modes):
            self.buffer, self.cursor = self._main
            self._main = None

    def draw(self, data: str) -> None:
        if not data.isascii():
            data = self._without_heaps(data)
        super().draw(data)

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        self._move(self.lines)
        if how in (2, 3):
            self.buffer.clear()
        elif how in (0, 1):  # pyte would give each cell of the rows the cursor's colours, one after another
            for row in range(self.cursor.y) if how else range(self.cursor.y + 1, self.lines):
                self.buffer[row].clear()
            self.erase_in_line(how)
        else:
            super().erase_in_display(how)

    def alignment_display(self) -> None:
        """Does nothing: this is a test picture for adjusting a tube."""

    @staticmethod
    def _of_text(modes: tuple[int, ...]) -> list[int]:
        return [mode for mode in modes if mode != _REVERSE_VIDEO]

    def _move_up(self, top: int, bottom: int, count: int) -> None:
        """Moves the rows from `top` to `bottom` up by `count`; those that were never written to are not there."""
        count = min(count, bottom + 1 - top)
        moved = {
            row - count if top <= row <= bottom else row: cells
            for row, cells in self.buffer.items()
            if not top <= row < top + count
        }
        self.buffer.clear()
        self.buffer.update(moved)

    def _move(self, cells: int) -> None:
        self._moved += cells
        if self._moved > _MOVES:
            raise _TooMuch

    def _without_heaps(self, data: str) -> str:
        """Returns text without the combining characters that exceed the limit of a cell."""
        chars = []
        heap = len(self.buffer[self.cursor.y][self.cursor.x - 1].data) - 1 if self.cursor.x else _COMBINING
        for char in data:
            heap = heap + 1 if unicodedata.combining(char) else 0
            if heap <= _COMBINING:
                chars.append(char)
        return "".join(chars)
