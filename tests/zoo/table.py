"""Reads the table of programs and that of the images they are in: `images.yaml`, and the files in `programs/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
EQUAL, REFUSED, DIFFERS, FAILED, MISSING = "kept and equal", "refused", "differs", "failed", "not installed"
RESULTS = (EQUAL, REFUSED, DIFFERS, FAILED, MISSING)
"""What a program can come to, the best first."""
TIMEOUT = 120.0
"""Seconds for a call that takes far less."""
_TOOLS = {"bash": "command", "exec": "command", "keys": "keys", "screen": ""}


@dataclass(frozen=True)
class Step:
    """One call.

    Attributes:
        tool: `bash`, `exec`, `keys`, `screen` or `write_file`.
        arguments: of the tool.
        shows: a text that the call must return; of `keys` and `screen`, one that the screen must come to show.
        timeout: seconds.
    """

    tool: str
    arguments: Mapping[str, str]
    shows: str = ""
    timeout: float = TIMEOUT

    def __str__(self) -> str:
        return f"{self.tool} {' '.join(self.arguments.values())}".strip()


@dataclass(frozen=True)
class Program:
    """One entry of the table.

    Attributes:
        name: what it is called.
        group: the file that it is in, which is a heading of the page.
        image: a name in `images.yaml`, or `terminal`.
        does: what is running when the snapshot is taken, in words.
        files: contents by path; they are written before anything is started.
        start: how it is started, and what is asked of it before the snapshot.
        after: what is asked of it after the snapshot, in each fork and where it went on.
        ignore: regular expressions of what legitimately differs.
        expected: the result that is expected, `differs: screen` for example.
        in_suite: whether pytest runs it.
    """

    name: str
    group: str
    image: str
    does: str
    start: tuple[Step, ...]
    after: tuple[Step, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    expected: str = EQUAL
    in_suite: bool = False


@dataclass(frozen=True)
class ZooImage:
    """The packages that several programs share, on top of the image `terminal`.

    Attributes:
        name: of the image.
        apt: packages of Debian.
        pip: requirements, installed with the image's own pip.
        npm: packages, installed in /opt/node.
        run: commands of the build.
    """

    name: str
    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


def programs() -> list[Program]:
    """Returns the table, in its order."""
    order = _read(FOLDER / "images.yaml")["groups"]
    return [
        _program(group, name, entry)
        for group in order
        for name, entry in _read(FOLDER / "programs" / f"{group}.yaml").items()
    ]


def groups() -> dict[str, str]:
    """Returns the headings of the groups by their names."""
    return dict(_read(FOLDER / "images.yaml")["groups"])


def images() -> dict[str, ZooImage]:
    """Returns the images by their names."""
    found = _read(FOLDER / "images.yaml")["images"]
    return {
        name: ZooImage(name, **{key: tuple(value) for key, value in entry.items()}) for name, entry in found.items()
    }


def rank(result: str) -> int:
    """Returns how good a result is: 0 is the best.

    Args:
        result: one of `RESULTS`, perhaps with a colon and words behind it.
    """
    return RESULTS.index(result.partition(":")[0])


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _program(group: str, name: str, entry: dict[str, Any]) -> Program:
    start, after = (tuple(_step(step) for step in entry.pop(part, ())) for part in ("start", "after"))
    ignore = tuple(entry.pop("ignore", ()))
    return Program(name, group, start=start, after=after, ignore=ignore, **entry)


def _step(entry: str | dict[str, Any]) -> Step:
    if isinstance(entry, str):
        return Step("bash", {"command": entry})
    given = dict(entry)
    tool = next(name for name in _TOOLS if name in given)
    argument = given.pop(tool)
    return Step(tool, {_TOOLS[tool]: argument} if _TOOLS[tool] else {}, **given)
