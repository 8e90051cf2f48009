"""The disk limit of the local backend: what goes beyond it fails inside, and nobody else notices.

Forks must meet it where a sandbox that was never forked does, whatever of their files snapshots share.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, eventually, run, sh, usable
from tests.conformance.targets import make_local
from tvsnap.images import Image
from tvsnap.model.limits import MIB, Limits
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.sandboxes.local.storage import quota
from tvsnap.sandboxes.protocol import Sandbox

LIMIT = 32 * MIB
LIMITS = Limits(disk=LIMIT)
EXCEEDED = b"Disk quota exceeded"
FILL = "dd if=/dev/zero of=/root/filler bs=64k count=1000 status=none"


@pytest.fixture(scope="module")
def local(tvsnap_home: Path) -> Iterator[LocalBackend]:
    backend = make_local(tvsnap_home)
    assert isinstance(backend, LocalBackend)
    yield backend
    backend.close()


@pytest.fixture
def lab(local: LocalBackend, terminal_image: Image) -> Iterator[Lab]:
    if not local._storage.limiting:
        pytest.skip("this machine cannot limit the disk of a sandbox (tvsnap doctor)")
    laboratory = Lab(local, terminal_image)
    yield laboratory
    laboratory.close()


def held(sandbox: Sandbox) -> int:
    """Returns the bytes that a sandbox's files take."""
    assert isinstance(sandbox, LocalSandbox)
    return quota.referenced(sandbox.layer)


def charged(sandbox: Sandbox) -> int:
    """Returns the bytes that a sandbox has written and that it, or a snapshot, still holds."""
    assert isinstance(sandbox, LocalSandbox)
    return quota.Quotas(sandbox.layer).group(sandbox.layer).charge().used


def filled(sandbox: Sandbox) -> int:
    """Fills a sandbox; returns the bytes that it could write."""
    outcome = run(sandbox, FILL)
    assert (outcome.exit_code, EXCEEDED in outcome.output) == (1, True)
    return int(sh(sandbox, "stat -c %s /root/filler"))


def call(sandbox: Sandbox, command: str) -> None:
    """Runs a command that succeeds, and observes the sandbox as the cache does after each call."""
    assert run(sandbox, command).exit_code == 0
    sandbox.observe()


FILLERS = {
    "one file": FILL,
    "many files": "i=0; while head -c 300k /dev/zero > /root/f$i; do i=$((i + 1)); done; false",
    "set aside": "fallocate -l 100M /root/f",
    "in shared memory's place": "head -c 100M /dev/zero > /dev/shm/f",
    "in /run": "head -c 100M /dev/zero > /run/f",
    "another user's": "mkdir -m 777 /root/open; chmod 755 /root; su nobody -s /bin/bash -c 'yes > /root/open/f'",
    "mapped": """python3 -c '
import mmap
with open("/root/f", "w+b") as file:
    file.truncate(100 << 20)
    memory = mmap.mmap(file.fileno(), 0)
    for at in range(0, 100 << 20, 4096): memory[at] = 1
'""",
    "deleted but open": "exec 9> /root/f; rm /root/f; head -c 100M /dev/zero >&9; s=$?; exec 9>&-; (exit $s)",
    "attributes": """python3 -c '
import os
for i in range(100_000):
    open(f"/root/{i}", "w").close()
    for name in "abc": os.setxattr(f"/root/{i}", "user." + name, os.urandom(3000))
'""",
    "copied from the image": (
        "find /usr/bin /usr/lib -type f -size +100k | while read -r f; do chmod o-x $f || exit; done"
    ),
}


def test_fillers(lab: Lab) -> None:
    sandbox = lab.start(LIMITS)
    bystander = lab.start()
    sh(sandbox, "x=kept")
    for name, command in FILLERS.items():
        outcome = run(sandbox, command, timeout=200)
        assert outcome.exit_code not in (0, None), name
        assert outcome.exit_code == 135 or EXCEEDED in outcome.output, (
            name,
            outcome,
        )  # of 128 + SIGBUS nothing is said
        assert charged(sandbox) <= LIMIT, name
        usable(sandbox)
        call(sandbox, "rm -rf /root/* /run/f /dev/shm/f")
        assert sh(sandbox, "echo $x") == "kept\n"
        if name != "copied from the image":  # what was copied stays
            assert sh(sandbox, "echo small > /root/small; cat /root/small") == "small\n", name
    sh(bystander, "head -c 64M /dev/zero > /root/f && sync /root/f && rm /root/f")


def test_filler_of_inodes(lab: Lab) -> None:
    sandbox = lab.start(Limits(disk=2 * MIB))
    sandbox.write_file("/tmp/fill.py", b"for n in range(100_000):\n    open(f'/root/{n}', 'x').close()\n")
    outcome = run(sandbox, "python3 /tmp/fill.py", timeout=200)
    assert not outcome.timed_out
    assert EXCEEDED in outcome.output
    assert 500 < int(sh(sandbox, "ls /root | wc -l")) < 50_000
    fork = lab.fork_of(sandbox, Limits(disk=2 * MIB))
    assert EXCEEDED in run(fork, "mkdir -p /root/d/{1..1000}").output
    assert EXCEEDED in run(fork, "rm /root/.profile").output  # the image's: that it is gone must be written down
    call(fork, "rm -rf /root/[0-9]* /root/d")
    assert run(fork, "mkdir -p /root/d/{1..1000}").exit_code == 0
    usable(fork)


def test_a_full_sandbox_is_forked_as_it_is(lab: Lab) -> None:
    sandbox = lab.start(LIMITS)
    amount = filled(sandbox)
    fork = lab.fork_of(lab.fork_of(sandbox, LIMITS), LIMITS)
    for each in (sandbox, fork):
        assert EXCEEDED in run(each, "head -c 300k /dev/zero > /root/more").output
        usable(each)
    call(fork, "rm -f /root/filler /root/more")
    assert abs(filled(fork) - amount) < MIB
    assert EXCEEDED in run(sandbox, "head -c 300k /dev/zero > /root/more").output  # its own is still there


def test_forks_meet_it_where_others_do(lab: Lab) -> None:
    """Through what is written again, deleted, copied and held by snapshots."""
    steps = (
        "head -c 12M /dev/urandom > /root/a",
        "head -c 12M /dev/urandom > /root/a",
        "cp /root/a /root/b",
        "rm /root/a; head -c 6M /dev/urandom > /root/c",
        "head -c 6M /dev/urandom > /root/c",
        "rm /root/b; head -c 9M /dev/urandom > /root/a",
    )
    fresh, kept, forked = lab.start(LIMITS), lab.start(LIMITS), lab.start(LIMITS)
    for step in steps:
        call(fresh, step)
        call(kept, step)
        call(forked, step)
        lab.checkpoint(kept)
        forked = lab.fork_of(forked, LIMITS)
    amounts = [filled(each) for each in (fresh, kept, forked)]
    assert max(amounts) - min(amounts) < MIB, amounts
    assert 16 * MIB < amounts[0] < 18 * MIB


def test_limits_of_a_fork_are_its_own(lab: Lab) -> None:
    sandbox = lab.start(LIMITS)
    call(sandbox, "head -c 20M /dev/zero > /root/a")
    snapshot = lab.checkpoint(sandbox)
    below, above, without = (lab.fork(snapshot, Limits(disk=limit * MIB)) for limit in (8, 48, 0))
    assert EXCEEDED in run(below, "head -c 1M /dev/zero > /root/b").output
    assert 26 * MIB < filled(above) < 29 * MIB
    sh(without, "head -c 64M /dev/zero > /root/b && sync /root/b")
    assert held(without) > 80 * MIB


def test_room_is_given_back_and_no_more(lab: Lab) -> None:
    """Deleting over and over does not add up to more than the limit."""
    sandbox = lab.start(LIMITS)
    for _ in range(3):
        filled(sandbox)
        lab.checkpoint(sandbox)
        call(sandbox, "rm /root/filler")
        sandbox.observe()
    assert eventually(lambda: filled(sandbox)) <= LIMIT
    assert held(sandbox) <= LIMIT + MIB
