"""Tool calls and their results: the canonical form, and the keys and state names made from it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from tvsnap.model.errors import UsageError

Source = Literal["hit", "coalesced", "executed"]
DEFAULT_TIMEOUT = 30.0
"""Seconds that a rollout's call may take by default."""
MAIN_ARGUMENTS = ("command", "query", "code", "what", "path", "keys", "sql")
"""Names of the argument that describes a call, in tools that have one."""
TEXT, JSON, PNG, STDERR = "text/plain", "application/json", "image/png", "text/x-stderr"
"""Media types of parts of a result."""


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical_json(value: object) -> str:
    """Returns `value` as JSON with sorted keys and no insignificant space.

    Raises:
        UsageError: it contains something that JSON cannot express (NaN, sets, bytes, ...).
    """
    try:
        return _canonical(value)
    except (TypeError, ValueError) as error:
        key = _odd_key(value)
        reason = error if key is None else f"the key {key!r} is no string"
        raise UsageError(f"tool arguments must be plain JSON: {reason}") from None


def _odd_key(value: object, levels: int = 50) -> object | None:
    """Returns a key that is no string, if there is one in the outer levels of a value that is not JSON."""
    within: Iterable[object] = ()
    if levels and isinstance(value, Mapping):
        odd: object = next((key for key in value if not isinstance(key, str)), None)
        if odd is not None:
            return odd
        within = value.values()
    elif levels and isinstance(value, (list, tuple)):
        within = value
    return next((key for one in within if (key := _odd_key(one, levels - 1)) is not None), None)


def digest(*parts: str) -> str:
    """Returns the SHA-256 of `parts` as 64 hex digits; each part is length-prefixed, so none can imitate two."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(b"%d:" % len(data))
        hasher.update(data)
    return hasher.hexdigest()


@dataclass(frozen=True)
class ToolCall:
    """A tool's name and its arguments.

    Attributes:
        name: the tool's name, for example `bash`.
        arguments: its arguments as plain JSON.
    """

    name: str
    arguments: Mapping[str, Any]

    @cached_property
    def canonical(self) -> str:
        """The call in canonical JSON. Two calls are the same if their canonical JSON is equal."""
        return canonical_json({"arguments": self.arguments, "name": self.name})

    @property
    def brief(self) -> str:
        """The call in a few words, for messages: `bash "make test"`."""
        if not self.arguments:
            return self.name
        texts = (self.arguments.get(name) for name in MAIN_ARGUMENTS)
        text = next((text for text in texts if isinstance(text, str)), canonical_json(self.arguments))
        text = " ".join(text.split())
        # Quoted by JSON, because the text comes from an agent: a message must not control somebody's terminal.
        return f"{self.name} {json.dumps(text if len(text) <= 60 else text[:57] + '...', ensure_ascii=False)}"

    @cached_property
    def key(self) -> str:
        """The call's hash, 64 hexadecimal digits."""
        return digest("call", self.canonical)

    @classmethod
    def from_canonical(cls, text: str) -> ToolCall:
        """Returns the call that has this canonical JSON.

        Args:
            text: the value of `canonical` of that call.
        """
        data = json.loads(text)
        return cls(data["name"], data["arguments"])


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the result of a tool call.

    Attributes:
        media_type: its type, such as `text/plain`, `application/json` or `image/png`.
        data: text as a string; anything else as bytes.
    """

    media_type: str
    data: str | bytes

    @classmethod
    def text(cls, text: str) -> Part:
        """Returns a part of plain text.

        Args:
            text: the text.
        """
        return cls(TEXT, text)

    @classmethod
    def json(cls, value: object) -> Part:
        """Returns a part of canonical JSON.

        Args:
            value: anything that JSON can express.

        Raises:
            UsageError: JSON cannot express `value`.
        """
        return cls(JSON, canonical_json(value))

    @classmethod
    def png(cls, data: bytes) -> Part:
        """Returns a part that is a picture in the PNG format.

        Args:
            data: the contents of a PNG file.
        """
        return cls(PNG, data)

    def as_json(self) -> dict[str, str]:
        """Returns it as plain JSON: `media_type`, and its data as `text`, or in base 64 as `base64`."""
        if isinstance(self.data, str):
            return {"media_type": self.media_type, "text": self.data}
        return {"media_type": self.media_type, "base64": base64.b64encode(self.data).decode()}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call, and its duration.

    Attributes:
        parts: the parts that the agent sees, in order.
        exit_code: the command's exit status; None if it has none (a file tool, a command that timed out).
        duration: seconds that the call took when it was executed; the same in every later hit.
        timed_out: the call was ended by its timeout.
        blocked: it timed out while merely waiting (no processor time used), so it always would.
        truncated: the output was longer than the limit and was cut in the middle.
        source: `hit` (from the graph), `coalesced` (from another rollout that was executing the call), `executed`.
        cost: the cost of executing the call beyond time, by unit, as {"usd": 0.002}; see `Tool.cost`.
        strain: the reason why the load of the machine may have influenced it, see `tvsnap.engine.execution.strain`;
            None if nothing suggests that.
        processor_s: seconds of processor time that its sandbox used during its execution; None if that is not known.
    """

    parts: tuple[Part, ...]
    exit_code: int | None
    duration: float
    timed_out: bool = False
    blocked: bool = False
    truncated: bool = False
    source: Source = "executed"
    cost: Mapping[str, float] = field(default_factory=dict, hash=False)
    strain: str | None = None
    processor_s: float | None = field(default=None, hash=False)

    @classmethod
    def of_text(
        cls,
        output: str,
        exit_code: int | None,
        duration: float,
        *,
        timed_out: bool = False,
        blocked: bool = False,
        truncated: bool = False,
    ) -> ToolResult:
        """Returns the result of a call that returned plain text.

        Args:
            output: the text that the agent sees.
            exit_code: the command's exit status; None if it has none.
            duration: seconds that the call took.
            timed_out: the call was ended by its timeout.
            blocked: it timed out while merely waiting, so it always would.
            truncated: the text was longer than the limit and was cut in the middle.
        """
        return cls((Part(TEXT, output),), exit_code, duration, timed_out, blocked, truncated)

    @property
    def output(self) -> str:
        """The text that the agent sees: the parts that are text or JSON, one after the other."""
        if len(self.parts) == 1 and isinstance(self.parts[0].data, str):
            return self.parts[0].data
        return "".join(part.data for part in self.parts if isinstance(part.data, str) and part.media_type != STDERR)

    @property
    def stderr(self) -> str | None:
        """The standard error output, if the call asked for it to be kept separate; else None."""
        return next((str(part.data) for part in self.parts if part.media_type == STDERR), None)

    @property
    def attachments(self) -> tuple[Part, ...]:
        """The parts that are no text, such as pictures."""
        return tuple(part for part in self.parts if isinstance(part.data, bytes))

    def as_json(self) -> dict[str, Any]:
        """Returns it for the agent as plain JSON: `output`, `stderr` if separate, `parts` if there are others."""
        apart = {} if self.stderr is None else {"stderr": self.stderr}
        if not self.attachments:
            return {"output": self.output, **apart}
        return {"output": self.output, **apart, "parts": [part.as_json() for part in self.parts]}

    def from_source(self, source: Source) -> ToolResult:
        """Returns the same result with another source.

        Args:
            source: `hit`, `coalesced` or `executed`.
        """
        return self if source == self.source else replace(self, source=source)

    @property
    def fingerprint(self) -> str:
        """A hash of the values that an agent sees, 64 hexadecimal digits: equal if `same_value` holds."""
        facts = (str(self.exit_code), str(self.timed_out), str(self.truncated))
        return digest("result", *facts, *(text for part in self.parts for text in part.as_json().values()))

    def same_value(self, other: ToolResult) -> bool:
        """Returns whether an agent would see the same: parts, exit status, and whether it timed out or was cut.

        Args:
            other: the result to compare with.
        """
        return (
            self.parts == other.parts
            and self.exit_code == other.exit_code
            and self.timed_out == other.timed_out
            and self.truncated == other.truncated
        )


def root_state(
    *, image: str, environment: str, version: str, limits: str, network: str, platform: str, salt: str
) -> str:
    """Returns the hash that names the state of a freshly started image.

    Args:
        image: the image's digest.
        environment: the environment's name.
        version: the environment's version; raised when its tools behave differently.
        limits: canonical text of those limits that change behaviour.
        network: the network policy.
        platform: machine architecture, such as `x86_64`.
        salt: separates groups that must not share states; empty for none.
    """
    return digest("root", image, environment, version, limits, network, platform, salt)


def fork_seed(state: str, number: int) -> int:
    """Returns the number with which a fork of a state is reseeded; the same for the same two, and below 2**52.

    Args:
        state: the state.
        number: the fork's place among its siblings, from 0 on.
    """
    return int(digest("seed", state, str(number))[:13], 16)


def stateless_root(environment: str, version: str, salt: str) -> str:
    """Returns the hash under which the results of an environment's stateless tools are stored; see `root_state`."""
    return digest("stateless", environment, version, salt)


def next_state(parent: str, call: ToolCall, *, timeout: float | None = None, identity: str = "") -> str:
    """Returns the hash that names the state to which `call` leads from `parent`.

    Two executions of a call with different aftermaths lead to different states, so one name never stands for two
    contents.

    Args:
        parent: the state in which the call was made.
        call: the call.
        timeout: seconds; given only if the call ended by it, as a blocked call does.
        identity: distinguishes executions: the digest of the sandbox after this one (`Sandbox.digest`), or a random
            text if there is none; empty if every execution leaves the same behind.
    """
    return digest("state", parent, call.key, "" if timeout is None else repr(float(timeout)), identity)
