"""How results are put into words."""

from __future__ import annotations

import json

import pytest

from tvsnap.plugins.sql.inside.results import render
from tvsnap.plugins.sql.inside.system import Answer, Result


@pytest.mark.parametrize("limit", [300, 2000])
def test_a_row_that_is_too_large_alone_is_named(limit: int) -> None:
    answer = Answer([Result(["a"], [["x" * 5000], [1]])])
    text, cut = render(answer, limit)
    said = json.loads(text)
    assert cut
    assert len(text) <= limit
    assert (said["rows"], said["more"]) == ([], True)
    assert "the first row takes 5004 bytes" in said["note"]


def test_rows_that_fit_need_no_note() -> None:
    text, cut = render(Answer([Result(["a"], [[1], ["x" * 5000]])]), 1000)
    assert cut
    assert json.loads(text) == {"columns": ["a"], "rows": [[1]], "more": True}
