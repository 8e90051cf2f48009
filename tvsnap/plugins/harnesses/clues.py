"""Clues in commands and outputs: random names, reads of logs, a missing network."""

from __future__ import annotations

import re
from pathlib import Path

_BY_CHANCE = re.compile(
    r"(\.hb-transfer-|runtime-tmux-paste-|runtime-paste-)([0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12})"
)
"""Names that Harbor 0.25 and its Terminus-2 use for temporary files in a sandbox."""
_READS_LOGS = re.compile(
    rb"(?i)(?<![\w.-])/logs(?![\w-])(?!/(?:verifier|artifacts)(?![\w-]))|agent[_-]?logs|trajectory\.json"
)
_NO_NETWORK = re.compile(
    r"(?i)temporary failure in name resolution|temporary failure resolving|could not resolve (host|'|proxy)|"
    r"name or service not known|network is unreachable|no route to host|getaddrinfo (EAI_AGAIN|ENOTFOUND)"
)
_SHOWN = 80  # characters of a line after the match


class Numbered:
    """Replaces a harness's random names by numbers, so that each trial makes the same calls."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """Returns a command or a path with each random name replaced by its number, in order of appearance."""

        def number(match: re.Match[str]) -> str:
            return match[1] + self._numbers.setdefault(match[2], f"{len(self._numbers):032x}")

        return _BY_CHANCE.sub(number, text)


def reads_agent_logs(what: str | Path) -> bool:
    """Returns whether a command (a text), a file, or one in a folder (a path) names the agent's logs."""
    if isinstance(what, str):
        return _READS_LOGS.search(what.encode(errors="replace")) is not None
    files = [what] if what.is_file() else [one for one in what.rglob("*") if one.is_file()]
    return any(_READS_LOGS.search(one.read_bytes()) for one in files)


def lacking_network(output: str) -> str | None:
    """Returns the first line of a command's output that reports a missing network, or None."""
    match = _NO_NETWORK.search(output)
    if match is None:
        return None
    begin = output.rfind("\n", 0, match.start()) + 1
    return output[begin : match.end() + _SHOWN].partition("\n")[0].strip()
