"""When time counts: a state in which something runs by itself is not the same after a while.

The rule. A state is *quiet* for `quiet_s` seconds after a rollout has come to it: for ever where all processes merely
wait for what only a call can bring, for no time at all where one runs. While it is quiet, time does not count: whenever
a call is made and ends within that time, it finds the same. Beyond that, an answer is given to whoever has waited about
as long as the one who got it first: within `SLACK_S` seconds and the part `SLACK` of that time.

Why that is safe. Nothing in a sandbox can tell a run in which a call came so much later from one in which its own
background work was so much slower; on a shared machine it is, from run to run. Nobody is answered from before what has
happened since for more than that time, so that a question asked again and again is executed as time goes on. And
whatever is answered, the rollout goes on from the state of the execution that was answered from.
"""

from __future__ import annotations

SLACK_S = 0.1  # seconds
SLACK = 0.1  # of the time waited


def alike(waited: float) -> tuple[float, float]:
    """Returns the shortest and the longest wait, in seconds, whose answers serve for one of `waited` seconds.

    What was recorded without any wait that counts has the wait 0, which is not within these.
    """
    slack = SLACK_S + SLACK * waited
    return max(waited - slack, 1e-9), waited + slack
