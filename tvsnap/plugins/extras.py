"""Packages that come with an extra of tvsnap."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """A block that imports packages of an extra.

    Raises:
        ModuleNotFoundError: one is missing; the message names the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the package {error.name} is missing: pip install 'tvsnap[{extra}]'", name=error.name
        ) from error
