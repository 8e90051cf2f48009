"""Snapshots on disk: how one is taken of a sandbox, with processes or of an idle shell, and how it is read again.

A snapshot is a directory: `files`, a copy of the sandbox's writable layer; `criu`, what CRIU dumped, or `shell.json`,
an idle shell; and `manifest.json`, which is there only if all else is. It is written under another name, then renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tvsnap.backends.base import Captures, SnapshotInfo
from tvsnap.backends.local import observe
from tvsnap.backends.local.criu import LOG, Criu
from tvsnap.backends.local.sandbox import LocalSandbox
from tvsnap.backends.local.storage import Storage
from tvsnap.errors import InfrastructureError, NotCheckpointable, SnapshotUnusable
from tvsnap.guest.shell_image import ShellImage, capture

FORMAT = 2
"""Version of the snapshots' layout on disk; others are unusable."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Device nodes that a sandbox has from the host."""
_MANIFEST = "manifest.json"
_SHELL = "shell.json"
_STARTUP_FILE = ("etc", "bash.bashrc")
"""Read by every interactive bash, a bare one too, where the distribution has it so."""


class Snapshots:
    """The snapshots of one data directory."""

    def __init__(self, storage: Storage, owner: str, guest: str) -> None:
        """Opens their directory.

        Args:
            storage: where it is.
            owner: whose unfinished ones are to be known.
            guest: version of PID 1 in the snapshots to take.
        """
        self._storage = storage
        self._owner = owner
        self._guest = guest
        self.path = storage.path / "snapshots"
        self.temporary = storage.path / "tmp"
        for directory in (self.path, self.temporary):
            directory.mkdir(exist_ok=True, mode=0o700)

    def files(self, snapshot: str) -> Path:
        """Returns where the writable layer of a snapshot is."""
        return self.path / snapshot / "files"

    # -- taking -----------------------------------------------------------------------------------------------------

    def take_processes(self, sandbox: LocalSandbox, criu: Criu) -> SnapshotInfo:
        """Dumps the processes, and copies the files while they stand still."""
        sandbox.guest()  # raises SandboxDied
        with self._unfinished() as (unfinished, finish):
            (unfinished / "criu").mkdir()
            (unfinished / "criu").chmod(0o755)
            processes = tuple(sandbox.other_processes())
            images = os.open(unfinished / "criu", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                sandbox.disconnect()
                begin = time.perf_counter()
                criu.dump(
                    sandbox.init,
                    images,
                    [f"mnt[/dev/{name}]:{name}" for name in DEVICES],
                    [str(observe.LAUNCH), "dump", str(sandbox.init), "--"],
                    lambda: self._storage.copy(sandbox.layer, unfinished / "files"),
                )
                frozen = time.perf_counter() - begin
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(LOG, dir_fd=images)
            finally:
                os.close(images)
            for entry in os.scandir(unfinished / "criu"):
                os.chmod(entry.path, 0o644)  # the restored root, an unprivileged user of the host, reads them too
            return finish(Captures(processes=True, shell=True), frozen, processes)

    def take_shell(self, sandbox: LocalSandbox) -> SnapshotInfo:
        """Copies the files and the idle shell.

        Nothing else lives in the sandbox, before or after; so the files are those of one moment without freezing it.
        """
        with self._unfinished() as (unfinished, finish):
            image = capture(sandbox.guest(), others=sandbox.other_processes(), hold=sandbox.shell_hold)
            self._storage.copy(sandbox.layer, unfinished / "files")
            info = sandbox.guest().info()
            if sandbox.other_processes() or (info.inner, info.idle) != (image.inner, True):
                raise NotCheckpointable("the sandbox changed while its files were copied")
            if _holds(unfinished / "files" / "upper", _STARTUP_FILE):
                raise NotCheckpointable(f"/{'/'.join(_STARTUP_FILE)} was changed, and would act when a shell is made")
            (unfinished / _SHELL).write_bytes(image.to_bytes())
            return finish(Captures(shell=True), 0.0, ())

    @contextlib.contextmanager
    def _unfinished(self) -> Iterator[tuple[Path, Callable[[Captures, float, tuple[str, ...]], SnapshotInfo]]]:
        """A block with a directory to fill and what makes a snapshot of it; what is left unfinished is removed."""
        started = time.perf_counter()
        id = secrets.token_hex(8)
        unfinished = self.temporary / f"{self._owner}.{id}"

        def finish(captures: Captures, frozen: float, processes: tuple[str, ...]) -> SnapshotInfo:
            sizes = {
                str(path.relative_to(unfinished)): path.stat().st_size
                for path in (unfinished / _SHELL, *(unfinished / "criu").glob("*"))
                if path.exists()
            }
            info = SnapshotInfo(
                id=id,
                captures=captures,
                size=sum(sizes.values()) + size_of(unfinished / "files" / "upper"),
                duration=time.perf_counter() - started,
                frozen=frozen,
                processes=processes,
            )
            manifest = {"format": FORMAT, "guest": self._guest, "sizes": sizes, **asdict(info)}
            (unfinished / _MANIFEST).write_text(json.dumps(manifest))
            unfinished.rename(self.path / id)
            return info

        try:
            unfinished.mkdir(mode=0o700)
            yield unfinished, finish
        except BaseException as error:
            self._remove(unfinished)
            if isinstance(error, OSError):
                raise InfrastructureError(f"no snapshot could be written: {error.strerror}") from error
            raise

    # -- reading ----------------------------------------------------------------------------------------------------

    def manifest(self, snapshot: str) -> dict[str, Any]:
        """Returns a snapshot's manifest once all that it names is there in full.

        Raises:
            SnapshotUnusable: something is not, or was made by another version of tvsnap.
        """
        directory = self.path / snapshot
        try:
            manifest = json.loads((directory / _MANIFEST).read_text())
            if manifest["format"] != FORMAT:
                raise SnapshotUnusable(f"snapshot {snapshot} has format {manifest['format']}, not {FORMAT}")
            for name, size in manifest["sizes"].items():
                if (directory / name).stat().st_size != size:
                    raise SnapshotUnusable(f"snapshot {snapshot} is damaged: {name} is not of {size} bytes")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SnapshotUnusable(f"snapshot {snapshot} is missing or damaged: {error}") from None
        if manifest["guest"] != self._guest:
            raise SnapshotUnusable(f"snapshot {snapshot} holds the PID 1 of another version of tvsnap")
        return dict(manifest)

    def shell(self, snapshot: str) -> ShellImage | None:
        """Returns the idle shell that a snapshot holds; None if it holds processes.

        Raises:
            SnapshotUnusable: it cannot be read.
        """
        if self.manifest(snapshot)["captures"]["processes"]:
            return None
        try:
            return ShellImage.from_bytes((self.path / snapshot / _SHELL).read_bytes())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SnapshotUnusable(f"snapshot {snapshot} is missing or damaged: {error}") from None

    @contextlib.contextmanager
    def processes(self, snapshot: str) -> Iterator[int]:
        """A block with a descriptor of the directory of CRIU's images."""
        try:
            images = os.open(self.path / snapshot / "criu", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise SnapshotUnusable(f"snapshot {snapshot} was deleted meanwhile") from None
        try:
            yield images
        finally:
            os.close(images)

    def ids(self) -> Iterator[str]:
        """Yields the ids of all complete snapshots."""
        for entry in os.scandir(self.path):
            if os.path.exists(f"{entry.path}/{_MANIFEST}"):
                yield entry.name

    # -- removing ---------------------------------------------------------------------------------------------------

    def delete(self, snapshot: str) -> None:
        """Deletes a snapshot; first its manifest, so that a half deleted one is no snapshot."""
        directory = self.path / snapshot
        with contextlib.suppress(FileNotFoundError):
            os.unlink(directory / _MANIFEST)
        self._remove(directory)

    def sweep(self, in_use: Callable[[str], bool]) -> tuple[int, int]:
        """Removes what is incomplete; returns how many snapshots and how many temporary directories.

        Args:
            in_use: whether the owner of a temporary directory, known by its name, lives.
        """
        snapshots = temporary = 0
        for entry in os.scandir(self.temporary):
            if not in_use(entry.name):
                self._remove(Path(entry.path))
                temporary += 1
        for entry in os.scandir(self.path):
            if not os.path.exists(f"{entry.path}/{_MANIFEST}"):
                self._remove(Path(entry.path))
                snapshots += 1
        return snapshots, temporary

    def _remove(self, directory: Path) -> None:
        self._storage.delete(directory / "files")
        shutil.rmtree(directory, ignore_errors=True)


def size_of(upper: Path) -> int:
    """Returns bytes on disk of the files in a writable layer."""
    total = 0
    for parent, _, names in os.walk(upper):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total


def _holds(upper: Path, path: tuple[str, ...]) -> bool:
    """Whether a writable layer says anything of a path, or of what is in its way. Follows no link."""
    for name in path:
        upper /= name
        if not upper.is_dir() or upper.is_symlink():
            return os.path.lexists(upper)
    return True
