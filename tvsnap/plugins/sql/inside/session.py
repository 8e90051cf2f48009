"""Answers requests on a Unix socket, one per connection, and keeps track of whether anything changed.

A request is a line of JSON with `op`, and so is the answer:

    sql      query, database, timeout, max_rows, limit, kind, chance, words
                                          -> output, failed, timed_out, truncated, duration
    schema   database, table, limit       -> output, failed, truncated, duration
    observe                               -> token, processes, directories, chance, reproducible

If the session itself fails, the answer is `broken`, with the error.

`kind` is what the statements do according to their words: `read` (nothing), `write` (what the system's facts show) or
`other` (anything). `chance` means that they name something that depends on chance or the clock; `words` is what else
they name (`reach.py`). The token is the same as before if nothing changed since the last `observe`, and new if anything
may have. The observed `chance` means that the requests since then depended, or may have depended, on chance, the clock
or the like, by something behind their words, and `reproducible` that it was one request that changed something and is
known not to depend on these.
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
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from .clients import advice
from .reach import Reach, Words
from .results import dump, fitting, render, shorten
from .system import DatabaseSystem, Facts, StatementFailed

LONGEST_REQUEST = 64 * 1024 * 1024
LARGE = 256 * 1024
"""Bytes of an answer after which memory is returned, because all memory of a process is in each snapshot of it."""
_DEFINING = frozenset(("create", "alter", "drop", "rename", "comment"))


@dataclass(frozen=True)
class Record:
    """A request since the last observation: what it names, what it did at most, and whether it ended with an error.

    If it is `hidden`, chance may have influenced it by what was defined before.
    """

    words: Words
    kind: str
    hidden: bool
    failed: bool


class Session:
    """The requests of one rollout, and the database system's facts at the last observation."""

    def __init__(self, system: DatabaseSystem) -> None:
        self._system = system
        self._facts: Optional[Facts] = system.facts()
        self._token = secrets.token_hex(8)
        self._unsure = False  # anything may have been done since the last observation
        self._reach = Reach(system.definitions())
        self._records: List[Record] = []
        self._heavy = False
        self._operations = {"sql": self._sql, "schema": self._schema, "observe": self._observe}

    def listen(self, path: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(8)
        return listener

    def serve(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):  # the client has gone
                self.answer(connection)

    def answer(self, connection: socket.socket) -> None:
        """Answers the one request of a connection."""
        with connection.makefile("rb") as stream:
            data = stream.read(LONGEST_REQUEST + 1)
        if len(data) > LONGEST_REQUEST:
            return
        request = json.loads(data)
        try:
            reply = self._operations[request["op"]](request)
        except Exception:  # a mistake of ours must not look like a result, nor end the session
            reply, self._unsure = {"broken": traceback.format_exc(limit=-3)}, True
        connection.sendall(dump(reply).encode("utf-8", "surrogatepass"))

    def _sql(self, request: Dict[str, Any]) -> Dict[str, Any]:
        words, kind = Words.of(request["words"]), request["kind"]
        hidden = self._reach.is_doubtful(words, kind)
        suspect = hidden or request["chance"]
        if suspect and not self._reach.seeds:
            self._system.reseed(request["database"])
        self._system.expect(kind, request["query"], request["database"])
        began = time.perf_counter()
        answer = self._system.run(request["query"], request["database"], request["timeout"], request["max_rows"])
        duration = time.perf_counter() - began
        hint = advice(self._system.name, request["query"], answer.error) if answer.error else ""
        if hint:
            answer.messages.append(hint)
        if suspect and (self._reach.seeds or self._system.seeded(request["database"])):
            kind = "other"  # drawing random numbers changes the session's own sequence
        if answer.lost or answer.counted or (kind == "other" and not answer.unparsed):
            self._unsure = True
        if not answer.unparsed:
            self._records.append(Record(words, kind, hidden or answer.varies, bool(answer.error)))
            self._reach.note(words, kind)
        output, cut = render(answer, request["limit"])
        more = cut or any(result.more for result in answer.results)
        self._heavy = self._heavy or more or len(output) > LARGE
        failed, late = bool(answer.error), answer.timed_out
        return {"output": output, "failed": failed, "timed_out": late, "truncated": more, "duration": duration}

    def _schema(self, request: Dict[str, Any]) -> Dict[str, Any]:
        began = time.perf_counter()
        limit = request["limit"]
        try:
            reply = self._system.schema(request["database"], request["table"])
            failed = False
            rest = len(dump({**reply, "tables": [], "more": True}).encode())
            reply["tables"], cut = fitting(reply["tables"], limit - rest)
            if cut:
                reply["more"] = True
        except (LookupError, StatementFailed) as error:
            text, cut = shorten(str(error.args[0]), limit - 20)
            reply, failed = {"error": text}, True
        duration = time.perf_counter() - began
        return {"output": dump(reply), "failed": failed, "timed_out": False, "truncated": cut, "duration": duration}

    def _observe(self, request: Dict[str, Any]) -> Dict[str, Any]:
        if self._heavy:
            _give_memory_back()
            self._heavy = False
        facts = self._system.facts()
        chance, reproducible = self._nature()
        changed = self._unsure or facts is None or facts != self._facts
        if changed:
            self._token = secrets.token_hex(8)
        self._facts, self._unsure = facts, False
        return {
            "token": self._token,
            "processes": [os.getpid(), *self._system.processes],
            "directories": list(self._system.directories),
            "chance": chance,
            "reproducible": reproducible and changed,
            "timers": self._system.timers(),
        }

    def _nature(self) -> Tuple[bool, bool]:
        """Returns whether chance may have influenced what was done since the last observation, and whether not."""
        records, self._records = self._records, []
        rows = all(one.kind == "read" or _changes_rows(one) for one in records)
        self._reach.learn(self._system.definitions(rows=rows))
        drew = self._system.drew()
        if drew is None:
            drew = False
            for one in records:  # what they defined and dropped themselves counts
                drew = drew or one.hidden or self._reach.is_doubtful(one.words, one.kind)
                if one.kind == "read" and self._reach.may_change(one.words):
                    self._unsure = True
        sure = len(records) == 1 and records[0].words.plain and not (records[0].failed or drew)
        return drew, sure and self._system.alone()


def _changes_rows(record: Record) -> bool:
    return record.words.plain and not record.hidden and (record.words.names or _DEFINING).isdisjoint(_DEFINING)


def _give_memory_back() -> None:
    """Returns the memory of freed objects to the kernel; takes 2 ms."""
    with contextlib.suppress(OSError, AttributeError):  # a C library without this function
        ctypes.CDLL(None).malloc_trim(0)
