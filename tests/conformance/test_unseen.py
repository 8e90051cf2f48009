"""What a call changes though nobody runs for it: data taken out of a fifo, a signal for what is stopped, a priority."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.helpers import changed, eventually, job, sh
from tvsnap import Cache
from tvsnap.backends.base import Sandbox
from tvsnap.images import Image

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
@pytest.mark.needs_programs
def test_change_that_nobody_runs_for(sandbox: Sandbox, name: str) -> None:
    reach, change = CHANGES[name]
    sh(sandbox, reach)
    sh(sandbox, "sleep 0.3; true")  # what was started has come to rest
    assert "processes" in changed(sandbox, change)


@pytest.mark.needs_programs
def test_what_merely_lives_changes_nothing(sandbox: Sandbox) -> None:
    job(sandbox, "sleep 1000")
    sh(sandbox, "setpriv --reuid 65534 --regid 65534 --clear-groups sleep 1000 &")
    sh(sandbox, f"mkfifo /tmp/f; exec 6<> /tmp/f; sleep 1000 <&6 | cat > /dev/null & {STOPPED}")
    eventually(lambda: changed(sandbox, "ls /; true") == set())
    assert changed(sandbox, "ls /; true") == set()


def test_no_answer_rests_on_it(tmp_path: Path, terminal_image: Image) -> None:
    """Calls that only take something away, and print it, are no hits of one another."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    calls = ("mkfifo /tmp/f; exec 6<> /tmp/f; printf abcdef >&6", *["head -c 2 <&6; echo"] * 3)
    with Cache(tmp_path, policy="eager") as cache:
        for _ in range(2):
            with cache.rollout(terminal_image.name) as rollout:
                results = [rollout.call("bash", {"command": command}) for command in calls]
            assert [result.output for result in results] == ["", "ab\n", "cd\n", "ef\n"]
        assert {result.source for result in results} == {"hit"}
        with cache.rollout(terminal_image.name) as rollout:
            rollout.call("bash", {"command": STOPPED})
            rollout.call("bash", {"command": "kill -TERM %1"})
            ended = rollout.call("bash", {"command": "kill -CONT %1; wait %1; echo $?"})
        with cache.rollout(terminal_image.name) as rollout:
            rollout.call("bash", {"command": STOPPED})
            alive = rollout.call("bash", {"command": "kill -CONT %1; wait %1; echo $?"}, timeout=1)
        assert ended.output.endswith("143\n")
        assert alive.timed_out
