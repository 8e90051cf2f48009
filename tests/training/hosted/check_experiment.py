"""The experiment with a tiny model: rollouts are the same with tvsnap and without; a stateless cache is wrong."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import tvsnap
from tvsnap.images import ImageStore
from tvsnap.training.experiment import StatelessCache, compare, main


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


def test_the_experiment(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    images = ["--images", os.environ["TVSNAP_HOME"], "--model", str(tmp_path / "model"), "--device", "cpu"]
    main(
        [
            *images,
            "--epochs",
            "2",
            "--tokens",
            "4",
            "--k",
            "3",
            "--seed",
            "1",
            "--warm",
            "2",
            "--out",
            str(tmp_path / "out"),
        ]
    )
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (tmp_path / "out" / "training.png").stat().st_size > 10_000
    found = results["differences"]["tvsnap"]
    assert (found["rollouts"], found["other_tokens"], found["other_reward"]) == (12, 0, 0)
    runs = results["runs"]
    assert [len(runs[mode]) for mode in ("tvsnap", "no cache", "stateless")] == [2, 2, 2]
    assert [epoch["update"] for epoch in runs["tvsnap"]] == [epoch["update"] for epoch in runs["no cache"]]
    assert not any(epoch["hit_rate"] for epoch in runs["no cache"])


def test_what_differs_is_counted() -> None:
    def rollout(tokens: list[int], output: str) -> dict[str, Any]:
        calls = [{"command": "ls", "output": output, "source": "hit", "seconds": 0.0}]
        return {"task": "t", "tokens": tokens, "turns": [], "calls": calls, "reward": float(len(tokens))}

    runs = {
        "none": [{"rollouts": [rollout([1], "a"), rollout([2], "b")]}],
        "some": [{"rollouts": [rollout([1], "a"), rollout([3], "c")]}],
    }
    found = compare(runs, "none")
    assert [found[mode]["other_tokens"] for mode in runs] == [0, 1]
    assert found["some"]["first"][0]["call"][0]["output"] == "c"
