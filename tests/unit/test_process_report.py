"""What is read of processes."""

from __future__ import annotations

from tvsnap.sandboxes.kernel import process_report

SAVED = process_report.OpenFile(10, "/dev/null", 0, "02")


def test_a_shell_that_runs_is_waited_for() -> None:
    """It has not yet undone the redirections of its report; on a busy machine that takes longer than ten looks."""
    looks = iter([(SAVED,)] * 100)
    assert process_report.settled(lambda: next(looks, ()), lambda: True) == ()


def test_what_an_idle_shell_has_open_stays() -> None:
    looks = iter([(SAVED,)] * 100)
    assert process_report.settled(lambda: next(looks, ()), lambda: False) == (SAVED,)
