"""Configuration files as trees of values that know where they stand: every complaint names file, key and reason."""

from __future__ import annotations

import datetime
import math
import re
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import yaml

from tvsnap.images.errors import ImageSpecError
from tvsnap.images.small_files import read_small_text
from tvsnap.model.arguments import LONGEST

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load_yaml(path: Path) -> Node:
    """Reads a YAML file.

    Raises:
        ImageSpecError: it cannot be read, or is no YAML.
    """
    try:
        value = yaml.load(_text(path), Loader=_Loader)
        if _size(value, {}) > _MOST_VALUES:
            raise ImageSpecError(f"{path}: its aliases stand for more than {_MOST_VALUES:,} values")
        return Node(path, "", value)
    except yaml.YAMLError as error:
        raise ImageSpecError(f"{path}: {_yaml_reason(error)}") from None
    except RecursionError:
        raise ImageSpecError(f"{path}: it is nested too deeply") from None


def load_toml(path: Path) -> Node:
    """Reads a TOML file; see `load_yaml`."""
    try:
        return Node(path, "", tomllib.loads(_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise ImageSpecError(f"{path}: {error}") from None
    except RecursionError:
        raise ImageSpecError(f"{path}: it is nested too deeply") from None


def _text(path: Path) -> str:
    try:
        return read_small_text(path)
    except OSError as error:
        raise ImageSpecError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ImageSpecError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None


def _size(value: object, known: dict[int, int]) -> int:
    """Returns how many values there are in one, each counted wherever it is named."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(value)]


_MOST_VALUES = 100_000
_MOST_KEYS = 10_000
"""Of one mapping, with those that it merges (`<<: *defaults`): merges of merges multiply."""
_BOOL, _TIME, _MERGE = (f"tag:yaml.org,2002:{name}" for name in ("bool", "timestamp", "merge"))


class _Loader(yaml.SafeLoader):
    """YAML in which a key given twice is an error, and `yes`, `no`, `on`, `off` and dates are words, as in 1.2."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is given twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MOST_KEYS:
            raise yaml.constructor.ConstructorError(
                None, None, f"merges make it more than {_MOST_KEYS} keys", node.start_mark
            )


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, _TIME)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF"))


def _yaml_reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error).splitlines()[0]


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?([Zz]|[+-]\d\d:\d\d)?)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file, and where it stands, so that complaints can say so.

    Every method that reads it raises `ImageSpecError` if it is of another kind.

    Attributes:
        path: of the file.
        key: where the value is, as `build.args`; empty for the whole.
        value: as YAML or TOML gives it.
    """

    path: Path
    key: str
    value: object

    def fail(self, reason: str) -> NoReturn:
        """Raises `ImageSpecError` about this value."""
        place = f"{self.path}: {self.key}" if self.key else f"{self.path}"
        raise ImageSpecError(f"{place}: {reason}")

    def child(self, key: str | int, value: object) -> Node:
        """A value in this one."""
        if isinstance(key, int):
            return Node(self.path, f"{self.key}[{key}]", value)
        return Node(self.path, f"{self.key}.{key}" if self.key else key, value)

    def mapping(self, allowed: tuple[str, ...]) -> dict[str, Node]:
        """A mapping with no other keys than these."""
        if not isinstance(self.value, dict):
            self.fail(f"must be a mapping with the keys {listed(allowed)}, not {kind(self.value)}")
        for key in self.value:
            if key not in allowed:
                self.child(str(key), None).fail(f"unknown key; allowed here: {listed(allowed)}")
        return {key: self.child(key, value) for key, value in self.value.items()}

    def entries(self) -> dict[str, Node]:
        """A mapping with any keys; an empty one for nothing."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            self.fail(f"must be a mapping, not {kind(self.value)}")
        return {str(key): self.child(str(key), value) for key, value in self.value.items()}

    def sequence(self) -> list[Node]:
        """A list; an empty one for nothing."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.fail(f"must be a list, not {kind(self.value)}")
        return [self.child(index, value) for index, value in enumerate(self.value)]

    def text(self, pattern: re.Pattern[str] | None = None, expected: str = "a string") -> str:
        """A string that fits the pattern as a whole."""
        if not isinstance(self.value, str):
            self.fail(f"must be {expected}, not {kind(self.value)}")
        if "\0" in self.value:
            self.fail("must not hold a null character")
        if pattern and not pattern.fullmatch(self.value):
            self.fail(f"must be {expected}, not {self.value!r}")
        return self.value

    def scalar(self) -> str:
        """A string, a number or a truth value, as text."""
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        if isinstance(self.value, (dict, list)) or self.value is None:
            self.fail(f"must be a string or a number, not {kind(self.value)}")
        return Node(self.path, self.key, str(self.value)).text()

    def truth(self) -> bool:
        """A truth value."""
        if not isinstance(self.value, bool):
            self.fail(f"must be true or false, not {kind(self.value)}")
        return self.value

    def number(self, expected: str, least: float = 0) -> float:
        """A number above `least`, also as a string."""
        try:
            number = float(self.scalar())
        except ValueError:
            number = math.nan
        if not least < number < math.inf:
            self.fail(f"must be {expected}, not {self.value!r}")
        return number

    def seconds(self) -> float:
        """A number of seconds, also as a string."""
        seconds = self.number("a number of seconds above 0")
        if seconds > LONGEST:
            self.fail(f"must be at most {LONGEST} seconds, which is a year, not {self.value!r}")
        return seconds

    def size(self) -> int:
        """Bytes, as a number or with a unit of 1024s: 536870912, "512M", "1.5g", "2GiB"."""
        found = _SIZE.fullmatch(self.scalar().strip())
        size = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
        if size <= 0:
            self.fail(f'must be a size as "512M" or "2G", not {self.value!r}')
        return size

    def moment(self, expected: str) -> int:
        """A date, or a date and a time, as ISO 8601 has them; in UTC where it does not say. Seconds since 1970."""
        text = self.text(expected=expected).strip()
        try:
            if not _MOMENT.fullmatch(text):
                raise ValueError
            moment = datetime.datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text))
        except ValueError:
            self.fail(f"must be {expected}, not {self.value!r}")
        return int((moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)).timestamp())

    def inside_path(self) -> str:
        """An absolute path inside the image, without `..`."""
        text = self.text()
        if not text.startswith("/") or ".." in PurePosixPath(text).parts:
            self.fail(f"must be an absolute path without '..', not {text!r}")
        return text

    def existing(self, folder: Path, expected: str, right: Callable[[Path], bool]) -> Path:
        """A path on this machine, relative to the image's folder."""
        path = folder / Path(self.text(expected=f"the path of {expected}")).expanduser()
        try:
            if not path.exists():
                self.fail(f"{path} does not exist; it must be {expected}")
            if not right(path):
                self.fail(f"{path} is not {expected}")
        except OSError as error:
            self.fail(f"{path}: {error.strerror}")
        return path


def listed(names: tuple[str, ...]) -> str:
    """Names in one line."""
    return ", ".join(names)


def kind(value: object) -> str:
    """What a value is, in words."""
    if value is None:
        return "empty"
    names = {bool: "a truth value", int: "a number", float: "a number", str: "a string", list: "a list"}
    name = names.get(type(value), "a mapping" if isinstance(value, dict) else type(value).__name__)
    return f"{name} ({value!r})" if isinstance(value, (bool, int, float)) else name
