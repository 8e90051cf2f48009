"""Prompts about videos for models, and the tools' answers without a model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tvsnap.plugins.video.models import Prompt

_RELATED = 3
"""Facts that answer a question, at most."""
_FENCE = re.compile(r"```(?:\w+)?\s*(.*?)```", re.DOTALL)
_SCHEMA = """Objects(object_id INT, category VARCHAR(255))
Segments(segment_id INT, caption TEXT, shown TEXT, spoken TEXT, scene INT)
Objects_Segments(object_id INT, segment_id INT)"""
_MOST_CATEGORIES = 200


def caption(segment: Mapping[str, Any], frames: Sequence[bytes]) -> Prompt:
    """Returns what a captioner is asked about a segment."""
    texts = "".join(
        f" {title}: {segment[name]!r}."
        for name, title in (("shown", "Text in the picture"), ("spoken", "Words that are spoken"))
        if segment[name]
    )
    return Prompt(
        "These frames follow each other within two seconds of a video. Say in one or two sentences what happens, "
        f"who and what is to be seen, and what text is shown.{texts}",
        tuple(frames),
        most_tokens=120,
    )


def question(question_text: str, segments: Sequence[Mapping[str, Any]], frames: Sequence[bytes]) -> Prompt:
    """Returns what an answerer is asked about a few segments."""
    captions = "\n".join(f"{one['segment_id']}: {one['caption']}" for one in segments)
    return Prompt(
        "These frames follow each other in a part of a video. First describe in a few sentences what happens. Then "
        f"answer briefly, from what is to be seen: {question_text}\nCaptions of the part, by segment:\n{captions}",
        tuple(frames),
    )


def program(question_text: str, objects: Sequence[Mapping[str, Any]]) -> Prompt:
    """Returns what a reasoner is asked, so that it writes a query."""
    categories = sorted({str(one["category"]) for one in objects})[:_MOST_CATEGORIES]
    return Prompt(
        "A SQLite database knows the objects in a video and the two-second segments that they are in:\n"
        f"{_SCHEMA}\nCategories: {', '.join(categories) or 'none'}.\n"
        f"Write one SELECT that answers this question, and nothing else: {question_text}"
    )


def bare(answer: str) -> str:
    """Returns a query without the marks that models put around code."""
    fence = _FENCE.search(answer)
    return (fence[1] if fence else answer).strip().rstrip(";")


def rows(question_text: str, query: str, result: Mapping[str, Any]) -> Prompt:
    """Returns what a reasoner is asked about the result of its query."""
    return Prompt(
        f"The question about a video: {question_text}\nThe query: {query}\nIts result: {result}\n"
        "Answer the question from the result in one or two sentences. If it does not tell, say that it does not."
    )


def objects_by_name(question_text: str, objects: Sequence[Mapping[str, Any]], total: int) -> str:
    """Returns what is known of the objects that a question names, by category; of all if it names none."""
    by_category = defaultdict(list)
    for one in objects:
        if one["segments"]:
            by_category[str(one["category"])].append(one)
    words = {_singular(word) for word in re.findall(r"\w+", question_text.lower())}
    parts = {category: {_singular(word) for word in category.lower().split()} for category in by_category}
    vocabulary = set().union(*parts.values()) if parts else set()
    wanted = words & vocabulary
    named = [category for category in by_category if wanted <= parts[category]] if wanted else list(by_category)
    if wanted and not named:  # a red square, where there are red circles and blue squares
        return f"No object in the memory is all of: {', '.join(sorted(wanted))}. There are: {', '.join(by_category)}."
    if not named:
        return "There are no objects in the memory."
    lines = []
    for category in sorted(named):
        members = by_category[category]
        count = (
            f"There is 1 {category}"
            if len(members) == 1
            else f"There are {len(members)} objects of category {category}"
        )
        places = "; ".join(f"object {one['object_id']} in {_spans(one['segments'])}" for one in members)
        lines.append(f"{count}: {places}.")
    return " ".join(lines) + f" The video has {total} segments."


def facts(segments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the single facts that are known of some segments, each once."""
    statements: dict[str, None] = {}
    for one in segments:
        statements.update(dict.fromkeys(str(one["caption"]).split("; ")))
    return list(statements)


def most_similar(question: bytes, facts: Sequence[bytes]) -> list[int]:
    """Returns the places of the vectors that are most similar to one, the most similar first."""
    import numpy

    wanted = numpy.frombuffer(question, "<f4")
    scores = []
    for packed in facts:
        vector = numpy.frombuffer(packed, "<f4")
        scale = float(numpy.linalg.norm(wanted) * numpy.linalg.norm(vector))
        scores.append(round(float(wanted @ vector) / scale, 6) if scale else 0.0)
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:_RELATED]


def answer_from(facts: Sequence[str], places: Sequence[int], segments: Sequence[Mapping[str, Any]]) -> str:
    """Returns a description of some segments, and the facts that answer a question best."""
    described = " ".join(f"Segment {one['segment_id']}: {one['caption']}." for one in segments)
    return f"Description: {described}\nMost related to the question: {'; '.join(facts[place] for place in places)}."


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _spans(segments: Sequence[int]) -> str:
    """Returns numbers in words, runs of them as first and last: segments 0-4, 7."""
    breaks = [0, *(place for place, (one, next) in enumerate(pairwise(segments), 1) if next != one + 1), len(segments)]
    runs = [(segments[start], segments[end - 1]) for start, end in pairwise(breaks)]
    return "segments " + ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in runs)
