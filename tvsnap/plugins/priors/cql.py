"""Conservative Q-learning from recorded data with a prior over symbolic actions, on d3rlpy's CQL."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from tvsnap import UsageError
from tvsnap.plugins.extras import brought_by
from tvsnap.plugins.priors.symbolic import Fading, SymbolicPrior

with brought_by("continuous"):
    from d3rlpy.algos import CQL
    from d3rlpy.models.torch.policies import build_squashed_gaussian_distribution


def add_prior(algorithm: CQL, prior: SymbolicPrior, fading: Fading) -> None:
    """Adds the prior's term to the actor's loss of a CQL: weight · -log prior(a|s), for the actor's own action a.

    The critic's loss, with its conservative part, is left as it is. Call it once, before `fit`, and call
    `prior.weights` for the observations of the data before that, so that the prior is known where it is needed.

    Args:
        algorithm: one that has been built (`build_with_dataset`).
        prior: over actions in coordinates from -1 to 1, as the algorithm has them inside.
        fading: the weight, in units of return per nat, by steps of the optimiser.

    Raises:
        UsageError: the algorithm has not been built.
    """
    implementation: Any = algorithm.impl
    if implementation is None:
        raise UsageError("the algorithm has no networks yet: call build_with_dataset before the prior is added")
    scaler, plain, steps = algorithm.observation_scaler, implementation.compute_actor_loss, itertools.count()

    def with_prior(batch: Any, action: Any) -> Any:
        loss, weight = plain(batch, action), fading(next(steps))
        if weight == 0.0:
            return loss
        drawn, _ = build_squashed_gaussian_distribution(action).sample_with_log_prob()
        observations = batch.observations if scaler is None else scaler.reverse_transform(batch.observations)
        added = weight * prior.log_density(observations, drawn).mean()
        return dataclasses.replace(loss, actor_loss=loss.actor_loss - added)

    implementation.compute_actor_loss = with_prior
