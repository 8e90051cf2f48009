"""A scripted agent that answers questions about videos of `tvsnap.video.samples` from what tools return."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tvsnap import ToolResult
from tvsnap.plugins.video.egoschema import Question

_CAPTION = re.compile(r"(\d+): (?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")")
_OBJECTS = re.compile(r"(?:There is 1 |objects of category )([a-z ]+): ((?:object \d+ in segments [\d, -]+(?:; )?)+)")
_SPOKEN = re.compile(r'says "([^"]*)"')
_TIMEOUT = 600.0


class Caller(Protocol):
    """What an agent needs of a rollout."""

    def call(self, name: str, arguments: Mapping[str, Any], timeout: float = ...) -> ToolResult:
        """Makes a call."""


@dataclass
class Played:
    """What an agent did in one rollout.

    Attributes:
        answer: the place of the option that it chose.
        guessed: whether chance chose it, as the tools had not told.
        calls: names and arguments, with what came back.
    """

    answer: int
    guessed: bool
    calls: list[tuple[str, dict[str, Any], ToolResult]] = field(default_factory=list)


def play(rollout: Caller, question: Question, seed: int, spread: float) -> Played:
    """Plays one rollout: loads and preprocesses the video, and looks for the answer until the tools have told it.

    Args:
        rollout: makes the calls.
        question: what is asked.
        seed: of the agent's chance.
        spread: from 0 (it always does what it holds for best) to 1 (it does anything that it could do).
    """
    chance = random.Random(seed)
    calls: list[tuple[str, dict[str, Any], ToolResult]] = []

    def call(name: str, **arguments: Any) -> str:
        result = rollout.call(name, arguments, timeout=_TIMEOUT)
        calls.append((name, arguments, result))
        return result.output

    call("load_video_into_sandbox", video_name=question.video_name)
    call("preprocess")
    evidence = ""
    for turn in range(4):
        name, arguments = _next(question, turn, chance, spread)
        evidence += call(name, **arguments)
        answer = decide(question, evidence)
        if answer is not None:
            return Played(answer, False, calls)
    return Played(chance.randrange(len(question.options)), True, calls)


def decide(question: Question, evidence: str) -> int | None:
    """Returns the place of the option that the outputs of tools speak for; None if they do not tell."""
    captions = {int(number): one or other for number, one, other in _CAPTION.findall(evidence)}
    objects = {
        category: [int(first) for first in re.findall(r"segments (\d+)", seen)]
        for category, seen in _OBJECTS.findall(evidence)
    }
    text = question.text
    scores: defaultdict[int, float] = defaultdict(float)
    if found := re.search(r"while the (.+) is there", text):
        for caption in captions.values():
            for place, option in enumerate(question.options):
                scores[place] += found[1] in caption and option in caption
    elif found := re.search(r"in the sentence: (.+)\?", text):
        wanted = set(found[1].split())
        said = " ".join(words for number in sorted(captions) for words in _SPOKEN.findall(captions[number]))
        for place, option in enumerate(question.options):
            around = [said.split()[max(0, at - 6) : at + 7] for at, word in enumerate(said.split()) if word == option]
            scores[place] = max((len(wanted & set(words)) for words in around), default=0) * (bool(around))
    elif found := re.search(r"How does the (.+) move", text):
        for caption in captions.values():
            for place, option in enumerate(question.options):
                scores[place] += f"{found[1]} {option}" in caption
    elif found := re.search(r"How many different (\w+)s are", text):
        if objects:
            count = sum(len(seen) for category, seen in objects.items() if category.endswith(found[1]))
            scores = defaultdict(
                float, {place: float(option == str(count)) for place, option in enumerate(question.options)}
            )
    elif "appears first" in text and objects:
        first = {place: min(objects.get(option, [10**6])) for place, option in enumerate(question.options)}
        scores = defaultdict(float, {place: 1.0 / (1 + seen) for place, seen in first.items() if seen < 10**6})
    best = max(scores.values(), default=0.0)
    chosen = [place for place, score in scores.items() if score == best]
    return chosen[0] if best > 0 and len(chosen) == 1 else None


def candidates(question: Question) -> list[tuple[str, dict[str, Any]]]:
    """Returns the calls by which an agent may look for the answer."""
    about = (question.text, *question.options)
    return [
        ("object_memory_querying", {"question": "which objects are in the video?"}),
        *(("segment_localization", {"description": text}) for text in about),
        *(("caption_retrieval", {"start_segment_ID": start, "end_segment_ID": start + 14}) for start in (0, 5, 10)),
        *(
            ("visual_question_answering", {"question": question.text, "segment_ID": number})
            for number in range(0, 15, 3)
        ),
    ]


def _next(question: Question, turn: int, chance: random.Random, spread: float) -> tuple[str, dict[str, Any]]:
    """Returns the call that the agent makes next."""
    possible = candidates(question)
    if chance.random() < spread:
        return chance.choice(possible)
    objects, look, captions = possible[0], possible[1], possible[2 + len(question.options)]
    about_objects = "How many" in question.text or "appears first" in question.text
    best = [objects, look] if about_objects else [look, captions]
    return best[min(turn, len(best) - 1)]
