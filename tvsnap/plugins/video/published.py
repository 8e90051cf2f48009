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
_WHOLE = re.compile(r"-?\d{1,18}")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|(?<=\w)'(?=\w))*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
"""One text in quotes, in which apostrophes may be: 'what is the man's name'."""


def call_of(tool: str, inputs: str) -> tuple[str, dict[str, Any]]:
    """Returns name and arguments of a call whose inputs are one text, as the published agent writes them.

    Args:
        tool: the tool's name.
        inputs: the argument, with or without quotes around it, or several between brackets:
            `('what is the man doing', 5)`; of no matter for `preprocess`.

    Returns:
        What `Rollout.call` takes.

    Raises:
        UsageError: there is no such tool, or the inputs are not its arguments.
    """
    names = _ARGUMENTS.get(tool) if isinstance(tool, str) else None
    if names is None:
        raise UsageError(f"unknown tool {tool!r}; have: {', '.join(_ARGUMENTS)}")
    if not names:
        return tool, {}
    if not isinstance(inputs, str):
        raise UsageError(f"{tool}: inputs must be one text, such as the agent writes, not {inputs!r}")
    text = inputs.strip()
    if len(names) < 2:
        return tool, dict.fromkeys(names, _unquoted(text))
    try:
        values = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        values = None
    if not isinstance(values, tuple) or len(values) != len(names):
        raise UsageError(f"{tool} takes ({', '.join(names)}), not {inputs!r}")
    arguments = dict(zip(names, values, strict=True))
    for name in names:
        if name.endswith("_ID"):
            whole = isinstance(arguments[name], (int, str)) and _WHOLE.fullmatch(str(arguments[name]).strip())
            if not whole:
                raise UsageError(f"{tool}: {name} must be a whole number, not {arguments[name]!r}")
            arguments[name] = int(arguments[name])
        elif not isinstance(arguments[name], str):
            raise UsageError(f"{tool}: {name} must be a text in quotes, not {arguments[name]!r}")
    return tool, arguments


def _unquoted(text: str) -> str:
    """Returns a text without the quotes around it, if it has some."""
    if _QUOTED.fullmatch(text) is None:
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):  # an apostrophe between single quotes
        return text[1:-1]
    return str(value)
