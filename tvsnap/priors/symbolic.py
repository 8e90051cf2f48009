"""Priors over continuous actions, of what is proposed by name."""

from tvsnap.plugins.priors.symbolic import Fading, SymbolicAction, SymbolicPrior

__all__ = ["Fading", "SymbolicAction", "SymbolicPrior"]
