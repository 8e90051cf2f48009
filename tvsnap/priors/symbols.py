"""Keys of observations."""

from tvsnap.plugins.priors.symbols import Pair, Symbols

__all__ = ["Pair", "Symbols"]
