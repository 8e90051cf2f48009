"""Those who are compared: tvsnap's backends, and Docker and Podman as one would script them without tvsnap."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import IO, Any, Protocol

import docker
import docker.errors
from docker.models.containers import Container

from scripts.room import Room
from tvsnap.images import Image
from tvsnap.model.limits import Limits
from tvsnap.plugins.docker.engine import LABEL_HOME, home_tag
from tvsnap.sandboxes.criu.binary import find_criu
from tvsnap.sandboxes.protocol import Backend, Sandbox

QUESTION, ANSWER = "echo $((6 * 7))", b"42\n"
IDLE = ["sleep", "infinity"]
JOB = "while :; do sleep 0.5; done"
CHECKPOINT = "benchmark"


class Live(Protocol):
    """One live container."""

    def answer(self, command: str) -> bytes:
        """Returns the output of a command in it."""
        ...

    def checkpoint(self) -> str:
        """Takes a snapshot, of the processes too if it is busy; returns its name. The container goes on."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class Contender(Protocol):
    """A way to have containers, snapshots of them and forks.

    Attributes:
        name: what it is called in JSON.
        title: what it is called in the table.
        takes_processes: whether a snapshot can hold live processes.
    """

    name: str
    title: str
    takes_processes: bool

    def start(self, job: str = "") -> Live:
        """Returns a fresh container: with nothing but what keeps it alive, or a command in the background too."""
        ...

    def fork(self, snapshot: str, *, busy: bool = False) -> Live:
        """Returns a container that goes on from a snapshot, of a busy one or not."""
        ...

    def size(self, snapshot: str) -> int:
        """Returns a snapshot's bytes on disk, beyond the image that its container was started from."""
        ...

    def delete(self, snapshot: str) -> None:
        """Deletes a snapshot."""
        ...


class Ours:
    """A backend of tvsnap. A sandbox has a persistent shell, in which commands run; snapshots hold all of it."""

    def __init__(self, backend: Backend, image: Image) -> None:
        self.name = backend.name
        self.title = f"tvsnap {backend.name}"
        self.takes_processes = backend.captures.processes
        self._backend = backend
        self._image = image
        self._sizes: dict[str, int] = {}

    def start(self, job: str = "") -> Live:
        sandbox = self._backend.start(self._image, Limits())
        if job:
            sandbox.run(f"({job}) &", timeout=10)
        return _OurLive(sandbox, self._sizes)

    def fork(self, snapshot: str, *, busy: bool = False) -> Live:
        return _OurLive(self._backend.fork(snapshot, self._image, Limits()), self._sizes)

    def size(self, snapshot: str) -> int:
        return self._sizes[snapshot]

    def delete(self, snapshot: str) -> None:
        self._backend.delete_snapshot(snapshot)


class _OurLive:
    def __init__(self, sandbox: Sandbox, sizes: dict[str, int]) -> None:
        self._sandbox = sandbox
        self._sizes = sizes

    def answer(self, command: str) -> bytes:
        return self._sandbox.run(command, timeout=60).output

    def checkpoint(self) -> str:
        info = self._sandbox.checkpoint()
        self._sizes[info.id] = info.size
        return info.id

    def close(self) -> None:
        self._sandbox.close()


class BareDocker:
    """The Docker SDK: `commit`, `run` and `exec`; with processes, `checkpoint create` and `start --checkpoint` as well.

    A fork of a checkpoint needs that copied into the new container's directory: the engine takes it from nowhere else.
    """

    name = "bare_docker"
    title = "bare Docker"

    def __init__(self, archive: IO[bytes], home: Path) -> None:
        """Imports the image.

        Args:
            archive: its root filesystem, a tar.
            home: the data directory, as whose all is labelled that is made in the engine.
        """
        self.client = docker.from_env(timeout=300)
        self._labels = labels = {LABEL_HOME: home_tag(home)}
        about = self.client.info()
        self._directory = Path(about["DockerRootDir"]) / "containers"
        changes = [f"LABEL {name}={value}" for name, value in labels.items()]
        imported = self.client.api.import_image_from_stream(archive, changes=changes)
        self._image = str(json.loads(imported.splitlines()[-1])["status"])
        self._base_size = self._image_size(self._image)
        self.takes_processes = bool(about["ExperimentalBuild"]) and self._directory.is_dir() and self._restores()

    def _restores(self) -> bool:
        """Whether containers with their processes can be forked: some engines take checkpoints and restore none."""
        sandbox = self.start(JOB)
        try:
            fork = self.fork(sandbox.checkpoint(), busy=True)
        except docker.errors.APIError:
            return False
        else:
            fork.close()
            return True
        finally:
            sandbox.close()

    def start(self, job: str = "") -> _DockerLive:
        return _DockerLive(self, self._run(self._image, _with(job)), bool(job))

    def fork(self, snapshot: str, *, busy: bool = False) -> _DockerLive:
        if not busy:
            return _DockerLive(self, self._run(snapshot, IDLE), busy)
        image, _, source = snapshot.partition(" ")
        made = self.client.containers.create(image, _with(JOB), network_mode="none", labels=self._labels)
        try:
            checkpoint = self._checkpoint(str(made.id))
            shutil.copytree(self._checkpoint(source), checkpoint)
            # The engine refuses the same checkpoint twice ("already exists") until it has cleared the first away.
            (checkpoint / f"fork-{made.id}").touch()
            self._post(f"/containers/{made.id}/start?checkpoint={CHECKPOINT}")
        except BaseException:
            made.remove(force=True)
            raise
        return _DockerLive(self, made, busy)

    def take(self, container: Container, busy: bool) -> str:
        """Takes a snapshot of a container."""
        image = str(container.commit(changes=[f"LABEL {name}={value}" for name, value in self._labels.items()]).id)
        if not busy:
            return image
        # The engine keeps one checkpoint under a name.
        shutil.rmtree(self._checkpoint(str(container.id)), ignore_errors=True)
        self._post(f"/containers/{container.id}/checkpoints", {"CheckpointID": CHECKPOINT, "Exit": False})
        return f"{image} {container.id}"

    def size(self, snapshot: str) -> int:
        image, _, source = snapshot.partition(" ")
        size = self._image_size(image) - self._base_size
        return size + (_occupied(self._checkpoint(source)) if source else 0)

    def delete(self, snapshot: str) -> None:
        self.client.images.remove(snapshot.partition(" ")[0], force=True)

    def _run(self, image: str, command: list[str]) -> Container:
        return self.client.containers.run(image, command, detach=True, network_mode="none", labels=self._labels)

    def _image_size(self, image: str) -> int:
        return int(self.client.images.get(image).attrs["Size"])

    def _checkpoint(self, container: str) -> Path:
        return self._directory / container / "checkpoints" / CHECKPOINT

    def _post(self, path: str, body: dict[str, Any] | None = None) -> None:
        """Makes a call that the SDK has no method for."""
        api = self.client.api
        response = api.post(f"{api.base_url}/v{api.api_version}{path}", json=body, timeout=300)
        if not response.ok:
            raise docker.errors.APIError(response.text, response=response)


class _DockerLive:
    def __init__(self, engine: BareDocker, container: Container, busy: bool) -> None:
        self._engine = engine
        self._container = container
        self._busy = busy

    def answer(self, command: str) -> bytes:
        output = self._container.exec_run(["bash", "-c", command]).output
        assert isinstance(output, bytes)
        return output

    def checkpoint(self) -> str:
        return self._engine.take(self._container, self._busy)

    def close(self) -> None:
        self._container.remove(force=True)


class BarePodman:
    """Podman's command line: `commit`, `run` and `exec`; with processes, `container checkpoint` and `restore`."""

    name = "bare_podman"
    title = "bare Podman"
    COVERED = ("/run/libpod", "/run/containers", "/run/runc", "/run/crun", "/dev/shm")
    """Where Podman and its runtimes keep things whatever they are told."""

    def __init__(self, room: Room, archive: IO[bytes]) -> None:
        """Imports the image.

        Args:
            room: where it runs.
            archive: the image's root filesystem, a tar.
        """
        self.directory = room.directory
        driver = "overlay" if room.takes_overlays else "vfs"
        command = ["podman", "--root", f"{self.directory}/data", "--runroot", f"{self.directory}/run/podman"]
        command += ["--storage-driver", driver, "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        self._command = room.enter(command)
        self._options = [
            "--network",
            "none",
            "--ulimit",
            "nofile=4096",
            "--ulimit",
            "nproc=4096",
            "--cgroup-parent",
            room.group,
        ]
        self._environment = dict(os.environ)
        if criu := find_criu():
            self._environment["PATH"] = f"{Path(criu).parent}:{os.environ['PATH']}"
        # Named, because with the last image that stands on one without a name, that goes too.
        self._image = self.do("import", "--quiet", "-", "benchmark", stdin=archive)
        self._base_size = self._image_size(self._image)
        self.takes_processes = self._restores()

    def _restores(self) -> bool:
        sandbox = self.start(JOB)
        try:
            fork = self.fork(sandbox.checkpoint(), busy=True)
        except PodmanFailed:
            return False
        else:
            fork.close()
            return True
        finally:
            sandbox.close()

    def start(self, job: str = "") -> _PodmanLive:
        return _PodmanLive(self, self._run(self._image, _with(job)), bool(job))

    def fork(self, snapshot: str, *, busy: bool = False) -> _PodmanLive:
        if not busy:
            return _PodmanLive(self, self._run(snapshot, IDLE), busy)
        name = f"fork-{os.urandom(8).hex()}"
        return _PodmanLive(self, self.do("container", "restore", "--import", snapshot, "--name", name), busy)

    def take(self, container: str, busy: bool) -> str:
        """Takes a snapshot of a container."""
        if not busy:
            return self.do("commit", "--quiet", container)
        file = f"{self.directory}/checkpoint-{os.urandom(8).hex()}.tar"
        self.do("container", "checkpoint", "--leave-running", "--compress", "none", "--export", file, container)
        return file

    def size(self, snapshot: str) -> int:
        if snapshot.startswith("/"):
            return _occupied(Path(snapshot))
        return self._image_size(snapshot) - self._base_size

    def delete(self, snapshot: str) -> None:
        if snapshot.startswith("/"):
            Path(snapshot).unlink()
        else:
            self.do("rmi", "--force", snapshot)

    def _run(self, image: str, command: list[str]) -> str:
        return self.do("run", "--detach", *self._options, image, *command)

    def _image_size(self, image: str) -> int:
        return int(self.do("image", "inspect", "--format", "{{.Size}}", image))

    def do(self, *arguments: str, stdin: IO[bytes] | int = subprocess.DEVNULL) -> str:
        """Runs a command of Podman's; returns what it says.

        Raises:
            PodmanFailed: it fails.
        """
        run = subprocess.run(
            [*self._command, *arguments],
            env=self._environment,
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise PodmanFailed(f"podman {' '.join(arguments)}: {run.stderr.strip()}")
        return run.stdout.strip()


class PodmanFailed(Exception):
    """Podman did not do what it was told."""


class _PodmanLive:
    def __init__(self, podman: BarePodman, container: str, busy: bool) -> None:
        self._podman = podman
        self._container = container
        self._busy = busy

    def answer(self, command: str) -> bytes:
        return self._podman.do("exec", self._container, "bash", "-c", command).encode() + b"\n"

    def checkpoint(self) -> str:
        return self._podman.take(self._container, self._busy)

    def close(self) -> None:
        self._podman.do("rm", "--force", "--time", "0", self._container)


def _with(job: str) -> list[str]:
    """Returns what a container executes: a command in the background, if there is one, and what keeps it alive."""
    return ["bash", "-c", f"({job}) & exec sleep infinity"] if job else IDLE


def clear(home: Path) -> None:
    """Removes from the engine at DOCKER_HOST what is labelled as of a data directory: containers, snapshots, images."""
    client = docker.from_env(timeout=300)
    filters: dict[str, str | list[str] | bool] = {"label": f"{LABEL_HOME}={home_tag(home)}"}
    for container in client.containers.list(all=True, filters=filters, ignore_removed=True):
        container.remove(force=True, v=True)
    # One that others stand on goes with the last of those, or not before.
    for _ in range(2):
        for image in client.images.list(all=True, filters=filters):
            with contextlib.suppress(docker.errors.APIError):
                client.images.remove(str(image.id), force=True)
    client.close()


def _occupied(path: Path) -> int:
    """Returns bytes of the blocks of a file, or of all files below a directory."""
    return sum(item.lstat().st_blocks * 512 for item in [path, *path.rglob("*")])
