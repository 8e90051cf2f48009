"""Whether the cache is worth what it costs: looks at sandboxes, and forks, which only answers bring back.

Where calls are short, a look takes as long as a call, and a fork as several: who executes all of them is done sooner.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from tvsnap.engine.keeping.policy import Balance, Policy
from tvsnap.host.load import crowding

UNPROFITABLE = "for calls as short as these the cache costs more than it saves"
"""Why nothing is shared from where a policy has said so."""
LONGEST = 10.0  # seconds of costs after which all sums are halved, so that the latest calls count
REMEMBERED = 1000  # images
TRIAL = 0.5  # seconds that there are for trials at the start ...
MOST_TRIAL = 1.0  # ... and that are saved up at most
TRIAL_SHARE = 0.05  # of the time of all processors, which is for trials
SATURATED = 2.0  # threads for each processor from which on it saves nobody anything that a call which waits is answered
LEAST_EXECUTED = 1.0  # seconds of calls from which on it is known which part of them is computing
LOOK_AGAIN = 0.05  # seconds after which it is looked at again how busy the machine is


def _computed() -> float:
    """Returns the processor time of all processes that this one has started, and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


class Worth:
    """Asks a policy whether the cache is worth what it costs. Thread-safe."""

    def __init__(
        self,
        policy: Policy,
        *,
        always: bool = False,
        crowding: Callable[[], float] = crowding,
        clock: Callable[[], float] = time.monotonic,
        computed: Callable[[], float] = _computed,
    ) -> None:
        """
        Args:
            policy: says what is recorded, if it has a method `should_record`; else all is.
            always: all is recorded, whatever the policy says.
            crowding: tells how many threads want each processor, at least 1.
            clock: tells the time, seconds.
            computed: tells the processor time that what runs in sandboxes has taken so far, seconds.
        """
        self._clock = clock
        self._trial_s = TRIAL
        self._since = clock()
        self._looked, self._crowded = -math.inf, 1.0
        self._processors = len(os.sched_getaffinity(0))
        self._executed_s = 0.0
        self._computing = 1.0  # seconds of a processor for each second of calls, when last looked at
        self._computed = computed
        self._should_record = None if always else getattr(policy, "should_record", None)
        self._crowding = crowding
        self._lock = threading.Lock()
        self._balances: OrderedDict[str, Balance] = OrderedDict()
        self._starts: OrderedDict[str, float] = OrderedDict()

    def answered(self, image: str, seconds: float, *, spared_s: float = 0.0) -> None:
        """Takes note that a call was answered.

        Args:
            image: the digest of its image.
            seconds: what it took when it was executed.
            spared_s: seconds that a rollout's first sandbox usually takes, if a rollout begins with it, and needs none;
                what one has taken in this process counts in place of that.
        """
        self.add(image, answered_s=seconds + (self._starts.get(image, spared_s) if spared_s else 0.0))

    def started(self, image: str, seconds: float) -> None:
        """Takes note that a rollout has got its first sandbox, at the root.

        Args:
            image: the image's digest.
            seconds: how long it took.
        """
        with self._lock:
            self._starts[image] = seconds
            while len(self._starts) > REMEMBERED:
                self._starts.popitem(last=False)

    def is_given(self, image: str) -> bool:
        """Whether the next call in a state of an image is to be recorded, if it is executed.

        Args:
            image: the image's digest.
        """
        if self._should_record is None:
            return True
        with self._lock:
            balance = self._balances.get(image, Balance())
            trial_s = self._save_up()
        return bool(self._should_record(replace(balance, trial_s=trial_s)))

    def add(
        self,
        image: str,
        *,
        executed_s: float = 0.0,
        recording_s: float = 0.0,
        reaching_s: float = 0.0,
        answered_s: float = 0.0,
    ) -> None:
        """Takes note of what rollouts of an image took just now.

        Args:
            image: the image's digest.
            executed_s, reaching_s, answered_s: seconds, as they passed; see `Balance`.
            recording_s: seconds of processor time.
        """
        if self._should_record is None:
            return
        now = self._clock()
        if now - self._looked > LOOK_AGAIN:
            self._looked, self._crowded = now, self._crowding()
            if self._executed_s > LEAST_EXECUTED:
                self._computing = self._computed() / self._executed_s
        crowding = self._crowded
        with self._lock:
            self._executed_s += executed_s
            computing = min(1.0, self._computing * crowding)  # the other part of a call's time it only waits
            weight = computing / crowding + (1.0 - computing) * max(0.0, SATURATED - crowding)
            before = self._balances.pop(image, Balance())
            part = 0.5 if before.recording_s + before.reaching_s > LONGEST else 1.0
            self._balances[image] = balance = Balance(
                part * before.executed_s + executed_s * weight,
                part * before.recording_s + recording_s,
                part * before.reaching_s + reaching_s / crowding,
                part * before.answered_s + answered_s * weight,
            )
            if balance.loss(0.0) > 0:  # which holds nobody up where processors are idle
                taken = min(1.0, crowding - 1.0)
                self._trial_s = self._save_up() - taken * (recording_s + reaching_s / crowding)
            while len(self._balances) > REMEMBERED:
                self._balances.popitem(last=False)

    def _save_up(self) -> float:
        """Returns the seconds that there are for trials by now."""
        now = self._clock()
        self._trial_s += TRIAL_SHARE * self._processors * (now - self._since)
        self._trial_s, self._since = min(self._trial_s, MOST_TRIAL), now
        return self._trial_s
