"""The experiment with a tiny model: rollouts are the same with tvsnap and without; a stateless cache is wrong."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tvsnap
from tvsnap.images import ImageStore
from tvsnap.plugins.training.experiment import main, options_of, warm_file
from tvsnap.plugins.training.played import Call, Played
from tvsnap.plugins.training.reports import differences
from tvsnap.plugins.training.stateless import StatelessCache, errors
from tvsnap.plugins.training.tasks import tasks


def test_a_stateless_cache_is_wrong(tmp_path: Path) -> None:
    async def go() -> None:
        images = ImageStore(Path(os.environ["TVSNAP_HOME"]))
        async with tvsnap.AsyncCache(tmp_path, images=images, use_cache=False) as inner:
            cache = StatelessCache(inner, ["echo more >> /app/f"])
            seen = []
            for rollout, word in zip(cache.group("terminal", "t", 2), ("one", "two"), strict=True):
                async with rollout:
                    for command in ("echo more >> /app/f", f"echo {word} > /app/g", "cat /app/g", "wc -l < /app/f"):
                        result = await rollout.call("bash", {"command": command}, 20.0)
                        seen.append((result.output, result.source))
            assert [seen[place][0] for place in (2, 6)] == ["one\n", "one\n"]
            assert [seen[place][1] for place in (0, 2, 4, 6)] == ["executed", "executed", "executed", "hit"]

    asyncio.run(go())


def test_what_a_stateless_cache_answered_wrongly_is_counted(tmp_path: Path) -> None:
    """A rollout that was answered as an execution answers, one that was not, and one that was given another reward."""
    (task,) = tasks("train", 1, 3, kinds=["file"])

    def rollout(output: str, source: Any, reward: float) -> Played:
        look = tvsnap.ToolResult.of_text(output, 0, 0.0).from_source(source)
        calls = [("echo a > /tmp/a", tvsnap.ToolResult.of_text("", 0, 0.0)), ("cat /tmp/a", look)]
        made = [Call(command, result, result.output, 0.0) for command, result in calls]
        return Played(task, 0, [], calls=made, grade=tvsnap.Grade(reward), done=True)

    played = [rollout("a\n", "hit", 0.0), rollout("b\n", "hit", 0.0), rollout("b\n", "executed", 1.0)]

    async def go() -> None:
        images = ImageStore(Path(os.environ["TVSNAP_HOME"]))
        async with tvsnap.AsyncCache(tmp_path, images=images) as exact:
            found = await errors(exact, played, 20.0)
        assert (found.answered, found.wrong, found.rollouts, found.wrong_rewards) == (2, 1, 3, 1)

    asyncio.run(go())


SHORT = ["--device", "cpu", "--epochs", "2", "--tokens", "4", "--warm", "2", "--tests", "2", "--test-every", "1"]


@pytest.fixture
def tiny(tmp_path: Path, model: Any, tokenizer: Any) -> list[str]:
    """Arguments that name images and a tiny model."""
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    kinds = ["--kinds", "file", "count", "--tasks", "2", "--turns", "3"]
    return ["--images", os.environ["TVSNAP_HOME"], "--model", str(tmp_path / "model"), *kinds, *SHORT]


def runs_in(out: Path) -> dict[tuple[int, str], dict[str, Any]]:
    runs = [json.loads(path.read_text()) for path in out.glob("run-*.json")]
    return {(run["seed"], run["mode"]): run for run in runs}


def nothing_differs(run: dict[str, Any], base: dict[str, Any], rollouts: int) -> None:
    found = differences(run, base)
    assert (found["epochs"], found["rollouts"]) == (2, rollouts)
    assert [found[name] for name in found if name.startswith(("other", "in_"))] == [0] * 5


def test_the_experiment(tmp_path: Path, tiny: list[str]) -> None:
    out, modes = tmp_path / "out", ["tvsnap", "eager", "stateless"]
    seeds = ["--seeds", "1", "2", "--processes", "2"]
    main([*tiny, "--k", "2", *seeds, "--stragglers", "1", "60", "--out", str(out), "--modes", *modes])
    # A later command adds a mode; it begins with the same weights.
    main([*tiny, "--k", "2", "--seeds", "1", "--stragglers", "1", "60", "--out", str(out), "--modes", "no cache"])
    runs = runs_in(out)
    assert len(runs) == 7
    for mode in ("tvsnap", "eager"):
        nothing_differs(runs[1, mode], runs[1, "no cache"], 2 * 2 * 2 + 3 * 2 * 2)
        assert all(epoch["snapshot_bytes"] > 0 for epoch in runs[1, mode]["epochs"])
    assert not any(epoch["hit_rate"] for epoch in runs[1, "no cache"]["epochs"])
    assert runs[1, "stateless"]["wrong"]["rollouts"] == 2 * 2 * 2 + 3 * 2 * 2
    assert [run["wrong"] for run in runs.values() if run["mode"] != "stateless"] == [None] * 5
    told = (out / "report.md").read_text()
    for title in ("after 0 | after 1 | after 2", "Beside the mode `no cache`", "an execution of the same calls"):
        assert title in told
    assert "<svg" in (out / "training.svg").read_text()


def test_algorithms_are_compared_at_equal_tokens_and_seconds(tmp_path: Path, tiny: list[str]) -> None:
    """The budget of tokens is used up by the first update, and that of seconds, a fraction of it, with it."""
    out, methods = tmp_path / "out", ["loop", "loop-state", "tree-grpo"]
    main([*tiny, "--k", "4", "--out", str(out), "--methods", *methods, "--budget", "1", "0.01", "--branch", "1", "2"])
    runs = {path.stem: json.loads(path.read_text()) for path in out.glob("compare-*.json")}
    assert sorted(runs) == [f"compare-0-{method}" for method in methods]
    for method in methods:
        run = runs[f"compare-0-{method}"]
        assert [each["at"] for each in run["tests"]] == ["start", "tokens", "seconds"]
        (epoch,) = run["epochs"]
        assert epoch["tokens"] >= 1
        assert epoch["seconds"] > 0.01
        assert 0 <= epoch["shared"] <= 1
        assert epoch["noise"]["variance"] >= 0
        assert epoch["rollouts"] >= 2 * 2
    assert runs["compare-0-loop"]["epochs"][0]["tokens"] == runs["compare-0-loop-state"]["epochs"][0]["tokens"]
    told = (out / "comparison.md").read_text()
    for title in (*methods, "at equal tokens", "at equal seconds", "variance of the gradient"):
        assert title in told


def test_rollouts_through_a_server_are_those_of_this_process(tmp_path: Path, tiny: list[str], url: str) -> None:
    out = tmp_path / "out"
    main([*tiny, "--k", "2", "--modes", "tvsnap", "no cache", "--url", url, "--out", str(out)])
    runs = runs_in(out)
    nothing_differs(runs[0, "tvsnap"], runs[0, "no cache"], 8 + 12)
    assert all(epoch["not_graded"] == 0 for epoch in runs[0, "tvsnap"]["epochs"])


def test_the_setting_goes_by_the_device() -> None:
    small, large = options_of(["--device", "cpu"]), options_of(["--device", "cuda", "--epochs", "7"])
    assert (small.epochs, small.tasks, small.tasks_each, small.k, small.model) == (20, 18, 6, 6, "own")
    assert (large.epochs, large.k, large.turns, large.model) == (7, 6, 8, "smollm2")
    assert options_of(["--device", "cpu", "--setting", "large"]).epochs == 300


def rollout(number: int, tokens: Sequence[int], output: str) -> dict[str, Any]:
    calls = [{"command": "ls", "output": output, "source": "hit", "seconds": 0.0}]
    return {"task": "t", "number": number, "tokens": tokens, "calls": calls, "reward": float(len(tokens))}


def test_what_differs_is_counted() -> None:
    def run(*epochs: list[dict[str, Any]]) -> dict[str, Any]:
        made = [{"updates": [len(rollouts)], "rollouts": rollouts} for rollouts in epochs]
        return {"epochs": made, "tests": [{**one, "updates": n} for n, one in enumerate(made)]}

    base = run([rollout(0, [1], "a"), rollout(1, [2], "b"), rollout(2, [4], "d")])
    assert not any(differences(base, base)[name] for name in ("other_tokens", "other_outputs", "in_one_only"))
    # A rollout has other tokens, another one is late, and a third one was shown another output.
    other = run([rollout(0, [3, 1], "a"), rollout(1, [2], "c")])
    found = differences(other, base)
    assert (found["rollouts"], found["other_tokens"], found["other_outputs"], found["other_rewards"]) == (4, 2, 2, 2)
    assert (found["in_one_only"], found["updates"], found["other_updates"]) == (2, 1, 1)
    shorter = {**base, "epochs": [{**base["epochs"][0], "updates": []}]}
    assert [differences(shorter, base)[name] for name in ("updates", "other_updates")] == [1, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--variant ppo", "no such algorithm: ppo; have: loop"),
        ("--kinds nonsense", "no such family or kind of tasks: nonsense; have: file"),
        ("--k 1", "--k must be 2 at least"),
        ("--tasks 0", "--tasks must be"),
        ("--tasks-each 0", "--tasks-each must be"),
        ("--test-every 0", "--test-every must be"),
        ("--at-once 0", "--at-once must be"),
        ("--warm -5", "--warm must be"),
        ("--rate nan", "learning_rate must be"),
        ("--budget nan 5", "--budget needs"),
        ("--budget 100 0", "--budget needs"),
        ("--branch 0 2", "each number of --branch must be"),
        ("--stragglers 2 60", "share must be"),
        ("--stragglers 1 60 --methods loop", "--stragglers is not for --methods"),
        ("--device nonsense", "--device nonsense: "),
        ("--kinds", "--kinds: expected at least one"),
    ],
)
def test_options_that_make_no_sense(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        options_of(["--setting", "small", "--device", "cpu", *words.split()])
    assert f"error: {message}" in capsys.readouterr().err.replace("argument ", "")


def test_a_warm_start_is_of_one_model_and_its_kinds_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later command with others, in the same folder, begins with a warm start of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a/model").mkdir(parents=True)
    (tmp_path / "b/model").mkdir(parents=True)
    options = ["--device", "cpu", "--warm", "3"]
    files = [
        warm_file(options_of([*options, "--model", model, "--kinds", *kinds]))
        for model, kinds in (("own", ["file"]), ("own", ["count"]), ("a/model", ["file"]), ("b/model", ["file"]))
    ]
    assert len(set(files)) == 4
    again = options_of([*options, "--model", str(tmp_path / "a/model"), "--kinds", "file", "--epochs", "3"])
    assert warm_file(again) == files[2]
