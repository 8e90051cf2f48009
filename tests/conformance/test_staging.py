"""Forks that stand still until they are needed: complete, not run yet, and gone without a trace if they are not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import LIMITS, Lab, eventually, job, on_host, sh, unique_sleep, usable
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import SnapshotInfo
from tvsnap.sandboxes.protocol import Sandbox, Staged, Staging

ANSWERS = r"""
import itertools
for number in itertools.count(1):
    open("/tmp/ask").read()
    open("/tmp/answer", "w").write(str(number))
"""
COUNTER = r"""
import os, time
count = 0
while True:
    count += 1
    print(count, file=open("/tmp/count.new", "w"), flush=True)
    os.replace("/tmp/count.new", "/tmp/count")
    time.sleep(0.01)
"""


@pytest.fixture
def snapshot(local_lab: Lab) -> SnapshotInfo:
    """Of a sandbox with a variable in its shell, a file, and a program that answers."""
    sandbox = local_lab.start()
    sh(sandbox, "mkfifo /tmp/ask /tmp/answer; X=5; echo kept > /tmp/file")
    sandbox.write_file("/tmp/answers.py", ANSWERS.encode())
    job(sandbox, "python3 /tmp/answers.py")
    return local_lab.checkpoint(sandbox)


@pytest.fixture
def staged(local_lab: Lab, snapshot: SnapshotInfo) -> Iterator[Staged]:
    fork = stage(local_lab, snapshot)
    yield fork
    fork.close()


def stage(lab: Lab, snapshot: SnapshotInfo) -> Staged:
    assert isinstance(lab.backend, Staging)
    fork = lab.backend.stage(snapshot.id, lab.image, LIMITS)
    assert fork is not None
    return fork


def ask(sandbox: Sandbox) -> str:
    return sh(sandbox, "echo > /tmp/ask; cat /tmp/answer; echo")


def test_it_is_what_a_fork_is(local_lab: Lab, snapshot: SnapshotInfo, staged: Staged) -> None:
    fork = local_lab.fork(snapshot)
    begun = staged.begin()
    look = "echo $X; cat /tmp/file; jobs; echo $!; ps ax; ls -la --time-style=+ /tmp; ulimit -a; tty"
    assert sh(fork, look) == sh(begun, look)
    for each in (fork, begun):
        assert ask(each) == "1\n"
        assert ask(each) == "2\n"
        usable(local_lab.fork_of(each))


def test_nothing_of_it_runs_before_it_begins(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    sandbox.write_file("/tmp/counter.py", COUNTER.encode())
    job(sandbox, "python3 /tmp/counter.py")
    snapshot = local_lab.checkpoint(sandbox)
    staged = stage(local_lab, snapshot)
    time.sleep(0.5)
    began = time.monotonic()
    begun = [each.begin() for each in (staged, stage(local_lab, snapshot))]
    counts = [int(sh(each, "cat /tmp/count")) for each in begun]
    for each in begun:
        each.close()
    assert counts[0] - counts[1] <= 1 + (time.monotonic() - began) / 0.01, "a hundred times a second at most"


def test_one_that_is_not_needed_leaves_nothing(local_lab: Lab) -> None:
    before = threads()  # of forks that other tests have had staged
    sandbox = local_lab.start()
    marker = unique_sleep()
    job(sandbox, marker)
    snapshot = local_lab.checkpoint(sandbox)
    sandbox.close()
    eventually(lambda: not on_host(marker))
    staged = [stage(local_lab, snapshot) for _ in range(3)]
    assert on_host(marker)
    assert all(each.memory() > 0 for each in staged)
    for each in staged:
        each.close()
        each.close()
    eventually(lambda: not on_host(marker))
    eventually(lambda: threads() <= before)
    assert files_of(local_lab, sandbox.id.rpartition(".")[0]) == []


def test_one_that_has_begun_is_closed_with_its_sandbox(local_lab: Lab, snapshot: SnapshotInfo) -> None:
    staged = stage(local_lab, snapshot)
    sandbox = staged.begin()
    usable(sandbox)
    staged.close()
    with pytest.raises(InfrastructureError):
        sandbox.run("true", timeout=10)


def test_its_snapshot_may_go(local_lab: Lab, snapshot: SnapshotInfo, staged: Staged) -> None:
    local_lab.backend.delete_snapshot(snapshot.id)
    sandbox = staged.begin()
    assert ask(sandbox) == "1\n"


def test_its_processes_do_not_run_if_criu_is_killed(local_lab: Lab) -> None:
    """And whoever wants it has a fork all the same."""
    sandbox = local_lab.start()
    sandbox.write_file("/tmp/counter.py", COUNTER.encode())
    marker = unique_sleep()
    job(sandbox, marker)
    job(sandbox, "python3 /tmp/counter.py")
    snapshot = local_lab.checkpoint(sandbox)
    sandbox.close()
    eventually(lambda: not on_host(marker))
    staged = stage(local_lab, snapshot)
    os.kill(holder(marker), signal.SIGKILL)
    time.sleep(0.3)
    begun = staged.begin()
    assert sh(begun, "echo ok") == "ok\n"
    begun.close()
    eventually(lambda: not on_host(marker))


def test_closing_the_backend_ends_what_stands_still(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    marker = unique_sleep()
    job(sandbox, marker)
    snapshot = local_lab.checkpoint(sandbox)
    stage(local_lab, snapshot)
    sandbox.close()
    assert on_host(marker)
    local_lab.backend.close()
    eventually(lambda: not on_host(marker))


def files_of(lab: Lab, owner: str) -> list[str]:
    """Returns which sandboxes of an owner have files."""
    return [name for name in os.listdir(vars(lab.backend)["_pool"].live) if name.startswith(f"{owner}.")]


def threads() -> set[int | None]:
    return {each.ident for each in threading.enumerate() if each.name.startswith("tvsnap-staged")}


def holder(marker: str) -> int:
    """Returns the process that holds the one whose command line has `marker`, as CRIU does by ptrace(2)."""
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            status, line = path.read_text(), (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if marker in line.replace(b"\0", b" ").decode("utf-8", "replace"):
            return int(status.split("TracerPid:")[1].split()[0])
    raise LookupError(marker)
