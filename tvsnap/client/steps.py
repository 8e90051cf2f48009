"""Operations as steps, each a request or something that blocks: written once, done by threads or by an event loop."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from tvsnap.client.transport import Transport

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that is answered with JSON.

    Attributes:
        method: the method of HTTP.
        path: the path with its query.
        body: JSON, or bytes; None for nothing.
        key: by which the server tells that it is sent again.
    """

    method: str
    path: str
    body: Any = None
    key: str = field(default_factory=lambda: secrets.token_hex(12))


Step = Ask | Callable[[Transport], Any]
Steps = Generator[Step, Any, T]
"""An operation: it yields what is to be done, is sent what that came to, and returns what the operation came to."""


def in_turn(transport: Transport, steps: Steps[T]) -> T:
    """Returns what an operation comes to whose steps are done one after the other by this thread."""

    def do(step: Step) -> Any:
        if isinstance(step, Ask):
            return transport.ask(step.method, step.path, step.body, step.key)
        return step(transport)

    try:
        step = next(steps)
        while True:
            try:
                done = do(step)
            except BaseException as error:  # noqa: PERF203
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class Blocking(Generic[S]):
    """What has methods that block in the place of another object's, which are steps."""

    _transport: Transport
    _steps: S

    def _do(self, steps: Steps[T]) -> T:
        return in_turn(self._transport, steps)


class Awaited(Generic[S]):
    """What has methods to be awaited in the place of another object's, which are steps."""

    _steps: S

    async def _do(self, steps: Steps[T]) -> T:
        """Returns what an operation comes to."""
        raise NotImplementedError


def blocking(method: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[Blocking[S], P], T]:
    """Returns a method that does the steps of another and blocks, with its signature and its docstring."""

    @functools.wraps(method)
    def call(self: Blocking[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._do(method(self._steps, *args, **kwargs))

    return call


def awaited(
    method: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[Awaited[S], P], Coroutine[Any, Any, T]]:
    """Returns a method that is awaited and does the steps of another, with its signature and its docstring."""

    @functools.wraps(method)
    async def call(self: Awaited[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._do(method(self._steps, *args, **kwargs))

    return call
