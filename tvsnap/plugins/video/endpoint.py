"""Models and embedders behind an OpenAI-compatible endpoint, which the package `openai` asks."""

from __future__ import annotations

import base64
import importlib
import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from tvsnap import Sandbox, UsageError
from tvsnap.plugins.video.models import MOST_COST, Answer, Prompt, Vectors, failure

One = TypeVar("One")
Said = TypeVar("Said")
Body = dict[str, Any]

_MINUTE = 60.0
_BATCH = 128
"""Texts of one request for embeddings; OpenAI's own limit is 2,048, those of other servers are lower."""
_LONGEST_REASON = 300
_ENDS = ("stop", "length", None)
"""Values of `finish_reason` with which a text is an answer, be it cut off at its most tokens."""
_THOUGHT, _THOUGHT_ENDS = "<think>", "</think>"
"""The marks that models put around their thoughts, unless their server takes these out."""


class _Course:
    """One call of `ask` or `embed_texts`: until when it runs, and whether it has ended.

    Attributes:
        until: by `time.monotonic`.
        ended: set once nobody waits for answers any more.
    """

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.ended = threading.Event()

    @property
    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())


class _Pace:
    """Lets at most so many requests begin within any minute, over all threads."""

    def __init__(self, most: int) -> None:
        self._starts: deque[float] = deque(maxlen=most)
        self._lock = threading.Lock()

    def await_turn(self, course: _Course) -> bool:
        """Waits until a request may begin; returns False if that is later than the answer is of use."""
        with self._lock:
            now = time.monotonic()
            full = len(self._starts) == self._starts.maxlen
            begin = max(now, self._starts[0] + _MINUTE) if full else now
            if begin >= course.until:
                return False
            self._starts.append(begin)
        return not course.ended.wait(begin - now) if begin > now else True


class _Client:
    """The parts that `Endpoint` and `EndpointEmbedder` share: the address, its limits, and requests side by side."""

    def __init__(
        self,
        url: str,
        model: str,
        version: str,
        key_variable: str | None,
        concurrency: int,
        requests_per_minute: int | None,
        tries: int,
        request_timeout: float,
    ) -> None:
        self.url = _checked_url(url)
        self.model = _text("model", model)
        self.version = version if version == "" else _text("version", version)
        self._key = None if key_variable is None else _key(key_variable)
        self._tries = _count("tries", tries)
        self._request_timeout = _number("request_timeout", request_timeout)
        if self._request_timeout == 0:
            raise UsageError("request_timeout must be more than 0 seconds")
        self._threads = ThreadPoolExecutor(_count("concurrency", concurrency), "tvsnap-endpoint")
        most = None if requests_per_minute is None else _count("requests_per_minute", requests_per_minute)
        self._pace = None if most is None else _Pace(most)
        self._lock = threading.Lock()
        self._client: Any = None
        self._running = threading.local()

    def side_by_side(self, items: Sequence[One], ask: Callable[[One, _Course], Said], seconds: float) -> list[Said]:
        """Returns what `ask` returns for each of `items`; the first failure cancels what has not begun.

        Args:
            items: arguments of `ask`, each in a thread of this client.
            ask: it raises DependencyFailed.
            seconds: after which the answers are of no use any more.
        """
        self.package()  # its lack is a mistake of the caller, whom it is told before anything begins
        course = _Course(seconds)
        futures: list[Future[Said]] = [self._threads.submit(self._run, ask, one, course) for one in items]
        try:
            ended, waiting = wait(futures, timeout=course.left, return_when=FIRST_EXCEPTION)
            for future in ended:
                future.result()
            if waiting:
                self.fail(f"no answer within the {seconds:g} seconds that were left")
            return [future.result() for future in futures]
        except CancelledError:
            self.fail("requests were cancelled")
        finally:
            course.ended.set()
            for future in futures:
                future.cancel()

    def _run(self, ask: Callable[[One, _Course], Said], one: One, course: _Course) -> Said:
        self._running.course = course
        try:
            return ask(one, course)
        finally:
            self._running.course = None

    def post(self, path: str, body: Body, course: _Course) -> Body:
        """Returns the JSON object that the endpoint answers.

        Args:
            path: behind the address.
            body: the request's body.
            course: the course that the request is a part of.

        Raises:
            DependencyFailed: it gave none, after as many tries as there may be.
        """
        openai = self.package()
        try:
            timeout = min(self._request_timeout, max(0.001, course.left))
            response = self._opened(openai).post(
                path, cast_to=_raw_response(openai), body=body, options={"timeout": timeout}
            )
        except openai.APIStatusError as error:
            self.fail(f"HTTP {error.status_code}: {_reason(error.response)}")
        except openai.APITimeoutError:
            self.fail(f"no byte came for {self._request_timeout:g} seconds, or until the call's time was over")
        except openai.APIConnectionError as error:
            self.fail(f"the connection failed: {error.__cause__ or error}")
        except openai.OpenAIError as error:
            self.fail(str(error))
        try:
            answer = json.loads(response.content)
        except ValueError:
            self.fail(f"what it answered is no JSON: {response.text[:80]!r}")
        if not isinstance(answer, dict):
            self.fail(f"what it answered is no JSON object: {response.text[:80]!r}")
        if answer.get("error"):  # beside whatever there is of an answer
            self.fail(f"it answered an error: {_message(answer['error'])}")
        return answer

    def fail(self, reason: str) -> NoReturn:
        """Raises DependencyFailed with the model, the address and a reason, without the key."""
        message = " ".join((reason.replace(self._key, "(the key)") if self._key else reason).split())
        raise failure(self.model, f"at {self.url} failed: {message[:_LONGEST_REASON]}") from None

    def package(self) -> Any:
        """Returns the package; raises UsageError if it is missing."""
        try:
            import openai
        except ModuleNotFoundError as error:
            raise UsageError(
                f"the package {error.name} is missing, which asks models behind endpoints: pip install 'tvsnap[video]'"
            ) from None
        return openai

    def _opened(self, openai: Any) -> Any:
        with self._lock:
            if self._client is None:
                kind = getattr(openai, "DefaultHttpx2Client", openai.DefaultHttpxClient)  # openai 2 has the second
                hooks = {"request": [self._before_request], "response": [self._after_response]}
                self._client = openai.OpenAI(
                    api_key=self._key or "none",  # the package would take OPENAI_API_KEY to any address
                    base_url=self.url,
                    max_retries=self._tries - 1,
                    http_client=kind(event_hooks=hooks),
                )
        return self._client

    def _before_request(self, request: Any) -> None:
        """Each try waits for its turn, and is not made when nobody waits for its answer any more."""
        course = self._running.course
        if course.ended.is_set() or not course.left:
            raise self.package().OpenAIError("no time was left for another try")
        if self._pace is not None and not self._pace.await_turn(course):
            raise self.package().OpenAIError("the limit of requests_per_minute leaves no request before the call ends")

    def _after_response(self, response: Any) -> None:
        """Fails at once if the endpoint asks for more patience than there is time."""
        pause = response.headers.get("retry-after", "")
        if response.status_code >= 400 and pause.isdecimal() and float(pause) > self._running.course.left:
            raise self.package().OpenAIError(
                f"HTTP {response.status_code}, and it asks for {pause} seconds of patience, which the call has not"
            )


class Endpoint:
    """A model behind an OpenAI-compatible chat endpoint: that of OpenAI, vLLM, SGLang, llama.cpp, Ollama and others."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: str = "",
        key_variable: str | None = None,
        prices: tuple[float, float] | None = None,
        concurrency: int = 4,
        requests_per_minute: int | None = None,
        tries: int = 5,
        request_timeout: float = 60.0,
        temperature: float | None = 0.0,
        seed: int | None = 0,
        length_parameter: str = "max_tokens",
    ) -> None:
        """
        Args:
            url: the address up to `/v1`, such as `http://127.0.0.1:8000/v1`.
            model: its name there.
            version: tells models of this name apart: change it when the server has got other weights.
            key_variable: the environment variable that has the key; by default, there is none.
            prices: US dollars for a million tokens of prompts, and of answers; by default, answers say no `usd`.
            concurrency: requests under way at a time, of all threads.
            requests_per_minute: requests begun within any minute, of all threads, repeated ones included.
            tries: requests for an answer, at most: after HTTP 408, 409, 429 and 5xx, timeouts and lost connections,
                the next one waits for as long as the endpoint says in `Retry-After`, or longer each time.
            request_timeout: seconds without a byte after which a request is made again.
            temperature: 0 for the likeliest answer; None for models that take none.
            seed: the seed of any chance; None for endpoints that take none.
            length_parameter: what the endpoint calls the most tokens of an answer: `max_tokens`, or
                `max_completion_tokens` as OpenAI's latest models.

        Raises:
            UsageError: an argument makes no sense, or the environment variable is not set.
        """
        self._prices = None if prices is None else _prices(prices)
        if temperature is not None and _number("temperature", temperature) > 2:
            raise UsageError(f"temperature must be between 0 and 2, not {temperature!r}")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
            raise UsageError(f"seed must be a whole number, or None, not {seed!r}")
        self._length_parameter = _text("length_parameter", length_parameter)
        settings = {"temperature": None if temperature is None else float(temperature), "seed": seed}
        self._settings = {name: value for name, value in settings.items() if value is not None}
        self._client = _Client(
            url, model, version, key_variable, concurrency, requests_per_minute, tries, request_timeout
        )
        self.identity = _identity("endpoint", self._client, settings)

    def ask(self, prompts: Sequence[Prompt], *, sandbox: Sandbox | None = None, seconds: float) -> list[Answer]:
        """See `Model.ask`. What a model thinks first, between `<think>` and `</think>`, is no part of its answer; an
        answer that is cut off at its most tokens is given as far as it came. An answer's cost is one of `requests`, its
        `prompt_tokens` and `completion_tokens` as far as the endpoint tells them, and their `usd`.

        Raises:
            DependencyFailed: the endpoint gave no usable answer to one of the prompts.
            UsageError: the package `openai` is missing.
        """
        return self._client.side_by_side(prompts, self._ask, seconds)

    def _ask(self, prompt: Prompt, course: _Course) -> Answer:
        body = {
            "model": self._client.model,
            "messages": [{"role": "user", "content": _content(prompt)}],
            self._length_parameter: prompt.most_tokens,
            **self._settings,
        }
        reply = self._client.post("/chat/completions", body, course)
        try:
            choice = reply["choices"][0]
            message, finish = choice["message"], choice.get("finish_reason")
            text, refusal = message.get("content"), message.get("refusal")
        except (AttributeError, IndexError, KeyError, TypeError):
            self._client.fail(f"its answer has no choices with a message: {json.dumps(reply)[:80]}")
        if refusal:
            self._client.fail(f"it refused: {refusal}")
        if finish == "content_filter":
            self._client.fail("its content filter stopped the answer")
        if finish not in _ENDS:
            self._client.fail(f"it did not come to the end of an answer (finish_reason {json.dumps(finish)})")
        if not isinstance(text, str) or not text.strip():
            self._client.fail(f"its answer is empty (finish_reason {finish!r})")
        answer = _without_thoughts(text)
        if not answer:
            self._client.fail(f"it thought, and did not answer (finish_reason {finish!r})")
        return Answer(answer, _cost(reply, self._prices))


class EndpointEmbedder:
    """An embedder behind an OpenAI-compatible endpoint."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: str = "",
        key_variable: str | None = None,
        price: float | None = None,
        concurrency: int = 4,
        requests_per_minute: int | None = None,
        tries: int = 5,
        request_timeout: float = 60.0,
    ) -> None:
        """
        Args:
            url: as of `Endpoint`.
            model: its name there.
            version: as of `Endpoint`.
            key_variable: as of `Endpoint`.
            price: US dollars for a million tokens; by default, vectors say no `usd`.
            concurrency: as of `Endpoint`.
            requests_per_minute: as of `Endpoint`; a request has at most 128 texts.
            tries: as of `Endpoint`.
            request_timeout: as of `Endpoint`.

        Raises:
            UsageError: an argument makes no sense, or the environment variable is not set.
        """
        self._prices = None if price is None else (_number("price", price), 0.0)
        self._client = _Client(
            url, model, version, key_variable, concurrency, requests_per_minute, tries, request_timeout
        )
        self.identity = _identity("endpoint of embeddings", self._client, {})

    def embed_texts(self, texts: Sequence[str], *, seconds: float) -> Vectors:
        """See `Embedder.embed_texts`. The cost is as of `Endpoint.ask`.

        Raises:
            DependencyFailed: the endpoint did not give a vector of each text.
            UsageError: the package `openai` is missing.
        """
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        parts = self._client.side_by_side(batches, self._embed, seconds)
        cost: dict[str, float] = {}
        for part in parts:
            for unit, number in part.cost.items():
                cost[unit] = cost.get(unit, 0) + number
        return Vectors([vector for part in parts for vector in part.vectors], cost)

    def _embed(self, texts: Sequence[str], course: _Course) -> Vectors:
        body = {"model": self._client.model, "input": list(texts), "encoding_format": "float"}
        reply = self._client.post("/embeddings", body, course)
        try:
            by_place = {one["index"]: one["embedding"] for one in reply["data"]}
            vectors = [by_place[place] for place in range(len(texts))]
            whole = len(reply["data"]) == len(texts) and all(isinstance(one, list) and one for one in vectors)
        except (KeyError, TypeError):
            whole = False
        if not whole:
            self._client.fail(f"it did not give one vector for each of {len(texts)} texts")
        return Vectors(vectors, _cost(reply, self._prices))


def _content(prompt: Prompt) -> str | list[Body]:
    """Returns a prompt as the chat interface takes it: a text, or parts if there are pictures."""
    if not prompt.pictures:
        return prompt.text
    parts: list[Body] = [{"type": "text", "text": prompt.text}]
    for picture in prompt.pictures:
        address = f"data:image/jpeg;base64,{base64.b64encode(picture).decode('ascii')}"
        parts.append({"type": "image_url", "image_url": {"url": address}})
    return parts


def _cost(reply: Mapping[str, Any], prices: tuple[float, float] | None) -> dict[str, float]:
    """Returns what an answer cost, as far as it tells."""
    cost: dict[str, float] = {"requests": 1}
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        return cost
    for unit in ("prompt_tokens", "completion_tokens"):
        number = usage.get(unit)
        if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MOST_COST:
            cost[unit] = number
    is_complete = all(unit in cost or usage.get(unit) is None for unit in ("prompt_tokens", "completion_tokens"))
    if prices is not None and is_complete and "prompt_tokens" in cost:
        spent = prices[0] * cost["prompt_tokens"] + prices[1] * cost.get("completion_tokens", 0)
        if spent / 1e6 <= MOST_COST:
            cost["usd"] = spent / 1e6
    return cost


def _without_thoughts(text: str) -> str:
    """Returns an answer without the thoughts that it begins with; "" if there is nothing else."""
    before, end, after = text.partition(_THOUGHT_ENDS)
    begins = before.lstrip().startswith(_THOUGHT)
    if end and (begins or _THOUGHT not in before):  # some templates of chats have put the first mark into the prompt
        return after.strip()
    return "" if begins else text


def _identity(kind: str, client: _Client, settings: Mapping[str, Any]) -> str:
    facts = {"url": client.url, "model": client.model, "version": client.version, **settings}
    return f"{kind}: {json.dumps(facts, sort_keys=True)}"


def _reason(response: Any) -> str:
    """Returns what an endpoint says of an error; OpenAI's has an object `error` with a `message`."""
    try:
        return _message(response.json()["error"])
    except (KeyError, TypeError, ValueError):
        return str(response.text) or "no reason given"


def _message(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)


def _raw_response(openai: Any) -> Any:
    """Returns the class of responses of the HTTP client that the package uses: they come back as they are."""
    return importlib.import_module("httpx2" if hasattr(openai, "DefaultHttpx2Client") else "httpx").Response


def _checked_url(url: str) -> str:
    """Returns an address without a slash at its end; what is refused is not repeated, because it may be a secret."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (AttributeError, TypeError, ValueError):
        whole = False
    if not whole or not url.isprintable() or " " in url:
        raise UsageError("url must be an address such as http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"url must have no user and password, because addresses are part of keys and messages (host "
            f"{parts.hostname}): name the environment variable that has the key as key_variable"
        )
    if parts.query or parts.fragment:
        raise UsageError(f"url must end before '?' and '#' (host {parts.hostname}): the path of a request follows it")
    return url.rstrip("/")


def _key(variable: str) -> str:
    key = os.environ.get(_text("key_variable", variable), "")
    if not key:
        raise UsageError(f"the environment variable {variable}, which key_variable names, is not set")
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"the environment variable {variable} must have a key of printable ASCII characters")
    return key


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} must be a text that is not empty, not {value!r}")
    return value


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be a whole number of 1 or more, not {value!r}")
    return value


def _number(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise UsageError(f"{name} must be a finite number of 0 or more, not {value!r}")
    return float(value)


def _prices(value: object) -> tuple[float, float]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UsageError(f"prices must be two numbers, of a million tokens of prompts and of answers, not {value!r}")
    return _number("prices", value[0]), _number("prices", value[1])
