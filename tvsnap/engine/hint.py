"""Logs once why a cache answers hardly any calls."""

from __future__ import annotations

import logging

from tvsnap.engine.meter import Meter
from tvsnap.model.reasons import REASONS

_LOG = logging.getLogger("tvsnap")
ENOUGH = 200  # calls before which nothing is logged
FEW = 0.1  # of the calls: if fewer are answered, that is logged


class Hint:
    """Logs once why hardly any calls are answered. Thread-safe: at worst, it is logged twice."""

    def __init__(self) -> None:
        self._is_logged = False

    def look(self, meter: Meter) -> None:
        """Logs the reason if hardly any calls were answered so far; called between rollouts."""
        if self._is_logged:
            return
        calls, executed, reasons = meter.reasons()
        if calls < ENOUGH:
            return
        self._is_logged = True
        if not reasons or calls - executed >= FEW * calls:
            return
        kind, count = max(reasons.items(), key=lambda item: item[1])
        words, advice = REASONS[kind]
        _LOG.warning(
            "%d of the first %d calls were answered: %d %s; %s (tvsnap stats)",
            *(calls - executed, calls, count, words, advice),
        )
