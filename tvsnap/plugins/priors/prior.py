"""The result of a lookup: a model's proposals as probabilities, and their source."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tvsnap.plugins.priors.store import Entry, Question

Source = Literal["exact", "near", "coalesced", "asked"]


@dataclass(frozen=True, slots=True)
class Prior:
    """A model's proposals in a state, as probabilities of the admissible actions.

    Attributes:
        probabilities: by action, in the order in which the actions were given; each is above 0, and they add up to 1.
        source: `exact`: the cache had the same state; `near`: a similar one; `coalesced`: the same question was being
            asked by another; `asked`: the model was asked.
        similarity: the cosine of this state's vector and that of the state whose answer it is; 1 but for `near`.
        uses: the number of times that this answer was used before.
        age_s: seconds since the model gave it.
        error: the mean Jensen-Shannon divergence between it and newer answers, in nats; None if none was asked for.
    """

    probabilities: dict[str, float]
    source: Source
    similarity: float
    uses: int
    age_s: float
    error: float | None

    @property
    def is_hit(self) -> bool:
        """Whether the model was not asked."""
        return self.source != "asked"


@dataclass(frozen=True, slots=True)
class Match:
    """An entry for a question.

    Attributes:
        entry: the entry.
        similarity: the cosine of the question's state and the entry's; 1 for the same state.
        near: the entry is that of a similar state.
    """

    entry: Entry
    similarity: float
    near: bool

    @property
    def source(self) -> Source:
        """The source of a prior that this entry answers."""
        return "near" if self.near else "exact"

    def is_as_before(self, before: Match | None) -> bool:
        """Returns whether the entry and its answer are those of an earlier match."""
        if before is None:
            return False
        return (before.entry.id, before.entry.revision) == (self.entry.id, self.entry.revision)


def by_action(probabilities: Sequence[float], question: Question, ordered: Sequence[str]) -> dict[str, float]:
    """Returns probabilities by action.

    Args:
        probabilities: one for each action of the question, in their order.
        question: the question.
        ordered: its actions in the order of the result.
    """
    by_name = dict(zip(question.actions, probabilities, strict=True))
    return {action: by_name[action] for action in ordered}


def prior_of(entry: Entry, question: Question, ordered: Sequence[str], source: Source, similarity: float) -> Prior:
    """Returns an entry's answer as a prior; the arguments are as of `by_action` and `Prior`."""
    return Prior(
        probabilities=by_action(entry.probabilities, question, ordered),
        source=source,
        similarity=similarity,
        uses=entry.uses,
        age_s=max(0.0, time.time() - entry.answered),
        error=entry.error,
    )
