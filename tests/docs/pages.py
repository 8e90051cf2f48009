"""Reads README.md and the pages of the documentation: their links, headings, prose and blocks of code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"

_FENCE = re.compile(r"^(`{3,})(\w*)\s*$")
_MARK = re.compile(r"^<!-- example: (\w+) -->$")
_NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$")
_LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Attributes:
        page: the page that it is on, relative to the repository.
        line: the number of the line with its opening fence.
        language: what stands behind the fence; empty for none.
        mark: what the comment `<!-- example: MARK -->` in the line above says; empty for none.
        text: its contents.
        not_run: why no test runs it, as the comment `<!-- not run: WHY -->` in the line above says; empty for none.
    """

    page: str
    line: int
    language: str
    mark: str
    text: str
    not_run: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass
class Page:
    """One page.

    Attributes:
        path: where it is.
        lines: all its lines.
        blocks: its blocks of code.
        prose: its lines with their numbers, without blocks of code.
    """

    path: Path
    lines: list[str]
    blocks: list[Block] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def headings(self) -> list[str]:
        return [match[1] for _, line in self.prose if (match := _HEADING.match(line))]

    @property
    def links(self) -> list[tuple[int, str]]:
        """The targets of its links, each with the number of its line; a link may go over two lines."""
        text = "\n".join(line for _, line in self.prose)
        numbers = [number for number, _ in self.prose]
        return [(numbers[text.count("\n", 0, match.start())], match[1]) for match in _LINK.finditer(text)]


def read(path: Path) -> Page:
    """Reads a page; its fences must be closed."""
    page = Page(path, path.read_text(encoding="utf-8").splitlines())
    fence, language, begun, inside = "", "", 0, list[str]()
    for number, line in enumerate(page.lines, 1):
        match = _FENCE.match(line)
        if fence:
            if line.strip() == fence:
                above = page.lines[begun - 2] if begun > 1 else ""
                mark, why = (found[1] if (found := each.match(above)) else "" for each in (_MARK, _NOT_RUN))
                page.blocks.append(Block(page.name, begun, language, mark, "\n".join(inside) + "\n", why))
                fence = ""
            else:
                inside.append(line)
        elif match:
            fence, language, begun, inside = match[1], match[2], number, []
        else:
            page.prose.append((number, line))
    assert not fence, f"{page.name}:{begun}: this block of code has no end"
    return page


@cache
def pages() -> tuple[Page, ...]:
    """Returns README.md and all pages below docs/."""
    return tuple(read(path) for path in [README, *sorted(DOCS.rglob("*.md"))])


def blocks(language: str) -> list[Block]:
    """Returns all blocks of a language."""
    return [block for page in pages() for block in page.blocks if block.language == language]


def plain(heading: str) -> str:
    """Returns the text of a heading without its markup."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")


def anchors_of_site(page: Page) -> set[str]:
    """Returns the anchors that the site's headings have (the toc extension of Python-Markdown)."""
    return {
        re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain(heading)).strip().lower()) for heading in page.headings
    }


def anchors_of_github(page: Page) -> set[str]:
    """Returns the anchors that headings have where GitHub shows a page."""
    return {re.sub(r"[^\w\- ]", "", plain(heading).lower()).replace(" ", "-") for heading in page.headings}
