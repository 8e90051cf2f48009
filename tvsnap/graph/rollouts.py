"""The rollouts that were run, their calls in order, and counters for reports."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

from tvsnap.graph.base import GraphPart
from tvsnap.graph.model import ANSWERED, STEP_SOURCES, Edge, RolloutRecord, RolloutSummary, Step, StepRow, Tally
from tvsnap.graph.rows import EDGE_COLUMNS, EDGE_WIDTH, UNREADABLE, DamagedRecord, Row, to_edge, unpack
from tvsnap.host import owners
from tvsnap.model.arguments import check_epoch, check_number, check_text, check_whole
from tvsnap.model.calls import ToolCall
from tvsnap.model.credit import Passage, TaskValues, Way, task_values
from tvsnap.model.errors import NotFound, TvsnapError, UsageError

_COLUMNS = ", ".join(field.name for field in fields(RolloutRecord))
_WIDTH = len(fields(RolloutRecord))
_STANDS_AT = """
CASE WHEN r.finished IS NOT NULL THEN r.state ELSE coalesce(
    (SELECT coalesce(e.next_state, e.state) FROM steps t JOIN edges e ON e.id = t.edge
     WHERE t.rollout = r.number ORDER BY t.place DESC LIMIT 1), r.start, r.state) END
"""
_RECORD = ", ".join(_STANDS_AT if field.name == "state" else f"r.{field.name}" for field in fields(RolloutRecord))
SHORTEST_PREFIX = 4
NAMED = 5
"""Rollouts that an error names at most."""
_DEAD = "r.finished IS NULL AND r.owner IN (SELECT value FROM json_each(:dead))"
_FAILING = "(s.timed_out OR coalesce(s.exit_code, 0) <> 0 OR s.source = {failed})".format(
    failed=STEP_SOURCES.index("failed")
)
_CHOSEN = f"""
(:task IS NULL OR r.task = :task) AND (:label IS NULL OR r.label = :label) AND (:image IS NULL OR r.image = :image)
AND (:since IS NULL OR r.started >= :since) AND (:id IS NULL OR r.id = :id)
AND (NOT :failed OR r.outcome IS NOT NULL OR r.reward <= 0 OR {_DEAD})
"""
_SUMMARIES = f"""
SELECT {_RECORD},
    count(s.place), coalesce(sum(s.source < {ANSWERED}), 0), coalesce(sum({_FAILING}), 0),
    coalesce(sum(s.seconds), 0.0), coalesce(o.limits, ''), coalesce(o.network, 'none'), coalesce(o.salt, '')
FROM (SELECT * FROM rollouts r WHERE {_CHOSEN} ORDER BY r.number DESC LIMIT :limit) r
LEFT JOIN steps s ON s.rollout = r.number
LEFT JOIN roots o ON o.state = r.root
GROUP BY r.number ORDER BY r.number DESC
"""
_STEPS = f"""
SELECT s.place, s.source, s.ended, s.seconds, s.duration, s.processor_s, s.exit_code, s.timed_out, s.note, s.call,
    {EDGE_COLUMNS.format("e")}
FROM steps s LEFT JOIN edges e ON e.id = s.edge
WHERE s.rollout = (SELECT number FROM rollouts WHERE id = ?) ORDER BY s.place
"""
_WAYS = f"""
SELECT r.id, r.reward, r.start, s.place, e.state, e.next_state, e.on_host, e.call_key, coalesce(e.call, s.call)
FROM rollouts r
LEFT JOIN steps s ON s.rollout = r.number AND s.source <> {STEP_SOURCES.index("failed")}
LEFT JOIN edges e ON e.id = s.edge
WHERE r.task = :task AND r.reward IS NOT NULL AND (:epoch IS NULL OR r.epoch = :epoch)
    AND (:rollouts IS NULL OR r.id IN (SELECT value FROM json_each(:rollouts)))
ORDER BY r.number, s.place
"""
_TALLIED = """
SELECT {key}, count(*), avg(r.reward) FROM rollouts r
WHERE (:task IS NULL OR r.task = :task) AND (:label IS NULL OR r.label = :label) GROUP BY 1 ORDER BY {order}
"""
_TALLIES = f"""
SELECT {{key}}, count(*), sum(s.source = 0), sum(s.source = 1), sum({_FAILING}), sum(s.seconds), sum(s.duration),
    coalesce(sum(CASE WHEN s.source >= {ANSWERED} THEN s.processor_s END), 0.0),
    coalesce(sum(CASE WHEN s.source < {ANSWERED} THEN s.processor_s END), 0.0),
    sum(s.processor_s IS NULL AND s.source <> {STEP_SOURCES.index("failed")})
FROM rollouts r CROSS JOIN steps s ON s.rollout = r.number
WHERE (:task IS NULL OR r.task = :task) AND (:label IS NULL OR r.label = :label) GROUP BY 1
"""
_NO_CALLS = (0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0)
TALLIED_BY = {"epoch": "CAST(r.epoch AS TEXT)", "task": "nullif(r.task, '')", "label": "nullif(r.label, '')"}
_OF_STEP = 10
"""The number of columns of `_STEPS` before those of the edge."""


class Rollouts(GraphPart):
    """The part of `Graph` that keeps rollouts and counters."""

    owner: str
    path: Path

    def begin_rollout(
        self, *, task: str, image: str, root: str, label: str = "", epoch: int | None = None, start: str | None = None
    ) -> RolloutRecord:
        """Records that a rollout has begun.

        Args:
            task: the task it belongs to; empty for none.
            image: the image's name.
            root: the root state above its start.
            label: another name for people.
            epoch: that of the training run; None for none.
            start: the state at which it begins; None for the root.
        """
        at = bytes.fromhex(root)
        begins_at = at if start is None else bytes.fromhex(start)
        id, now = secrets.token_hex(8), time.time()
        row = (id, task, label, image, at, self.owner, now, None, at, epoch, None, None, begins_at)
        self._change(f"INSERT INTO rollouts ({_COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
        return _to_rollout(row)

    def end_rollout(self, id: str, state: str, outcome: str | None = None) -> None:
        """Records with the next `flush` that a rollout has ended, unless its task is forgotten meanwhile.

        Args:
            id: the rollout.
            state: the state at which it ended.
            outcome: the error that ended it, in words; None if none did.
        """
        self._pending.end(id, bytes.fromhex(state), outcome)

    def record_reward(self, id: str, reward: float) -> bool:
        """Records the reward of a rollout, in place of an earlier one; returns whether the rollout is in the graph."""
        return self._change("UPDATE rollouts SET reward = ? WHERE id = ?", (reward, id)) == 1

    def note_step(self, step: StepRow) -> None:
        """Keeps a call of a rollout that has no record of its own in memory, until `flush`."""
        self._pending.step(step)

    def rollouts(self, task: str | None = None) -> list[RolloutRecord]:
        """Returns all rollouts, or those of one task, oldest first."""
        tasks = () if task is None else (check_text(task, "task"),)
        condition = "WHERE r.task = ?" if tasks else ""
        return list(
            map(_to_rollout, self._rows(f"SELECT {_RECORD} FROM rollouts r {condition} ORDER BY r.started", tasks))
        )

    def summaries(
        self,
        *,
        task: str | None = None,
        label: str | None = None,
        image: str | None = None,
        since: float | None = None,
        failed: bool = False,
        limit: int | None = None,
        id: str | None = None,
    ) -> list[RolloutSummary]:
        """Returns rollouts, newest first, each with figures of its calls.

        Args:
            task, label, image: only those of this task, label or image.
            since: only those that began then or later; seconds since the epoch.
            failed: only those that an error ended, whose process died, or whose reward is 0 or less.
            limit: the greatest number of rollouts, the latest ones; None for all.
            id: only this rollout.

        Raises:
            UsageError: an argument makes no sense.
        """
        if limit is not None:
            check_whole(limit, "limit", 0)
        if since is not None:
            check_number(since, "since", -math.inf)
        self._write_all()
        dead = self._dead_owners()
        chosen: dict[str, Any] = {"task": task, "label": label, "image": image, "since": since, "failed": failed}
        for name in ("task", "label", "image"):
            if chosen[name] is not None:
                check_text(chosen[name], name)
        chosen |= {"dead": json.dumps(sorted(dead)), "limit": -1 if limit is None else limit, "id": id}
        return [_to_summary(row, dead) for row in self._rows(_SUMMARIES, chosen)]

    def tallies(self, by: str | None = None, *, task: str | None = None, label: str | None = None) -> list[Tally]:
        """Returns figures of groups of rollouts: epochs in order, rollouts of none last; others as they began.

        Args:
            by: `epoch`, `task` or `label`, by which they are grouped; None for all together.
            task, label: only those of this task or label.

        Raises:
            UsageError: `by` is none of these.
        """
        if by is not None and by not in TALLIED_BY:
            raise UsageError(f"rollouts are counted by {', '.join(TALLIED_BY)}, not by {by!r}")
        self._write_all()
        key, chosen = "NULL" if by is None else TALLIED_BY[by], {"task": task, "label": label}
        of_calls = {row[0]: row[1:] for row in self._rows(_TALLIES.format(key=key), chosen)}
        order = "r.epoch IS NULL, r.epoch" if by == "epoch" else "min(r.number)"
        groups = self._rows(_TALLIED.format(key=key, order=order), chosen)
        return [Tally(*group, *of_calls.get(group[0], _NO_CALLS)) for group in groups]

    def values(self, task: str, *, epoch: int | None = None, rollouts: Sequence[str] | None = None) -> TaskValues:
        """Returns the values of the states and calls of a task's rollouts; see `Cache.values`.

        Args:
            task: the task.
            epoch: only rollouts of this epoch; None for all.
            rollouts: only these, by their ids; None for all.

        Raises:
            UsageError: an argument makes no sense.
        """
        check_epoch(epoch)
        if isinstance(rollouts, str):
            raise UsageError(f"rollouts must be a list of ids, not {rollouts!r}")
        ids = None if rollouts is None else json.dumps([check_text(id, "a rollout's id") for id in rollouts])
        chosen = {"task": check_text(task, "task"), "epoch": epoch, "rollouts": ids}
        self._write_all()
        calls: dict[bytes, ToolCall | None] = {}
        by_rollout = groupby(self._rows(_WAYS, chosen), key=lambda row: row[0])
        return task_values(task, epoch, [_to_way(list(rows), calls) for _, rows in by_rollout])

    def find_rollout(self, name: str) -> RolloutRecord | None:
        """Returns the rollout that a person names; None if there is none.

        Args:
            name: its id, a prefix of it of at least 4 digits, or its label. Of several with the label, the latest.

        Raises:
            NotFound: the prefix fits several; the error names some.
        """
        check_text(name, "a rollout's name")
        columns = f"SELECT {_RECORD} FROM rollouts r"
        row = self._row(f"{columns} WHERE id = ?", (name,))
        row = row or self._row(f"{columns} WHERE label = ? AND label <> '' ORDER BY number DESC LIMIT 1", (name,))
        if row is not None:
            return _to_rollout(row)
        prefix = name.lower()
        if len(prefix) < SHORTEST_PREFIX or set(prefix) - set("0123456789abcdef"):
            return None
        rows = self._rows(f"{columns} WHERE id >= ? AND id < ? LIMIT ?", (prefix, f"{prefix}g", NAMED + 1))
        if len(rows) > 1:
            more = ", ..." if len(rows) > NAMED else ""
            names = ", ".join(one[0] for one in rows[:NAMED])
            raise NotFound(f"{name} fits several rollouts: {names}{more}; give more digits")
        return _to_rollout(rows[0]) if rows else None

    def steps(self, rollout: str) -> list[Step]:
        """Returns the written calls of a rollout in order.

        Args:
            rollout: its id.
        """
        self._write_all()
        return list(map(_to_step, self._rows(_STEPS, (rollout,))))

    def tasks(self) -> list[str]:
        """Returns the names of the tasks that had rollouts or made calls, sorted; without the empty one."""
        rows = self._rows(
            "SELECT name FROM tasks t WHERE EXISTS (SELECT 1 FROM visits v WHERE v.task = t.id) "
            "UNION SELECT task FROM rollouts ORDER BY 1"
        )
        return [name for (name,) in rows if name]

    def newest_call(self, task: str) -> int:
        """Returns the id of the newest call that a task's rollouts made or were answered by; 0 if there is none."""
        row = self._row("SELECT max(v.edge) FROM visits v JOIN tasks t ON t.id = v.task WHERE t.name = ?", (task,))
        return row[0] or 0

    def count_by(self, count: Callable[[], Mapping[str, float]]) -> None:
        """Adds the results of a function to counters, at each `flush`, and within a second of a call.

        Args:
            count: returns the counts since its last call.
        """
        self._pending.count = count

    def counters(self) -> dict[str, float]:
        """Returns the counters of all processes, without counts that other processes have not flushed yet."""
        self.flush()
        return dict(self._rows("SELECT name, value FROM counters"))

    def _write_all(self) -> None:
        """Writes records in memory before they are read; a full disk must not keep anybody from reading."""
        with contextlib.suppress(TvsnapError):
            self.flush()

    def _dead_owners(self) -> set[str]:
        """Returns those processes that died before their rollouts ended."""
        running = self._rows("SELECT DISTINCT owner FROM rollouts WHERE finished IS NULL")
        home = self.path.parent
        return {owner for (owner,) in running if owner != self.owner and not (owner and owners.is_alive(home, owner))}


def _to_rollout(row: Row) -> RolloutRecord:
    id, task, label, image, root, owner, started, finished, state, epoch, reward, outcome, start = row
    return RolloutRecord(
        *(id, task, label, image, root.hex(), owner, started, finished, state.hex()),
        *(epoch, reward, outcome, start.hex()),
    )


def _to_way(rows: list[Row], calls: dict[bytes, ToolCall | None]) -> Way:
    """Converts the rows of `_WAYS` of a rollout; `calls` has the calls that were read before, by their keys."""
    id, reward, start = rows[0][:3]
    at, passages = start, []
    for *_, place, state, reached, on_host, key, text in rows:
        if place is None:  # it made no call
            break
        if key is None:  # nothing but the call is recorded, or not even that
            call = _to_call(text)
            passages.append(Passage(place, at.hex(), None if call is None else call.key, call))
            continue
        if calls.get(key) is None:
            calls[key] = _to_call(text)
        if reached is not None or not on_host:  # a stateless tool on the host is recorded in no state of a sandbox
            at = state
        passages.append(Passage(place, at.hex(), key.hex(), calls[key]))
        at = at if reached is None else reached
    return Way(id, reward, start.hex(), passages, at.hex())


def _to_call(text: str | bytes | None) -> ToolCall | None:
    """Returns a call that is stored packed; None if it is deleted or damaged."""
    with contextlib.suppress(*UNREADABLE):
        return None if text is None else ToolCall.from_canonical(unpack(text))
    return None


def _to_summary(row: Row, dead: set[str]) -> RolloutSummary:
    rollout = _to_rollout(row[:_WIDTH])
    ended = rollout.outcome or "closed"
    if rollout.finished is None:
        ended = "process died" if rollout.owner in dead else "running"
    return RolloutSummary(rollout, ended, *row[_WIDTH:])


def _to_step(row: Row) -> Step:
    place, source, ended, seconds, duration, processor_s, exit_code, timed_out, note, call = row[:_OF_STEP]
    edge: Edge | None = None
    if row[_OF_STEP] is not None:
        with contextlib.suppress(DamagedRecord):
            edge = to_edge(row[_OF_STEP : _OF_STEP + EDGE_WIDTH])
    tool_call = edge.call if edge is not None else None if call is None else ToolCall.from_canonical(unpack(call))
    facts = (ended, seconds, duration, processor_s, exit_code, bool(timed_out), note)
    return Step(place, STEP_SOURCES[source], *facts, tool_call, edge)
