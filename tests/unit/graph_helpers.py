"""What the graph's tests share: short ways to fill a graph, and a check of its inner order."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from tvsnap.graph import Edge, Graph, Lease, NewEdge, RootInfo, Snapshot
from tvsnap.model.calls import ToolCall, ToolResult, next_state, root_state
from tvsnap.model.observations import Captures


def call(command: str) -> ToolCall:
    """Returns a call of `bash`."""
    return ToolCall("bash", {"command": command})


def result(
    output: str = "", duration: float = 0.1, exit_code: int | None = 0, *, timed_out: bool = False
) -> ToolResult:
    """Returns a result; one that timed out was blocked."""
    return ToolResult.of_text(output, exit_code, duration, timed_out=timed_out, blocked=timed_out)


def claim(
    graph: Graph, state: str, command: str, owner: str, is_alive: Callable[[str], bool] = lambda owner: True
) -> bool:
    """Claims a call that is not recorded; returns whether `owner` has its lease now."""
    found = graph.claim(state, call(command), 30.0, owner=owner, is_alive=is_alive)
    assert isinstance(found, Lease)
    return found.owner == owner


def add_root(graph: Graph, salt: str = "", image: str = "terminal") -> str:
    """Adds a root state and returns its name."""
    root = root_state(
        image=image, environment="terminal", version="1", limits="", network="none", platform="x86_64", salt=salt
    )
    graph.ensure_root(RootInfo(root, image, f"sha256:{image}", "terminal", "", salt, time.time()))
    return root


def step(graph: Graph, state: str, command: str, output: str = "", *, task: str = "", duration: float = 0.1) -> Edge:
    """Records a shared call that changes the state, and does the same each time."""
    made = call(command)
    after = next_state(state, made)
    return graph.record(NewEdge(state, made, result(output, duration), next_state=after, task=task, proven=True))


def look(graph: Graph, state: str, command: str, output: str = "", *, task: str = "") -> Edge:
    """Records a shared call that changes nothing."""
    return graph.record(NewEdge(state, call(command), result(output), next_state=state, task=task))


def walk(graph: Graph, state: str, *commands: str, task: str = "") -> list[str]:
    """Records calls one after another and returns the states passed, `state` first."""
    states = [state]
    for command in commands:
        states.append(step(graph, states[-1], command, task=task).next_state)
    return states


def snapshot_of(state: str, id: str = "", backend: str = "fake", created: float = 100.0) -> Snapshot:
    """Returns a snapshot of a state."""
    captures = Captures(files=True, processes=True, shell=False)
    return Snapshot(
        state, id or f"snap-{state[:8]}", backend, 4096, captures, 0.02, None, ("sleep 5",), created, created
    )


# Each query finds what must not be.
_DISORDER = {
    "a state without the edge that made it": """
        SELECT 1 FROM states s WHERE s.parent IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM edges e WHERE e.id = s.edge AND e.next_state = s.hash AND e.state = s.parent)""",
    "a root without its description": """
        SELECT 1 FROM states s WHERE s.parent IS NULL AND s.hash NOT IN (SELECT state FROM roots)""",
    "a description without its root": "SELECT 1 FROM roots WHERE state NOT IN (SELECT hash FROM states)",
    "a state whose depth, root or privacy is not its parent's": """
        SELECT 1 FROM states s JOIN states p ON p.hash = s.parent
        WHERE s.depth != p.depth + 1 OR s.root != p.root OR (p.private != '' AND s.private != p.private)""",
    "an edge from nowhere": "SELECT 1 FROM edges WHERE state NOT IN (SELECT hash FROM states)",
    "an edge to nowhere": """
        SELECT 1 FROM edges e WHERE e.next_state IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM states s WHERE s.hash = e.next_state AND s.edge = e.id)""",
    "an edge that nobody visited": "SELECT 1 FROM edges WHERE id NOT IN (SELECT edge FROM visits)",
    "a visit to nowhere": "SELECT 1 FROM visits WHERE edge NOT IN (SELECT id FROM edges)",
    "a visit of no task": "SELECT 1 FROM visits WHERE task NOT IN (SELECT id FROM tasks)",
    "a snapshot of nothing": "SELECT 1 FROM snapshots WHERE state NOT IN (SELECT hash FROM states)",
}


def disorder(path: Path) -> list[str]:
    """Returns what is wrong with the graph in a file, in words; empty if all is well."""
    connection = sqlite3.connect(path)
    try:
        found = [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
        return found + [name for name, query in _DISORDER.items() if connection.execute(query).fetchone()]
    finally:
        connection.close()
