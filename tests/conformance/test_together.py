"""`Sandbox.exec_all`, and standard error apart from standard output."""

from __future__ import annotations

import threading
import time

import pytest

from tests.conformance.helpers import asleep, eventually, usable
from tvsnap.model.errors import UsageError
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Command
from tvsnap.sandboxes.protocol import Sandbox


def test_standard_error_apart(reused: Sandbox) -> None:
    told = reused.exec("echo out; echo err >&2; echo out; exit 3", timeout=20, separate=True)
    assert (told.output, told.errors, told.exit_code) == (b"out\nout\n", b"err\n", 3)
    mixed = reused.exec("echo out; echo err >&2", timeout=20)
    assert (mixed.output, mixed.errors) == (b"out\nerr\n", None)
    assert reused.exec("true", timeout=20, separate=True).errors == b""
    assert reused.exec("kill -9 $$", timeout=20, separate=True).exit_code == 137


def test_it_is_like_exec_otherwise(reused: Sandbox) -> None:
    look = 'pwd; id -u; echo "$HOME $USER $A $PATH"; env | sort | grep -v ^_; cat; umask; echo $$ > /dev/null'
    for user in (None, "nobody"):
        options = {"timeout": 20.0, "cwd": "/tmp", "env": {"A": "x y"}, "user": user}
        alone = reused.exec(look, **options)  # type: ignore[arg-type]
        apart = reused.exec(look, **options, separate=True)  # type: ignore[arg-type]
        assert (apart.output + (apart.errors or b""), apart.exit_code) == (alone.output, alone.exit_code)
    assert reused.exec("pwd", timeout=20, separate=True).output == reused.exec("pwd", timeout=20).output
    missing = reused.exec("pwd", timeout=20, cwd="/none", separate=True)
    assert (missing.errors, missing.exit_code) == (b"bash: cd: /none: No such file or directory\n", 1)
    assert reused.exec("true", timeout=20, user="nessuno", separate=True).exit_code == 126
    long = reused.exec("printf %s " + "x" * 200_000 + "; cat", timeout=20, separate=True)
    assert (long.output, long.exit_code) == (b"x" * 200_000, 0)


def test_several_run_side_by_side(sandbox: Sandbox) -> None:
    """Each waits for the next: one after the other, they would wait for ever."""
    sandbox.exec("cd /tmp && mkfifo a b c", timeout=20)
    commands = [
        Command("cat < a > b; echo first", cwd="/tmp"),
        Command("cat < b > c; echo second >&2; exit 4", cwd="/tmp", separate=True),
        Command('echo "$WORD" > a; cat < c', cwd="/tmp", env={"WORD": "all the way"}),
    ]
    first, second, third = sandbox.exec_all(commands, timeout=60)
    assert (first.output, first.errors, first.exit_code) == (b"first\n", None, 0)
    assert (second.output, second.errors, second.exit_code) == (b"", b"second\n", 4)
    assert (third.output, third.exit_code) == (b"all the way\n", 0)
    assert sandbox.exec_all([], timeout=20) == []
    (nothing,) = sandbox.exec_all([Command("")], timeout=20)
    assert (nothing.output, nothing.exit_code) == (b"", 0)
    with pytest.raises(UsageError, match="at most 256"):
        sandbox.exec_all([Command("true")] * 257, timeout=20)
    assert [each.output for each in sandbox.exec_all([Command(f"echo {n}") for n in range(256)], timeout=60)] == [
        b"%d\n" % n for n in range(256)
    ]


def test_what_does_not_end_in_time(sandbox: Sandbox) -> None:
    done, late = sandbox.exec_all([Command("echo done"), Command("echo begun; sleep 1000; echo")], timeout=5)
    assert (done.output, done.exit_code, done.timed_out) == (b"done\n", 0, False)
    assert (late.output, late.exit_code, late.timed_out, late.blocked) == (b"begun\n", None, True, True)
    assert sandbox.processes() == [one for one in sandbox.processes() if "sleep" not in one.command]
    usable(sandbox)


def test_what_is_interrupted(sandbox: Sandbox) -> None:
    began = threading.Event()

    def interrupt() -> None:
        began.wait(60)
        while running.is_alive():
            sandbox.interrupt()
            time.sleep(0.05)

    found = []

    def run() -> None:
        began.set()
        found.extend(sandbox.exec_all([Command("sleep 1000"), Command("sleep 1000", separate=True)], timeout=100))

    running = threading.Thread(target=run)
    running.start()
    interrupt()
    running.join()
    assert [each.timed_out for each in found] == [True, True]
    usable(sandbox)


def test_jobs_go_on_printing(sandbox: Sandbox) -> None:
    """To where nobody reads any more: that must not end them."""
    command = (
        "(while test ! -e /tmp/stop; do echo x || exit; echo y >&2 || exit; sleep 0.01; done; echo whole > /tmp/end) &"
    )
    (told,) = sandbox.exec_all([Command(command, separate=True)], timeout=20)
    assert told.exit_code == 0
    assert sandbox.exec(
        "sleep 0.3; touch /tmp/stop; while ! test -s /tmp/end; do sleep 0.01; done; cat /tmp/end", timeout=20
    ).output == (b"whole\n")
    usable(sandbox)
    eventually(lambda: not [each for each in sandbox.processes() if "together" in each.command])


def test_long_outputs_are_cut_in_the_middle(sandbox: Sandbox) -> None:
    limit = Limits().output
    (told,) = sandbox.exec_all([Command(f"seq {limit}; seq {limit} >&2", separate=True)], timeout=60)
    for data in (told.output, told.errors or b""):
        assert len(data) == limit
        assert data.startswith(b"1\n2\n")
        assert data.endswith(b"%d\n" % limit)
    assert (told.truncated, told.errors_truncated) == (True, True)


def test_a_command_may_end_what_runs_it(sandbox: Sandbox) -> None:
    told, other = sandbox.exec_all(
        # What runs it sleeps again once it has passed on what was said.
        [Command(f"echo begun; {asleep(pid='$PPID')}; kill -9 $PPID; sleep 1"), Command("sleep 600")],
        timeout=60,
    )
    assert (told.output, told.exit_code, told.timed_out) == (b"begun\n", 137, False)
    assert other.exit_code == 137
    usable(sandbox)
