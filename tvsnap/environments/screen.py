"""A terminal as people see it: named keys turned into what a keyboard sends, and what was sent turned into a screen."""

from __future__ import annotations

import copy
import re
from typing import Any

import pyte

from tvsnap.backends.base import TerminalBytes

# What xterm sends, with cursor keys in normal mode.
_NAMED_KEYS = {
    "lt": "<",
    "enter": "\r",
    "esc": "\x1b",
    "tab": "\t",
    "space": " ",
    "backspace": "\x7f",
    "delete": "\x1b[3~",
    "insert": "\x1b[2~",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f3": "\x1bOR",
    "f4": "\x1bOS",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "f7": "\x1b[18~",
    "f8": "\x1b[19~",
    "f9": "\x1b[20~",
    "f10": "\x1b[21~",
    "f11": "\x1b[23~",
    "f12": "\x1b[24~",
}
_KEY = re.compile(rf"<(?:({'|'.join(_NAMED_KEYS)})|C-([@-_a-z])|M-([!-~]))>", re.IGNORECASE)

KEYS_HELP = (
    "Plain text is typed as it is; a line feed is the Enter key. Named keys are written in angle brackets: <Enter> "
    "<Esc> <Tab> <Space> <Backspace> <Delete> <Insert> <Up> <Down> <Left> <Right> <Home> <End> <PageUp> <PageDown> "
    "<F1> to <F12>, <C-x> for Control and x, <M-x> for Alt and x, <lt> for a < that would otherwise begin such a name"
)

_ALTERNATE_SCREENS = (47, 1047, 1049)


def encode_keys(text: str) -> bytes:
    """Returns what a keyboard sends for `text`, which `KEYS_HELP` describes; an unknown <name> is typed as it is."""
    sent = []
    end = 0
    for match in _KEY.finditer(text):
        sent.append(text[end : match.start()].replace("\r\n", "\r").replace("\n", "\r"))
        named, control, meta = match.groups()
        if named:
            sent.append(_NAMED_KEYS[named.lower()])
        elif control:
            sent.append(chr(ord(control.upper()) & 0x1F))
        else:
            sent.append("\x1b" + meta)
        end = match.end()
    sent.append(text[end:].replace("\r\n", "\r").replace("\n", "\r"))
    return "".join(sent).encode()


def render(terminal: TerminalBytes) -> str:
    """Returns the visible screen as text: a line a row, without the space at their ends and the empty rows below."""
    screen = _Screen(terminal.columns, terminal.rows)
    pyte.ByteStream(screen).feed(terminal.data)
    text = "\n".join(line.rstrip() for line in screen.display).rstrip("\n")
    return f"{text}\n" if text else ""


class _Screen(pyte.Screen):
    """pyte's screen, with the alternate screen that full-screen programs switch to and, at their end, back from."""

    _main: tuple[Any, Any] | None = None

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        super().set_mode(*modes, **kwargs)
        if kwargs.get("private") and self._main is None and any(mode in _ALTERNATE_SCREENS for mode in modes):
            self._main = copy.deepcopy(self.buffer), copy.copy(self.cursor)
            self.erase_in_display(2)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and self._main is not None and any(mode in _ALTERNATE_SCREENS for mode in modes):
            self.buffer, self.cursor = self._main
            self._main = None
            self.dirty.update(range(self.lines))
