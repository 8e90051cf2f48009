"""When time counts: a state in which something runs by itself is not the same after a while.

The rule. A state is *quiet* for `quiet_s` seconds after a rollout has come to it: for ever where all processes merely
wait for what only a call can bring, for no time at all where one runs. While it is quiet, time does not count: whenever
a call is made and ends within that time, it finds the same. Beyond that, an answer that was recorded after a shorter
wait is none for whoever has waited more than `SLACK_S` seconds and the part `SLACK` of it longer; and one that was
recorded after a longer wait serves whoever has waited `LATE_S` seconds and that part less, at most.

Why that is safe. Nothing in a sandbox can tell a run in which a call came so much later from one in which its own
background work was so much quicker or slower; on a shared machine it is, from run to run, and a call that has to wait
for a checkpoint of its sandbox comes late by up to a second. Nobody is answered from before what has happened since for
more than the shorter of these times, so that a question asked again and again is executed as time goes on. And whatever
is answered, the rollout goes on from the state of the execution that was answered from, and has waited as long as that.
"""

from __future__ import annotations

SLACK_S = 0.1  # seconds
SLACK = 0.1  # of the time waited
LATE_S = 1.0  # seconds


def alike(waited: float) -> tuple[float, float]:
    """Returns the shortest and the longest wait, in seconds, whose answers serve for one of `waited` seconds.

    What was recorded without any wait that counts has the wait 0, which is not within these.
    """
    part = SLACK * waited
    return max(waited - SLACK_S - part, 1e-9), waited + LATE_S + part
