"""Drives CRIU by its RPC protocol over `criu swrk` and a socket pair; no other module talks to CRIU."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tvsnap.host import native
from tvsnap.host.attempts import AttemptFailed
from tvsnap.model.errors import InfrastructureError, NotCheckpointable
from tvsnap.sandboxes.criu import binary as criu_binary
from tvsnap.sandboxes.criu import refusals
from tvsnap.sandboxes.criu.messages import BOOL, INT, TEXT, UINT, message_classes

_LIBRARIES = [Path(path) for path in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")]
_CACHE = "/dev/shm/tvsnap-criu"
"""File in which CRIU caches its findings about this kernel; this path is compiled into it."""
_LOG = "-"  # standard output: forks of one snapshot would overwrite each other's log file beside the images
_DYING = 1.0  # seconds in which a process ends that was killed during a dump
_TIMEOUT = 120.0
_STUCK = 15.0  # seconds without use of the CPU or a disk, after which a dump waits for a process of the sandbox
_HARDLY = 0.01  # fraction of the time that still counts as no use: checks whether the wait is over
_LOOK = 2.0  # seconds between checks
_HALF_OF_LOG = 1 << 19  # bytes
_LAST_WORDS = 5.0  # seconds in which it ends after its answer, or without one
_CGROUPS_IGNORE = 0
_NETWORK_LOCK_SKIP = 3
_DUMP, _RESTORE, _NOTIFY = 1, 2, 6
_GHOST_LIMIT = 1 << 30

# The used part of CRIU's rpc.proto: message -> field -> (number, type).
_MESSAGES: dict[str, dict[str, tuple[int, int | str]]] = {
    "Opts": {
        "images_dir_fd": (1, INT),
        "pid": (2, INT),
        "leave_running": (3, BOOL),
        "file_locks": (8, BOOL),
        "log_level": (9, INT),
        "log_file": (10, TEXT),
        "notify_scripts": (12, BOOL),
        "root": (13, TEXT),
        "link_remap": (18, BOOL),
        "rst_sibling": (26, BOOL),
        "manage_cgroups_mode": (34, INT),
        "ghost_limit": (35, UINT),
        "external": (37, TEXT),
        "freeze_cgroup": (44, TEXT),
        "timeout": (45, UINT),
        "tcp_skip_in_flight": (46, BOOL),
        "tcp_close": (52, BOOL),
        "network_lock": (64, INT),
    },
    "Restored": {"pid": (1, INT)},
    "Notify": {"script": (1, TEXT), "pid": (2, INT)},
    "Request": {"type": (1, INT), "opts": (2, "Opts"), "notify_success": (3, BOOL)},
    "Response": {
        "type": (1, INT),
        "success": (2, BOOL),
        "restore": (4, "Restored"),
        "notify": (5, "Notify"),
        "cr_errno": (7, INT),
        "cr_errmsg": (9, TEXT),
    },
}
_TYPES = message_classes("rpc", _MESSAGES, repeated={"external"})


@dataclass(frozen=True, slots=True)
class _End:
    """The result of a request.

    Attributes:
        response: CRIU's answer; None if it gave none.
        status: its exit status; negative if a signal ended it.
        log: its log.
        errors: the standard error of CRIU, or of the program that was to execute it.
        init: PID 1 of the sandbox that was dumped, as the host sees it; 0 for a restore.
    """

    response: Any
    status: int
    log: str
    errors: str
    init: int

    @property
    def success(self) -> bool:
        return self.response is not None and bool(self.response.success)

    @property
    def killed(self) -> bool:
        """Whether a signal ended CRIU before it answered."""
        return self.response is None and self.status < 0

    @property
    def cause(self) -> refusals.Cause:
        """The cause of the failure; without an answer it is the machine."""
        return "machine" if self.response is None else refusals.cause(self.log)

    @property
    def reason(self) -> str:
        """Why it failed, in words: from its log, else from its answer or its standard error."""
        if self.killed:
            return f"CRIU: it was ended by signal {-self.status}"
        if reason := refusals.reason(self.log, self.init):
            return reason
        if self.response is not None and self.response.cr_errmsg:
            return f"CRIU: {self.response.cr_errmsg.strip()}"
        return f"CRIU: {self.errors or 'it ended without an answer'}"


@dataclass(frozen=True, slots=True)
class Held:
    """A process that holds memory which dumped processes may share; see `native/criu/held.c`.

    Attributes:
        pid: its process id, as the host sees it.
        parts: descriptor of a file that lists the memory; at least 200.
    """

    pid: int
    parts: int


class ProcessesDisturbed(InfrastructureError):
    """A dump failed in a way that may have changed the processes, so they must not go on."""


@dataclass(frozen=True, slots=True)
class Criu:
    """A CRIU binary; each request runs in a new process."""

    binary: Path

    @property
    def directories(self) -> list[str]:
        """Options for the program that enters the namespaces: the host's directories that CRIU still needs there."""
        options = [*_kept(self.binary)]
        with contextlib.suppress(OSError):  # without the cache each start takes longer
            with contextlib.suppress(FileExistsError):
                os.mkdir(_CACHE, mode=0o700)
            about = os.lstat(_CACHE)
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid():  # its contents are trusted
                options += ["--cache", _CACHE]
        return options

    @property
    def additions(self) -> frozenset[str]:
        """See `criu_binary.additions`."""
        return criu_binary.additions(self.binary)

    def dump(
        self,
        pid: int,
        images: int,
        external: Sequence[str],
        enter: Sequence[str],
        on_start: Callable[[], None],
        on_frozen: Callable[[], None],
        *,
        without_watches: bool = False,
        holder: Held | None = None,
    ) -> None:
        """Dumps the process tree below `pid` to a directory; the tree goes on afterwards.

        Args:
            pid: the tree's root, as the host sees it.
            images: descriptor of the directory.
            external: mounts that the host provides, as `mnt[PATH]:NAME`.
            enter: a command line that executes CRIU in the right place (the sandbox's network namespace), with its
                standard input as descriptor 3.
            on_start: called just before the tree is stopped; if it raises, nothing is done to the tree.
            on_frozen: called while the tree is frozen and its memory has been written; its exceptions fail the dump.
            without_watches: dump inotify instances without their watches; needs "watches" in `additions`.
            holder: the process with the pages of the dump that this one is compared with.

        Raises:
            NotCheckpointable: CRIU's reason is known to be a property of the processes.
            AttemptFailed: CRIU failed for another reason; the processes go on undisturbed.
            ProcessesDisturbed: CRIU was killed meanwhile, or could not put a process back into its former state.
        """
        options = self._options(images, external)
        options.pid = pid
        options.leave_running = options.notify_scripts = options.link_remap = True
        options.network_lock = _NETWORK_LOCK_SKIP
        failures: list[Exception] = []
        stopped = False

        def notified(script: str, _: int) -> bool:
            nonlocal stopped
            try:
                if script == "pre-dump":
                    on_start()
                    stopped = True
                elif script == "post-dump":
                    on_frozen()
            except Exception as error:
                failures.append(error)
            return not failures

        environment = {"CRIU_LIBS_DIR": str(native.CRIU_PLUGIN.parent)}
        if without_watches:
            environment["TVSNAP_WATCHES"] = "noted"
        if holder:
            environment |= {"TVSNAP_PARTS_FD": str(holder.parts), "TVSNAP_HOLDER_PID": str(holder.pid)}
        end = self._request(_DUMP, options, enter, notified, environment, [holder.parts] if holder else [])
        if failures and not stopped:
            raise failures[0]
        if not end.success:
            self._raise_failure(end, pid, failures)

    def _raise_failure(self, end: _End, pid: int, failures: Sequence[Exception]) -> None:
        """Raises the error of a failed dump of the tree below `pid`; `failures` are those of the caller's functions."""
        if refusals.refused_plugin(end.log, str(native.CRIU_PLUGIN)):  # no process was touched yet
            raise InfrastructureError(f"{end.reason}: this CRIU ({self.binary}) takes no plugins (tvsnap doctor)")
        reason = end.reason  # computed now, because processes that it names may end
        if end.killed or left_its_code(end.log, pid):
            raise ProcessesDisturbed(reason)
        if failures:
            raise failures[0]
        if end.cause == "state":
            raise NotCheckpointable(reason)
        raise AttemptFailed(reason, machine=end.cause == "machine", kind=refusals.kind(end.log))

    def restore(
        self,
        images: int,
        root: Path,
        external: Sequence[str],
        enter: Sequence[str],
        before_it_runs: Callable[[int], None] | None = None,
        descriptors: Sequence[int] = (),
    ) -> int:
        """Restores a dumped tree as a child of this process and returns the process id of the tree's root.

        Args:
            images: descriptor of the directory that `dump` wrote.
            root: the mount point of the tree's root file system, in CRIU's mount namespace.
            external: directories for the mounts named at the dump, as `mnt[NAME]:PATH`.
            enter: a command line that prepares namespaces and mounts and executes CRIU, as for `dump`.
            before_it_runs: called with the process id of the tree's root when everything is restored and nothing has
                run yet; its exception is passed on, and the caller then has to end the tree, which runs.
            descriptors: those that `enter` names by number.
        """
        options = self._options(images, external)
        options.root = str(root)
        options.rst_sibling = True
        options.notify_scripts = before_it_runs is not None
        failures: list[Exception] = []
        tree: list[int] = []

        def notified(script: str, pid: int) -> bool:
            try:
                if script == "post-restore":  # later notifications name no process
                    tree.append(pid)
                if script == "pre-resume" and before_it_runs is not None:  # CRIU's temporary names are unlinked
                    before_it_runs(*tree)
            except Exception as error:
                failures.append(error)
            return not failures

        end = self._request(_RESTORE, options, enter, notified, descriptors=descriptors)
        if failures:
            raise failures[0]
        if not end.success:
            raise AttemptFailed(end.reason, machine=end.cause == "machine", kind=refusals.kind(end.log))
        return int(end.response.restore.pid)

    def _options(self, images: int, external: Sequence[str]) -> Any:
        options = _TYPES["Opts"]()
        options.images_dir_fd = images
        options.log_file = _LOG
        options.log_level = 2
        options.file_locks = True
        options.manage_cgroups_mode = _CGROUPS_IGNORE
        options.ghost_limit = _GHOST_LIMIT
        # Connections are left alone in a dump, and restored as unconnected sockets; see repairs/tcp.py.
        options.tcp_close = True
        options.tcp_skip_in_flight = True
        options.external.extend(external)
        return options

    def _request(
        self,
        kind: int,
        options: Any,
        enter: Sequence[str],
        notified: Callable[[str, int], bool],
        environment: Mapping[str, str] = {},
        descriptors: Sequence[int] = (),
    ) -> _End:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Files and no pipes: processes that a killed CRIU leaves half restored would hold pipes open.
        with ours, open(os.memfd_create("log"), "rb") as log, open(os.memfd_create("errors"), "rb") as errors:
            with theirs:
                process = subprocess.Popen(
                    [*enter, str(self.binary.resolve()), "swrk", "3"],
                    stdin=theirs.fileno(),
                    stdout=log,
                    stderr=errors,
                    env={**os.environ, **environment},
                    pass_fds=descriptors,
                )
            try:
                ended = os.pidfd_open(process.pid)
            except OSError:  # it has received no request yet
                process.kill()
                process.wait()
                raise
            response = None
            try:
                with contextlib.suppress(ConnectionError):
                    response = self._converse(ours, ended, process.pid, kind, options, notified)
            finally:
                ours.close()  # a CRIU that still works notices, and detaches from all processes properly
                if not _poll(ended).poll(_LAST_WORDS * 1000):
                    process.kill()
                os.close(ended)
                # A restore starts a process beside CRIU, as our child; the restored tree has another process group.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                _reap_group(process.pid)
            return _End(response, process.returncode, read_log(log), read_log(errors).strip(), options.pid)

    @staticmethod
    def _converse(
        channel: socket.socket, ended: int, pid: int, kind: int, options: Any, notified: Callable[[str, int], bool]
    ) -> Any:
        # In a restore other processes do the work, and this one waits for them.
        stuck = _STUCK if kind == _DUMP else _TIMEOUT
        # For the same reason the channel may stay open after CRIU has ended.
        heard = _poll(channel.fileno(), ended)
        channel.send(_TYPES["Request"](type=kind, opts=options).SerializeToString())
        while _at_work(pid, stuck, heard):
            try:
                data = channel.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not data:
                break
            response = _TYPES["Response"].FromString(data)
            if response.type != _NOTIFY:
                return response
            success = notified(response.notify.script, response.notify.pid)
            channel.send(_TYPES["Request"](type=_NOTIFY, notify_success=success).SerializeToString())
        return None


@functools.cache
def _kept(binary: Path) -> tuple[str, ...]:
    """Returns command-line options that name the directories which a CRIU binary needs."""
    needed = [binary.resolve().parent, native.CRIU_PLUGIN.parent, *_LIBRARIES]
    paths = dict.fromkeys(str(path) for path in needed if path.is_dir())
    return tuple(item for path in paths for item in ("--keep", path))


def _reap_group(group: int) -> None:
    """Reaps those of our children that belong to a killed process group."""
    deadline = time.monotonic() + _DYING
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if not os.waitpid(-group, os.WNOHANG)[0]:
                time.sleep(0.001)


def left_its_code(log: str, init: int) -> bool:
    """Whether a dump left its code in a living process, or did not detach from it properly."""
    pids = refusals.held(log, init)
    deadline = time.monotonic() + _DYING
    while any(map(_lives, pids)):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.005)
    return False


def _poll(*descriptors: int) -> select.poll:
    """Returns a poll object for input on these descriptors."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return waiting


def _at_work(pid: int, stuck: float, heard: select.poll) -> bool:
    """Waits until a process is heard from or has ended; returns False after `stuck` seconds without activity."""
    began = since = time.monotonic()
    base = 0.0
    while not heard.poll(_LOOK * 1000):
        now = time.monotonic()
        state, used = _activity(pid)
        if state in "DR" or used - base > (now - since) * _HARDLY:
            base, since = used, now
        if now - since > stuck or now - began > _TIMEOUT:
            return False
    return True


def _activity(pid: int) -> tuple[str, float]:
    """Returns the state of a process and its processor time in seconds, according to /proc."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        fields = stat[stat.rindex(")") + 2 :].split()
        return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return "X", 0.0


def read_log(file: IO[bytes]) -> str:
    """Returns CRIU's log; of more than 1 MiB only the first and the last 512 KiB.

    It grows with the contents of a sandbox. The first error is the original one, and the last show the outcome.
    """
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    if size <= 2 * _HALF_OF_LOG:
        return file.read(size).decode(errors="replace")
    first = file.read(_HALF_OF_LOG)
    file.seek(size - _HALF_OF_LOG)
    # Drop the partial lines at the cuts, which could begin or end with a part of a name.
    first, last = first[: first.rfind(b"\n") + 1], file.read(_HALF_OF_LOG).partition(b"\n")[2]
    return (first + last).decode(errors="replace")


def _lives(pid: int) -> bool:
    """Whether a process has not ended."""
    return _activity(pid)[0] not in "ZX"
