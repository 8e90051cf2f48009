"""Containers of the engine for sandboxes: confined, limited, labelled, with PID 1 on their standard streams."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import docker.errors
from docker.types import LogConfig

from tvsnap.guest.actions import COLUMNS, ROWS
from tvsnap.guest.protocol import BARE, FIXED, INIT
from tvsnap.guest.services import ENVIRONMENT
from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.native import LAUNCH
from tvsnap.images.build.containers import LABEL_PURPOSE
from tvsnap.model.errors import InfrastructureError, NotCheckpointable, SandboxDied
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.plugins.docker.engine import (
    LABEL_HOME,
    LABEL_IMAGE,
    LABEL_OWNER,
    Engine,
    EngineTimeout,
    EngineUnavailable,
)
from tvsnap.plugins.docker.seccomp import profile
from tvsnap.plugins.docker.stream import AttachedStream
from tvsnap.sandboxes.criu import refusals
from tvsnap.sandboxes.criu.client import ProcessesDisturbed, left_its_code, read_log
from tvsnap.sandboxes.fixed_clock import SIZE
from tvsnap.sandboxes.kernel.procfs import inner_pid

_CAPABILITIES = [
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "NET_RAW",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
]  # fmt: skip
"""The capabilities that PID 1 keeps (confine.c), independent of this engine's defaults."""
_CHECKPOINT_TIMEOUT = 60  # seconds
FREEZING = 30.0
"""Seconds for which a pause is retried: on a busy machine, runc may not catch all of a container's processes."""
_STREAMS = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of containers and images."""

    home: str  # a tag of the data directory
    owner: str  # the id of the process's `Owner`

    def labels(self, purpose: str, image: str = "") -> dict[str, str]:
        """Returns the labels of an object with a purpose; `image` is a digest."""
        labels = {LABEL_HOME: self.home, LABEL_OWNER: self.owner, LABEL_PURPOSE: purpose}
        return {**labels, LABEL_IMAGE: image} if image else labels

    def changes(self, purpose: str, image: str) -> list[str]:
        """Returns the changes that write our labels into an image of the engine."""
        return [f"LABEL {name}={value}" for name, value in self.labels(purpose, image).items()]


def packed(files: Mapping[str, bytes], mode: int, folders: Sequence[str] = (), changed: float = 0) -> bytes:
    """Returns files by name as a tar archive, folders first; all have the same time of change (s)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in folders:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for name, data in files.items():
            file = tarfile.TarInfo(name)
            file.size, file.mode, file.mtime = len(data), mode, int(changed)
            tar.addfile(file, io.BytesIO(data))
    return stream.getvalue()


@dataclass(frozen=True, slots=True)
class Layers:
    """The directories of a container's files on this machine."""

    upper: Path  # the writable layer
    init: Path  # the engine's own layer below that, which hides some files of the image
    lower: tuple[Path, ...]  # those below that, topmost first


class Containers:
    """Creates and removes the containers of one owner.

    Attributes:
        data_root: the engine's own directory, on its machine.
    """

    def __init__(self, engine: Engine, ownership: Ownership, about: Mapping[str, Any]) -> None:
        """`about` is the engine's information about itself."""
        self._engine = engine
        self._api = engine.api
        self._ownership = ownership
        self.data_root = Path(str(about.get("DockerRootDir", "")))
        self._layered = about.get("Driver") == "overlay2"
        self._filter = _filter_options(about.get("SecurityOptions") or [])
        self._experimental = bool(about.get("ExperimentalBuild"))

    @property
    def no_checkpoints(self) -> str:
        """Why the engine takes no checkpoints of processes that could be forked; empty if it does."""
        if not self._experimental:
            return "the engine takes checkpoints only with its experimental features on"
        if os.geteuid() != 0 or not (self.data_root / "containers").is_dir():
            return f"checkpoints are forked in the engine's own directory, {self.data_root}, which is out of reach"
        if not self._layered:
            return "what commits lose beside a checkpoint can only be mended with the storage driver overlay2"
        return ""

    def create(self, name: str, image: Image, tag: str, limits: Limits, *, bare: bool) -> str:
        """Creates a container in which PID 1 will run; returns its id.

        Args:
            name: the sandbox's id.
            image, limits: the sandbox's image and limits.
            tag: the engine's image to start from: that image with PID 1 in it, or a snapshot.
            bare: its shell will be set up like another; see `tvsnap.sandboxes.shell.image`.
        """
        host = self._api.create_host_config(
            cap_drop=["ALL"],
            cap_add=_CAPABILITIES,
            security_opt=sorted({*self._filter, *(["no-new-privileges"] if image.no_new_privileges else [])}),
            mem_limit=limits.memory,
            memswap_limit=limits.memory,
            shm_size=limits.memory,
            pids_limit=limits.processes,
            nano_cpus=int(limits.cpus * 1e9) or None,
            ipc_mode="private",
            sysctls={"net.ipv4.ping_group_range": "1 0"},  # see launch.c
            cgroupns="private",
            # PID 1's output is its answers to us: it is not logged.
            log_config=LogConfig(type=LogConfig.types.NONE),
        )
        command = ["serve", str(COLUMNS), str(ROWS), image.user, image.workdir]
        environment = {**ENVIRONMENT, **image.env}
        added = [name for name in ("HOME", "HOSTNAME") if name not in environment]  # by the engine and its runtime
        environment |= {"TVSNAP_UNSET": " ".join(added), **(BARE if bare else {})}
        answer = self._engine.do(
            f"making a container of {image.name}",
            self._api.create_container,
            tag,
            entrypoint=[INIT],
            command=command,
            environment=[f"{name}={value}" for name, value in environment.items()],
            hostname=image.hostname,
            name=f"tvsnap-{self._ownership.home}-{name}",
            labels=self._ownership.labels("sandbox", image.digest),
            host_config=host,
            # No network of the engine: the runtime gives it one of its own, with loopback only. This also avoids
            # external /etc/hosts and /etc/resolv.conf, which no commit would contain, and takes a third less time to
            # start.
            network_disabled=True,
            stdin_open=True,
            use_config_proxy=False,
        )
        return str(answer["Id"])

    def start(self, container: str, checkpoint: str | None = None) -> None:
        """Starts a container, from a checkpoint of that name in its own directory if one is given.

        Raises:
            InfrastructureError: it did not start.
        """
        parameters = {"checkpoint": checkpoint} if checkpoint else {}
        try:
            with self._engine.turn("the start of a container"):
                self._engine.post(f"/containers/{container}/start", params=parameters)
        except docker.errors.APIError as error:
            raise InfrastructureError(f"a container did not start: {error.explanation}") from None

    def put_fixed(self, container: str, data: bytes) -> None:
        """Puts the page with the clock and the seed of its programs into a container that does not run yet."""
        parent, name = os.path.split(FIXED)
        archive = packed({name: data.ljust(SIZE, b"\0")}, 0o644, changed=time.time())
        self._engine.do("setting a container's clock and seed", self._api.put_archive, container, f"/{parent}", archive)

    def complete(self, container: str) -> None:
        """Sets up what runtimes omit when they restore a container.

        Its network is empty, with loopback down, and the OOM score of its PID 1, which all new processes inherit, is
        that of the runtime itself.
        """
        init = self._init(container)
        process = subprocess.run([str(LAUNCH), "network", str(init)], capture_output=True, text=True, check=False)
        if process.returncode:
            raise InfrastructureError(f"a restored container's network could not be set up: {process.stderr.strip()}")
        with contextlib.suppress(OSError):
            Path(f"/proc/{init}/oom_score_adj").write_text("0")

    def number_processes(self, init: int, last: int) -> None:
        """Makes the next process of a container get the number after `last`, or the next that is free.

        Its PID 1 is `init` as seen by this machine; `last` is a process id inside.
        """
        subprocess.run([str(LAUNCH), "number", str(init), str(last)], stderr=subprocess.DEVNULL, check=False)

    def attach(self, container: str) -> AttachedStream:
        """Attaches to a running container's standard streams."""
        with _alive(container), self._engine.turn("attaching to a container"):
            return AttachedStream(self._api.attach_socket(container, params=_STREAMS))

    def connect(self, container: str) -> AttachedStream:
        """Connects to PID 1's control socket, by a separate program inside."""
        with _alive(container), self._engine.turn("a second connection to a container"):
            execution = self._api.exec_create(container, [INIT, "connect"], stdin=True, stdout=True, stderr=True)
            return AttachedStream(self._api.exec_start(execution["Id"], socket=True))

    def layers(self, container: str) -> Layers | None:
        """Finds a container's files; None if this process cannot reach them."""
        # The directory must be this container's, not one of the same name on another machine's engine.
        if os.geteuid() != 0 or not self._layered or not self._directory(container).is_dir():
            return None
        where = self._look(container)["GraphDriver"]["Data"]
        init, *lower = (Path(path) for path in where["LowerDir"].split(":"))
        return Layers(Path(where["UpperDir"]), init, tuple(lower))

    def root(self, container: str) -> Path:
        """Returns the root of a running container through its PID 1: the engine may mount it where only it sees it."""
        return Path(f"/proc/{self._init(container)}/root")

    def init(self, container: str) -> int:
        """Returns the PID 1 of a running container as seen by this machine; 0 if its processes are out of reach."""
        if os.geteuid() != 0 or not self._directory(container).is_dir():
            return 0
        pid = self._init(container)
        return pid if inner_pid(pid) == 1 else 0

    def processes(self, container: str) -> tuple[int, list[int]]:
        """Returns the PID 1 of a running container, and all its processes, as seen by the engine's machine."""
        init = self._init(container)
        with _alive(container):
            listed = self._engine.do("listing processes", self._api.top, container, ps_args="-eo pid")
        return init, [int(row[0]) for row in listed["Processes"]]

    def created(self, container: str) -> int:
        """Returns when a container was created, in nanoseconds since the epoch by the engine's clock.

        None of its own files was changed before that.
        """
        return _nanoseconds(self._look(container)["Created"])

    def checkpoint(self, container: str, directory: Path) -> None:
        """Writes the processes of a paused container to a directory; they are not changed.

        Raises:
            NotCheckpointable: with CRIU's reason, which is known to be a property of the processes.
            ProcessesDisturbed: CRIU could not leave a process as it had found it.
            AttemptFailed: with any other reason; the processes are unchanged.
        """
        options = {"CheckpointID": directory.name, "CheckpointDir": str(directory.parent), "Exit": False}
        try:
            with self._engine.turn("a checkpoint"):
                self._engine.post(f"/containers/{container}/checkpoints", json=options, timeout=_CHECKPOINT_TIMEOUT)
        except EngineTimeout:
            self._end_stuck_criu(container)
            raise AttemptFailed(f"the engine's checkpoint did not end within {_CHECKPOINT_TIMEOUT} s") from None
        except EngineUnavailable as error:
            raise AttemptFailed(str(error), machine=True) from None
        except (InfrastructureError, docker.errors.APIError) as error:
            raise self._checkpoint_failure(container, str(error)) from None

    def _checkpoint_failure(self, container: str, complaint: str) -> InfrastructureError:
        """Returns the error for a checkpoint that failed, according to CRIU's log if the complaint names it."""
        named = re.search(r"(?:path=|log file:) *(\S+?criu-dump\.log)", complaint)
        if named:
            with contextlib.suppress(OSError), open(named[1], "rb") as file:
                log = read_log(file)
                init = self._init(container)
                if reason := refusals.reason(log, init):
                    if left_its_code(log, init):
                        return ProcessesDisturbed(reason)
                    cause = refusals.cause(log)
                    if cause == "state":
                        return NotCheckpointable(reason)
                    return AttemptFailed(reason, machine=cause == "machine", kind=refusals.kind(log))
        return AttemptFailed(complaint, machine=refusals.is_trouble(complaint))

    def _end_stuck_criu(self, container: str) -> None:
        """Kills a CRIU that hangs on a container; until then the engine could do nothing with it, not even kill it."""
        init = self._init(container)
        with contextlib.suppress(OSError):
            tracer = re.search(r"^TracerPid:\t(\d+)", Path(f"/proc/{init}/status").read_text(), re.MULTILINE)
            if tracer and Path(f"/proc/{tracer[1]}/comm").read_text() == "criu\n":
                os.kill(int(tracer[1]), signal.SIGKILL)

    def put_checkpoint(self, container: str, directory: Path, name: str) -> None:
        """Copies a checkpoint to where the engine looks for those of a container, which is the only place."""
        place = self._directory(container) / "checkpoints" / name
        place.mkdir(parents=True)
        # containerd imports a checkpoint as one piece of content, and sometimes refuses one that it has already.
        (place / f"for-{container}").touch()
        for entry in os.scandir(directory):
            if entry.is_file():
                try:
                    os.link(entry.path, place / entry.name)
                except OSError:  # another file system
                    shutil.copy2(entry.path, place)

    def _look(self, container: str) -> dict[str, Any]:
        try:
            about: dict[str, Any] = self._engine.do("looking at a container", self._api.inspect_container, container)
        except docker.errors.NotFound:
            raise SandboxDied(f"the container {container[:12]} is gone") from None
        return about

    def _init(self, container: str) -> int:
        return int(self._look(container)["State"]["Pid"])

    def _mine(self) -> dict[str, list[str]]:
        return {"label": [f"{LABEL_HOME}={self._ownership.home}"]}

    def _directory(self, container: str) -> Path:
        return self.data_root / "containers" / container

    def memory(self, container: str) -> int:
        """Returns the memory that a container's processes take, bytes."""
        usage: Any = self._engine.do("weighing a container", self._api.stats, container, stream=False, one_shot=True)[
            "memory_stats"
        ]
        details: Mapping[str, int] = usage.get("stats", {})
        return int(details.get("anon", details.get("rss", usage.get("usage", 0))))

    def export(self, container: str) -> Iterator[bytes]:
        """Yields all files of a container as a tar archive, whose times are whole seconds."""
        with _alive(container), self._engine.turn("the export of a container"):
            chunks: Iterator[bytes] = self._api.export(container)
        return chunks

    @contextlib.contextmanager
    def paused(self, container: str) -> Iterator[None]:
        """Pauses a container during the block."""
        with _alive(container):
            self._pause(container)
        try:
            yield
        finally:
            self.resume(container)

    def _pause(self, container: str) -> None:
        deadline = time.monotonic() + FREEZING
        while True:
            try:
                with self._engine.turn("pausing a container"):
                    self._api.pause(container)
                return
            except InfrastructureError as error:  # noqa: PERF203
                if "unable to freeze" not in str(error) or time.monotonic() > deadline:
                    raise

    def resume(self, container: str) -> None:
        """Resumes a container that may be paused."""
        with contextlib.suppress(docker.errors.APIError, InfrastructureError):
            self._engine.do("resuming a container", self._api.unpause, container)

    def disk_usage(self) -> int:
        """Returns the bytes on disk that this data directory's containers have written."""
        containers: Any = self._engine.do(
            "weighing this data directory's containers", self._api.containers, all=True, size=True, filters=self._mine()
        )
        return sum(int(each.get("SizeRw", 0)) for each in containers)

    def remove(self, container: str) -> None:
        """Kills a container and removes it with its anonymous volumes; does nothing if it is gone.

        Raises:
            InfrastructureError: the engine failed.
        """
        with contextlib.suppress(docker.errors.NotFound):
            try:
                self._engine.do("removing a container", self._api.remove_container, container, v=True, force=True)
            except docker.errors.APIError as error:
                if error.status_code != 409:  # it is being removed already
                    raise InfrastructureError(f"a container could not be removed: {error.explanation}") from None

    def of_home(self) -> list[tuple[str, str]]:
        """Returns the data directory's containers, dead and alive: each one's id and owner."""
        containers = self._engine.do(
            "listing this data directory's containers", self._api.containers, all=True, filters=self._mine()
        )
        return [(each["Id"], each["Labels"].get(LABEL_OWNER, "")) for each in containers]


def _filter_options(engine: Sequence[str]) -> list[str]:
    """Returns the options that set a filter of system calls, given the engine's own.

    An engine that rejects our filter starts no container. If its operator has replaced its default filter, that one is
    used.
    """
    ours = [f"seccomp={profile()}"]
    options_of = {"default": ours, "builtin": ours, "unconfined": ours}
    for option in engine:
        profile_option = re.fullmatch(r"name=seccomp,profile=(.*)", option)
        if profile_option:
            return options_of.get(profile_option[1], [])
    return ["no-new-privileges"]  # PID 1 needs this to set its own, although sudo and su do not work then


@contextlib.contextmanager
def _alive(container: str) -> Iterator[None]:
    """A block in which the engine's refusals mean that the container does not run.

    The SDK's errors are OSErrors, too, which a file tool would attribute to its own file.
    """
    try:
        yield
    except docker.errors.APIError as error:
        raise SandboxDied(f"the container {container[:12]} does not run: {error.explanation}") from None


def _nanoseconds(timestamp: str) -> int:
    """Converts an engine's timestamp (RFC 3339 with up to nine decimals, UTC) to nanoseconds since the epoch."""
    whole, _, fraction = timestamp.rstrip("Z").partition(".")
    seconds = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0")[:9] or 0)
