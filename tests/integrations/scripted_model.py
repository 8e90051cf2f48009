"""A model server that says what a script tells it to: the part of OpenAI's chat completions that agents use."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Scripts = Mapping[str, Sequence[str]]
"""What is said in conversations whose first message holds the key: one answer after the other, the last for ever."""


def terminal_step(*keystrokes: tuple[str, float], done: bool = False) -> str:
    """Returns an answer as the agent Terminus-2 understands it.

    Args:
        keystrokes: what is typed, and for how many seconds the agent then waits.
        done: the task is complete.
    """
    commands = [{"keystrokes": keys, "duration": seconds} for keys, seconds in keystrokes]
    return json.dumps({"analysis": "Looking.", "plan": "Going on.", "commands": commands, "task_complete": done})


@contextlib.contextmanager
def model_server(scripts: Scripts) -> Iterator[str]:
    """A block with a server that answers from scripts, and says "fetched" where a file is asked for.

    Args:
        scripts: what it says.

    Yields:
        Its address, as clients want it.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(_completion(asked, _answer(scripts, asked["messages"]))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"fetched\n")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="scripted-model")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(scripts: Scripts, messages: Sequence[Mapping[str, Any]]) -> str:
    """Returns what comes next: as many answers were given as the conversation holds."""
    first = json.dumps(messages[0]["content"])
    script = next(answers for key, answers in scripts.items() if key in first)
    given = sum(message["role"] == "assistant" for message in messages)
    return str(script[min(given, len(script) - 1)])


def _completion(asked: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": asked["model"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
