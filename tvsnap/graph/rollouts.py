"""The rollouts that were run, for people, and counters, for reports."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

from tvsnap.graph.base import GraphPart
from tvsnap.graph.model import RolloutRecord
from tvsnap.model.arguments import check_text


class Rollouts(GraphPart):
    """The part of `Graph` that keeps rollouts and counters."""

    owner: str

    def begin_rollout(
        self, *, task: str, image: str, root: str, label: str = "", id: str = "", owner: str = ""
    ) -> RolloutRecord:
        """Records that a rollout has begun.

        Args:
            task: the task it belongs to; empty for none.
            image: the image's name.
            root: the root state that it starts at.
            label: what else people call it.
            id: its name, unique in this graph; by default a random one.
            owner: the process that runs it; by default the owner of this `Graph`.
        """
        rollout = RolloutRecord(
            id or secrets.token_hex(8), task, label, image, root, owner or self.owner, time.time(), None, root
        )
        with self._database.write() as cursor:
            cursor.execute(
                "INSERT INTO rollouts (id, task, label, image, root, owner, started, finished, state) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?)",
                (
                    rollout.id,
                    task,
                    label,
                    image,
                    bytes.fromhex(root),
                    rollout.owner,
                    rollout.started,
                    bytes.fromhex(root),
                ),
            )
        return rollout

    def end_rollout(self, id: str, state: str) -> None:
        """Records that a rollout has ended in `state`; nothing happens if its task was forgotten meanwhile."""
        with self._database.write() as cursor:
            cursor.execute(
                "UPDATE rollouts SET finished = ?, state = ? WHERE id = ?", (time.time(), bytes.fromhex(state), id)
            )

    def rollouts(self, task: str | None = None) -> list[RolloutRecord]:
        """Returns all rollouts, or those of one task, oldest first."""
        if task is not None:
            check_text(task, "task")
        query = "SELECT id, task, label, image, root, owner, started, finished, state FROM rollouts"
        with self._database.read() as reader:
            if task is None:
                rows = reader.execute(f"{query} ORDER BY started").fetchall()
            else:
                rows = reader.execute(f"{query} WHERE task = ? ORDER BY started", (task,)).fetchall()
        return [
            RolloutRecord(id, task, label, image, root.hex(), owner, started, finished, state.hex())
            for id, task, label, image, root, owner, started, finished, state in rows
        ]

    def tasks(self) -> list[str]:
        """Returns the names of the tasks that had rollouts or made calls, sorted; without the empty one."""
        with self._database.read() as reader:
            rows = reader.execute(
                "SELECT name FROM tasks t WHERE EXISTS (SELECT 1 FROM visits v WHERE v.task = t.id) "
                "UNION SELECT task FROM rollouts ORDER BY 1"
            ).fetchall()
        return [name for (name,) in rows if name]

    def add_counters(self, counters: Mapping[str, float]) -> None:
        """Adds to named counters, which begin at 0; in memory, until `flush`."""
        self._pending.add(counters)

    def counters(self) -> dict[str, float]:
        """Returns the counters of all processes, without what other processes have not flushed yet."""
        self.flush()
        with self._database.read() as reader:
            return dict(reader.execute("SELECT name, value FROM counters").fetchall())
