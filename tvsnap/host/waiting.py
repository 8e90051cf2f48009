"""The effect of time: a state in which something runs by itself changes with time.

The rule. A state is *quiet* for `quiet_s` seconds after a rollout has come to it: for ever if all processes merely wait
for an event that only a call can cause, for no time at all if one runs. While it is quiet, time does not count: any
call that is made and ends within that time finds the same. After that, an answer that was recorded after a shorter wait
is not given to a rollout that has waited longer by more than `SLACK_S` seconds plus the share `SLACK` of its wait; and
one that was recorded after a longer wait is given only if that wait was longer by at most `LATE_S` seconds plus that
share. Where nothing ran for some time before the call, and nothing would have for some time, the answer counts as
recorded after each wait within that time: it would have been the same.

A call that changes the state while something runs by itself leads to a state in which that goes on. If a rollout is
answered after another wait than that of the record, the events to come are early or late by the difference (`Lag`). So
the record of such a call serves only if that difference, with those of the calls before, is at most `SLACK_S` (late)
or `LATE_S` (early) plus the share `SLACK` of the wait and of the time that was left until anything would happen. And
once an event that was begun before may have come in the new state, an answer must fit with the difference and without.

The reason. Nothing in a sandbox can distinguish a run in which a call came later by such a time from one in which its
own background work was faster or slower; on a shared machine this varies from run to run, and a call that has to wait
for a checkpoint of its sandbox is late by up to a second. No answer is older than the present events by more than the
shorter of these times, so that a call that is repeated again and again is executed as time goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

SLACK_S = 0.1  # seconds
SLACK = 0.1  # of the time waited
LATE_S = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Lag:
    """How much longer a rollout has waited in earlier states than those by whose records it was answered, in seconds.

    Attributes:
        least, most: for programs that were started in these states; 0 for those started since.
        due: seconds, from its arrival in the present state, for which none of them does anything, by these records.
    """

    least: float = 0.0
    most: float = 0.0
    due: float = 0.0

    def after(self, waited: float, recorded: float, due: float) -> Lag:
        """Returns the lag in the next state, if the record of a call after the wait `recorded` led there."""
        return Lag(min(0.0, waited + self.least - recorded), max(0.0, waited + self.most - recorded), due)


NO_LAG = Lag()


@dataclass(frozen=True, slots=True)
class Wait:
    """For how long a rollout has waited in a state.

    Attributes:
        seconds: since its arrival.
        lag: what is to be added for programs that were started before.
        shown: the longest wait, in seconds, of an answer that the rollout has got there; no later answer may be of a
            shorter one.
    """

    seconds: float = 0.0
    lag: Lag = NO_LAG
    shown: float = 0.0

    @property
    def shortest(self) -> float:
        """The least that counts for any program, in seconds."""
        return self.seconds + self.lag.least

    @property
    def longest(self) -> float:
        """The most that counts for any program, in seconds."""
        return self.seconds + self.lag.most

    @property
    def passed(self) -> float:
        """The seconds for which the state must have been quiet if a record for which no wait counts is to serve."""
        return max(self.longest, self.shown)

    @property
    def serving(self) -> tuple[float, float]:
        """The shortest and the longest wait, in seconds, whose answers serve."""
        shortest, longest = self._counting
        return max(alike(longest)[0], self.shown), alike(shortest)[1]

    def until(self, recorded: float) -> float:
        """Returns the seconds until an answer of the longer wait `recorded` serves."""
        return max(0.0, (recorded - LATE_S) / (1.0 + SLACK) - self._counting[0])

    @property
    def _counting(self) -> tuple[float, float]:
        """The least and the most that counts for any program that may have done something in this state."""
        return (self.seconds, self.seconds) if self.longest <= self.lag.due else (self.shortest, self.longest)


NO_WAIT = Wait()


def alike(waited: float) -> tuple[float, float]:
    """Returns the shortest and the longest wait, in seconds, whose answers serve after a wait of `waited` seconds.

    Records for which no wait counts have the wait 0, which is outside of this range.
    """
    part = SLACK * waited
    return max(waited - SLACK_S - part, 1e-9), waited + LATE_S + part
