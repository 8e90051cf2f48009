"""What is tried again, how often, and what becomes of its reasons."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable

import pytest

from tvsnap.host import attempts
from tvsnap.host.attempts import AttemptFailed, repeat
from tvsnap.model.errors import CheckpointFailed, NotCheckpointable, SandboxDied

PAUSES = (0.001, 0.002, 0.003)


def failing(failures: Iterable[Exception]) -> Callable[[], str]:
    """Returns what fails so, one time after the other, and then succeeds."""
    left = list(failures)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


def machine(reason: str = "Too many open files") -> AttemptFailed:
    return AttemptFailed(reason, machine=True)


def test_what_succeeds_in_the_end_has_succeeded() -> None:
    once = failing([machine(), AttemptFailed("strange"), machine()])
    assert repeat(once, PAUSES, lasting=NotCheckpointable, passing=CheckpointFailed) == "done"


@pytest.mark.parametrize(
    ("failures", "raised"),
    [
        ([machine()] * 4, CheckpointFailed),
        ([AttemptFailed(f"strange (pid: {pid})") for pid in (17, 18, 19)], NotCheckpointable),
        ([machine(), AttemptFailed("strange"), AttemptFailed("odd"), AttemptFailed("strange")], CheckpointFailed),
        ([AttemptFailed("strange"), AttemptFailed("strange"), machine(), AttemptFailed("strange")], CheckpointFailed),
        ([machine(), *[AttemptFailed("strange")] * 3], NotCheckpointable),
    ],
    ids=["machine", "the same each time", "another each time", "interrupted by the machine", "the same in the end"],
)
def test_whose_fault_it_is(failures: list[AttemptFailed], raised: type[Exception]) -> None:
    with pytest.raises(raised) as error:
        repeat(failing(failures), PAUSES, lasting=NotCheckpointable, passing=CheckpointFailed)
    assert type(error.value) is raised
    assert str(error.value) == str(failures[-1])


def test_what_a_process_says_of_itself_makes_no_other_reason() -> None:
    failures = [AttemptFailed(f"strange ({name})", kind="criu/files.c:7") for name in ("a", "b", "c")]
    with pytest.raises(NotCheckpointable, match=r"strange \(c\)"):
        repeat(failing(failures), PAUSES, lasting=NotCheckpointable, passing=CheckpointFailed)


def test_errors_of_this_process_itself_are_the_machines() -> None:
    failures = [OSError(errno.EMFILE, "Too many open files")] * 4
    with pytest.raises(CheckpointFailed, match="Too many open files"):
        repeat(failing(failures), PAUSES, lasting=NotCheckpointable, passing=CheckpointFailed)


def test_what_is_known_is_raised_at_once() -> None:
    for known in (NotCheckpointable("inotify"), SandboxDied("gone")):
        with pytest.raises(type(known)):
            repeat(failing([known]), PAUSES, lasting=NotCheckpointable, passing=CheckpointFailed)


def test_what_takes_long_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "LONGEST", 0.3)
    tried = []

    def slow() -> str:
        tried.append(1)
        time.sleep(0.1)
        raise machine()

    with pytest.raises(CheckpointFailed):
        repeat(slow, (0.001,) * 100, lasting=NotCheckpointable, passing=CheckpointFailed)
    assert 1 < len(tried) < 10
