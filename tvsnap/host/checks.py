"""The checks of `tvsnap doctor`: each is a function that looks for one thing on a machine."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, ParamSpec

P = ParamSpec("P")

AS_ROOT = "run tvsnap doctor as root (sudo -E tvsnap doctor)"


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
        known: False if only root can find out; `ok` is False then, too.
    """

    name: str
    ok: bool
    required: bool
    detail: str
    cost: str
    remedy: str
    known: bool = True


class Found(NamedTuple):
    """The result of a check, see `Check`; None stands for the usual cost and remedy."""

    ok: bool
    detail: str
    remedy: str | None = None
    cost: str | None = None
    known: bool = True


UNKNOWN = Found(False, "only root can find out", AS_ROOT, known=False)
"""What other users than root are told where a failure says nothing to them."""


def check(
    name: str, cost: str, remedy: str = "", *, required: bool = False, root_only: bool = False
) -> Callable[[Callable[P, Found]], Callable[P, Check]]:
    """Makes a check of a function that looks for something; arguments as of `Check`.

    With `root_only`, it fails for other users whatever the machine has, so that its failure says nothing to them.
    """

    def checking(look: Callable[P, Found]) -> Callable[P, Check]:
        @functools.wraps(look)
        def made(*args: P.args, **kwargs: P.kwargs) -> Check:
            found = look(*args, **kwargs)
            if root_only and not found.ok and os.geteuid() != 0:
                found = UNKNOWN
            usual = cost if found.cost is None else found.cost
            mend = remedy if found.remedy is None else found.remedy
            return Check(name, found.ok, required, found.detail, usual, mend, found.known)

        return made

    return checking
