"""Process ids are the same in each execution of a history, whichever calls were answered without one, and in forks."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.helpers import TIMEOUT, Lab, job, run, sh
from tests.conformance.targets import Target
from tvsnap import Budget, Cache
from tvsnap.images import Image
from tvsnap.sandboxes.protocol import Sandbox

START = "sleep 100 & echo $!"


def call(sandbox: Sandbox, command: str, *, changed: bool) -> str:
    """Makes a call as the cache does: what it came to is settled before the next one."""
    output = sh(sandbox, command)
    sandbox.settle(changed=changed)
    return output


def test_calls_that_change_nothing_move_no_ids(lab: Lab) -> None:
    one, other = lab.start(), lab.start()
    for sandbox in (one, other):
        call(sandbox, "x=1", changed=True)
    for command in ("ls", "cat /etc/hostname", "(cd /; ls; pwd)", "true"):
        call(one, command, changed=False)
    first = call(one, START, changed=True)
    assert first == call(other, START, changed=True)
    call(other, "ls; ls; (ls)", changed=False)
    second = call(one, START, changed=True)
    assert second == call(other, START, changed=True)
    assert int(second) > int(first)


@pytest.mark.needs_processes
def test_forks_go_on_with_the_same_ids(lab: Lab) -> None:
    sandbox = lab.start()
    call(sandbox, START, changed=True)
    call(sandbox, "ls; (ls); true", changed=False)
    fork = lab.fork_of(sandbox)
    of_fork = lab.fork_of(fork)
    call(fork, "ls", changed=False)
    following = {call(each, START, changed=True) for each in (sandbox, fork, of_fork)}
    assert len(following) == 1
    assert len({call(each, "(ls /; true); (sleep 9 & echo $!)", changed=True) for each in (sandbox, fork)}) == 1


def test_forks_of_an_idle_shell_go_on_with_the_same_ids(lab: Lab) -> None:
    sandbox = lab.start()
    for number in range(3):
        call(sandbox, f"x={number}; (ls)", changed=True)
    fork = lab.fork_of(sandbox)
    assert fork.digest() == sandbox.digest()
    assert call(fork, START, changed=True) == call(sandbox, START, changed=True)


def test_numbers_of_live_processes_are_passed_over(lab: Lab) -> None:
    """Without anybody to settle what calls came to, all of them begin at the same number."""
    for sandbox in (lab.start(), lab.start()):
        ids = [sh(sandbox, START) for _ in range(3)]
        assert ids == sorted(set(ids), key=int)
        sh(sandbox, f"kill {ids[0].strip()}; wait {ids[0].strip()} 2> /dev/null; true")
        assert sh(sandbox, START).split() == ids[0].split()


def test_programs_apart_from_the_shell_have_the_same_ids(lab: Lab) -> None:
    one, other = lab.start(), lab.start()
    job(one, "sleep 1000")
    job(other, "sleep 1000")
    one.settle(changed=True)
    other.settle(changed=True)
    call(one, "ls", changed=False)
    one.read_file("/etc/hostname")
    assert one.exec("echo $$", timeout=30).output == other.exec("echo $$", timeout=30).output


def test_numbers_begin_anew_before_they_run_out(sandbox: Sandbox) -> None:
    seen = []
    for _ in range(125):
        sandbox.settle(changed=True)
        seen.append(int(sandbox.exec("echo $$", timeout=30).output))
    assert len(set(seen)) == 125
    assert max(seen) < 32768


def test_nobody_inside_can_number_processes(sandbox: Sandbox, target: Target) -> None:
    """The file may be written to as far as its mount goes, but only PID 1 has what it takes."""
    for command in (
        "echo 5000 > /proc/sys/kernel/ns_last_pid",
        "sudo -n true; setpriv --inh-caps +all true; echo 1 > /proc/sys/kernel/pid_max",
        "grep -q '^Cap.*:.*[1-9a-f]0000000000$' /proc/self/status",
    ):
        assert run(sandbox, command).exit_code != 0, command
    if target.name == "local":
        assert run(sandbox, "exec 9<> /proc/1/mem").exit_code != 0
        assert sh(sandbox, "sed -n 's/^CapPrm:\\t//p' /proc/1/status") == "00000100a00425fb\n"
        assert sh(sandbox, "sed -n 's/^CapBnd:\\t//p' /proc/1/status") == "00000000a00425fb\n"
    assert sh(sandbox, "sed -n 's/^CapEff:\\t//p' /proc/1/status") == sh(
        sandbox, "sed -n 's/^CapEff:\\t//p' /proc/self/status"
    )


SESSIONS = {
    "python": ("python", "code", "import subprocess; subprocess.run('echo $$ > /tmp/f.$$', shell=True)"),
    "postgres": ("sql", "query", "COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; echo > /tmp/f.$$'"),
}
"""For each environment with a session that begins processes, a call that makes a file which is named for one."""


@pytest.mark.parametrize("system", SESSIONS)
def test_programs_of_a_session_have_ids_of_their_own_in_forks(
    system: str, request: pytest.FixtureRequest, terminal_image: Image, tvsnap_home: Path
) -> None:
    """What a second call makes lies beside what the first did, and is called as without the cache."""
    if system == "python":
        image = replace(terminal_image, environment="python")
    else:
        image = request.getfixturevalue("sql_images").get(system)
    tool, argument, code = SESSIONS[system]
    salt, seen = f"ids-{time.time_ns()}", []
    for cached in (False, True):
        with Cache(tvsnap_home, use_cache=cached, budget=Budget(parked=0)) as cache:
            for calls in ((1, 2),) if not cached else ((1,), (1, 2)):
                with cache.rollout(image, salt=salt) as rollout:
                    for _ in calls:
                        assert rollout.call(tool, {argument: code}, TIMEOUT).exit_code == 0
                    listed = rollout.call("exec", {"command": "ls /tmp | grep -x 'f[.][0-9]*'"}, TIMEOUT).output
            seen.append(listed.split())
    assert len(seen[0]) == 2
    assert seen[0] == seen[1]


def test_a_call_that_changes_nothing_after_a_snapshot_is_seen_as_such(lab: Lab) -> None:
    """A snapshot closes the connection to PID 1, which is part of what PID 1 is."""
    sandbox = lab.start()
    sh(sandbox, "echo 1 > /root/f")
    sandbox.settle(changed=True)
    lab.checkpoint(sandbox)
    sandbox.note()
    sh(sandbox, "true")
    sandbox.observe()
    assert sandbox.go_back()
