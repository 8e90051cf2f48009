"""Generation by a server that speaks OpenAI's protocol, over real HTTP; it is the tests' own, with a tiny model."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

import tvsnap
from tvsnap import UsageError
from tvsnap.plugins.training.agents import Agents
from tvsnap.plugins.training.experiment import main
from tvsnap.plugins.training.generation import ModelGenerator, ServerGenerator
from tvsnap.plugins.training.tasks import tasks


class Peer(ThreadingHTTPServer):
    """Completes with a tiny model, as vLLM does with a larger one.

    Attributes:
        asked: the requests so far, by target.
        told: whether it returns tokens.
        models: the names that it knows.
    """

    daemon_threads = True

    def __init__(self, generator: ModelGenerator, tokenizer: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.generator, self.tokenizer = generator, tokenizer
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.told = True
        self.models = {"tiny"}
        self.adapters: list[str] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, target: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if target == "/v1/load_lora_adapter":
            self.adapters.append(sorted(path.name for path in Path(asked["lora_path"]).iterdir())[0])
            self.models.add(asked["lora_name"])
            return 200, {}
        if asked["model"] not in self.models:
            return 404, {"error": {"message": f"The model {asked['model']} does not exist."}}
        assert asked["temperature"] == 1.0
        with self.lock:
            (tokens,) = self.generator.write_all([asked["prompt"]], [asked["seed"]])
        tokens = tokens[: asked["max_tokens"]]
        stopped = tokens[-1] == self.tokenizer.eos_token_id
        text = self.tokenizer.decode(tokens[:-1] if stopped else tokens)
        choice = {"index": 0, "text": text, "finish_reason": "stop" if stopped else "length"}
        return 200, {"choices": [{**choice, **({"token_ids": tokens} if self.told else {})}]}


class Handler(BaseHTTPRequestHandler):
    server: Peer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, asked))
        status, said = self.server.answer(self.path, asked)
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def peer(model: Any, tokenizer: Any) -> Iterator[Peer]:
    with Peer(ModelGenerator(model, tokenizer, tokens=12, rows=4), tokenizer) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def write(generator: Any, prompts: list[list[int]]) -> list[list[int]]:
    async def go() -> list[list[int]]:
        return list(await asyncio.gather(*(generator.write(one, seed) for seed, one in enumerate(prompts))))

    return asyncio.run(go())


@pytest.mark.parametrize("told", [True, False])
def test_a_server_writes_what_its_model_draws(peer: Peer, tokenizer: Any, told: bool) -> None:
    peer.told = told
    generator = ServerGenerator(f"{peer.url}/v1", "tiny", tokenizer, tokens=12)
    prompts = [Agents(generator, tokenizer).prompt(task) for task in tasks(n=6)]
    here = write(peer.generator, prompts)
    found = write(generator, prompts)
    if told:
        assert found == here
    else:  # text does not tell all tokens apart: the tiny model has some that mean nothing
        assert [tokenizer.decode(one) for one in found] == [tokenizer.decode(one) for one in here]
    assert {target for target, _ in peer.asked} == {"/v1/completions"}
    assert generator.generating_s > 0
    generator.close()


def test_a_model_s_own_settings_change_no_draw(model: Any, tokenizer: Any) -> None:
    """What the learner computes knows nothing of them."""
    past, seeds = [1, 2, 3, 4], list(range(8))
    generator = ModelGenerator(model, tokenizer, tokens=12, rows=8)
    expected = generator.write_all([past] * 8, seeds)
    own = model.generation_config
    own.repetition_penalty, own.suppress_tokens, own.max_new_tokens = (
        1.5,
        [token for row in expected for token in row],
        3,
    )
    assert generator.write_all([past] * 8, seeds) == expected
    assert model.generation_config is own


def test_a_turn_ends_with_the_model_s_context(model: Any, tokenizer: Any) -> None:
    generator, room = ModelGenerator(model, tokenizer, tokens=100), model.config.n_positions
    assert 0 < len(asyncio.run(generator.write([1] * (room - 32), 0))) <= 32
    assert asyncio.run(generator.write([1] * (room - 8), 0)) == []
    assert asyncio.run(generator.write([1] * (room + 8), 0)) == []
    with pytest.raises(UsageError, match="past is empty"):
        asyncio.run(generator.write([], 0))


@pytest.mark.parametrize("number", ["tokens", "rows"])
def test_numbers_that_make_no_sense(model: Any, tokenizer: Any, number: str) -> None:
    with pytest.raises(UsageError, match=f"{number} must be a whole number, 1"):
        ModelGenerator(model, tokenizer, **{number: 0})


def test_what_a_server_refuses(peer: Peer, tokenizer: Any) -> None:
    with pytest.raises(tvsnap.InfrastructureError, match=r"404: .*The model big does not exist"):
        write(ServerGenerator(peer.url, "big", tokenizer), [[1, 2]])
    with pytest.raises(tvsnap.InfrastructureError, match="cannot be reached"):
        write(ServerGenerator("http://127.0.0.1:9", "tiny", tokenizer, timeout=5.0), [[1, 2]])
    with pytest.raises(tvsnap.UsageError, match="http://"):
        ServerGenerator("127.0.0.1:80", "tiny", tokenizer)


def test_a_server_that_loads_no_adapters(peer: Peer, tokenizer: Any, tmp_path: Path) -> None:
    peer.answer = lambda *_: (404, {"error": "no such target"})  # type: ignore[method-assign]
    with pytest.raises(tvsnap.InfrastructureError, match="--enable-lora"):
        ServerGenerator(peer.url, "tiny", tokenizer).renew(tmp_path, "one")


def test_the_experiment_with_a_server_that_generates(peer: Peer, model: Any, tokenizer: Any, tmp_path: Path) -> None:
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    arguments = ["--images", os.environ["TVSNAP_HOME"], "--model", str(tmp_path / "model"), "--device", "cpu"]
    arguments += ["--epochs", "2", "--tokens", "4", "--k", "2", "--warm", "1", "--kinds", "file", "--tests", "1"]
    arguments += ["--tasks", "6"]  # those of one update
    main([*arguments, "--generator", peer.url, "--generator-model", "tiny", "--out", str(tmp_path / "out")])
    assert len(json.loads((tmp_path / "out" / "run-0-tvsnap.json").read_text())["epochs"]) == 2
    assert len(peer.adapters) == 3  # after the last update, the held-out tasks are played
    used = {asked["model"] for target, asked in peer.asked if target == "/v1/completions"}
    assert used == peer.models - {"tiny"}
    assert all(asked["max_tokens"] == 4 for target, asked in peer.asked if target == "/v1/completions")


@pytest.mark.parametrize(
    ("before", "variable", "warned"),
    [
        ("import torch", None, False),
        ("import torch; torch.ones(64, 64) @ torch.ones(64, 64)", None, True),
        ("import torch; torch.ones(64, 64) @ torch.ones(64, 64)", "COMPATIBLE", False),
    ],
)
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this PyTorch multiplies without MKL")
def test_sums_in_an_order_that_depends_on_the_batch_are_told(before: str, variable: str | None, warned: bool) -> None:
    makes = "import tvsnap.training.loop as loop, torch; loop.Learner(torch.nn.Linear(2, 2))"
    own = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    ran = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", f"{before}\n{makes}"],
        env={**own, **({"MKL_CBWR": variable} if variable else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, "RuntimeWarning: what a model computes" in ran.stderr) == (int(warned), warned), ran.stderr
