"""The conformance suite for backends: sandboxes run commands, snapshots have their contents, forks go on."""

from __future__ import annotations

import errno
import io
import os
import re
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from tvsnap.host.owners import Owner
from tvsnap.images import ImageStore
from tvsnap.model.errors import NotCheckpointable, SandboxDied, SnapshotUnusable
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Command, SnapshotInfo
from tvsnap.sandboxes import open_backend
from tvsnap.sandboxes.protocol import Backend, Sandbox

TIMEOUT = 60.0
"""Seconds for a command that takes far less, even on a busy machine."""
SERVER = "(while :; do sleep 1000; done) > /dev/null 2>&1 &"


@dataclass
class Laboratory:
    """Makes sandboxes and snapshots of one backend, and remembers them, to remove them all.

    Attributes:
        backend: the backend.
        image: the image of its sandboxes.
    """

    backend: Backend
    image: Image
    _made: ExitStack = field(default_factory=ExitStack, init=False)

    def start(self, limits: Limits | None = None) -> Sandbox:
        """Returns a fresh sandbox."""
        return self._made.enter_context(closing(self.backend.start(self.image, limits or Limits())))

    def checkpoint(self, sandbox: Sandbox) -> SnapshotInfo:
        """Returns a snapshot."""
        info = sandbox.checkpoint()
        self._made.callback(self.backend.delete_snapshot, info.id)
        return info

    def fork(self, snapshot: str) -> Sandbox:
        """Returns a fork of a snapshot."""
        return self._made.enter_context(closing(self.backend.fork(snapshot, self.image, Limits())))

    def close(self) -> None:
        """Removes all of them."""
        self._made.close()


def sh(sandbox: Sandbox, command: str) -> str:
    """Runs a command in the persistent shell; returns its output. It must neither time out nor end the shell."""
    outcome = sandbox.run(command, timeout=TIMEOUT)
    assert not outcome.timed_out, command
    assert not outcome.shell_lost, command
    return outcome.output.decode()


class BackendConformance:
    """A suite for one backend: derive a class whose name begins with `Test`, and set its attributes.

    tvsnap's own backends also pass a longer one, which knows their implementation.

    Attributes:
        backend_name: the name of the backend, or `package.module:attribute`.
        source: the image of the tests: the name of one that comes with tvsnap, or a folder; it has bash.
    """

    backend_name: ClassVar[str]
    source: ClassVar[str | Path] = "terminal"

    @pytest.fixture(scope="class")
    @classmethod
    def home(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The data directory; override it for an existing one."""
        return tmp_path_factory.mktemp("tvsnap-testing")

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls, home: Path) -> Image:
        """The image; override it for an existing one."""
        return ImageStore(home).build(cls.source)

    @pytest.fixture(scope="class")
    @classmethod
    def owner(cls, home: Path) -> Iterator[str]:
        """The id of this process on the data directory."""
        with closing(Owner(home)) as owner:
            yield owner.id

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, home: Path, owner: str) -> Iterator[Backend]:
        """The backend, opened once for all tests."""
        with closing(open_backend(cls.backend_name, home, owner)) as backend:
            yield backend

    @pytest.fixture
    def lab(self, backend: Backend, image: Image) -> Iterator[Laboratory]:
        """Makes sandboxes and snapshots, and removes them at the end of the test."""
        with closing(Laboratory(backend, image)) as laboratory:
            yield laboratory

    # Commands.

    def test_the_shell_keeps_what_it_is_told(self, lab: Laboratory) -> None:
        """Working directory, variables and functions carry over; another command's shell has none of them."""
        sandbox = lab.start()
        sh(sandbox, "cd /tmp; x=1; f() { echo f$x; }")
        assert sh(sandbox, "pwd; f") == "/tmp\nf1\n"
        apart = sandbox.exec("echo $x; type f 2>/dev/null; pwd", timeout=TIMEOUT, cwd="/usr", env={"x": "2"})
        assert (apart.output, apart.exit_code) == (b"2\n/usr\n", 0)

    def test_output_and_status_are_told(self, lab: Laboratory) -> None:
        """Standard output and error as they interleave, any bytes, and the exit status."""
        sandbox = lab.start()
        outcome = sandbox.run(r"printf 'a\0\377'; echo b >&2; (exit 3)", timeout=TIMEOUT)
        assert (outcome.output, outcome.exit_code) == (b"a\0\xffb\n", 3)
        assert sandbox.run("kill -9 $BASHPID", timeout=TIMEOUT).shell_lost
        assert sh(sandbox, "echo again") == "again\n"

    def test_a_timeout_ends_what_it_ends(self, lab: Laboratory) -> None:
        """The command is gone, the sandbox lives; commands that merely waited are told from those that worked."""
        sandbox = lab.start()
        sh(sandbox, "cd /tmp")
        waited = sandbox.run("sleep 1000", timeout=1.0)
        worked = sandbox.run("while :; do :; done", timeout=1.0)
        assert (waited.timed_out, waited.blocked, waited.exit_code) == (True, True, None)
        assert (worked.timed_out, worked.blocked) == (True, False)
        assert "sleep" not in " ".join(process.command for process in sandbox.processes())

    def test_long_output_is_cut_in_the_middle(self, lab: Laboratory) -> None:
        """The first half of the limit and the last are kept."""
        sandbox = lab.start(Limits(output=1000))
        outcome = sandbox.run("printf 'a%.0s' {1..5000}; printf 'b%.0s' {1..5000}", timeout=TIMEOUT)
        assert outcome.truncated
        assert outcome.output == b"a" * 500 + b"b" * 500

    def test_limits_hold(self, lab: Laboratory) -> None:
        """The limit of processes holds; a program that takes too much memory is ended, and the sandbox lives."""
        sandbox = lab.start(Limits(processes=16, memory=128 << 20))
        # The shell waits for a while before it gives up to make a process.
        outcome = sandbox.exec("for i in {1..40}; do sleep 20 & done", timeout=5.0)
        assert outcome.timed_out or outcome.exit_code != 0 or len(sandbox.processes()) <= 16
        sandbox.exec("x=$(head -c 1G /dev/zero | tr '\\0' x); echo ${#x}", timeout=TIMEOUT)
        assert sandbox.run("true", timeout=TIMEOUT).exit_code is not None

    def test_sandboxes_are_apart(self, lab: Laboratory) -> None:
        """Neither files nor processes of one are seen in another."""
        one, other = lab.start(), lab.start()
        sh(one, f"echo secret > /tmp/f; {SERVER}")
        assert sh(other, "cat /tmp/f 2>&1 | tail -c 26") == "No such file or directory\n"
        assert not any("sleep" in process.command for process in other.processes())

    # Files.

    def test_files_are_written_and_read(self, lab: Laboratory) -> None:
        """Any bytes; directories above are made; a relative path begins at the shell's working directory."""
        sandbox = lab.start()
        data = bytes(range(256)) * 100
        sandbox.write_file("/tmp/a/b/c", data)
        assert sandbox.read_file("/tmp/a/b/c") == data
        sh(sandbox, "cd /tmp/a")
        assert sandbox.read_file("b/c") == data
        listing = sandbox.list_folder("b")
        assert [(one.name, one.kind, one.size) for one in listing.entries] == [("c", "file", len(data))]
        assert not listing.cut

    def test_folders_go_in_and_come_out(self, lab: Laboratory, tmp_path: Path) -> None:
        """Contents, permission bits and links; a folder that is put again is the same."""
        top = tmp_path / "folder"
        (top / "sub").mkdir(parents=True)
        (top / "sub" / "f").write_bytes(bytes(range(256)) * 40_000)
        (top / "sub" / "f").chmod(0o750)
        (top / "link").symlink_to("sub/f")
        sandbox = lab.start()
        sandbox.put(top, "/tmp/x/y")
        assert sh(sandbox, "stat -c %a /tmp/x/y/sub/f; readlink /tmp/x/y/link") == "750\nsub/f\n"
        assert sandbox.get("/tmp/x/y", tmp_path / "back") == ()
        assert (tmp_path / "back" / "link").read_bytes() == (top / "sub" / "f").read_bytes()
        with pytest.raises(FileNotFoundError):
            sandbox.get("/nowhere", tmp_path / "none")

    def test_commands_run_side_by_side(self, lab: Laboratory) -> None:
        """Each waits for the other; standard error is kept apart on request."""
        sandbox = lab.start()
        sh(sandbox, "mkfifo /tmp/a /tmp/b")
        commands = [
            Command("cat < /tmp/a > /tmp/b; echo bad >&2", separate=True),
            Command("echo told > /tmp/a; cat < /tmp/b; exit 3"),
        ]
        one, other = sandbox.exec_all(commands, timeout=60)
        assert (one.output, one.errors, one.exit_code) == (b"", b"bad\n", 0)
        assert (other.output, other.errors, other.exit_code) == (b"told\n", None, 3)

    @pytest.mark.parametrize(
        ("path", "number"),
        [("/nowhere", errno.ENOENT), ("/tmp", errno.EISDIR), ("/etc/passwd/x", errno.ENOTDIR)],
    )
    def test_what_cannot_be_read_says_why(self, lab: Laboratory, path: str, number: int) -> None:
        """The error is that of the system inside."""
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as refused:
            lab.start().read_file(path)
        assert refused.value.errno == number

    def test_what_differs_from_the_image_is_told(self, lab: Laboratory) -> None:
        """New, changed and deleted files, by path."""
        sandbox = lab.start()
        sh(sandbox, "mkdir /srv/d; echo 1 > /srv/d/f; rm /etc/passwd")
        changes = sandbox.changes()
        assert (changes["/srv/d"].kind, changes["/srv/d/f"].kind) == ("directory", "file")
        assert (changes["/srv/d/f"].size, changes["/etc/passwd"].kind) == (2, "deleted")

    def test_an_archive_holds_all_files(self, lab: Laboratory) -> None:
        """One tar stream of the image and the changes."""
        sandbox = lab.start()
        sh(sandbox, "echo 1 > /srv/f; rm /etc/passwd")
        with sandbox.archive() as stream, tarfile.open(fileobj=io.BytesIO(stream.read())) as archive:
            names = {member.name.lstrip("./") for member in archive}
        assert {"srv/f", "etc"} <= names
        assert "etc/passwd" not in names

    # Observations.

    @pytest.mark.parametrize(
        "command", ["ls -l / > /dev/null", "cat /etc/passwd > /dev/null", "(cd /tmp; x=5)", "x=$x"]
    )
    def test_what_changes_nothing_is_seen_as_that(self, lab: Laboratory, command: str) -> None:
        """Reading is no change."""
        sandbox = lab.start()
        sh(sandbox, "x=1")
        before = sandbox.observe()
        sandbox.note()
        sh(sandbox, command)
        assert sandbox.observe() == before

    @pytest.mark.parametrize(
        "command",
        [
            "echo 1 > /srv/f",
            "chmod 600 /etc/passwd",
            "rm /etc/passwd",
            "x=2",
            "cd /srv",
            "f() { :; }",
            "umask 077",
            "exec 9< /etc/passwd",
            SERVER,
        ],
    )
    def test_what_changes_something_is_seen(self, lab: Laboratory, command: str) -> None:
        """Files, the shell's state and processes."""
        sandbox = lab.start()
        before = sandbox.observe()
        sandbox.note()
        sh(sandbox, command)
        assert sandbox.observe() != before

    def test_equal_histories_have_equal_digests(self, lab: Laboratory) -> None:
        """Different histories have different digests; if a part cannot be compared, there is none."""
        one, same, other = lab.start(), lab.start(), lab.start()
        for sandbox, text in ((one, "1"), (same, "1"), (other, "2")):
            sh(sandbox, f"x=1; echo {text} > /srv/f")
            sandbox.settle(changed=True)
        assert one.digest() == same.digest()
        assert one.digest() is None or one.digest() != other.digest()

    # Snapshots and forks.

    def test_a_fork_has_files_and_shell(self, lab: Laboratory) -> None:
        """They are those of the moment of the snapshot, unaffected by later work in the first sandbox."""
        sandbox = lab.start()
        sh(sandbox, "mkdir /srv/d; cd /srv/d; echo 1 > f; x='a b'; f() { echo f; }")
        snapshot = lab.checkpoint(sandbox)
        sh(sandbox, "echo 2 > f; x=c")
        fork = lab.fork(snapshot.id)
        assert sh(fork, "cat f /srv/d/f; echo $x; f; pwd") == "1\n1\na b\nf\n/srv/d\n"
        sh(fork, "echo 3 > f")
        assert sh(sandbox, "cat f; echo $x") == "2\nc\n"
        assert sh(lab.fork(snapshot.id), "cat f") == "1\n"

    def test_a_fork_has_live_processes_where_snapshots_hold_them(self, lab: Laboratory) -> None:
        """A job goes on in each fork by itself; if that is impossible, the snapshot is refused, with the reason."""
        sandbox = lab.start()
        sh(sandbox, "mkfifo /srv/p; (while read -r line < /srv/p; do echo got $line >> /srv/log; done) & disown")
        if not lab.backend.captures.processes:
            with pytest.raises(NotCheckpointable) as refused:
                lab.checkpoint(sandbox)
            assert str(refused.value)
            return
        snapshot = lab.checkpoint(sandbox)
        forks = [lab.fork(snapshot.id) for _ in range(2)]
        for number, one in enumerate((sandbox, *forks)):
            sh(one, f"echo {number} > /srv/p")
            self.eventually(lambda one=one, number=number: sh(one, "cat /srv/log") == f"got {number}\n")  # type: ignore[misc]

    def test_a_fork_of_a_fork(self, lab: Laboratory) -> None:
        """Its digest is that of its origin."""
        sandbox = lab.start()
        sh(sandbox, "echo 1 > /srv/f")
        first = lab.fork(lab.checkpoint(sandbox).id)
        sh(first, "echo 2 >> /srv/f")
        second = lab.fork(lab.checkpoint(first).id)
        assert sh(second, "cat /srv/f") == "1\n2\n"
        assert first.digest() == second.digest()

    def test_snapshots_are_listed_until_they_are_deleted(self, lab: Laboratory) -> None:
        """A live fork goes on without its snapshot; a deleted snapshot cannot be forked."""
        sandbox = lab.start()
        sh(sandbox, "echo 1 > /srv/f")
        snapshot = lab.checkpoint(sandbox)
        assert snapshot.id in set(lab.backend.snapshots())
        assert snapshot.size > 0
        fork = lab.fork(snapshot.id)
        lab.backend.delete_snapshot(snapshot.id)
        lab.backend.delete_snapshot(snapshot.id)
        assert snapshot.id not in set(lab.backend.snapshots())
        assert sh(fork, "cat /srv/f") == "1\n"
        with pytest.raises(SnapshotUnusable):
            lab.fork(snapshot.id)

    # Ends.

    def test_a_closed_sandbox_is_gone(self, lab: Laboratory) -> None:
        """Closing it again does nothing; using it raises an error."""
        sandbox = lab.start()
        sandbox.close()
        sandbox.close()
        with pytest.raises(SandboxDied):
            sandbox.run("true", timeout=TIMEOUT)

    def test_what_a_dead_owner_left_is_removed(self, lab: Laboratory, home: Path, backend: Backend) -> None:
        """Nothing of live owners is removed."""
        sandbox = lab.start()
        backend.reap()
        assert sh(sandbox, "echo 1") == "1\n"
        assert set(backend.disk_usage()) >= {"snapshots", "sandboxes"}

    @staticmethod
    def eventually(probe: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits until `probe` returns True.

        Args:
            probe: the condition.
            seconds: the longest wait.
        """
        end = time.monotonic() + seconds
        while not probe():
            assert time.monotonic() < end, "it never came true"
            time.sleep(0.02)
