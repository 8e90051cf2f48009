"""Operations as values, and the base of objects that perform them.

A method of `RolloutMethods` or `CacheMethods` makes an operation and has `perform` perform it, in this process, at a
server, or at one of several. A parameter is defined in the operation and used in its execution; all layers between pass
operations on unchanged. `tvsnap.plugins.client.wire.operations` converts them into JSON, by the types of their fields.
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
    """The form in which the values of a field are sent to a server.

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
    """An operation of a rollout or a cache; `T` is the type of its result."""

    __slots__ = ()


class Performs:
    """An object that performs operations: a rollout or a cache, here or elsewhere."""

    def perform(self, operation: Operation[T]) -> T:
        """Performs an operation.

        Args:
            operation: the operation, from one of the other methods.

        Returns:
            Its result; see the method that makes the operation, also for its errors.
        """
        raise NotImplementedError


class PerformsAwaited:
    """The same, to be awaited."""

    async def perform(self, operation: Operation[T]) -> T:
        """Performs an operation; see `Performs.perform`.

        Args:
            operation: the operation, from one of the other methods.
        """
        raise NotImplementedError


def awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Returns a method of an object whose `perform` is awaited, with the signature and the docstring of another method.

    Args:
        method: the method of an object whose `perform` blocks. It only returns the result of `perform`.
    """

    @functools.wraps(method)
    async def perform(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        coming: Any = method(self, *args, **kwargs)
        result: T = await coming
        return result

    return perform
