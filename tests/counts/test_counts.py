"""No operation costs more than its budget, nor much less than what is recorded; see `budgets.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.targets import make_local
from tests.counts.budgets import Budgets, made_with
from tests.counts.measuring import Measured, measure
from tests.counts.operations import OPERATIONS
from tvsnap.images import Image
from tvsnap.model.errors import MachineLacks


@pytest.fixture(scope="module")
def measured(tvsnap_home: Path, terminal_image: Image) -> Measured:
    try:
        backend = make_local(tvsnap_home)
    except MachineLacks as lack:
        pytest.skip(str(lack))
    captures = backend.captures
    backend.close()
    if not captures.processes:
        pytest.skip("live processes cannot be captured on this machine (tvsnap doctor)")
    return measure(images=tvsnap_home)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_costs_are_within_their_budgets(operation: str, measured: Measured) -> None:
    complaints = list(Budgets.read().complaints(operation, measured.lowest(operation), made_with()))
    assert not complaints, "\n".join(complaints)


def test_all_is_counted(measured: Measured) -> None:
    if measured.lack:
        pytest.skip(measured.lack)


def test_budgets_are_those_of_operations() -> None:
    assert Budgets.read().counts.keys() == OPERATIONS.keys()
