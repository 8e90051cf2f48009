"""Counts of one prior cache, in memory until they are written."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator

from tvsnap import InfrastructureError, TvsnapError
from tvsnap.plugins.priors.prior import Source
from tvsnap.plugins.priors.store import Entry, Store

logger = logging.getLogger("tvsnap.priors")
FLUSH_S = 1.0
"""Seconds after which counts in memory are written."""
MOST_EVICTED = 100_000
"""Evicted entries that a cache remembers, at most."""


class Tallies:
    """The counts of one cache, the uses of entries, and the entries that it evicted. Thread-safe."""

    def __init__(self, store: Store) -> None:
        """
        Args:
            store: the file.
        """
        self._store = store
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._uses: Counter[int] = Counter()
        self._totals: Counter[str] = Counter()
        self._evicted: OrderedDict[bytes, None] = OrderedDict()
        self._flushed = time.monotonic()
        self._failure = ""  # the failure that was logged last

    def add(self, **counts: float) -> None:
        """Adds to counts, by name; they are written within a second of the next call."""
        with self._lock:
            for name, value in counts.items():
                self._counts[name] += value  # type: ignore[assignment]
                self._totals[name] += value  # type: ignore[assignment]
            late = time.monotonic() - self._flushed > FLUSH_S
        if late:
            with self.at_most_logged():
                self.flush()

    def add_use(self, entry: Entry, source: Source) -> None:
        """Counts an answer by an entry.

        Args:
            entry: the entry.
            source: the prior's source.
        """
        with self._lock:
            self._uses[entry.id] += 1
        self.add(**{source: 1, "saved_s": entry.ask_s})

    def add_evicted(self, states: Iterable[bytes]) -> None:
        """Remembers the first bytes of the states of evicted entries."""
        with self._lock:
            self._evicted.update(dict.fromkeys(states))
            while len(self._evicted) > MOST_EVICTED:
                self._evicted.popitem(last=False)

    def forget_evicted(self, state: bytes) -> bool:
        """Returns whether the entry of a state was evicted, and forgets that.

        Args:
            state: the first bytes of the state's digest.
        """
        with self._lock:
            return self._evicted.pop(state, 0) is None

    def totals(self) -> dict[str, float]:
        """Returns the counts since the beginning."""
        with self._lock:
            return dict(self._totals)

    def flush(self) -> None:
        """Writes what is in memory.

        Raises:
            TvsnapError: the file cannot be used; the counts stay in memory.
        """
        with self._lock:
            counts, uses = self._counts, self._uses
            self._counts, self._uses = Counter(), Counter()
            self._flushed = time.monotonic()
        if not (counts or uses):
            return
        try:
            self._store.count(counts, uses)
        except TvsnapError:
            with self._lock:  # for the next time
                self._counts.update(counts)
                self._uses.update(uses)
            raise

    @contextlib.contextmanager
    def at_most_logged(self) -> Iterator[None]:
        """A block that writes; if that fails, as on a full disk, the error is logged, once while it stays the same."""
        try:
            yield
        except InfrastructureError as error:
            if str(error) != self._failure:
                logger.warning("something could not be kept: %s", error)
                self._failure = str(error)
