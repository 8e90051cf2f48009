"""`tvsnap browse`: the tree on a screen, driven by Textual's pilot."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from rich.text import Text
from textual._compositor import Compositor
from textual.pilot import Pilot
from textual.widgets import Input

from cli.plugins.screens import forest as forests
from cli.plugins.screens.browser import Browser
from cli.plugins.screens.dialogs import Choice, Question, Result
from cli.plugins.screens.lists import Lines, Rows
from cli.plugins.screens.output import lines_of
from cli.plugins.screens.queries import Query, parse
from cli.plugins.screens.source import read
from cli.plugins.screens.work import Work
from tests.fakes.caches import bash, open_cache, settle
from tests.unit.cli_helpers import CommandLine, make_command_line
from tests.unit.graph_helpers import add_root, call, look, result, step, walk
from tvsnap import UsageError
from tvsnap.graph import Graph, NewEdge
from tvsnap.model.calls import next_state

T = TypeVar("T")
HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \x9b\x07\u202e 漢字 \x1b[?1049h\r\nplain"


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return make_command_line(tmp_path, monkeypatch)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph(tmp_path / "graph.db") as opened:
        yield opened


class Screen:
    """A browser that runs, and its pilot."""

    def __init__(self, browser: Browser, pilot: Pilot[None]) -> None:
        self.browser = browser
        self.pilot = pilot

    @property
    def lines(self) -> list[str]:
        """The text of the screen."""
        strips = self.browser.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        """The same as one text, which is checked to have no control characters."""
        text = "\n".join(self.lines)
        assert not [char for char in text if char != "\n" and (ord(char) < 32 or 0x7F <= ord(char) < 0xA0)]
        return text

    async def press(self, *keys: str) -> None:
        """Presses keys."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        """Types a text."""
        names = {" ": "space", ":": "colon", "!": "exclamation_mark", ">": "greater_than_sign", "-": "minus"}
        await self.press(*(names.get(char, char) for char in text))

    async def until(self, *words: str, gone: str = "\0") -> str:
        """Waits until all words are on the screen, and another one is not; returns the screen's text."""
        for _ in range(600):
            await self.pilot.pause()
            text = self.text  # drawn anew each time
            if all(word in text for word in words) and gone not in text:
                return text
            await asyncio.sleep(0.05)
        raise AssertionError(f"{words} never came:\n{self.text}")

    @property
    def chosen(self) -> str:
        """The chosen row's key."""
        row = self.browser._chosen
        assert row is not None
        return row.key


@pytest.fixture(autouse=True)
def drawn_for_us_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws nothing for the terminal, which is not there: `Screen.lines` draws what it shows, whole and anew."""

    def draw_nothing(compositor: Compositor, **_: Any) -> None:
        compositor._dirty_regions.clear()

    monkeypatch.setattr(Compositor, "render_update", draw_nothing)


@contextlib.asynccontextmanager
async def screen_of(graph: Any, size: tuple[int, int] = (150, 30), **options: Any) -> AsyncIterator[Screen]:
    work = Work()
    browser = Browser(graph, work, **options)
    try:
        async with browser.run_test(size=size) as pilot:
            screen = Screen(browser, pilot)
            await screen.until("tvsnap  ")
            yield screen
            browser.closing.set()
    finally:
        work.close()


def drive(function: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        return await function()

    return asyncio.run(run())


def fail(graph: Graph, state: str, command: str, output: str = "") -> str:
    made = call(command)
    after = next_state(state, made)
    graph.record(NewEdge(state, made, result(output, 0.1, 2), next_state=after))
    return after


def test_the_tree_and_its_panes(graph: Graph) -> None:
    root = add_root(graph)
    states = walk(graph, root, "make install", "make test")
    look(graph, states[1], "cat prices.py", HOSTILE)
    other = fail(graph, states[1], "python3 broken.py", "Traceback: \x1b[1;31mbad\x1b[0m")

    async def see() -> None:
        async with screen_of(graph) as screen:
            text = await screen.until("python3 broken.py")
            shown = [line[:87].rstrip(" │") for line in text.splitlines()[1:6]]
            assert shown == [
                f"○ {root[:8]} terminal  0 rollouts",
                f"○ {states[1][:8]} make install".ljust(65) + "   100 ms",
                "│ = cat prices.py".ljust(65) + "   100 ms",
                f"├─○ {states[2][:8]} make test".ljust(65) + "   100 ms",
                f"└─◌ {other[:8]} python3 broken.py ✗ 2".ljust(65) + "   100 ms",
            ]
            await screen.press("f")
            assert screen.chosen == other
            await screen.press("2")
            await screen.until("Traceback: bad")
            await screen.press("b")
            assert screen.chosen == states[2]
            await screen.press("k", "j")
            assert screen.chosen.startswith("=")
            await screen.until("red", "漢字", "plain")
            await screen.press("left")
            assert screen.chosen == states[1]
            await screen.press("left")
            await screen.until("▸", gone="python3 broken.py")
            await screen.press("f")
            assert screen.chosen == other

    drive(see)


def test_the_tree_grows_while_it_is_looked_at(graph: Graph) -> None:
    root = add_root(graph)
    walk(graph, root, "one")

    async def see() -> None:
        async with screen_of(graph) as screen:
            await screen.until("one")
            await screen.press("down")
            chosen = screen.chosen
            walk(graph, root, "another")
            await screen.until("another")
            assert screen.chosen == chosen

    drive(see)


def test_a_filter_shows_what_fits_as_it_is_typed(graph: Graph) -> None:
    root = add_root(graph)
    first, second = step(graph, root, "echo hello", "needle", task="a"), step(graph, root, "ls", task="b")
    other = fail(graph, root, "false")
    rollout = graph.begin_rollout(task="b", image="terminal", root=root)
    graph.end_rollout(rollout.id, second.next_state)
    graph.record_reward(rollout.id, 0.75)
    graph.flush()

    async def see() -> None:
        async with screen_of(graph) as screen:
            await screen.until("echo hello", "[0.75]")
            await screen.press("slash")
            await screen.type("needle")
            await screen.until("echo hello", "1 fit", gone="false")
            assert screen.chosen == first.next_state
            field = screen.browser.query_one("#filter", Input)
            for text, fits in (
                ("task:b", second.next_state),
                ("exit:!0", other),
                ("is:failing", other),
                ("reward:>0.5", second.next_state),
                ("tool:bash HELLO", first.next_state),
            ):
                field.value = text
                for _ in range(600):
                    await screen.pilot.pause(0.05)
                    if screen.browser._matching == {fits}:
                        break
                assert screen.browser._matching == {fits}, text
                assert screen.chosen == fits
            field.value = "exit:x"
            await screen.until("exit: takes a number")
            await screen.press("enter", "escape")
            await screen.until("echo hello", "false", gone="fit")

    drive(see)


def test_a_task_is_shown_alone(graph: Graph) -> None:
    root = add_root(graph)
    first = step(graph, root, "echo hello", task="fix it")
    step(graph, first.next_state, "pwd", task="fix it")
    step(graph, root, "ls", task="b")

    async def see() -> None:
        async with screen_of(graph, task="fix it") as screen:
            await screen.until("task fix it  2 calls", "echo hello", "pwd", gone=" ls ")
            await screen.press("slash")
            await screen.type("hello")
            await screen.press("enter")
            await screen.until("1 fit", gone="pwd")
            await screen.press("escape")
            await screen.until("echo hello", "pwd", gone="fit  ")
            assert " ls " not in screen.text, "the task stays when a filter is left"
            await screen.press("slash")
            await screen.type("task:b")
            await screen.press("enter")
            await screen.until("task b", " ls ", gone="hello")
            await screen.press("escape")
            await screen.until("task fix it", "echo hello", gone=" ls ")

    drive(see)


def test_roots_of_one_image_are_told_apart(graph: Graph) -> None:
    for salt in ("run-7", "run-8"):
        step(graph, add_root(graph, salt=salt), "ls")

    async def see() -> None:
        async with screen_of(graph) as screen:
            await screen.until("salt run-7", "salt run-8")

    drive(see)


TITLES = ['a [a="', "x[/", "[$error]c [RED] [50%]", "back\\slash [red]a[/b]", "[@click=app.bell]x[/]"]


def test_siblings_are_told_apart_where_they_are_cut(graph: Graph) -> None:
    root = add_root(graph)
    long = "python3 /srv/shop/orders.py --database /srv/shop/orders.db --from 2026-01-01 --until 2026-12-31 --format"
    for form in ("csv", "json"):
        step(graph, root, f"{long} {form}")
        look(graph, root, f"{long} {form} --dry-run")

    async def see() -> None:
        async with screen_of(graph) as screen:
            text = await screen.until("…csv ", "…json ", "…csv --dry-run", "…json --dry-run")
            assert text.count("python3 …") == 4

    drive(see)


def test_titles_are_no_markup(graph: Graph) -> None:
    add_root(graph)

    async def see() -> None:
        async with screen_of(graph) as screen:
            for title in TITLES:
                for dialog in (
                    Result(title, ["text"]),
                    Question(title),
                    Choice(title, 1, lambda _place, _width: Text("row")),
                ):
                    screen.browser.push_screen(dialog)
                    await screen.until(title)
                    await screen.press("escape")

    drive(see)


def test_a_long_output_with_control_sequences(graph: Graph) -> None:
    output = "".join(f"\x1b[3{n % 8}mline {n}\x1b[0m 漢字\x1b[{n}A\n" for n in range(10_000)) + "y" * 100_000
    made = step(graph, add_root(graph), "yes", output)

    async def see() -> None:
        async with screen_of(graph, size=(120, 20), at=made.next_state) as screen:
            await screen.press("2")
            await screen.until("line 0 漢字")
            lines = screen.browser.query_one("#output", Lines)
            lines.focus()
            await screen.press("end")
            assert "yyyy" in await screen.until("yyyy")

    drive(see)


def test_a_graph_without_calls(graph: Graph) -> None:
    async def see() -> None:
        async with screen_of(graph) as screen:
            await screen.until("nothing was recorded yet")
            await screen.press(
                "j", "k", "b", "f", "left", "right", "d", "D", "s", "x", "r", "e", "g", "t", "T", "l", "z"
            )
            await screen.press("question_mark")
            await screen.until("a shell in a fork")

    drive(see)


def make_rollouts(line: CommandLine) -> tuple[str, str]:
    """Makes two rollouts that diverge; returns where they ended."""
    ends = []
    with open_cache(line.home, line.backend) as cache:
        for command in ("echo 1 > f", "echo 2 > f"):
            with cache.rollout("terminal", "fix it", label="mine") as rollout:
                bash(rollout, "echo 0 > g")
                settle(rollout)
                bash(rollout, command)
                settle(rollout)
                bash(rollout, "cat f")
                settle(rollout)
                ends.append(rollout.state)
            rollout.record(float(command[5]))
    return ends[0], ends[1]


def test_what_is_done_with_a_state(line: CommandLine, tmp_path: Path) -> None:
    first, second = make_rollouts(line)
    with line.graph() as graph:

        async def see() -> None:
            async with screen_of(graph, at=first) as screen:
                await screen.until("echo 1 > f", "[1]", "[2]")
                assert screen.chosen == first
                await screen.press("x")
                await screen.until("run in a fork")
                await screen.type("cat f")
                await screen.press("enter")
                await screen.until("exit 0", "1")
                assert isinstance(screen.browser.screen, Result)
                await screen.press("escape", "r")
                await screen.until("it came to the same")
                await screen.press("escape", "d")
                await screen.until("is marked")
                await screen.press("b", "d")
                await screen.until(f"from {first[:8]} to {second[:8]}", "1 file", "/f")
                await screen.press("escape", "3", "l")
                await screen.until("bash", gone="looking at")
                await screen.press("5")
                await screen.until("/f", "2 B")
                await screen.press("5", "enter")
                await screen.until("/f of ", "escape: back")
                await screen.press("escape", "s")
                await screen.until("a shell needs a terminal")

        drive(see)
    assert not line.backend.live


def test_a_rollout_call_by_call(line: CommandLine) -> None:
    first, _ = make_rollouts(line)
    with line.graph() as graph:

        async def see() -> None:
            async with screen_of(graph, at=first) as screen:
                await screen.until("echo 1 > f")
                await screen.press("t")
                await screen.until("rollout", "3 calls", "echo 0 > g", "cat f", gone="echo 2 > f")
                await screen.press("j", "2", "down")
                steps = screen.browser.query_one("#steps", Rows)
                assert steps.chosen == 2
                await screen.press("escape")
                await screen.until("echo 2 > f")
                assert screen.chosen.startswith("=")
                await screen.press("T")
                await screen.until("rollouts, newest first", "fix it", "mine", "reward 2")
                await screen.press("enter")
                await screen.until("rollout", "echo 2 > f")

        drive(see)


def test_errors_are_told_in_the_last_line(line: CommandLine) -> None:
    first, _ = make_rollouts(line)
    with line.graph() as graph:

        async def see() -> None:
            async with screen_of(graph, at=first) as screen:
                await screen.until("echo 1 > f")
                await screen.press("g")
                await screen.until("grade")
                await screen.type("true")
                await screen.press("enter")
                await screen.until("✗ ")

        drive(see)


def test_it_needs_a_terminal(line: CommandLine) -> None:
    assert "needs a terminal" in line.error("browse", status=2)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("", Query()),
        ("task:", Query()),
        ('task:"fix it" two words', Query(task="fix it", text="two words")),
        ("tool:bash exit:!=0 is:hit", Query(tool="bash", exit=("!=", 0.0), words=("is:hit",))),
        ("reward:-0.5", Query(reward=("", -0.5))),
        ("http://x", Query(text="http://x")),
    ],
)
def test_what_is_typed_as_a_filter(text: str, query: Query) -> None:
    assert parse(text) == query


@pytest.mark.parametrize("text", ["exit:one", "reward:>", "is:odd"])
def test_filters_that_mean_nothing(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("", [""]),
        ("a\nb\n", ["a", "b"]),
        ("1 %\r2 %\r\nend", ["2 %", "end"]),
        ("\x1b]0;x\x07a\x1b[2Jb\x1b(Bc", ["abc"]),
        ("\x1b[" + "9" * 5000 + "mx", ["x"]),
        ("\x1b[31mred\nstill", ["red", "still"]),
        ("a\x00\x9bb\u202e", ["a^@\\x9bb\\u202e"]),
        ("\x1b", ["^["]),
        ("z" * 4500, ["z" * 2000, "z" * 2000, "z" * 500]),
    ],
)
def test_outputs_become_lines(output: str, shown: list[str]) -> None:
    lines = lines_of(output)
    assert [line.plain if isinstance(line, Text) else line for line in lines] == shown


def test_colours_last_beyond_a_line() -> None:
    first, second = lines_of("\x1b[31mred\nstill\x1b[0m no")
    assert isinstance(first, Text)
    assert isinstance(second, Text)
    assert [str(span.style) for span in second.spans] == ["color(1)"]


def test_lines_of_deep_trees_are_bounded(graph: Graph) -> None:
    at = add_root(graph)
    for n in range(60):
        walk(graph, at, f"other {n}")
        at = step(graph, at, f"next {n}").next_state
    made = forests.Forest(read(graph))
    drawn = forests.lines_before(made.rows[at])
    assert len(drawn) == 2 * forests.LEVELS + 1
    assert drawn.startswith("…")
    assert len(made.order) == 121
