"""The table on the page of the zoo: what each program came to when it was last run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.zoo.runner import Outcome
from tests.zoo.table import FOLDER, Program, groups

PAGE = FOLDER.parents[1] / "docs" / "zoo.md"
BEGIN, END = "<!-- made by make zoo -->", "<!-- end of what make zoo made -->"
HEAD = "| program | what is running | processes | snapshot | result |\n|---|---|---|---|---|"
NOT_RUN = "not run yet"
_ROW = re.compile(r"^\| \*\*(.+?)\*\* \| .* \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)


def recorded(page: Path = PAGE) -> dict[str, tuple[str, str, str]]:
    """Returns the last three cells of each program's row."""
    return {name: (processes, snapshot, result) for name, processes, snapshot, result in _ROW.findall(page.read_text())}


def write(programs: list[Program], found: Mapping[str, Outcome], page: Path = PAGE) -> None:
    """Writes the tables anew; the rows of programs that were not run stay.

    Args:
        programs: the whole table.
        found: what the programs that were run came to.
        page: the page, with the two marks.
    """
    before = recorded(page)
    parts = []
    for group, title in groups().items():
        rows = [_row(each, found.get(each.name), before) for each in programs if each.group == group]
        parts.append("\n".join([f"### {title}\n", HEAD, *rows]))
    text = page.read_text()
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    page.write_text(f"{head}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{tail}")


def _row(program: Program, outcome: Outcome | None, before: Mapping[str, tuple[str, str, str]]) -> str:
    cells = before.get(program.name, ("", "", NOT_RUN))
    if outcome is not None:
        size = "" if outcome.snapshot is None else _size(outcome.snapshot)
        result = outcome.result.replace("|", "\\|")
        cells = (str(outcome.processes or ""), size, result)
    mark = " ¹" if program.in_suite else ""
    return f"| **{program.name}** | {program.does}{mark} | {' | '.join(cells)} |"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size < 100e6 else f"{size / 1e6:.0f} MB"
