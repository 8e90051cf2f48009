"""The screen of `tvsnap browse`: the tree of states, and panes about the chosen one."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.timer import Timer
from textual.widgets import Input, Static, TabbedContent, TabPane

from tvsnap.graph import Graph, RolloutRecord, Step
from tvsnap.model.errors import TvsnapError

from ...text import count, cut, one_line, visible
from . import facts
from .dialogs import Choice, Keys
from .forest import Forest, Row, along, diverged, flat, with_those_above
from .keys import BINDINGS, KEYS, PANES
from .lists import Lines, Rows
from .panes import Panes
from .queries import Query, parse
from .source import read
from .work import Work

if TYPE_CHECKING:
    from tvsnap.protocols import AnyGraph

REFRESH = 2.0
"""Seconds between two readings of the tree; reading it takes a twentieth of the time at most."""
SHARE = 20
AHEAD = 100
"""Rows in each direction for which texts are read at once."""
BESIDE = 100
"""Siblings with which a row is compared, to show their difference."""
REMEMBERED = 50_000
"""Texts of rows that are kept in memory."""
UNREADABLE = "(its record cannot be read)"


class Browser(Panes):
    """The tree of states."""

    TITLE = "tvsnap"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    CSS = """
    #head, #foot { height: 1; padding: 0 1; }
    #head { background: $primary-background; }
    #foot { color: $text-muted; }
    #filter { height: 1; border: none; display: none; }
    #filter.shown { display: block; }
    #body { height: 1fr; layout: vertical; }
    .-wide #body { layout: horizontal; }
    #left { height: 55%; }
    .-wide #left { height: 1fr; width: 58%; }
    #steps { display: none; }
    #panes { height: 1fr; }
    .-wide #panes { width: 1fr; border-left: solid $panel; }
    TabPane { padding: 0; height: 1fr; }
    ContentSwitcher { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = BINDINGS

    def __init__(self, graph: AnyGraph, work: Work, task: str | None = None, *, at: str | None = None) -> None:
        """`task` is the only one shown, unless a filter names another; `at` is the state that is chosen first."""
        super().__init__(graph, work)
        self._only_task = task
        self._query = Query()
        self._visible: list[Row] = []
        self._places: dict[str, int] = {}
        self._matching: set[str] | None = None
        self._hidden: set[str] = set()
        self._wanted = at
        self._asking = False
        self._steps: list[Step] = []
        self._rollout: RolloutRecord | None = None
        self._typed: Timer | None = None

    def compose(self) -> ComposeResult:
        """Yields the widgets."""
        yield Static("reading …", id="head", markup=False)
        with Container(id="body"):
            with Vertical(id="left"):
                yield Rows(self._draw_row, "tree")
                yield Rows(self._draw_step, "steps")
                yield Input(placeholder="text, task:NAME, tool:NAME, exit:!0, reward:>0.5, is:failing", id="filter")
            with TabbedContent(id="panes"):
                for name in PANES:
                    with TabPane(name, id=f"pane-{name}"):
                        yield Rows(self._draw_file, "files") if name == "files" else Lines(name)
        yield Static(id="foot", markup=False)

    def on_mount(self) -> None:
        """Begins to read the tree."""
        self._tree.focus()
        self._read()
        self._say()

    # The tree.

    @property
    def _chosen(self) -> Row | None:
        tree = self._tree
        return self._visible[tree.chosen] if tree.chosen < len(self._visible) else None

    @work(thread=True, group="read", exclusive=True)
    def _read(self) -> None:
        """Reads the tree, shows it, and does so again after a while."""
        began = time.monotonic()
        try:
            # Many small objects are made at once, and none of them is garbage.
            gc.disable()
            forest = Forest(read(self._graph, self._query.task or self._only_task))
            matching = self._select(forest, self._query)
        except TvsnapError as error:
            self._from_thread(self._fail, error)
        else:
            self._from_thread(self._renew, forest, matching)
        finally:
            gc.enable()
        took = time.monotonic() - began
        if not self.closing.wait(max(REFRESH, SHARE * took)):
            self._from_thread(self._read)

    def _select(self, forest: Forest, query: Query) -> set[str] | None:
        """Returns the keys of the rows that fit a filter; None without one."""
        return {row.key for row in query.rows(forest, self._graph)} if query else None

    def _renew(self, forest: Forest, matching: set[str] | None) -> None:
        """Shows the tree as it was read; the chosen row stays the same."""
        chosen = self._chosen
        self._forest, self._matching = forest, matching
        self._arrange(self._wanted or (chosen.key if chosen else None))
        self._wanted = None

    def _arrange(self, key: str | None) -> None:
        """Makes the list of visible rows, and chooses one by its key, or the nearest above it."""
        forest = self._forest
        if forest is None:
            return
        if self._matching is not None:
            only = with_those_above(forest.rows[key] for key in self._matching if key in forest.rows)
            self._visible = flat(forest.tops, only=only)
        else:
            self._visible = flat(forest.tops, self._hidden) if self._hidden else forest.order
        self._places = places = {row.key: place for place, row in enumerate(self._visible)}
        at = forest.rows.get(key) if key else None
        while at is not None and at.key not in places:
            at = at.parent
        first = 0
        if self._matching and (at is None or key not in self._matching):
            first = next((place for place, row in enumerate(self._visible) if row.key in self._matching), 0)
            at = None
        self._tree.renew(len(self._visible), first if at is None else places[at.key])
        self._say()

    def _draw_row(self, place: int, width: int) -> Text:
        row = self._visible[place]
        assert self._forest is not None
        return facts.row_line(
            self._forest,
            row,
            self._text_at(place),
            [self._texts.get(other.call.id, "") for other in row.beside[:BESIDE] if other.call is not None],
            width,
            closed=self._matching is None and row.key in self._hidden,
            marked=row.state == self._marked and not row.is_look,
            pale=self._matching is not None and row.key not in self._matching,
        )

    def _text_at(self, place: int) -> str:
        """Returns the call of a row as one line; reads those of the rows around it and of their siblings, too.

        Those of a server are drawn when they arrive, because the screen does not wait for a network.
        """
        call = self._visible[place].call
        if call is None:
            return ""
        if call.id not in self._texts:
            if len(self._texts) > REMEMBERED:
                self._texts.clear()
            around = self._visible[max(0, place - AHEAD) : place + AHEAD]
            near = {other.key: other.call for row in around for other in (row, *row.beside[:BESIDE])}
            ids = [call.id for call in near.values() if call is not None and call.id not in self._texts]
            if isinstance(self._graph, Graph):
                with contextlib.suppress(TvsnapError):
                    self._texts |= self._labels(ids)
            else:
                if not self._asking:
                    self._asking = True
                    self._ask(ids)
                return "…"
        return self._texts.setdefault(call.id, UNREADABLE)

    def _labels(self, ids: Sequence[int]) -> dict[int, str]:
        """Returns calls as one line each, by their ids; those that cannot be read are left out."""
        return {edge.id: facts.label(edge) for edge in self._graph.listed(ids)}

    @work(thread=True, group="texts")
    def _ask(self, ids: Sequence[int]) -> None:
        """Reads the texts of calls from a server."""
        try:
            labels = dict.fromkeys(ids, UNREADABLE) | self._labels(ids)
        except TvsnapError as error:
            self._from_thread(self._asked, {}, error)
        else:
            self._from_thread(self._asked, labels, None)

    def _asked(self, labels: dict[int, str], error: TvsnapError | None) -> None:
        self._asking = False
        self._texts |= labels
        if error is not None:  # the next drawing asks again
            self._fail(error)
        else:
            self._tree.refresh()

    def _go(self, row: Row | None) -> None:
        """Chooses a row of the tree, and shows it if it is hidden."""
        if row is None:
            self.bell()
            return
        self._leave_steps()
        if row.key in self._places:
            self._tree.choose(self._places[row.key])
            return
        at = row.parent
        while at is not None:
            self._hidden.discard(at.key)
            at = at.parent
        if self._matching is not None:
            self._clear_filter()
        self._arrange(row.key)

    def action_fold(self) -> None:
        """Hides the rows below the chosen one, or goes up."""
        row = self._chosen
        if row is None:
            return
        if self._matching is None and (row.children or row.looks) and row.key not in self._hidden:
            self._hidden.add(row.key)
            self._arrange(row.key)
        elif row.parent is not None:
            self._go(row.parent)

    def action_unfold(self) -> None:
        """Shows the rows below the chosen one, or goes there."""
        row = self._chosen
        if row is None:
            return
        if row.key in self._hidden:
            self._hidden.discard(row.key)
            self._arrange(row.key)
        elif row.looks or row.children:
            self._go((row.looks or row.children)[0])

    def action_fold_all(self, hide: bool) -> None:
        """Hides all that is below branches, or shows all."""
        if self._forest is None:
            return
        rows = self._forest.rows.values()
        self._hidden = {row.key for row in rows if len(row.children) > 1 or row.branch is row} if hide else set()
        row = self._chosen
        self._arrange(row.key if row else None)

    def action_along(self, step: int) -> None:
        """Goes to the next state of a rollout, or to the one before."""
        if self._rollout is not None:
            self.query_one("#steps", Rows).action_move(step)
        elif (row := self._chosen) is not None:
            self._go(along(row) if step > 0 else row.parent)

    def action_diverged(self, step: int) -> None:
        """Goes to the sibling of the branch."""
        if (row := self._chosen) is not None:
            self._go(diverged(row, step))

    def action_find(self, what: str, step: int) -> None:
        """Goes to the next row of a kind."""
        wanted: dict[str, Callable[[Row], bool]] = {
            "failing": lambda row: row.failing,
            "hit": lambda row: row.answered,
            "unkept": lambda row: row.unkept,
        }
        row, forest = self._chosen, self._forest
        if row is not None and forest is not None:
            among = self._matching
            fits = wanted[what]
            self._go(forest.following(row, lambda one: fits(one) and (among is None or one.key in among), step))

    # The filter.

    def action_filter(self) -> None:
        """Asks for a filter."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    @on(Input.Changed, "#filter")
    def _filter_typed(self) -> None:
        if self._typed is not None:
            self._typed.stop()
        self._typed = self.set_timer(0.15, partial(self._filter, self.query_one("#filter", Input).value))

    @on(Input.Submitted, "#filter")
    def _filter_chosen(self) -> None:
        self._tree.focus()

    @work(thread=True, group="filter", exclusive=True)
    def _filter(self, text: str) -> None:
        """Finds the rows that fit a filter."""
        forest = self._forest
        try:
            query = parse(text)
            matching = None if forest is None else self._select(forest, query)
        except TvsnapError as error:
            self._from_thread(self._tell, str(error))
            return
        self._from_thread(self._filtered, query, matching)

    def _filtered(self, query: Query, matching: set[str] | None) -> None:
        self._message = ""
        if query == self._query and matching == self._matching:
            return
        row = self._chosen
        if query.task != self._query.task:
            self.call_later(self._read)  # it reads the rollouts of the filter's task
        self._query, self._matching = query, matching
        self._arrange(row.key if row else None)

    def _clear_filter(self) -> None:
        if self._query.task is not None:
            self.call_later(self._read)
        self._query, self._matching = Query(), None
        field = self.query_one("#filter", Input)
        with self.prevent(Input.Changed):
            field.value = ""
        field.remove_class("shown")

    def action_return(self) -> None:
        """Leaves the steps of a rollout, or the filter."""
        row = self._chosen
        if self._rollout is not None:
            self._leave_steps()
            return
        self._marked = None
        self._clear_filter()
        self._arrange(row.key if row else None)
        self._tree.focus()

    # The panes.

    @on(Rows.Chosen, "#tree")
    def _row_chosen(self) -> None:
        if self._rollout is None:
            self._fill_soon()

    @on(Rows.Chosen, "#steps")
    def _step_chosen(self) -> None:
        if self._rollout is not None:
            self._fill_soon()

    def _at(self) -> Row | None:
        if self._rollout is None or self._forest is None:
            return self._chosen
        place = self.query_one("#steps", Rows).chosen
        edge = self._steps[place].edge if place < len(self._steps) else None
        if edge is None:
            return None
        return self._forest.rows.get(edge.next_state if edge.changed else f"={edge.id}")

    # Rollouts, call by call.

    def action_trajectory(self) -> None:
        """Steps through a rollout that came to the chosen state."""
        row, forest = self._chosen, self._forest
        if row is None or forest is None:
            return
        below = {one.state for one in flat([row])}
        came = [one for one in forest.reading.rollouts if one.state in below]
        self._choose_rollout(came[::-1], f"rollouts that came to {row.state[:8]}")

    def action_rollouts(self) -> None:
        """Steps through a rollout that is chosen from all."""
        if self._forest is not None:
            self._choose_rollout(self._forest.reading.rollouts[::-1], "rollouts, newest first")

    def _choose_rollout(self, rollouts: Sequence[RolloutRecord], title: str) -> None:
        if not rollouts:
            self._tell("no rollout came here")
            return

        def chosen(place: int | None) -> None:
            if place is not None:
                self._step_through(rollouts[place])

        if len(rollouts) == 1:
            chosen(0)
        else:
            draw = lambda place, _: facts.rollout_line(rollouts[place])  # noqa: E731
            self.push_screen(Choice(title, len(rollouts), draw), chosen)

    def _step_through(self, rollout: RolloutRecord) -> None:
        def read(steps: list[Step]) -> None:
            if not steps:
                self._tell(f"rollout {rollout.id[:8]} made no calls, or they were deleted")
                return
            self._steps, self._rollout = steps, rollout
            self._tree.display = False
            list_ = self.query_one("#steps", Rows)
            list_.display = True
            list_.renew(len(steps))
            list_.focus()
            self._say()

        self._do(f"reading rollout {rollout.id[:8]}", lambda: self._graph.steps(rollout.id), read)

    def _draw_step(self, place: int, width: int) -> Text:
        return facts.step_line(self._steps[place], width)

    def _leave_steps(self) -> None:
        """Shows the tree again, at the state of the chosen step."""
        if self._rollout is None:
            return
        row = self._at()
        self._rollout = None
        self.query_one("#steps", Rows).display = False
        self._tree.display = True
        self._tree.focus()
        self._go(row or self._chosen)

    def action_keys(self) -> None:
        """Shows a description of the keys."""
        width = max(len(keys) for keys, _ in KEYS)
        self.push_screen(Keys(Text("\n").join(Text.assemble((f"{a:<{width}}  ", "bold"), b) for a, b in KEYS)))

    def _say(self) -> None:
        """Writes the first and the last line."""
        head, foot = self.query_one("#head", Static), self.query_one("#foot", Static)
        if self._rollout is not None:
            words = facts.rollout_line(self._rollout)
            head.update(Text.assemble("rollout ", words, f"  {count(len(self._steps), 'call')}"))
        elif self._forest is not None:
            calls = len(self._forest.reading.calls)
            task = self._query.task or self._only_task
            parts = [f"task {one_line(task)}"] if task else []
            parts += [count(calls, "call"), count(len(self._forest.reading.rollouts), "rollout")]
            parts += [] if self._matching is None else [f"{len(self._matching):,} fit"]
            parts += [] if calls else ["nothing was recorded yet; try: tvsnap run terminal -c 'ls /'"]
            head.update(Text("  ".join(["tvsnap", *parts])))
        message = f"… {'; '.join(self._busy)}" if self._busy else self._message
        keys = "? keys  / filter  j k along  b sibling  f h w next  d diff  s shell  x run  t steps  q leave"
        foot.update(Text(visible(cut(one_line(message), 1000)) if message else keys, "bold" if message else ""))
