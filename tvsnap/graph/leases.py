"""Leases: of all rollouts, in any thread of any process, one at a time executes a given call in a given state."""

from __future__ import annotations

import time
from collections.abc import Callable

from tvsnap.graph.base import GraphPart
from tvsnap.graph.model import Lease


class Leases(GraphPart):
    """The part of `Graph` that keeps leases. They are durable: a holder that was killed leaves its lease behind."""

    def acquire(self, state: str, call_key: str, owner: str, is_alive: Callable[[str], bool] | None = None) -> bool:
        """Takes the lease for a call in a state, unless someone holds it.

        Whoever gets it should look the call up once more: the previous holder may have recorded it just before.

        Args:
            state: where the call is to be made.
            call_key: the call's hash.
            owner: who asks. Not re-entrant: asking again with the same owner fails too.
            is_alive: tells whether the holder with this name still lives; if it does not, its lease is taken over.

        Returns:
            Whether it was taken.
        """
        key = (bytes.fromhex(state), bytes.fromhex(call_key))
        with self._database.write() as cursor:
            cursor.execute(
                "INSERT INTO leases (state, call_key, owner, taken) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*key, owner, time.time()),
            )
            if cursor.rowcount == 1:
                return True
        if is_alive is None:
            return False
        lease = self.holder(state, call_key)
        if lease is None:
            return self.acquire(state, call_key, owner)
        return not is_alive(lease.owner) and self.take_over(state, call_key, lease.owner, owner)

    def take_over(self, state: str, call_key: str, dead_owner: str, owner: str) -> bool:
        """Passes a lease from `dead_owner` to `owner`; of several that try, one succeeds.

        Returns:
            Whether it did: False if `dead_owner` holds it no longer.
        """
        with self._database.write() as cursor:
            cursor.execute(
                "UPDATE leases SET owner = ?, taken = ? WHERE state = ? AND call_key = ? AND owner = ?",
                (owner, time.time(), bytes.fromhex(state), bytes.fromhex(call_key), dead_owner),
            )
            return cursor.rowcount == 1

    def release(self, state: str, call_key: str, owner: str) -> bool:
        """Gives a lease back.

        Returns:
            Whether `owner` held it.
        """
        with self._database.write() as cursor:
            cursor.execute(
                "DELETE FROM leases WHERE state = ? AND call_key = ? AND owner = ?",
                (bytes.fromhex(state), bytes.fromhex(call_key), owner),
            )
            return cursor.rowcount == 1

    def holder(self, state: str, call_key: str) -> Lease | None:
        """Returns the lease for a call in a state, None if nobody holds it."""
        with self._database.read() as reader:
            row = reader.execute(
                "SELECT owner, taken FROM leases WHERE state = ? AND call_key = ?",
                (bytes.fromhex(state), bytes.fromhex(call_key)),
            ).fetchone()
        return None if row is None else Lease(state, call_key, *row)

    def leases(self) -> list[Lease]:
        """Returns all leases, oldest first."""
        with self._database.read() as reader:
            rows = reader.execute("SELECT state, call_key, owner, taken FROM leases ORDER BY taken").fetchall()
        return [Lease(state.hex(), call_key.hex(), owner, taken) for state, call_key, owner, taken in rows]

    def sweep_leases(self, is_alive: Callable[[str], bool]) -> int:
        """Deletes the leases whose holders are dead.

        Returns:
            How many.
        """
        dead = {owner for owner in {lease.owner for lease in self.leases()} if not is_alive(owner)}
        with self._database.write() as cursor:
            cursor.executemany("DELETE FROM leases WHERE owner = ?", [(owner,) for owner in dead])
            return max(cursor.rowcount, 0)
