"""What writes the turns of rollouts: a model of this process, or a server that speaks OpenAI's protocol.

What is drawn depends on what was said before and on a seed, never on what else is generated at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tvsnap import InfrastructureError, UsageError
from tvsnap.plugins.extras import brought_by
from tvsnap.plugins.training import arithmetic

with brought_by("train"):
    import torch
    from transformers import GenerationConfig, LogitsProcessor

_STEP = 32
"""Tokens: what was said is padded to a multiple of them, so that rollouts of about the same length go together."""
_GATHERING_S = 0.02
"""Seconds that a batch with room waits for others, as siblings come one shortly after the other."""
_REQUESTS = 64
"""How many requests a server is sent at a time."""


class Generator(Protocol):
    """Writes turns of rollouts.

    Attributes:
        generating_s: seconds in which something was written, so far; what is written at the same time counts once.
    """

    generating_s: float

    async def write(self, past: Sequence[int], seed: int) -> list[int]:
        """Returns what is written in one turn, drawn at temperature 1, as tokens.

        Args:
            past: what was said before, as tokens.
            seed: of chance.
        """
        ...


@dataclass(eq=False)
class _Waiting:
    """A rollout that waits for its next turn."""

    past: Sequence[int]
    seed: int
    written: asyncio.Future[list[int]]

    @property
    def length(self) -> int:
        """To how many tokens it is padded."""
        return _padded(len(self.past))


class ModelGenerator:
    """Generates with a model of this process, several rollouts at a time.

    A rollout is generated as soon as its tool call is over, with those that wait at that moment. Sums of floating-point
    numbers come out otherwise where the kernels are given another number of rows, and with them what is drawn. So a
    batch always has the same number of rows, filled up where there are fewer rollouts, and its length depends on each
    rollout's own. In batches of one shape each row is computed alike, whatever is in the others.

    It draws from the model's own probabilities, as the learner computes them: what the model's generation
    configuration says of penalties, suppressed tokens and the like does not count. A rollout that has come to the end
    of the model's context writes nothing more.
    """

    def __init__(self, model: Any, tokenizer: Any, *, tokens: int = 128, rows: int = 8) -> None:
        """
        Args:
            model: a causal language model of transformers.
            tokenizer: its tokenizer.
            tokens: the most tokens of a turn.
            rows: how many rollouts are generated at a time; another number may draw other tokens.

        Raises:
            UsageError: `tokens` or `rows` is less than 1.
        """
        check_least("tokens", tokens)
        check_least("rows", rows)
        arithmetic.warn_if_too_late()
        self.model = model
        self.generating_s = 0.0
        self._tokens, self._rows = tokens, rows
        self._end = int(tokenizer.eos_token_id)
        self._room = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._waiting: list[_Waiting] = []
        self._work: asyncio.Task[None] | None = None

    async def write(self, past: Sequence[int], seed: int) -> list[int]:
        """See `Generator.write`."""
        if not past:
            raise UsageError("a turn needs something that was said before: past is empty")
        if not self._tokens_after(_padded(len(past))):
            return []
        one = _Waiting(past, seed, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if self._work is None:
            self._work = asyncio.create_task(self._generate())
        try:
            return await one.written
        finally:
            if one in self._waiting:  # it was cancelled
                self._waiting.remove(one)

    async def _generate(self) -> None:
        """Generates batch after batch until nobody waits; the rollout that waits longest comes first."""
        try:
            while self._waiting:
                if len(self._waiting) < self._rows:
                    await asyncio.sleep(_GATHERING_S)
                    if not self._waiting:
                        return
                length = self._waiting[0].length
                batch = [one for one in self._waiting if one.length == length][: self._rows]
                self._waiting = [one for one in self._waiting if one not in batch]
                began = time.perf_counter()
                try:
                    rows = await asyncio.to_thread(
                        self.write_all, [one.past for one in batch], [one.seed for one in batch]
                    )
                except Exception as error:
                    for one in batch:
                        if not one.written.done():
                            one.written.set_exception(error)
                    continue
                self.generating_s += time.perf_counter() - began
                for one, row in zip(batch, rows, strict=True):
                    if not one.written.done():
                        one.written.set_result(row)
        finally:
            self._work = None

    def write_all(self, past: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[list[int]]:
        """Returns what the model writes in one turn of several rollouts, all of which come to the same padded length.

        Args:
            past: what was said before in each, as tokens, with room for a turn in the model's context; at most as many
                as there are rows.
            seeds: of chance, one a rollout.
        """
        rows = [*past, *([past[0]] * (self._rows - len(past)))]
        all_seeds = [*seeds, *([seeds[0]] * (self._rows - len(seeds)))]
        length = max(_padded(len(tokens)) for tokens in past)
        device = next(self.model.parameters()).device
        ids = torch.full((len(rows), length), self._end, dtype=torch.long, device=device)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, length - len(tokens) :] = torch.tensor(list(tokens), device=device)
            mask[row, length - len(tokens) :] = 1
        # The largest of what chance is added to is a draw, see _Drawn.
        plain = GenerationConfig(do_sample=False, eos_token_id=self._end, pad_token_id=self._end)
        with torch.no_grad(), _configured(self.model, plain):
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=self._tokens_after(length),
                logits_processor=[_Drawn(all_seeds)],
            )
        return [self._until_end(row) for row in output[: len(past), length:].tolist()]

    def _tokens_after(self, length: int) -> int:
        """Returns how many tokens a turn may have after so many: the same for all rollouts of a batch."""
        return self._tokens if self._room is None else max(0, min(self._tokens, self._room - length))

    def _until_end(self, tokens: list[int]) -> list[int]:
        return tokens[: tokens.index(self._end) + 1] if self._end in tokens else tokens


class ServerGenerator:
    """Has an OpenAI-compatible server generate, such as vLLM, by `POST /v1/completions`.

    What was said is sent as tokens. What the server wrote is read as tokens where it returns them (`return_token_ids`
    of vLLM), and else as text that the tokenizer reads. Whether a seed always gives the same tokens is the server's.
    """

    def __init__(
        self, url: str, model: str, tokenizer: Any, *, tokens: int = 128, timeout: float = 600.0, key: str = ""
    ) -> None:
        """
        Args:
            url: of the server, such as `http://127.0.0.1:8000`.
            model: the model's name there.
            tokenizer: its tokenizer.
            tokens: the most tokens of a turn.
            timeout: seconds that a request may take.
            key: what the server lets in with, if anything.

        Raises:
            UsageError: `url` is none of HTTP, or `tokens` is less than 1.
        """
        check_least("tokens", tokens)
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"the address of a generating server begins with http:// or https://, not {url!r}")
        self.generating_s = 0.0
        self.model = model
        self._url, self._tokens, self._timeout, self._key = url.rstrip("/").removesuffix("/v1"), tokens, timeout, key
        self._tokenizer = tokenizer
        self._end = int(tokenizer.eos_token_id)
        self._threads = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="tvsnap-generation")
        self._under_way, self._since = 0, 0.0

    async def write(self, past: Sequence[int], seed: int) -> list[int]:
        """See `Generator.write`.

        Raises:
            InfrastructureError: the server could not be reached, or refused.
        """
        request = {
            "model": self.model,
            "prompt": list(past),
            "max_tokens": self._tokens,
            "temperature": 1.0,
            "top_p": 1.0,
            "seed": seed,
            "stop_token_ids": [self._end],
            "return_token_ids": True,
        }
        with self._measured():
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(self._threads, self._ask, "/v1/completions", request)
        try:
            choice = json.loads(body)["choices"][0]
            tokens = choice.get("token_ids")
            if tokens is None:
                tokens = self._tokenizer.encode(choice["text"], add_special_tokens=False)
            tokens = [int(token) for token in tokens]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise InfrastructureError(f"{self._url} returned no completion, but {body[:300]!r}") from None
        if choice.get("finish_reason") == "stop" and tokens[-1:] != [self._end]:
            tokens.append(self._end)
        return tokens

    def renew(self, adapter: Path, name: str) -> None:
        """Has the server generate with an adapter from now on: vLLM loads it (`/v1/load_lora_adapter`).

        Args:
            adapter: the folder in which PEFT saved it; the server reads it there.
            name: a name that was not used before.

        Raises:
            InfrastructureError: the server could not be reached, or loads no adapters.
        """
        try:
            self._ask("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(adapter.absolute())})
        except InfrastructureError as error:
            raise InfrastructureError(
                f"{error}; the server is to generate with what was learned: start vLLM with --enable-lora and with "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            ) from error
        self.model = name

    def close(self) -> None:
        """Ends its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, target: str, body: Mapping[str, Any]) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self._url + target, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            text = error.read()[:300].decode(errors="replace")
            raise InfrastructureError(f"{self._url}{target} answered {error.code}: {text}") from None
        except OSError as error:
            raise InfrastructureError(f"{self._url} cannot be reached: {error}") from None

    @contextlib.contextmanager
    def _measured(self) -> Iterator[None]:
        """Adds to `generating_s` the time in which there is a request."""
        if not self._under_way:
            self._since = time.perf_counter()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self.generating_s += time.perf_counter() - self._since


@contextlib.contextmanager
def _configured(model: Any, config: GenerationConfig) -> Iterator[None]:
    """Has a model generate as a configuration says, without what its own adds to it."""
    models = [model, model.get_base_model()] if hasattr(model, "get_base_model") else [model]
    own = model.generation_config
    for each in models:
        each.generation_config = config
    try:
        yield
    finally:
        for each in models:
            each.generation_config = own


def check_least(name: str, value: int) -> None:
    """Raises UsageError unless a value is a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name} must be a whole number, 1 at least, not {value!r}")


def _padded(tokens: int) -> int:
    return -(-tokens // _STEP) * _STEP


class _Drawn(LogitsProcessor):
    """Adds Gumbel noise, by which the largest value is a draw at temperature 1: each row has chance of its own."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._chances = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        drawn = [torch.empty(scores.shape[-1]).exponential_(generator=chance) for chance in self._chances]
        return scores.log_softmax(-1) - torch.stack(drawn).log().to(scores.device)
