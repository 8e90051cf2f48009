"""Screens that lie over the tree: a result, a question, and the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from .lists import Lines, Rows

FRAME = """
{name} {{ align: center middle; }}
{name} > Vertical {{ width: 90%; height: {height}; border: round $primary; background: $surface; padding: 0 1; }}
"""


class Result(ModalScreen[None]):
    """Lines under a title, until a key is pressed."""

    DEFAULT_CSS = FRAME.format(name="Result", height="85%")
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q", "dismiss", "Back")]

    def __init__(self, title: str, lines: Sequence[Text | str]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Yields the widgets."""
        with Vertical() as frame:
            frame.border_title = Text(self._title)
            frame.border_subtitle = "escape: back"
            yield Lines("result", self._lines)


class Question(ModalScreen[str | None]):
    """A line that a person types; None if the person leaves."""

    DEFAULT_CSS = FRAME.format(name="Question", height="auto")
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Back")]

    def __init__(self, title: str, value: str = "") -> None:
        super().__init__()
        self._title = title
        self._value = value

    def compose(self) -> ComposeResult:
        """Yields the widgets."""
        with Vertical() as frame:
            frame.border_title = Text(self._title)
            frame.border_subtitle = "enter: go on, escape: back"
            yield Input(self._value, id="answer", select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Takes the typed text."""
        self.dismiss(event.value.strip() or None)


class Choice(ModalScreen[int | None]):
    """One of several rows; None if the person leaves."""

    DEFAULT_CSS = FRAME.format(name="Choice", height="85%")
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q", "dismiss", "Back"), ("enter", "take", "Take")]

    def __init__(self, title: str, number: int, draw: Callable[[int, int], Text]) -> None:
        super().__init__()
        self._title = title
        self._number = number
        self._draw = draw

    def compose(self) -> ComposeResult:
        """Yields the widgets."""
        with Vertical() as frame:
            frame.border_title = Text(self._title)
            frame.border_subtitle = "enter: take, escape: back"
            yield Rows(self._draw, "choices")

    def on_mount(self) -> None:
        """Fills the list."""
        rows = self.query_one(Rows)
        rows.renew(self._number)
        rows.focus()

    def action_take(self) -> None:
        """Takes the chosen row."""
        self.dismiss(self.query_one(Rows).chosen)


class Keys(ModalScreen[None]):
    """A description of the keys."""

    DEFAULT_CSS = FRAME.format(name="Keys", height="auto")
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,question_mark,enter", "dismiss", "Back")]

    def __init__(self, text: Text) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Yields the widgets."""
        with Vertical() as frame:
            frame.border_title = "keys"
            yield Static(self._text)
