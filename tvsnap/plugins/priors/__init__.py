"""A cache of what a language model proposes to do, and posterior sampling with it (`pip install 'tvsnap[priors]'`).

It rests on what `tvsnap` exports. Exact keys need no further package; the nearest-neighbour search needs numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvsnap.plugins.priors.agent import Discrete, QLearner, RolloutSummary
    from tvsnap.plugins.priors.cache import PriorCache
    from tvsnap.plugins.priors.distributions import js, kl, smooth
    from tvsnap.plugins.priors.embedding import Embedder, WordLlamaEmbedder
    from tvsnap.plugins.priors.prior import Prior
    from tvsnap.plugins.priors.sampling import Cooling, posterior, sample
    from tvsnap.plugins.priors.store import PriorStats

# Imported when first used, as `tvsnap` itself does it.
_NAMES = {
    "tvsnap.plugins.priors.agent": "Discrete RolloutSummary QLearner",
    "tvsnap.plugins.priors.cache": "PriorCache",
    "tvsnap.plugins.priors.distributions": "js kl smooth",
    "tvsnap.plugins.priors.embedding": "Embedder WordLlamaEmbedder",
    "tvsnap.plugins.priors.prior": "Prior",
    "tvsnap.plugins.priors.sampling": "Cooling posterior sample",
    "tvsnap.plugins.priors.store": "PriorStats",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Cooling",
    "Discrete",
    "Embedder",
    "Prior",
    "PriorCache",
    "PriorStats",
    "QLearner",
    "RolloutSummary",
    "WordLlamaEmbedder",
    "js",
    "kl",
    "posterior",
    "sample",
    "smooth",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
