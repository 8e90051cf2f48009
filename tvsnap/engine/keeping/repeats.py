"""How often calls are made again that were made before in the same state.

Where many rollouts part from one state and none makes the call of another, records of what they do answer nobody: they
are executed in private branches there, as without the cache. What a record would spare the next rollout that makes the
call is the time of the branch, and of a fork; it is weighed by how often calls were made again so far.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

NEVER_REPEATED = "calls in this state are hardly ever made twice"
"""Why nothing is shared behind such a call."""
MOST_STATES = 10_000  # remembered
MOST_CALLS = 1_000  # remembered of a state
ENOUGH = 32  # calls in a state from which on its repetitions tell something: several groups, or several epochs
RECORD = 0.02  # seconds of processor time, about, of the looks that the record of a call needs
FORK = 0.05  # seconds that an answer saves beside the time of the calls


@dataclass(slots=True)
class _Made:
    """The calls of one state."""

    all: int = 0
    again: int = 0
    executed: int = 0
    seconds: float = 0.0  # that these took, with those behind them in private branches
    private: OrderedDict[str, None] = field(default_factory=OrderedDict)  # those that were executed and not recorded


class Repeats:
    """Counts the calls that rollouts make in states, in this process. Thread-safe."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, _Made] = OrderedDict()
        self._lock = threading.Lock()

    def answered(self, state: str) -> None:
        """Takes note that a call was answered in a state."""
        with self._lock:
            made = self._made(state)
            made.all += 1
            made.again += 1

    def should_record(self, state: str, call: str) -> bool:
        """Returns whether a call that is executed in a state is to be recorded; takes note of it.

        A call that was made before is, so that it is answered the next time.

        Args:
            state: the state's hash.
            call: the call's key.
        """
        with self._lock:
            made = self._made(state)
            made.all += 1
            made.executed += 1
            if call in made.private:
                del made.private[call]
                made.again += 1
                return True
            chance, saves = (made.again + 1) / (made.all + 1), made.seconds / made.executed + FORK
            if made.all <= ENOUGH or chance * saves > RECORD:
                return True
            made.private[call] = None
            if len(made.private) > MOST_CALLS:
                made.private.popitem(last=False)
            return False

    def took(self, state: str, seconds: float) -> None:
        """Takes note of how long a call took that was executed in a state, or in a private branch that began there."""
        with self._lock:
            self._made(state).seconds += seconds

    def _made(self, state: str) -> _Made:
        made = self._states.get(state)
        if made is None:
            made = self._states[state] = _Made()
            while len(self._states) > MOST_STATES:
                self._states.popitem(last=False)
        self._states.move_to_end(state)
        return made
