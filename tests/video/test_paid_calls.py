"""Tools of videos that ask models behind an endpoint: what is recorded, and what a hit saves."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.homes import with_images_of
from tests.video.chat_server import Body, ChatServer, Reply, chat, chat_server, embeddings
from tvsnap import Cache, Image, InfrastructureError, Rollout
from tvsnap.plugins.video import Endpoint, EndpointEmbedder, Models, VideoEnvironment

SCENES = [
    {"seconds": 2, "background": "0xf0f0f0", "text": "GATE"},
    {
        "seconds": 2,
        "background": "white",
        "shapes": [{"shape": "circle", "colour": [220, 20, 20], "size": 90, "start": [20, 60], "end": [200, 60]}],
    },
]
SAMPLE = {"path": "/videos/a.mp4", "width": 320, "height": 180, "scenes": SCENES}
MAKE = ("exec", {"command": f"python3 -I -B /run/tvsnap/video.pyz sample {shlex.quote(json.dumps(SAMPLE))}"})
LOAD = ("load_video_into_sandbox", {"video_name": "/videos/a.mp4"})
PREPROCESS: tuple[str, Body] = ("preprocess", {})
QUESTIONS: tuple[tuple[str, Body], ...] = (
    ("segment_localization", {"description": "a gate"}),
    ("visual_question_answering", {"question": "What moves?", "segment_ID": 1}),
    ("object_memory_querying", {"question": "How many circles are there?"}),
)
MEMORY = ("exec", {"command": "ls -A /var/lib/tvsnap-video; ls -A /tmp; cat /var/lib/tvsnap-video/*.json | wc -c"})


def answer(request: Body) -> Reply:
    """A model that writes SQL, sees, and embeds."""
    if "input" in request:
        return embeddings(request)
    content = request["messages"][0]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    return chat("SELECT COUNT(*) FROM Objects" if "Write one SELECT" in text else "A red circle moves.")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        running.answer = answer
        yield running


@pytest.fixture
def video_home(tvsnap_home: Path, video_image: Image, tmp_path: Path) -> Path:
    """A data directory of the test's own, with the image."""
    return with_images_of(tvsnap_home, tmp_path / "home")


def models(server: ChatServer, **changed: Any) -> VideoEnvironment:
    def model(**settings: Any) -> Endpoint:
        return Endpoint(server.url, "sees", prices=(1.0, 20.0), tries=1, request_timeout=1, **settings)

    embedder = EndpointEmbedder(server.url, "embeds", price=0.1, tries=1, request_timeout=1)
    return VideoEnvironment(Models(embedder, captioner=model(**changed), answerer=model(), reasoner=model()))


def total(results: Iterator[Any] | list[Any]) -> Counter[str]:
    """Returns the costs of results by unit, without the seconds of models."""
    found: Counter[str] = Counter()
    for result in results:
        found.update({unit: number for unit, number in result.cost.items() if unit != "model_s"})
    return found


def play(rollout: Rollout, *calls: tuple[str, Body]) -> list[Any]:
    results = [rollout.call(name, arguments) for name, arguments in calls]
    assert [one.exit_code for one in results] == [0] * len(calls), [one.output for one in results]
    return results


def test_a_second_rollout_is_answered_and_saves_what_the_first_paid(
    server: ChatServer, video_home: Path, video_image: Image
) -> None:
    calls = (MAKE, LOAD, PREPROCESS, *QUESTIONS)
    with Cache(video_home, environments=[models(server)]) as cache:
        with cache.rollout(video_image) as rollout:
            first = play(rollout, *calls)
        paid = len(server.requests)
        # Two captions, a question, a query and its rows; the embeddings of two captions and of a description.
        assert paid == 2 + 1 + 2 + 2
        assert [len(one) for one in ChatServer(requests=server.requests[:1]).pictures] == [4]
        spent = total(first)
        assert spent == pytest.approx(
            {
                "requests": 7,
                "prompt_tokens": 5 * 1000 + 2 * 10 + 10,
                "completion_tokens": 500,
                "usd": (5 * 1000 + 500 * 20 + 0.1 * 30) / 1e6,
            }
        )
        assert "A red circle moves." in first[-1].output
        assert cache.stats().saved_cost == {}
        with cache.rollout(video_image) as rollout:
            second = play(rollout, *calls)
        assert [one.output for one in second] == [one.output for one in first]
        assert {one.source for one in second} == {"hit"}
        assert len(server.requests) == paid
        saved = dict(cache.stats().saved_cost)
        assert saved.pop("model_s") > 0
        assert saved == pytest.approx(dict(spent))

    with Cache(video_home, environments=[models(server)]) as cache, cache.rollout(video_image) as rollout:
        assert {one.source for one in play(rollout, *calls)} == {"hit"}, "the same models, of another process"
        assert len(server.requests) == paid
    for other in ({"version": "2"}, {"temperature": 0.5}):
        with Cache(video_home, environments=[models(server, **other)]) as cache, cache.rollout(video_image) as rollout:
            found = play(rollout, MAKE, LOAD, PREPROCESS)
            assert {one.source for one in found} == {"executed"}
        assert len(server.requests) == paid + 3
        paid = len(server.requests)


def test_no_model_is_paid_before_the_video_is_preprocessed(
    server: ChatServer, video_home: Path, video_image: Image
) -> None:
    with Cache(video_home, environments=[models(server)]) as cache, cache.rollout(video_image) as rollout:
        for steps in ((), (MAKE, LOAD)):
            play(rollout, *steps)
            for name, arguments in QUESTIONS:
                said = rollout.call(name, arguments)
                assert (said.exit_code, dict(said.cost)) == (1, {})
        assert server.requests == []


FAILURES = {
    "refused": Reply({"error": {"message": "who are you?"}}, 401),
    "busy": Reply({"error": {"message": "busy"}}, 429),
    "broken": Reply(b"oops", 500),
    "hangs": Reply(hang=True),
    "cut": Reply(b'{"choices": [', cut=True),
    "no JSON": Reply(b"<html>"),
    "filtered": chat("A red", "content_filter"),
    "empty": chat(""),
}


def test_no_failure_of_a_model_is_recorded(server: ChatServer, video_home: Path, video_image: Image) -> None:
    with Cache(video_home, environments=[models(server)]) as cache:
        with cache.rollout(video_image) as rollout:
            play(rollout, MAKE, LOAD)
            before, (seen,) = rollout.state, play(rollout, MEMORY)
            after = rollout.state
            for name, reply in FAILURES.items():
                server.replies = [answer({"messages": [{"content": "?"}]}), reply]  # the second caption fails
                with pytest.raises(InfrastructureError, match="'sees'"):
                    rollout.call(*PREPROCESS)
                server.replies = []
                assert rollout.state == after, name
                (again,) = play(rollout, MEMORY)
                assert again.output == seen.output, name
            assert before
            (done,) = play(rollout, PREPROCESS)
            assert done.source == "executed"
            server.replies = [FAILURES["filtered"]]
            with pytest.raises(InfrastructureError, match="content filter"):
                rollout.call(*QUESTIONS[1])
            server.replies = [FAILURES["broken"]]
            with pytest.raises(InfrastructureError, match="HTTP 500"):
                rollout.call(*QUESTIONS[2])
            server.replies = []
            first = play(rollout, *QUESTIONS)
            assert {one.source for one in first} == {"executed"}
        paid = len(server.requests)
        assert cache.stats().saved_cost.get("requests", 0) == 0
        with cache.rollout(video_image) as rollout:
            play(rollout, MAKE, LOAD, MEMORY, *([MEMORY] * len(FAILURES)), PREPROCESS)
            second = play(rollout, *QUESTIONS)
            assert [(one.source, one.output) for one in second] == [("hit", one.output) for one in first]
        assert len(server.requests) == paid
        assert cache.stats().saved_cost["usd"] == pytest.approx(total([done, *first])["usd"])
