"""One live sandbox of the Docker backend: a container whose PID 1 we talk to over its standard streams."""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import IO

from tvsnap.guest.actions import exclusive
from tvsnap.guest.protocol import Guest, GuestInfo
from tvsnap.host.load import Load, LoadGauge
from tvsnap.images.preload import PRELOAD
from tvsnap.model.errors import (
    InfrastructureError,
    MachineLacks,
    NotCheckpointable,
    SandboxDied,
    SandboxRefused,
    SnapshotUnusable,
)
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import NO_SERVICE, FileChange, Observation, Process, Service, SnapshotInfo
from tvsnap.plugins.docker.containers import Containers
from tvsnap.plugins.docker.files import Files
from tvsnap.plugins.docker.inside import list_inside, run_tool
from tvsnap.plugins.docker.layers import flattened
from tvsnap.sandboxes import file_times, shell_report
from tvsnap.sandboxes.criu.client import ProcessesDisturbed
from tvsnap.sandboxes.fixed_clock import Clock, is_fixed
from tvsnap.sandboxes.kernel import allowance, process_report
from tvsnap.sandboxes.looks import activity, connections, observing
from tvsnap.sandboxes.looks import digest as digests
from tvsnap.sandboxes.looks.activity import Unrest
from tvsnap.sandboxes.looks.rewind import Rewindable
from tvsnap.sandboxes.network.gateway import Gateway
from tvsnap.sandboxes.network.sandbox import Networked
from tvsnap.sandboxes.repairs.time_wait import Closed, TimeWaits

_IN_MEMORY = ("/dev", "/dev/shm", "/dev/mqueue")
"""Mounts of the runtime that commands may write to; a checkpoint contains them and a commit does not."""
_STARTUP_FILE = "/etc/bash.bashrc"
_START_TIMEOUT = 20.0
_LONGEST_COMMAND = 60
_NETWORK_OUT_OF_REACH = "and the network of the engine's containers is out of reach"
_OF_DIRECTORY = attrgetter("mode", "uid", "gid")
_OF_FILE = attrgetter("mode", "uid", "gid", "size", "mtime_ns", "device")
_PRELOAD = PRELOAD.lstrip("/")
_NOT_ARCHIVED = re.compile(r"(proc|sys|dev)/.+|run/tvsnap(/.*)?|(.*/)?\.wh\..*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Resources:
    """A sandbox's parts of the engine, reserved before its processes start.

    Attributes:
        id: the sandbox's name.
        image: its image.
        limits: the resources that it may use.
        container: its container's id.
        reference: the engine's image that the container is made of.
        depth: the number of that image's layers.
    """

    id: str
    image: Image
    limits: Limits
    container: str
    reference: str
    depth: int


class DockerSandbox(Networked, Rewindable):
    """A container of the engine."""

    def __init__(
        self,
        resources: Resources,
        containers: Containers,
        gateway: Gateway,
        *,
        files: Callable[[DockerSandbox], Files],
        baseline: Callable[[Image], Mapping[str, observing.Entry]],
        checkpoint: Callable[[DockerSandbox], SnapshotInfo],
        on_close: Callable[[DockerSandbox], None],
    ) -> None:
        """Takes over a container that is about to run.

        Args:
            resources: the container, and what it is made of.
            containers: has the container.
            gateway: its way to the network.
            files: returns the way to access a sandbox's files; called once, before the container runs.
            baseline: returns the files of an image by path, as seen in a fresh sandbox.
            checkpoint: takes a snapshot of it; see `Sandbox.checkpoint`. ProcessesDisturbed ends the sandbox.
            on_close: is called once it has ended.
        """
        self.id = resources.id
        self.image = resources.image
        self.limits = resources.limits
        self.container = resources.container
        self.reference = resources.reference
        self.depth = resources.depth
        self.gateway = gateway
        self._containers = containers
        self._baseline = baseline
        self._checkpoint = checkpoint
        self._on_close = on_close
        self._closing = threading.Lock()
        self._closed = False
        super().__init__()
        self._init = 0  # its PID 1 as seen by this machine; 0 if out of reach
        self._image_tree = observing.ImageTree(*self.image.layers)
        self._contents = digests.Contents()
        self._reports = shell_report.ShellReports()
        self._time_waits: TimeWaits | None = None  # None if out of reach
        self._watch: activity.Watch | None = None  # None if out of reach
        self._gauge: LoadGauge | None = None  # None if out of reach
        self._lent: Mapping[str, str] = {}
        self.clock: Clock | None = None  # its own, if its image sets one
        self._in_memory = self._startup = ""
        self.files = files(self)

    def begin(self, *, fresh: bool, empty_memory: bool = True, closed: tuple[Closed, ...] = ()) -> None:
        """Records its initial state where no commit reaches; called when it runs, before any command.

        Args:
            fresh: it was started, not restored from a checkpoint.
            empty_memory: no checkpoint has restored files in memory.
            closed: the connections to restore in TIME_WAIT.
        """
        self._init = self._containers.init(self.container)
        if self.image.network.attached:
            if not self._init:
                raise MachineLacks(f"sandboxes cannot be given a network here, {_NETWORK_OUT_OF_REACH}")
            self.gateway.open(self.id, self._init, self.image.network)
        if self._init:
            self._gauge = LoadGauge(self._init)
            self._time_waits = TimeWaits(self._init)
            self._time_waits.bring_back(closed)
            family = partial(activity.family, self._init)
            self._watch = activity.Watch(family, self._init, self._time_waits.passing)
        elif closed:
            raise SnapshotUnusable(f"TCP port {closed[0].local[1]} was in TIME_WAIT, {_NETWORK_OUT_OF_REACH}")
        if fresh:
            self.files.begin()
        self._lent = self.files.lent_states()
        if empty_memory:
            self._in_memory = self._digest(_IN_MEMORY)
        if fresh:
            self._startup = self._startup_file()

    def note_closed(self) -> tuple[Closed, ...]:
        """Returns the connections in TIME_WAIT; nothing may run meanwhile.

        Raises:
            NotCheckpointable: a fork could not have them.
        """
        if self._time_waits is not None:
            return tuple(self._time_waits.note(activity.family(self._init)))
        if connections.may_pass(self.read_file("/proc/net/sockstat")):
            raise NotCheckpointable(f"a TCP connection has not ended yet, {_NETWORK_OUT_OF_REACH}")
        return ()

    def changed_lent_files(self) -> list[str]:
        """Returns the paths of lent files (see `Files`) that are not as the engine made them."""
        now = self.files.lent_states()
        return [path for path in self.files.lent if now.get(path) != self._lent.get(path)]

    @property
    def starts_shells_as_before(self) -> bool:
        """Whether the file that bash reads at each start is known to be unchanged."""
        return self._startup == self._startup_file()

    @property
    def holds_nothing_in_memory(self) -> bool:
        """Whether it is known that no files were written to file systems in memory."""
        return self._in_memory == self._digest(_IN_MEMORY)

    def number_after(self, last: int) -> None:
        """Does from outside what PID 1 of a container may not do; impossible with an engine on another machine."""
        outside = self.files.outside()
        if outside is not None:
            self._containers.number_processes(int(outside.name), last)

    # -- what it is like ------------------------------------------------------------------------------------------

    def attach(self, columns: int, rows: int) -> socket.socket:
        self.guest()
        connection = self._containers.connect(self.container).bridge()
        connection.settimeout(_START_TIMEOUT)
        return Guest(connection).detach(columns, rows)

    @exclusive
    def shell_state(self) -> Mapping[str, str]:
        return shell_report.shell_items(self.guest().shell_state() or b"")

    @exclusive
    def processes(self) -> list[Process]:
        return list(self.process_table().processes)

    def process_table(self, service: Service = NO_SERVICE) -> process_report.ProcessTable:
        """Returns the live processes, and the shell's open files; of a service's processes, only their locks."""
        guest = self.guest()
        serving = [str(pid) for pid in sorted(service.processes)]
        tables: list[process_report.ProcessTable] = []

        def look() -> tuple[process_report.OpenFile, ...]:
            shell_pid = str(guest.info().shell)
            tables.append(process_report.parse_processes(run_tool(guest, "processes", shell_pid, *serving)))
            shell = tables[-1].shell
            return shell.files if shell else ()

        process_report.settled(look)
        return tables[-1]

    def shell_hold(self) -> process_report.ShellHold:
        """Returns the open files and locks of the idle shell.

        Raises:
            NotCheckpointable: they are not known.
        """
        hold = self.process_table().shell
        if hold is None:
            raise NotCheckpointable("what the shell holds open cannot be seen")
        return hold

    @exclusive
    def changes(self) -> Mapping[str, FileChange]:
        self.guest()
        before = dict(self._baseline(self.image))
        untouched = set(self.files.lent).difference(self.changed_lent_files())
        changes: dict[str, FileChange] = {}
        for entry in list_inside(self.guest(), "/"):
            was = before.pop(entry.path, None)
            if was is None or (_differ(was, entry) and entry.path not in untouched):
                change = observing.change_of(entry, self.files.identity(entry))
                if change is not None:
                    changes[entry.path] = change
        changes.update(dict.fromkeys(before, FileChange("deleted")))
        return changes

    @exclusive
    def observe(self, service: Service = NO_SERVICE) -> Observation:
        try:
            with self._looks.one():
                return self.with_connections(lambda: self._observe(service))
        except (SandboxRefused, allowance.NotSeen) as lack:  # the former: no process of ours can be started in it
            return allowance.unseen(str(lack))

    def _observe(self, service: Service) -> Observation:
        dump, info = self.guest().report()
        files, data = self.files.fingerprints(service)
        table = self.process_table(service)
        shell, hidden = self._reports.seen(dump, info)
        look = self._look(table, service, info)
        processes = secrets.token_hex() if self._in_doubt(table, service) else table.fingerprint(service)
        return Observation(
            files=f"{files} {self._digest(_IN_MEMORY)}",
            processes=f"{processes} {look.passing}",
            shell=shell,
            data=data,
            hidden=hidden,
            serving=len(table.serving(service)),
            alone=info.idle and len(table.others) == len(table.serving(service)),
            active=look.active,
            quiet_s=look.quiet_s,
        )

    def _look(self, table: process_report.ProcessTable, service: Service, info: GuestInfo) -> activity.Look:
        """Returns what may happen by itself; if processes are out of reach, any live one may do something."""
        serving = table.serving(service)
        if self._watch is not None:
            inside = self._family()
            served = {pid for inner, pid in inside.items() if inner in serving}
            return self._watch.look(inside.get(info.shell, 0) if info.idle else 0, served)
        lives = [one for one in table.others if one.pid not in serving]
        unrest = [Unrest(0, f"process {one.pid} ({one.command[:_LONGEST_COMMAND]}) may run", 0.0) for one in lives]
        if not lives and not info.idle:
            unrest.append(Unrest(0, "the shell may run", 0.0))
        if connections.may_pass(self.read_file("/proc/net/sockstat")):
            unrest.append(Unrest(0, "a TCP connection has not ended yet", 0.0))
        return activity.Look(*activity.told(unrest, time.monotonic()))

    @exclusive
    def digest(self) -> str | None:
        try:
            with self._looks.one():
                return self._digest_of_all()
        except allowance.NotSeen:
            return None

    def file_times(self, since: int) -> dict[str, int]:
        with file_times.failures_told(), self._looks.one():
            return file_times.changed_since(since, self.files.written())

    def set_file_times(self, times: Mapping[str, int]) -> None:
        with file_times.failures_told():
            self.files.set_times(times)

    def _digest_of_all(self) -> str | None:
        outside = self.files.outside()
        if outside is None or not self.holds_nothing_in_memory:
            return ""
        return digests.digest(
            self.guest(),
            self._reports,
            self._alone,
            lambda: self.files.differing(self._image_tree, self._contents),
            outside,
            self.changes_settled,
        )

    def _alone(self, _: int) -> tuple[bool, process_report.ShellHold | None]:
        table = self.process_table()
        return not table.others, table.shell

    def _in_doubt(self, table: process_report.ProcessTable, service: Service) -> bool:
        """Returns whether calls could change something invisible: data that waits to be received."""
        files = [file.number for file in table.shell.further_files] if table.shell else []
        serving = table.serving(service)
        others = [one.pid for one in table.others if one.pid not in serving]
        return bool(files or others) and self.guest().data_waits(files, others)

    def memory(self) -> int:
        return self._containers.memory(self.container)

    @contextlib.contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        with self.turn():
            entries = list(list_inside(self.guest(), "/"))
        with self._containers.paused(self.container):
            export = self._containers.export(self.container)
            with flattened(export, entries, self._is_not_archived) as stream:
                yield stream

    def _is_not_archived(self, name: str) -> bool:
        # The library that an image with a clock or a seed preloads is not in the archive.
        return bool(_NOT_ARCHIVED.fullmatch(name)) or (name == _PRELOAD and is_fixed(self.image))

    def _family(self) -> dict[int, int]:
        """Returns its processes as seen by this machine, by their ids inside."""
        return {activity.inner_pid(pid): pid for pid in activity.family(self._init)}

    def _own_pids(self) -> list[int]:
        if not self._init:
            return []
        shell = self._family().get(self.guest().info().shell, 0)
        return [self._init, shell] if shell else []

    def load(self) -> Load:
        return Load() if self._gauge is None else self._gauge.read()

    @exclusive
    def checkpoint(self) -> SnapshotInfo:
        try:
            with self._looks.one():
                return self._checkpoint(self)
        except SandboxRefused as refusal:
            raise NotCheckpointable(str(refusal)) from refusal
        except ProcessesDisturbed as error:
            self.close()
            raise SandboxDied(f"sandbox {self.id} was ended over a checkpoint ({error})") from error
        finally:
            self._own.forget()  # a checkpoint leaves traces in its processes: addresses in debug registers

    # -- life -------------------------------------------------------------------------------------------------------

    def guest(self) -> Guest:
        if self._closed:
            raise SandboxDied(f"sandbox {self.id} is closed")
        if self._guest is None:
            stream = self._containers.attach(self.container)
            stream.settimeout(_START_TIMEOUT)
            self._guest = Guest(stream)
        return self._guest

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        if self._time_waits is not None:
            self._time_waits.close()
        if self._guest is not None:
            self._guest.abandon()
        self.gateway.close_way(self.id)
        with contextlib.suppress(InfrastructureError):  # if the engine is gone, the container is reaped later
            self._containers.remove(self.container)
        self._on_close(self)

    def _startup_file(self) -> str:
        return str([entry for entry in list_inside(self.guest(), "/etc") if entry.path == _STARTUP_FILE])

    def _digest(self, paths: tuple[str, ...]) -> str:
        return run_tool(self.guest(), "walk", "digest", *paths).decode()


def _differ(was: observing.Entry, now: observing.Entry) -> bool:
    """Returns whether a path differs from the image, as far as visible: times of change always differ."""
    # A directory's times are the layer's, or mean that its entries have changed.
    facts = _OF_DIRECTORY if stat.S_ISDIR(now.mode) and stat.S_ISDIR(was.mode) else _OF_FILE
    return facts(was) != facts(now)
