"""What recording the calls of one image costs, and what it brings."""

from __future__ import annotations

from dataclasses import dataclass

CROWDED = 1.5
"""Threads that want each processor, from which on what is done while callers think takes time from calls."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What recording the calls of one image has cost this process of late, and what it has brought.

    Attributes:
        executed_s: seconds that executed calls took.
        recording_s: seconds that it took to find out and to record what calls came to, snapshots left out.
        answered_s: seconds that the answered calls had taken when they were executed.
        crowding: threads that want each processor at the moment, at least 1.
    """

    executed_s: float = 0.0
    recording_s: float = 0.0
    answered_s: float = 0.0
    crowding: float = 1.0
