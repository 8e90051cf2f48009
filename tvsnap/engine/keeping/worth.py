"""Whether the cache is worth what it costs: looks at sandboxes, snapshots and forks, which only answers bring back.

Where calls are short, a look takes as long as a call, and a fork as several: who executes all of them is done sooner.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tvsnap.engine.keeping.policy import Balance, Policy
from tvsnap.engine.keeping.repeats import NEVER_REPEATED, Repeats
from tvsnap.host.load import busy_seconds, crowding
from tvsnap.model.tuning import Tuning, default_tuning

UNPROFITABLE = "for calls as short as these the cache costs more than it saves"
"""Why nothing is shared from where a policy has said so."""
NOT_WORTH_IT = frozenset((UNPROFITABLE, NEVER_REPEATED))
"""Why nothing is recorded of a rollout although it could be: it is not looked at either."""
REMEMBERED = 1000  # images
COURSES_REMEMBERED = 10_000  # long calls that were not recorded
LONG = 0.2  # seconds of a call whose answer surely saves more than the record of it and of some calls before it costs
MEMORY = 60.0  # seconds after which what was counts for the part 1/e
BESIDE = 2.7  # processor time of a fork, a start or a checkpoint, with the removal of a sandbox, for each second of it
LOOK_AGAIN = 0.05  # seconds after which it is looked at again how busy the machine is
STEADY = 0.5  # seconds over which that is averaged: all rollouts of a group begin at once
BUSY = 0.5  # how much others are held up, from which on only what pays is done for a rollout
CROWDED = 1.5  # threads that want each processor, from which on the same holds at once
MEMORY_OF_CALLS = 10.0  # seconds of calls after which what they computed counts for the part 1/e
LATEST = 0.1  # weight of the latest start of a sandbox in their average
LEAST_EXECUTED = 1.0  # seconds of calls from which on it is known which part of them is computing


def _used_by_others() -> float:
    """Returns the seconds of processor time of this machine that neither this process used, nor those it waited for."""
    times = os.times()
    return busy_seconds() - sum(times[:4])


@dataclass(slots=True)
class _Sums:
    """Sums of one image, as in `Balance`, that fade with time."""

    since: float  # when they were faded last, by the clock
    cost_s: float = 0.0
    spared_s: float = 0.0
    lasted_s: float = 0.0

    def fade(self, now: float) -> None:
        """Lets time pass."""
        part = math.exp((self.since - now) / MEMORY)
        self.since = now
        self.cost_s *= part
        self.spared_s *= part
        self.lasted_s *= part


class Worth:
    """Asks a policy whether the cache is worth what it costs. Thread-safe.

    Attributes:
        repeats: which calls are made again; counted only where the policy says what is recorded.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        always: bool = False,
        tuning: Callable[[], Tuning] = default_tuning,
        crowding: Callable[[], float] = crowding,
        busy_seconds: Callable[[], float] = busy_seconds,
        computed: Callable[[], float] = _used_by_others,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            policy: says what is recorded, if it has a method `should_record`; else all is.
            always: all is recorded, whatever the policy says.
            tuning: tells the cache's parameters; by default those that were chosen by hand.
            crowding: tells how many threads want each processor, at least 1.
            busy_seconds: tells for how long the machine's processors have been busy, seconds.
            computed: tells the processor time that sandboxes have used, or more, seconds.
            clock: tells the time, seconds.
        """
        self._clock = clock
        self._tuning = tuning
        self._looked, self._crowded, self._used = clock(), 1.0, 0.0
        self._processors = len(os.sched_getaffinity(0))
        self._executed_s = 0.0  # of calls since it was last looked at
        self._calls_s, self._computed_s = 0.0, 0.0  # of calls, and what they computed; both fade
        self._busy_seconds, self._busy_s = busy_seconds, busy_seconds()
        self._computed, self._computed_before_s = computed, computed()
        self._should_record = None if always else getattr(policy, "should_record", None)
        self._crowding = crowding
        self.repeats = Repeats()
        self._lock = threading.Lock()
        self._sums: OrderedDict[str, _Sums] = OrderedDict()
        self._starts: OrderedDict[str, float] = OrderedDict()
        self._missed: OrderedDict[str, int] = OrderedDict()  # how often each was executed
        self._under_way, self._usually = 0, 1.0  # calls, now and on average
        self._most, self._most_since = 1.0, clock()  # calls under way at once, at most; fades

    def call_begins(self) -> None:
        """Takes note that a rollout begins a call."""
        with self._lock:
            self._under_way += 1
            now = self._clock()
            faded = self._most * math.exp((self._most_since - now) / MEMORY)
            self._most, self._most_since = max(faded, self._under_way), now

    def call_ends(self) -> None:
        """Takes note that a rollout has ended a call."""
        with self._lock:
            self._under_way -= 1

    @property
    def weighs(self) -> bool:
        """Whether the policy says what is recorded; otherwise all is, whatever it costs others."""
        return self._should_record is not None

    @property
    def busy(self) -> float:
        """How much other rollouts are held up by what is computed for one, 0 to 1.

        That is the part of the processors that is busy, and less where few calls are made at once.
        """
        return self._used * min(1.0, self._others)

    @property
    def is_held_up(self) -> bool:
        """Whether what is computed for one rollout holds up others so much that only what pays is done.

        That is so where the processors have been busy, and at once where threads want them for more calls than there
        are processors. It is never so where all is recorded, whatever that costs.
        """
        if not self.weighs:
            return False
        self._look()
        return self.busy > BUSY or (self._under_way > self._processors and self._crowded >= CROWDED)

    @property
    def _others(self) -> float:
        """How many other calls want each processor."""
        return max(0.0, self._usually - 1.0) / self._processors

    def answered(self, image: str, seconds: float, *, waiting_s: float, lasted_s: float, spared_s: float = 0.0) -> None:
        """Takes note that a call was answered.

        Args:
            image: the digest of its image.
            seconds: what it took when it was executed.
            waiting_s, lasted_s: see `add`; the caller waited for the answer.
            spared_s: seconds that a rollout's first sandbox usually takes, if a rollout begins with it, and needs none;
                what one has taken in this process counts in place of that.
        """
        started_s = self._starts.get(image, spared_s) if spared_s else 0.0
        self.add(image, waiting_s=waiting_s, lasted_s=lasted_s, answered_s=seconds, started_s=started_s)

    def started(self, image: str, seconds: float) -> None:
        """Takes note that a rollout has got its first sandbox, at the root; what counts is the average of late ones.

        Args:
            image: the image's digest.
            seconds: how long it took.
        """
        with self._lock:
            before = self._starts.get(image, seconds)
            self._starts[image] = before + LATEST * (seconds - before)
            while len(self._starts) > REMEMBERED:
                self._starts.popitem(last=False)

    def executed(self, seconds: float) -> None:
        """Takes note that a call was executed, which took so many seconds."""
        with self._lock:
            self._executed_s += seconds

    def missed(self, image: str, course: str, seconds: float) -> None:
        """Takes note that a long call was executed which nobody records, as the cache has not paid.

        When it is made for the second time, its answer would have saved that: this counts once, as if it had, so that
        the next rollouts are recorded again up to there.

        Args:
            image: the digest of its image.
            course: identifies the call and those before it, see `Position`.
            seconds: how long it took.
        """
        with self._lock:
            times = self._missed[course] = self._missed.get(course, 0) + 1
            self._missed.move_to_end(course)
            while len(self._missed) > COURSES_REMEMBERED:
                self._missed.popitem(last=False)
        if times == 2:
            self.add(image, answered_s=seconds)

    def objection(self, image: str, state: str | None, call: str) -> str | None:
        """Returns why the next call, which is executed in a state of an image, is not to be recorded; None if it is.

        Args:
            image: the image's digest.
            state: the state's hash; None in a private branch.
            call: the call's key.
        """
        if not self.is_given(image):
            return UNPROFITABLE
        if self.weighs and state is not None and not self.repeats.should_record(state, call):
            return NEVER_REPEATED
        return None

    def is_given(self, image: str) -> bool:
        """Whether the next call in a state of an image is to be recorded, if it is executed.

        Args:
            image: the image's digest.
        """
        return self._should_record is None or bool(self._should_record(self.balance(image)))

    def balance(self, image: str) -> Balance:
        """Returns what the cache costs the rollouts of an image, and saves them.

        Args:
            image: the image's digest.
        """
        self._look()
        with self._lock:
            sums = self._faded(image)
            return Balance(sums.cost_s, sums.spared_s, sums.lasted_s, self._trial_s(), self._tuning().record_share)

    def _trial_s(self) -> float:
        """Returns how many seconds the cache may cost until it is known whether it pays.

        The more calls are made at once, the sooner that is known.
        """
        return self._tuning().trial_s / max(1.0, self._most)

    def add(
        self,
        image: str,
        *,
        waiting_s: float = 0.0,
        lasted_s: float = 0.0,
        working_s: float = 0.0,
        acquiring_s: float = 0.0,
        answered_s: float = 0.0,
        started_s: float = 0.0,
    ) -> None:
        """Takes note of what rollouts of an image took just now.

        Args:
            image: the image's digest.
            waiting_s: seconds that a caller waited for anything but the execution of its call.
            lasted_s: seconds that a rollout lasted, calls and thinking.
            working_s: seconds of processor time.
            acquiring_s: seconds, as they passed, of work that processors did nearly all the time: forks, checkpoints.
            answered_s: seconds that an answered call took when it was executed.
            started_s: seconds that the start of a sandbox would have taken which the answer has made needless.
        """
        if self._should_record is None:
            return
        self._look()
        with self._lock:
            crowding, waiting = self._crowded, 1.0 - self.busy
            working = self._used * self._others
            sums = self._faded(image)
            sums.cost_s += waiting * waiting_s + working * (working_s + BESIDE * acquiring_s / crowding)
            computed_s = self._computing * answered_s + BESIDE * started_s / crowding
            sums.spared_s += waiting * (answered_s + started_s) + working * computed_s
            sums.lasted_s += lasted_s

    @property
    def _computing(self) -> float:
        """Seconds of processor time for each second of calls, lately; 1 until it is known."""
        return min(1.0, self._computed_s / self._calls_s) if self._calls_s > LEAST_EXECUTED else 1.0

    def _faded(self, image: str) -> _Sums:
        """Returns the sums of an image as of now."""
        now = self._clock()
        sums = self._sums.get(image)
        if sums is None:
            sums = self._sums[image] = _Sums(now)
            while len(self._sums) > REMEMBERED:
                self._sums.popitem(last=False)
        self._sums.move_to_end(image)
        sums.fade(now)
        return sums

    def _look(self) -> None:
        """Takes note, now and then, of how busy the machine is."""
        now = self._clock()
        with self._lock:
            passed = now - self._looked
            if passed < LOOK_AGAIN:
                return
            self._looked = now
        self._crowded = self._crowding()
        part = min(1.0, passed / STEADY)
        before, self._busy_s = self._busy_s, self._busy_seconds()
        used = (self._busy_s - before) / (passed * (os.cpu_count() or 1))
        self._used += part * (min(1.0, used) - self._used)
        self._usually += part * (self._under_way - self._usually)
        self._look_at_calls()

    def _look_at_calls(self) -> None:
        """Takes note of what calls have computed. Long calls are counted when they end, so time alone fades nothing."""
        before, self._computed_before_s = self._computed_before_s, self._computed()
        with self._lock:
            executed_s, self._executed_s = self._executed_s, 0.0
            part = math.exp(-executed_s / MEMORY_OF_CALLS)
            self._calls_s = part * self._calls_s + executed_s
            self._computed_s = part * self._computed_s + max(0.0, self._computed_before_s - before)
