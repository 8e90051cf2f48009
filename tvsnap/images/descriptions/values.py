"""The types of values in descriptions, checked by pydantic, and the conversion of its errors to ours.

This is imported only if a description is read: pydantic takes as long to import as the rest of a short command.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    Strict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tvsnap.images.errors import ImageSpecError
from tvsnap.model.arguments import LONGEST
from tvsnap.model.errors import UsageError

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)

UNSAID: Any = None
"""The default of a key that may be missing, but not empty; see `said`."""


@dataclass(frozen=True, slots=True)
class Place:
    """The context of every check: the place of a description.

    Attributes:
        folder: of the image; files that the description names must be in it.
        file: the description.
        allow: directories outside the folder with files that the image may start from.
        variables: those that files of environment variables may refer to.
        notes: collects the parts of the description that a sandbox ignores.
    """

    folder: Path
    file: Path
    allow: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def here(self) -> Path:
        """The directory that relative paths start from."""
        return self.file.parent


def place_of(info: ValidationInfo) -> Place:
    """Returns the context of a check."""
    assert isinstance(info.context, Place)
    return info.context


def read(model: type[Model], path: Path, value: object, place: Place) -> Model:
    """Checks the contents of a file.

    Raises ImageSpecError, which names the file, the key and a right value.

    Args:
        model: the allowed contents.
        path: of the file.
        value: the parsed YAML or TOML.
        place: the context of checks.
    """
    try:
        return model.model_validate(value, context=place)
    except ValidationError as error:
        wrong: dict[str, Any] = {"ctx": {}, **error.errors(include_url=False)[0]}
    key = ""
    for part in (*wrong["loc"], wrong["ctx"].get("key", ())):
        # A part that the file does not have is pydantic's, or from the long form of an abbreviated value.
        if isinstance(value, list) and isinstance(part, int):
            key, value = f"{key}[{part}]", value[part]
        elif isinstance(value, dict) and part in value:
            key, value = f"{key}.{part}".lstrip("."), value[part]
    reason = wrong["msg"].removeprefix("Value error, ")
    if wrong["type"] in _EXPECTED:
        reason = f"must be {_EXPECTED[wrong['type']]}, not {kind(wrong['input'])}"
    raise ImageSpecError(": ".join(filter(None, (str(path), key, reason))))


def wrong_key(key: str, reason: str) -> PydanticCustomError:
    """Returns an error about a value for a check of the whole mapping."""
    return PydanticCustomError("key", "{reason}", {"key": key, "reason": reason})


_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "a string",
}


def listed(names: Iterable[object]) -> str:
    """Returns names in one line."""
    return ", ".join(map(str, names))


def kind(value: object) -> str:
    """Describes a value in words."""
    if value is None:
        return "empty"
    if isinstance(value, (bool, int, float)):
        return f"the {'truth value' if isinstance(value, bool) else 'number'} {value!r}"
    kinds = {"str": "a string", "list": "a list", "dict": "a mapping"}
    return kinds.get(type(value).__name__, type(value).__name__)


class Part(BaseModel):
    """A mapping with only these keys; a value that is no mapping counts as the value of the key `short`."""

    short: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def check_keys(cls, value: Any) -> Any:
        """Rejects unknown and missing keys, and replaces a short form by the long one."""
        keys = {definition.alias or name: definition for name, definition in cls.model_fields.items()}
        if cls.short and not isinstance(value, dict):
            return {cls.short: value}
        if not isinstance(value, dict):
            raise ValueError(f"must be a mapping with the keys {listed(keys)}, not {kind(value)}")
        for key in value:
            if key not in keys:
                raise wrong_key(key, f"unknown key; allowed here: {listed(keys)}")
        for key, definition in keys.items():
            if definition.is_required() and key not in value:
                raise ValueError(f"needs {key}, {definition.description}")
        return value

    def said(self) -> dict[str, Any]:
        """Returns the values in the description, by the names of their fields."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @classmethod
    def to(cls, build: Callable[..., Any]) -> PlainValidator:
        """Returns a validator that passes the mapping's values by name to a function, which may raise UsageError."""

        def make(value: object, info: ValidationInfo) -> Any:
            values = cls.model_validate(value, context=info.context).said()
            return checked(lambda _: build(**values))(None)

        return PlainValidator(make)


class Loose(BaseModel):
    """A mapping that may have other keys; a key with an empty value counts as missing."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def drop_empty(cls, value: Any) -> Any:
        """Drops keys without a value."""
        if isinstance(value, dict):
            return {str(key): item for key, item in value.items() if item not in (None, "")}
        return {} if value is None else value


def checked(check: Callable[[Any], T]) -> Callable[[Any], T]:
    """Adapts a check that raises UsageError for pydantic."""

    def validate(value: Any) -> T:
        try:
            return check(value)
        except UsageError as error:
            raise ValueError(str(error)) from None

    return validate


def not_what(expected: str, value: object) -> str:
    """Returns the message that a value is another one than expected."""
    return f"must be {expected}, not {repr(value) if isinstance(value, str) else kind(value)}"


def must_be(expected: str) -> WrapValidator:
    """Returns a validator with one message for every mistake, which describes a right value in these words."""

    def validate(value: object, check: ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except (ValueError, OverflowError):
            raise ValueError(not_what(expected, value)) from None

    return WrapValidator(validate)


def word(pattern: str, expected: str) -> BeforeValidator:
    """Returns a validator for a string that fully matches a pattern; `expected` describes such a string."""

    def validate(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(not_what(expected, value))
        return value

    return BeforeValidator(validate)


def existing(expected: str, right: Callable[[Path], bool], allow: bool = False) -> PlainValidator:
    """Returns a validator for a path in the image's folder or, with `allow`, in the directories allowed by the user."""

    def find(value: object, info: ValidationInfo) -> Path:
        if not isinstance(value, str):
            raise ValueError(f"must be the path of {expected}, not {kind(value)}")
        _without_null(value)
        place = place_of(info)
        try:
            path = place.here / Path(value).expanduser()
            if not path.exists():
                raise ValueError(f"{path} does not exist; it must be {expected}")
            if not right(path):
                raise ValueError(f"{path} is not {expected}")
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{value}: {getattr(error, 'strerror', None) or error}") from None
        # A description from elsewhere must not give agents access to the user's other files.
        allowed = (place.folder, *place.allow) if allow else (place.folder,)
        if not any(path.resolve().is_relative_to(at.resolve()) for at in allowed):
            way_out = "copy it there, or allow it (--allow)" if allow else "copy it there"
            raise ValueError(f"{path} lies outside the image's folder; {way_out}")
        return path

    return PlainValidator(find)


def scalar(value: object) -> str:
    """Returns a string, a number or a truth value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)) or value is None:
        raise ValueError(f"must be a string or a number, not {kind(value)}")
    return str(value)


def _items(value: object) -> list[object]:
    if value is not None and not isinstance(value, list):
        raise ValueError(f"must be a list, not {kind(value)}")
    return value or []


def _without_null(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a null character")
    return text


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?([Zz]|[+-]\d\d:\d\d)?)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def _size(value: object) -> int:
    match = _SIZE.fullmatch(scalar(value).strip())
    if not match or (size := int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))) <= 0:
        raise ValueError
    return size


def _moment(text: object) -> int:
    if not isinstance(text, str) or not _MOMENT.fullmatch(text.strip()):
        raise ValueError
    moment = datetime.datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text.strip()))
    return int((moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)).timestamp())


def _inside(text: str) -> str:
    if not text.startswith("/") or ".." in PurePosixPath(text).parts:
        raise ValueError
    return text


def _not_too_long(seconds: float) -> float:
    if seconds > LONGEST:
        raise ValueError(f"must be at most {LONGEST} seconds, which is a year, not {seconds!r}")
    return seconds


Text = Annotated[str, Strict(), AfterValidator(_without_null)]
Scalar = Annotated[Text, BeforeValidator(scalar)]
Many = Annotated[tuple[T, ...], FailFast(), BeforeValidator(_items)]
"""A list; None counts as an empty one."""

Float = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(scalar)]
"""A positive number, also as a string."""
Processors = Annotated[Float, must_be("how many processors' time, as 1.5")]
Seconds = Annotated[Float, must_be("a number of seconds above 0"), AfterValidator(_not_too_long)]
Size = Annotated[int, BeforeValidator(_size), must_be('a size as "512M" or "2G"')]
"""Bytes, as a number or with a binary unit: 536870912, "512M", "1.5g", "2GiB"."""
Moment = Annotated[int, BeforeValidator(_moment), must_be("a time as 2024-01-01T00:00:00Z")]
"""Seconds since 1970, from a date or a date and a time in ISO 8601; UTC if it has no zone."""
InsidePath = Annotated[Text, AfterValidator(_inside), must_be("an absolute path without '..'")]
Account = Annotated[
    str,
    word("[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?", "user or user:group, names or numbers"),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
]
Hostname = Annotated[str, word("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a host name of lower-case letters, digits and -")]
ImageReference = Annotated[
    str, word("[A-Za-z0-9][A-Za-z0-9._/:@-]*", "an image's reference or id, as debian:bookworm-slim")
]
