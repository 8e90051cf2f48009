"""The panes beside the tree, and the looks at states in forks that fill some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual import work
from textual.timer import Timer
from textual.widgets import TabbedContent

from tvsnap.graph import Edge, Snapshot
from tvsnap.model.errors import TvsnapError

from ...text import one_line
from . import facts
from .actions import StateActions
from .facts import Live
from .forest import Forest, Row
from .lists import Lines, Rows
from .output import lines_of
from .work import Work

if TYPE_CHECKING:
    from tvsnap.protocols import AnyGraph

PAUSE = 0.08
"""Seconds that the chosen row stays the same before its panes are filled, so that scrolling is not held up."""
LOOKS = 20
"""Looks at states in forks that are kept in memory."""


class Panes(StateActions):
    """A screen with panes about a state."""

    def __init__(self, graph: AnyGraph, work: Work) -> None:
        super().__init__(graph, work)
        self._forest: Forest | None = None
        self._looks: dict[str, Live] = {}
        self._files: list[Text | str] = []
        self._follows = False
        self._shown: tuple[Row, Edge | None, Sequence[Snapshot]] | None = None
        self._pause: Timer | None = None

    def _fill_soon(self) -> None:
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(PAUSE, self._fill)

    def _fill(self) -> None:
        if not self.closing.is_set() and (row := self._at()) is not None:
            self._fetch(row)

    @work(thread=True, group="fill", exclusive=True)
    def _fetch(self, row: Row) -> None:
        """Reads the contents of the panes for a row, and shows them."""
        try:
            edge = None if row.call is None else self._graph.edge(row.call.id)
            snapshots = [] if row.is_look else self._graph.snapshots_of(row.state)
        except TvsnapError as error:
            self._from_thread(self._tell, str(error))
            return
        lines = [Text("a root: no call led here", "dim")] if edge is None else lines_of(edge.result.output)
        parts = [] if edge is None else edge.result.attachments
        lines += [Text(f"({one_line(part.media_type)}, {len(part.data):,} bytes)", "dim") for part in parts]
        self._from_thread(self._filled, row, edge, snapshots, lines)

    def _filled(self, row: Row, edge: Edge | None, snapshots: Sequence[Snapshot], output: Sequence[Text | str]) -> None:
        if self._forest is None:
            return
        before = self._shown
        self._shown = (row, edge, snapshots)
        same = before is not None and before[0].key == row.key
        self.query_one("#call", Lines).show(facts.call_lines(self._forest, row, edge, snapshots))
        if not same:
            self.query_one("#output", Lines).show(output)
        self._show_live(same=same)
        if self._follows and row.state not in self._looks:
            self._look(row.state)

    def _show_live(self, *, same: bool = False) -> None:
        """Fills the panes that show a fork."""
        if self._shown is None:
            return
        row, _, snapshots = self._shown
        live = self._looks.get(row.state)
        if same and live is None:
            return
        self.query_one("#processes", Lines).show(facts.process_lines(live, snapshots))
        self.query_one("#shell", Lines).show(facts.shell_lines(live))
        self._files = list(facts.file_lines(live))
        self.query_one("#files", Rows).renew(len(self._files))

    def _draw_file(self, place: int, width: int) -> Text:
        line = self._files[place]
        return line.copy() if isinstance(line, Text) else Text(line)

    def action_pane(self, name: str) -> None:
        """Shows a pane; if it is shown already, gives it the keys."""
        panes = self.query_one("#panes", TabbedContent)
        if panes.active == f"pane-{name}":
            self.query_one(f"#{name}").focus()
        panes.active = f"pane-{name}"

    def action_read(self) -> None:
        """Shows the chosen file of the pane of files, read in a fork of the state."""
        files, row = self.query_one("#files", Rows), self._at()
        live = None if row is None else self._looks.get(row.state)
        if row is None or live is None or not live.files or not files.has_focus:
            return
        state, path = row.state, sorted(live.files)[files.chosen]
        title = f"{path} of {state[:8]}"
        self._do(f"reading {title}", lambda: self._work.read(state, path), lambda lines: self._show(title, lines))

    def action_look(self) -> None:
        """Looks at the chosen state in a fork."""
        row = self._at()
        if row is not None:
            self._looks.pop(row.state, None)
            self._look(row.state)

    def action_follow(self) -> None:
        """Looks at each chosen state, or stops doing so."""
        self._follows = not self._follows
        self._tell("each state that is chosen is looked at in a fork" if self._follows else "forks are made on l alone")
        self._fill_soon()

    def _look(self, state: str) -> None:
        def looked(live: Live) -> None:
            while len(self._looks) >= LOOKS:
                del self._looks[next(iter(self._looks))]
            self._looks[state] = live
            self._show_live()

        self._do(f"looking at {state[:8]}", lambda: self._work.look(state), looked)
