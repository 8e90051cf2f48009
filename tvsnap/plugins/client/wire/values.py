"""Values of tvsnap as plain JSON and back.

Dataclasses are objects, named tuples are arrays, bytes are in base 64, and infinite numbers are null.
"""

from __future__ import annotations

import base64
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from tvsnap.model.errors import InfrastructureError

T = TypeVar("T")
BASE64 = "base64"


def to_data(value: Any) -> Any:
    """Returns a value as plain JSON.

    Args:
        value: None, a number, text, bytes, a path, a dataclass, a mapping with texts as keys, or a sequence or set of
            these.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return {BASE64: base64.b64encode(value).decode()}
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value):
        return {field.name: to_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_data(one) for key, one in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(to_data(one) for one in value)
    return [to_data(one) for one in value]


def from_data(kind: type[T], data: Any) -> T:
    """Returns the value of a type from a result of `to_data`; members that the type lacks are ignored.

    Args:
        kind: the type.
        data: plain JSON.

    Raises:
        InfrastructureError: it is no such value.
    """
    try:
        return cast("T", _reader(cast("Any", kind))(data))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        name = getattr(kind, "__name__", str(kind))
        raise InfrastructureError(f"the server's answer is no {name} ({error!r}); is it of another version?") from None


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Returns the function that makes values of a type out of JSON."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal or kind in (str, bool, int, Any):
        return lambda data: data
    if kind is float:
        return lambda data: math.inf if data is None else float(data)
    if kind is bytes:
        return lambda data: base64.b64decode(data[BASE64])
    if kind is Path:
        return Path
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        readers = [(field.name, _reader(hints[field.name])) for field in fields(kind) if field.init]
        return lambda data: kind(**{name: reader(data[name]) for name, reader in readers if name in data})
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        members = [_reader(hint) for hint in typing.get_type_hints(kind).values()]
        return lambda data: kind(*(reader(one) for reader, one in zip(members, data, strict=False)))
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        each = _reader(arguments[0])
        return lambda data: tuple(map(each, data))
    if origin is tuple:
        readers_of = [_reader(argument) for argument in arguments]
        return lambda data: tuple(reader(one) for reader, one in zip(readers_of, data, strict=True))
    if origin in (dict, Mapping):
        key, each = arguments[0], _reader(arguments[1])
        return lambda data: {int(name) if key is int else name: each(one) for name, one in data.items()}
    if origin in (frozenset, AbstractSet):
        each = _reader(arguments[0])
        return lambda data: frozenset(map(each, data))
    if origin in (list, Sequence):
        each = _reader(arguments[0])
        return lambda data: list(map(each, data))
    raise TypeError(f"{kind} has no form in JSON")


def _union(arguments: tuple[Any, ...]) -> Callable[[Any], Any]:
    others = [one for one in arguments if one is not type(None)]
    if others == [str, bytes] or others == [bytes, str]:
        return lambda data: base64.b64decode(data[BASE64]) if isinstance(data, dict) else data
    if len(others) != 1:
        raise TypeError(f"a value that is one of {others} has no form in JSON")
    reader = _reader(others[0])
    return lambda data: None if data is None else reader(data)
