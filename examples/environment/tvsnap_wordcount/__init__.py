"""An environment with a tool that reads a sandbox, one that changes it, and one that asks a service on the host."""

from __future__ import annotations

import re
from typing import Annotated

from tvsnap import Sandbox, TerminalEnvironment, tool
from tvsnap.errors import ToolFailed
from tvsnap.types import CallContext

MEANINGS = {"cat": "A small animal.", "tvsnap": "A cache of tool calls."}
"""Stands for a dictionary that is asked over a network, for money."""


@tool(read_only=True)
def count_words(sandbox: Sandbox, path: Annotated[str, "a text file"]) -> dict[str, int]:
    """Returns how often each word occurs in a text file."""
    words = re.findall(r"\w+", sandbox.read_file(path).decode("utf-8", "replace").lower())
    return {word: words.count(word) for word in sorted(set(words))}


@tool
def replace_word(context: CallContext, path: str, word: str, by: str) -> str:
    """Replaces a word in a text file, and returns how often it was there."""
    text = context.sandbox.read_file(path).decode("utf-8", "replace")
    changed, count = re.subn(rf"\b{re.escape(word)}\b", lambda _: by, text)
    if not count:
        raise ToolFailed(f"{path}: {word} is not there")
    context.sandbox.write_file(path, changed.encode())
    return f"replaced {count}\n"


@tool(on_host=True, stateless=True, time_to_live=86400, cost={"usd": 0.001})
def look_up(word: str) -> str:
    """Returns what a word means."""
    if word not in MEANINGS:
        raise ToolFailed(f"{word} is not in the dictionary")
    return f"{MEANINGS[word]}\n"


ENVIRONMENT = TerminalEnvironment("wordcount", "1", (count_words, replace_word, look_up))
