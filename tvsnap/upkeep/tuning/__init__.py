"""Learns the parameters of a cache (`Tuning`) from recorded rollouts, and adapts them while a cache is used."""

from tvsnap.upkeep.tuning.learning import Judgement, learn
from tvsnap.upkeep.tuning.online import OnlineTuner, Trial
from tvsnap.upkeep.tuning.recorded import RecordedCall, RecordedRollout, read_recorded
from tvsnap.upkeep.tuning.simulation import MachineCosts, Outcome, Setting, Weights, simulate

__all__ = [
    "Judgement",
    "MachineCosts",
    "OnlineTuner",
    "Outcome",
    "RecordedCall",
    "RecordedRollout",
    "Setting",
    "Trial",
    "Weights",
    "learn",
    "read_recorded",
    "simulate",
]
