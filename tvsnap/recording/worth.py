"""Whether calls are worth recording: to look at a sandbox after a call takes time, which only answers bring back.

Where calls are short, a look takes as long as a call, and whoever is not answered would be better off without it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from tvsnap.host.load import crowding
from tvsnap.recording.policy import Balance, Policy

UNPROFITABLE = "recording calls as short as these takes longer than answers have saved"
"""Why nothing is shared from where a policy has said so."""
LONGEST = 10.0  # seconds of recording after which all sums are halved, so that the latest calls count
REMEMBERED = 1000  # images


class Worth:
    """Asks a policy whether calls are worth recording. Thread-safe."""

    def __init__(self, policy: Policy, *, always: bool = False, crowding: Callable[[], float] = crowding) -> None:
        """
        Args:
            policy: says what is recorded, if it has a method `should_record`; else all is.
            always: all is recorded, whatever the policy says.
            crowding: tells how many threads want each processor.
        """
        self._should_record = None if always else getattr(policy, "should_record", None)
        self._crowding = crowding
        self._lock = threading.Lock()
        self._balances: OrderedDict[str, Balance] = OrderedDict()

    def is_given(self, image: str) -> bool:
        """Whether the next call that is executed in a sandbox of an image is to be recorded.

        Args:
            image: the image's digest.
        """
        if self._should_record is None:
            return True
        balance = self._balances.get(image, Balance())
        return bool(self._should_record(replace(balance, crowding=self._crowding())))

    def add(self, image: str, *, executed_s: float = 0.0, recording_s: float = 0.0, answered_s: float = 0.0) -> None:
        """Takes note of what calls took.

        Args:
            image: the digest of their image.
            executed_s, recording_s, answered_s: seconds, see `Balance`.
        """
        if self._should_record is None:
            return
        with self._lock:
            sums = self._balances.pop(image, Balance())
            part = 0.5 if sums.recording_s > LONGEST else 1.0
            self._balances[image] = Balance(
                part * sums.executed_s + executed_s,
                part * sums.recording_s + recording_s,
                part * sums.answered_s + answered_s,
            )
            while len(self._balances) > REMEMBERED:
                self._balances.popitem(last=False)
