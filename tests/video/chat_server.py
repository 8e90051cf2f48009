"""A server on the loopback interface that answers as OpenAI's chat and embeddings do, or fails as a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What the server does with a request.

    Attributes:
        body: of the response; an object is sent as JSON.
        status: of the response.
        headers: beside those of the content.
        hang: waits until the server is stopped, and then ends the connection.
        cut: ends the connection in the middle of the body.
    """

    body: Any = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    hang: bool = False
    cut: bool = False


def chat(text: str | None, finish: Any = "stop", **message: Any) -> Reply:
    """Returns an answer of 100 tokens to a prompt of 1,000 tokens."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    return Reply({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})


def embeddings(request: Body) -> Reply:
    """Returns a vector of each text, in the reverse order, of 10 tokens each."""
    data = [
        {"object": "embedding", "index": place, "embedding": [float(len(text)), 1.0]}
        for place, text in enumerate(request["input"])
    ]
    return Reply({"object": "list", "data": data[::-1], "usage": {"prompt_tokens": 10 * len(data)}})


@dataclass
class ChatServer:
    """The server.

    Attributes:
        answer: what it answers once `replies` are used up.
        replies: what it does with the next requests, one after another.
        requests: the bodies of all requests so far.
        keys: what they had as `Authorization`.
        most_at_once: requests that were under way at the same time, at most.
        met: if it is more than 1, requests wait until so many are under way.
    """

    answer: Callable[[Body], Reply] = lambda request: chat("a red circle")
    replies: list[Reply] = field(default_factory=list)
    requests: list[Body] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    most_at_once: int = 0
    met: threading.Barrier | None = None
    url: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, body: Body, key: str) -> Reply:
        """Takes note of a request; returns what to do with it."""
        with self._lock:
            self.requests.append(body)
            self.keys.append(key)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            reply = self.replies.pop(0) if self.replies else self.answer(body)
        if self.met is not None:
            self.met.wait(timeout=60)
        return reply

    def end(self) -> None:
        """Takes note of the end of a request."""
        with self._lock:
            self._now -= 1

    @property
    def pictures(self) -> list[list[str]]:
        """The addresses of the pictures of each request for a chat."""
        found = []
        for request in self.requests:
            parts = request["messages"][0]["content"]
            found.append([part["image_url"]["url"] for part in parts if part["type"] == "image_url"])
        return found


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """Runs a server for a block."""
    state = ChatServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = state.begin(body, self.headers.get("Authorization", ""))
            try:
                self._reply(reply)
            finally:
                state.end()

        def _reply(self, reply: Reply) -> None:
            if reply.hang:
                state.stopped.wait()
                self.close_connection = True
                return
            content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content) + 100 * reply.cut))
            for name, value in reply.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = reply.cut

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield state
    finally:
        state.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()
