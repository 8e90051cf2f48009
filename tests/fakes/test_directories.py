"""Sandboxes that are directories: what a fork brings back, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.backend import fake_image
from tests.fakes.directories import DirectoryBackend, DirectorySandbox
from tvsnap.model.errors import NotCheckpointable, SandboxDied, SnapshotUnusable
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Captures

IMAGE = fake_image()
LIMITS = Limits(output=1000)
MAKE = r"""
x='a "b" $c'; export y=$'two\nlines'; unset LANG; set -- 'one two' 3; cd /tmp; umask 027; set -u; shopt -s nullglob
f() { echo "f $1"; return 3; }
alias g='echo "it is"'; trap 'echo caught' USR1; mkdir -p d/e; echo é > d/e/f; ln d/e/f d/second; ln -s e/f d/link
sleep 1000 & sleep 2000 & kill %1; wait %1 2> /dev/null
(exit 5)"""
LOOK = r"""
echo $? "$x" "$y" ${LANG-unset} $# "$1"; pwd; umask; echo *none; f 1; jobs; kill -USR1 $$
cat d/link; stat -c %h d/second; trap -p; shopt nullglob; echo ${nothing}
"""


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[DirectoryBackend]:
    with DirectoryBackend(tmp_path) as backend:
        yield backend


@pytest.fixture
def sandbox(backend: DirectoryBackend) -> DirectorySandbox:
    return backend.start(IMAGE, LIMITS)


def out(sandbox: DirectorySandbox, command: str) -> str:
    return sandbox.run(command, timeout=20).output.decode()


def test_a_fork_is_what_it_was_forked_from(backend: DirectoryBackend, sandbox: DirectorySandbox) -> None:
    out(sandbox, MAKE)
    info = sandbox.checkpoint()
    assert info.processes == ("sleep 2000",)
    fork, another = (backend.fork(info.id, IMAGE, LIMITS) for _ in range(2))
    seen = out(sandbox, LOOK)
    assert 'a "b" $c' in seen
    assert "nothing: unbound variable" in seen
    assert out(fork, LOOK) == seen
    assert out(another, "\ng") == "it is\n"
    fresh = backend.start(IMAGE, LIMITS)
    assert out(backend.fork(fresh.checkpoint().id, IMAGE, LIMITS), "echo $# $?") == "0 0\n"
    out(fork, "echo more >> d/e/f; x=2; kill %2")
    assert out(another, "cat d/second; echo $x; jobs") == 'é\na "b" $c\n[2]+  Running                 sleep 2000 &\n'


def test_what_changes_is_observed(sandbox: DirectorySandbox) -> None:
    before = sandbox.observe()
    digests = [sandbox.digest()]
    for look in ("ls", "cat f", "touch g; rm g", "(x=1; cd /)"):
        out(sandbox, f"{look}; true")
        assert sandbox.observe() == before, look
    for change in ("echo 1 > f", "echo 2 > f", "chmod 600 f", "ln f g", "x=1", "cd /tmp", "f() { :; }", "(exit 3)"):
        out(sandbox, change)
        after = sandbox.observe()
        assert after != before, change
        before = after
        digests.append(sandbox.digest())
    assert len({*digests}) == len(digests)
    out(sandbox, "sleep 1000 &")
    assert sandbox.observe().quiet_s == pytest.approx(1000, abs=60)
    assert sandbox.digest() is None


def test_calls_that_end_in_other_ways(sandbox: DirectorySandbox) -> None:
    waited = sandbox.run("n=7; echo first; sleep 100; n=8", timeout=0.5)
    assert (waited.output, waited.exit_code, waited.timed_out, waited.blocked) == (b"first\n", None, True, True)
    assert out(sandbox, "echo $n $?") == "7 130\n"
    worked = sandbox.run("while :; do :; done", timeout=0.5)
    assert (worked.timed_out, worked.blocked) == (True, False)
    lost = sandbox.run("exit 4", timeout=20)
    assert (lost.exit_code, lost.shell_lost) == (4, True)
    assert out(sandbox, "echo [${n-}] $?; pwd") == "[] 0\n/task\n"
    assert sandbox.run("kill -9 $$", timeout=20).shell_lost
    assert sandbox.run("seq 10000", timeout=20).truncated
    assert sandbox.exec("cat; exit 3", timeout=20).exit_code == 3


def test_files(sandbox: DirectorySandbox) -> None:
    sandbox.write_file("new/f", b"\xff\0")
    assert sandbox.read_file("/task/new/f") == b"\xff\0"
    with pytest.raises(FileNotFoundError):
        sandbox.read_file("/nothing")
    with pytest.raises(IsADirectoryError):
        sandbox.write_file("/tmp", b"")
    assert sorted(sandbox.changes()) == ["/task/new", "/task/new/f"]


def test_what_it_cannot(backend: DirectoryBackend, sandbox: DirectorySandbox) -> None:
    out(sandbox, "(sleep 1000; echo) &")
    with pytest.raises(NotCheckpointable, match="live processes cannot be captured"):
        sandbox.checkpoint()
    with pytest.raises(SnapshotUnusable):
        backend.fork("none", IMAGE, LIMITS)
    backend.captures = Captures(files=True, processes=False, shell=True)
    other = backend.start(IMAGE, LIMITS)
    out(other, "sleep 1000 &")
    with pytest.raises(NotCheckpointable, match="sleep 1000"):
        other.checkpoint()
    other.close()
    with pytest.raises(SandboxDied):
        other.run("true", timeout=20)
