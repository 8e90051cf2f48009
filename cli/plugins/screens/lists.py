"""Lists of lines that draw only the visible ones, however long they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

WIDEST = 2000
"""Cells of the longest line that one can scroll along."""


class Lines(ScrollView, can_focus=True):
    """Text that can be scrolled."""

    DEFAULT_CSS = "Lines { height: 1fr; padding: 0 1; }"

    def __init__(self, id: str | None = None, lines: Sequence[Text | str] = ()) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Text | str] = lines
        self._sized()

    def show(self, lines: Sequence[Text | str]) -> None:
        """Shows other lines, from the first one on.

        Args:
            lines: the lines, each harmless.
        """
        self.lines = lines
        self._sized()
        self.scroll_to(0, 0, animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Returns a visible line."""
        x, top = self.scroll_offset
        width = self.scrollable_content_region.width
        if top + y >= len(self.lines):
            return Strip.blank(width, self.rich_style)
        line = self.lines[top + y]
        return _strip(self, Text(line) if isinstance(line, str) else line, x, width)

    def _sized(self) -> None:
        longest = max((len(line) for line in self.lines), default=0)
        self.virtual_size = Size(min(WIDEST, 2 * longest if longest else 0), len(self.lines))


class Rows(ScrollView, can_focus=True):
    """A list of which one row is chosen.

    Attributes:
        chosen: the place of that row.
    """

    DEFAULT_CSS = "Rows { height: 1fr; overflow-x: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("up", "move(-1)", "Up"),
        ("down", "move(1)", "Down"),
        ("pageup", "page(-1)", "Page up"),
        ("pagedown", "page(1)", "Page down"),
        ("home", "first", "First"),
        ("end", "last", "Last"),
    ]

    class Chosen(Message):
        """Another row was chosen."""

        def __init__(self, rows: Rows) -> None:
            super().__init__()
            self.rows = rows

        @property
        def control(self) -> Rows:
            """The list."""
            return self.rows

    def __init__(self, draw: Callable[[int, int], Text], id: str | None = None) -> None:
        """`draw` is given the place of a row and a width in cells, and returns its line."""
        super().__init__(id=id)
        self._draw = draw
        self.number = 0
        self.chosen = 0

    def renew(self, number: int, chosen: int = 0) -> None:
        """Draws all rows anew.

        Args:
            number: how many rows there are now.
            chosen: the place of the row that is chosen now.
        """
        self.number = number
        self.virtual_size = Size(0, number)
        self.choose(chosen)
        self.refresh()

    def choose(self, place: int) -> None:
        """Chooses a row, and scrolls to it.

        Args:
            place: its place; a place beyond the ends means the first or the last row.
        """
        self.chosen = max(0, min(place, self.number - 1))
        if self.number:
            top, height = self.scroll_offset.y, max(1, self.scrollable_content_region.height)
            if not top <= self.chosen < top + height:
                near = -1 <= self.chosen - top <= height
                region = Region(0, self.chosen, 1, 1)
                self.scroll_to_region(region, animate=False, force=True, center=not near, immediate=True)
        self.refresh()
        self.post_message(self.Chosen(self))

    def render_line(self, y: int) -> Strip:
        """Returns a visible line."""
        width, place = self.scrollable_content_region.width, self.scroll_offset.y + y
        if place >= self.number:
            return Strip.blank(width, self.rich_style)
        text = self._draw(place, width)
        text.truncate(width, overflow="ellipsis", pad=True)
        if place == self.chosen:
            text.stylize("reverse" if self.has_focus else "underline")
        return _strip(self, text, 0, width)

    def action_move(self, step: int) -> None:
        """Goes up or down by some rows."""
        self.choose(self.chosen + step)

    def action_page(self, step: int) -> None:
        """Goes up or down by a screen."""
        self.choose(self.chosen + step * max(1, self.size.height - 1))

    def action_first(self) -> None:
        """Goes to the first row."""
        self.choose(0)

    def action_last(self) -> None:
        """Goes to the last row."""
        self.choose(self.number - 1)

    def on_click(self, event: events.Click) -> None:
        """Chooses the row that was clicked."""
        self.choose(self.scroll_offset.y + event.y)

    def on_focus(self) -> None:
        """Draws the chosen row as that of the list that has the keys."""
        self.refresh()

    def on_blur(self) -> None:
        """Draws the chosen row as that of a list that has not the keys."""
        self.refresh()


def _strip(view: ScrollView, text: Text, x: int, width: int) -> Strip:
    text.no_wrap, text.end = True, ""
    strip = Strip(text.render(view.app.console), text.cell_len)
    return strip.crop_extend(x, x + width, view.rich_style).apply_style(view.rich_style)
