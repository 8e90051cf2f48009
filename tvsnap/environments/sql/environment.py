"""Databases: the tools `sql` and `schema`, which speak with a session that a process inside the sandbox holds open.

The server, that process and its connection are checkpointed and forked with the sandbox, so a fork goes on in the
middle of a transaction. The process runs `tvsnap.guest.sql`, is brought in when a sandbox is started, and answers on
a Unix socket inside.
"""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tvsnap.environments.base import Tool, validate_call
from tvsnap.environments.sql.naming import words
from tvsnap.environments.sql.statements import effects
from tvsnap.environments.terminal import TerminalEnvironment
from tvsnap.guest.sql.lexemes import SystemName
from tvsnap.guest.sql.reach import Words
from tvsnap.guest.sql_program import sql_program
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import InfrastructureError, SandboxDied
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Observation, Service
from tvsnap.sandboxes.protocol import Sandbox

MAX_ROWS = 1000
"""Rows of a result that are returned where the call does not say."""
PROGRAM = "/run/tvsnap/sql.pyz"
SOCKET = "/run/tvsnap/sql.socket"
_START_TIMEOUT = 120.0
_GRACE = 15.0
"""Seconds beyond a statement's timeout after which the session is taken for dead; cancelling takes a moment."""
_LOOK_TIMEOUT = 60.0
_LONGEST_REASON = 2000
_GONE = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT})
_WAS_GONE = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ETIMEDOUT})
"""Of these, the errors by which a session turns out to have been ended by an earlier call, or not to answer in time."""
_LOST = "the process that held the connection is gone; a new connection has taken its place, and what was open is lost"

_TEXT = {"type": "string"}
_DATABASE = {**_TEXT, "description": "for this call only; by default the one that is in use"}
_SQL = Tool(
    "sql",
    "Runs one or more SQL statements in the rollout's one connection: open transactions, temporary tables, variables, "
    "prepared statements and locks carry over to the next call. Returns JSON: columns and rows, or what was affected, "
    "or the database system's error.",
    {
        "type": "object",
        "properties": {
            "query": _TEXT,
            "database": _DATABASE,
            "max_rows": {"type": "integer", "minimum": 1, "description": f"rows returned; by default {MAX_ROWS}"},
            "timeout": {
                "type": "number",
                "minimum": 0.001,
                "description": "seconds after which it is cancelled; at most the call's own, which is the default",
            },
        },
        "required": ["query"],
    },
)
_SCHEMA = Tool(
    "schema",
    "Returns the tables of a database, or one of them, as JSON: columns, keys and indexes.",
    {"type": "object", "properties": {"database": _DATABASE, "table": _TEXT}, "required": []},
)


class SqlEnvironment(TerminalEnvironment):
    """Fulfils `tvsnap.environments.base.Environment` for one database system."""

    version = "7"
    serves = True
    tools = {**{tool.name: tool for tool in (_SQL, _SCHEMA)}, **TerminalEnvironment.tools}  # noqa: RUF012

    def __init__(self, system: SystemName) -> None:
        """Args: system: which."""
        super().__init__()
        self.name = system
        self._system = system
        self._actions["sql"] = self._sql
        self._actions["schema"] = self._schema

    def tool(self, call: ToolCall) -> Tool:
        """See `Environment.tool`: a statement's own words tell if its value is left to chance or the clock."""
        validate_call(self.tools, call)
        tool = self.tools[call.name]
        if call.name != "sql":
            return tool
        known = effects(call.arguments["query"], self._system)
        return replace(tool, stochastic=known.stochastic)

    def prepare(self, sandbox: Sandbox) -> None:
        """See `Environment.prepare`: starts the server and the session."""
        try:
            sandbox.write_file(PROGRAM, sql_program(), user="root")
        except OSError as error:
            raise InfrastructureError(
                f"{PROGRAM} cannot be put into a sandbox of {sandbox.image.name}: {error}"
            ) from None
        self._start(sandbox)

    def observe(self, sandbox: Sandbox) -> Observation:
        """See `Environment.observe`: what the system knows is added; its own files and processes are told apart."""
        try:
            said = _ask(sandbox, {"op": "observe"}, _LOOK_TIMEOUT)
        except OSError:  # whoever calls next finds out, and starts another session
            return replace(sandbox.observe(), service=secrets.token_hex(), chance=True)
        service = Service(frozenset(said["processes"]), tuple(said["directories"]))
        seen = replace(
            sandbox.observe(service),
            service=said["token"],
            chance=bool(said["chance"]),
            reproducible=bool(said["reproducible"]),
        )
        if not said["timers"]:
            return seen
        timers = f"{self._system} acts by itself after some time ({said['timers']})"
        return replace(seen, active="; ".join(filter(None, (seen.active, timers))), quiet_s=0.0)

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        """See `Environment.unchanged`: of what it alone writes, a database system knows best if a statement changed it.

        Programs of the agent's may have changed the system's processes, whose memory is too much to be compared, and
        what the session says of itself; so where they ran, something has changed.
        """
        if call.name not in (_SQL.name, _SCHEMA.name):
            return False
        return (before.files, before.processes, before.service) == (after.files, after.processes, after.service)

    def _start(self, sandbox: Sandbox) -> None:
        command = f"python3 -I {PROGRAM} start {self._system} {SOCKET}"
        outcome = sandbox.exec(command, timeout=_START_TIMEOUT, cwd="/", user="root")
        if outcome.exit_code != 0:
            said = outcome.output.decode("utf-8", "replace").strip()
            reason = said or ("it took too long" if outcome.timed_out else f"exit status {outcome.exit_code}")
            raise InfrastructureError(f"{self._system} does not start in a sandbox of {sandbox.image.name}: {reason}")

    def _sql(self, sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
        arguments = call.arguments
        known = effects(arguments["query"], self._system)
        return self._result(
            sandbox,
            {
                "op": "sql",
                "query": arguments["query"],
                "database": arguments.get("database", ""),
                "timeout": (seconds := min(timeout, float(arguments.get("timeout", timeout)))),
                "max_rows": arguments.get("max_rows", MAX_ROWS),
                "limit": limits.output,
                "kind": known.kind,
                "chance": known.stochastic or known.volatile,
                "words": _said(words(arguments["query"], self._system)),
            },
            seconds,
        )

    def _schema(self, sandbox: Sandbox, call: ToolCall, timeout: float, limits: Limits) -> ToolResult:
        database, table = call.arguments.get("database", ""), call.arguments.get("table", "")
        request = {"op": "schema", "database": database, "table": table, "limit": limits.output}
        return self._result(sandbox, request, timeout)

    def _result(self, sandbox: Sandbox, request: Mapping[str, Any], seconds: float) -> ToolResult:
        try:
            said = _ask(sandbox, request, seconds + _GRACE)
        except OSError as error:
            if error.errno not in _WAS_GONE:
                raise SandboxDied(f"the SQL session of sandbox {sandbox.id} ended amid a call ({error})") from None
            self._start(sandbox)
            return ToolResult.of_text(
                json.dumps({"error": _LOST}, separators=(",", ":")),
                None,
                seconds if error.errno == errno.ETIMEDOUT else 0.0,
                timed_out=error.errno == errno.ETIMEDOUT,
            )
        return ToolResult.of_text(
            said["output"],
            None if said["timed_out"] else int(said["failed"]),
            said["duration"],
            timed_out=said["timed_out"],
            truncated=said["truncated"],
        )


def _said(known: Words) -> dict[str, Any]:
    """Returns what a request's words name, as the session reads it."""
    return {
        "names": None if known.names is None else sorted(known.names),
        "calls": sorted(known.calls),
        "called": sorted(known.called),
        "defined": sorted(known.defined),
        "made": sorted(known.made),
        "timed": known.timed,
        "defines": known.defines,
        "executes": known.executes,
        "unseen": known.unseen,
        "plain": known.plain,
    }


def _ask(sandbox: Sandbox, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Returns what the session answers.

    Raises:
        OSError: there is none, or it does not answer.
        InfrastructureError: it answers what it should not.
    """
    try:
        answer = sandbox.request(SOCKET, json.dumps(request).encode(), timeout=timeout)
    except OSError as error:
        if error.errno in _GONE:
            raise
        raise InfrastructureError(f"the SQL session of a sandbox cannot be asked: {error}") from error
    return parse_answer(answer)


def parse_answer(answer: bytes) -> dict[str, Any]:
    """Returns what a session has said.

    Args:
        answer: as it was sent.

    Raises:
        OSError: it is cut short, or no JSON.
        InfrastructureError: the session says that it failed, or says no object.
    """
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        raise OSError(errno.ECONNRESET, "the session ended amid its answer") from None
    if not isinstance(said, dict) or "broken" in said:
        reason = str(said["broken"])[:_LONGEST_REASON] if isinstance(said, dict) else "it answered no JSON object"
        raise InfrastructureError(f"the SQL session of a sandbox failed: {reason}")
    return said
