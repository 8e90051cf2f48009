"""Writes pictures of the tree of states in the language of Graphviz."""

from __future__ import annotations

import math

from .tree_picture import Mark, Picture

COLOURS = ("#d98c3f", "#9fb8cf", "#6b9ac4", "#3a78b0", "#1b4f86")
"""Colours of the shades, like in `tree_svg.css`."""
NO_COLOUR = "#a8b0b8"
FORMS = {"root": "box", "kept": "box", "bare": "box", "private": "diamond", "folded": "plaintext"}


def dot(picture: Picture, title: str) -> str:
    """Returns a picture as a directed graph.

    Args:
        picture: the picture.
        title: its title.
    """
    lines = [
        "digraph tvsnap {",
        f'  graph [rankdir=LR, ranksep=0.4, nodesep=0.12, label={_quoted(title)}, labelloc=t, fontname="monospace"];',
        '  node [fontname="monospace", fontsize=10, margin="0.08,0.04", height=0.2];',
        '  edge [arrowhead=none, fontname="monospace"];',
    ]
    for number, mark in enumerate(picture.marks):
        lines.append(f"  m{number} [{_node(mark)}];")
        if mark.parent is not None:
            lines.append(f"  m{mark.parent} -> m{number} [{_edge(mark)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _node(mark: Mark) -> str:
    label = "\n".join(filter(None, [f"{mark.label} {mark.failure}".rstrip(), mark.note]))
    words = [f"label={_quoted(label)}", f"tooltip={_quoted(mark.title)}", f"shape={FORMS[mark.kind]}"]
    words += ['style="bold"'] if mark.kind in ("root", "kept") else []
    words += ['fontcolor="#b3261e"'] if mark.failure else []
    return ", ".join(words)


def _edge(mark: Mark) -> str:
    colour = NO_COLOUR if mark.shade is None else COLOURS[mark.shade]
    words = [f'color="{colour}"', f"penwidth={min(12.0, 1.5 + math.log2(mark.visits)):.3g}"]
    return ", ".join(words + ([] if mark.shared else ["style=dashed"]))


def _quoted(text: str) -> str:
    """Returns a string in which Graphviz finds no escapes of its own, nor entities of HTML; lines begin at the left."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return '"' + (escaped.replace("\n", "\\l") + "\\l" if "\n" in escaped else escaped) + '"'
