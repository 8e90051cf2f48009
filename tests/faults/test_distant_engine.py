"""An engine whose data this process cannot reach, as one on another machine, and that may be full."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.docker_engine import pointing_at
from tests.conformance.helpers import eventually
from tests.engine import TestEngine
from tests.small_image import build_small_image
from tvsnap import Cache
from tvsnap.host.owners import Owner
from tvsnap.images import Image
from tvsnap.model.errors import NotCheckpointable
from tvsnap.model.limits import MIB, Limits
from tvsnap.model.observations import Captures
from tvsnap.plugins.docker import DockerBackend
from tvsnap.sandboxes.protocol import Sandbox

LIMITS = Limits()
DISK = 256 * MIB
_MOUNT = 'mkdir -p "$1/data" && mount -o loop "$1/disk" "$1/data" && shift && exec "$@"'


class DistantEngine(TestEngine):
    """An engine with a small disk of its own, mounted where only it can see it."""

    __test__ = False

    def _dockerd(self) -> list[str]:
        disk = self.directory / "disk"
        if not disk.exists():
            with disk.open("wb") as file:
                file.truncate(DISK)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(disk)], check=True)
        return ["sh", "-c", _MOUNT, "sh", str(self.directory), *super()._dockerd()]


@pytest.fixture(scope="module")
def engine() -> Iterator[TestEngine]:
    own = DistantEngine()
    own.start()
    with pointing_at(own.address):
        yield own
    own.stop()


@pytest.fixture(scope="module")
def small(terminal_image: Image, tvsnap_home: Path) -> Image:
    return build_small_image(terminal_image, tvsnap_home)


@pytest.fixture
def backend(engine: TestEngine, tmp_path: Path) -> Iterator[DockerBackend]:
    owner = Owner(tmp_path)
    opened = DockerBackend(tmp_path, owner.id)
    yield opened
    for snapshot in list(opened.snapshots()):
        opened.delete_snapshot(snapshot)
    opened.close()
    owner.close()


MADE = r"""
cd /root; mkdir d; echo one > d/f; ln d/f d/g; ln -s f d/l; touch -d @1600000000.123456789 d/f; rm /usr/bin/seq
chmod 600 /etc/passwd; echo mine > /etc/hosts; echo name > /etc/hostname; chmod 640 /etc/hostname
x=(1 "two three"); f() { echo "f $1"; }; trap 'echo bye' EXIT; set -o pipefail; touch -d @1500000000.5 d
"""
LOOKS = r"""
stat -c '%n %a %s %h %.9Y' d/f d/g d/l /etc/passwd; stat -c '%n %a %.9Y' d; ls /usr/bin /root
cat /etc/hosts /etc/hostname; stat -c %a /etc/hostname; declare -p x; f again; trap -p; pwd; echo $$; set -o
"""


def test_what_a_fork_is_like(backend: DockerBackend, small: Image) -> None:
    assert backend.captures == Captures(processes=False, shell=True)
    sandbox = backend.start(small, LIMITS)
    sandbox.run(MADE, timeout=60)
    expected = sandbox.run(LOOKS, timeout=60).output
    assert b"1600000000.123456789" in expected
    fork = backend.fork(sandbox.checkpoint().id, small, LIMITS)
    assert fork.run(LOOKS, timeout=60).output == expected
    of_fork = backend.fork(fork.checkpoint().id, small, LIMITS)
    assert of_fork.run(LOOKS, timeout=60).output == expected
    assert of_fork.run("echo two >> d/f; cat d/g", timeout=60).output == b"one\ntwo\n"
    assert sandbox.run("cat d/g", timeout=60).output == b"one\n"


def test_what_is_seen(backend: DockerBackend, small: Image) -> None:
    sandbox = backend.start(small, LIMITS)
    sandbox.run("chmod 1777 /tmp; echo x > /tmp/new; rm /tmp/new", timeout=60)
    before = sandbox.observe()
    sandbox.run("cat /etc/passwd; echo x > /tmp/new; rm /tmp/new; (exit 0)", timeout=60)
    assert sandbox.observe().files == before.files
    sandbox.run("echo x > /root/new; echo y >> /etc/hosts; rm /usr/bin/seq; chmod 600 /etc/passwd", timeout=60)
    assert sandbox.observe().files != before.files
    kinds = {path: change.kind for path, change in sandbox.changes().items()}
    assert kinds["/root/new"] == "file"
    assert kinds["/usr/bin/seq"] == "deleted"
    assert {"/etc/passwd", "/etc/hosts"} <= set(kinds)
    assert "/etc/hostname" not in kinds


def test_what_is_refused(backend: DockerBackend, small: Image) -> None:
    sandbox = backend.start(small, LIMITS)
    sandbox.run("sleep 1000 & until [ $(</proc/$!/comm) = sleep ]; do :; done", timeout=60)
    with pytest.raises(NotCheckpointable, match="sleep 1000; checkpoints are forked in the engine's own directory"):
        sandbox.checkpoint()
    other = backend.start(small, LIMITS)
    other.run("echo x > /dev/shm/x", timeout=60)
    with pytest.raises(NotCheckpointable, match="/dev/shm"):
        other.checkpoint()


def test_a_full_engine_fails_no_rollout(backend: DockerBackend, small: Image, tmp_path: Path) -> None:
    class Images:
        def get(self, name: str) -> Image:
            return small

    opened = DockerBackend(tmp_path, Owner(tmp_path).id)
    with Cache(tmp_path, backend=opened, policy="eager", images=Images()) as cache, cache.rollout("small") as rollout:
        rollout.call("bash", {"command": "echo one > /root/f"})
        hog = backend.start(small, LIMITS)
        assert fill(hog) == errno.ENOSPC
        result = rollout.call("bash", {"command": "x=1; echo two"})
        assert (result.output, result.exit_code) == ("two\n", 0)
        eventually(lambda: "no space left" in str(cache.trouble))
        assert rollout.call("bash", {"command": "echo $x; cat /root/f"}).output == "1\none\n"
        hog.close()
    opened = DockerBackend(tmp_path, Owner(tmp_path).id)
    with Cache(tmp_path, backend=opened, images=Images()) as cache, cache.rollout("small") as rollout:
        calls = ("echo one > /root/f", "x=1; echo two")
        assert [rollout.call("bash", {"command": command}).source for command in calls] == ["hit", "executed"]
        assert rollout.call("bash", {"command": "cat /root/f; echo again $x"}).output == "one\nagain 1\n"


def fill(sandbox: Sandbox) -> int | None:
    """Writes files until there is no more room; returns the error's number."""
    error = None
    for size in (MIB, MIB // 16, 4096):
        for number in range(DISK // MIB):
            try:
                sandbox.write_file(f"/root/{size}-{number}", b"x" * size)
            except OSError as full:  # noqa: PERF203
                error = full.errno
                break
    return error
