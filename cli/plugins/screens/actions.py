"""The actions on the chosen state: comparing, a shell, a command, a grade, an export."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual import work
from textual.app import SuspendNotSupported

from ... import shell
from ...text import cut, one_line
from .background import Background
from .dialogs import Question
from .forest import Row
from .lists import Rows
from .work import Work

if TYPE_CHECKING:
    from tvsnap.protocols import AnyGraph


class StateActions(Background):
    """A screen with actions on a state."""

    def __init__(self, graph: AnyGraph, work: Work) -> None:
        super().__init__()
        self._graph = graph
        self._work = work
        self._texts: dict[int, str] = {}  # calls as one line each, by their ids
        self._marked: str | None = None
        self._last_command = ""
        self._last_verifier = ""

    @abstractmethod
    def _at(self) -> Row | None:
        """Returns the row of the panes: the chosen one, or that of the chosen step of a rollout."""

    @property
    def _tree(self) -> Rows:
        return self.query_one("#tree", Rows)

    def action_mark(self) -> None:
        """Marks a state; at a second one, shows how both differ."""
        row = self._at()
        if row is None:
            return
        if self._marked in (None, row.state):
            self._marked = None if self._marked else row.state
            self._tell(f"{row.state[:8]} is marked: d at another state shows how they differ" if self._marked else "")
            self._tree.refresh()
            return
        before, self._marked = str(self._marked), None
        self._tree.refresh()
        self._diff(before, row.state)

    def action_diff_above(self) -> None:
        """Shows the changes of the last call."""
        row = self._at()
        if row is not None and row.parent is not None:
            self._diff(row.parent.state, row.state)

    def _diff(self, before: str, after: str) -> None:
        title = f"from {before[:8]} to {after[:8]}"
        self._do(f"comparing {title}", lambda: self._work.diff(before, after), lambda lines: self._show(title, lines))

    def action_shell(self) -> None:
        """Opens a shell in a fork of the chosen state."""
        row = self._at()
        if row is not None:
            self._enter(row.state)

    @work(thread=True, group="sandbox")
    def _enter(self, state: str) -> None:
        with self._noted(f"forking {state[:8]}"), self._work.cache.materialise(state) as sandbox:

            def interact() -> None:
                try:
                    with self.suspend():
                        shell.greet(state)
                        shell.interact(sandbox.attach)
                except SuspendNotSupported:
                    self._tell("a shell needs a terminal: use x to run one command")

            self._from_thread(interact)

    def action_run_command(self) -> None:
        """Asks for a command, and runs it in a fork of the chosen state."""
        row = self._at()
        if row is None:
            return
        state = row.state

        def typed(command: str | None) -> None:
            if command is not None:
                self._last_command = command
                title = f"{state[:8]} $ {cut(one_line(command), 60)}"
                self._do(title, lambda: self._work.run(state, command), lambda lines: self._show(title, lines))

        self.push_screen(Question(f"run in a fork of {state[:8]}", self._last_command), typed)

    def action_reexecute(self) -> None:
        """Makes the chosen call again and compares."""
        row = self._at()
        if row is None or row.call is None:
            self._tell("no call led to a root")
            return
        call = row.call
        title = f"again: {self._texts.get(call.id, '')[:60]}"
        again = lambda: self._work.reexecute(self._graph.edge(call.id))  # noqa: E731
        self._do(title, again, lambda lines: self._show(title, lines))

    def action_export(self) -> None:
        """Asks for a file, and writes the chosen state into it."""
        row = self._at()
        if row is None:
            return
        state = row.state

        def typed(path: str | None) -> None:
            if path is not None:
                title = f"export of {state[:8]}"
                self._do(title, lambda: self._work.export(state, path), lambda lines: self._show(title, lines))

        self.push_screen(Question(f"write the files of {state[:8]} to", f"tvsnap-{state[:12]}.tar"), typed)

    def action_grade(self) -> None:
        """Asks for a verifier, and grades the chosen state by it."""
        row = self._at()
        if row is None:
            return
        state = row.state

        def typed(command: str | None) -> None:
            if command is not None:
                self._last_verifier = command
                title = f"grade of {state[:8]}"
                self._do(title, lambda: self._work.grade(state, command), lambda lines: self._show(title, lines))

        question = f"grade {state[:8]} by a command whose last line is JSON: a reward, or tests by name"
        self.push_screen(Question(question, self._last_verifier), typed)
