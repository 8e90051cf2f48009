"""Sandboxes that run beside rollouts which were only answered, made while their models think.

Where something runs by itself, what a rollout has waited counts: when it makes a call that nobody has made, the sandbox
must have run as long as the rollout has waited. So a rollout that stays for a moment in such a state is given a
sandbox, else the wait would have to be made up for when the call comes.

Anywhere else a sandbox saves the fork that a new call would wait for. It is made where a new call is likely enough, and
no processor is taken from calls that run now.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import Protocol

from tvsnap.graph import Graph
from tvsnap.host.load import running
from tvsnap.model.errors import TvsnapError

PATIENCE = 0.25  # seconds: a rollout that is answered at once again, as in a replay, needs no sandbox
THINKING = 0.02  # seconds after which a rollout's model is taken to think, where a sandbox only saves a fork
LIKELY = 0.25  # chance of a new call from which on a fork, of which idle processors do most, is worth the call's wait
LOOK_AGAIN = 0.01  # seconds between looks at who is due


class Accompanied(Protocol):
    """A rollout, as much of it as counts here."""

    def lacks_sandbox(self, state: str) -> bool:
        """Whether it stands in a state, without a sandbox of its own; for any thread, which may see it change."""

    def make_companion(self, state: str) -> None:
        """Makes a sandbox that runs beside it in a state, unless it goes on meanwhile."""


class Companions:
    """Sees to it that rollouts of one cache have their sandboxes in time. Thread-safe."""

    def __init__(self, graph: Graph, *, ahead: bool = True) -> None:
        """
        Args:
            graph: tells how likely a new call is.
            ahead: make sandboxes also where they only save a fork.
        """
        self._graph = graph
        self._ahead = ahead
        self._processors = len(os.sched_getaffinity(0))
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[float, weakref.ref[Accompanied], str, bool]] = {}  # the latest of each
        self._wanted = threading.Event()  # somebody waits, or it is closed
        self._worker: threading.Thread | None = None
        self._closed = threading.Event()

    def expect(self, rollout: Accompanied, state: str, *, stirs: bool) -> None:
        """Says that a rollout has been answered, and stands without a sandbox.

        Args:
            rollout: the rollout.
            state: where it stands.
            stirs: something runs by itself there.
        """
        if not (stirs or self._ahead):
            return
        due = time.monotonic() + (PATIENCE if stirs else THINKING)
        with self._lock:
            self._waiting[id(rollout)] = (due, weakref.ref(rollout), state, stirs)
        if not self._wanted.is_set():
            self._wake()

    def close(self) -> None:
        """Forks no more, once the fork under way is done; safe to repeat."""
        with self._lock:
            self._closed.set()
            self._wanted.set()
        if self._worker is not None:
            self._worker.join()

    def _wake(self) -> None:
        with self._lock:
            self._wanted.set()
            if self._worker is None and not self._closed.is_set():
                self._worker = threading.Thread(target=self._work, name="tvsnap-companions", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed.wait(LOOK_AGAIN):
                return
            self._serve()  # holds no rollout while it waits for more

    def _serve(self) -> None:
        for rollout, state, stirs in self._due():
            if (stirs or self._is_likely(state)) and not self._closed.is_set():
                with contextlib.suppress(Exception):  # it is then forked when the call comes, or the caller is told
                    rollout.make_companion(state)

    def _due(self) -> list[tuple[Accompanied, str, bool]]:
        """Returns the rollouts whose time has come and that still stand where they stood, and where that is."""
        now, due = time.monotonic(), []
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            if not self._closed.is_set():
                self._wanted.clear()
        idle = any(when <= now for when, *_ in waiting.values()) and running() <= self._processors
        for key, (when, reference, state, stirs) in waiting.items():
            rollout = reference()
            if rollout is None or not rollout.lacks_sandbox(state):
                continue
            if when <= now and (stirs or idle):
                due.append((rollout, state, stirs))
            else:
                with self._lock:
                    self._waiting.setdefault(key, (when, reference, state, stirs))
                    self._wanted.set()
        return due

    def _is_likely(self, state: str) -> bool:
        """Whether the next call in a state is likely enough to be new."""
        try:
            return self._graph.chance_of_new_call(state) >= LIKELY
        except TvsnapError:  # nothing rests on it
            return False
