"""One connection to PostgreSQL by libpq: statements within a time, in bounded memory, and values for rows.

Statements use the simple protocol, one message for each of a text, as `psql` does: each is a transaction of its own,
unless one is open. Values come in the database system's own text.
Functions that connect raise `Refused`, and queries of our own `StatementFailed`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import signal
import time
from dataclasses import dataclass, field
from typing import Any, Callable, List, Optional

from psycopg import OperationalError, pq

from ..results import binary
from ..system import Answer, Result, StatementFailed
from .ledger import Ledger
from .server import PORT, SOCKETS, USER
from .statements import statements
from .values import codec, conninfo, plain, refusal, value

CONNECT_SECONDS = 20.0
ASK_SECONDS = 30.0
CANCEL_SECONDS = 5.0
"""Seconds for a cancelled statement to end."""
END_SECONDS = 2.0
KEPT_BYTES = 64 * 1024 * 1024
"""The most bytes that are kept of the rows of one request."""
KEPT_MESSAGES = 100

_TIMELESS = (b"WARNING", b"NOTICE")
"""Messages of a statement that do not say how long something took. Those for the server's log (LOG, DEBUG), which a
session can request, may do so, and those of VACUUM VERBOSE and the like (INFO)."""
_COMMITS = re.compile(r"\s*(commit|end)\b", re.IGNORECASE)
_UNREAD = frozenset(("42601", "42883", "42P01", "42703"))
"""Errors of syntax, and of unknown names: reported before any part of a text is executed."""

LOST_CODE = "08006"
LOST = "The connection was lost. A new one takes its place; what was open in the old one is gone."


class Refused(Exception):
    """The server does not accept a connection; the message is its own."""

    @property
    def for_now(self) -> bool:
        """Whether it is only starting, recovering or shutting down."""
        return "the database system is " in str(self)


class Connection:
    """A connection to one database.

    Attributes:
        database: its name.
        ledger: traces of the agent's requests in it that the server does not show.
        arrived: the number of notifications that have arrived so far.
        counted: the server keeps statistics of what is done over it.
        counts: the agent has set whether it does.
    """

    def __init__(self, database: str, name: str, *, hidden: bool = False) -> None:
        """Connects; the server's statistics do not include what is done over a `hidden` connection."""
        self.database = database
        self.ledger = Ledger()
        self.arrived = 0
        self.counted = True
        self.counts = False
        self._doomed = False
        self._cancelled = False
        self._deadline = 0.0
        self._notices = _Notices()
        self._room = KEPT_BYTES  # for the rows of the request
        where = {"host": SOCKETS, "port": PORT, "user": USER, "dbname": database, "application_name": name}
        how = {"client_encoding": "UTF8", "sslmode": "disable", "gssencmode": "disable"}
        options = "-c track_counts=off -c track_activities=off" if hidden else ""
        self._libpq = self._connect(conninfo(**where, **how, options=options))
        self._libpq.nonblocking = 1
        self._libpq.notice_handler = self._heard

    def _connect(self, where: str) -> Any:
        libpq = pq.PGconn.connect_start(where.encode("utf-8", "backslashreplace"))
        until = time.monotonic() + CONNECT_SECONDS
        while True:
            state = libpq.connect_poll()
            if state == pq.PollingStatus.OK:
                return libpq
            if state == pq.PollingStatus.FAILED:
                raise Refused(refusal(libpq.error_message.decode("utf-8", "backslashreplace")))
            events = select.POLLIN if state == pq.PollingStatus.READING else select.POLLOUT
            if not _poll(libpq.socket, events, until - time.monotonic()):
                libpq.finish()
                raise Refused(f"the server has not answered within {CONNECT_SECONDS:.0f} s")

    @property
    def pid(self) -> int:
        return int(self._libpq.backend_pid)

    @property
    def alive(self) -> bool:
        return bool(self._libpq.status == pq.ConnStatus.OK) and not self._doomed

    @property
    def idle(self) -> bool:
        return bool(self._libpq.transaction_status == pq.TransactionStatus.IDLE)

    @property
    def failed(self) -> bool:
        return bool(self._libpq.transaction_status == pq.TransactionStatus.INERROR)

    @property
    def settled(self) -> bool:
        """Whether one more statement changes nothing for later ones."""
        return self.idle or (self.ledger.settled and not self.failed)

    @property
    def waiting(self) -> int:
        """The number of messages that the next request will return."""
        return len(self._notices.messages) + self._notices.more

    @property
    def superuser(self) -> bool:
        """Whether the session has not taken a lesser role."""
        return bool(self._libpq.parameter_status(b"is_superuser") == b"on")

    def close(self) -> None:
        self._libpq.finish()

    def listen(self) -> None:
        """Receives what the server has sent by itself: notifications, or that it ended."""
        with contextlib.suppress(OperationalError):
            while self.alive and _poll(self._libpq.socket, select.POLLIN, 0):
                self._libpq.consume_input()
        self._take_notifications()

    def run(self, query: str, timeout: float, max_rows: int) -> Answer:
        """Runs statements for the agent: see `DatabaseSystem.run`. After a loss the connection must be closed."""
        self.listen()
        if not self.alive:  # its end may have been received before, by an observation
            return Answer(error=LOST, code=LOST_CODE, lost=True)
        answer = self._run(query, timeout, max_rows)
        if not self.alive:
            answer.lost = True
            answer.error = f"{answer.error}\n{LOST}".lstrip()
        self._take_notifications()
        notices, self._notices = self._notices, _Notices()
        answer.messages, answer.varies = notices.messages, notices.varies
        if notices.more:
            answer.messages.append(f"({notices.more} more messages)")
        return answer

    def _run(self, query: str, timeout: float, max_rows: int) -> Answer:
        """Runs the statements one by one. If one fails, the next ones are run nevertheless, as by `psql`."""
        escapes = self._libpq.parameter_status(b"standard_conforming_strings") == b"off" and "\\" in query
        parts = [query] if escapes else statements(query)
        answer, until, failed = Answer(unparsed=True), time.monotonic() + timeout, []
        self._room = KEPT_BYTES
        for number, part in enumerate(parts, 1):
            seconds, tags = until - time.monotonic(), []  # type: float, List[str]
            if seconds > 0:
                one = self._execute(part, seconds, max_rows, tags, value)
            else:
                one = Answer(error="ERROR:  not executed", code="57014", timed_out=True)
            if self.alive:
                self.ledger.note(part, tags, self.idle)
            answer.results += one.results
            answer.unparsed = answer.unparsed and one.unparsed
            if tags == ["ROLLBACK"] and _COMMITS.match(part):
                self._notices.add(f"{_place(number, parts)}the transaction had failed, and was rolled back")
            if one.error:
                late = f"\nThe timeout of {timeout:g} s has passed." if one.timed_out else ""
                failed.append(f"{_place(number, parts)}{one.error}{late}")
                answer.code = answer.code or one.code
            if one.timed_out or not self.alive:
                answer.timed_out = one.timed_out
                break
        answer.error = "\n".join(failed)
        return answer

    def look(self) -> None:
        self.ledger.note("", ["SELECT"], self.idle)

    def ask(self, query: str, seconds: float = ASK_SECONDS) -> List[List[Optional[str]]]:
        """Returns the rows of one statement of our own, values as the database system's text."""
        notices, self._notices, self._room = self._notices, _Notices(), KEPT_BYTES
        answer = self._execute(query, seconds, 1 << 60, [], plain)
        self._notices = notices
        if not self.alive:
            raise StatementFailed(f"{answer.error}\n{LOST}".lstrip())
        if answer.error:
            raise StatementFailed(answer.error)
        return answer.results[-1].rows if answer.results else []

    def copy(self, command: str, data: Any) -> None:
        self._begin(math.inf)
        self._libpq.send_query(command.encode())
        answer = Answer()
        for result in iter(self._next, None):
            if result.status == pq.ExecStatus.COPY_IN:
                for part in data:
                    while not self._libpq.put_copy_data(part):
                        self._wait()
                self._libpq.put_copy_end()
            elif result.status != pq.ExecStatus.COMMAND_OK:
                self._failed(result, answer, [])
        if answer.error:
            raise StatementFailed(answer.error)

    def _begin(self, timeout: float) -> None:
        self._cancelled = False
        self._deadline = time.monotonic() + timeout

    def _execute(
        self, query: str, timeout: float, max_rows: int, tags: List[str], convert: Callable[[bytes, int, str], Any]
    ) -> Answer:
        answer = Answer()
        encoding = self._encoding()
        if "\0" in query:
            answer.error = 'ERROR:  invalid byte sequence for encoding "UTF8": 0x00'
            answer.code, answer.unparsed = "22021", True
            return answer
        self._begin(timeout)
        try:
            self._libpq.send_query(query.encode(encoding, "surrogatepass" if encoding == "utf-8" else "replace"))
            self._libpq.set_single_row_mode()
            self._collect(answer, max_rows, tags, convert, encoding)
        except OperationalError as error:
            answer.error = answer.error or str(error)
        except _Stuck:
            self._abandon()
            answer.error = "the statement went on after it was cancelled; the process that ran it was ended"
            answer.timed_out = True
        return answer

    def _collect(
        self, answer: Answer, max_rows: int, tags: List[str], convert: Callable[[bytes, int, str], Any], encoding: str
    ) -> None:
        current = Result()
        types: List[int] = []
        for result in iter(self._next, None):
            status = result.status
            if status == pq.ExecStatus.SINGLE_TUPLE:
                if current.more:
                    continue
                if current.columns is None:
                    current.columns = _names(result, encoding)
                    types = [result.ftype(column) for column in range(len(current.columns))]
                if len(current.rows) >= max_rows or self._room <= 0:
                    current.more = True
                    continue
                values = [result.get_value(0, column) for column in range(len(types))]
                self._room -= sum(len(one or b"") + 50 for one in values)
                row = [None if one is None else convert(one, types[at], encoding) for at, one in enumerate(values)]
                current.rows.append(row)
            elif status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                if status == pq.ExecStatus.TUPLES_OK and current.columns is None:
                    current.columns = _names(result, encoding)
                tags.append(_tag(result, current))
                answer.results.append(current)
                current = Result()
            elif status == pq.ExecStatus.COPY_OUT:
                current.columns = ["copy"]
                self._copy_out(current, max_rows, result.binary_tuples, encoding)
            elif status == pq.ExecStatus.COPY_IN:
                self._libpq.put_copy_end(b"there is nothing to read: use INSERT, or COPY from a file or a program")
            elif status != pq.ExecStatus.EMPTY_QUERY:
                current = Result()
                self._failed(result, answer, tags)

    def _copy_out(self, into: Result, max_rows: int, raw: bool, encoding: str) -> None:
        while True:
            size, data = self._libpq.get_copy_data(1)
            if size < 0:
                return
            if not size:
                self._wait()
            elif len(into.rows) >= max_rows or self._room <= 0:
                into.more = True
            else:
                self._room -= size + 50
                line = bytes(data)
                into.rows.append([binary(line) if raw else line.decode(encoding, "backslashreplace").rstrip("\n")])

    def _failed(self, result: Any, answer: Answer, tags: List[str]) -> None:
        diagnostics = pq.DiagnosticField
        code = (result.error_field(diagnostics.SQLSTATE) or b"").decode()
        text = result.error_message.decode(self._encoding(), "backslashreplace").rstrip()
        answer.error = f"{answer.error}\n{text}".lstrip()
        answer.code = answer.code or code
        answer.timed_out = self._cancelled and code == "57014"
        # An error of the parser about the text as received, not about one that a function has assembled.
        answer.unparsed = (
            code in _UNREAD
            and not tags
            and not answer.results
            and result.error_field(diagnostics.STATEMENT_POSITION) is not None
            and result.error_field(diagnostics.CONTEXT) is None
            and result.error_field(diagnostics.INTERNAL_QUERY) is None
        )

    def _next(self) -> Any:
        while self._libpq.is_busy():
            self._wait()
        return self._libpq.get_result()

    def _wait(self) -> None:
        """Waits for data from the server; cancels the statement at the deadline."""
        events = select.POLLIN | (select.POLLOUT if self._libpq.flush() else 0)
        heard = _poll(self._libpq.socket, events, self._deadline - time.monotonic())
        if time.monotonic() >= self._deadline:
            if self._cancelled:
                raise _Stuck
            self._cancelled = True
            self._deadline = time.monotonic() + CANCEL_SECONDS
            # This is the final effect of a cancel request, but does not need a server that may be stuck.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)
        if heard:
            self._libpq.consume_input()

    def _abandon(self) -> None:
        """Ends a connection whose process does not react, and kills the process: it must not go on unseen."""
        pid = self.pid
        self._libpq.finish()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
            if _ended(pid, END_SECONDS):
                return

    def _encoding(self) -> str:
        return codec((self._libpq.parameter_status(b"client_encoding") or b"UTF8").decode())

    def _heard(self, notice: Any) -> None:
        severity = notice.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED)
        if severity in (b"FATAL", b"PANIC"):
            self._doomed = True  # the server ends it while no request is running
            return
        self._notices.varies = self._notices.varies or severity not in _TIMELESS
        self._notices.add(notice.error_message.decode(self._encoding(), "backslashreplace").rstrip())

    def _take_notifications(self) -> None:
        for notification in iter(lambda: self._libpq.notifies() if self.alive else None, None):
            self.arrived += 1
            self._notices.varies = True
            payload = f" with payload {_quoted(notification.extra)}" if notification.extra else ""
            self._notices.add(
                f"Asynchronous notification {_quoted(notification.relname)}{payload} received from server process with "
                f"PID {notification.be_pid}."
            )


@dataclass
class _Notices:
    """Messages for the next request to return, and the number of further ones; see `Answer.varies`."""

    messages: List[str] = field(default_factory=list)
    more: int = 0
    varies: bool = False

    def add(self, message: str) -> None:
        if len(self.messages) < KEPT_MESSAGES:
            self.messages.append(message)
        else:
            self.more += 1


class _Stuck(Exception):
    """A statement goes on although it was cancelled."""


def _names(result: Any, encoding: str) -> List[str]:
    return [(result.fname(number) or b"").decode(encoding, "backslashreplace") for number in range(result.nfields)]


def _tag(result: Any, current: Result) -> str:
    """Returns the kind of statement of a result, and notes how many rows it changed."""
    words = (result.command_status or b"").decode().split()
    verb = words[0] if words else ""
    if current.columns is None or verb in ("INSERT", "UPDATE", "DELETE", "MERGE"):
        current.affected = result.command_tuples
    if verb == "SELECT" and current.columns is None:
        return "SELECT INTO"
    return " ".join(words) if verb == "DISCARD" else verb


def _place(number: int, parts: List[str]) -> str:
    """Returns which of several statements is meant, for the beginning of a message."""
    return f"statement {number} of {len(parts)}: " if len(parts) > 1 else ""


def _quoted(name: bytes) -> str:
    return '"' + name.decode("utf-8", "backslashreplace") + '"'


def _ended(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while pid and os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _poll(descriptor: int, events: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(descriptor, events)
    return bool(poller.poll(max(0.0, min(seconds, 3600.0)) * 1000))
