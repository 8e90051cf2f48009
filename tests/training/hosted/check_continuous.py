"""Priors for continuous states and actions: symbols, SAC and CQL with a prior."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy
import pytest
import torch

from tvsnap import UsageError
from tvsnap.plugins.priors import PriorCache
from tvsnap.plugins.priors.sac import PriorSAC
from tvsnap.plugins.priors.symbolic import Fading, SymbolicAction, SymbolicPrior
from tvsnap.plugins.priors.symbols import ARRAYS, Pair, Symbols

ACTIONS = {"left": SymbolicAction((-0.7,)), "right": SymbolicAction((0.7,))}


class Line(gymnasium.Env[Any, Any]):
    """A point on a line, which is to stay near 0; the second number of an observation is noise."""

    observation_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), numpy.float32)
    action_space = gymnasium.spaces.Box(-0.5, 0.5, (1,), numpy.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.left = float(self.np_random.uniform(-1, 1)), 20
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = min(2.0, max(-2.0, self.place + float(action[0])))
        self.left -= 1
        return self._seen(), -abs(self.place), False, not self.left, {}

    def _seen(self) -> Any:
        return numpy.array([self.place, self.np_random.uniform(-1, 1)], numpy.float32)


def damaged(symbols: Symbols, tmp_path: Path, name: str, array: Any) -> Path:
    """Returns a file of symbols, one array of which is another one."""
    symbols.save(tmp_path / "symbols.npz")
    with numpy.load(tmp_path / "symbols.npz") as file:
        numpy.savez(tmp_path / "damaged.npz", **{**file, name: array(file[name])})
    return tmp_path / "damaged.npz"


def test_symbols_that_are_damaged_are_refused(symbols: Symbols, tmp_path: Path) -> None:
    for name in ARRAYS:
        with pytest.raises(UsageError, match="not finite"):
            Symbols.load(damaged(symbols, tmp_path, name, lambda array: array * numpy.nan))
        if name != "centroids":  # of which there may be any number
            with pytest.raises(UsageError, match="shapes"):
                Symbols.load(damaged(symbols, tmp_path, name, lambda array: array[:-1]))
    with pytest.raises(UsageError, match="scale"):
        Symbols.load(damaged(symbols, tmp_path, "scale", numpy.zeros_like))
    with pytest.raises(UsageError, match="shapes"):
        Symbols.load(damaged(symbols, tmp_path, "centroids", numpy.ravel))


def test_symbols_of_what_is_too_large_are_refused() -> None:
    large = [Pair([3e38 * (-1) ** number, number], [1.0, -3e38], number % 2 == 0) for number in range(20)]
    with pytest.raises(UsageError, match="too large"):
        Symbols.learn(large, 4, steps=5)
    wrongs: list[dict[str, Any]] = [{"margin": math.nan}, {"margin": 5.0}, {"steps": -1}, {"count": 2.5}]
    for wrong in wrongs:
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Symbols.learn(pairs(), **{"count": 4, **wrong})


@pytest.mark.parametrize("wrong", [{"mean": ()}, {"mean": 0.5}, {"mean": (0.0,), "deviation": 1e-300}], ids=str)
def test_symbolic_actions_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="at least one coordinate"):
        SymbolicAction(**wrong)


def test_an_algorithm_that_was_saved_goes_on_with_its_prior(symbols: Symbols, tmp_path: Path) -> None:
    with PriorCache(tmp_path / "priors.db", delta=1.5, refresh=0.0, embedder=symbols) as cache:
        prior = SymbolicPrior(cache, "stay", ACTIONS, symbols, toward_zero)
        options: dict[str, Any] = {"learning_starts": 5, "buffer_size": 100, "seed": 0}
        PriorSAC("MlpPolicy", Line(), prior=prior, fading=Fading(1.0, 1000), **options).learn(20).save(tmp_path / "sac")
        before = prior.asked + prior.answered
        PriorSAC.load(tmp_path / "sac", env=Line()).learn(10, reset_num_timesteps=False)
        assert prior.asked + prior.answered == before
        loaded = PriorSAC.load(tmp_path / "sac", env=Line(), prior=prior)
        loaded.learn(10, reset_num_timesteps=False)
        assert prior.asked + prior.answered == before + 10
        faded = PriorSAC.load(tmp_path / "sac", env=Line(), prior=prior, fading=Fading(1.0, 10))
        faded.learn(10, reset_num_timesteps=False)
        assert prior.asked + prior.answered == before + 10


def toward_zero(observation: Any) -> dict[str, float]:
    return {"left": 1.0} if observation[0] > 0 else {"right": 1.0}


def pairs(count: int = 200) -> list[Pair]:
    """Two observations are of the same situation if the point is on the same side."""
    generator = random.Random(0)
    drawn = [[generator.uniform(-1, 1), generator.uniform(-1, 1)] for _ in range(2 * count)]
    both = zip(drawn[::2], drawn[1::2], strict=True)
    return [Pair(one, other, (one[0] > 0) == (other[0] > 0)) for one, other in both]


@pytest.fixture(scope="module")
def symbols() -> Symbols:
    torch.set_num_threads(1)
    return Symbols.learn(pairs(), 4)


@pytest.fixture
def cache(symbols: Symbols, tmp_path: Path) -> Iterator[PriorCache]:
    with PriorCache(tmp_path / "priors.db", delta=1.5, refresh=0.0, embedder=symbols) as opened:
        yield opened


@pytest.fixture
def prior(cache: PriorCache, symbols: Symbols) -> SymbolicPrior:
    return SymbolicPrior(cache, "stay near 0", ACTIONS, symbols, toward_zero)


def test_symbols_tell_situations_apart_on_observations_that_they_have_not_seen(symbols: Symbols) -> None:
    generator = numpy.random.default_rng(1)
    seen = generator.uniform(-1, 1, (500, 2)).astype(numpy.float32)
    numbers = symbols.numbers(seen)
    sides = [numbers[seen[:, 0] < -0.05], numbers[seen[:, 0] > 0.05]]
    assert not set(sides[0]) & set(sides[1])


def test_symbols_are_keys_of_a_cache(prior: SymbolicPrior, cache: PriorCache) -> None:
    for place in numpy.linspace(-1, 1, 50):
        if abs(place) > 0.05:
            likely = dict(zip(prior.names, prior.weights([place, 0.3]), strict=True))
            assert max(likely, key=lambda name: likely[name]) == ("left" if place > 0 else "right")
    assert 2 <= prior.asked <= 4
    assert prior.asked + prior.answered == 48
    assert cache.stats().entries == prior.asked


def test_a_near_situation_answers(tmp_path: Path) -> None:
    many = Symbols.learn(pairs(), 40)
    with PriorCache(tmp_path / "near.db", delta=0.5, refresh=0.0, embedder=many) as cache:
        prior = SymbolicPrior(cache, "stay near 0", ACTIONS, many, toward_zero)
        for place in numpy.linspace(-1, 1, 50):
            prior.weights([place, 0.0])
        counts = cache.counts()
    assert prior.asked < 6 <= len({many.text([place, 0.0]) for place in numpy.linspace(-1, 1, 50)})
    assert counts["near"] > 0


def test_saved_symbols_are_the_same(symbols: Symbols, tmp_path: Path) -> None:
    symbols.save(tmp_path / "symbols")
    loaded = Symbols.load(tmp_path / "symbols")
    assert (loaded.name, loaded.text([0.4, 0.1])) == (symbols.name, symbols.text([0.4, 0.1]))
    assert loaded(loaded.text([0.4, 0.1])) == symbols(symbols.text([0.4, 0.1]))
    assert Symbols.learn(pairs(), 4).name == symbols.name
    assert Symbols.learn(pairs(), 4, seed=1).name != symbols.name


def test_what_makes_no_sense_is_refused(symbols: Symbols, tmp_path: Path) -> None:
    for wrong, said in ((pairs()[:1], "both labels"), ([Pair([1.0], [1.0, 2.0], True), *pairs()], "one length")):
        with pytest.raises(UsageError, match=said):
            Symbols.learn(wrong, 1)
    with pytest.raises(UsageError, match="finite"):
        Symbols.learn([Pair([math.nan, 0.0], [0.0, 0.0], True), *pairs()], 2)
    with pytest.raises(UsageError, match="symbols can be made"):
        Symbols.learn(pairs(), 401)
    with pytest.raises(UsageError, match="rows of 2 numbers"):
        symbols.text([1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match="no situation"):
        symbols("situation 4 of another")
    (tmp_path / "no").write_text("nothing")
    for path in ("no", "missing"):
        with pytest.raises(UsageError, match="holds no symbols"):
            Symbols.load(tmp_path / path)
    with pytest.raises(UsageError, match="at least one coordinate"):
        SymbolicAction((1.5,))


def test_the_density_is_that_of_the_mixture(prior: SymbolicPrior) -> None:
    weights = prior.weights([0.8, 0.0])
    actions = torch.linspace(-3, 3, 601)[:, None]
    density = prior.log_density(torch.tensor([[0.8, 0.0]]).expand(601, 2), actions).exp()
    assert float(torch.trapezoid(density, actions[:, 0])) == pytest.approx(1.0, abs=0.01)
    left = torch.trapezoid(density[:301], actions[:301, 0])
    assert float(left) == pytest.approx(weights[0], abs=0.01)


def test_the_actor_follows_the_prior_and_stops_asking_when_it_has_faded(prior: SymbolicPrior) -> None:
    fading = Fading(highest=5.0, until=250)
    learner = PriorSAC(
        "MlpPolicy", Line(), prior=prior, fading=fading, seed=0, learning_starts=50, policy_kwargs={"net_arch": [32]}
    )
    learner.learn(240)
    for place in (-0.9, 0.9):
        action, _ = learner.predict(numpy.array([place, 0.0], numpy.float32), deterministic=True)
        assert action[0] * place < 0
    assert prior.asked <= 4
    learner.learn(60, reset_num_timesteps=False)
    assert prior.asked + prior.answered == 250


def test_a_saved_learner_acts_without_its_prior(prior: SymbolicPrior, tmp_path: Path) -> None:
    learner = PriorSAC("MlpPolicy", Line(), prior=prior, seed=0, policy_kwargs={"net_arch": [8]})
    learner.save(tmp_path / "learner.zip")
    loaded = PriorSAC.load(tmp_path / "learner.zip", env=Line())
    seen = numpy.array([0.5, 0.0], numpy.float32)
    assert loaded.predict(seen, deterministic=True)[0] == learner.predict(seen, deterministic=True)[0]
    loaded.learn(5)


def test_cql_learns_from_recorded_data_with_the_prior(prior: SymbolicPrior) -> None:
    import d3rlpy

    from tvsnap.plugins.priors.cql import add_prior

    generator = numpy.random.default_rng(0)
    observations = generator.uniform(-1, 1, (400, 2)).astype(numpy.float32)
    actions = generator.uniform(-1, 1, (400, 1)).astype(numpy.float32)  # of one who does not know what to do
    ends = numpy.arange(400) % 20 == 19
    data = d3rlpy.dataset.MDPDataset(observations, actions, numpy.zeros(400, numpy.float32), ends)
    for observation in observations:
        prior.weights(observation)
    asked = prior.asked
    d3rlpy.seed(0)
    config = d3rlpy.algos.CQLConfig(
        batch_size=64,
        actor_learning_rate=3e-3,
        conservative_weight=0.1,
        observation_scaler=d3rlpy.preprocessing.StandardObservationScaler(),
    )
    learner = config.create(device="cpu:0")
    with pytest.raises(UsageError, match="build_with_dataset"):
        add_prior(learner, prior, Fading())
    learner.build_with_dataset(data)
    add_prior(learner, prior, Fading(highest=5.0, until=1000))
    silent = {"logger_adapter": d3rlpy.logging.NoopAdapterFactory(), "show_progress": False}
    learner.fit(data, n_steps=200, n_steps_per_epoch=200, **silent)
    acts = learner.predict(numpy.array([[-0.9, 0.0], [0.9, 0.0]], numpy.float32))
    assert acts[0, 0] > 0.2
    assert acts[1, 0] < -0.2
    assert prior.asked == asked <= 4


def test_the_benchmark_counts_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    from benchmarks.priors.continuous import Run, carry_out, table

    outcomes = [carry_out(Run("pendulum", "SAC", variant, 1, 250, None)) for variant in ("no prior", "cached")]
    assert [each.asked + each.hits for each in outcomes] == [0, 250]
    assert outcomes[1].asked < 60
    assert all(-2000 < each.final < 0 for each in outcomes)
    assert "| pendulum, SAC | cached |" in table(outcomes)
