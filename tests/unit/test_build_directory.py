"""The lock on the directory of a build."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tvsnap.images.build_directory import locked


def test_many_who_take_turns(tmp_path: Path) -> None:
    """Each makes the directory, and removes it, while others are about to make it."""
    directory, inside = tmp_path / "build", []

    def take_turns() -> None:
        for _ in range(100):
            with locked(directory, wait=True) as mine:
                assert mine
                inside.append(1)
                assert len(inside) == 1
                assert (directory / "lock").exists(), "what is locked is the lock of others, too"
                inside.pop()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(take_turns) for _ in range(4)]:
            done.result(60)
    assert not directory.exists()
