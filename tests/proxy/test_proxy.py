"""`tvsnap proxy` in front of a real server: what is answered from the cache, what is passed on, what is never kept."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import make_app
from tests.conformance.helpers import eventually
from tests.proxy.conftest import WORDS, Answered, ModelServer, RunningProxy, Start


def stats(proxy: RunningProxy, **wanted: int) -> Any:
    """Returns what the proxy counts, once that is what is wanted: clients have answers before they are kept."""
    deadline = time.monotonic() + 60
    while True:
        found = proxy.request("GET", "/tvsnap/stats").json
        if wanted.items() <= found.items() or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def all_came(proxy: RunningProxy, model: ModelServer, count: int) -> None:
    """Waits until the model's server is asked, and the proxy has read the requests of so many clients."""
    assert model.begun.wait(60)

    def read() -> int:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        here = f"0100007F:{proxy.port:04X}"
        return sum(row[1] == here and row[3] == "01" and row[4].endswith(":00000000") for row in rows)

    eventually(lambda: read() >= count)
    time.sleep(0.2)  # until a request that was read is known to be the same


def test_the_same_request_is_asked_once(proxy: RunningProxy, model: ModelServer) -> None:
    first, again = proxy.complete(), proxy.complete()
    assert (first.status, again.status) == (200, 200)
    assert (first.cache, again.cache) == ("miss", "hit")
    assert again.body == first.body
    assert again.headers["content-type"] == first.headers["content-type"] == "application/json"
    assert first.headers["x-request-id"] == "r-1"
    assert len(model.asked) == 1
    assert model.asked[0].path == "/v1/chat/completions"
    assert "x-tvsnap-cache" not in model.asked[0].headers


def test_what_the_request_says_counts_and_not_how_it_is_written(proxy: RunningProxy, model: ModelServer) -> None:
    proxy.complete(seed=3)
    request = {"seed": 3, "messages": [{"content": "Where?", "role": "user"}], "temperature": 0, "model": "tiny"}
    body = json.dumps(request, indent=4).encode()
    assert proxy.request("POST", "/v1/chat/completions", body).cache == "hit"
    others: list[dict[str, Any]]
    others = [{"seed": 4}, {"model": "small"}, {"max_tokens": 7}, {"messages": []}, {"stream": True}]
    for other in others:
        assert proxy.complete(**{"seed": 3, **other}).cache == "miss"
    assert proxy.request("POST", "/v1/completions", body).cache == "miss"
    assert proxy.request("POST", "/v1/chat/completions?api-version=2", body).cache == "miss"
    assert len(model.asked) == 8


def test_one_temperature_has_one_key_however_it_is_written(proxy: RunningProxy, model: ModelServer) -> None:
    answers = []
    for temperature, top_p in (("0", "1"), ("0.0", "1.0"), ("-0.0", "1"), ("0e0", "10e-1"), ("0", "0.5")):
        members = f'"temperature": {temperature}, "top_p": {top_p}'
        body = f'{{"model": "tiny", "messages": [], {members}}}'.encode()
        answers.append(proxy.request("POST", "/v1/chat/completions", body).cache)
    assert answers == ["miss", "hit", "hit", "hit", "miss"]
    assert [proxy.complete(seed=3, n=number).cache for number in (1, 1.0)] == ["miss", "miss"], "it may refuse 1.0"
    assert [json.loads(asked.body)["temperature"] for asked in model.asked] == [0, 0, 0, 0]


DRAWN_ANEW: tuple[dict[str, Any], ...] = (
    {"temperature": 0.7},
    {"temperature": None},
    {"temperature": False},
    {"temperature": "0"},
    {"temperature": 1, "seed": None},
    {"store": True},
    {"web_search_options": {}},
)


def test_what_is_drawn_anew_is_passed_on(proxy: RunningProxy, model: ModelServer) -> None:
    for members in DRAWN_ANEW:
        answers = [proxy.complete(**members) for _ in range(2)]
        assert [answer.cache for answer in answers] == ["bypass", "bypass"], members
        assert answers[0].json["id"] != answers[1].json["id"]
    assert len(model.asked) == 2 * len(DRAWN_ANEW)


def test_a_seed_or_an_embedding_has_one_answer(proxy: RunningProxy, model: ModelServer) -> None:
    assert [proxy.complete(temperature=1.0, seed=7).cache for _ in range(2)] == ["miss", "hit"]
    body = json.dumps({"model": "tiny", "input": "a text"}).encode()
    assert [proxy.request("POST", "/v1/embeddings", body).cache for _ in range(2)] == ["miss", "hit"]
    assert len(model.asked) == 2


READ_DIFFERENTLY = (
    *(b'{"temperature": 0, "temperature": 1}', b'{"temperature": 0, "seed": NaN}'),
    *(b'{"temperature": 0', b"[0]", b"\xff", b"[" * 100_000),
)


def test_a_body_that_programs_read_differently_is_passed_on_as_it_is(proxy: RunningProxy, model: ModelServer) -> None:
    model.failing = "status"  # it would not read it either
    for body in READ_DIFFERENTLY:
        assert proxy.request("POST", "/v1/completions", body).cache == "bypass"
    assert [asked.body for asked in model.asked] == list(READ_DIFFERENTLY)


def test_other_requests_are_passed_on(proxy: RunningProxy, model: ModelServer) -> None:
    answer = proxy.request("GET", "/v1/models?limit=3")
    assert (answer.status, answer.cache) == (200, "bypass")
    assert answer.json["data"] == [{"id": "tiny"}]
    assert (model.asked[0].method, model.asked[0].path) == ("GET", "/v1/models?limit=3")


def test_a_stream_comes_while_it_is_made_and_again_as_the_same_events(proxy: RunningProxy, model: ModelServer) -> None:
    model.failing = "slow"
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    with contextlib.closing(connection):
        body = json.dumps({"model": "tiny", "temperature": 0, "stream": True, "messages": []})
        connection.request("POST", "/v1/chat/completions", body)
        answer = connection.getresponse()
        line = answer.readline()
        assert json.loads(line.removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "The"
        assert not model.gone.is_set(), "the first event came while the server still makes others"
        model.failing = ""
        model.gone.set()  # ends the slow stream without its end
        answer.close()
    model.gone.clear()
    first, again = proxy.complete(stream=True), proxy.complete(stream=True)
    assert (first.cache, again.cache) == ("miss", "hit")
    assert first.body == again.body
    assert again.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = [event for event in again.body.decode().split("\n\n") if event]
    said = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"]["content"] for event in events[:-1]]
    assert tuple(said) == WORDS
    assert events[-1] == "data: [DONE]"
    assert again.headers["transfer-encoding"] == "chunked", "events by themselves, not one block"


@pytest.mark.parametrize("failing", ["status", "no-json"])
def test_an_error_is_passed_on_and_never_kept(proxy: RunningProxy, model: ModelServer, failing: str) -> None:
    model.failing = failing
    first = proxy.complete()
    assert first.status == (429 if failing == "status" else 200)
    model.failing = ""
    assert [proxy.complete().cache for _ in range(2)] == ["miss", "hit"]
    assert len(model.asked) == 2
    wanted = {"failed": 1, "answers": 1}
    assert wanted.items() <= stats(proxy, **wanted).items()


@pytest.mark.parametrize("failing", ["error-event", "no-done"])
def test_a_stream_that_tells_of_an_error_is_not_kept(proxy: RunningProxy, model: ModelServer, failing: str) -> None:
    model.failing = failing
    assert proxy.complete(stream=True).status == 200
    model.failing = ""
    assert [proxy.complete(stream=True).cache for _ in range(2)] == ["miss", "hit"]


def test_a_stream_that_breaks_off_breaks_off_for_the_client_and_is_not_kept(
    proxy: RunningProxy, model: ModelServer
) -> None:
    model.failing = "cut"
    with pytest.raises(http.client.IncompleteRead):
        proxy.complete(stream=True)
    model.failing = ""
    assert [proxy.complete(stream=True).cache for _ in range(2)] == ["miss", "hit"]


def test_a_server_that_is_away_is_an_error_that_names_it(start: Start) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        answer = start(url).complete()
    assert answer.status == 502
    assert url in answer.json["error"]["message"]
    assert answer.cache == "miss"


@pytest.mark.parametrize("stream", [False, True])
def test_requests_at_once_are_one_request(proxy: RunningProxy, model: ModelServer, stream: bool) -> None:
    model.gate.clear()
    answers: list[Answered] = []
    threads = [threading.Thread(target=lambda: answers.append(proxy.complete(stream=stream))) for _ in range(8)]
    for thread in threads:
        thread.start()
    all_came(proxy, model, len(threads))
    model.gate.set()
    for thread in threads:
        thread.join(60)
    assert len(model.asked) == 1
    assert sorted(answer.cache or "" for answer in answers) == ["hit"] * 7 + ["miss"]
    assert len({answer.body for answer in answers}) == 1
    wanted = {"hits": 7, "misses": 1, "answers": 1}
    assert wanted.items() <= stats(proxy, **wanted).items()


def test_those_who_wait_get_the_error_and_who_comes_later_asks_anew(proxy: RunningProxy, model: ModelServer) -> None:
    model.gate.clear()
    model.failing = "status"
    answers: list[Answered] = []
    threads = [threading.Thread(target=lambda: answers.append(proxy.complete())) for _ in range(3)]
    for thread in threads:
        thread.start()
    all_came(proxy, model, len(threads))
    model.gate.set()
    for thread in threads:
        thread.join(60)
    assert {answer.status for answer in answers} == {429}
    assert len(model.asked) == 1
    model.failing = ""
    assert proxy.complete().status == 200


def test_who_leaves_does_not_end_it_for_others_and_the_last_one_does(proxy: RunningProxy, model: ModelServer) -> None:
    model.failing = "slow"
    body = json.dumps({"model": "tiny", "temperature": 0, "stream": True, "messages": []})
    connections = [http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30) for _ in range(2)]
    answers = []
    for connection in connections:
        connection.request("POST", "/v1/chat/completions", body)
        answers.append(connection.getresponse())
        answers[-1].readline()
    assert len(model.asked) == 1
    answers[0].close()
    connections[0].close()
    assert not model.gone.wait(1.0)
    assert answers[1].readline() is not None
    answers[1].close()
    connections[1].close()
    assert model.gone.wait(10), "the model's server need not go on for nobody"
    model.gone.clear()
    model.failing = ""
    assert proxy.complete(stream=True, messages=[]).cache == "miss"


def test_a_client_that_leaves_before_the_answer_begins(proxy: RunningProxy, model: ModelServer) -> None:
    model.gate.clear()
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps({"temperature": 0, "model": "tiny"}))
    assert model.begun.wait(60)
    connection.close()
    assert stats(proxy, failed=1)["failed"] == 1
    model.gate.set()
    body = json.dumps({"temperature": 0, "model": "tiny"}).encode()
    assert [proxy.request("POST", "/v1/chat/completions", body).cache for _ in range(2)] == ["miss", "hit"]


def test_a_client_may_want_the_server_to_be_asked(proxy: RunningProxy, model: ModelServer) -> None:
    first = proxy.complete()
    passed = proxy.complete({"x-tvsnap-cache": "bypass"})
    assert passed.cache == "bypass"
    assert proxy.complete().body == first.body
    renewed = proxy.complete({"x-tvsnap-cache": "refresh"})
    assert renewed.cache == "miss"
    assert renewed.body != first.body
    assert proxy.complete().body == renewed.body
    assert len(model.asked) == 3


def test_answers_outlive_the_process_and_are_shared_by_others(start: Start, model: ModelServer) -> None:
    first = start(model.url)
    body = first.complete(stream=True).body
    second = start(model.url)
    assert second.complete(stream=True).cache == "hit"
    assert first.stop() == 0
    assert second.stop() == 0
    third = start(model.url)
    again = third.complete(stream=True)
    assert (again.cache, again.body) == ("hit", body)
    assert 0 <= int(again.headers["age"]) < 60
    assert len(model.asked) == 1
    assert stats(third, hits=2)["hits"] == 2


def test_another_server_has_answers_of_its_own(start: Start, model: ModelServer) -> None:
    assert start(model.url).complete().cache == "miss"
    assert start(f"{model.url}/v1").complete().cache == "miss"
    assert [one.path for one in model.asked] == ["/v1/chat/completions"] * 2, "/v1 is not there twice"


def test_what_clients_show_is_passed_on_and_keeps_their_answers_apart(proxy: RunningProxy, model: ModelServer) -> None:
    one, two = {"authorization": "Bearer one"}, {"authorization": "Bearer two"}
    assert [proxy.complete(headers).cache for headers in (one, one, two)] == ["miss", "hit", "miss"]
    assert [asked.headers["authorization"] for asked in model.asked] == ["Bearer one", "Bearer two"]
    organisation = {**one, "OpenAI-Organization": "org-2"}
    assert proxy.complete(organisation).cache == "miss"
    assert proxy.complete({**one, "user-agent": "another", "x-stainless-retry-count": "1"}).cache == "hit"
    for name in ("cookie", "x-goog-api-key", "x-forwarded-user", "x-tenant-id", "accept-language"):
        assert [proxy.complete({**one, name: value}).cache for value in ("a", "a", "b")] == ["miss", "hit", "miss"], (
            name
        )


@pytest.mark.parametrize("failing", ["no-store", "vary"])
def test_what_the_server_forbids_to_keep_is_not_kept(proxy: RunningProxy, model: ModelServer, failing: str) -> None:
    model.failing = failing
    assert [proxy.complete().cache for _ in range(2)] == ["miss", "miss"]
    assert len(model.asked) == 2


@pytest.mark.parametrize("varies_by", ["Accept", "user-agent", "Cookie, X-Request-Id", "X-Stainless-Lang", "Cookie, *"])
def test_an_answer_that_varies_by_a_header_outside_of_the_key_is_not_kept(
    proxy: RunningProxy, model: ModelServer, varies_by: str
) -> None:
    model.more = {"vary": varies_by}
    assert [proxy.complete().cache for _ in range(2)] == ["miss", "miss"]


@pytest.mark.parametrize("varies_by", ["Accept-Encoding", "Origin, Cookie", "Content-Type, X-Gateway"])
def test_an_answer_that_varies_by_headers_of_the_key_is_kept(
    proxy: RunningProxy, model: ModelServer, varies_by: str
) -> None:
    model.more = {"vary": varies_by}
    assert [proxy.complete().cache for _ in range(2)] == ["miss", "hit"]
    assert proxy.complete({"content-type": "text/plain"}).cache == "miss"


def _at_once(proxy: RunningProxy, model: ModelServer, count: int = 3) -> list[Answered]:
    """Returns the answers to the same request of several clients, all of which wait before the first has an answer."""
    model.gate.clear()
    answers: list[Answered] = []
    threads = [threading.Thread(target=lambda: answers.append(proxy.complete())) for _ in range(count)]
    for thread in threads:
        thread.start()
    all_came(proxy, model, len(threads))
    assert len(model.asked) == 1
    model.gate.set()
    for thread in threads:
        thread.join(60)
    return answers


@pytest.mark.parametrize("more", [{"cache-control": "no-store"}, {"vary": "User-Agent"}], ids=str)
def test_who_waits_for_what_may_not_be_shared_asks_itself(
    proxy: RunningProxy, model: ModelServer, more: dict[str, str]
) -> None:
    model.more = more
    answers = _at_once(proxy, model)
    assert [answer.cache for answer in answers] == ["miss"] * 3
    assert len({answer.body for answer in answers}) == 3
    assert len(model.asked) == 3
    wanted = {"hits": 0, "misses": 3}
    assert wanted.items() <= stats(proxy, **wanted).items()


def test_a_cookie_is_for_the_client_that_asked_alone(proxy: RunningProxy, model: ModelServer) -> None:
    model.more = {"set-cookie": "session=1"}
    answers = _at_once(proxy, model)
    assert len(model.asked) == 1
    for answer in answers:
        assert (answer.cache == "miss") == ("set-cookie" in answer.headers)


def test_a_miss_is_who_had_the_server_asked_also_where_it_fails(proxy: RunningProxy, model: ModelServer) -> None:
    model.failing = "status"
    answers = _at_once(proxy, model, 4)
    assert [answer.status for answer in answers] == [429] * 4
    assert sorted(answer.cache or "" for answer in answers) == ["hit"] * 3 + ["miss"]
    assert len(model.asked) == 1
    wanted = {"hits": 3, "misses": 1, "failed": 1}
    assert wanted.items() <= stats(proxy, **wanted).items()


def test_a_password_in_the_address_is_shown_to_the_server_alone(
    start: Start, model: ModelServer, capfd: pytest.CaptureFixture[str]
) -> None:
    proxy = start(model.url.replace("http://", "http://user:p%40ss@"))
    assert [proxy.complete({"authorization": "Bearer client"}).cache for _ in range(2)] == ["miss", "hit"]
    assert model.asked[0].headers["authorization"] == "Basic dXNlcjpwQHNz"
    proxy.stop()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        away = start(f"http://user:p%40ss@127.0.0.1:{free.getsockname()[1]}").complete()
    assert away.status == 502
    assert b"p%40ss" not in away.body
    assert b"user" not in away.body
    assert "p%40ss" not in "".join(capfd.readouterr())


def test_the_answer_has_one_date_and_an_error_points_to_no_page_of_another_server(
    proxy: RunningProxy, model: ModelServer
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    with contextlib.closing(connection):
        body = json.dumps({"temperature": 0, "model": "tiny"})
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        assert len(connection.getresponse().msg.get_all("date") or []) == 1
    refused = proxy.complete({"x-tvsnap-prior": "{"})
    assert refused.status == 400
    assert "openapi" not in refused.json["error"]["way_out"]


def test_a_body_that_is_no_utf_8_is_passed_on(proxy: RunningProxy, model: ModelServer) -> None:
    text = json.dumps({"model": "tiny", "temperature": 0, "messages": []})
    for body in (text.encode("utf-16"), text.encode("utf-8-sig")):
        assert proxy.request("POST", "/v1/embeddings", body).cache == "bypass"


def test_a_file_that_cannot_be_written_is_logged(
    start: Start, model: ModelServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    proxy = start(model.url)
    with sqlite3.connect(tmp_path / "home" / "proxy.db") as file:
        file.execute("CREATE TRIGGER full BEFORE INSERT ON answers BEGIN SELECT RAISE(ABORT, 'no room'); END")
    file.close()
    assert [proxy.complete().status for _ in range(2)] == [200, 200]
    proxy.stop()
    logged = capfd.readouterr().err
    assert "an answer could not be kept" in logged
    assert "proxy.db: no room" in logged


def test_tokens_are_the_proxys_own_and_tenants_share_nothing(start: Start, model: ModelServer, tmp_path: Path) -> None:
    tokens, key = tmp_path / "tokens", tmp_path / "key"
    tokens.write_text("0123456789abcdef alice\n123456789abcdef0 bob\n")
    key.write_text("sk-secret\n")
    for file in (tokens, key):
        file.chmod(0o600)
    proxy = start(model.url, "--token-file", str(tokens), "--upstream-key-file", str(key))
    assert proxy.complete().status == 401
    assert proxy.complete({"authorization": "Bearer nonsense"}).status == 401
    alice, bob = ({"authorization": f"Bearer {token}"} for token in ("0123456789abcdef", "123456789abcdef0"))
    assert [proxy.complete(headers).cache for headers in (alice, alice, bob)] == ["miss", "hit", "miss"]
    assert [asked.headers["authorization"] for asked in model.asked] == ["Bearer sk-secret"] * 2
    assert proxy.request("GET", "/healthz").status == 200


def test_a_page_in_a_browser_may_not_use_it(proxy: RunningProxy, model: ModelServer) -> None:
    assert proxy.complete({"origin": "http://evil.example"}).status == 401
    assert proxy.complete({"host": "evil.example"}).status == 401
    assert not model.asked


def test_a_request_that_is_too_large(start: Start, model: ModelServer) -> None:
    proxy = start(model.url, "--max-body", "1K")
    assert proxy.complete(messages=[{"role": "user", "content": "x" * 2000}]).status == 413
    assert not model.asked


def test_old_answers_make_room(start: Start, model: ModelServer) -> None:
    proxy = start(model.url, "--max-size", "4K")
    for seed in range(40):
        assert proxy.complete(seed=seed).cache == "miss"
    found = stats(proxy, misses=40)
    assert 0 < found["answers"] < 40
    assert found["answers"] + found["evicted"] == 40
    assert found["bytes"] <= 4096
    assert proxy.complete(seed=39).cache == "hit", "the newest stays"


def test_a_damaged_answer_is_asked_for_again(start: Start, model: ModelServer, tmp_path: Path) -> None:
    first = start(model.url)
    first.complete()
    first.stop()
    with contextlib.closing(sqlite3.connect(tmp_path / "home/proxy.db")) as connection, connection:
        connection.execute("UPDATE answers SET body = zeroblob(length(body))")
    second = start(model.url)
    assert [second.complete().cache for _ in range(2)] == ["miss", "hit"]
    assert stats(second)["damaged"] == 1


def _run(home: Path, *options: str) -> Result:
    return CliRunner().invoke(make_app(), ["--home", str(home), "proxy", *options], prog_name="tvsnap")


def test_what_is_kept_can_be_looked_at_and_deleted(start: Start, model: ModelServer, tmp_path: Path) -> None:
    proxy = start(model.url)
    proxy.complete()
    stats(proxy, misses=1)
    for _ in range(2):
        proxy.complete()
    proxy.complete(temperature=1)
    proxy.stop()
    home = tmp_path / "home"
    found = json.loads(_run(home, "--stats", "--json").stdout)
    assert (found["hits"], found["misses"], found["bypassed"], found["answers"]) == (2, 1, 1, 1)
    assert found["saved_s"] > 0
    shown = _run(home, "--stats").stdout
    assert "66.7 %" in shown or "67 %" in shown
    assert json.loads(_run(home, "--clear", "--json").stdout) == {"deleted": 1}
    cleared = json.loads(_run(home, "--stats", "--json").stdout)
    assert (cleared["answers"], cleared["bytes"]) == (0, 0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "--upstream"),
        (("--upstream", "nonsense"), "'nonsense'"),
        (("--upstream", "ftp://127.0.0.1"), "ftp://127.0.0.1"),
        (("--upstream", "http://user:SECRET@127.0.0.1/?a=b"), "...@127.0.0.1/?a=b"),
        (("--upstream", "user:SECRET@127.0.0.1:80"), "...@127.0.0.1:80"),
        (("--upstream", "http://127.0.0.1:1", "--host", "0.0.0.0"), "without authentication"),
        (("--upstream", "http://127.0.0.1:1", "--stats"), "give one of"),
        (("--upstream", "http://127.0.0.1:1", "--upstream-key-file", "/nowhere"), "/nowhere"),
    ],
    ids=str,
)
def test_what_makes_no_sense(tmp_path: Path, options: tuple[str, ...], reason: str) -> None:
    found = _run(tmp_path / "home", *options)
    assert found.exit_code == 2
    assert reason in found.stderr
    assert "SECRET" not in found.stderr
    assert len(found.stderr.splitlines()) == 1
