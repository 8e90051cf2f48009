"""The actions on the chosen state: comparing, a shell, a command, a grade, an export."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual import work
from textual.app import SuspendNotSupported

from ... import shell
from ...text import cut, one_line
from .background import Background
from .dialogs import Question
from .forest import Row
from .lists import Rows
from .work import Lines, Work

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
        self._do(f"comparing {title}", partial(self._work.diff, before, after), partial(self._show, title))

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
        if row is not None:
            self._ask_for(
                f"run in a fork of {row.state[:8]}", self._last_command, partial(self._run_in_fork, row.state)
            )

    def _run_in_fork(self, state: str, command: str) -> None:
        self._last_command = command
        self._do_and_show(f"{state[:8]} $ {cut(one_line(command), 60)}", partial(self._work.run, state, command))

    def action_reexecute(self) -> None:
        """Makes the chosen call again and compares."""
        row = self._at()
        if row is None or row.call is None:
            self._tell("no call led to a root")
            return
        id = row.call.id
        self._do_and_show(f"again: {self._texts.get(id, '')[:60]}", lambda: self._work.reexecute(self._graph.edge(id)))

    def action_export(self) -> None:
        """Asks for a file, and writes the chosen state into it."""
        row = self._at()
        if row is not None:
            file = f"tvsnap-{row.state[:12]}.tar"
            self._ask_for(f"write the files of {row.state[:8]} to", file, partial(self._export_to, row.state))

    def _export_to(self, state: str, path: str) -> None:
        self._do_and_show(f"export of {state[:8]}", partial(self._work.export, state, path))

    def action_grade(self) -> None:
        """Asks for a verifier, and grades the chosen state by it."""
        row = self._at()
        if row is not None:
            question = f"grade {row.state[:8]} by a command whose last line is JSON: a reward, or tests by name"
            self._ask_for(question, self._last_verifier, partial(self._grade_by, row.state))

    def _grade_by(self, state: str, command: str) -> None:
        self._last_verifier = command
        self._do_and_show(f"grade of {state[:8]}", partial(self._work.grade, state, command))

    def _ask_for(self, question: str, suggestion: str, take: Callable[[str], None]) -> None:
        """Asks for a line of text, and gives it to `take` unless the question is left."""

        def typed(text: str | None) -> None:
            if text is not None:
                take(text)

        self.push_screen(Question(question, suggestion), typed)

    def _do_and_show(self, title: str, work: Callable[[], Lines]) -> None:
        """Works in a thread, and shows the result."""
        self._do(title, work, partial(self._show, title))
