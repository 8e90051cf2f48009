"""Digests by which a rebuild is compared with what was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend, FakeSandbox
from tests.fakes.caches import open_cache, prove, run
from tvsnap import Budget
from tvsnap.model.errors import TvsnapError


@pytest.mark.usefixtures("proofs_at_once")
@pytest.mark.parametrize(("times", "lost"), [(3, False), (1000, True)], ids=["for a moment", "for good"])
def test_a_digest_that_cannot_be_computed_marks_no_record(
    times: int, lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeBackend()
    prove(tmp_path, backend, ["echo 1 > f", "echo 2 >> f"])
    computed, left = FakeSandbox.digest, [times]

    def digest(self: FakeSandbox) -> str | None:
        left[0] -= 1
        return None if left[0] >= 0 else computed(self)

    with open_cache(tmp_path, backend, policy="never", budget=Budget(parked=0), prefork=0) as cache:
        monkeypatch.setattr(FakeSandbox, "digest", digest)
        if lost:
            with pytest.raises(TvsnapError):
                run(cache, "echo 1 > f", "echo 2 >> f", "cat f")
        else:
            assert run(cache, "echo 1 > f", "echo 2 >> f", "cat f")[-1].output == "1\n2\n"
        monkeypatch.undo()
        assert [result.source for result in run(cache, "echo 1 > f", "echo 2 >> f")] == ["hit", "hit"]
