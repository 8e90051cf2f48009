"""A cache of what a language model proposes to do, and posterior sampling with it (`tvsnap[priors]`)."""

from tvsnap.plugins.priors import (
    Cooling,
    Discrete,
    Embedder,
    Prior,
    PriorCache,
    PriorStats,
    QLearner,
    RolloutSummary,
    WordLlamaEmbedder,
    js,
    kl,
    posterior,
    sample,
    smooth,
)

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
