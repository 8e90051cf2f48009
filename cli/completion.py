"""Completions for the shell's TAB key: quick, and on any error an empty list instead of an exception."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvsnap.graph import Graph

OFFERED = 40


def tasks(incomplete: str) -> list[str]:
    """Offers the tasks that had rollouts."""
    with contextlib.suppress(Exception), _graph() as graph:
        return [task for task in graph.tasks() if task.startswith(incomplete)]
    return []


def images(incomplete: str) -> list[str]:
    """Offers the names of the images that are built."""
    with contextlib.suppress(Exception):
        from tvsnap.host.home import find_home
        from tvsnap.images import ImageStore

        names = {image.name for image in ImageStore(find_home()).list()}
        return sorted(name for name in names if name and name.startswith(incomplete))
    return []


def states(incomplete: str) -> list[tuple[str, str]]:
    """Offers the latest states, each with the call that led to it."""
    from .text import cut, one_line

    with contextlib.suppress(Exception), _graph() as graph:
        nodes = [node for node in graph.tree() if node.state.hash.startswith(incomplete)]
        return [
            (node.state.hash[:12], cut(one_line(str(node.made_by.call.arguments)), 50) if node.made_by else "root")
            for node in nodes[-OFFERED:]
        ]
    return []


@contextlib.contextmanager
def _graph() -> Iterator[Graph]:
    """Opens the graph if its file exists, and creates nothing."""
    from tvsnap.graph import Graph
    from tvsnap.host.home import GRAPH_FILE, find_home

    path = find_home() / GRAPH_FILE
    os.stat(path)
    with Graph(path) as graph:
        yield graph
