"""Lists many states at once, for people."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Collection

from tvsnap.graph.base import GraphPart
from tvsnap.graph.model import Edge, Listing, Outlined, Snapshot, State, TreeNode
from tvsnap.graph.rows import (
    EDGE_COLUMNS,
    EDGE_WIDTH,
    LISTED_COLUMNS,
    SNAPSHOT_COLUMNS,
    STATE_COLUMNS,
    STATE_WIDTH,
    UNREADABLE,
    DamagedRecord,
    to_edge,
    to_listed,
    to_snapshot,
    to_state,
    unpack,
)
from tvsnap.model.arguments import check_state, check_text

# A call's canonical JSON ends with its name; long ones are compressed.
_CALLS_OF = f"""
SELECT {EDGE_COLUMNS.format("e")} FROM edges e
WHERE typeof(e.call) = 'blob' OR EXISTS (SELECT 1 FROM json_each(:names) n WHERE e.call LIKE '%' || n.value)
"""
_ANY_DEPTH = 1 << 62

_ROOTS = f"""
SELECT {STATE_COLUMNS.format("s")} FROM roots r JOIN states s ON s.hash = r.state
WHERE r.state = coalesce(:root, r.state) AND r.image_name = coalesce(:image, r.image_name)
"""
# The calls below the selected roots, walking down from these.
_LISTED_BELOW_ROOTS = """
WITH RECURSIVE down (hash, depth) AS (
    SELECT state, 0 FROM roots WHERE state = coalesce(:root, state) AND image_name = coalesce(:image, image_name)
    UNION ALL
    SELECT e.next_state, down.depth + 1 FROM down CROSS JOIN edges e ON e.state = down.hash
    WHERE e.next_state IS NOT NULL AND down.depth < :depth
), listed (edge) AS (
    SELECT e.id FROM down CROSS JOIN edges e ON e.state = down.hash
)
"""
# The calls that a task visited, and those that lead to them, because a killed process may have lost some visits.
_LISTED_FOR_TASK = """
WITH RECURSIVE listed (edge) AS (
    SELECT v.edge FROM visits v JOIN tasks t ON t.id = v.task WHERE t.name = :task
    UNION
    SELECT above.edge FROM listed CROSS JOIN edges e ON e.id = listed.edge
    CROSS JOIN states above ON above.hash = e.state WHERE above.edge IS NOT NULL
)
"""
_CALLS = f"""
SELECT {LISTED_COLUMNS.format("e")}, {STATE_COLUMNS.format("above")}, {STATE_COLUMNS.format("s")}
FROM listed CROSS JOIN edges e ON e.id = listed.edge
CROSS JOIN states above ON above.hash = e.state
LEFT JOIN states s ON s.hash = e.next_state
WHERE above.depth + (e.next_state IS NOT NULL) <= :depth
"""

# A condition: the salt of a call's root begins with a text; true without one.
_BELOW = """
(:salt_prefix IS NULL OR EXISTS (
    SELECT 1 FROM states s JOIN roots r ON r.state = s.root
    WHERE s.hash = e.state AND substr(r.salt, 1, length(:salt_prefix)) = :salt_prefix
))
"""
_OUTLINE = """
SELECT id, state, next_state, exit_code, timed_out, duration, hits, slot IS NOT NULL AND deterministic, proven
FROM edges e WHERE id > :after AND {} ORDER BY id LIMIT :limit
"""
_BELOW_ROOT = "(SELECT root FROM states WHERE hash = e.state) = :root"
_LISTED = f"""
SELECT {LISTED_COLUMNS.format("e")} FROM json_each(:ids) i JOIN edges e ON e.id = i.value WHERE {_BELOW}
"""
_IDS_BELOW = f"SELECT id FROM edges e WHERE {_BELOW}"
_OF_TASK = "SELECT v.edge FROM visits v JOIN tasks t ON t.id = v.task WHERE t.name = ?"
# Compressed texts are searched one by one; SQLite searches the others.
_OF_TOOL = """
SELECT id, iif(typeof(call) = 'blob', call, NULL) FROM edges
WHERE typeof(call) = 'blob' OR substr(call, -length(:end)) = :end
"""
_WITH_TEXT = """
SELECT id, NULL, NULL FROM edges
WHERE (typeof(call) = 'text' AND instr(lower(call), :escaped))
    OR (typeof(output) = 'text' AND instr(lower(output), :text))
UNION ALL
SELECT id, iif(typeof(call) = 'blob', call, NULL), iif(typeof(output) = 'blob', output, NULL)
FROM edges WHERE typeof(call) = 'blob' OR typeof(output) = 'blob'
"""


class Tree(GraphPart):
    """The part of `Graph` that lists the tree."""

    def tree(
        self, *, root: str | None = None, task: str | None = None, image: str | None = None, depth: int | None = None
    ) -> Listing:
        """Returns states with the calls made in them and their snapshots; parents come before their children.

        Hits and forks that a process has not flushed yet are not counted.

        Args:
            root: only this root and the states below it.
            task: only calls and states that this task's rollouts visited.
            image: only the roots of the image of this name and the states below them.
            depth: the greatest number of changing calls between a state and its root; None for any.
        """
        parameters = {
            "root": None if root is None else check_state(root),
            "image": None if image is None else check_text(image, "image"),
            "task": None if task is None else check_text(task, "task"),
            "depth": _ANY_DEPTH if depth is None else depth,
        }
        listed = _LISTED_BELOW_ROOTS if task is None else _LISTED_FOR_TASK
        self._write_calls()
        with self._database.read() as reader:
            roots = [to_state(row) for row in reader.execute(_ROOTS, parameters)]
            calls = reader.execute(listed + _CALLS, parameters).fetchall()
            snapshot_rows = reader.execute(f"SELECT {SNAPSHOT_COLUMNS.format('n')} FROM snapshots n").fetchall()
            started = {row[0].hex() for row in reader.execute("SELECT root FROM rollouts WHERE task = ?", (task,))}
        # A call is recorded after those that lead to it: in order of their ids, parents come first.
        calls.sort(key=lambda row: row[0])
        reached_by: list[tuple[State, Edge]] = []
        unchanging: dict[str, list[Edge]] = defaultdict(list)
        for row in calls:
            call, above, reached = row[:EDGE_WIDTH], row[EDGE_WIDTH:-STATE_WIDTH], row[-STATE_WIDTH:]
            started.add(above[1].hex())
            if reached[0] is None:
                unchanging[above[0].hex()].append(to_listed(call))
            else:
                reached_by.append((to_state(reached), to_listed(call)))
        listed_roots = {root.hash for root in roots if task is None or root.hash in started}
        snapshots: dict[str, list[Snapshot]] = defaultdict(list)
        for snapshot in map(to_snapshot, snapshot_rows):
            snapshots[snapshot.state].append(snapshot)
        return Listing(
            TreeNode(state, call, tuple(unchanging.get(state.hash, ())), tuple(snapshots.get(state.hash, ())))
            for state, call in [*((root, None) for root in roots), *reached_by]
            if state.root in listed_roots
        )

    def calls_of(self, tools: Collection[str]) -> list[Edge]:
        """Returns all recorded calls of some tools, except those whose records are damaged.

        Args:
            tools: the names of the tools.
        """
        edges = []
        self._write_calls()
        with self._database.read() as reader:
            for row in reader.execute(_CALLS_OF, {"names": json.dumps([f'"name":"{name}"}}' for name in tools])}):
                with contextlib.suppress(DamagedRecord):
                    edges.append(to_edge(row))
        return [edge for edge in edges if edge.call.name in tools]

    def outline(
        self,
        *,
        root: str | None = None,
        task: str | None = None,
        salt_prefix: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[Outlined]:
        """Returns recorded calls without their texts, in the order in which they were recorded.

        So a call comes after those that led to its state. Hits that a process has not flushed yet are not counted.

        Args:
            root: only calls below this root.
            task: only calls that this task's rollouts visited, and those that lead to them.
            salt_prefix: only calls below roots whose salts begin with this.
            after: only calls whose ids are above this one.
            limit: the greatest number of calls; None for all.
        """
        parameters = {
            "root": None if root is None else check_state(root),
            "task": None if task is None else check_text(task, "task"),
            "salt_prefix": salt_prefix,
            "after": after,
            "limit": -1 if limit is None else limit,
        }
        chosen = [_BELOW]
        if root is not None:
            chosen.append(_BELOW_ROOT)
        if task is not None:
            chosen.append("id IN (SELECT edge FROM listed)")
        query = ("" if task is None else _LISTED_FOR_TASK) + _OUTLINE.format(" AND ".join(chosen))
        self._write_calls()
        with self._database.read() as reader:
            private = {row[0] for row in reader.execute("SELECT hash FROM states WHERE private <> ''")}
            snapshotted = {row[0] for row in reader.execute("SELECT state FROM snapshots")}
            return [
                Outlined(
                    id,
                    state.hex(),
                    None if reached is None else reached.hex(),
                    exit_code,
                    timed_out == 1,
                    duration,
                    hits,
                    served == 1,
                    proven == 1,
                    (state if reached is None else reached) in private,
                    (state if reached is None else reached) in snapshotted,
                )
                for id, state, reached, exit_code, timed_out, duration, hits, served, proven in reader.execute(
                    query, parameters
                )
            ]

    def listed(self, ids: Collection[int], *, salt_prefix: str | None = None) -> list[Edge]:
        """Returns calls without their outputs; those that are not in the graph any more are left out.

        Args:
            ids: those of their edges.
            salt_prefix: only calls below roots whose salts begin with this.
        """
        with self._database.read() as reader:
            rows = reader.execute(_LISTED, {"ids": json.dumps(list(ids)), "salt_prefix": salt_prefix})
            return [to_listed(row) for row in rows]

    def matching(
        self,
        *,
        task: str | None = None,
        tool: str | None = None,
        text: str | None = None,
        salt_prefix: str | None = None,
    ) -> set[int]:
        """Returns the ids of the recorded calls that fit, for people who search.

        Args:
            task: only those that a rollout of this task made.
            tool: only calls of this tool.
            text: only those whose arguments or output contain this, in capitals or not.
            salt_prefix: only those below roots whose salts begin with this.
        """
        matches: list[set[int]] = []
        self._write_calls()
        with self._database.read() as reader:
            if task is not None:
                matches.append({row[0] for row in reader.execute(_OF_TASK, (check_text(task, "task"),))})
            if tool is not None:
                end = f'"name":{json.dumps(check_text(tool, "tool"), ensure_ascii=False)}}}'
                rows = reader.execute(_OF_TOOL, {"end": end})
                matches.append({id for id, call in rows if call is None or _unpacked(call).endswith(end)})
            if text is not None:
                wanted = check_text(text, "text").lower()
                escaped = json.dumps(wanted, ensure_ascii=False)[1:-1]
                rows = reader.execute(_WITH_TEXT, {"text": wanted, "escaped": escaped})
                matches.append({id for id, call, output in rows if _has(call, output, wanted, escaped)})
            if salt_prefix is not None or not matches:
                matches.append({row[0] for row in reader.execute(_IDS_BELOW, {"salt_prefix": salt_prefix})})
        return set.intersection(*matches)


def _has(call: bytes | None, output: bytes | None, text: str, escaped: str) -> bool:
    """Returns whether a text is in the compressed texts of a call; True if SQLite has found it."""
    if call is None and output is None:
        return True
    return (call is not None and escaped in _unpacked(call).lower()) or (
        output is not None and text in _unpacked(output).lower()
    )


def _unpacked(stored: bytes) -> str:
    """Returns a text that is stored compressed; an empty one if its record is damaged."""
    with contextlib.suppress(*UNREADABLE):
        return unpack(stored)
    return ""
