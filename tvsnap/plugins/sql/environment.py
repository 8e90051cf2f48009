"""Databases: the tools `sql` and `schema`, which use a session that a process inside the sandbox keeps open.

The server, that process and its connection are checkpointed and forked with the sandbox, so a fork goes on in the
middle of a transaction. The process runs `tvsnap.plugins.sql.inside`, is copied into a new sandbox, and answers on a
Unix socket inside.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from tvsnap.environments.service import InnerService, call_session
from tvsnap.environments.terminal import TerminalEnvironment
from tvsnap.environments.tools import CallContext, Tool, tool
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.observations import Observation, Service
from tvsnap.plugins.sql.inside.lexemes import SystemName
from tvsnap.plugins.sql.naming import words
from tvsnap.plugins.sql.program import sql_program
from tvsnap.plugins.sql.statements import effects
from tvsnap.sandboxes.protocol import Sandbox

MAX_ROWS = 1000
"""Default number of rows that a call returns."""
_GRACE = 15.0
"""Seconds beyond a statement's timeout after which the session counts as dead; cancelling takes a moment."""
_LOOK_TIMEOUT = 60.0
_SQL = (
    "Runs one or more SQL statements in the rollout's one connection: open transactions, temporary tables, variables, "
    "prepared statements and locks carry over to the next call. Returns JSON: columns and rows, or what was affected, "
    "or the database system's error."
)
_SCHEMA = "Returns the tables of a database, or one of them, as JSON: columns, keys and indexes."
_LOST = "the process that held the connection is gone; a new connection has taken its place, and what was open is lost"

_Database = Annotated[str, "for this call only; by default the one that is in use"]


class SqlEnvironment(TerminalEnvironment):
    """The environment of one database system: its tools, and those of a terminal."""

    def __init__(self, system: SystemName) -> None:
        self._system = system
        self._session = InnerService("sql", sql_program, system)
        tools = (
            tool(name="sql", description=_SQL)(self._sql),
            tool(name="schema", description=_SCHEMA)(self._schema),
        )
        super().__init__(system, "13", tools, (self._session,))

    def tool(self, call: ToolCall) -> Tool:
        """See `Environment.tool`: a statement's words show whether its value depends on chance or the clock."""
        described = super().tool(call)
        if call.name != "sql":
            return described
        return replace(described, stochastic=effects(call.arguments["query"], self._system).stochastic)

    def observe(self, sandbox: Sandbox) -> Observation:
        """See `Environment.observe`: adds the system's own facts.

        Its own files and processes are observed separately.
        """
        try:
            reply = self._session.ask(sandbox, {"op": "observe"}, _LOOK_TIMEOUT)
        except OSError:  # the next call will detect that, and start another session
            return replace(sandbox.observe(), service=secrets.token_hex(), chance=True)
        service = Service(frozenset(reply["processes"]), tuple(reply["directories"]))
        observation = replace(
            sandbox.observe(service),
            service=reply["token"],
            chance=bool(reply["chance"]),
            reproducible=bool(reply["reproducible"]),
        )
        if not reply["timers"]:
            return observation
        timers = f"{self._system} acts by itself after some time ({reply['timers']})"
        return replace(observation, active="; ".join(filter(None, (observation.active, timers))), quiet_s=0.0)

    def surely_changes(self, call: ToolCall, before: Observation | None) -> bool:
        return call.name not in ("sql", "schema")

    def unchanged(self, call: ToolCall, before: Observation, after: Observation) -> bool:
        """See `Environment.unchanged`: a system knows best whether a statement changed the files that only it writes.

        Programs of the agent may have changed the system's processes, whose memory is too large to be compared, and the
        session's own facts; so if programs ran, something has changed.
        """
        if self.surely_changes(call, before):
            return False
        return (before.files, before.processes, before.service) == (after.files, after.processes, after.service)

    def _sql(
        self,
        context: CallContext,
        query: str,
        database: _Database = "",
        max_rows: Annotated[int, {"minimum": 1}, f"rows returned; by default {MAX_ROWS}"] = MAX_ROWS,
        timeout: Annotated[
            float,
            {"minimum": 0.001},
            "seconds after which it is cancelled; at most the call's own, which is the default",
        ] = math.inf,
    ) -> ToolResult:
        nature = effects(query, self._system)
        seconds = min(context.timeout, float(timeout))
        request = {
            "op": "sql",
            "query": query,
            "database": database,
            "timeout": seconds,
            "max_rows": max_rows,
            "limit": context.limits.output,
            "kind": nature.kind,
            "chance": nature.stochastic or nature.volatile,
            "words": words(query, self._system).said(),
        }
        return self._result(context.sandbox, request, seconds)

    def _schema(self, context: CallContext, database: _Database = "", table: str = "") -> ToolResult:
        request = {"op": "schema", "database": database, "table": table, "limit": context.limits.output}
        return self._result(context.sandbox, request, context.timeout)

    def _result(self, sandbox: Sandbox, request: Mapping[str, Any], seconds: float) -> ToolResult:
        lost = ToolResult.of_text(json.dumps({"error": _LOST}, separators=(",", ":")), None, 0.0)
        return call_session(self._session, sandbox, request, seconds, grace=_GRACE, lost=lost)


sqlite, postgres, mariadb = SqlEnvironment("sqlite"), SqlEnvironment("postgres"), SqlEnvironment("mariadb")
"""The objects that the entry points in the group `tvsnap.environments` name."""
