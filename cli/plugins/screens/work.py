"""Work on a state, done in threads: nothing here touches the screen."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from rich.syntax import Syntax
from rich.text import Text

from tvsnap.graph import Edge
from tvsnap.model.observations import FolderListing
from tvsnap.upkeep.diff import FileDifference, StateDifference, compare_states

from ... import context
from ...image_export import export_state
from ...text import ago, count, one_line, seconds, size, visible
from .facts import Live
from .output import lines_of

if TYPE_CHECKING:
    from tvsnap.protocols import AnyCache

Lines = list[Text | str]

TIMEOUT = 600.0
"""Seconds that a command typed by a person may take."""
THEME = "ansi_dark"
COLOURED = 200_000
"""Characters of a patch that are coloured by the syntax of its file at most."""


class Work:
    """The cache that provides sandboxes, opened when the first one is needed."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._cache: AnyCache | None = None

    @property
    def cache(self) -> AnyCache:
        """The cache of the data directory, or the chosen server."""
        with self._lock:
            if self._cache is None:
                self._cache = self._stack.enter_context(context.any_cache())
            return self._cache

    def close(self) -> None:
        """Ends all sandboxes."""
        self._stack.close()

    def look(self, state: str) -> Live:
        """Returns a look at a fork of a state."""
        with self.cache.materialise(state) as sandbox:
            return Live(sandbox.processes(), dict(sandbox.shell_state()), dict(sandbox.changes()))

    def run(self, state: str, command: str) -> Lines:
        """Returns the result of a command in a temporary fork of a state."""
        with self.cache.materialise(state) as sandbox:
            outcome = sandbox.run(command, timeout=TIMEOUT)
        status = "timed out" if outcome.timed_out else f"exit {outcome.exit_code}"
        style = "green" if outcome.exit_code == 0 and not outcome.timed_out else "red"
        facts = Text.assemble((status, style), (f", {seconds(outcome.duration)}", "dim"))
        return [facts, "", *lines_of(outcome.output.decode("utf-8", "replace"))]

    def read(self, state: str, path: str) -> Lines:
        """Returns the lines of a file in a fork of a state, or a folder's list."""
        with self.cache.materialise(state) as sandbox:
            try:
                data = sandbox.read_file(path, limit=1 << 20)
            except IsADirectoryError:
                return folder_lines(sandbox.list_folder(path))
        return lines_of(data.decode("utf-8", "replace"))

    def diff(self, before: str, after: str) -> Lines:
        """Returns the differences of two states."""
        from tvsnap.cache import Cache

        cache = self.cache
        if isinstance(cache, Cache):
            difference = compare_states(cache, before, after, patch=True)
        else:
            difference = cache.diff(StateDifference, before, after, patch=True)
        return difference_lines(difference)

    def reexecute(self, edge: Edge) -> Lines:
        """Makes a call again; returns its differences from the record."""
        remade = self.cache.reexecute(edge)
        differs = remade.difference(edge)
        words = "it came to the same" if differs is None else f"it {one_line(differs)}"
        head = Text.assemble((words, "green" if differs is None else "red"))
        took = f"took {seconds(remade.result.duration)}, recorded {seconds(edge.result.duration)}"
        lines: Lines = [head, Text(took, "dim"), "", Text("printed now", "bold"), *lines_of(remade.result.output)]
        if not remade.result.same_value(edge.result):
            lines += ["", Text("as recorded", "bold"), *lines_of(edge.result.output)]
        return lines

    def export(self, state: str, path: str) -> Lines:
        """Writes the files of a state for `docker load`; returns the command that loads them."""
        cache = self.cache
        written = export_state(cache, cache.graph.resolve(state), str(Path(path).expanduser()))
        return [f"wrote {one_line(path)}: {size(written)}", f"load it: docker load -i {one_line(path)}"]

    def grade(self, state: str, command: str) -> Lines:
        """Returns the grade that a verifier gives to a state."""
        with self.cache.resume(state, label="browse") as rollout:
            grade = rollout.grade(command)
        lines: Lines = [Text.assemble(("reward ", "dim"), (f"{grade.reward:g}", "bold")), ""]
        for name, value in grade.tests.items():
            lines.append(Text.assemble((f"{value:>6.3g}  ", "green" if value >= 1 else "red"), one_line(name)))
        return [*lines, "", *lines_of(grade.log)]


def folder_lines(listing: FolderListing) -> Lines:
    """Returns one level of a folder as lines."""
    lines: Lines = [
        Text.assemble(
            (f"{'' if one.kind == 'file' else one.kind:>16}  {one.mode:04o}  {one.uid}:{one.gid}  ", "dim"),
            (f"{size(one.size):>8}  {ago(one.mtime_ns / 1e9):>16}  ", "dim"),
            (one_line(one.name), "cyan" if one.kind == "directory" else ""),
            (f" -> {one_line(one.target)}" if one.target else "", "dim"),
        )
        for one in listing.entries
    ]
    if listing.cut:
        lines.append(Text(f"the folder has more names than these {len(lines):,}", "yellow"))
    return lines or [Text("the folder is empty", "dim")]


def difference_lines(difference: StateDifference) -> Lines:
    """Returns a difference of two states as lines, the patches in the colours of their files' languages."""
    lines: Lines = []
    if difference.files:
        lines.append(Text(count(len(difference.files), "file"), "bold"))
    for file in difference.files:
        style = {"+": "green", "-": "red", "M": "yellow"}[file.kind]
        sizes = [size(side.size) for side in (file.before, file.after) if side is not None and side.kind == "file"]
        about = ", ".join(filter(None, [" -> ".join(dict.fromkeys(sizes)), file.what]))
        lines.append(Text.assemble((f"{file.kind} {one_line(file.path)}", style), (f"  {about}", "dim")))
        lines += patch_lines(file)
    for title, ended, started in (("processes", difference.ended, difference.started),):
        if ended or started:
            lines += ["", Text(title, "bold")]
        lines += [Text(f"- {one.pid:>6}  {one_line(one.command)}", "red") for one in ended]
        lines += [Text(f"+ {one.pid:>6}  {one_line(one.command)}", "green") for one in started]
    if difference.shell:
        lines += ["", Text("shell", "bold")]
    for item in difference.shell:
        for sign, style, value in (("-", "red", item.before), ("+", "green", item.after)):
            if value is not None:
                lines.append(Text(f"{sign} {one_line(item.name)}: {one_line(value)[:2000]}", style))
    return lines or [Text("no difference", "dim")]


def patch_lines(file: FileDifference) -> Lines:
    """Returns a patch as lines: signs mark removed and added ones, the colours are of the file's language."""
    texts = visible(file.patch).splitlines()[2:]
    if not texts:
        return []
    code = "\n".join(text[1:] for text in texts)
    coloured: list[Text | None] = [None] * len(texts)
    if len(code) <= COLOURED:
        lexer = Syntax.guess_lexer(file.path, code)
        syntax = Syntax(code, lexer, theme=THEME, background_color="default")
        highlighted = list(syntax.highlight(code).split("\n", allow_blank=True))
        coloured[: len(highlighted)] = highlighted[: len(texts)]
    lines: Lines = []
    for text, line in zip(texts, coloured, strict=True):
        sign = text[:1]
        if sign in ("@", "\\"):
            lines.append(Text(f"    {text}", "cyan"))
            continue
        style = {"+": "green", "-": "red"}.get(sign, "")
        shown = Text.assemble((f"  {sign} ", f"bold {style}".strip()))
        shown.append_text(line if line is not None else Text(text[1:], style))
        if style:
            shown.stylize(f"on {'#12301a' if sign == '+' else '#3a1518'}")
        lines.append(shown)
    return lines
