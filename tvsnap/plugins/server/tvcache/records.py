"""The calls of TVCache's clients in the graph: each task has a root, and a history of calls names a state below it."""

from __future__ import annotations

import functools
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any

import msgspec

from tvsnap.graph import Edge, Graph, NewEdge, RootInfo
from tvsnap.model.arguments import check_text
from tvsnap.model.calls import JSON, TEXT, Part, ToolCall, ToolResult, next_state, root_state
from tvsnap.model.errors import UsageError

TOOL = "tvcache"
"""The tool of all these calls; its argument is the text by which a client names a call."""
ELSEWHERE = "(TVCache)"
"""The image name of the roots: what the clients' environments are made of is known to them only."""
TEST = '{"TV_CACHE_TOOL_TYPE": "TESTING TOOL"}'
"""The text that clients send in the place of a call where they test what the calls before have led to."""
MOST_CALLS = 1000
"""How many calls a history may have."""
LONGEST_NAME = 1024
"""How many characters the name of a task or of an environment may have."""
_NAMES_KEPT = 16_384
_LONGEST_KEPT = 2048
_VERSION = "1"


class Standing(Enum):
    """What the graph says about the calls that lead to a state."""

    ANSWERED = "answered"
    UNKNOWN = "unknown"
    """One of them was not recorded, or not yet."""
    VARYING = "varying"
    """One of them was seen to return something else when it was made again."""


class CallPath:
    """A task's calls, one after the other, and the names of the states that they lead to.

    Attributes:
        task: the task.
        texts: the calls, as the client names them.
        states: the states' names: that of the root, then that after each call.
    """

    def __init__(self, task: str, texts: Sequence[str]) -> None:
        """
        Args:
            task: the task's name.
            texts: the calls.

        Raises:
            UsageError: the task's name is no text, is empty or too long, there are too many calls, or a test is not
                the last of them.
        """
        check_name(task, "task_name")
        if len(texts) > MOST_CALLS:
            raise UsageError(f"a history of {len(texts)} calls is too long: it may have {MOST_CALLS}")
        if TEST in texts[:-1]:
            raise UsageError("a test must be the last call of a history, as nobody knows what it leaves behind")
        self.task = task
        self.texts = tuple(texts)
        self.states = [_root(task)]
        for text in texts:
            self.states.append(state_after(self.states[-1], text))

    @property
    def end(self) -> str:
        """The state to which all calls lead."""
        return self.states[-1]


class Records:
    """Records calls that were executed elsewhere, and answers them."""

    def __init__(self, graph: Graph) -> None:
        """
        Args:
            graph: the graph that they are in.
        """
        self._graph = graph

    def answer(self, path: CallPath) -> Edge | None:
        """Returns the record that answers the last call of a path; None if there is none, or no call.

        A call is answered only as long as all calls before it are: what follows a call that does something else each
        time cannot be known.
        """
        if not path.texts:
            return None

        def read() -> Edge | None:
            edge = self._graph.recorded(path.states[-2], _call(path.texts[-1]))
            if edge is None or not edge.deterministic or not self._graph.is_answered(path.states[-2]):
                return None
            return edge

        return self._graph.answered(path.end, read)

    def together(self) -> AbstractContextManager[None]:
        """Returns a block in which all that is recorded is written at once; see `Graph.together`."""
        return self._graph.together()

    def is_answered(self, state: str) -> bool:
        """Returns whether all calls that lead to a state are recorded and answered."""
        return self._graph.is_answered(state)

    def standing(self, path: CallPath, count: int | None = None) -> Standing:
        """Returns what is known about the first calls of a path, or about all."""
        for state, text in list(zip(path.states, path.texts, strict=False))[:count]:
            standing = self.of_call(state, text)
            if standing is not Standing.ANSWERED:
                return standing
        return Standing.ANSWERED

    def of_call(self, state: str, text: str) -> Standing:
        """Returns what is known about one call in a state."""
        edge = self._graph.recorded(state, _call(text))
        if edge is None:
            return Standing.UNKNOWN
        return Standing.ANSWERED if edge.deterministic else Standing.VARYING

    def count_hit(self, edge: Edge, task: str) -> None:
        """Counts that a record answered a call of a task."""
        self._graph.touch_hit(edge, task)

    def record(self, path: CallPath, start: int, values: Sequence[Any], seconds: Sequence[float]) -> int:
        """Records what calls returned, as far as they return the same whenever they are made.

        Args:
            path: the calls, with those that lead to the first of them, which are answered.
            start: how many calls of the path come before those that were made.
            values: what each returned: anything that JSON can express.
            seconds: how long each took.

        Returns:
            How many calls of the path are answered now. There are fewer than there were made where one of them was
            seen to return something else: it is not answered any more, nor is what follows.
        """
        if not start:
            self._graph.ensure_root(RootInfo(path.states[0], ELSEWHERE, "", TOOL, "{}", path.task, time.time()))
        for number, (value, duration) in enumerate(zip(values, seconds, strict=True), start):
            state, text = path.states[number], path.texts[number]
            call, result = _call(text), _result(value, duration)
            after = state if text == TEST else path.states[number + 1]
            new = NewEdge(state, call, result, next_state=after, task=path.task, on_host=True)
            edge = self._graph.record(new)  # the earlier record where there is one
            if not edge.deterministic:
                return number
            if not edge.result.same_value(result):
                self._graph.mark_nondeterministic(edge, "a client made the call again, and it returned something else")
                return number
        return start + len(values)

    def remove(self, path: CallPath) -> list[str]:
        """Deletes the calls of a path from its end upwards, as far as nothing else follows from them.

        Returns:
            The states that were deleted; none if the path is not recorded, or other calls follow from its end.
        """
        top = len(path.texts)
        if not top or not self._graph.is_answered(path.end):
            return []
        while top and not self._follows(path.states[top], path.states[top + 1 : top + 2]):
            top -= 1
        gone = path.states[top + 1 :]
        if gone:
            self._graph.forget(gone[0])
        return gone

    def children(self, state: str) -> int:
        """Returns how many calls that changed something were made in a state."""
        return len(self._graph.children(state))

    def tasks(self) -> dict[str, RootInfo]:
        """Returns the roots, by their tasks."""
        return {root.salt: root for root in self._graph.roots() if root.environment == TOOL}

    def calls(self) -> dict[str, list[Edge]]:
        """Returns all calls that are answered, by the states in which they were made, oldest first."""
        calls: dict[str, list[Edge]] = defaultdict(list)
        for edge in self._graph.calls_of([TOOL]):
            if edge.deterministic and edge.shared:
                calls[edge.state].append(edge)
        return calls

    def _follows(self, state: str, below: Sequence[str]) -> bool:
        """Returns whether calls follow from a state other than that which leads to `below`."""
        return any(child.hash not in below for child in self._graph.children(state))


def text_of(edge: Edge) -> str:
    """Returns the text by which clients name a call."""
    return str(edge.call.arguments["call"])


def value_of(edge: Edge) -> Any:
    """Returns what a call returned, as it was recorded."""
    part = edge.result.parts[0]
    return json.loads(part.data) if part.media_type == JSON else part.data


def encodable_value_of(edge: Edge) -> str | msgspec.Raw:
    """Returns what a call returned for an answer: JSON as the text that was recorded, which need not be read."""
    part = edge.result.parts[0]
    text = str(part.data)
    return msgspec.Raw(text.encode()) if part.media_type == JSON else text


def walk(root: str, calls: dict[str, list[Edge]]) -> Iterator[tuple[tuple[str, ...], str, list[Edge]]]:
    """Returns the states below a root, parents first: the calls that lead to each, its name, and the calls made there.

    Args:
        root: the root's name.
        calls: what `Records.calls` returns.
    """
    stack: list[tuple[tuple[str, ...], str]] = [((), root)]
    while stack:
        texts, state = stack.pop()
        here = calls.get(state, [])
        yield texts, state, here
        stack.extend(((*texts, text_of(edge)), edge.next_state) for edge in reversed(here) if edge.changed)


def state_after(state: str, text: str) -> str:
    """Returns the name of the state to which a call leads.

    Args:
        state: where it is made.
        text: the call.
    """
    return _kept_name(state, text) if len(text) <= _LONGEST_KEPT else next_state(state, _call(text))


def check_name(name: str, what: str) -> str:
    """Returns the name of a task or of an environment.

    Raises:
        UsageError: it is no text, is empty or too long.
    """
    if not 0 < len(check_text(name, what)) <= LONGEST_NAME:
        raise UsageError(f"{what} must have from 1 to {LONGEST_NAME} characters, not {len(name)}")
    return name


def _root(task: str) -> str:
    return root_state(
        image=ELSEWHERE, environment=TOOL, version=_VERSION, limits="{}", network="none", platform="", salt=task
    )


def _call(text: str) -> ToolCall:
    return ToolCall(TOOL, {"call": text})


@functools.lru_cache(_NAMES_KEPT)
def _kept_name(state: str, text: str) -> str:
    return next_state(state, _call(text))


def _result(value: Any, seconds: float) -> ToolResult:
    # A dictionary keeps the order of its keys, which an agent may see.
    part = Part(TEXT, value) if isinstance(value, str) else Part(JSON, json.dumps(value))
    return ToolResult((part,), None, seconds)
