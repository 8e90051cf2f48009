"""What a call changes though nobody runs for it: data taken out of a fifo, a signal for what is stopped, a priority."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conformance.helpers import asleep, changed, eventually, job, sh, still
from tests.fakes.caches import settle
from tvsnap import Cache
from tvsnap.images import Image
from tvsnap.sandboxes.protocol import Sandbox

WOKEN = "kill -CONT $!; while kill -0 $! 2> /dev/null; do sleep 0.1; done; wait $!; echo $?"
STOPPED = "sleep 1000 & kill -STOP $!; until read -r line < /proc/$!/stat && [[ $line == *') T '* ]]; do :; done"

# Name -> what leads to a state, and a call that changes it.
CHANGES = {
    "fifo of the shell": ("mkfifo /tmp/f; exec 6<> /tmp/f; printf abcdef >&6", "head -c 2 <&6"),
    "fifo that is filled": ("mkfifo /tmp/f; exec 6<> /tmp/f", "printf abcdef > /tmp/f"),
    "fifo of a job": ("mkfifo /tmp/f; sleep 1000 5<> /tmp/f &", "printf abcdef > /tmp/f"),
    "fifo of another user's job": (
        "mkfifo /tmp/f; setpriv --reuid 65534 --regid 65534 --clear-groups sleep 1000 5<> /tmp/f &",
        "printf abcdef > /tmp/f",
    ),
    "datagrams": (
        "python3 -c \"import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', 9100)); "
        "open('/tmp/bound', 'w'); time.sleep(1000)\" & until [ -e /tmp/bound ]; do sleep 0.05; done; sleep 0.2",
        "echo x > /dev/udp/127.0.0.1/9100",
    ),
    "error at a socket": ("exec 9<> /dev/udp/127.0.0.1/9; echo x >&9", "read -u 9 2> /dev/null; true"),
    "signal for what is stopped": (STOPPED, "kill -TERM $!"),
    "priority": ("sleep 1000 &", "renice -n 19 $! > /dev/null"),
    "scheduling": ("sleep 1000 &", "chrt --batch --pid 0 $!"),
    "limits": ("sleep 1000 &", "prlimit --pid $! --nofile=100:100"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_that_nobody_runs_for(sandbox: Sandbox, name: str) -> None:
    reach, change = CHANGES[name]
    sh(sandbox, reach)
    sh(sandbox, "sleep 0.3; true")  # what was started has come to rest
    assert "processes" in changed(sandbox, change)


OF_THE_KERNEL = {
    "output of the terminal that was stopped": "python3 -c 'import os, termios; "
    'termios.tcflow(os.open("/dev/tty", os.O_RDWR), termios.TCOOFF)\'',
    "directory of terminals": "chmod 700 /dev/pts",
    "who makes terminals": "chmod 600 /dev/pts/ptmx",
    "times of the directory of terminals": "touch -d 2001-01-01 /dev/pts",
    "times of who makes terminals": "touch -d 2001-01-01 /dev/pts/ptmx",
    "times of the terminal": "touch -d 2001-01-01 /dev/pts/0",
    "times to come of the terminal": "touch -m -d 2101-01-01 /dev/pts/0",
    "who is signalled of a file": "python3 -c 'import fcntl; fcntl.fcntl(0, fcntl.F_SETSIG, 12)'",
}


@pytest.mark.parametrize("change", OF_THE_KERNEL.values(), ids=OF_THE_KERNEL)
def test_change_that_is_in_no_file(sandbox: Sandbox, change: str) -> None:
    """Seen by what the sandbox says of itself, or from outside: nobody else is given such a sandbox."""
    before = sandbox.observe()
    sandbox.note()
    sh(sandbox, f"{change}; true")
    assert sandbox.observe() != before or not sandbox.go_back()


def test_what_merely_lives_changes_nothing(sandbox: Sandbox) -> None:
    job(sandbox, "sleep 1000")
    sh(sandbox, "setpriv --reuid 65534 --regid 65534 --clear-groups sleep 1000 &")
    sh(sandbox, f"mkfifo /tmp/f; exec 6<> /tmp/f; sleep 1000 <&6 | cat > /dev/null & {STOPPED}")
    eventually(lambda: still(sandbox, "ls /; true"))
    assert changed(sandbox, "ls /; true") == set()


def test_no_answer_rests_on_it(tmp_path: Path, terminal_image: Image) -> None:
    """Calls that only take something away, and print it, are no hits of one another."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    calls = ("mkfifo /tmp/f; exec 6<> /tmp/f; printf abcdef >&6", *["head -c 2 <&6; echo"] * 3)
    with Cache(tmp_path, policy="eager") as cache:
        for _ in range(2):
            with cache.rollout(terminal_image.name) as rollout:
                results = [rollout.call("bash", {"command": command}) for command in calls]
                settle(rollout)
            assert [result.output for result in results] == ["", "ab\n", "cd\n", "ef\n"]
        assert {result.source for result in results} == {"hit"}
        with cache.rollout(terminal_image.name) as rollout:
            rollout.call("bash", {"command": STOPPED})
            rollout.call("bash", {"command": "kill -TERM $!"})
            ended = rollout.call("bash", {"command": WOKEN})
        with cache.rollout(terminal_image.name) as rollout:
            rollout.call("bash", {"command": STOPPED})
            alive = rollout.call("bash", {"command": WOKEN}, timeout=1)
        assert ended.output.endswith("143\n")
        assert alive.timed_out


@pytest.mark.parametrize(
    ("waits", "path"),
    [
        ("mkfifo /tmp/f; (echo hi > /tmp/f; echo > /tmp/woken) & sleep 0.3", "/tmp/f"),
        (
            'echo x > /tmp/f; python3 -c \'import fcntl, signal; f = open("/tmp/f"); '
            'fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK); open("/tmp/ready", "w"); signal.sigwait([signal.SIGIO]); '
            f'open("/tmp/woken", "w")\' & until [ -e /tmp/ready ]; do :; done; {asleep("python3")}',
            "/tmp/f",
        ),
    ],
    ids=["fifo", "lease"],
)
def test_who_waits_for_a_file_to_be_read(tmp_path: Path, terminal_image: Image, waits: str, path: str) -> None:
    """A tool that only reads changes nothing itself, but may wake someone who does."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    look = ("bash", {"command": "sleep 0.3; ls /tmp"}, 30.0)
    calls = (("bash", {"command": waits}, 30.0), ("read_file", {"path": path}, 30.0))
    with Cache(tmp_path, use_cache=False, same_ids=True) as fresh:
        expected = [output for output, _ in answers(fresh, terminal_image, *calls, look)]
    with Cache(tmp_path, policy="eager") as cache:
        answers(cache, terminal_image, *calls)
        for _ in range(2):
            assert [output for output, _ in answers(cache, terminal_image, *calls, look)] == expected


def answers(cache: Cache, image: Image, *calls: tuple[str, Mapping[str, object], float]) -> list[tuple[str, str]]:
    """Returns outputs and sources of one rollout's calls: tool, arguments, timeout."""
    with cache.rollout(image.name) as rollout:
        results = [rollout.call(tool, arguments, timeout=timeout) for tool, arguments, timeout in calls]
        settle(rollout)
    return [(result.output, result.source) for result in results]


def test_what_the_shell_does_not_tell(tmp_path: Path, terminal_image: Image) -> None:
    """A builtin that changes what no dump shows has changed something, whatever calls it."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    option = ("bash", {"command": "getopts a o -aaaa; echo $o $OPTIND"}, 30.0)
    hidden = ("bash", {"command": "option"}, 30.0)
    define = ("bash", {"command": "option() { getopts a o -aaaa; echo $o $OPTIND; }"}, 30.0)
    waited = ("bash", {"command": "wait $job 2> /dev/null; echo $?"}, 30.0)
    start = ("bash", {"command": "(exit 7) & job=$!; while kill -0 $job 2> /dev/null; do :; done"}, 30.0)
    with Cache(tmp_path, policy="eager") as cache:
        for _ in range(2):
            found = answers(cache, terminal_image, option, option, option, option)
            assert [output for output, _ in found] == ["a 1\n"] * 3 + ["a 2\n"]
            found = answers(cache, terminal_image, define, hidden, hidden, hidden, hidden)
            assert [output for output, _ in found[1:]] == ["a 1\n"] * 3 + ["a 2\n"]
            found = answers(cache, terminal_image, start, waited)
            assert found[1][0] == "7\n"
        assert found[1][1] == "hit"


def test_keys_answer_those_who_wait_as_long(tmp_path: Path, terminal_image: Image) -> None:
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    with Cache(tmp_path, policy="eager") as cache:
        for round in range(2):
            keys = {"keys": "clear; sleep 1.5; echo fin''ished<Enter>", "wait": 20}
            short, long = (answers(cache, terminal_image, ("keys", keys, timeout))[0] for timeout in (0.05, 30.0))
            assert "finished" not in short[0]
            assert round == 0 or short[1] == "hit"
            assert long[1] == "executed" or round == 1
