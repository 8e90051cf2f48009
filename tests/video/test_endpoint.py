"""Models behind an endpoint: what a server of its own gets and answers, and that no failure is taken for an answer."""

from __future__ import annotations

import base64
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.video.chat_server import ChatServer, Reply, chat, chat_server, embeddings
from tvsnap import InfrastructureError, UsageError
from tvsnap.plugins.video import Endpoint, EndpointEmbedder, Prompt

TIME = 60.0
SECRET = "sk-of-nobody-0123456789"
PROMPT = Prompt("What is it?", (b"\xff\xd8one", b"\xff\xd8two"), most_tokens=17)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


def endpoint(server: ChatServer, **settings: Any) -> Endpoint:
    return Endpoint(server.url, "tiny", **settings)


def test_a_prompt_with_pictures_is_answered(server: ChatServer) -> None:
    answers = endpoint(server, prices=(2.0, 10.0)).ask([PROMPT, Prompt("And now?")], seconds=TIME)
    assert [one.text for one in answers] == ["a red circle"] * 2
    assert answers[0].cost == {"requests": 1, "prompt_tokens": 1000, "completion_tokens": 100, "usd": 0.003}
    asked = next(one for one in server.requests if one["max_tokens"] == 17)
    assert (asked["model"], asked["temperature"], asked["seed"]) == ("tiny", 0.0, 0)
    parts = asked["messages"][0]["content"]
    assert parts[0] == {"type": "text", "text": "What is it?"}
    shown = [base64.b64decode(one["image_url"]["url"].removeprefix("data:image/jpeg;base64,")) for one in parts[1:]]
    assert tuple(shown) == PROMPT.pictures
    assert "And now?" in [one["messages"][0]["content"] for one in server.requests]


def test_answers_are_in_the_order_of_the_prompts(server: ChatServer) -> None:
    server.answer = lambda request: chat(request["messages"][0]["content"].upper())
    texts = [f"prompt {number}" for number in range(20)]
    answers = endpoint(server).ask([Prompt(text) for text in texts], seconds=TIME)
    assert [one.text for one in answers] == [text.upper() for text in texts]


@pytest.mark.parametrize("finish", ["stop", "length", None, "absent"])
def test_an_answer_has_come_to_its_end_or_to_its_most_tokens(server: ChatServer, finish: str | None) -> None:
    reply = chat("a red", finish)
    if finish == "absent":
        del reply.body["choices"][0]["finish_reason"]
    reply.body["error"] = None
    server.answer = lambda request: reply
    assert endpoint(server).ask([PROMPT], seconds=TIME)[0].text == "a red"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>It may be red.</think>\n\nA circle.", "A circle."),
        (" \n<think></think>A circle.", "A circle."),
        ("It may be red.</think>A circle.", "A circle."),
        ("The text <think> is shown.", "The text <think> is shown."),
        ("It shows <think>x</think>.", "It shows <think>x</think>."),
    ],
)
def test_thoughts_are_no_part_of_an_answer(server: ChatServer, text: str, answer: str) -> None:
    server.answer = lambda request: chat(text)
    assert endpoint(server).ask([PROMPT], seconds=TIME)[0].text == answer


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"prompt_tokens": 10**400, "completion_tokens": 1}, {"requests": 1, "completion_tokens": 1}),
        ({"prompt_tokens": 1, "completion_tokens": 10**400}, {"requests": 1, "prompt_tokens": 1}),
        ({"prompt_tokens": True, "completion_tokens": -1}, {"requests": 1}),
        ({"prompt_tokens": "7", "completion_tokens": 1.5}, {"requests": 1}),
        ({"prompt_tokens": 3}, {"requests": 1, "prompt_tokens": 3, "usd": 3.0}),
        ([], {"requests": 1}),
    ],
    ids=lambda value: str(value)[:60],
)
def test_usage_that_makes_no_sense_is_left_out(server: ChatServer, usage: Any, cost: dict[str, float]) -> None:
    server.answer = lambda request: Reply({**chat("a red circle").body, "usage": usage})
    (said,) = endpoint(server, prices=(1e6, 1e6)).ask([PROMPT], seconds=TIME)
    assert said.cost == cost
    (said,) = endpoint(server, prices=(1e300, 1e300)).ask([PROMPT], seconds=TIME)
    assert "usd" not in said.cost


def test_no_prompts_are_no_requests(server: ChatServer) -> None:
    assert endpoint(server).ask([], seconds=TIME) == []
    assert server.requests == []


def test_settings_of_latest_models(server: ChatServer) -> None:
    model = endpoint(server, temperature=None, seed=None, length_parameter="max_completion_tokens")
    model.ask([PROMPT], seconds=TIME)
    assert set(server.requests[0]) == {"model", "messages", "max_completion_tokens"}


def test_requests_go_side_by_side_but_not_more_than_concurrency(server: ChatServer) -> None:
    server.met = threading.Barrier(3)  # which none passes unless three are under way
    model = endpoint(server, concurrency=3)
    threads = [threading.Thread(target=model.ask, args=([PROMPT] * 3,), kwargs={"seconds": TIME}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(server.requests), server.most_at_once) == (12, 3)


def test_no_more_requests_begin_in_a_minute(server: ChatServer) -> None:
    model = endpoint(server, requests_per_minute=2)
    model.ask([PROMPT], seconds=TIME)
    server.replies = [Reply({"error": {"message": "busy"}}, 500)]  # the try after it is one of the next minute
    with pytest.raises(InfrastructureError, match="requests_per_minute"):
        model.ask([PROMPT], seconds=5)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "replies",
    [
        [Reply({"error": {"message": "slow down"}}, 429, (("Retry-After", "1"),))],
        [Reply(b"", 500), Reply(b"gone", 503)],
        [Reply(b'{"choices": [', cut=True)],
        [Reply(hang=True)],
    ],
    ids=["429", "500", "cut", "hangs"],
)
def test_what_may_pass_is_tried_again(server: ChatServer, replies: list[Reply]) -> None:
    server.replies = list(replies)
    (answer,) = endpoint(server, request_timeout=1).ask([PROMPT], seconds=TIME)
    assert (answer.text, answer.cost["requests"]) == ("a red circle", 1)
    assert len(server.requests) == len(replies) + 1


USELESS = {
    "429": (Reply({"error": {"message": "slow\ndown"}}, 429, (("retry-after-ms", "1"),)), "HTTP 429: slow down", 3),
    "much patience": (Reply(b"", 429, (("Retry-After", "100"),)), "100 seconds of patience", 1),
    "500": (Reply(b"<html>oops</html>", 500, (("retry-after-ms", "1"),)), "HTTP 500: <html>oops", 3),
    "401": (Reply({"error": {"message": f"wrong key {SECRET}"}}, 401), r"HTTP 401: wrong key \(the key\)", 1),
    "404": (Reply({"error": "no such model"}, 404), "HTTP 404: no such model", 1),
    "no JSON": (Reply(b"<html>a proxy's page</html>"), "no JSON: .<html>a proxy", 1),
    "half JSON": (Reply(b'{"choices": ['), "no JSON", 1),
    "nothing": (Reply(b""), "no JSON", 1),
    "no object": (Reply(["a red circle"]), "no JSON object", 1),
    "an error with status 200": (Reply({"error": {"message": "overloaded"}}), "answered an error: overloaded", 1),
    "an error beside choices": (
        Reply({**chat("a red").body, "error": {"code": 502, "message": "lost"}}),
        "answered an error: lost",
        1,
    ),
    "ended by an error": (chat("a red", "error"), 'finish_reason "error"', 1),
    "aborted": (chat("a red", "abort"), 'finish_reason "abort"', 1),
    "a call of a tool": (chat("a red", "tool_calls"), 'finish_reason "tool_calls"', 1),
    "another end": (chat("a red", ["stop"]), "did not come to the end", 1),
    "thoughts": (chat("<think>It may be red.</think>\n"), "thought, and did not answer", 1),
    "half a thought": (chat("<think>It may be", "length"), "did not answer .finish_reason 'length'", 1),
    "the rest of a thought": (chat("It may be red.\n</think>\n\n"), "did not answer", 1),
    "no choices": (Reply({"choices": []}), "no choices", 1),
    "no message": (Reply({"choices": [{"message": "a red circle"}]}), "no choices", 1),
    "empty": (chat(" \n"), "empty", 1),
    "no content": (chat(None, "length"), "empty .finish_reason 'length'", 1),
    "no text": (Reply({"choices": [{"message": {"content": ["a"]}}]}), "empty", 1),
    "filtered": (chat("a red", "content_filter"), "content filter", 1),
    "refused": (chat(None, refusal="I cannot say."), "refused: I cannot say", 1),
}


@pytest.mark.parametrize("name", USELESS)
def test_what_is_no_answer_is_an_error(server: ChatServer, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    reply, reason, requests = USELESS[name]
    monkeypatch.setenv("KEY_OF_TESTS", SECRET)
    server.answer = lambda request: reply
    with pytest.raises(InfrastructureError, match=reason) as raised:
        endpoint(server, tries=3, key_variable="KEY_OF_TESTS").ask([PROMPT], seconds=TIME)
    assert "'tiny'" in str(raised.value)
    assert server.url in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith("nothing is recorded, and the call can be made again")
    assert SECRET not in str(raised.value)
    assert len(server.requests) == requests


def test_a_server_that_hangs_is_waited_for_until_the_time_is_over(server: ChatServer) -> None:
    server.answer = lambda request: Reply(hang=True)
    with pytest.raises(InfrastructureError, match=r"no answer within the 1 seconds|time was over|no time was left"):
        endpoint(server).ask([PROMPT], seconds=1)


def test_a_server_that_is_not_there(server: ChatServer) -> None:
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        model = Endpoint(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", "tiny", tries=2)
        with pytest.raises(InfrastructureError, match=r"the connection failed: .*refused"):
            model.ask([PROMPT], seconds=TIME)


def test_the_first_failure_cancels_what_has_not_begun(server: ChatServer) -> None:
    server.replies = [chat(None, refusal="no")]
    with pytest.raises(InfrastructureError, match="refused"):
        endpoint(server, concurrency=1).ask([PROMPT] * 50, seconds=TIME)
    assert len(server.requests) < 50
    seen = len(server.requests)
    assert endpoint(server).ask([PROMPT], seconds=TIME)[0].text == "a red circle"
    assert len(server.requests) <= seen + 2  # one may have been on its way


def test_the_key_is_sent_and_told_nobody(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KEY_OF_TESTS", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-alone")
    caplog.set_level(logging.DEBUG)
    model = endpoint(server, key_variable="KEY_OF_TESTS")
    model.ask([PROMPT], seconds=TIME)
    endpoint(server).ask([PROMPT], seconds=TIME)
    assert server.keys == [f"Bearer {SECRET}", "Bearer none"]
    assert SECRET not in caplog.text + model.identity + repr(model)


def test_the_identity_names_all_that_an_answer_depends_on() -> None:
    def identity(url: str = "http://127.0.0.1:1/v1", model: str = "m", **settings: Any) -> str:
        return Endpoint(url, model, **settings).identity

    others = [
        identity("http://127.0.0.1:2/v1"),
        identity(model="n"),
        identity(version="2"),
        identity(temperature=0.5),
        identity(temperature=None),
        identity(seed=1),
        EndpointEmbedder("http://127.0.0.1:1/v1", "m").identity,
        EndpointEmbedder("http://127.0.0.1:1/v1", "m", version="2").identity,
    ]
    assert len({identity(), *others}) == len(others) + 1
    assert identity() == identity("http://127.0.0.1:1/v1/", concurrency=2, tries=1, request_timeout=9, prices=(1, 2))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"url": "ftp://here/v1"}, "url"),
        ({"url": "127.0.0.1:8000"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://here:port/v1"}, "url"),
        ({"url": "http://he re/v1"}, "url"),
        ({"url": f"https://user:{SECRET}@here/v1"}, "key_variable"),
        ({"url": f"https://{SECRET}@here/v1"}, "key_variable"),
        ({"url": f"https://here/v1?key={SECRET}"}, "url"),
        ({"url": None}, "url"),
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"version": 2}, "version"),
        ({"key_variable": "NOT_SET_BY_ANYBODY"}, "NOT_SET_BY_ANYBODY"),
        ({"key_variable": ""}, "key_variable"),
        ({"prices": 3.0}, "prices"),
        ({"prices": (1.0, -1.0)}, "prices"),
        ({"prices": (1.0, float("nan"))}, "prices"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"tries": 0}, "tries"),
        ({"tries": True}, "tries"),
        ({"request_timeout": 0}, "request_timeout"),
        ({"request_timeout": float("inf")}, "request_timeout"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"seed": 0.5}, "seed"),
        ({"length_parameter": ""}, "length_parameter"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError, match=name) as raised:
        Endpoint(**{"url": "http://127.0.0.1:1/v1", "model": "tiny", **settings})
    assert SECRET not in str(raised.value)


def test_without_the_package_it_says_what_to_install() -> None:
    program = """if True:
        import sys
        sys.modules["openai"] = None
        from tvsnap import UsageError
        from tvsnap.plugins.video import Endpoint, Prompt
        model = Endpoint("http://127.0.0.1:1/v1", "tiny")
        try:
            model.ask([Prompt("?")], seconds=1)
        except UsageError as error:
            print(error)
    """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIME)
    assert "pip install 'tvsnap[video]'" in ran.stdout, ran.stderr


def test_texts_are_embedded_in_batches(server: ChatServer) -> None:
    server.answer = embeddings
    texts = ["x" * number for number in range(1, 301)]
    found = EndpointEmbedder(server.url, "tiny", price=0.5).embed_texts(texts, seconds=TIME)
    assert [list(one) for one in found.vectors] == [[float(number), 1.0] for number in range(1, 301)]
    assert sorted(len(one["input"]) for one in server.requests) == [44, 128, 128]
    assert found.cost == pytest.approx({"requests": 3, "prompt_tokens": 3000, "usd": 0.0015})


def test_no_texts_are_no_requests(server: ChatServer) -> None:
    assert not EndpointEmbedder(server.url, "tiny").embed_texts([], seconds=TIME).vectors
    assert server.requests == []


@pytest.mark.parametrize(
    "data",
    [
        [],
        [{"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": "AACAPw=="}],
        [{"index": number, "embedding": [1.0]} for number in range(3)],
        None,
        "two",
    ],
    ids=str,
)
def test_embeddings_of_the_wrong_count(server: ChatServer, data: Any) -> None:
    server.answer = lambda request: Reply({"data": data})
    with pytest.raises(InfrastructureError, match="one vector for each of 2 texts"):
        EndpointEmbedder(server.url, "tiny").embed_texts(["one", "two"], seconds=TIME)


def test_the_price_of_an_embedder_is_checked() -> None:
    with pytest.raises(UsageError, match="price"):
        EndpointEmbedder("http://127.0.0.1:1/v1", "tiny", price=-1)
