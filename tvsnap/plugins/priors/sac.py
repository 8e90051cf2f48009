"""Soft actor-critic with a prior over symbolic actions, on Stable-Baselines3 (`pip install 'tvsnap[continuous]'`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tvsnap.plugins.extras import brought_by
from tvsnap.plugins.priors.sampling import Cooling, posterior, sample
from tvsnap.plugins.priors.symbolic import Fading, SymbolicPrior

with brought_by("continuous"):
    import numpy
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.logger import Logger


class PriorSAC(SAC):
    """SAC that explores by a prior, and whose actor is drawn to it as long as the prior has weight.

    - The actor's loss is that of SAC less weight · log prior(a|s), for its own action a.
    - To explore, one candidate is drawn from each symbolic action's Gaussian, and one by the actor. The probability of
      each is proportional to prior(a|s) exp(Q(s, a) / T), where the prior of symbolic actions is multiplied with what
      is left of the fading, and the actor's candidate has the rest. Once the prior has faded, the actor acts alone,
      and nothing is asked any more.

    It is used as SAC is; `predict` takes no prior.
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        *,
        prior: SymbolicPrior | None = None,
        fading: Fading | None = None,
        temperature: Callable[[int], float] | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            policy: as of SAC.
            env: as of SAC, with an action space of one list of bounded numbers.
            prior: the prior; None for one that acts as SAC. It is not saved: give it to `load` again.
            fading: its weight, in units of return per nat, by steps in the environment; by default a `Fading`.
            temperature: T in units of return, by the number of the prior's hits; by default a `Cooling`.
            **options: as of SAC.
        """
        self._prior = prior
        self._fading = Fading() if fading is None else fading
        self._cooling = Cooling() if temperature is None else temperature
        super().__init__(policy, env, **options)
        if not self.verbose and self.tensorboard_log is None:
            self.set_logger(Logger(folder=None, output_formats=[]))  # SAC's own makes a temporary folder each time

    @classmethod
    def load(
        cls,
        path: Any,
        *arguments: Any,
        prior: SymbolicPrior | None = None,
        fading: Fading | None = None,
        temperature: Callable[[int], float] | None = None,
        **options: Any,
    ) -> PriorSAC:
        """Returns an algorithm that was saved. Its fading goes on with `learn(..., reset_num_timesteps=False)`.

        Args:
            path: as of `SAC.load`.
            *arguments: as of `SAC.load`.
            prior: the prior, which was not saved; without one, it acts as SAC.
            fading: in place of the one that was saved.
            temperature: by default a `Cooling`; it was not saved either.
            **options: as of `SAC.load`.
        """
        parts = {"_prior": prior, "_fading": fading, "_cooling": temperature}
        ours = {name: value for name, value in parts.items() if value is not None}
        loaded: PriorSAC = super().load(path, *arguments, **options, **ours)
        return loaded

    def _setup_model(self) -> None:
        super()._setup_model()
        self._random = random.Random(self.seed)
        self._generator = numpy.random.default_rng(self.seed)
        if self._prior is not None:
            self.critic.register_forward_hook(self._favour)

    def _favour(self, critic: Any, batch: tuple[torch.Tensor, torch.Tensor], values: Any) -> Any:
        """Adds weight · log prior(a|s) to Q, where it is differentiated by actions: that is the actor's loss alone."""
        observations, actions = batch
        weight = self._fading(self.num_timesteps)
        if self._prior is None or weight == 0.0 or not actions.requires_grad:
            return values
        added = weight * self._prior.log_density(observations, actions)[:, None]
        return tuple(value + added for value in values)

    def _sample_action(self, learning_starts: int, action_noise: Any = None, n_envs: int = 1) -> Any:
        share = self._fading.share(self.num_timesteps)
        if self._prior is None or share == 0.0:
            return super()._sample_action(learning_starts, action_noise, n_envs)
        own, _ = self.predict(self._last_obs, deterministic=False)
        scaled = self.policy.scale_action(own)
        drawn = numpy.stack([self._explore(*each, share) for each in zip(self._last_obs, scaled, strict=True)])
        return self.policy.unscale_action(drawn), drawn

    def _explore(self, observation: Any, own: Any, share: float) -> Any:
        """Returns an action of the posterior over the candidates, in coordinates from -1 to 1."""
        assert self._prior is not None
        weights = [share * each for each in self._prior.weights(observation)]
        actions = numpy.concatenate([self._prior.candidates(self._generator), own[None]])
        with torch.no_grad():
            repeated = torch.as_tensor(observation, device=self.device).float().expand(len(actions), -1)
            both = self.critic(repeated, torch.as_tensor(actions, device=self.device))
            values = torch.minimum(*both).flatten().tolist()
        names = [str(number) for number in range(len(actions))]
        likely = posterior(
            dict(zip(names, [*weights, 1.0 - share], strict=True)),
            dict(zip(names, values, strict=True)),
            self._cooling(self._prior.answered),
        )
        return actions[int(sample(likely, self._random))]

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_prior", "_cooling"]
