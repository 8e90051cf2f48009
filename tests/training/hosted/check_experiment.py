"""The experiment with a tiny model: rollouts are the same with tvsnap and without; a stateless cache is wrong."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

import tvsnap
from tvsnap.images import ImageStore
from tvsnap.plugins.training.experiment import StatelessCache, compare, main, options_of, seconds_to


def test_a_stateless_cache_is_wrong(tmp_path: Path) -> None:
    async def go() -> None:
        images = ImageStore(Path(os.environ["TVSNAP_HOME"]))
        async with tvsnap.AsyncCache(tmp_path, images=images, use_cache=False) as inner:
            cache = StatelessCache(inner)
            seen = []
            for rollout, word in zip(cache.group("terminal", "t", 2), ("one", "two"), strict=True):
                async with rollout:
                    await rollout.call("bash", {"command": f"echo {word} > /app/f"}, 20.0)
                    seen.append((await rollout.call("bash", {"command": "cat /app/f"}, 20.0)).output)
            assert seen == ["one\n", "one\n"]

    asyncio.run(go())


SHORT = ["--device", "cpu", "--epochs", "2", "--tokens", "4", "--seed", "1", "--warm", "2"]


@pytest.fixture
def tiny(tmp_path: Path, model: Any, tokenizer: Any) -> list[str]:
    """Arguments that name images and a tiny model."""
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    return ["--images", os.environ["TVSNAP_HOME"], "--model", str(tmp_path / "model"), *SHORT]


def results_of(out: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((out / "results.json").read_text())
    return results


def test_the_experiment(tmp_path: Path, tiny: list[str]) -> None:
    main([*tiny, "--k", "3", "2", "--stragglers", "1", "60", "--reward", "0", "--out", str(tmp_path / "out")])
    results = results_of(tmp_path / "out")
    assert set(results["groups"]) == {"3", "2"}
    assert results["setting"]["turns"] == 3
    for k, group in results["groups"].items():
        assert (tmp_path / "out" / f"training-{k}.png").stat().st_size > 10_000
        found = group["differences"]["tvsnap"]
        assert (found["rollouts"], found["other_tokens"], found["other_reward"]) == (4 * int(k), 0, 0)
        runs = group["runs"]
        assert [len(runs[mode]) for mode in ("tvsnap", "no cache", "stateless")] == [2, 2, 2]
        assert [epoch["update"] for epoch in runs["tvsnap"]] == [epoch["update"] for epoch in runs["no cache"]]
        assert not any(epoch["hit_rate"] for epoch in runs["no cache"])
        assert all(epoch["snapshot_bytes"] > 0 for epoch in runs["tvsnap"])
        assert group["seconds_to_reward"]["tvsnap"] == runs["tvsnap"][0]["playing_s"]


def test_rollouts_through_a_server_are_those_of_this_process(tmp_path: Path, tiny: list[str], url: str) -> None:
    main([*tiny, "--k", "2", "--modes", "tvsnap", "no cache", "--url", url, "--out", str(tmp_path / "out")])
    group = results_of(tmp_path / "out")["groups"]["2"]
    found = group["differences"]["tvsnap"]
    assert (found["rollouts"], found["other_tokens"], found["other_reward"]) == (8, 0, 0)
    assert all(epoch["not_graded"] == 0 for epoch in group["runs"]["tvsnap"])


def test_seconds_to_a_reward() -> None:
    epochs = [{"playing_s": 1.0, "learning_s": 2.0, "reward": reward} for reward in (0.1, 0.5, 0.9)]
    assert [seconds_to(epochs, reward) for reward in (0.0, 0.5, 0.8, 1.0)] == [1.0, 4.0, 7.0, None]


def test_the_setting_goes_by_the_device() -> None:
    small, large = options_of(["--device", "cpu"]), options_of(["--device", "cuda", "--epochs", "7"])
    assert (small.epochs, small.k) == (3, [4])
    assert (large.epochs, large.k, large.turns) == (7, [6], 8)
    assert options_of(["--device", "cpu", "--setting", "large"]).epochs == 300


def test_what_differs_is_counted() -> None:
    def rollout(number: int, tokens: list[int], output: str) -> dict[str, Any]:
        calls = [{"command": "ls", "output": output, "source": "hit", "seconds": 0.0}]
        return {
            "task": "t",
            "number": number,
            "tokens": tokens,
            "turns": [],
            "calls": calls,
            "reward": float(len(tokens)),
        }

    runs = {
        "none": [{"rollouts": [rollout(0, [1], "a"), rollout(1, [2], "b"), rollout(2, [4], "d")]}],
        "some": [{"rollouts": [rollout(0, [1], "a"), rollout(2, [3], "c")]}],  # one was late
    }
    found = compare(runs, "none")
    assert [found[mode]["other_tokens"] for mode in runs] == [0, 1]
    assert [(found[mode]["rollouts"], found[mode]["in_one_only"]) for mode in runs] == [(3, 0), (2, 1)]
    assert found["some"]["first"][0]["call"][0]["output"] == "c"
