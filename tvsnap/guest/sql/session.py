"""Answers requests on a Unix socket, one a connection, and keeps track of whether anything changed.

A request is a line of JSON with `op`, and so is the answer:

    sql      query, database, timeout, max_rows, limit, kind, reseed  -> output, failed, timed_out, truncated, duration
    schema   database, table, limit                                   -> output, failed, truncated, duration
    observe                                                           -> token, processes, directories

Where the session itself fails, the answer is `broken`, with what it met.

`kind` says what the statements do by their words: `read` (nothing), `write` (what the engine's facts tell) or `other`
(anything). The token is the same as before if nothing changed since the last `observe`, and new if anything may have.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import socket
import time
import traceback
from typing import Any, Callable, Dict, Optional

from .engine import Answer, Engine, Facts, StatementFailed
from .results import dump, fitting, render, shorten

LONGEST_REQUEST = 64 * 1024 * 1024
LARGE = 256 * 1024
"""Bytes of an answer after which there is memory to give back: what a process holds is in each snapshot of it."""
KINDS = ("none", "read", "write", "other")
"""From what changes least to what changes most; `none` stands for no statement at all."""


class Session:
    """The requests of one rollout, and what the engine knew at the last look."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: Optional[Facts] = engine.facts()
        self._token = secrets.token_hex(8)
        self._since = "none"
        self._heavy = False
        self._operations: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "sql": self._sql,
            "schema": self._schema,
            "observe": self._observe,
        }

    def listen(self, path: str) -> socket.socket:
        """Returns a socket that listens at `path`, for nobody but root."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if os.path.exists(path):
            os.unlink(path)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(8)
        return listener

    def serve(self, listener: socket.socket) -> None:
        """Answers whoever connects, for ever."""
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):  # whoever asked has gone
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        parts = []
        while True:
            part = connection.recv(1 << 20)
            if not part:
                break
            parts.append(part)
            if sum(map(len, parts)) > LONGEST_REQUEST:
                return
        request = json.loads(b"".join(parts))
        try:
            said = self._operations[request["op"]](request)
        except Exception:  # a mistake of ours must not pass for a result, nor end what the session holds
            said, self._since = {"broken": traceback.format_exc(limit=-3)}, "other"
        connection.sendall(dump(said).encode("utf-8", "surrogatepass"))

    def _sql(self, request: Dict[str, Any]) -> Dict[str, Any]:
        if request["reseed"]:
            self._engine.reseed(request["database"])
        began = time.perf_counter()
        answer = self._engine.run(request["query"], request["database"], request["timeout"], request["max_rows"])
        duration = time.perf_counter() - began
        self._happened(answer, request["kind"])
        output, cut = render(answer, request["limit"])
        more = cut or any(result.more for result in answer.results)
        self._heavy = self._heavy or more or len(output) > LARGE
        return {
            "output": output,
            "failed": bool(answer.error),
            "timed_out": answer.timed_out,
            "truncated": more,
            "duration": duration,
        }

    def _happened(self, answer: Answer, kind: str) -> None:
        """Takes note of what statements may have done."""
        if answer.lost:
            kind = "other"
        elif answer.unparsed:
            kind = "read"
        self._since = max(self._since, kind, key=KINDS.index)

    def _schema(self, request: Dict[str, Any]) -> Dict[str, Any]:
        began = time.perf_counter()
        limit = request["limit"]
        try:
            said = self._engine.schema(request["database"], request["table"])
            failed = False
            rest = len(dump({**said, "tables": [], "more": True}).encode())
            said["tables"], cut = fitting(said["tables"], limit - rest)
            if cut:
                said["more"] = True
        except (LookupError, StatementFailed) as error:
            text, cut = shorten(str(error.args[0]), limit - 20)
            said, failed = {"error": text}, True
        self._since = max(self._since, "read", key=KINDS.index)
        return {
            "output": dump(said),
            "failed": failed,
            "timed_out": False,
            "truncated": cut,
            "duration": time.perf_counter() - began,
        }

    def _observe(self, request: Dict[str, Any]) -> Dict[str, Any]:
        if self._heavy:
            _give_memory_back()
            self._heavy = False
        facts = self._engine.facts()
        if self._changed(facts):
            self._token = secrets.token_hex(8)
        self._known, self._since = facts, "none"
        return {
            "token": self._token,
            "processes": [os.getpid(), *self._engine.processes],
            "directories": list(self._engine.directories),
        }

    def _changed(self, facts: Optional[Facts]) -> bool:
        """Whether anything may have changed since the last look."""
        if self._since == "other" or facts is None or self._known is None or facts.sure != self._known.sure:
            return True
        return self._since != "read" and facts.writes != self._known.writes


def _give_memory_back() -> None:
    """Returns what freed objects held to the kernel; 2 ms."""
    with contextlib.suppress(OSError, AttributeError):  # a C library that has no such function
        ctypes.CDLL(None).malloc_trim(0)
