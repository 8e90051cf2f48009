"""Writes pictures of the tree of states as SVG, and as pages of HTML that hold one; neither asks for another file."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator

from .page import brought
from .page import page as whole_page
from .tree_picture import Mark, Picture

COLUMN, ROW = 240, 30
"""The width of a column and the height of a row, in pixels."""
LEFT, TOP = 250, 74
"""The place of the first column and the first row, in pixels."""
LEAST_WIDTH = 900
BEND = 34
"""Pixels of an edge that are bent; the rest of it is straight, with the label above."""
RADIUS = 5
WIDEST = 12.0


def svg(picture: Picture, title: str) -> str:
    """Returns a picture as a file of SVG.

    Args:
        picture: the picture.
        title: its title.
    """
    style = f"<style>{brought('tree_svg.css')}</style>"
    return _drawn(picture, title, 'xmlns="http://www.w3.org/2000/svg" ', style) + "\n"


def page(picture: Picture, title: str) -> str:
    """Returns a page of HTML with a picture that can be searched, with branches that can be collapsed.

    Args:
        picture: the picture.
        title: its title.
    """
    body = f"""<header>
<label for="search">Search</label>
<input id="search" type="search" autocomplete="off" placeholder="calls, states, exit status">
<output id="found" for="search"></output>
<button id="collapse" type="button">Collapse all</button>
<button id="expand" type="button">Expand all</button>
</header>
<main>
{_drawn(picture, title, "", "")}
</main>"""
    return whole_page(title, body, brought("tree_svg.css") + brought("tree_page.css"), brought("tree_page.js"))


def _drawn(picture: Picture, title: str, attributes: str, style: str) -> str:
    width = max(LEAST_WIDTH, LEFT + COLUMN * (picture.columns - 1) + 30)
    height = TOP + ROW * (picture.rows - 1) + 30
    parts = [
        f'<svg {attributes}width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="group">',
        f"<title>{html.escape(title)}</title>",
        style,
        '<rect class="paper" width="100%" height="100%"/>',
        f'<text class="head" x="16" y="24">{html.escape(title)}</text>',
        *_legend(picture),
        f'<g id="tree" data-row="{ROW}" data-column="{COLUMN}" data-bend="{BEND}"'
        f' data-top="{TOP}" data-left="{LEFT}" data-radius="{RADIUS}">',
        *(_mark(picture, number, mark) for number, mark in enumerate(picture.marks)),
        "</g>",
        "</svg>",
    ]
    return "\n".join(filter(None, parts))


def _legend(picture: Picture) -> Iterator[str]:
    x = 16.0
    for number, words in enumerate(picture.shades):
        yield f'<path class="edge s{number}" stroke-width="6" d="M{x:g} 42h22"/>'
        yield f'<text class="note" x="{x + 27:g}" y="46">{html.escape(words)}</text>'
        x += 40 + 6 * len(words)
    for kind, words in (("kept", "has a snapshot"), ("bare", "has none"), ("private", "private"), ("folded", "folded")):
        yield f'<g transform="translate({x + 6:g} 42)">{_form(kind)}</g>'
        yield f'<text class="note" x="{x + 16:g}" y="46">{words}</text>'
        x += 29 + 6 * len(words)
    yield f'<path class="edge unshared" stroke-width="2" d="M{x:g} 42h22"/>'
    yield f'<text class="note" x="{x + 27:g}" y="46">not shared</text>'


def _mark(picture: Picture, number: int, mark: Mark) -> str:
    """Returns a mark with the edge that leads to it; its place is the origin."""
    y = TOP + ROW * mark.row
    edge = ""
    if mark.parent is not None:
        above = ROW * (picture.marks[mark.parent].row - mark.row)
        shade = "" if mark.shade is None else f" s{mark.shade}"
        unshared = "" if mark.shared else " unshared"
        bend = f"M{RADIUS - COLUMN} {above:g}C{BEND - COLUMN} {above:g} {-COLUMN} 0 {BEND - COLUMN} 0H0"
        edge = f'<path class="edge{shade}{unshared}" stroke-width="{_width(mark.visits):g}" d="{bend}"/>'
    parent = "" if mark.parent is None else f' data-parent="{mark.parent}"'
    x, anchor = (BEND + 4 - COLUMN, "") if edge else (-2 * RADIUS, ' text-anchor="end"')
    lift = _width(mark.visits) / 2 + 3 if edge else -4
    failure = f'<tspan class="failure"> {html.escape(mark.failure)}</tspan>' if mark.failure else ""
    note = (
        f'<text class="note" x="{x}" y="{abs(lift) + (7 if edge else 12):g}"{anchor}>{html.escape(mark.note)}</text>'
        if mark.note
        else ""
    )
    return (
        f'<g class="mark" id="m{number}"{parent} transform="translate({LEFT + COLUMN * mark.column} {y:g})">'
        f"<title>{html.escape(mark.title)}</title>{edge}"
        f'<text x="{x}" y="{-lift:g}"{anchor}>{html.escape(mark.label)}{failure}</text>{note}{_form(mark.kind)}</g>'
    )


def _form(kind: str) -> str:
    if kind in ("private", "folded"):
        turned = ' transform="rotate(45)"' if kind == "private" else ""
        return f'<rect class="{kind}" x="-4" y="-4" width="8" height="8"{turned}/>'
    return f'<circle class="{kind}" r="{RADIUS}"/>'


def _width(visits: int) -> float:
    """Returns the width of an edge: a pixel more for twice the visits."""
    return round(min(WIDEST, 1.5 + math.log2(visits)), 2)
