"""Reads untrusted YAML and TOML within limits, with error messages that name the file and the reason."""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from tvsnap.images.descriptions.go_values import plain_value
from tvsnap.images.errors import ImageSpecError
from tvsnap.images.small_files import read_small_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load_yaml(path: Path, *, of_compose: bool = False) -> Any:
    """Reads a YAML file, `of_compose` with the values that Docker Compose reads.

    Raises ImageSpecError if it is unreadable or invalid.
    """
    try:
        value = yaml.load(_text(path), Loader=_ComposeLoader if of_compose else _Loader)
        if _size(value, {}) > _MOST_VALUES:
            raise ImageSpecError(f"{path}: its aliases stand for more than {_MOST_VALUES:,} values")
        return value
    except yaml.YAMLError as error:
        raise ImageSpecError(f"{path}: {_yaml_reason(error)}") from None
    except RecursionError:
        raise ImageSpecError(f"{path}: it is nested too deeply") from None
    except ValueError as error:  # PyYAML creates dates and numbers without checking them first
        raise ImageSpecError(f"{path}: {error}") from None


def load_toml(path: Path) -> Any:
    """Reads a TOML file; see `load_yaml`."""
    try:
        return tomllib.loads(_text(path))
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


def _size(value: object, sizes: dict[int, int]) -> int:
    """Returns how many values one consists of; aliases count each time."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in sizes:
        parts = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(value)]


_MOST_VALUES = 100_000
_BOOL, _TIME, _MERGE, _VALUE, _STR = (
    f"tag:yaml.org,2002:{name}" for name in ("bool", "timestamp", "merge", "value", "str")
)


class _Loader(yaml.SafeLoader):
    """YAML in which duplicate keys are errors, and `yes`, `no`, `on`, `off` and dates are strings, as in YAML 1.2."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._merged = 0

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in keys:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is given twice", key_node.start_mark
                    )
                keys.add(key)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Adds the keys of merged mappings (`<<: *defaults`) to a mapping; its own and earlier keys take precedence.

        PyYAML's own method multiplies the keys of nested merges in some versions and not in others.
        """
        merges = [value for key, value in node.value if key.tag == _MERGE]
        node.value = [pair for pair in node.value if pair[0].tag != _MERGE]
        for key, _ in node.value:
            if key.tag == _VALUE:
                key.tag = _STR
        if not merges:
            return
        identities = {_identity(key) for key, _ in node.value}
        merged = []
        for mapping in (part for value in merges for part in _mappings_of(value, node)):
            self.flatten_mapping(mapping)
            self._merged += len(mapping.value)
            if self._merged > _MOST_VALUES:
                raise yaml.constructor.ConstructorError(
                    None, None, f"its merges stand for more than {_MOST_VALUES:,} keys", node.start_mark
                )
            for pair in mapping.value:
                identity = _identity(pair[0])
                if identity not in identities:
                    identities.add(identity)
                    merged.append(pair)
        node.value = merged + node.value


def _mappings_of(value: yaml.Node, merging: yaml.MappingNode) -> list[yaml.MappingNode]:
    """Returns the mappings that a merge names: one, or a list of them."""
    parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
    for part in parts:
        if not isinstance(part, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(
                "while constructing a mapping",
                merging.start_mark,
                "what is merged is neither a mapping nor a list of mappings",
                part.start_mark,
            )
    return list(parts)


def _identity(key: yaml.Node) -> Hashable:
    """Returns an identity of a key before it is constructed; keys that are no scalars are compared later."""
    return (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, _TIME)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF"))


class _ComposeLoader(_Loader):
    """YAML as Docker Compose reads it; see `go_values`."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        is_plain = kind is yaml.ScalarNode and implicit[0] and value != "<<"
        return _PLAIN if is_plain else super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]


_PLAIN = "!plain"
_ComposeLoader.add_constructor(_PLAIN, lambda _, node: plain_value(node.value))


def _yaml_reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error).splitlines()[0]
