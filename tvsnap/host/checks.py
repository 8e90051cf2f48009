"""The checks of `tvsnap doctor`: each is a function that looks for one thing on a machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, ParamSpec

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that tvsnap needs or profits from.

    Attributes:
        name: what was looked for.
        ok: it is there and works.
        required: without it no sandbox can run; otherwise tvsnap works without it, at the price of `cost`.
        detail: what was found.
        cost: what the user loses without it.
        remedy: a command or a sentence that says how to get it.
    """

    name: str
    ok: bool
    required: bool
    detail: str
    cost: str
    remedy: str


class Found(NamedTuple):
    """The result of a check, see `Check`; None stands for the usual cost and remedy."""

    ok: bool
    detail: str
    remedy: str | None = None
    cost: str | None = None


def check(
    name: str, cost: str, remedy: str = "", *, required: bool = False
) -> Callable[[Callable[P, Found]], Callable[P, Check]]:
    """Makes a check of a function that looks for something; arguments as of `Check`."""

    def checking(look: Callable[P, Found]) -> Callable[P, Check]:
        @functools.wraps(look)
        def made(*args: P.args, **kwargs: P.kwargs) -> Check:
            found = look(*args, **kwargs)
            usual = cost if found.cost is None else found.cost
            return Check(
                name, found.ok, required, found.detail, usual, found.remedy if found.remedy is not None else remedy
            )

        return made

    return checking
