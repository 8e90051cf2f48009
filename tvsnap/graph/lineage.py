"""The connections of states: the calls that led to a state, those made there, and the way to rebuild it."""

from __future__ import annotations

import re

from tvsnap.graph.base import GraphPart
from tvsnap.graph.insertion import unknown_state
from tvsnap.graph.model import Distance, Edge, RootInfo, Snapshot, State
from tvsnap.graph.rows import (
    EDGE_COLUMNS,
    ROOT_COLUMNS,
    SNAPSHOT_COLUMNS,
    SNAPSHOT_WIDTH,
    STATE_COLUMNS,
    DamagedRecord,
    to_edge,
    to_snapshot,
    to_state,
)
from tvsnap.model.arguments import check_state, check_text
from tvsnap.model.errors import NotFound, UsageError

HASH_DIGITS = 64
SHORTEST_PREFIX = 4
CANDIDATES_NAMED = 5

_STATE = f"SELECT {STATE_COLUMNS.format('s')} FROM states s WHERE s.hash = ?"

# Walks from a state to its root; {stop} ends the walk early.
_UP = """
WITH RECURSIVE up (hash, parent, edge, level) AS (
    SELECT hash, parent, edge, 0 FROM states WHERE hash = :state
    UNION ALL
    SELECT s.hash, s.parent, s.edge, up.level + 1 FROM up JOIN states s ON s.hash = up.parent {stop}
)
"""
_LINEAGE = f"""
{_UP.format(stop="")}
SELECT {EDGE_COLUMNS.format("e")} FROM up CROSS JOIN edges e ON e.id = up.edge ORDER BY up.level DESC
"""
_NEAREST = f"""
{_UP.format(stop="WHERE NOT EXISTS (SELECT 1 FROM snapshots n WHERE n.state = up.hash AND n.backend = :backend)")}
SELECT {SNAPSHOT_COLUMNS.format("n")}, {EDGE_COLUMNS.format("e")}
FROM up
LEFT JOIN snapshots n ON n.state = up.hash AND n.backend = :backend
LEFT JOIN edges e ON e.id = up.edge AND n.state IS NULL
ORDER BY up.level DESC
"""
# The way ends in a state with a snapshot or in a root, and each call on it leads from the state above.
_DISTANCE = f"""
{_UP.format(stop="WHERE NOT EXISTS (SELECT 1 FROM snapshots n WHERE n.state = up.hash AND n.backend = :backend)")}
SELECT
    COUNT(*), MAX(n.state), COUNT(e.id), COALESCE(SUM(e.duration), 0.0), COALESCE(MIN(e.proven), 1),
    COALESCE(MIN(e.proven OR COALESCE(e.digest, '') != ''), 1),
    COALESCE(SUM(e.state = up.parent AND e.next_state = up.hash), 0),
    MAX(EXISTS (SELECT 1 FROM roots r WHERE r.state = up.hash))
FROM up
LEFT JOIN snapshots n ON n.state = up.hash AND n.backend = :backend
LEFT JOIN edges e ON e.id = up.edge AND n.state IS NULL
"""
# The way ends in a root, and each call on it answers others.
_IS_ANSWERED = f"""
{_UP.format(stop="")}
SELECT COUNT(*), COALESCE(SUM(e.deterministic AND e.slot IS NOT NULL AND e.next_state = up.hash), 0),
    COALESCE(SUM(up.parent IS NULL), 0)
FROM up LEFT JOIN edges e ON e.id = up.edge
"""
_SNAPSHOT = f"SELECT {SNAPSHOT_COLUMNS.format('n')} FROM snapshots n WHERE n.state = ? AND n.backend = ?"
_ANCESTOR = f"""
{_UP.format(stop="WHERE up.level < :steps")}
SELECT {STATE_COLUMNS.format("s")} FROM up JOIN states s ON s.hash = up.hash ORDER BY up.level DESC LIMIT 1
"""
_ANSWERS = """
SELECT id, hits, duration, next_state FROM edges WHERE state = ? AND slot IS NOT NULL AND deterministic LIMIT 100
"""
UNLIKELY = 0.05  # the least probability of a state whose calls are counted
_CHILDREN = f"""
SELECT {STATE_COLUMNS.format("s")} FROM edges e JOIN states s ON s.hash = e.next_state
WHERE e.state = ? ORDER BY e.id
"""


class Lineage(GraphPart):
    """The part of `Graph` that answers questions about ancestors and descendants."""

    def state(self, hash: str) -> State:
        """Returns a state by its full name.

        Raises:
            NotFound: there is none.
        """
        row = self._row(_STATE, (check_state(hash),))
        if row is None:
            raise unknown_state(hash)
        return to_state(row)

    def roots(self) -> list[RootInfo]:
        """Returns the roots, oldest first."""
        rows = self._rows(f"SELECT {ROOT_COLUMNS} FROM roots ORDER BY created")
        return [RootInfo(row[0].hex(), *row[1:]) for row in rows]

    def root_of(self, state: str) -> RootInfo:
        """Returns the root above a state.

        Raises:
            NotFound: there is no such state.
        """
        query = f"SELECT {ROOT_COLUMNS} FROM roots WHERE state = (SELECT s.root FROM states s WHERE s.hash = ?)"
        row = self._row(query, (check_state(state),))
        if row is None:
            raise unknown_state(state)
        return RootInfo(row[0].hex(), *row[1:])

    def edge(self, id: int) -> Edge:
        """Returns an edge by its id.

        Raises:
            NotFound: there is none.
        """
        row = self._row(f"SELECT {EDGE_COLUMNS.format('e')} FROM edges e WHERE e.id = ?", (id,))
        if row is None:
            raise NotFound(f"call {id} is not in the graph (any more)")
        return to_edge(row)

    def edge_to(self, state: str) -> Edge | None:
        """Returns the call that made a state; None for a root and for a state that is not in the graph."""
        query = f"SELECT {EDGE_COLUMNS.format('e')} FROM states s JOIN edges e ON e.id = s.edge WHERE s.hash = ?"
        row = self._row(query, (check_state(state),))
        return None if row is None else to_edge(row)

    def out_edges(self, state: str) -> list[Edge]:
        """Returns the calls made in a state, oldest first, including those that did not change it."""
        query = f"SELECT {EDGE_COLUMNS.format('e')} FROM edges e WHERE e.state = ? ORDER BY e.id"
        return [to_edge(row) for row in self._rows(query, (check_state(state),))]

    def has_calls(self, state: str) -> bool:
        """Returns whether any call was made in a state."""
        return self._row("SELECT 1 FROM edges WHERE state = ? LIMIT 1", (check_state(state),)) is not None

    def chance_of_new_call(self, state: str) -> float:
        """Returns the probability that the next call in a state was not made there before, 0 to 1.

        That is about the share of the calls so far that were made only once there (I. J. Good, The population
        frequencies of species and the estimation of population parameters, 1953).

        Args:
            state: the state's full hash.
        """
        query = "SELECT COUNT(*), COALESCE(SUM(hits), 0), COALESCE(SUM(hits = 0), 0) FROM edges WHERE state = ?"
        different, hits, once = self._row(query, (check_state(state),))
        return float((once + 0.5) / (different + hits + 1)) if different else 1.0

    def seconds_ahead(self, state: str, enough: float) -> float:
        """Returns the expected duration of the recorded calls that a rollout will make from a state on, in seconds.

        It follows the calls that were made most often, each by its probability; see `chance_of_new_call`.

        Args:
            state: the state's full hash.
            enough: seconds above which the sum need not be exact.
        """
        at, likely, seconds = check_state(state), 1.0, 0.0
        with self._database.read() as reader:
            while likely > UNLIKELY and seconds < enough:
                answers = [
                    (1 + hits + self._pending.hits_of(edge), duration, after)
                    for edge, hits, duration, after in reader.execute(_ANSWERS, (at,))
                ]
                leading = max((one for one in answers if one[2] is not None), default=(0, 0.0, None))
                visits = sum(count for count, _, after in answers if after is not None) or 1
                # A call that changes nothing is made beside the one that leads on, at most once by each.
                seconds += likely * sum(min(1.0, n / visits) * lasted for n, lasted, after in answers if after is None)
                if leading[2] is None:
                    break
                once = sum(count == 1 for count, _, after in answers if after is not None)
                likely *= (1.0 - (once + 0.5) / (visits + 1)) * leading[0] / visits
                seconds += likely * leading[1]
                at = leading[2]
        return seconds

    def children(self, state: str) -> list[State]:
        """Returns the states one changing call away from a state, oldest first."""
        return [to_state(row) for row in self._rows(_CHILDREN, (check_state(state),))]

    def lineage(self, state: str) -> list[Edge]:
        """Returns the calls that lead from the root to a state, in order; only those that changed the state.

        Raises:
            NotFound: there is no such state.
        """
        edges = [to_edge(row) for row in self._rows(_LINEAGE, {"state": check_state(state)})]
        if not edges:
            self.state(state)
        self._check_way(None, edges, state)
        return edges

    def is_answered(self, state: str) -> bool:
        """Returns whether a state is in the graph, and all calls that lead to it may answer others.

        The state may not be reachable nevertheless, see `distance`. Reads no outputs.

        Args:
            state: the state's full hash.
        """
        states, answered, roots = self._row(_IS_ANSWERED, {"state": check_state(state)})
        return bool(roots == 1 and answered == states - 1)

    def nearest_snapshot(self, state: str, backend: str) -> tuple[Snapshot | None, list[Edge]]:
        """Returns the start and the calls of the shortest rebuild of a state.

        Args:
            state: the state to rebuild.
            backend: the backend whose snapshots can be used.

        Returns:
            The snapshot nearest above the state (or of the state itself), None if there is none up to the root; and the
            calls to replay from there, in order.

        Raises:
            NotFound: there is no such state.
        """
        rows = self._rows(_NEAREST, {"state": check_state(state), "backend": backend})
        if not rows:
            raise unknown_state(state)
        # The first row is that of the snapshot, or of the root: neither has a call to replay.
        first = rows[0]
        snapshot = to_snapshot(first[:SNAPSHOT_WIDTH]) if first[0] is not None else None
        edges = [to_edge(row[SNAPSHOT_WIDTH:]) for row in rows[1:]]
        self._check_way(snapshot.state if snapshot else None, edges, state)
        return snapshot, edges

    def distance(self, state: str, backend: str) -> Distance:
        """Returns the costs of rebuilding a state, without reading the calls; see `nearest_snapshot`.

        Raises:
            NotFound: there is no such state.
        """
        row = self._row(_DISTANCE, {"state": check_state(state), "backend": backend})
        states, nearest, calls, seconds, proven, provable, joined, rooted = row
        if not states:
            raise unknown_state(state)
        if joined != calls or calls != states - 1 or (nearest is None and not rooted):
            raise _damaged_way(state)
        snapshot = None
        if nearest is not None:
            own = self._row(_SNAPSHOT, (nearest, backend))
            if own is None:  # it was deleted between the two queries
                return self.distance(state, backend)
            snapshot = to_snapshot(own)
        return Distance(snapshot, calls, seconds, bool(proven), bool(provable))

    def _check_way(self, start: str | None, edges: list[Edge], state: str) -> None:
        """Raises DamagedRecord unless calls lead to a state from `start`, or else from a root: a row may be damaged."""
        at = start or (edges[0].state if edges else state)
        sound = start is not None or self._row("SELECT 1 FROM roots WHERE state = ?", (bytes.fromhex(at),)) is not None
        for edge in edges:
            sound = sound and edge.state == at
            at = edge.next_state
        if not sound or at != state:
            raise _damaged_way(state)

    def resolve(self, name: str) -> State:
        """Returns the state that a person names.

        Args:
            name: a hash or a prefix of one, at least 4 digits; `PREFIX~N` is N steps above it, `PREFIX~` one.

        Raises:
            NotFound: there is none, or the prefix fits several, of which the error names up to five.
            UsageError: `name` is not of this form.
        """
        match = re.fullmatch(r"([0-9a-fA-F]+)(?:(~)([0-9]*))?", check_text(name, "a state's name"))
        if match is None or len(match[1]) > HASH_DIGITS:
            raise UsageError(f"{name!r} names no state: give a hash or a prefix of one, as in 3fa9c1 or 3fa9c1~2")
        prefix = match[1].lower()
        if len(prefix) < SHORTEST_PREFIX:
            raise UsageError(f"prefix {prefix!r} is too short: give at least {SHORTEST_PREFIX} digits")
        steps = int(match[3] or 1) if match[2] else 0
        state = self._by_prefix(prefix)
        if steps > state.depth:
            distance = "1 step" if state.depth == 1 else f"{state.depth} steps"
            raise NotFound(f"{name}: {state.hash[:12]} is only {distance} from its root")
        if steps == 0:
            return state
        row = self._row(_ANCESTOR, {"state": bytes.fromhex(state.hash), "steps": steps})
        if row is None:
            raise unknown_state(state.hash)
        return to_state(row)

    def _by_prefix(self, prefix: str) -> State:
        lowest = bytes.fromhex(prefix.ljust(HASH_DIGITS, "0"))
        highest = bytes.fromhex(prefix.ljust(HASH_DIGITS, "f"))
        query = f"SELECT {STATE_COLUMNS.format('s')} FROM states s WHERE s.hash BETWEEN ? AND ? LIMIT ?"
        rows = self._rows(query, (lowest, highest, CANDIDATES_NAMED + 1))
        if not rows:
            raise NotFound(f"no state begins with {prefix} (tvsnap tree)")
        if len(rows) > 1:
            named = ", ".join(_tell_apart([row[0].hex() for row in rows])[:CANDIDATES_NAMED])
            more = ", ..." if len(rows) > CANDIDATES_NAMED else ""
            raise NotFound(f"{prefix} fits several states: {named}{more}; give more digits")
        return to_state(rows[0])


def _damaged_way(state: str) -> DamagedRecord:
    return DamagedRecord(f"the graph's records of the way to state {state[:12]} are damaged (tvsnap forget)")


def _tell_apart(hashes: list[str]) -> list[str]:
    """Returns prefixes of `hashes` (sorted, distinct), long enough to distinguish each from its neighbours."""
    for length in range(12, HASH_DIGITS):
        short = [hash[:length] for hash in hashes]
        if len(set(short)) == len(short):
            return short
    return hashes
