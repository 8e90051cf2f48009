"""Output of sandboxes as lines for a screen: with its colours, and without any other control sequence."""

from __future__ import annotations

import re

from rich.ansi import AnsiDecoder
from rich.text import Text

from ...text import visible

LONGEST = 2000
"""Characters of a line; a longer one is continued on the next."""
_COLOUR = re.compile("(\x1b\\[[0-9;]{0,64}m)")
_SEQUENCE = re.compile(
    "\x1b\\[[0-9;]{0,64}m|(\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~])"
)


def lines_of(text: str) -> list[Text | str]:
    """Returns the lines of an output; those without colours as plain text.

    Sequences that set colours and weights are obeyed. Others, which would move a cursor or set a title, are left out.
    Of a line that was written over after a carriage return, the last text is shown. Characters that no terminal shows
    become visible.

    Args:
        text: the output.
    """
    coloured = "\x1b" in text
    if coloured:
        text = _SEQUENCE.sub(lambda match: "" if match[1] else match[0], text)
    lines: list[Text | str] = []
    decoder = AnsiDecoder()
    for line in text.removesuffix("\n").split("\n"):
        written = line.rstrip("\r").rsplit("\r", 1)[-1].expandtabs(8)
        for start in range(0, max(1, len(written)), LONGEST):
            piece = written[start : start + LONGEST]
            if coloured:
                parts = _COLOUR.split(piece)
                parts[::2] = map(visible, parts[::2])
                lines.append(decoder.decode_line("".join(parts)))
            else:
                lines.append(visible(piece))
    return lines
