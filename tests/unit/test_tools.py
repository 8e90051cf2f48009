"""Tools that are functions: their schemas, what they take, what they return; and environments that are found."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from tests.fakes.backend import FakeBackend, fake_image
from tests.fakes.caches import FakeImages
from tvsnap import Cache, Sandbox, ToolCall, ToolEnvironment, ToolResult, UsageError, tool
from tvsnap.environments import environment
from tvsnap.environments.tools import check_call
from tvsnap.errors import ToolFailed
from tvsnap.types import CallContext, Part


@tool
def everything(
    sandbox: Sandbox,
    context: CallContext,
    text: str,
    number: float,
    kind: Literal["a", "b"],
    pair: list[int],
    table: dict[str, bool],
    count: Annotated[int, {"minimum": 1}, "how many"] = 1,
    either: int | str = "",
    nothing: str | None = None,
    anything: Any = None,
) -> str:
    """Does
    all of it.
    """
    return f"{sandbox is context.sandbox} {text} {number} {kind} {pair} {table} {count} {either} {nothing} {anything}"


GOOD = {"text": "t", "number": 1.5, "kind": "a", "pair": [1, 2], "table": {"x": True}}


def test_a_schema_is_derived() -> None:
    assert (everything.name, everything.description) == ("everything", "Does all of it.")
    assert everything.parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "number": {"type": "number"},
            "kind": {"enum": ["a", "b"]},
            "pair": {"type": "array", "items": {"type": "integer"}},
            "table": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "count": {"type": "integer", "minimum": 1, "description": "how many"},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "nothing": {"type": "string"},
            "anything": {},
        },
        "required": ["text", "number", "kind", "pair", "table"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": 1}, 'argument "text" must be a string, not number'),
        ({"text": "a\0"}, 'argument "text" must not hold a NUL'),
        ({"number": True}, 'argument "number" must be a number, not boolean'),
        ({"number": 2**70}, "is too large a number"),
        ({"kind": "c"}, "argument \"kind\" must be one of 'a', 'b', not 'c'"),
        ({"pair": ["x"]}, 'argument "pair"[0] must be an integer, not string'),
        ({"table": {"x": 1}}, "argument \"table\"['x'] must be a boolean, not number"),
        ({"count": 0}, 'argument "count" must be at least 1, not 0'),
        ({"either": None}, 'argument "either"'),
        ({"nothing": None}, 'argument "nothing" must be a string, not null'),
        ({"other": 1}, 'unknown argument "other"; everything takes text, number, kind, pair, table, [count]'),
        ({"sandbox": 1}, 'unknown argument "sandbox"'),
    ],
)
def test_what_it_does_not_take(change: dict[str, Any], words: str) -> None:
    everything.check(GOOD)
    with pytest.raises(UsageError) as refused:
        everything.check({**GOOD, **change})
    assert words in str(refused.value)


_ROWS = {
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    },
}


@tool
def nested(rows: Annotated[list, _ROWS]) -> str:  # type: ignore[type-arg]
    """Takes objects."""
    return ""


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"name": 1}], "argument \"rows\"[0]['name'] must be a string, not number"),
        ([{"name": "a"}, {}], 'argument "rows"[1]: "name" is missing'),
        ([{"name": "a", "age": 1}], 'argument "rows"[0]: unknown "age"; have: name'),
        ([{"name": "a\0"}], "argument \"rows\"[0]['name'] must not hold a NUL character"),
        ([{"a\0": "a"}], "argument \"rows\"[0]: the name 'a\\x00' must not hold a NUL character"),
    ],
)
def test_what_it_does_not_take_within_an_argument(rows: list[Any], words: str) -> None:
    nested.check({"rows": [{"name": "a"}]})
    with pytest.raises(UsageError) as refused:
        nested.check({"rows": rows})
    assert str(refused.value) == f"nested: {words}" + ("" if "NUL" in words else "; nested takes rows")


def test_what_is_missing() -> None:
    with pytest.raises(UsageError, match='argument "number" is missing'):
        everything.check({"text": "t"})
    with pytest.raises(UsageError, match="arguments must be an object, not array"):
        everything.check(["text"])
    with pytest.raises(UsageError, match='unknown tool "nothing"; have: everything'):
        check_call({"everything": everything}, ToolCall("nothing", {}))


def test_a_type_without_a_schema() -> None:
    def odd(where: Path) -> str:
        return ""

    def many(*words: str) -> str:
        return ""

    with pytest.raises(UsageError, match=r"the parameter where is of the type .*Path"):
        tool(odd)
    with pytest.raises(UsageError, match=r"the parameter \*words"):
        tool(many)
    schema = {"type": "object", "properties": {"where": {"type": "string"}}}
    assert tool(parameters=schema)(odd).parameters == schema


@pytest.mark.parametrize(
    ("returned", "parts"),
    [
        ("text", (Part.text("text"),)),
        (Part.png(b"p"), (Part.png(b"p"),)),
        ([Part.text("a"), Part.png(b"p")], (Part.text("a"), Part.png(b"p"))),
        ({"a": [1]}, (Part("application/json", '{"a":[1]}'),)),
        ([], (Part("application/json", "[]"),)),
        (ToolResult.of_text("x", 3, 0.0), (Part.text("x"),)),
    ],
)
def test_what_it_returns(returned: object, parts: tuple[Part, ...]) -> None:
    result = everything.returned(returned, 1.5)
    assert (result.parts, result.duration) == (parts, 1.5)


def test_what_is_no_json() -> None:
    with pytest.raises(UsageError, match="plain JSON"):
        everything.returned(math.nan, 0.0)


@tool
def fails(sandbox: Sandbox, how: str) -> str:
    """Fails."""
    if how == "told":
        raise ToolFailed("no such thing")
    return sandbox.read_file("/nowhere").decode()


COUNTING = ToolEnvironment("counting", "1", (everything, fails))


class Another(ToolEnvironment):
    """An environment that is made when it is wanted."""

    def __init__(self) -> None:
        super().__init__("another", "1", (fails,))


def test_an_environment_of_functions(tmp_path: Path) -> None:
    images = FakeImages(replace(fake_image(), environment="counting"))
    with (
        Cache(tmp_path, backend=FakeBackend(), images=images, environments=[COUNTING]) as cache,
        cache.rollout(images.image.name) as rollout,
    ):
        assert rollout.call("everything", GOOD).output == "True t 1.5 a [1, 2] {'x': True} 1  None None"
        assert rollout.call("everything", GOOD).source == "hit"
        assert (rollout.call("fails", {"how": "told"}).output, rollout.unshared) == ("no such thing\n", None)
        missing = rollout.call("fails", {"how": "by itself"})
        assert (missing.output, missing.exit_code) == ("fails: No such file or directory\n", 1)


def test_environments_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "others_environments", sys.modules[__name__])
    with pytest.raises(UsageError, match='environment "counting" not found; have: mariadb'):
        environment("counting")
    monkeypatch.setenv("TVSNAP_ENVIRONMENTS", "others_environments:COUNTING, others_environments:Another")
    assert environment("counting") is COUNTING
    assert isinstance(environment("another"), Another)
    assert environment("terminal").name == "terminal"
    monkeypatch.setenv("TVSNAP_ENVIRONMENTS", "others_environments:MISSING")
    with pytest.raises(UsageError, match="environment others_environments:MISSING cannot be loaded: AttributeError"):
        environment("third")
    monkeypatch.setenv("TVSNAP_ENVIRONMENTS", "others_environments:GOOD")
    with pytest.raises(UsageError, match=r"an environment must be a tvsnap.Environment, with a method tool"):
        environment("third")


def test_a_description_cannot_have_anything_imported() -> None:
    with pytest.raises(UsageError, match="TVSNAP_ENVIRONMENTS says where it is"):
        environment("os:abort")


def test_names_that_are_there_twice() -> None:
    with pytest.raises(UsageError, match="the tool fails is there twice"):
        ToolEnvironment("twice", "1", (fails, fails))
