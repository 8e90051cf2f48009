"""Runs one step: `python3 video.pyz STEP REQUEST`, where REQUEST is JSON, or `@FILE` with JSON in it.

It prints JSON: the answer, or an object with the key `failed`, whose value is the tool's answer to the agent. Where the
request has the key `answer`, an answer that is no failure is written into that file, and nothing is printed.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from .media import Failed

_MODULES = {"load": "watching", "preprocess": "watching", "sample": "samples"}
"""The modules of steps that are not in `reading`; each is imported only where it is used."""


def main() -> int:
    """Returns the exit status: 0 if the step came to an answer, be it a failure of the tool."""
    name, text = sys.argv[1:]
    request = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    try:
        step = getattr(importlib.import_module(f".{_MODULES.get(name, 'reading')}", __package__), name)
        answer: dict[str, Any] = step(request)
        if "answer" in request:
            Path(request["answer"]).write_text(json.dumps(answer))
            return 0
    except Failed as failure:
        answer = {"failed": str(failure)}
    except OSError as error:
        answer = {"failed": f"the memory of the video cannot be read or written: {error.strerror or 'no reason given'}"}
    except MemoryError:
        answer = {"failed": "the sandbox has not enough memory for the video"}
    try:
        print(json.dumps(answer))
    except (TypeError, ValueError):  # of a memory whose rows were changed: it is no answer
        print("{}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
