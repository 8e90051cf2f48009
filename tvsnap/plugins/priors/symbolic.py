"""A prior over symbolic actions of a continuous action space, by the situation that an observation is of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvsnap import UsageError
from tvsnap.plugins.extras import brought_by
from tvsnap.plugins.priors.cache import PriorCache
from tvsnap.plugins.priors.distributions import Proposals
from tvsnap.plugins.priors.embedding import load_numpy
from tvsnap.plugins.priors.symbols import Symbols

with brought_by("continuous"):
    import torch

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

LEAST_DEVIATION = 1e-6
"""The least standard deviation of a symbolic action: with a smaller one, numbers of 32 bits overflow."""


@dataclass(frozen=True, slots=True)
class SymbolicAction:
    """The meaning of an action's name: a Gaussian in action space, in which each coordinate reaches from -1 to 1.

    Attributes:
        mean: a coordinate for each dimension of the action space, at least one, -1 to 1.
        deviation: the standard deviation in each dimension, at least `LEAST_DEVIATION`.

    Raises:
        UsageError: a coordinate or the deviation is out of range.
    """

    mean: tuple[float, ...]
    deviation: float = 0.2

    def __post_init__(self) -> None:
        try:
            fits = bool(self.mean) and all(-1.0 <= each <= 1.0 for each in self.mean)
            fits = fits and LEAST_DEVIATION <= self.deviation < math.inf
        except TypeError:
            fits = False
        if not fits:
            raise UsageError(
                f"a symbolic action needs at least one coordinate, each of -1 to 1, and a deviation of at least "
                f"{LEAST_DEVIATION:g}, not mean={self.mean!r} and deviation={self.deviation!r}"
            )


@dataclass(frozen=True, slots=True)
class Fading:
    """The weight of a prior, which falls linearly with learning: highest · max(0, 1 - steps / until). Our choice.

    Attributes:
        highest: at the beginning.
        until: after so many steps it is 0.

    Raises:
        UsageError: `highest` is negative, or `until` not above 0.
    """

    highest: float = 1.0
    until: int = 3000

    def __post_init__(self) -> None:
        if not (0.0 <= self.highest < math.inf and self.until > 0):
            raise UsageError(f"a fading needs highest >= 0 and until > 0, not {self.highest!r} and {self.until!r}")

    def share(self, steps: int) -> float:
        """Returns what is left of the weight, 1 to 0.

        Args:
            steps: the number of steps so far.
        """
        return max(0.0, 1.0 - steps / self.until)

    def __call__(self, steps: int) -> float:
        """Returns the weight.

        Args:
            steps: the number of steps so far.
        """
        return self.highest * self.share(steps)


class SymbolicPrior:
    """The mixture of Gaussians that a model proposes in a situation, through a `PriorCache`.

    Attributes:
        names: the names of the symbolic actions.
        asked: the number of questions to the model; `answered`: the number of the cache's answers.
    """

    def __init__(
        self,
        cache: PriorCache,
        goal: str,
        actions: Mapping[str, SymbolicAction],
        symbols: Symbols,
        model: Callable[[Any], Proposals],
    ) -> None:
        """
        Args:
            cache: the cache of proposals. Its embedder should be `symbols`, unless it is for exact states only.
            goal: the agent's goal.
            actions: by their names, at least one, all of as many dimensions as the action space.
            symbols: tell of which situation an observation is.
            model: returns proposals of these names, given an observation.

        Raises:
            UsageError: there is no action, or they are of different dimensions.
        """
        if len({len(action.mean) for action in actions.values()}) != 1:
            raise UsageError("symbolic actions, at least one, must have as many coordinates as the action space")
        self.names = tuple(actions)
        self.asked = self.answered = 0
        self._cache, self._goal, self._symbols, self._model = cache, goal, symbols, model
        self._means = torch.tensor([action.mean for action in actions.values()], dtype=torch.float32)
        self._deviations = torch.tensor([[action.deviation] for action in actions.values()], dtype=torch.float32)
        self._distributions = torch.full((symbols.count, len(actions)), 1.0 / len(actions))

    def weights(self, observation: Any) -> Sequence[float]:
        """Returns the probability of each symbolic action, from the cache if possible.

        Args:
            observation: one, a list of numbers.

        Raises:
            TvsnapError: the observation does not fit, or the cache's file cannot be used.
        """
        text = self._symbols.text(observation)
        prior = self._cache.prior(self._goal, self.names, lambda: self._model(observation), text=text)
        if prior.is_hit:
            self.answered += 1
        else:
            self.asked += 1
        probabilities = [prior.probabilities[name] for name in self.names]
        self._distributions[int(self._symbols.numbers([observation])[0])] = torch.tensor(probabilities)
        return probabilities

    def candidates(self, generator: numpy.random.Generator) -> NDArray[numpy.float32]:
        """Returns one action drawn from each Gaussian, a row each, cut off at -1 and 1.

        Args:
            generator: draws.
        """
        drawn = generator.normal(self._means.numpy(), self._deviations.numpy()).clip(-1.0, 1.0)
        actions: NDArray[numpy.float32] = drawn.astype(load_numpy().float32)
        return actions

    def log_density(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Returns the logarithm of the mixture's density at an action for each observation, differentiable by actions.

        The weights are those that `weights` last returned in the same situation; nothing is asked. In a situation for
        which it was never called, all symbolic actions are equally probable. What the Gaussians have beyond -1 and 1 is
        not added to the rest.

        Args:
            observations: one a row.
            actions: one a row, of coordinates from -1 to 1.

        Raises:
            UsageError: the observations or the actions have another length than those of the symbols.
        """
        if actions.shape[-1] != self._means.shape[1]:
            raise UsageError(
                f"the symbolic actions have {self._means.shape[1]} coordinates, "
                f"and those of the action space {actions.shape[-1]}"
            )
        numbers = torch.from_numpy(self._symbols.numbers(observations.detach().cpu().numpy()))
        logs = torch.distributions.Normal(self._means, self._deviations).log_prob(actions.cpu()[:, None, :]).sum(-1)
        return torch.logsumexp(self._distributions[numbers].log() + logs, dim=1).to(actions.device)
