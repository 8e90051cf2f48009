"""The Docker backend: sandboxes are containers of an engine, snapshots its images and checkpoints."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import docker.errors

from tvsnap.guest.protocol import Guest
from tvsnap.host import attempts
from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.checks import Check
from tvsnap.host.owners import is_alive
from tvsnap.model.errors import (
    ForkFailed,
    InfrastructureError,
    MachineLacks,
    NotRestorable,
    SandboxDied,
    SnapshotUnusable,
)
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Captures, ReapReport
from tvsnap.plugins.docker.containers import Containers, Ownership
from tvsnap.plugins.docker.engine import Engine, EngineTimeout, EngineUnavailable, home_tag
from tvsnap.plugins.docker.files import Files, InnerFiles, OuterFiles
from tvsnap.plugins.docker.images import EngineImages
from tvsnap.plugins.docker.inside import list_inside
from tvsnap.plugins.docker.sandbox import DockerSandbox, Resources
from tvsnap.plugins.docker.snapshot_store import CRIU, MANIFEST, SHELL, SnapshotStore, reference_of
from tvsnap.plugins.docker.taking import Taker
from tvsnap.sandboxes.criu import refusals
from tvsnap.sandboxes.fixed_clock import Clock, is_fixed, page
from tvsnap.sandboxes.kernel import inheritance
from tvsnap.sandboxes.looks import observing
from tvsnap.sandboxes.network.gateway import Gateway
from tvsnap.sandboxes.network.settings import NetworkSettings
from tvsnap.sandboxes.repairs import directory_times
from tvsnap.sandboxes.shell.image import ShellImage, restore

_USUAL_RUNTIMES = ("runc", "crun")
"""Runtimes whose containers are namespaces of the engine's kernel, as the local backend's sandboxes are."""
FORK_PAUSES = (0.1, 0.4, 1.6)  # seconds between the attempts at a fork
CHECKPOINT = "tvsnap"  # name of a fork's checkpoint in its container's directory


class DockerBackend:
    """Sandboxes of one owner (process) on one data directory and one engine; see `sandboxes.protocol.Backend`."""

    name = "docker"

    def __init__(
        self, home: Path, owner: str, engine: Engine | None = None, network: NetworkSettings | None = None
    ) -> None:
        """Opens the backend.

        Args:
            home: the data directory.
            owner: the id of this process's claim on it, which is part of the names of everything that it makes.
            engine: the engine; by default the one that Docker's own client would use. Closed with the backend.
            network: the network settings that the host provides to sandboxes with a network; by default the
                environment's.

        Raises:
            MachineLacks: no engine answers.
        """
        self._home = home
        self._owner = owner
        self.network_settings = network or NetworkSettings.of_environment()
        self.gateway = Gateway(home, self.network_settings)
        self._engine = engine or Engine()
        about = self._engine.do("asking the engine about itself", self._engine.api.info)
        ownership = Ownership(home_tag(home), owner)
        directory = home / "docker" / hashlib.sha256(str(about["ID"]).encode()).hexdigest()[:12]
        self.containers = Containers(self._engine, ownership, about)
        self._snapshots = SnapshotStore(self._engine, ownership, directory)
        self._images = EngineImages(self._engine, ownership, directory, self.containers.data_root)
        self._taker = Taker(self._engine, self.containers, self._snapshots, self._images.guest_version)
        # The program that started this process may have started the engine, too; if not, less is shared than possible.
        self.platform = "; ".join([_platform(about), *inheritance.unusual()])
        self._numbers = itertools.count(1)
        self._sandboxes: dict[str, DockerSandbox] = {}
        self._baselines: dict[str, Mapping[str, observing.Entry]] = {}
        self._lock = threading.Lock()

    @staticmethod
    def checks(home: Path) -> list[Check]:
        """Checks what this machine has for the backend; see `tvsnap.sandboxes.checks`."""
        from tvsnap.plugins.docker.checks import check_docker

        return check_docker()

    @property
    def captures(self) -> Captures:
        return Captures(processes=not self.containers.no_checkpoints, shell=True)

    # -- sandboxes ----------------------------------------------------------------------------------------------------

    def start(self, image: Image, limits: Limits) -> DockerSandbox:
        if image.services.others:
            raise MachineLacks(
                f"the image {image.name} has several services ({', '.join(image.services.names)}), and the backend "
                "docker cannot make their root directories; take the backend local"
            )
        reference = self._images.startable(image)
        try:
            with self._new(image, limits, reference, EngineImages.DEPTH) as sandbox:
                self._fix(sandbox, Clock.begun(image))
                self.containers.start(sandbox.container)
                sandbox.begin(fresh=True)
                return sandbox
        except docker.errors.NotFound as error:
            self._images.forget(reference)
            raise InfrastructureError(f"a sandbox of {image.name} did not start: {error.explanation}") from None

    def fork(self, snapshot: str, image: Image, limits: Limits) -> DockerSandbox:
        return attempts.repeat(
            lambda: self._fork(snapshot, image, limits), FORK_PAUSES, lasting=NotRestorable, passing=ForkFailed
        )

    def _fork(self, snapshot: str, image: Image, limits: Limits) -> DockerSandbox:
        manifest = self._snapshots.read(snapshot, check=True)
        directory = self._snapshots.directory(snapshot)
        if manifest.guest != self._images.guest_version:
            raise SnapshotUnusable(f"snapshot {snapshot} holds the PID 1 of another version of tvsnap")
        if manifest.info.captures.processes and self.containers.no_checkpoints:
            raise NotRestorable(f"snapshot {snapshot} holds live processes; {self.containers.no_checkpoints}")
        try:
            with self._new(image, limits, reference_of(snapshot), manifest.depth, directory) as sandbox:
                self._fix(sandbox, manifest.clock.go_on() if manifest.clock else None)
                if manifest.info.captures.processes:
                    self.containers.put_checkpoint(sandbox.container, directory / CRIU, CHECKPOINT)
                    self.containers.start(sandbox.container, CHECKPOINT)
                    if manifest.directories:
                        directory_times.set_again(self.containers.root(sandbox.container), manifest.directories)
                    self.containers.complete(sandbox.container)
                    sandbox.begin(fresh=False, empty_memory=manifest.empty_memory, closed=manifest.closed)
                    sandbox.files.bring_back(directory)
                else:
                    self.containers.start(sandbox.container)
                    sandbox.begin(fresh=True, closed=manifest.closed)
                    sandbox.files.bring_back(directory)
                    shell = ShellImage.from_bytes((directory / SHELL).read_bytes())
                    if manifest.clock:
                        shell = replace(shell, origin=shell.origin + manifest.clock.gap_s)
                    restore(sandbox.guest(), shell, sandbox.number_after)
                sandbox.changes_settled = manifest.changes
                if not (directory / MANIFEST).exists():  # its other files may have been read incompletely
                    raise SnapshotUnusable(f"snapshot {snapshot} was deleted while it was being forked")
                return sandbox
        except (SnapshotUnusable, AttemptFailed, SandboxDied, EngineUnavailable, EngineTimeout):
            raise
        except docker.errors.NotFound as error:
            if not self._engine.has_image(reference_of(snapshot)):
                raise SnapshotUnusable(f"snapshot {snapshot}: the engine has its image no more") from None
            raise AttemptFailed(f"a fork of snapshot {snapshot} is gone: {error.explanation}", machine=True) from None
        except (InfrastructureError, OSError) as error:
            raise AttemptFailed(str(error), machine=refusals.is_trouble(str(error))) from None
        except (ValueError, KeyError, TypeError) as error:  # although its files are those that were written
            raise AttemptFailed(f"snapshot {snapshot} is not understood: {error}") from None

    def _fix(self, sandbox: DockerSandbox, clock: Clock | None) -> None:
        """Gives a sandbox that is about to run its clock and its seed, if its image sets them."""
        sandbox.clock = clock
        if is_fixed(sandbox.image):
            self.containers.put_fixed(sandbox.container, page(sandbox.image, clock))

    @contextlib.contextmanager
    def _new(
        self, image: Image, limits: Limits, reference: str, depth: int, snapshot: Path | None = None
    ) -> Iterator[DockerSandbox]:
        """Yields a sandbox in a new container, for the block to start; closes it if the block raises."""
        id = f"{self._owner}.{next(self._numbers)}"
        container = self.containers.create(id, image, reference, limits, bare=snapshot is not None)
        try:
            sandbox = DockerSandbox(
                Resources(id, image, limits, container, reference, depth),
                self.containers,
                self.gateway,
                files=self._files,
                baseline=self._baseline,
                checkpoint=self._taker.take,
                on_close=self._forget,
            )
        except BaseException:
            self.containers.remove(container)
            raise
        with self._lock:
            self._sandboxes[id] = sandbox
        try:
            sandbox.files.prepare(snapshot)
            yield sandbox
        except BaseException:
            sandbox.close()
            raise

    def _files(self, sandbox: DockerSandbox) -> Files:
        """Returns the way to access a sandbox's files."""
        guest_of = weakref.WeakMethod(sandbox.guest)  # the sandbox has what this returns, and would be freed late

        def guest() -> Guest:
            method = guest_of()
            assert method is not None  # its caller has the sandbox
            return method()

        layers = self.containers.layers(sandbox.container)
        if layers:
            root, image = partial(self.containers.root, sandbox.container), partial(self._images.layers, sandbox.image)
            return OuterFiles(self._engine, layers, root, guest, image)
        created = self.containers.created(sandbox.container)
        return InnerFiles(guest, created, sandbox.image.hostname)

    def _baseline(self, image: Image) -> Mapping[str, observing.Entry]:
        """Returns the files of an image by path, as seen in a fresh sandbox."""
        if image.digest not in self._baselines:
            sandbox = self.start(image, Limits())
            try:
                self._baselines[image.digest] = {entry.path: entry for entry in list_inside(sandbox.guest(), "/")}
            finally:
                sandbox.close()
        return self._baselines[image.digest]

    def _forget(self, sandbox: DockerSandbox) -> None:
        """Removes a sandbox that has ended from the list."""
        with self._lock:
            self._sandboxes.pop(sandbox.id, None)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def snapshots(self) -> Iterator[str]:
        return self._snapshots.all()

    def delete_snapshot(self, snapshot: str) -> None:
        self._snapshots.delete(snapshot)

    # -- housekeeping -------------------------------------------------------------------------------------------------

    def reap(self) -> ReapReport:
        sandboxes = 0
        for container, owner in self.containers.of_home():
            if not self._is_alive(owner):
                # If its owner died during a checkpoint, it is paused, and so it cannot be killed.
                self.containers.resume(container)
                self.containers.remove(container)
                sandboxes += 1
        snapshots, temporary = self._snapshots.sweep(self._is_alive)
        self._images.reap(self._home / "images")
        return ReapReport(sandboxes, snapshots, temporary)

    def _is_alive(self, owner: str) -> bool:
        return owner == self._owner or is_alive(self._home, owner)

    def reclaim(self) -> int:
        return 0  # an engine deletes at once

    def disk_usage(self) -> Mapping[str, int]:
        usage = {"snapshots": 0, "sandboxes": self.containers.disk_usage()}
        for snapshot in self.snapshots():
            with contextlib.suppress(InfrastructureError):
                usage["snapshots"] += self._snapshots.read(snapshot).info.size
        return usage

    def close(self) -> None:
        with self._lock:
            sandboxes = list(self._sandboxes.values())
        for sandbox in sandboxes:
            sandbox.close()
        self.gateway.close()
        with contextlib.suppress(InfrastructureError):
            self._snapshots.bury()
        self._engine.close()


def _platform(about: Mapping[str, Any]) -> str:
    """Returns what commands can see of the engine's machine; the same as on this one, if nothing is unusual."""
    runtime = about.get("DefaultRuntime", "runc")
    architecture = str(about["Architecture"])
    return architecture if runtime in _USUAL_RUNTIMES else f"{architecture} {runtime}"
