"""`checkpoint` and `fork`: equal at first, independent from then on, any number, at any depth."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.helpers import LIMITS, TIMEOUT, Lab, changed, commands, job, run, settled, sh, usable
from tests.conformance.shell_cases import FILES, REAL_FILES, REAL_SHELL, SHELL
from tvsnap.images import Image
from tvsnap.model.errors import NotCheckpointable, SnapshotUnusable
from tvsnap.model.observations import Captures
from tvsnap.sandboxes.protocol import Sandbox


@pytest.mark.parametrize(("command", "probe", "expected"), SHELL)
def test_shell_state_survives(lab: Lab, reused: Sandbox, command: str, probe: str, expected: str) -> None:
    sh(reused, command)
    fork = lab.fork_of(reused)
    assert sh(fork, probe) == expected
    assert sh(reused, probe) == expected


@pytest.mark.parametrize(("command", "probe", "expected"), REAL_SHELL)
def test_more_shell_state_survives(lab: Lab, reused: Sandbox, command: str, probe: str, expected: str) -> None:
    sh(reused, command)
    fork = lab.fork_of(reused)
    assert sh(fork, probe) == expected
    assert sh(reused, probe) == expected


def test_files_survive(lab: Lab, sandbox: Sandbox) -> None:
    assert_all_survive(lab, sandbox, [case.values for case in FILES])


def test_more_files_survive(lab: Lab, sandbox: Sandbox) -> None:
    assert_all_survive(lab, sandbox, [case.values for case in REAL_FILES])


def assert_all_survive(lab: Lab, sandbox: Sandbox, cases: Sequence[Sequence[Any]]) -> None:
    """Makes files of all kinds, each in a directory of its own, and looks at them here and in a fork."""
    for number, (command, _, _) in enumerate(cases):
        sh(sandbox, f"mkdir /root/{number}; cd /root/{number}\n{command}")
    expected = [(command, seen) for command, _, seen in cases]
    for each in (lab.fork_of(sandbox), sandbox):
        seen = [sh(each, f"cd /root/{number}\n{probe}") for number, (_, probe, _) in enumerate(cases)]
        assert [(command, output) for (command, _, _), output in zip(cases, seen, strict=True)] == expected


def test_times_and_inodes_survive(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "echo 1 > f; ln f g; mkdir d; ln -s f l")
    listing = "stat -c '%n %a %s %h %Y' f g d l"
    before = sh(sandbox, listing)
    fork = lab.fork_of(sandbox)
    assert sh(fork, listing) == before
    assert sh(fork, "test f -ef g; echo $?") == "0\n"


def test_snapshots_of_nearly_equal_files_stay_apart(lab: Lab) -> None:
    """Archives of an engine lack parts of seconds, attributes and sockets, and it keeps equal ones once."""
    prepare = (
        "touch -d 2020-01-01T00:00:00.1 f",
        "touch -d 2020-01-01T00:00:00.2 f",
        'touch -d 2020-01-01T00:00:00.2 f; python3 -c \'import os; os.setxattr("f", "user.x", b"1")\'',
        "touch -d 2020-01-01T00:00:00.2 f; python3 -c 'import socket; socket.socket(1).bind(\"s\")'",
    )
    look = "stat -c '%n %y' *; python3 -c 'import os; print(os.listxattr(\"f\"))'"
    dated = "touch -hd 2020-01-01 s . .. 2> /dev/null; true"
    for _ in range(3):
        sandboxes = [lab.start() for _ in prepare]
        time.sleep(1.05 - time.time() % 1)  # what we write ourselves is of one second, too
        with ThreadPoolExecutor(len(prepare)) as pool:
            list(pool.map(lambda sandbox, command: sh(sandbox, f"{command}; {dated}"), sandboxes, prepare))
            seen = list(pool.map(lambda sandbox: sh(sandbox, look), sandboxes))
            snapshots = list(pool.map(lab.checkpoint, sandboxes))
        assert len(set(seen)) == len(prepare)
        assert [sh(lab.fork(snapshot), look) for snapshot in snapshots] == seen


def test_changes_are_the_same_in_a_fork(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "echo 1 > f; mkdir d; rm /etc/os-release; ln -s f l; chmod 600 /etc/hostname")
    fork = lab.fork_of(sandbox)
    kinds = {path: (change.kind, change.size, change.mode) for path, change in sandbox.changes().items()}
    assert {path: (change.kind, change.size, change.mode) for path, change in fork.changes().items()} == kinds
    assert dict(fork.shell_state()) == dict(sandbox.shell_state())


def test_checkpoint_does_not_disturb(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1; cd /tmp; f() { echo f; }; echo 1 > file; pid=$$; (exit 7)")
    lab.checkpoint(sandbox)
    assert sh(sandbox, 'echo $? $x; pwd; f; cat file; test "$pid" = "$$"; echo $?') == "7 1\n/tmp\nf\n1\n0\n"
    sh(sandbox, "x=2; echo 2 > file")
    lab.checkpoint(sandbox)
    assert sh(sandbox, "echo $x; cat file") == "2\n2\n"


def test_pid_of_the_shell_survives(lab: Lab, sandbox: Sandbox) -> None:
    pid = sh(sandbox, "echo $$")
    assert sh(lab.fork_of(sandbox), "echo $$") == pid


def test_fork_and_origin_are_independent(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=0; echo 0 > f; mkdir d; echo a > d/gone")
    snapshot = lab.checkpoint(sandbox)
    first = lab.fork(snapshot)
    sh(sandbox, "x=origin; echo origin > f; touch only-origin; cd d")
    sh(first, "x=first; echo first > f; touch only-first; rm -r d")
    second = lab.fork(snapshot)
    assert sh(second, "echo $x; cat f; ls; cat d/gone") == "0\n0\nd\nf\na\n"
    assert sh(first, "echo $x; cat f; ls") == "first\nfirst\nf\nonly-first\n"
    assert sh(sandbox, "echo $x; cat ../f; ls") == "origin\norigin\ngone\n"


def test_chain_of_forks(lab: Lab, sandbox: Sandbox) -> None:
    current = sandbox
    sh(current, "x=; : > log")
    for number in range(10):
        sh(current, f'x="${{x}}{number}"; echo {number} >> log; touch f{number}; rm -f f{number - 1}')
        fork = lab.fork_of(current)
        current.close()
        current = fork
    lines = [*"0123456789", "f9", "log"]
    assert sh(current, "echo $x; cat log; ls").split() == ["0123456789", *lines]


def test_chain_of_forks_of_another_user(lab: Lab, image: Image) -> None:
    """In a fork, too, CRIU may look at PID 1, which has acted as that user."""
    theirs = Lab(lab.backend, dataclasses.replace(image, user="nobody", workdir="/tmp"))
    try:
        sandbox = theirs.start()
        for most in (93, 92, 91):
            sh(sandbox, f"ulimit -n {most}")
            sandbox = theirs.fork_of(sandbox)
            assert sh(sandbox, "ulimit -n; id -un; stat -c %U /proc/1/status") == f"{most}\nnobody\nroot\n"
    finally:
        theirs.close()


def test_tree_of_forks(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=r; echo r > f")
    generation = [("r", sandbox)]
    for _ in range(3):
        following = []
        for name, parent in generation:
            snapshot = lab.checkpoint(parent)
            for letter in "ab":
                child = lab.fork(snapshot)
                sh(child, f"x=${{x}}{letter}; echo $x > f")
                following.append((name + letter, child))
        generation = following
    assert [sh(child, "echo $x; cat f") for _, child in generation] == [f"{name}\n{name}\n" for name, _ in generation]


def test_many_forks_of_one_snapshot(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=5; seq 1 1000 > numbers")
    snapshot = lab.checkpoint(sandbox)
    forks = [lab.fork(snapshot) for _ in range(10)]
    for number, fork in enumerate(forks):
        sh(fork, f"echo {number} >> numbers; x=$((x + {number}))")
    for number, fork in enumerate(forks):
        assert sh(fork, "echo $x; tail -n 1 numbers; wc -l < numbers") == f"{5 + number}\n{number}\n1001\n"


def test_snapshot_of_a_closed_sandbox(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1; echo 1 > f")
    snapshot = lab.checkpoint(sandbox)
    sandbox.close()
    assert sh(lab.fork(snapshot), "echo $x; cat f") == "1\n1\n"


def test_delete_snapshot_while_forks_live(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1; seq 1 20000 > f")
    snapshot = lab.checkpoint(sandbox)
    fork = lab.fork(snapshot)
    sandbox.close()
    lab.backend.delete_snapshot(snapshot.id)
    lab.backend.delete_snapshot(snapshot.id)
    assert snapshot.id not in list(lab.backend.snapshots())
    assert sh(fork, "echo $x; tail -n 1 f; echo more >> f; tail -n 1 f") == "1\n20000\nmore\n"
    with pytest.raises(SnapshotUnusable):
        lab.fork(snapshot)
    assert sh(lab.fork_of(fork), "wc -l < f") == "20001\n"


def test_snapshot_outlives_its_ancestors(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1; echo 1 > f")
    first = lab.checkpoint(sandbox)
    middle = lab.fork(first)
    sh(middle, "x=2; echo 2 >> f")
    second = lab.checkpoint(middle)
    middle.close()
    sandbox.close()
    lab.backend.delete_snapshot(first.id)
    assert sh(lab.fork(second), "echo $x; cat f") == "2\n1\n2\n"


def test_unknown_snapshot(lab: Lab) -> None:
    with pytest.raises(SnapshotUnusable):
        lab.backend.fork("no-such-snapshot", lab.image, LIMITS)
    lab.backend.delete_snapshot("no-such-snapshot")


def test_information_about_a_snapshot(lab: Lab, sandbox: Sandbox) -> None:
    snapshot = lab.checkpoint(sandbox)
    assert snapshot.id in list(lab.backend.snapshots())
    assert snapshot.captures.files
    # Where only the shell lives, a backend may capture that alone.
    assert snapshot.captures in (lab.backend.captures, Captures(shell=True))
    assert 0 <= snapshot.frozen <= snapshot.duration < 30
    assert snapshot.size >= 0
    assert snapshot.processes == ()


def test_lost_shell_after_a_fork(lab: Lab, sandbox: Sandbox, image: Image) -> None:
    sh(sandbox, "x=1; cd /tmp; echo 1 > f")
    fork = lab.fork_of(sandbox)
    outcome = run(fork, "exit 3")
    assert (outcome.exit_code, outcome.shell_lost) == (3, True)
    assert sh(fork, 'echo "[$x]"; pwd; cat /tmp/f') == f"[]\n{image.workdir}\n1\n"
    again = lab.fork_of(fork)
    assert sh(again, 'echo "[$x]"; cat /tmp/f') == "[]\n1\n"


def test_fork_after_a_lost_shell(lab: Lab, sandbox: Sandbox) -> None:
    run(sandbox, "exit 3")
    sh(sandbox, "x=new")
    assert sh(lab.fork_of(sandbox), "echo $x") == "new\n"


def test_timeout_in_a_fork(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1")
    fork = lab.fork_of(sandbox)
    outcome = run(fork, "echo first; cat", timeout=5)
    assert (outcome.timed_out, outcome.blocked, outcome.output) == (True, True, b"first\n")
    assert sh(fork, "echo $x") == "1\n"
    usable(fork)


def test_fork_after_a_timeout(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1")
    assert run(sandbox, "sleep 100", timeout=0.6).timed_out
    fork = lab.fork_of(sandbox)
    assert sh(fork, "echo $x") == "1\n"
    usable(fork)


def test_exec_and_files_in_a_fork(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "cd /tmp; echo 1 > f")
    fork = lab.fork_of(sandbox)
    assert fork.exec("cat /tmp/f; exit 2", timeout=TIMEOUT).exit_code == 2
    assert fork.read_file("f") == b"1\n"
    fork.write_file("g", b"2")
    assert sh(fork, "cat /tmp/g") == "2"
    assert "/tmp/g" not in sandbox.changes()


def test_long_output_in_a_fork(lab: Lab, sandbox: Sandbox) -> None:
    outcome = run(lab.fork_of(sandbox), "seq 1 200000")
    assert outcome.truncated
    assert outcome.output.endswith(b"\n200000\n")


def test_sixteen_threads_fork_one_snapshot(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1; echo base > f")
    snapshot = lab.checkpoint(sandbox)
    barrier = threading.Barrier(16)

    def work(number: int) -> str:
        barrier.wait()
        fork = lab.fork(snapshot)
        sh(fork, f"x=$((x + {number})); echo {number} >> f")
        return sh(fork, "echo $x; cat f")

    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(work, range(16)))
    assert found == [f"{1 + number}\nbase\n{number}\n" for number in range(16)]


def test_threads_start_checkpoint_and_close_at_once(lab: Lab) -> None:
    def work(number: int) -> str:
        sandbox = lab.start()
        sh(sandbox, f"x={number}; echo {number} > f")
        snapshot = lab.checkpoint(sandbox)
        sandbox.close()
        fork = lab.fork(snapshot)
        lab.backend.delete_snapshot(snapshot.id)
        found = sh(fork, "echo $x; cat f")
        fork.close()
        return found

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(work, range(16)))
    assert found == [f"{number}\n{number}\n" for number in range(16)]


@pytest.mark.needs_processes
def test_background_job_survives(lab: Lab, sandbox: Sandbox) -> None:
    job(sandbox, "sleep 1000")
    pid = sh(sandbox, "echo $!")
    snapshot = lab.checkpoint(sandbox)
    assert any("sleep 1000" in line for line in snapshot.processes)
    first, second = lab.fork(snapshot), lab.fork(snapshot)
    for fork in (first, second):
        assert sh(fork, "echo $!; kill -0 $! && echo alive") == f"{pid}alive\n"
        assert "sleep 1000" in sh(fork, "jobs")
    assert sh(first, "kill $!; wait $! 2>/dev/null; echo $?") == "143\n"
    assert "sleep" not in commands(first)
    assert "sleep 1000" in commands(second)
    assert "sleep 1000" in commands(sandbox)


@pytest.mark.needs_processes
def test_generations_with_a_job_that_holds_an_output(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "sleep 1000 & echo begun")
    for generation in range(4):
        sandbox = lab.fork_of(sandbox)
        assert sh(sandbox, "echo x >> f; kill -0 $! && cat f") == "x\n" * (generation + 1)


@pytest.mark.needs_processes
def test_job_counts_on_in_each(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "n=0; while true; do n=$((n + 1)); echo $n >> log; sleep 0.05; done &")
    sh(sandbox, "until [ -s log ]; do sleep 0.05; done")
    snapshot = lab.checkpoint(sandbox)
    forks = [lab.fork(snapshot), lab.fork(snapshot), sandbox]
    for fork in forks:
        before = int(sh(fork, "wc -l < log"))
        sh(fork, f"until [ $(wc -l < log) -gt {before + 3} ]; do sleep 0.05; done")
        lines = sh(fork, "cat log").split()
        # Memory and files are of one moment: no number is missing, none comes twice.
        assert lines == [str(number) for number in range(1, len(lines) + 1)]
    sh(forks[0], "kill $!; wait $! 2>/dev/null; : > log; sleep 0.2")
    assert sh(forks[0], "cat log") == ""


@pytest.mark.needs_processes
def test_jobs_of_forks_are_told_apart(lab: Lab, sandbox: Sandbox) -> None:
    snapshot = lab.checkpoint(sandbox)
    first, second = lab.fork(snapshot), lab.fork(snapshot)
    job(first, "sleep 1111")
    job(second, "sleep 2222")
    assert "2222" not in commands(first)
    assert "1111" not in commands(second)
    third = lab.fork_of(first)
    assert "sleep 1111" in commands(third)


@pytest.mark.needs_processes
def test_observation_with_a_job_in_a_fork(lab: Lab, sandbox: Sandbox) -> None:
    job(sandbox, "sleep 1000")
    fork = lab.fork_of(sandbox)
    settled(fork, "sleep 1000")
    sh(fork, "true")
    assert changed(fork, "ls; true") == set()
    assert "processes" in changed(fork, "kill $!; wait $! 2> /dev/null; true")


def test_live_processes_that_cannot_be_captured(lab: Lab, sandbox: Sandbox) -> None:
    """Either a job is in the snapshot, or there is no snapshot; it is never dropped silently."""
    job(sandbox, "sleep 1000")
    if lab.backend.captures.processes:
        assert "sleep 1000" in commands(lab.fork_of(sandbox))
        return
    with pytest.raises(NotCheckpointable, match="sleep"):
        lab.checkpoint(sandbox)
    usable(sandbox)
    sh(sandbox, "kill $!; wait $! 2> /dev/null")
    with pytest.raises(NotCheckpointable, match="background job"):  # which the shell remembers
        lab.checkpoint(sandbox)
    usable(sandbox)
