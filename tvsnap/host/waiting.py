"""The effect of time: a state in which something runs by itself changes with time.

The rule. A state is *quiet* for `quiet_s` seconds after a rollout has come to it: for ever if all processes merely wait
for an event that only a call can cause, for no time at all if one runs. While it is quiet, time does not count: any
call that is made and ends within that time finds the same. After that, an answer that was recorded after a shorter wait
is not given to a rollout that has waited longer by more than `SLACK_S` seconds plus the share `SLACK` of its wait; and
one that was recorded after a longer wait is given only if that wait was longer by at most `LATE_S` seconds plus that
share. Where nothing ran for some time before the call, and nothing would have for some time, the answer counts as
recorded after each wait within that time: it would have been the same.

The reason. Nothing in a sandbox can distinguish a run in which a call came later by such a time from one in which its
own background work was faster or slower; on a shared machine this varies from run to run, and a call that has to wait
for a checkpoint of its sandbox is late by up to a second. No answer is older than the present events by more than the
shorter of these times, so that a call that is repeated again and again is executed as time goes on. And with any answer
the rollout goes on from the state of the execution that gave it, and has waited as long as that one.
"""

from __future__ import annotations

SLACK_S = 0.1  # seconds
SLACK = 0.1  # of the time waited
LATE_S = 1.0  # seconds


def alike(waited: float) -> tuple[float, float]:
    """Returns the shortest and the longest wait, in seconds, whose answers serve after a wait of `waited` seconds.

    Records for which no wait counts have the wait 0, which is outside of this range.
    """
    part = SLACK * waited
    return max(waited - SLACK_S - part, 1e-9), waited + LATE_S + part


def due_in(recorded: float, waited: float) -> float:
    """Returns the seconds until an answer of the wait `recorded` serves a rollout that has waited `waited` seconds."""
    return max(0.0, (recorded - LATE_S) / (1.0 + SLACK) - waited)
