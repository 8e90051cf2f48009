"""Companions: sandboxes that are made for rollouts whose calls were answered, while their models think.

If something runs by itself, the time that a rollout has waited counts: for a call that nobody has made before, the
sandbox must have run for as long. So a rollout that stays in such a state for a moment gets a sandbox; otherwise the
call would have to wait for that time.

In other states a sandbox saves the fork for which a new call would wait. It is made if a new call is likely enough, and
if no processor is taken from calls that run now.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor, wait

from tvsnap.engine.events import Accompanied, Answered
from tvsnap.engine.position import Position
from tvsnap.graph import Graph
from tvsnap.host.load import running
from tvsnap.model.errors import TvsnapError

PATIENCE = 0.05  # seconds: a rollout that is answered again at once, as in a replay, needs no sandbox
THINKING = 0.02  # seconds after which a model is assumed to think, if a sandbox only saves a fork
LAST_FORK = 5.0  # seconds that closing waits for the sandboxes that are being made
AGAIN = 0.1  # seconds between two attempts to make a sandbox while there is no room, or a grade is given
NEW_CALL_CHANCE = 0.25  # the least probability of a new call for which a sandbox is forked while a model thinks
LOOK_AGAIN = 0.01  # seconds between two looks for rollouts that are due


class Companions:
    """Makes sandboxes for the rollouts of one cache in time. Thread-safe."""

    def __init__(self, graph: Graph, *, ahead: bool = True) -> None:
        """
        Args:
            graph: gives the probability of a new call.
            ahead: sandboxes are also made if they only save a fork.
        """
        self._graph = graph
        self._ahead = ahead
        self._processors = len(os.sched_getaffinity(0))
        # Apart from the workers: a sandbox that waits for room must not delay conclusions of calls, which make room.
        self._makers = ThreadPoolExecutor(max(2, self._processors), thread_name_prefix="tvsnap-companion")
        self._making: set[Future[None]] = set()
        self._lock = threading.Lock()
        self._waiting: dict[weakref.ref[Accompanied], tuple[float, str, bool]] = {}  # the latest of each
        self._wanted = threading.Event()  # somebody waits, or it is closed
        self._worker: threading.Thread | None = None
        self._closed = threading.Event()

    def answered(self, event: Answered) -> None:
        """Has a sandbox made for a rollout that was answered and has none, unless it is answered again soon."""
        if event.without_sandbox:
            self._expect(event.rollout, event.at, PATIENCE)

    def begun(self, rollout: Accompanied, at: Position) -> None:
        """Has a sandbox made for a rollout that begins by `fork` or `resume`; at once if something runs there."""
        if rollout.lacks_sandbox(at.state):
            self._expect(weakref.ref(rollout), at, 0.0)

    def _expect(self, rollout: weakref.ref[Accompanied], at: Position, patience: float) -> None:
        stirs = at.quiet_s < math.inf  # something runs by itself
        if not (stirs or self._ahead):
            return
        when = time.monotonic() + (patience if stirs else THINKING)
        with self._lock:
            self._waiting[rollout] = (when, at.state, stirs)
        if not self._wanted.is_set():
            self._wake()

    def _wake(self) -> None:
        with self._lock:
            self._wanted.set()
            if self._worker is None and not self._closed.is_set():
                self._worker = threading.Thread(target=self._work, name="tvsnap-companions", daemon=True)
                self._worker.start()

    def close(self) -> None:
        """Makes no more sandboxes, and waits for the one that is being made; safe to repeat."""
        with self._lock:
            self._closed.set()
            self._wanted.set()
            making = set(self._making)
        if self._worker is not None:
            self._worker.join(LAST_FORK)
        wait(making, LAST_FORK)  # one that waits for room ends when the pool is closed
        self._makers.shutdown(wait=False)

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed.wait(LOOK_AGAIN):
                return
            self._serve()  # holds no reference to a rollout while it waits for more

    def _serve(self) -> None:
        # If something runs by itself, a call's result depends on a sandbox that is there in time.
        for rollout, state, stirs in sorted(self._due(), key=lambda due: not due[2]):
            if stirs or self._is_likely(state):
                with self._lock:
                    if self._closed.is_set():
                        return
                    making = self._makers.submit(self._make, weakref.ref(rollout), state, stirs)
                    self._making.add(making)
                making.add_done_callback(self._made)

    def _make(self, reference: weakref.ref[Accompanied], state: str, stirs: bool) -> None:
        """Makes a sandbox, in a worker; if something runs by itself, tries again until there is room and no grade.

        A rollout that waits for its turn here may be dropped meanwhile.
        """
        rollout = reference()
        with contextlib.suppress(Exception):  # the call will then make a sandbox, or raise
            if rollout is not None and rollout.lacks_sandbox(state) and not rollout.make_companion(state) and stirs:
                with self._lock:  # not in place of a later state
                    self._waiting.setdefault(reference, (time.monotonic() + AGAIN, state, stirs))
                self._wake()

    def _made(self, making: Future[None]) -> None:
        with self._lock:
            self._making.discard(making)

    def _due(self) -> list[tuple[Accompanied, str, bool]]:
        """Returns the rollouts that are due and have not gone on, and their states."""
        now, due = time.monotonic(), []
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            if not self._closed.is_set():
                self._wanted.clear()
        idle = any(when <= now for when, *_ in waiting.values()) and running() <= self._processors
        spare = self._processors - len(self._making)  # one takes a processor
        for reference, (when, state, stirs) in waiting.items():
            rollout = reference()
            if rollout is None or not rollout.lacks_sandbox(state):
                continue
            if when <= now and (stirs or (idle and spare > 0)):
                due.append((rollout, state, stirs))
                spare -= 1
            else:
                with self._lock:
                    self._waiting.setdefault(reference, (when, state, stirs))
                    self._wanted.set()
        return due

    def _is_likely(self, state: str) -> bool:
        """Returns whether the next call in a state is likely enough to be new."""
        try:
            return self._graph.chance_of_new_call(state) >= NEW_CALL_CHANCE
        except TvsnapError:  # it is only a prediction
            return False
