"""Finds out whether anything in a sandbox may change by itself, without a call, and when at the earliest.

Nothing can if every thread waits without a time limit for something that only a call can cause. All threads are
inspected, and none may have run meanwhile, because a thread not yet inspected could have woken another one.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tvsnap.model.observations import Stillness
from tvsnap.sandboxes.kernel.procfs import describe, inner_pid, read
from tvsnap.sandboxes.looks import timers
from tvsnap.sandboxes.looks.alarms import ALARMS
from tvsnap.sandboxes.looks.clocks import age_of
from tvsnap.sandboxes.looks.connections import Connection
from tvsnap.sandboxes.looks.native_look import TooMuch, descriptors, ran, threads
from tvsnap.sandboxes.looks.samples import Samples
from tvsnap.sandboxes.looks.waits import FOR_EVER, wait_of

__all__ = ["Unrest", "Watch", "family", "inner_pid", "told"]

_SIGALRM_BIT, _IGNORED = 1 << 13, 30
"""SIGALRM in the set of the signals that a process ignores, and the index of that set in `_fields`."""
_MOST_THREADS, _MOST_FILES = 2000, 4000
"""Totals; beyond them not everything is inspected, and the sandbox counts as active."""
_LONGEST_LIST = 1 << 16
_TOLD = 3
_SETTLE_TRIES, _SETTLE_PAUSE = 20, 0.0005


@dataclass(frozen=True, slots=True)
class Unrest:
    """Something that may happen by itself.

    Attributes:
        pid: the process, as the host sees it; 0 if it belongs to none.
        what: the event, in words.
        quiet_s: seconds during which it cannot happen.
    """

    pid: int
    what: str
    quiet_s: float

    def __str__(self) -> str:
        return f"{describe(self.pid)} {self.what}" if self.pid else self.what


@dataclass(frozen=True, slots=True)
class Look:
    """The result of inspecting a sandbox.

    Attributes:
        active: the events that may happen by themselves, in words; None if there are none.
        quiet_s: seconds from now during which nothing happens.
        passing: identifies the connections that end by themselves; empty if there are none, or if something runs.
    """

    active: str | None
    quiet_s: float
    passing: str = ""


def told(reasons: Iterable[Unrest], since: float) -> tuple[str | None, float]:
    """Returns the findings in words (None if there are none), and seconds from now during which nothing happens.

    `since` is the time.monotonic() of the inspection.
    """
    urgent = sorted(reasons, key=lambda one: one.quiet_s)
    if not urgent:
        return None, math.inf
    count = Counter(map(str, urgent))
    entries = list(count.items())
    words = [what if times == 1 else f"{what} ({times} times)" for what, times in entries[:_TOLD]]
    if others := sum(times for _, times in entries[_TOLD:]):
        words.append(f"{others} more")
    return _printable("; ".join(words)), max(0.0, urgent[0].quiet_s - (time.monotonic() - since))


def family(init: int) -> list[int]:
    """Returns a process and all its descendants, as the host sees them."""
    pids = [init]
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended; then it ran, which is noticed
            for thread in os.listdir(f"/proc/{pid}/task"):
                pids += map(int, read(f"/proc/{pid}/task/{thread}/children", _LONGEST_LIST).split())
    return pids


class Watch:
    """Inspects one sandbox, and caches the findings for processes that have not run since."""

    def __init__(
        self,
        list_pids: Callable[[], Collection[int]],
        init: int,
        passing: Callable[[], list[Connection]],
        used: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """
        Args:
            list_pids: returns the sandbox's processes, as the host sees them.
            init: its PID 1, which does nothing by itself.
            passing: returns the connections that end by themselves.
            used: returns the seconds of processor time that all processes of the sandbox have used; 0 if not known.
        """
        self._list_pids = list_pids
        self._init = init
        self._passing = passing
        self._used = used
        self._samples = Samples(used)  # while something may happen by itself
        self._due: list[float] = []  # when it may, at the earliest
        self._records: dict[
            int, tuple[bytes, list[tuple[str, float]]]
        ] = {}  # the processor time that it had used, and its events with their earliest times

    def look(self, shell: int, leave_out: Collection[int] = (), there: Collection[int] | None = None) -> Look:
        """Returns the events that may happen by themselves.

        Args:
            shell: the persistent shell while it waits for a command; else 0.
            leave_out: processes to ignore.
            there: the sandbox's processes, if they have just been listed.
        """
        for last in range(_SETTLE_TRIES, -1, -1):
            since = time.monotonic()
            passing: list[Connection] = []
            reasons = self._look({self._init, *leave_out}, since, passing, there)
            there = None
            if not last or [one.pid for one in reasons if not one.quiet_s] != [shell]:
                break
            time.sleep(_SETTLE_PAUSE)  # the shell has just reported its state, and is about to sleep
        return Look(*told(reasons, since), " ".join(sorted(one.ends for one in passing)))

    def has_stood_still(self, pid: int) -> bool:
        """Whether a process has not run since the last look, which found the events that it may cause by itself."""
        record = self._records.get(pid)
        with contextlib.suppress(OSError):  # it has ended
            return record is not None and ran([pid], _MOST_THREADS)[pid] == record[0]
        return False

    def stillness(self) -> Stillness | None:
        """Returns for how long nothing has run in the sandbox, its shell and PID 1 included, since the last look.

        Returns:
            None if it is not known.
        """
        used, since, happened = self._used(), self._samples.still_since(), self._last_due()
        look = self.look(0)
        if since is None or look.quiet_s <= 0 or self._used() != used:
            return None
        return Stillness(max(0.0, time.monotonic() - max(since, happened)), look.quiet_s)

    def _last_due(self) -> float:
        """Returns when the last of the events was due that the last look found; they need not make anything run."""
        now = time.monotonic()
        return max((at for at in self._due if at <= now), default=-math.inf)

    def _look(
        self, leave_out: set[int], now: float, passing: list[Connection], there: Collection[int] | None
    ) -> list[Unrest]:
        reasons: list[Unrest] = []
        try:
            pids = [pid for pid in (self._list_pids() if there is None else there) if pid not in leave_out]
            before = ran(pids, _MOST_THREADS)
            unchanged = {pid: self._records[pid] for pid in pids if self._holds(pid, before[pid], now)}
            for pid, (_, told_before) in unchanged.items():
                reasons += [Unrest(pid, what, at - now) for what, at in told_before]
            new = [pid for pid in pids if pid not in unchanged]
            ringing: list[int] = []
            for pid in new:
                rows = list(threads(pid))
                for one in _of_threads(pid, rows, self._init):
                    reasons.append(one)
                    if not one.quiet_s:
                        return reasons
                if any(_hears_alarms(stat) for _, stat, _ in rows):
                    ringing.append(pid)
            reasons += _of_timers(new, ringing)
            passing += self._passing()
            reasons += [Unrest(0, str(one), one.seconds_left) for one in passing]
            after = ran(pids, _MOST_THREADS)
            for pid in pids:
                if after[pid] != before[pid]:
                    return [*reasons, Unrest(pid, "is running", 0.0)]
            if started := set(self._list_pids()).difference(pids, leave_out):
                return [*reasons, Unrest(min(started), "has just been started", 0.0)]
            if reasons:
                self._samples.begin()
            elif self._due:
                self._samples.end()
            self._due = [now + one.quiet_s for one in reasons]
        except TooMuch:
            return [*reasons, Unrest(0, "there are too many processes to look at", 0.0)]
        except (FileNotFoundError, ProcessLookupError):
            return [*reasons, Unrest(0, "a process has just ended", 0.0)]
        except OSError as error:
            return [*reasons, Unrest(0, f"what runs cannot be looked at ({error.strerror})", 0.0)]
        self._records = unchanged
        for pid in new:
            mine = [(one.what, now + one.quiet_s) for one in reasons if one.pid == pid]
            self._records[pid] = (before[pid], mine)
        return reasons

    def _holds(self, pid: int, now_ran: bytes, now: float) -> bool:
        """Whether the last findings for a process are valid: it has not run, and nothing that it waits for is due."""
        record = self._records.get(pid)
        return record is not None and record[0] == now_ran and all(at > now for _, at in record[1])


def _of_threads(pid: int, rows: Sequence[tuple[int, bytes, bytes]], init: int) -> Iterator[Unrest]:
    """Yields the events that the threads of a process may cause; `rows` is the result of `threads`."""
    for thread, stat, call in rows:
        fields = _fields(stat)
        state = fields[0].decode()
        if state in "ZX":
            if int(fields[1]) == init:
                yield Unrest(pid, "has ended and is about to go", 0.0)
            elif thread == pid and len(rows) > 1:  # then /proc shows nothing of its files and waits
                yield Unrest(pid, "goes on after its first thread has ended", 0.0)
            continue
        if state == "D":
            yield Unrest(pid, "waits for the disk, or a process that it starts", 0.0)
            continue
        if state not in "STt":
            yield Unrest(pid, "is running", 0.0)
            continue
        text = call.decode(errors="replace")
        if state != "S" and text.startswith("-1"):
            continue  # stopped outside of any system call
        wait = wait_of(pid, thread, text, age_of(int(fields[19])))
        if wait.least >= FOR_EVER:
            continue
        if state != "S" and math.isnan(wait.most):
            continue  # stopped in a system call that has no known time limit
        if math.isnan(wait.most):
            yield Unrest(pid, "is running" if text.startswith("running") else _unknown(text), 0.0)
        else:
            yield Unrest(pid, f"waits at most {_seconds(wait.most)}", wait.least)


def _fields(stat: bytes) -> list[bytes]:
    """Returns the fields of a `stat` in /proc from the state on."""
    return stat[stat.rindex(b")") + 2 :].split()


def _hears_alarms(stat: bytes) -> bool:
    """Whether a process does not ignore SIGALRM, given the `stat` of one of its threads."""
    return not int(_fields(stat)[_IGNORED]) & _SIGALRM_BIT


def _unknown(text: str) -> str:
    number = text.split()[:1]
    return f"waits for what may come by itself (system call {number[0]})" if number else "waits for what is not known"


def _of_timers(pids: list[int], may_ring: list[int]) -> Iterator[Unrest]:
    """Yields the events of processes' timers; alarms only reach those that `may_ring`."""
    room = _MOST_FILES
    posix: list[int] = []
    for pid in pids:
        try:
            targets = dict(descriptors(pid, room))
        except TooMuch:
            yield Unrest(pid, "is one of those with too many open files to look at", 0.0)
            return
        room -= len(targets)
        for seconds in timers.timerfds(pid, targets):
            yield from _rings(pid, "has a timer", seconds)
        has_timers = timers.posix_timers(pid)
        if has_timers is None:
            yield Unrest(pid, "has a timer that rings at an unknown time", 0.0)
        elif has_timers:
            posix.append(pid)
    if not may_ring and not posix:
        return
    try:
        alarms, set_timers = ALARMS.left({*posix, *may_ring})
    except OSError:  # this kernel does not show the owners
        yield from _of_any_process(posix, may_ring)
        return
    for pid in posix:
        yield from _rings(pid, "has set a timer", set_timers.get(pid, math.inf))
    for pid in may_ring:
        yield from _rings(pid, "has set an alarm", alarms.get(pid, math.inf))


def _of_any_process(posix: list[int], may_ring: list[int]) -> Iterator[Unrest]:
    """Yields the events of timers that belong to one of these processes, or to another one on this machine."""
    try:
        first = timers.first_to_ring()
    except OSError:
        yield Unrest((posix or may_ring)[0], "may have set a timer, which this machine does not tell", 0.0)
        return
    for kind, whose in ((timers.POSIX, posix), (timers.ALARM, may_ring)):
        for pid in whose:
            yield from _rings(pid, "may have set a timer", first.get(kind, math.inf))


def _rings(pid: int, what: str, seconds: float) -> Iterator[Unrest]:
    if seconds < FOR_EVER:
        yield Unrest(pid, f"{what} that rings in {_seconds(seconds)}", seconds)


def _seconds(number: float) -> str:
    return f"{number:.3g} s" if number < 999.5 else f"{number:.0f} s"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
