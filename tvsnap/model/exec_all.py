"""Arguments and results of calls of `exec_all`, which run several commands at the same time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tvsnap.model.calls import JSON, STDERR, Part, ToolResult
from tvsnap.model.errors import UsageError
from tvsnap.model.observations import Command

MOST_COMMANDS = 256
"""Commands that one call runs at most."""


def exec_all_arguments(commands: Sequence[Command | str], user: str | None) -> Mapping[str, Any]:
    """Returns the arguments of a call of `exec_all`, without those that have their default values."""
    if isinstance(commands, str):
        raise UsageError(f"commands must be a list of commands, not the text {commands[:60]!r}: put it into a list")
    descriptions = []
    for place, each in enumerate(commands):
        one = Command(each) if isinstance(each, str) else each
        if not isinstance(one, Command):
            raise UsageError(f"commands[{place}] must be a text or a tvsnap.types.Command, not {each!r}")
        facts = {"command": one.command, "cwd": one.cwd, "env": dict(one.env), "separate": one.separate}
        descriptions.append({name: value for name, value in facts.items() if value or name == "command"})
    return {"commands": descriptions, **({"user": user} if user is not None else {})}


def results_of(result: ToolResult) -> list[ToolResult]:
    """Returns the results of a call's commands, each as a call of `exec` would have returned it."""
    if result.parts[0].media_type != JSON:
        raise UsageError(f"the environment's own tool exec_all returned no list of results, but {result.output[:60]!r}")
    results = []
    for values in json.loads(result.output):
        parts: tuple[Part, ...] = (Part.text(values["output"]),)
        if "stderr" in values:
            parts += (Part(STDERR, values["stderr"]),)
        flags = {name: values.get(name, False) for name in ("timed_out", "blocked", "truncated")}
        results.append(ToolResult(parts, values["exit_code"], result.duration, **flags, source=result.source))
    return results
