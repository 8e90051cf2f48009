"""Calls as TVCache's published agent writes them, for tools of the environment `video`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from tvsnap import UsageError

_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "load_video_into_sandbox": ("video_name",),
    "preprocess": (),
    "object_memory_querying": ("question",),
    "segment_localization": ("description",),
    "caption_retrieval": ("start_segment_ID", "end_segment_ID"),
    "visual_question_answering": ("question", "segment_ID"),
}
_WHOLE = re.compile(r"-?\d+")


def call_of(tool: str, inputs: str) -> tuple[str, dict[str, Any]]:
    """Returns name and arguments of a call whose inputs are one text, as the published agent writes them.

    Args:
        tool: the tool's name.
        inputs: the argument, or several between brackets: `('what is the man doing', 5)`; empty for `preprocess`.

    Returns:
        What `Rollout.call` takes.

    Raises:
        UsageError: there is no such tool, or the inputs are not its arguments.
    """
    names = _ARGUMENTS.get(tool)
    if names is None:
        raise UsageError(f"unknown tool {tool!r}; have: {', '.join(_ARGUMENTS)}")
    if len(names) < 2:
        return tool, dict.fromkeys(names, inputs)
    try:
        values = ast.literal_eval(inputs.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        values = None
    if not isinstance(values, tuple) or len(values) != len(names):
        raise UsageError(f"{tool} takes ({', '.join(names)}), not {inputs!r}")
    arguments = dict(zip(names, values, strict=True))
    for name in names:
        if name.endswith("_ID"):
            if not _WHOLE.fullmatch(str(arguments[name])):
                raise UsageError(f"{tool}: {name} must be a whole number, not {arguments[name]!r}")
            arguments[name] = int(arguments[name])
        else:
            arguments[name] = str(arguments[name])
    return tool, arguments
