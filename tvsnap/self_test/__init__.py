"""A short conformance check on the user's own machine, in a data directory of its own that is gone afterwards.

Each check tries one promise of tvsnap with real sandboxes; a failure reports the observed facts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tvsnap.images import ImageStore
from tvsnap.model.errors import TvsnapError
from tvsnap.self_test.checks import CHECKS, Check, CheckFailed, leaves_nothing
from tvsnap.self_test.laboratory import Laboratory


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check."""

    name: str  # its name, in words
    ok: bool  # it passed
    seconds: float  # its duration
    detail: str  # the observed facts


def self_test(home: Path, backend: str, image: str | None, begin: Callable[[str], None]) -> Iterator[Result]:
    """Makes the checks, one after the other.

    Args:
        home: the user's data directory, beside which that of the checks is made; nothing in it is changed.
        backend: the backend's name.
        image: the image in it to try with; by default one is made of this machine's own bash.
        begin: is called with the name of each check before it begins.

    Yields:
        The result of each check.

    Raises:
        NotFound: no such image.
        MachineLacks: the backend cannot be opened on this machine.
        UsageError: no such backend.
    """
    chosen = None if image is None else ImageStore(home).get(image)
    with tempfile.TemporaryDirectory(prefix="tvsnap-self-test-", dir=_beside(home)) as directory:
        laboratory = Laboratory(Path(directory), backend, chosen)
        try:
            for name, check in CHECKS:
                yield _try(name, laboratory, check, begin)
        finally:
            laboratory.close()
        yield _try("nothing is left behind", laboratory, leaves_nothing, begin)


def _try(name: str, laboratory: Laboratory, check: Check, begin: Callable[[str], None]) -> Result:
    begin(name)
    began = time.perf_counter()
    try:
        ok, detail = True, check(laboratory)
    except (CheckFailed, TvsnapError) as failure:
        ok, detail = False, str(failure)
    finally:
        laboratory.end_sandboxes()
    return Result(name, ok, time.perf_counter() - began, detail)


def _beside(home: Path) -> Path:
    """Returns the parent of a data directory, existing or not: usually on the same file system."""
    return next(path for path in home.absolute().parents if path.is_dir())
