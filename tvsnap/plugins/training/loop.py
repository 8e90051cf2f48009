"""LOOP, reinforcement learning of agents without a critic (arXiv 2502.01600), and variants that it is compared with.

Of a task there are several rollouts, and a rollout's advantage is its reward less the mean reward of the others. The
loss is PPO's clipped one, per token that the model wrote. There is no critic, no KL penalty and no second model.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from tvsnap import UsageError
from tvsnap.plugins.extras import brought_by
from tvsnap.plugins.training import arithmetic

with brought_by("train"):
    import torch

Ratio = Literal["token", "turn", "trajectory"]
Credit = Literal["rollout", "state", "tree"]


@dataclass(frozen=True)
class Settings:
    """The settings of LOOP.

    The defaults of `clip`, `gradient_norm` and `minibatch` are ours: the code that the paper's authors have released
    uses 0.1 (with a lower bound of 1 / (1 + clip)), 0.1 and 32, and divides by the population's standard deviation.

    Attributes:
        ratio: over what an importance ratio is taken: a token, all that the model wrote in a turn, or in the rollout.
            The loss of a rollout is the mean over these.
        credit: to what an advantage belongs: to a rollout, as in the paper; to each of its turns, by the states in
            which they were taken (arXiv 2604.11037); or to a rollout beside those of its tree and all of its task
            (`tree_advantages`). The latter two are `Trajectory.advantages`.
        normalised: advantages are divided by the standard deviation of the group's rewards.
        leave_one_out: a rollout's baseline is the mean of the others' rewards, and not that of all.
        clip: ratios are clipped to the range from 1 - clip to 1 + clip, as by PPO; None for no clipping.
        least_advantage: rollouts whose advantage is smaller, or that of each of whose turns is, take no part.
        epochs: how often each collection of rollouts is gone through.
        minibatch: rollouts for one step of the optimiser; 0 for all of them.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        gradient_norm: gradients are scaled down to this norm.
        most_log_ratio: an iteration ends when the mean of the logarithms of the ratios of a mini-batch's tokens is
            larger than this, up or down, or is no number. They are those of tokens with each `ratio`.
    """

    ratio: Ratio = "token"
    credit: Credit = "rollout"
    normalised: bool = False
    leave_one_out: bool = True
    clip: float | None = 0.2
    least_advantage: float = 0.01
    epochs: int = 2
    minibatch: int = 8
    learning_rate: float = 5e-5
    weight_decay: float = 0.01
    gradient_norm: float = 1.0
    most_log_ratio: float = 1.0

    def __post_init__(self) -> None:
        """Raises UsageError for values that make no sense."""
        if self.ratio not in get_args(Ratio):
            raise UsageError(f"ratio must be one of {', '.join(get_args(Ratio))}, not {self.ratio!r}")
        if self.credit not in get_args(Credit):
            raise UsageError(f"credit must be one of {', '.join(get_args(Credit))}, not {self.credit!r}")
        if self.credit != "rollout" and (self.ratio == "trajectory" or self.normalised or not self.leave_one_out):
            raise UsageError(
                f"credit by {self.credit} has advantages of turns, which are given: it needs the ratio of tokens or "
                "turns, leave_one_out and no normalised advantages"
            )
        if self.clip is not None and not 0 < self.clip <= 1:
            raise UsageError(f"clip must be larger than 0 and at most 1, or None for no clipping, not {self.clip!r}")
        for name, least in (("epochs", 1), ("minibatch", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise UsageError(f"{name} must be a whole number from {least} on, not {value!r}")
        for name in ("least_advantage", "learning_rate", "weight_decay", "gradient_norm", "most_log_ratio"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise UsageError(f"{name} must be a finite number from 0 on, not {value!r}")


VARIANTS = {
    "loop": Settings(),
    "loop-turn": Settings(ratio="turn"),
    "loop-trajectory": Settings(ratio="trajectory"),
    "loop-normalised": Settings(normalised=True),
    "loop-state": Settings(credit="state"),
    "tree-grpo": Settings(credit="tree"),
    "rloo": Settings(ratio="trajectory", clip=None, epochs=1, minibatch=0),
    "grpo": Settings(normalised=True, leave_one_out=False, epochs=1, minibatch=0),
}
"""By the name of the algorithm.

Tree-GRPO is for rollouts with branches (`Agents.branch`), all those of a task in one group. Its steps and its clipping
are those of LOOP here, so that only the rollouts and their advantages differ; it has no KL penalty.
RLOO and GRPO are on-policy: one step for each collection, so that no ratio differs from 1. The gradient of RLOO is that
of REINFORCE: a rollout counts as a whole, and its length does not divide it.
"""


@dataclass(frozen=True)
class Trajectory:
    """What was said in one rollout, as tokens.

    Attributes:
        tokens: all of them: the task, what the model wrote, and what tools returned.
        turns: where the model wrote, first token and the one after the last, turn by turn.
        reward: what the verifier gave it.
        advantages: of its turns, in order (`tvsnap.types.Credit.by_turn`); None where credit is not by state.
    """

    tokens: Sequence[int]
    turns: Sequence[tuple[int, int]]
    reward: float
    advantages: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """Raises UsageError where turns are none of its tokens or overlap, or a reward or an advantage is no number."""
        at = 1  # nothing says how probable the first token was
        for first, end in self.turns:
            if not at <= first <= end <= len(self.tokens):
                raise UsageError(
                    f"turns must be in order, begin at 1 or later and end at {len(self.tokens)} at most, where the "
                    f"tokens end; not {list(self.turns)}"
                )
            at = end
        if not math.isfinite(self.reward):
            raise UsageError(f"reward must be a number, not {self.reward!r}: leave what has none out of its group")
        if self.advantages is not None:
            if len(self.advantages) != len(self.turns):
                raise UsageError(f"there are {len(self.advantages)} advantages for {len(self.turns)} turns")
            if not all(map(math.isfinite, self.advantages)):
                raise UsageError(f"advantages must be numbers, not {list(self.advantages)}")

    @property
    def written(self) -> list[int]:
        """The positions of the tokens that the model wrote."""
        return [position for first, end in self.turns for position in range(first, end)]

    @property
    def turn_numbers(self) -> list[int]:
        """To which turn each of these belongs, counted from 0; turns without tokens do not count."""
        spans = [(first, end) for first, end in self.turns if end > first]
        return [number for number, (first, end) in enumerate(spans) for _ in range(first, end)]

    def weights(self, advantage: float, credit: Credit) -> list[float]:
        """Returns the advantages of the turns that these numbers mean.

        Args:
            advantage: that of the rollout.
            credit: see `Settings.credit`.

        Raises:
            UsageError: the credit is by state or tree, and the rollout has no advantages of turns.
        """
        if credit != "rollout" and self.advantages is None:
            raise UsageError(f"credit by {credit} needs Trajectory.advantages (Cache.values, Credit.by_turn)")
        of_turns = self.advantages if credit != "rollout" and self.advantages else [advantage] * len(self.turns)
        return [weight for weight, (first, end) in zip(of_turns, self.turns, strict=True) if end > first]


_ROUNDING = 1e-9
"""A deviation of rewards that is smaller comes from rounding: they are equal."""


@dataclass(frozen=True)
class Update:
    """What one iteration did.

    Attributes:
        kept: rollouts that took part: those with an advantage.
        steps: of the optimiser.
        loss: the mean over the steps.
        log_ratio: the largest mean logarithm of the ratios of a mini-batch's tokens, up or down.
        gradient: the largest norm of a gradient before it was scaled down.
        stopped: whether the iteration ended early, as the policy had moved too far, or as `log_ratio` or `gradient` was
            no number (NaN or infinite), which no step is made with.
    """

    kept: int
    steps: int
    loss: float
    log_ratio: float
    gradient: float
    stopped: bool


@dataclass(frozen=True)
class Noise:
    """How much of a gradient is chance, estimated from the gradients of its tasks.

    Attributes:
        variance: of the gradient, summed over the parameters. Differences between tasks count.
        square: the squared norm of the gradient. Its expectation is that of the true gradient plus the variance.
    """

    variance: float
    square: float


def advantages(rewards: Sequence[float], settings: Settings) -> list[float]:
    """Returns the advantages of the rollouts of one task.

    Args:
        rewards: their rewards.
        settings: see `Settings.leave_one_out` and `Settings.normalised`.

    Raises:
        UsageError: there are fewer than two rollouts, so that there is nothing to compare with.
    """
    count = len(rewards)
    if count < 2:
        raise UsageError("a group needs two rollouts at least, as a rollout's reward is compared with the others'")
    mean = sum(rewards) / count
    factor = count / (count - 1) if settings.leave_one_out else 1.0
    if settings.normalised:
        deviation = (sum((reward - mean) ** 2 for reward in rewards) / (count - 1)) ** 0.5
        factor = factor / deviation if deviation > _ROUNDING else 0.0
    return [factor * (reward - mean) for reward in rewards]


def tree_advantages(rewards: Sequence[tuple[int, float]]) -> list[float]:
    """Returns the advantages of the rollouts of a task by Tree-GRPO (arXiv 2509.21240).

    Each is the sum of two advantages of GRPO: beside the rollouts of its tree, and beside all of the task. A rollout
    that is alone has none.

    Args:
        rewards: the tree and the reward of each rollout.
    """

    def beside(values: Sequence[float]) -> list[float]:
        return advantages(values, VARIANTS["grpo"]) if len(values) > 1 else [0.0] * len(values)

    sums = beside([reward for _, reward in rewards])
    for tree in dict.fromkeys(tree for tree, _ in rewards):
        places = [place for place, (other, _) in enumerate(rewards) if other == tree]
        for place, advantage in zip(places, beside([rewards[place][1] for place in places]), strict=True):
            sums[place] += advantage
    return sums


def rollout_loss(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, turns: torch.Tensor, weights: torch.Tensor, settings: Settings
) -> torch.Tensor:
    """Returns the loss of one rollout, a scalar.

    Args:
        log_probs: the logarithms of the probabilities of the tokens that the model wrote, under the policy that learns.
        old_log_probs: the same under the policy that wrote them.
        turns: to which turn each token belongs, counted from 0.
        weights: the advantages of the turns; those of a ratio of the whole rollout are equal.
        settings: see `Settings.ratio` and `Settings.clip`.
    """
    moved = log_probs - old_log_probs
    advantage = weights[turns]
    if settings.ratio == "turn":
        moved = torch.zeros(int(turns.max()) + 1, dtype=moved.dtype, device=moved.device).index_add(0, turns, moved)
        advantage = weights
    elif settings.ratio == "trajectory":
        moved = moved.sum(0, keepdim=True)
        advantage = weights[:1]
    ratio = moved.exp()
    gain = ratio * advantage
    if settings.clip is not None:
        gain = torch.minimum(gain, ratio.clamp(1 - settings.clip, 1 + settings.clip) * advantage)
    return -gain.mean()


def with_adapter(model: Any, rank: int = 16, alpha: int = 32, modules: Sequence[str] | str = "all-linear") -> Any:
    """Returns a model of which only a LoRA adapter is trained, the rest stays.

    Args:
        model: a causal language model of transformers.
        rank: the adapter's rank.
        alpha: its scale is alpha / rank.
        modules: the layers that get one.
    """
    from peft import LoraConfig, get_peft_model

    chosen = modules if isinstance(modules, str) else list(modules)
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=alpha, target_modules=chosen, task_type="CAUSAL_LM"))


class Learner:
    """Trains a causal language model on rollouts, one collection after the other.

    Attributes:
        model: the model; what of it requires gradients is trained.
        settings: what is done.
    """

    def __init__(self, model: Any, settings: Settings | None = None, *, seed: int = 0, rows: int = 4) -> None:
        """
        Args:
            model: a causal language model of transformers, or one with an adapter.
            settings: what is to be done; by default LOOP as in the paper.
            seed: of the order in which rollouts are gone through.
            rows: how many rollouts are computed at a time; only memory and time depend on it.
        """
        arithmetic.warn_if_too_late()
        self.model = model.eval()  # no dropout: the ratios of an unchanged policy are 1
        self.settings = settings or Settings()
        self._chance = random.Random(seed)
        self._rows = rows
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._trained = trained
        self._optimiser = torch.optim.AdamW(
            trained, lr=self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )

    def log_probs(self, trajectories: Sequence[Trajectory]) -> list[torch.Tensor]:
        """Returns, for each rollout, the logarithms of the probabilities of the tokens that the model wrote.

        Args:
            trajectories: the rollouts; one in which nothing was written has none.
        """
        if not trajectories:
            return []
        device = next(self.model.parameters()).device
        longest = max(len(one.tokens) for one in trajectories)
        ids = torch.zeros(len(trajectories), longest, dtype=torch.long, device=device)
        mask = torch.zeros_like(ids)
        for row, one in enumerate(trajectories):
            ids[row, : len(one.tokens)] = torch.tensor(one.tokens, device=device)
            mask[row, : len(one.tokens)] = 1
        logits = self.model(input_ids=ids, attention_mask=mask).logits
        log_probs = []
        for row, one in enumerate(trajectories):
            at = torch.tensor(one.written, dtype=torch.long, device=device)
            of = logits[row, at - 1].to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
            log_probs.append(of.gather(-1, ids[row, at].unsqueeze(-1)).squeeze(-1))
        return log_probs

    def learn(self, groups: Sequence[Sequence[Trajectory]]) -> Update:
        """Does one iteration on a collection of rollouts, which the model as it is now has written.

        Args:
            groups: the rollouts, those of one task together.

        Raises:
            UsageError: a group has fewer than two rollouts, and credit is by rollout; or credit is by state or tree,
                and a rollout has no advantages.
        """
        settings = self.settings
        weighed = [each for group in groups for each in self._weighed(group)]
        with torch.no_grad():
            parts = _slices([one for one, _ in weighed], self._rows)
            old = [log_probs for part in parts for log_probs in self.log_probs(part)]
        steps, losses, furthest, steepest = 0, 0.0, 0.0, 0.0
        order = list(range(len(weighed)))
        for _ in range(settings.epochs):
            self._chance.shuffle(order)
            for batch in _slices(order, settings.minibatch or len(order)):
                self._optimiser.zero_grad()
                loss, moved, tokens = 0.0, 0.0, 0
                for rows in _slices(batch, self._rows):
                    of_rows = self.log_probs([weighed[row][0] for row in rows])
                    total = torch.zeros((), device=of_rows[0].device)
                    for row, log_probs in zip(rows, of_rows, strict=True):
                        total = total + self._loss(log_probs, old[row], *weighed[row]) / len(batch)
                        moved += float((log_probs.detach() - old[row]).sum())
                        tokens += len(log_probs)
                    total.backward()
                    loss += float(total.detach())
                mean = abs(moved / tokens)
                furthest = max(furthest, mean) if math.isfinite(mean) else mean
                if not mean <= settings.most_log_ratio:
                    return Update(len(weighed), steps, losses / max(1, steps), furthest, steepest, True)
                norm = torch.nn.utils.clip_grad_norm_(self._trained, settings.gradient_norm)
                steepest = max(steepest, float(norm)) if math.isfinite(float(norm)) else float(norm)
                if not math.isfinite(steepest):
                    return Update(len(weighed), steps, losses / max(1, steps), furthest, steepest, True)
                self._optimiser.step()
                steps, losses = steps + 1, losses + loss
        return Update(len(weighed), steps, losses / max(1, steps), furthest, steepest, False)

    def noise(self, tasks: Sequence[Sequence[Trajectory]]) -> Noise:
        """Returns how much of the gradient with which `learn` would begin is chance; nothing is learned.

        Args:
            tasks: the rollouts, those of one task together.

        Raises:
            UsageError: there are fewer than two tasks; or see `learn`.
        """
        if len(tasks) < 2:
            raise UsageError("the variance of a gradient needs two tasks at least")
        weighed = [self._weighed(group) for group in tasks]
        count, each_gradient = max(1, sum(map(len, weighed))), []
        for group in weighed:
            self._optimiser.zero_grad()
            for rows in _slices(group, self._rows):
                log_probs = self.log_probs([one for one, _ in rows])
                parts = [
                    self._loss(each, each.detach(), one, weights)
                    for each, (one, weights) in zip(log_probs, rows, strict=True)
                ]
                (torch.stack(parts).sum() * len(tasks) / count).backward()
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in self._trained]
            each_gradient.append(torch.cat([each.flatten() for each in gradients]).double())
        self._optimiser.zero_grad()
        all_of = torch.stack(each_gradient)
        mean = all_of.mean(0)
        variance = ((all_of - mean) ** 2).sum() / (len(tasks) * (len(tasks) - 1))
        return Noise(float(variance), float((mean**2).sum()))

    def _weighed(self, group: Sequence[Trajectory]) -> list[tuple[Trajectory, list[float]]]:
        """Returns the rollouts of a group that have an advantage, each with those of its turns."""
        settings, compared = self.settings, [0.0] * len(group)
        if settings.credit == "rollout":
            compared = advantages([one.reward for one in group], settings)
        all_of = [(one, one.weights(each, settings.credit)) for one, each in zip(group, compared, strict=True)]
        return [each for each in all_of if max(map(abs, each[1]), default=-1.0) >= settings.least_advantage]

    def _loss(self, log_probs: torch.Tensor, old: torch.Tensor, one: Trajectory, weights: list[float]) -> torch.Tensor:
        turns = torch.tensor(one.turn_numbers, device=log_probs.device)
        gains = torch.tensor(weights, dtype=log_probs.dtype, device=log_probs.device)
        return rollout_loss(log_probs, old, turns, gains, self.settings)

    def imitate(self, trajectories: Sequence[Trajectory]) -> float:
        """Does one step that makes what was written in rollouts more probable; returns the loss before it.

        It is for a warm start on solutions, of which `reward` does not count.

        Args:
            trajectories: the rollouts.

        Raises:
            UsageError: nothing was written in any of them, or the model's log-probabilities are no numbers.
        """
        self._optimiser.zero_grad()
        trajectories = [one for one in trajectories if one.written]
        tokens, loss = sum(len(one.written) for one in trajectories), 0.0
        if not tokens:
            raise UsageError("there is nothing to imitate: no turn of these rollouts has a token")
        for part in _slices(trajectories, self._rows):
            total = -sum(log_probs.sum() for log_probs in self.log_probs(part)) / tokens
            total.backward()
            loss += float(total.detach())
        norm = torch.nn.utils.clip_grad_norm_(self._trained, self.settings.gradient_norm)
        if not math.isfinite(loss) or not math.isfinite(float(norm)):
            raise UsageError(f"a loss of {loss} with a gradient of {float(norm)}: nothing can be learned from that")
        self._optimiser.step()
        return loss


def variant(name: str, **changes: Any) -> Settings:
    """Returns the settings of an algorithm, with changes.

    Args:
        name: see `VARIANTS`.
        changes: attributes of `Settings`.

    Raises:
        UsageError: there is no such algorithm, or a change is none of its settings, or makes no sense.
    """
    if name not in VARIANTS:
        raise UsageError(f"no such algorithm: {name}; have: {', '.join(VARIANTS)}")
    known = [field.name for field in fields(Settings)]
    if unknown := sorted(changes.keys() - set(known)):
        raise UsageError(f"no such setting: {', '.join(unknown)}; have: {', '.join(known)}")
    return replace(VARIANTS[name], **changes)


def _slices(of: Sequence[Any], length: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(of), max(1, length)):
        yield of[first : first + length]
