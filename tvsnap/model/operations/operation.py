"""Operations as values, and what performs them.

A method of `RolloutMethods` or `CacheMethods` makes an operation and has `perform` perform it, in this process, at a
server, or at one of several. A parameter is defined here and used where the operation is executed; whatever lies
between passes operations on as they are. `tvsnap.wire.operations` makes JSON of them, by the types of their fields.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar

from tvsnap.model.arguments import LARGEST
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.network import Network, NetworkLike

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Travels:
    """How the values of a field get to a server, if not as they are.

    Attributes:
        kind: the type in JSON.
        encode: returns the value in JSON; None for the value itself.
    """

    kind: Any
    encode: Callable[[Any], Any] | None


@dataclass(frozen=True)
class Bounds:
    """The smallest and the largest value of a field that a server takes; None for any."""

    least: int
    most: int | None = None


HERE = object()
"""Marks a field that is not part of the JSON of its operation."""
Seconds = Annotated[float, Bounds(0)]
Count = Annotated[int, Bounds(1, 10_000)]
Epoch = Annotated[int, Bounds(0, LARGEST)]


def _image_name(image: object) -> object:
    return image.digest if isinstance(image, Image) else image


def hosts_of(network: NetworkLike) -> str | list[str] | None:
    """Returns a network policy as JSON."""
    if network is None:
        return None
    policy = Network.of(network)
    return "public" if policy.public else list(policy.allow)


def _list(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def _limits(limits: Limits | None) -> dict[str, Any] | None:
    return None if limits is None else asdict(limits)


ImageName = Annotated[str | Image, Travels(str, _image_name)]
Reach = Annotated[NetworkLike, Travels(str | list[str] | None, hosts_of)]
Texts = Annotated[Sequence[str] | None, Travels(list[str] | None, _list)]
Use = Annotated[Limits | None, Travels(Limits | None, _limits)]


class Operation(Generic[T]):
    """What is asked of a rollout or a cache; `T` is what it comes to."""

    __slots__ = ()


class Performs:
    """What performs operations: a rollout or a cache, wherever it is."""

    def perform(self, operation: Operation[T]) -> T:
        """Performs an operation.

        Args:
            operation: the operation, as the other methods make it.

        Returns:
            What it comes to; see the method that makes it, also for what it raises.
        """
        raise NotImplementedError


class PerformsAwaited:
    """The same, to be awaited."""

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`.

        Args:
            operation: the operation, as the other methods make it.
        """
        raise NotImplementedError


def awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Returns a method of an object whose `perform` is awaited, with the signature and the docstring of another method.

    Args:
        method: the method where `perform` blocks. It does nothing but return what `perform` returns.
    """

    @functools.wraps(method)
    async def perform(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        coming: Any = method(self, *args, **kwargs)
        result: T = await coming
        return result

    return perform
