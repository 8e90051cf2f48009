"""One live sandbox of the local backend."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from tvsnap.guest.actions import exclusive
from tvsnap.guest.protocol import CONTROL, Guest, GuestInfo
from tvsnap.host.libc import closing
from tvsnap.host.load import Load, LoadGauge
from tvsnap.host.memory import proportional
from tvsnap.images.preload import PRELOAD
from tvsnap.model.errors import InfrastructureError, SandboxDied
from tvsnap.model.observations import NO_SERVICE, FileChange, Observation, Process, Service, SnapshotInfo, Stillness
from tvsnap.sandboxes import file_times, shell_report
from tvsnap.sandboxes.criu.client import ProcessesDisturbed
from tvsnap.sandboxes.fixed_clock import Clock, is_fixed
from tvsnap.sandboxes.kernel import allowance, paths, procfs
from tvsnap.sandboxes.kernel.process_report import ShellHold
from tvsnap.sandboxes.local import syscalls
from tvsnap.sandboxes.local.inode_paths import Places
from tvsnap.sandboxes.local.pool import Pool, Resources
from tvsnap.sandboxes.looks import activity, observe, observing
from tvsnap.sandboxes.looks import digest as digests
from tvsnap.sandboxes.looks.frame import Frame
from tvsnap.sandboxes.looks.rewind import Rewindable
from tvsnap.sandboxes.looks.seen_files import Look, SeenFiles, SnapshotFiles
from tvsnap.sandboxes.network.sandbox import Networked
from tvsnap.sandboxes.repairs.time_wait import TimeWaits

_START_TIMEOUT = 20.0
_DYING = 1.0
"""Seconds within which PID 1 ends after its connection."""
# Equal files yield equal bytes. Holes are written out because container engines cannot write sparse tars again.
_TAR = ["tar", "--create", "--format=posix", "--numeric-owner", "--sort=name", "--blocking-factor=512"]
_TAR += ["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime", "--warning=no-file-ignored"]
_TAR += ["--acls", "--xattrs", "--xattrs-include=user.*", "--xattrs-include=security.capability"]
_TAR += ["--exclude=.wh.*", "--anchored"]  # otherwise each name is matched at every level
_TAR += ["--exclude=./proc", "--exclude=./sys/*", "--exclude=./dev/*", "--exclude=./run/tvsnap"]
_PIPE_SIZE = 1 << 20
_MOST_ARCHIVED = 128 << 30
"""Bytes of an archive's files, counting those that differ from the image's."""
_LONGEST_COMPLAINT = 1000
_OURS = 2  # tvsnap's own processes in every sandbox: PID 1 and the shell


class Base(NamedTuple):
    """An earlier snapshot with the same processes as a sandbox.

    Attributes:
        snapshot: its id.
        frame: the processes as they were then.
    """

    snapshot: str
    frame: Frame


class _Sight(NamedTuple):
    """An observation of a sandbox in which only PID 1 and the idle shell live, and nothing is due.

    Attributes:
        guest: the connection to PID 1.
        requests: the number of requests sent on it before.
        reported: the answer of PID 1.
        shell: the shell's process id on the host.
        hold: the shell's own resources.
        entries: the files.
    """

    guest: Guest
    requests: int
    reported: tuple[bytes | None, GuestInfo]
    shell: int
    hold: ShellHold
    entries: list[observing.Entry]


class LocalSandbox(Networked, Rewindable):
    """A process tree in its own namespaces, on an overlay of the image and a writable layer in the pool."""

    def __init__(
        self,
        resources: Resources,
        pool: Pool,
        init: int,
        *,
        checkpoint: Callable[[LocalSandbox], SnapshotInfo],
        on_close: Callable[[LocalSandbox], None],
        tree: observing.ImageTree,
        files: SnapshotFiles,
        time_waits: TimeWaits,
        clock: Clock | None,
        places: Places,
    ) -> None:
        """Takes charge of a running PID 1.

        Args:
            resources: the sandbox's resources.
            pool: has reserved them.
            init: process id of its PID 1, a child of this process.
            checkpoint: takes a snapshot of it; see `Sandbox.checkpoint`. ProcessesDisturbed ends the sandbox.
            on_close: is called once it has ended.
            tree: the image's files below the writable layer.
            files: what is known of the files of its snapshot, if it was forked, and learns more of them from it.
            time_waits: its connections that end by themselves.
            clock: its own, if its image sets one.
            places: finds the paths of its files.
        """
        self.id = resources.id
        self.image = resources.image
        self.limits = resources.limits
        self.layer = resources.layer
        self.cgroup = resources.cgroup
        self.own_users = resources.own_users
        self.origin = resources.origin
        self.dumped = resources.origin  # the last snapshot of its processes, or of those that they were forked from
        self.base: Base | None = None  # the next snapshot needs only the changes since that one
        self.init = init
        self.contents, look = files.of(resources.origin)
        self.time_waits = time_waits
        self.clock = clock
        self.places = places
        self.gateway = pool.gateway
        self._looked = time.monotonic()  # when `machine_fault` was last called
        self._resources = resources
        self._pool = pool
        self._checkpoint = checkpoint
        self._on_close = on_close
        self._tree = tree
        self._gauge = gauge = LoadGauge(init, limited=bool(self.limits.cpus))
        self._watch = activity.Watch(self.cgroup.pids, init, time_waits.passing, lambda: gauge.read().used)
        super().__init__()
        self._reports = shell_report.ShellReports()
        self._sight: _Sight | None = None  # of the last observation
        self._files = SeenFiles(self.layer / "upper", tree, look)
        self._snapshot_files = files
        self._is_as_forked = bool(self.origin) and look is None  # and nothing is known of its snapshot's files
        self._tells_contents = look is not None and not self.contents.parts  # of its snapshot, with the next digest
        self._shell = (0, 0)  # process ids inside and on the host
        self._closing = threading.Lock()
        self._closed = False

    # -- its properties -------------------------------------------------------------------------------------------

    def attach(self, columns: int, rows: int) -> socket.socket:
        self._is_as_forked = False
        return self._connect().detach(columns, rows)

    @exclusive
    def shell_state(self) -> Mapping[str, str]:
        return shell_report.shell_items(self.guest().shell_state() or b"")

    @exclusive
    def processes(self) -> list[Process]:
        self.guest().info()  # it answers once the shell has been started
        return observe.list_processes(self.cgroup.pids(), self.init)

    def other_processes(self) -> list[str]:
        """Returns the command lines of all processes except PID 1 and the persistent shell."""
        shell = self.guest().info().shell
        listed = observe.list_processes(self.cgroup.pids(), self.init)
        return [process.command for process in listed if process.pid != shell]

    def shell_hold(self) -> ShellHold:
        """Returns the persistent shell's resources; raises SandboxDied if there is no shell."""
        try:
            return observe.shell_hold(self._host_pid(self.guest().info().shell))
        except OSError as error:
            raise SandboxDied(f"the shell of sandbox {self.id} is gone ({error.strerror})") from None

    @exclusive
    def changes(self) -> Mapping[str, FileChange]:
        self.guest()
        return observe.file_changes(self.layer / "upper", self._tree)

    @exclusive
    def observe(self, service: Service = NO_SERVICE) -> Observation:
        try:
            with self._looks.one():
                return self.with_connections(lambda: self._observe(service))
        except allowance.NotSeen as lack:
            return allowance.unseen(str(lack))

    def _observe(self, service: Service) -> Observation:
        self._sight, guest = None, self.guest()
        as_forked, self._is_as_forked = self._is_as_forked and guest.requests == 0, False
        reported = dump, info = guest.report()
        shell = self._host_pid(info.shell)
        # First of all, because an observation made while nothing runs stays true afterwards.
        pids = self.cgroup.pids()
        served = observe.serving(pids, service) if service.processes else ()
        look = self._watch.look(shell if info.idle else 0, served, pids)
        files, data = self._files.fingerprints(service)
        if look.active:
            pids = self.cgroup.pids()
        processes, serving, hold = observe.processes_fingerprint(pids, self.init, shell, service)
        report, hidden = self._reports.seen(dump, info)
        alone = info.idle and len(pids) == _OURS + serving
        entries = self._files.seen
        if as_forked and alone and not serving and not look.active:
            self._tells_contents = self._snapshot_files.learn(self.origin, self._files.last())
        if alone and not serving and not look.active and hold is not None and entries is not None:
            self._sight = _Sight(guest, guest.requests, reported, shell, hold, entries)
        self._pool.keep_limit(self._resources)
        return Observation(
            files=files,
            processes=f"{processes} {look.passing}",
            shell=report,
            data=data,
            hidden=hidden,
            serving=serving,
            alone=alone,
            active=look.active,
            quiet_s=look.quiet_s,
        )

    @exclusive
    def digest(self) -> str | None:
        try:
            with self._looks.one():
                digest = self._digest()
        except allowance.NotSeen:
            return None
        if digest is not None and self._tells_contents:
            self._snapshot_files.learn_contents(self.origin, self.contents)
            self._tells_contents = False
        return digest

    def _digest(self) -> str | None:
        """Returns the digest; it repeats the last observation only if something has run since."""
        guest, sight = self.guest(), self._sight
        if sight is not None and (sight.guest is not guest or sight.requests != guest.requests):
            sight = None

        def stands() -> bool:
            nonlocal sight
            if sight is not None and not self._watch.has_stood_still(sight.shell):
                sight = None
            return sight is not None

        def files() -> contextlib.AbstractContextManager[digests.Files]:
            entries = self._files.entries() if sight is None else sight.entries
            return observe.differing(self.layer / "upper", entries, self._tree, self.contents)

        return digests.digest(
            guest,
            self._reports,
            lambda inner: self._alone(inner) if sight is None else (True, sight.hold),
            files,
            Path(f"/proc/{self.init}"),
            self.changes_settled,
            None if sight is None else sight.reported,
            stands,
        )

    @exclusive
    def stillness(self) -> Stillness | None:
        self.guest()  # raises SandboxDied
        try:
            with self._looks.one():
                return self._watch.stillness()
        except allowance.NotSeen:
            return None

    def last_look(self) -> Look | None:
        """Returns the last look at its files, for forks of a snapshot of it."""
        return self._files.last()

    def file_times(self, since: int) -> dict[str, int]:
        if self.clock is not None:  # programs see times derived from the real ones (native/preload)
            return {}
        look = self._files.seen
        if look is not None:
            return file_times.changed_since(since, look)
        with file_times.failures_told(), self._looks.one():
            return file_times.changed_since(since, self._files.entries())

    def set_file_times(self, times: Mapping[str, int]) -> None:
        with file_times.failures_told(), paths.directory(f"/proc/{self.init}/root") as root:
            file_times.set_again(root, times)

    def _alone(self, inner: int) -> tuple[bool, ShellHold | None]:
        shell = self._host_pid(inner)
        if {*self.cgroup.pids()} != {self.init, shell}:
            return False, None
        return True, observe.shell_hold(shell)

    def memory(self) -> int:
        total = 0
        for pid in self.cgroup.pids():
            with contextlib.suppress(OSError):
                total += proportional(pid)
        return total

    @contextlib.contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        self.guest()
        if self._ended():
            raise SandboxDied(f"sandbox {self.id} has ended: its PID 1 is gone{self._why_gone()}")
        with tempfile.TemporaryFile() as complaints, self.cgroup.frozen():
            self._refuse_endless_archive()
            tar = self._start_tar(complaints)
            assert tar.stdout is not None
            with tar:
                yield tar.stdout
            if tar.returncode not in (0, -signal.SIGPIPE):  # SIGPIPE: the reader stopped early
                complaints.seek(0)
                complaint = complaints.read(_LONGEST_COMPLAINT).decode(errors="replace").strip().replace("\n", "; ")
                complaint = complaint or f"tar ended with {tar.returncode}"
                raise InfrastructureError(f"the files of sandbox {self.id} could not be read: {complaint}")

    def _refuse_endless_archive(self) -> None:
        """Raises InfrastructureError for more data than any disk is likely to hold; holes are written out as zeros."""
        total, largest = 0, None
        for entry in observing.walk(self.layer / "upper"):
            if stat.S_ISREG(entry.mode):
                total += entry.size
                largest = entry if largest is None or entry.size > largest.size else largest
        if largest is None or total <= _MOST_ARCHIVED:
            return
        raise InfrastructureError(
            f"the files of sandbox {self.id} take more than {_MOST_ARCHIVED >> 30} GiB, holes included, the most for "
            f"an archive; the largest is {largest.path}, {largest.size:,} bytes"
        )

    def _start_tar(self, complaints: IO[bytes]) -> subprocess.Popen[bytes]:
        # In the sandbox's user namespace owners have their inner numbers; tar archives links without following them.
        command = ["nsenter", "--user", "--setuid", "0", "--setgid", "0", "--target", str(self.init), *_TAR]
        command += [f"--exclude=.{PRELOAD}"] if is_fixed(self.image) else []  # its library is left out too
        system = (at for what, at in self.image.services.mounts if what in ("/proc", "/dev"))
        command += [f"--exclude=.{at}/*" for at in system]
        command += ["--directory", f"/proc/{self.init}/root", "."]
        with closing(self._open_image()) as image:  # by descriptor, because only root can enter the data directory
            # The mounted /proc has no valid owner inside, so the image's directory below it is archived.
            command += ["--directory", f"/proc/self/fd/{image}", "--no-recursion", "proc"]
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env={**os.environ, "LC_ALL": "C"},  # treat names as bytes
                pass_fds=(image,),
                pipesize=_PIPE_SIZE,
            )

    def _open_image(self) -> int:
        """Returns a descriptor of the image's tree, with the owners that it has in the sandbox."""
        image = os.open(self.image.rootfs, os.O_PATH | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # then they are shown unchanged, as in the sandbox
            shown = syscalls.show_owners(image, self.init)
            os.close(image)
            return shown
        return image

    def machine_fault(self, said: str) -> str | None:
        looked, self._looked = self._looked, time.monotonic()
        return self._pool.machine_fault(self._resources, looked, said)

    def load(self) -> Load:
        return self._gauge.read()

    @exclusive
    def checkpoint(self) -> SnapshotInfo:
        try:
            with self._looks.one():
                return self._checkpoint(self)
        except ProcessesDisturbed as error:
            self.close()
            raise SandboxDied(f"sandbox {self.id} was ended over a checkpoint ({error})") from error

    # -- life -------------------------------------------------------------------------------------------------------

    def guest(self) -> Guest:
        """Returns the connection to PID 1, which is made if there is none; raises SandboxDied if PID 1 has ended."""
        if self._closed:
            raise SandboxDied(f"sandbox {self.id} is closed")
        guest = self._guest  # another thread may be closing the sandbox
        if guest is None:
            guest = self._guest = self._connect()
        return guest

    def _own_pids(self) -> list[int]:
        guest, inner = self.guest(), self._shell[0]
        if not inner or not guest.requests:  # PID 1 has its connection for good once it has answered
            inner = guest.info().shell
        shell = self._host_pid(inner)
        return [self.init, shell] if shell else []

    def disconnect(self) -> None:
        """Closes the connection, as a checkpoint requires."""
        self._own.forget()
        self._is_as_forked = False
        if self._guest is not None:
            guest, self._guest = self._guest, None
            guest.close()

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self.time_waits.close()
        guest, self._guest = self._guest, None  # it refers back to the sandbox
        self._sight = None  # this refers to it
        if guest is not None:
            guest.abandon()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, 9)
        self.cgroup.thaw()  # another thread may be archiving the sandbox
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.init, 0)
        self.cgroup.destroy()
        self._on_close(self)
        self._pool.take_back(self._resources)

    def _connect(self) -> Guest:
        """Connects to the socket on which PID 1 itself listens, not to one in its place."""
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            if self._closed:
                raise SandboxDied(f"sandbox {self.id} is closed")
            if self._ended():
                raise SandboxDied(f"sandbox {self.id} has ended: its PID 1 is gone{self._why_gone()}")
            try:
                connection = self._try_connect()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise SandboxDied(f"sandbox {self.id} cannot be reached: {error.strerror}") from None
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.init, signal.SIGCHLD)  # if a command removed the socket, PID 1 makes another
                time.sleep(0.0003)
                continue
            return Guest(connection, self._why_gone)

    def _try_connect(self) -> socket.socket:
        with paths.directory(f"/proc/{self.init}/root") as root:
            control = paths.open_in_root(root, CONTROL)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_START_TIMEOUT)
            connection.connect(f"/proc/self/fd/{control}")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            listener = struct.unpack("3i", credentials)[0]
            if listener != self.init:
                raise ConnectionRefusedError(errno.ECONNREFUSED, f"process {listener} put a socket in place of its own")
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(control)
        return connection

    def _why_gone(self) -> str:
        """Returns the reason of PID 1's end and the remedy, in words that follow others; empty if it is closed."""
        deadline, end = time.monotonic() + _DYING, None
        while not self._closed and end is None and time.monotonic() < deadline:  # its connection ends before it
            try:
                end = os.waitid(os.P_PID, self.init, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if end is None:
                time.sleep(0.001)
        killed, limited = self.cgroup.memory_kills()
        if self._closed or end is None:
            return ""
        if end.si_code == os.CLD_EXITED:
            return f", with exit status {end.si_status}"
        if end.si_status != signal.SIGKILL or not killed:
            return (
                f", killed from outside with signal {end.si_status}: by a program of this machine, and not for want of "
                "memory of its own; see what else runs here"
            )
        if limited:
            return (
                f", killed by the kernel, as the sandbox had used up the {self.limits.memory >> 20} MiB of memory that "
                "it may have: give it more (Limits.memory), or see what its programs do"
            )
        return (
            ", killed by the kernel, as this machine had run out of memory: run fewer sandboxes at a time "
            "(Budget.sandboxes, Budget.memory), or give each less (Limits.memory)"
        )

    def _ended(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.init, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def _host_pid(self, inner: int) -> int:
        if self._shell[0] != inner or not os.path.exists(f"/proc/{self._shell[1]}"):
            self._shell = (inner, 0)
            for pid in self.cgroup.pids():
                if procfs.inner_pid(pid) == inner:
                    self._shell = (inner, pid)
                    break
        return self._shell[1]
