from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.second_attempt import MOST, main, refusal

BODY = """
from pathlib import Path

def test_late():
    marker = Path(__file__).with_name("seen")
    there = marker.exists()
    marker.touch()
    assert there

def test_broken():
    assert False
"""


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        ([], "no test is known"),
        ([f"tests/unit/test_{number}.py::test_it" for number in range(MOST + 1)], f"{MOST + 1} tests failed"),
        (["tests/unit/test_cache.py::test_it", "tests/property/test_one_past.py::test_it"], "test_one_past.py"),
        (["tests/fuzz/test_slice.py::test_it"], "test_slice.py"),
    ],
)
def test_what_has_no_second_attempt(failed: list[str], reason: str) -> None:
    assert reason in str(refusal(failed))


def test_what_failed_is_executed_once_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(BODY)
    failures = tmp_path / "lastfailed"
    assert main(failures) == 1
    (tmp_path / "seen").touch()
    failures.write_text(json.dumps({f"{file}::test_late": True}))
    assert main(failures) == 0
    assert f"passed alone): {file}::test_late" in capfd.readouterr().out
    failures.write_text(json.dumps({f"{file}::test_late": True, f"{file}::test_broken": True}))
    assert main(failures) == 1
    assert "passed alone" not in capfd.readouterr().out
