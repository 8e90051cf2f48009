"""LOOP against computations in plain numbers and against finite differences, with a tiny model of random weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tvsnap import UsageError
from tvsnap.plugins.training.loop import (
    VARIANTS,
    Learner,
    Settings,
    Trajectory,
    advantages,
    rollout_loss,
    tree_advantages,
    variant,
    with_adapter,
)

VOCABULARY = 24


def tiny(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    return GPT2LMHeadModel(config).double().eval()


def groups(rewards: tuple[tuple[float, ...], ...] = ((1.0, 0.0, 0.0), (0.5, 0.5, 1.0))) -> list[list[Trajectory]]:
    chance = np.random.default_rng(1)
    made: list[list[Trajectory]] = []
    for group in rewards:
        made.append([])
        for reward in group:
            tokens = chance.integers(1, VOCABULARY, int(chance.integers(9, 14))).tolist()
            turns = [reward - 0.4, 0.6 * reward - 0.3]
            made[-1].append(Trajectory(tokens, [(3, 5), (7, 9)], reward, turns))
    return made


def reference(new: Any, old: Any, turns: list[int], weights: list[float], settings: Settings) -> float:
    """The loss, in plain numbers, straight from its definition; `weights` are the advantages of the turns."""
    difference = np.asarray(new) - np.asarray(old)
    if settings.ratio == "token":
        units = [(d, weights[turn]) for d, turn in zip(difference, turns, strict=True)]
    elif settings.ratio == "turn":
        of_turns = [sum(d for d, turn in zip(difference, turns, strict=True) if turn == each) for each in set(turns)]
        units = list(zip(of_turns, weights, strict=True))
    else:
        units = [(sum(difference), weights[0])]
    gains = []
    for unit, advantage in units:
        ratio = math.exp(unit)
        gain = ratio * advantage
        if settings.clip is not None:
            gain = min(gain, min(max(ratio, 1 - settings.clip), 1 + settings.clip) * advantage)
        gains.append(gain)
    return -sum(gains) / len(gains)


def model_log_probs(model: Any, one: Trajectory) -> list[float]:
    """The logarithms of probabilities of what was written, one token after the other, each from its own prefix."""
    found = []
    with torch.no_grad():
        for position in one.written:
            logits = model(input_ids=torch.tensor([one.tokens[:position]])).logits[0, -1].numpy()
            shifted = logits - logits.max()
            found.append(float(shifted[one.tokens[position]] - math.log(np.exp(shifted).sum())))
    return found


def test_advantages_by_hand() -> None:
    rewards = [1.0, 0.0, 0.5, 0.0]
    others = [sum(r for k, r in enumerate(rewards) if k != i) / 3 for i in range(4)]
    assert advantages(rewards, Settings()) == pytest.approx([r - o for r, o in zip(rewards, others, strict=True)])
    normalised = (np.array(rewards) - np.mean(rewards)) / np.std(rewards, ddof=1)
    assert advantages(rewards, VARIANTS["grpo"]) == pytest.approx(list(normalised))
    assert advantages(rewards, VARIANTS["loop-normalised"]) == pytest.approx(list(normalised * 4 / 3))
    for name in VARIANTS:
        assert advantages([0.5] * 3, VARIANTS[name]) == [0.0] * 3
    with pytest.raises(UsageError, match="two rollouts"):
        advantages([1.0], Settings())


@pytest.mark.parametrize("advantage", [0.7, -0.4])
@pytest.mark.parametrize("name", VARIANTS)
def test_the_loss_of_a_rollout_by_hand(name: str, advantage: float) -> None:
    chance, turns = np.random.default_rng(3), [0, 0, 0, 1, 1, 2]
    for spread in (0.0, 0.05, 1.0):
        old = chance.normal(-2, 1, 6)
        new = old + chance.normal(0, 1, 6) * spread
        weights = [advantage, advantage / 2, 0.1] if VARIANTS[name].credit == "state" else [advantage] * 3
        gains = torch.tensor(weights, dtype=torch.float64)
        loss = rollout_loss(torch.tensor(new), torch.tensor(old), torch.tensor(turns), gains, VARIANTS[name])
        assert float(loss) == pytest.approx(reference(new, old, turns, weights, VARIANTS[name]), abs=1e-12)
        if spread == 0 and VARIANTS[name].credit == "rollout":
            assert float(loss) == pytest.approx(-advantage)


def test_what_is_clipped_on_each_side() -> None:
    """In place of ratio * advantage, at most the advantage and a fifth of its size: PPO's loss in its other form."""
    for advantage in (0.5, -0.5):
        for ratio in (0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 3.0):
            moved = torch.tensor([math.log(ratio)], dtype=torch.float64)
            loss = rollout_loss(moved, torch.zeros(1), torch.tensor([0]), torch.tensor([advantage]), VARIANTS["loop"])
            assert float(loss) == pytest.approx(-min(ratio * advantage, advantage + 0.2 * abs(advantage)))


def test_reinforce_is_not_divided_by_the_length_and_on_policy_means_one_step() -> None:
    for length in (1, 3, 10):
        log_probs = torch.full((length,), -1.5, requires_grad=True)
        turns = torch.zeros(length, dtype=torch.long)
        rollout_loss(log_probs, log_probs.detach(), turns, torch.tensor([0.4]), VARIANTS["rloo"]).backward()
        assert log_probs.grad is not None
        assert log_probs.grad.tolist() == pytest.approx([-0.4] * length)
    for name in ("rloo", "grpo"):
        assert Learner(tiny(), VARIANTS[name]).learn(groups()).steps == 1


def test_log_probabilities_are_those_of_each_token_after_its_own_past() -> None:
    model = tiny()
    every = [one for group in groups() for one in group]
    for found, one in zip(Learner(model).log_probs(every), every, strict=True):
        assert found.tolist() == pytest.approx(model_log_probs(model, one), abs=1e-9)


def total_loss(model: Any, old: list[list[float]], settings: Settings) -> float:
    """The loss of the whole collection, in plain numbers."""
    losses, number = [], 0
    for group in groups():
        for one, advantage in zip(group, advantages([each.reward for each in group], settings), strict=True):
            weights = one.weights(advantage, settings.credit)
            if max(map(abs, weights)) >= settings.least_advantage:
                new = model_log_probs(model, one)
                losses.append(reference(new, old[number], one.turn_numbers, weights, settings))
            number += 1
    return sum(losses) / len(losses)


@pytest.mark.parametrize("name", VARIANTS)
def test_one_step_follows_the_gradient_that_finite_differences_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = variant(name, epochs=1, minibatch=0, gradient_norm=1e9)
    model = tiny()
    old = [model_log_probs(model, one) for group in groups() for one in group]
    learner = Learner(model, settings)
    kept: list[Any] = []

    def keep(_: Callable[[], float] | None = None) -> None:
        kept.extend(None if each.grad is None else each.grad.clone() for each in model.parameters())

    monkeypatch.setattr(learner._optimiser, "step", keep)
    update = learner.learn(groups())
    assert update.steps == 1
    assert update.loss == pytest.approx(total_loss(model, old, settings), abs=1e-9)
    for number, parameter in list(enumerate(model.parameters()))[1::4]:
        with torch.no_grad():
            place, step = int(kept[number].abs().argmax()), 1e-5
            flat = parameter.view(-1)
            before = float(flat[place])
            flat[place] = before + step
            up = total_loss(model, old, settings)
            flat[place] = before - step
            down = total_loss(model, old, settings)
            flat[place] = before
        assert float(kept[number].view(-1)[place]) == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-9)


def test_advantages_of_trees_by_hand() -> None:
    """Beside all rollouts of the task, and beside those of the tree; the third tree has one rollout, and no more."""
    rewards = [(0, 1.0), (1, 0.0), (0, 0.0), (1, 0.5), (0, 0.0), (7, 1.0)]

    def normalised(values: list[float]) -> dict[int, float]:
        spread = np.std(values, ddof=1)
        return dict(enumerate((np.array(values) - np.mean(values)) / spread))

    all_of, first, second = (
        normalised([1.0, 0.0, 0.0, 0.5, 0.0, 1.0]),
        normalised([1.0, 0.0, 0.0]),
        normalised([0.0, 0.5]),
    )
    trees = [first[0], second[0], first[1], second[1], first[2], 0.0]
    assert tree_advantages(rewards) == pytest.approx([all_of[n] + tree for n, tree in enumerate(trees)])
    assert tree_advantages([(0, 1.0)]) == [0.0]
    assert tree_advantages([]) == []


@pytest.mark.parametrize("name", ["loop", "loop-state", "tree-grpo", "rloo"])
def test_the_noise_of_a_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the gradients with which the learner would learn from each task alone, and from all."""
    settings = variant(name, epochs=1, minibatch=0, gradient_norm=1e9)
    model = tiny()
    learner = Learner(model, settings, rows=2)
    told = groups(((1.0, 0.0, 0.0), (0.5, 0.5, 1.0), (1.0, 1.0, 1.0), (0.0, 0.3)))
    kept: list[Any] = []

    def keep(_: Callable[[], float] | None = None) -> None:
        kept.append(torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None]).numpy())

    monkeypatch.setattr(learner._optimiser, "step", keep)
    counts = [learner.learn([group]).kept for group in told]
    learner.learn(told)
    *each, whole = kept
    alone = iter(each)
    parts = [(next(alone) * count if count else 0 * whole) * len(told) / sum(counts) for count in counts]
    noise = learner.noise(told)
    assert noise.square == pytest.approx(float(whole @ whole), rel=1e-6)
    variance = sum(float((part - whole) @ (part - whole)) for part in parts) / (len(told) * (len(told) - 1))
    assert noise.variance == pytest.approx(variance, rel=1e-6)
    assert all(each.grad is None for each in model.parameters())
    with pytest.raises(UsageError, match="two tasks"):
        learner.noise(told[:1])


def test_log_probabilities_of_nothing() -> None:
    learner = Learner(tiny())
    written, nothing = learner.log_probs([groups()[0][0], Trajectory([1, 2, 3], [(2, 2)], 1.0)])
    assert (len(written), len(nothing)) == (4, 0)
    assert learner.log_probs([]) == []


def test_only_what_the_model_wrote_counts() -> None:
    model = tiny()
    (one,) = groups(((1.0, 0.0),))[0][:1]
    (before,) = Learner(model).log_probs([one])
    after = Trajectory([*one.tokens[:9], *(5 for _ in one.tokens[9:])], one.turns, one.reward)
    (same,) = Learner(model).log_probs([after])
    assert torch.equal(before, same)
    assert len(before) == 4


def test_rollouts_without_an_advantage_take_no_part() -> None:
    update = Learner(tiny()).learn(groups(((1.0, 0.0, 1.0), (0.5, 0.5, 0.5), (0.5, 0.505, 0.5))))
    assert (update.kept, update.steps) == (3, 2)
    nothing = Learner(tiny()).learn(groups(((0.5, 0.5),)))
    assert (nothing.kept, nothing.steps, nothing.stopped) == (0, 0, False)


def test_minibatches_and_rows() -> None:
    one, other = tiny(), tiny()
    first = Learner(one, Settings(minibatch=2), rows=1).learn(groups(((1.0, 0.0, 0.0, 0.0, 1.0),)))
    second = Learner(other, Settings(minibatch=2), rows=4).learn(groups(((1.0, 0.0, 0.0, 0.0, 1.0),)))
    assert (first.kept, first.steps) == (5, 6)
    assert first.loss == pytest.approx(second.loss, abs=1e-9)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_an_iteration_ends_when_the_policy_has_moved_too_far() -> None:
    update = Learner(tiny(), Settings(learning_rate=0.3, most_log_ratio=0.1, epochs=50)).learn(groups())
    assert update.stopped
    assert update.log_ratio > 0.1
    assert update.steps < 50


def test_what_was_rewarded_becomes_more_probable() -> None:
    for name in VARIANTS:
        model = tiny()
        learner = Learner(model, variant(name, learning_rate=1e-3))
        good, bad = groups(((1.0, 0.0),))[0]
        before = [float(found.detach().sum()) for found in learner.log_probs([good, bad])]
        for _ in range(5):
            learner.learn([[good, bad]])
        after = [float(found.detach().sum()) for found in learner.log_probs([good, bad])]
        assert after[0] > before[0], name
        assert after[1] < before[1], name


def test_an_adapter_alone_is_trained() -> None:
    model = with_adapter(tiny().float(), rank=2, alpha=4)
    frozen = {name: value.clone() for name, value in model.named_parameters() if not value.requires_grad}
    learner = Learner(model, Settings(learning_rate=1e-2))
    losses = [learner.imitate(groups()[0]) for _ in range(8)]
    assert losses[-1] < losses[0]
    assert learner.learn(groups()).steps
    assert frozen
    for name, value in model.named_parameters():
        assert value.requires_grad == ("lora" in name)
        assert value.requires_grad or torch.equal(value, frozen[name])


def test_there_is_no_other_algorithm() -> None:
    with pytest.raises(UsageError, match="have: loop"):
        variant("ppo")


@pytest.mark.parametrize(
    "change",
    [
        {"ratio": "sentence"},
        {"credit": "step"},
        {"clip": -0.5},
        {"minibatch": -3},
        {"epochs": 0},
        {"learning_rate": -1.0},
        {"gradient_norm": math.nan},
        {"nonsense": 1},
    ],
    ids=str,
)
def test_settings_that_make_no_sense(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(change))):
        variant("loop", **change)


@pytest.mark.parametrize("change", [{"ratio": "trajectory"}, {"normalised": True}, {"leave_one_out": False}], ids=str)
def test_credit_by_state_is_of_turns_and_beside_others(change: dict[str, Any]) -> None:
    for name, credit in (("loop-state", "state"), ("tree-grpo", "tree")):
        with pytest.raises(UsageError, match=f"credit by {credit}"):
            variant(name, **change)


def test_credit_by_state_takes_the_advantages_of_turns() -> None:
    """The first turn was as good as any other, the second one was bad: only that becomes less probable."""
    model = tiny()
    learner = Learner(model, variant("loop-state", learning_rate=1e-3, epochs=1))
    told = [Trajectory([1, 2, 3, 4, 5, 6], [(1, 3), (4, 6)], 0.0, weights) for weights in ([0.0, -1.0], [0.0, 0.0])]
    before = learner.log_probs(told[:1])[0].detach()
    assert learner.learn([told]).kept == 1
    after = learner.log_probs(told[:1])[0].detach()
    assert float((after - before)[2:].sum()) < 0
    with pytest.raises(UsageError, match=r"needs Trajectory\.advantages"):
        learner.learn([[Trajectory([1, 2, 3], [(1, 2)], reward) for reward in (0.0, 1.0)]])


@pytest.mark.parametrize(("weights", "message"), [([1.0], "1 advantages for 2 turns"), ([1.0, math.nan], "be numbers")])
def test_advantages_of_turns_that_make_no_sense(weights: list[float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Trajectory([1, 2, 3, 4, 5], [(1, 2), (3, 4)], 1.0, weights)


def test_nothing_is_learned_from_what_is_no_number() -> None:
    model = tiny()
    with torch.no_grad():
        model.transformer.wte.weight[5] = math.nan
    before = [parameter.clone() for parameter in model.parameters()]
    learner, told = Learner(model), [Trajectory([1, 2, 3, 4], [(1, 3)], 1.0), Trajectory([1, 2, 5, 4], [(1, 3)], 0.0)]
    update = learner.learn([told])
    assert (update.stopped, update.steps) == (True, 0)
    assert math.isnan(update.log_ratio)
    with pytest.raises(UsageError, match="nothing can be learned"):
        learner.imitate(told)
    assert all(torch.equal(a, b) for a, b in zip(before[1:], list(model.parameters())[1:], strict=True))


@pytest.mark.parametrize("reward", [0.1, 0.2, 0.4, 5 / 6])
@pytest.mark.parametrize("count", range(2, 9))
def test_equal_rewards_are_equal_whatever_their_rounding(reward: float, count: int) -> None:
    for name in VARIANTS:
        assert max(map(abs, advantages([reward] * count, variant(name)))) < 1e-9


@pytest.mark.parametrize("turns", [[(0, 2)], [(1, 7)], [(3, 2)], [(1, 3), (2, 4)]])
def test_turns_that_make_no_sense(turns: list[tuple[int, int]]) -> None:
    with pytest.raises(UsageError, match="turns must be in order"):
        Trajectory([0] * 6, turns, 0.0)


def test_a_reward_that_is_none() -> None:
    with pytest.raises(UsageError, match="reward must be a number"):
        Trajectory([0, 1], [(1, 2)], float("nan"))


def test_turns_without_tokens_do_not_count() -> None:
    assert Trajectory([0] * 6, [(1, 1), (2, 4), (4, 4), (5, 6)], 0.0).turn_numbers == [0, 0, 1]
