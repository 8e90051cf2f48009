"""The rollouts that were run, for people, and counters for reports."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import fields

from tvsnap.graph.base import GraphPart
from tvsnap.graph.model import RolloutRecord
from tvsnap.graph.rows import Row
from tvsnap.model.arguments import check_text

_COLUMNS = ", ".join(field.name for field in fields(RolloutRecord))


class Rollouts(GraphPart):
    """The part of `Graph` that keeps rollouts and counters."""

    owner: str

    def begin_rollout(self, *, task: str, image: str, root: str, label: str = "") -> RolloutRecord:
        """Records that a rollout has begun.

        Args:
            task: the task it belongs to; empty for none.
            image: the image's name.
            root: the root state that it starts at.
            label: another name for people.
        """
        at = bytes.fromhex(root)
        row = (secrets.token_hex(8), task, label, image, at, self.owner, time.time(), None, at)
        self._change(f"INSERT INTO rollouts ({_COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
        return _to_rollout(row)

    def end_rollout(self, id: str, state: str) -> None:
        """Records with the next `flush` that a rollout has ended in `state`, unless its task is forgotten meanwhile."""
        self._pending.end(id, bytes.fromhex(state))

    def rollouts(self, task: str | None = None) -> list[RolloutRecord]:
        """Returns all rollouts, or those of one task, oldest first."""
        tasks = () if task is None else (check_text(task, "task"),)
        condition = "WHERE task = ?" if tasks else ""
        return list(
            map(_to_rollout, self._rows(f"SELECT {_COLUMNS} FROM rollouts {condition} ORDER BY started", tasks))
        )

    def tasks(self) -> list[str]:
        """Returns the names of the tasks that had rollouts or made calls, sorted; without the empty one."""
        rows = self._rows(
            "SELECT name FROM tasks t WHERE EXISTS (SELECT 1 FROM visits v WHERE v.task = t.id) "
            "UNION SELECT task FROM rollouts ORDER BY 1"
        )
        return [name for (name,) in rows if name]

    def add_counters(self, counters: Mapping[str, float]) -> None:
        """Adds to named counters, which begin at 0; in memory, until `flush`."""
        self._pending.add(counters)

    def counters(self) -> dict[str, float]:
        """Returns the counters of all processes, without what other processes have not flushed yet."""
        self.flush()
        return dict(self._rows("SELECT name, value FROM counters"))


def _to_rollout(row: Row) -> RolloutRecord:
    id, task, label, image, root, owner, started, finished, state = row
    return RolloutRecord(id, task, label, image, root.hex(), owner, started, finished, state.hex())
