"""SmolLM2-135M-Instruct, the model that training uses, as an agent and as a model that tools ask."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.video.agents import Caller, Played, candidates
from tvsnap import Sandbox
from tvsnap.plugins.training.experiment import load
from tvsnap.plugins.video import Answer, Prompt
from tvsnap.plugins.video.egoschema import Question

_TURNS = 4
_SHOWN = 300
"""Tokens of what tools returned that the agent reads: the last ones."""
_TIMEOUT = 600.0


class LanguageModel:
    """The model, on the processor. It draws calls by the probability that it gives them; it writes answers greedily."""

    identity = "SmolLM2-135M-Instruct, greedy, texts only"

    def __init__(self) -> None:
        self._model, self._tokenizer = load(None, "cpu")
        self._lock = threading.Lock()
        self._known: dict[str, list[float]] = {}

    def ask(self, prompts: Sequence[Prompt], *, sandbox: Sandbox | None, seconds: float) -> list[Answer]:
        """See `tvsnap.video.Model.ask`: pictures are not looked at, and the captions in the prompt are."""
        return [self._write(prompt) for prompt in prompts]

    def play(self, rollout: Caller, question: Question, seed: int, spread: float) -> Played:
        """Plays one rollout, like `agents.play`; `spread` is the temperature at which it draws."""
        chance = random.Random(seed)
        calls: list[tuple[str, dict[str, Any], Any]] = []

        def call(name: str, arguments: dict[str, Any]) -> str:
            said = rollout.call(name, arguments, timeout=_TIMEOUT)
            calls.append((name, arguments, said))
            return f"{name} {arguments}: {said.output}\n"

        seen = call("load_video_into_sandbox", {"video_name": question.video_name})
        seen += call("preprocess", {})
        possible = candidates(question)
        texts = [f"{name} {arguments}" for name, arguments in possible]
        for _ in range(_TURNS - 1):
            place = self._drawn(f"{question.asked()}\n{seen}\nThe best next tool call:", texts, chance, spread)
            seen += call(*possible[place])
        answer = self._drawn(f"{question.asked()}\n{seen}\nThe right answer:", list(question.options), chance, spread)
        return Played(answer, False, calls)

    def _drawn(self, asked: str, texts: list[str], chance: random.Random, temperature: float) -> int:
        scores = self._scores(asked, texts)
        if temperature <= 0:
            return max(range(len(scores)), key=scores.__getitem__)
        weights = torch.softmax(torch.tensor(scores, dtype=torch.float64) / temperature, 0).tolist()
        return chance.choices(range(len(scores)), weights)[0]

    def _scores(self, asked: str, texts: list[str]) -> list[float]:
        """Returns the mean logarithm of the probability of the tokens of each text, to two places."""
        key = hashlib.sha256("\0".join([asked, *texts]).encode()).hexdigest()
        with self._lock, torch.inference_mode():
            if key not in self._known:
                self._known[key] = self._score(
                    self._tokens(asked)[-_SHOWN:], [self._tokens(f" {one}") for one in texts]
                )
            return self._known[key]

    def _score(self, past: list[int], texts: list[list[int]]) -> list[float]:
        read = self._model(torch.tensor([past]), use_cache=True)
        rows = [torch.tensor(tokens) for tokens in texts]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        logits = read.logits[:, -1:].expand(len(rows), 1, -1)
        if padded.shape[1] > 1:
            read.past_key_values.batch_repeat_interleave(len(rows))
            after = self._model(padded[:, :-1], past_key_values=read.past_key_values).logits
            logits = torch.cat([logits, after], dim=1)
        logits = logits.log_softmax(-1)
        each = logits.gather(2, padded.unsqueeze(-1)).squeeze(-1)
        return [round(float(line[: len(row)].mean()), 2) for line, row in zip(each, rows, strict=True)]

    def _write(self, prompt: Prompt) -> Answer:
        with self._lock, torch.inference_mode():
            messages = [{"role": "user", "content": prompt.text}]
            given = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            tokens = self._tokens(given)
            made = self._model.generate(
                torch.tensor([tokens]),
                attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
                max_new_tokens=min(48, prompt.most_tokens),
                do_sample=False,
                pad_token_id=self._tokenizer.eos_token_id,
            )[0, len(tokens) :]
        text = self._tokenizer.decode(made, skip_special_tokens=True).strip()
        return Answer(text or "nothing", {"prompt_tokens": len(tokens), "completion_tokens": len(made)})

    def _tokens(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return found
