"""Work in the background of a screen: threads, and the line that shows what they do."""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rich.text import Text
from textual import work
from textual.app import App

from tvsnap.model.errors import TvsnapError

from .dialogs import Result

_T = TypeVar("_T")


class Background(App[None]):
    """A screen that works in threads.

    Attributes:
        closing: set once the screen is being left.
    """

    def __init__(self) -> None:
        super().__init__()
        self._busy: list[str] = []
        self._message = ""
        self.closing = threading.Event()

    @abstractmethod
    def _say(self) -> None:
        """Writes the first and the last line."""

    def _show(self, title: str, lines: Sequence[Text | str]) -> None:
        self.push_screen(Result(title, lines))

    @work(thread=True, group="sandbox")
    def _do(self, what: str, work: Callable[[], _T], show: Callable[[_T], None]) -> None:
        """Works in a thread, and gives the result to `show` on the screen's own thread."""
        with self._noted(what):
            result = work()
            self._from_thread(show, result)

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """A block during which the last line shows `what`, and afterwards the block's error."""
        self._from_thread(self._begin, what)
        try:
            yield
        except (TvsnapError, OSError) as error:
            self._from_thread(self._fail, error)
        finally:
            self._from_thread(self._end, what)

    def _begin(self, what: str) -> None:
        self._message = ""
        self._busy.append(what)
        self._say()

    def _end(self, what: str) -> None:
        self._busy.remove(what)
        self._say()

    def _fail(self, error: Exception) -> None:
        self._tell(f"✗ {error}")

    def _tell(self, words: str) -> None:
        """Shows words in the last line until others come."""
        self._message = words
        self._say()

    def _from_thread(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function on the screen's own thread, unless the screen is being left."""

        def call() -> None:
            if not self.closing.is_set():
                function(*arguments)

        with contextlib.suppress(RuntimeError):  # the screen has been left
            self.call_from_thread(call)

    async def action_quit(self) -> None:
        """Leaves."""
        self.closing.set()
        await super().action_quit()
