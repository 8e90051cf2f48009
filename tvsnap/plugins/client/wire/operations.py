"""Operations as JSON, by the types of their fields; see `tvsnap.model.operations.operation`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from tvsnap.model.operations.operation import HERE, Travels


class Member(NamedTuple):
    """A field of an operation as a member of a JSON object.

    Attributes:
        name: that of the field.
        kind: its type in JSON.
        default: its value if it is left out; `dataclasses.MISSING` if it has to be there.
        encode: returns its value in JSON; None for the value itself.
    """

    name: str
    kind: Any
    default: Any
    encode: Callable[[Any], Any] | None


_known: dict[type[Any], tuple[Member, ...]] = {}


def members(kind: type[Any]) -> tuple[Member, ...]:
    """Returns the fields of an operation that are part of its JSON.

    Args:
        kind: the operation's class.
    """
    if kind not in _known:
        _known[kind] = tuple(_members(kind))
    return _known[kind]


def _members(kind: type[Any]) -> Iterator[Member]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = hints[field.name]
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        travels = next((mark for mark in marks if isinstance(mark, Travels)), Travels(hint, None))
        if HERE not in marks:
            yield Member(field.name, travels.kind, field.default, travels.encode)


def as_json(operation: Any) -> dict[str, Any]:
    """Returns the JSON of an operation.

    A member with the default None is left out if it is None: an older server may not know it.

    Args:
        operation: the operation.
    """
    data = {}
    for name, _, default, encode in members(type(operation)):
        value = getattr(operation, name)
        if default or value != default:
            data[name] = value if encode is None else encode(value)
    return data
