"""Several things of one kind, such as sandboxes, that are ended together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class Several(Sequence[T]):
    """A sequence of what it is given."""

    def __init__(self, items: Sequence[T]) -> None:
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)
