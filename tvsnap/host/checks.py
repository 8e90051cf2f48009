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
        name: its name.
        ok: it is there and works.
        required: without it no sandbox can run; otherwise tvsnap works without it, at the price of `cost`.
        detail: the observed facts.
        cost: the disadvantage for the user without it.
        remedy: a command or a sentence with the way to get it.
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
"""The result for other users than root if their failure means nothing."""


def check(
    name: str, cost: str, remedy: str = "", *, required: bool = False, root_only: bool = False
) -> Callable[[Callable[P, Found]], Callable[P, Check]]:
    """Makes a check of a function that looks for something; arguments as of `Check`.

    With `root_only`, it fails for other users on any machine, so that their failure means nothing.
    """

    def checking(look: Callable[P, Found]) -> Callable[P, Check]:
        @functools.wraps(look)
        def made(*args: P.args, **kwargs: P.kwargs) -> Check:
            result = look(*args, **kwargs)
            if root_only and not result.ok and os.geteuid() != 0:
                result = UNKNOWN
            usual = cost if result.cost is None else result.cost
            mend = remedy if result.remedy is None else result.remedy
            return Check(name, result.ok, required, result.detail, usual, mend, result.known)

        return made

    return checking
