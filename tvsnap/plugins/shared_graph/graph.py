"""`SharedGraph`: the graph of one host, which asks other hosts before a call is executed, and tells them of its own."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tvsnap.graph.edges import PROVE, NewEdge
from tvsnap.graph.insertion import task_number
from tvsnap.graph.model import Edge, Lease
from tvsnap.graph.portable import DISTRUST, adopt_call
from tvsnap.graph.rows import EdgeRow
from tvsnap.graph.store import Graph
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import TvsnapError
from tvsnap.plugins.shared_graph.postgres import (
    RETRY_S,
    Answer,
    Change,
    Exchanged,
    Held,
    Postgres,
    Refused,
    Unreachable,
)

_LOG = logging.getLogger("tvsnap.graph")
WAITING = 100_000
"""Records that are kept for a database that is away; those beyond are not given to others."""
BATCH = 200
CLOSING_S = 5.0
"""Seconds that `close` takes at most to give away what is waiting."""
_PUBLIC = f"""
SELECT {", ".join(f"e.{name}" for name in EdgeRow._fields)} FROM edges e JOIN states above ON above.hash = e.state
WHERE e.id = ? AND e.slot IS NOT NULL AND above.private = ''
"""
_HERE = "SELECT id, next_state FROM edges WHERE state = ? AND call_key = ? AND slot = ? AND waited = ?"
# Later records of this host, also retired ones, count here.
_LATER = "SELECT 1 FROM edges WHERE state = ? AND call_key = ? AND created >= ? LIMIT 1"
_MARK_NAME = "shared {}"
"""The counter with the mark up to which the changes of a database are known here."""
_KEEP_MARK = """
INSERT INTO counters (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""


class SharedGraph(Graph):
    """A graph whose calls are exchanged with other hosts' through a PostgreSQL database.

    What a rollout needs is read from this host's own file, as in every graph. Only if that has no answer, and the
    call would be executed, the database is asked: what another host recorded is taken over; what another host executes
    at present is waited for, as what another process of this host executes is. What is recorded here is written to the
    database while the rollout goes on. What becomes known of a call, as that it returns something else from time to
    time, reaches the other hosts within moments. If the database cannot be reached, this host goes on by itself.
    """

    def __init__(self, path: Path, owner: str, url: str, *, gives_timeouts: bool = False) -> None:
        """Opens this host's file and the database, and creates what is missing.

        Args:
            path, owner, gives_timeouts: see `Graph`.
            url: the database, see `Postgres`.

        Raises:
            UsageError: the address is none of PostgreSQL's, or a package is missing.
            TvsnapError: one of both cannot be used; the message says why.
        """
        self._postgres = Postgres(url, owner)
        try:
            super().__init__(path, owner, gives_timeouts=gives_timeouts)
        except BaseException:
            self._postgres.close()
            raise
        self._records: deque[int] = deque()
        self._released: deque[tuple[bytes, bytes]] = deque()
        self._awaited: dict[tuple[bytes, bytes], str] = {}  # calls that other hosts execute, and who has asked for them
        self._unwritten: list[Edge] = []  # of the block of `together`
        self._work = threading.Event()
        self._ending = False
        self._changes_applied = 0  # how often changes from elsewhere began to be applied
        self._asked = self._taken = self._given = self._dropped = 0
        self._of, self._mark = self._first_mark()
        self._warned = ""
        with contextlib.suppress(Unreachable):
            self._postgres.show_alive()
        self._threads = [
            threading.Thread(target=run, name=f"tvsnap-graph-{name}", daemon=True)
            for name, run in (("publish", self._publish), ("watch", self._watch))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def exchanged(self) -> Exchanged:
        """Counts of calls that this process has exchanged with other hosts."""
        waiting = len(self._records)
        return Exchanged(self._asked, self._taken, self._given, waiting, self._dropped, self._postgres.lost)

    def claim(
        self, state: str, call: ToolCall, timeout: float, backend: str = "", *, owner: str, **options: Any
    ) -> Edge | Lease | None:
        """See `Graph.claim`; another host may have recorded the call, or execute it."""
        ask = partial(super().claim, state, call, timeout, backend, owner=owner, **options)
        task = options.get("task", "")
        claimed = ask()
        if not isinstance(claimed, Lease) or claimed.owner != owner:
            return claimed
        key = (bytes.fromhex(state), bytes.fromhex(call.key))
        self._asked += 1
        try:
            holder = self._adopt(lambda: self._postgres.claim(*key), key, task)
        except Unreachable:
            return claimed
        claimed = ask()
        if not isinstance(claimed, Lease):
            self.release(state, call.key, owner)
            return claimed
        if holder is None or claimed.owner != owner:
            return claimed
        super().release(state, call.key, owner)
        while len(self._awaited) >= WAITING:  # whoever asked for the oldest did not come back for it
            self._awaited.pop(next(iter(self._awaited)), None)
        self._awaited[key] = task
        session, since = holder
        return Lease(state, call.key, session, time.time() - since, elsewhere=True)

    def release(self, state: str, call_key: str, owner: str) -> bool:
        """See `Graph.release`; other hosts may execute the call once they were told what was recorded."""
        released = super().release(state, call_key, owner)
        if released:
            self._released.append((bytes.fromhex(state), bytes.fromhex(call_key)))
            self._work.set()
        return released

    def holder(self, state: str, call_key: str) -> Lease | None:
        """Returns the lease for a call in a state, of this host or another one; None if there is none.

        If another host had it, what that host recorded is in this graph by then.
        """
        lease = super().holder(state, call_key)
        if lease is not None:
            return lease
        key = (bytes.fromhex(state), bytes.fromhex(call_key))
        try:
            holder = self._postgres.holder(*key)
            if holder is not None:
                return Lease(state, call_key, holder.session, time.time() - holder.since, elsewhere=True)
            task = self._awaited.pop(key, None)
            if task is not None:
                self._adopt(lambda: self._postgres.records(*key), key, task)
        except Unreachable:
            pass
        return None

    def record(self, new: NewEdge) -> Edge:
        """See `Graph.record`; if it is shared, other hosts are told of it."""
        edge = super().record(new)
        if new.shared:
            self._tell(edge)
        return edge

    def mark_nondeterministic(self, edge: Edge, reason: str) -> None:
        """See `Graph.mark_nondeterministic`; other hosts are told of it."""
        super().mark_nondeterministic(edge, reason)
        self._tell(edge)

    def prove(self, edge: Edge) -> None:
        """See `Graph.prove`; other hosts are told of it."""
        super().prove(edge)
        self._tell(edge)

    def close(self) -> None:
        """Gives away what is waiting, as far as that takes a few seconds, and closes the file; safe to repeat."""
        if not self._ending:
            self._ending = True
            self._work.set()
            self._postgres.wake()
            deadline = time.monotonic() + CLOSING_S
            for thread in self._threads:
                thread.join(max(0.1, deadline - time.monotonic()))
            self._postgres.close()
        super().close()

    # -- taking -----------------------------------------------------------------------------------------------------

    def _adopt(self, look: Callable[[], Answer], key: tuple[bytes, bytes], task: str) -> Held | None:
        """Takes over what `look` finds of a call; returns who executes it, as `look` says.

        Raises:
            Unreachable: the database does not answer.
        """
        changes_before = self._changes_applied
        answer = look()
        rows = answer.records
        while rows:
            self._add(rows, task)
            if changes_before == self._changes_applied:
                break
            changes_before = (
                self._changes_applied
            )  # something became known, perhaps of this call, while it was not here yet
            rows = self._postgres.records(*key).records
        return answer.holder

    def _add(self, rows: Sequence[EdgeRow], task: str) -> None:
        with contextlib.suppress(ValueError), self._database.write() as cursor:
            number = task_number(cursor, task)
            for row in rows:
                if row.deterministic and cursor.execute(_LATER, (row.state, row.call_key, row.created)).fetchone():
                    continue
                self._taken += adopt_call(cursor, row, number) == "added"

    def _watch(self) -> None:
        """Applies what becomes known at other hosts, and shows them that this process is alive, until `close`."""
        while not self._ending:
            try:
                with self._postgres.news() as news:
                    for _ in news:
                        if self._ending:
                            return
                        self._apply_changes()
            except Unreachable as error:
                self._warn("the shared graph cannot be used, going on without it: %s", error)
            except TvsnapError as error:
                self._warn("what other hosts found out cannot be taken over: %s", error)
            self._pause()

    def _warn(self, message: str, error: Exception) -> None:
        """Logs an error, once for as long as it stays the same."""
        warning = message % error
        if str(error) and warning != self._warned:
            _LOG.warning("%s", warning)
            self._warned = warning

    def _pause(self) -> None:
        until = time.monotonic() + RETRY_S
        while not self._ending and time.monotonic() < until:
            time.sleep(0.05)

    def _first_mark(self) -> tuple[str, int]:
        """Returns which database it is, and from where on its changes are of interest: none, for an empty file."""
        of = self._postgres.id
        row = self._row("SELECT value FROM counters WHERE name = ?", (_MARK_NAME.format(of),))
        if row is not None:
            return of, int(row[0])
        if self._row("SELECT 1 FROM edges LIMIT 1") is None:
            with contextlib.suppress(Unreachable):
                return of, self._postgres.mark()
        return of, 0

    def _apply_changes(self) -> None:
        if self._postgres.id != self._of:  # it was made anew
            self._of, self._mark = self._first_mark()
        changes, mark = self._postgres.changes(self._mark)
        if self._warned:
            _LOG.warning("the shared graph can be used again")
            self._warned = ""
        if changes:
            self._changes_applied += 1
            for some in _batches(changes):
                with self._database.write() as cursor:
                    for change in some:
                        _apply(cursor, change)
        if mark != self._mark:
            if changes:
                self._change(_KEEP_MARK, (_MARK_NAME.format(self._of), float(mark)))
            self._mark = mark

    # -- giving -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """See `Graph.together`; other hosts are told of it at its end."""
        with super().together():
            self._unwritten = written = list[Edge]()
            yield
        for edge in written:
            self._tell(edge)

    def _tell(self, edge: Edge) -> None:
        if self._database.is_joined:
            self._unwritten.append(edge)
            return
        if len(self._records) >= WAITING:
            self._dropped += 1
            return
        self._records.append(edge.id)
        self._work.set()

    def _publish(self) -> None:
        """Writes to the database what was recorded here, until `close`."""
        while True:
            self._work.wait()
            self._work.clear()
            try:
                while self._records or self._released:
                    self._publish_some()
            except Refused as error:
                _LOG.warning("the shared graph takes nothing: %s", error)
                self._dropped += len(self._records)
                self._records.clear()
                self._released.clear()
            except Unreachable:
                if not self._ending:
                    self._pause()
                    self._work.set()
            except TvsnapError as error:
                _LOG.warning("what was recorded could not be given to other hosts: %s", error)
            if self._ending:
                return

    def _publish_some(self) -> None:
        """Publishes some records, and releases after those that were recorded before them."""
        released = [self._released[place] for place in range(min(len(self._released), BATCH))]
        ids = [self._records[place] for place in range(min(len(self._records), BATCH))]
        if len(ids) < len(self._records):  # what was recorded before a release goes first
            released = []
        with self._database.read() as reader:
            records = [reader.execute(_PUBLIC, (id,)).fetchone() for id in dict.fromkeys(ids)]
        rows = [EdgeRow(*row) for row in records if row is not None]
        self._postgres.publish(rows, released)
        self._given += len(rows)
        for _ in ids:
            self._records.popleft()
        for _ in released:
            self._released.popleft()


def _batches(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    for place in range(0, len(changes), BATCH):
        yield changes[place : place + BATCH]


def _apply(cursor: sqlite3.Cursor, change: Change) -> None:
    here = cursor.execute(_HERE, change[:4]).fetchone()
    if here is None:
        return
    id, next_state = here
    if not change.deterministic:
        cursor.execute(DISTRUST, (change.reason, id))
    if next_state != change.next_state:
        return
    if change.refuted:
        cursor.execute("UPDATE edges SET proven = 0 WHERE id = ?", (id,))
    elif change.proven:
        cursor.execute(PROVE, (id,))
