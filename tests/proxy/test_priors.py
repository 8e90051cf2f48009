"""Priors over HTTP: proposals of a model's server, by goal, admissible actions and state."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import pytest

from tests.proxy.conftest import WORDS, Answered, ModelServer, RunningProxy, Start

SAID = "".join(WORDS)
ACTIONS = ["look", SAID, "go"]


def prior(proxy: RunningProxy, headers: dict[str, str] | None = None, **question: Any) -> Answered:
    """Asks for a prior, with a prompt of its own each time: the state is what counts."""
    asked_for = json.dumps({"goal": "find the key", "actions": ACTIONS, **question})
    return proxy.complete({"x-tvsnap-prior": asked_for, **(headers or {})}, temperature=1.0)


def test_a_state_is_asked_about_once(start: Start, model: ModelServer) -> None:
    proxy = start(model.url, "--refresh", "0")
    first, again = prior(proxy, state="ab12"), prior(proxy, state="ab12")
    assert (first.cache, again.cache) == ("miss", "hit")
    assert (first.json["source"], again.json["source"]) == ("asked", "exact")
    assert first.json["probabilities"] == again.json["probabilities"]
    assert max(ACTIONS, key=again.json["probabilities"].__getitem__) == SAID
    assert "x-tvsnap-prior" not in model.asked[0].headers
    assert prior(proxy, state="cd34").cache == "miss"
    assert prior(proxy, state="ab12", goal="find the dörr \u4e2d").cache == "miss"
    assert prior(proxy, {"authorization": "Bearer two"}, state="ab12").cache == "miss"
    assert len(model.asked) == 4


def test_what_is_said_twice_is_refused(proxy: RunningProxy, model: ModelServer) -> None:
    twice = proxy.complete({"x-tvsnap-prior": '{"goal": "a", "goal": "b", "actions": ["x"], "state": "s"}'})
    assert (twice.status, "each member once" in twice.json["error"]["message"]) == (400, True)
    asked_for = {"x-tvsnap-prior": json.dumps({"goal": "a", "actions": ["x"], "state": "s"})}
    body = proxy.request("POST", "/v1/chat/completions", b'{"model": "a", "model": "b"}', asked_for)
    assert (body.status, "no member twice" in body.json["error"]["message"]) == (400, True)
    assert not model.asked


def test_a_similar_text_will_do(start: Start, model: ModelServer) -> None:
    pytest.importorskip("wordllama", reason="wordllama has no wheel for this Python")
    proxy = start(model.url, "--refresh", "0", "--delta", "0.9")
    assert prior(proxy, text="You are in a kitchen. There is a fridge.").json["source"] == "asked"
    near = prior(proxy, text="You are in the kitchen; you see a fridge.")
    assert (near.cache, near.json["source"]) == ("hit", "near")
    assert 0.9 <= near.json["similarity"] < 1.0


def test_the_same_question_at_once_is_asked_once(start: Start, model: ModelServer) -> None:
    proxy = start(model.url, "--refresh", "0")
    model.gate.clear()
    answers: list[Answered] = []
    threads = [threading.Thread(target=lambda: answers.append(prior(proxy, state="ab12"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert model.begun.wait(60)
    model.gate.set()
    for thread in threads:
        thread.join(60)
    assert len(model.asked) == 1
    assert sorted(answer.cache or "" for answer in answers) == ["hit"] * 5 + ["miss"]


def test_a_proxy_that_is_stopped_while_the_model_is_asked(start: Start, model: ModelServer) -> None:
    proxy = start(model.url)
    model.gate.clear()
    failed = threading.Event()

    def ask() -> None:
        with contextlib.suppress(OSError):
            prior(proxy, state="ab12")
        failed.set()

    thread = threading.Thread(target=ask)
    thread.start()
    assert model.begun.wait(60)
    assert proxy.stop() == 0
    assert failed.wait(60)
    thread.join()


def test_an_error_of_the_server_is_passed_on(start: Start, model: ModelServer) -> None:
    proxy = start(model.url)
    model.failing = "status"
    refused = prior(proxy, state="ab12")
    assert (refused.status, refused.json) == (429, {"error": {"message": "slow down"}})
    model.failing = "no-json"
    assert "did not answer with choices" in prior(proxy, state="ab12").json["error"]["message"]
    model.failing = "nothing"
    assert "the model proposed nothing" in prior(proxy, state="ab12").json["error"]["message"]
    model.failing = ""
    assert prior(proxy, state="ab12").cache == "miss"


def test_a_question_that_makes_no_sense(start: Start, model: ModelServer) -> None:
    proxy = start(model.url)
    for question, reason in (
        ({"actions": [], "state": "c"}, "at least one admissible action"),
        ({"goal": 3, "state": "c"}, "goal in the header x-tvsnap-prior is 3"),
        ({"colour": "red", "state": "c"}, "must be JSON as"),
        ({}, "needs the state"),
    ):
        answer = prior(proxy, **question)
        assert answer.status == 400
        assert reason in answer.json["error"]["message"]
    answer = proxy.complete({"x-tvsnap-prior": '{"goal": "a", "actions": ["b"], "state": "c"}'}, stream=True)
    assert (answer.status, "no stream" in answer.json["error"]["message"]) == (400, True)
    assert proxy.complete({"x-tvsnap-prior": "nonsense"}).status == 400
    assert prior(proxy, {"x-tvsnap-cache": "bypass"}, state="c").status == 400
    assert not model.asked
