"""Calls of `exec_all`, by which several commands run side by side: what they say, and what came of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tvsnap.model.calls import JSON, STDERR, Part, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.observations import Command


def exec_all_arguments(commands: Sequence[Command | str], user: str | None) -> Mapping[str, Any]:
    """Returns the arguments of a call of `exec_all`; those that are as usual are left out."""
    told = []
    for each in commands:
        one = Command(each) if isinstance(each, str) else each
        facts = {"command": one.command, "cwd": one.cwd, "env": dict(one.env), "separate": one.separate}
        told.append({name: value for name, value in facts.items() if value})
    return {"commands": told, **({"user": user} if user is not None else {})}


def results_of(result: ToolResult) -> list[ToolResult]:
    """Returns what the commands of a call of `exec_all` came to, each as a call of `exec` would have returned it.

    Args:
        result: of the call.
    """
    if result.parts[0].media_type != JSON:
        raise UsageError(
            f"what an environment's own tool exec_all returned is no list of results: {result.output[:60]!r}"
        )
    found = []
    for told in json.loads(result.output):
        parts: tuple[Part, ...] = (Part.text(told["output"]),)
        if "stderr" in told:
            parts += (Part(STDERR, told["stderr"]),)
        flags = {name: told.get(name, False) for name in ("timed_out", "blocked", "truncated")}
        found.append(ToolResult(parts, told["exit_code"], result.duration, **flags, source=result.source))
    return found
