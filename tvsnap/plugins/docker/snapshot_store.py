"""Snapshots on disk: an image of the engine each, and a directory with what an image cannot contain.

Layout, below `home/docker/<engine>`:

    snapshots/<id>/      manifest.json, with a checksum of its own and of each other file; shell.json (an idle shell)
                         or criu/ (live processes); times, links.json and lent.json (what commits lose)
    unfinished/<id>/     one that is being taken: names the image before that is made; ids begin with their owners
    images/<digest>-<version>  an image that was imported into the engine, with that version of PID 1 (images.py)
    doomed/<id>          one whose image the engine could not remove yet: it has live forks, or later snapshots

Everything is known by name from here: a list of the engine's images, which takes seconds if they are many, is never
requested.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import docker.errors

from tvsnap.host.attempts import AttemptFailed
from tvsnap.model.errors import CheckpointFailed, InfrastructureError, SnapshotUnusable
from tvsnap.model.observations import Captures, SnapshotInfo
from tvsnap.plugins.docker.containers import Ownership
from tvsnap.plugins.docker.engine import Engine, EngineTimeout
from tvsnap.sandboxes.fixed_clock import StoppedClock
from tvsnap.sandboxes.repairs.directory_times import DirectoryTimes
from tvsnap.sandboxes.repairs.time_wait import Closed
from tvsnap.sandboxes.sealing import DISK_ERRORS, checksum, from_sealed_json, open_regular, reading, to_sealed_json

REPOSITORY = "tvsnap/snapshot"
FORMAT = 3  # version of the layout; others are unusable
MANIFEST, SHELL, CRIU = "manifest.json", "shell.json", "criu"
TIMES, LINKS, LENT = "times", "links.json", "lent.json"
_LATE_COMMIT = 300.0
"""Seconds to wait for a commit that the engine did not confirm in time: it nevertheless goes on with it."""
_POLL = 0.5
_COMMITTING = "committing"
"""A file that exists from before the commit begins: the engine may finish it even after we are dead."""
_GRACE = 3600.0  # seconds for which a missing image is still expected to appear


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a snapshot."""

    info: SnapshotInfo  # for the graph
    guest: str  # version of the PID 1 in it
    depth: int  # layers of its image
    empty_memory: bool  # no files are in memory except those that a fresh sandbox has there
    changes: int  # how many calls had changed the state of its sandbox
    closed: tuple[Closed, ...] = ()  # the connections that were in TIME_WAIT
    clock: StoppedClock | None = None  # its sandbox's clock, if it had one of its own
    # Directories in which CRIU creates something when it restores the processes, with their times
    directories: tuple[DirectoryTimes, ...] = ()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A snapshot that is being taken: `id` is its future name, `directory` becomes its own."""

    id: str
    directory: Path

    @property
    def reference(self) -> str:
        """The reference of the engine's image."""
        return reference_of(self.id)


def reference_of(snapshot: str) -> str:
    return f"{REPOSITORY}:{snapshot}"


class SnapshotStore:
    """The snapshots of a data directory in one engine. Thread-safe; several processes may use one at once."""

    def __init__(self, engine: Engine, ownership: Ownership, directory: Path) -> None:
        self._engine = engine
        self._api = engine.api
        self._ownership = ownership
        self._late_commit = _LATE_COMMIT
        places = [directory / name for name in ("snapshots", "unfinished", "doomed")]
        for path in places:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._complete, self._unfinished, self._doomed = places

    def directory(self, snapshot: str) -> Path:
        """Returns the directory of a snapshot's files."""
        return self._complete / snapshot

    def read(self, snapshot: str, *, check: bool = False) -> Manifest:
        """Returns the manifest of a snapshot; with `check`, after verifying the checksums of all its files.

        Raises:
            SnapshotUnusable: it is gone or damaged.
            AttemptFailed: it cannot be read at present.
        """
        directory = self.directory(snapshot)
        with reading(snapshot):
            with open_regular(directory / MANIFEST) as file:
                values = from_sealed_json(file.read())
            if values["format"] != FORMAT:
                raise SnapshotUnusable(f"snapshot {snapshot} has another format than {FORMAT}")
            captures = Captures(**values["info"].pop("captures"))
            info = SnapshotInfo(**{**values["info"], "captures": captures})
            if info.id != snapshot:
                raise SnapshotUnusable(f"snapshot {snapshot} is damaged: its manifest is that of {info.id}")
            if check and _checksums(directory) != values["checksums"]:
                raise SnapshotUnusable(f"snapshot {snapshot} is damaged: its files are not those that were written")
            about = {name: values[name] for name in ("guest", "depth", "empty_memory", "changes")}
            closed = tuple(map(Closed.from_json, values["closed"]))
            clock = StoppedClock.from_json(values.get("clock"))
            directories = tuple(DirectoryTimes(**one) for one in values.get("directories", ()))
            return Manifest(info, **about, closed=closed, clock=clock, directories=directories)

    @contextlib.contextmanager
    def taking(self) -> Iterator[Unfinished]:
        """Deletes the snapshot that the block takes unless the block completes it."""
        id = f"{self._ownership.owner}.{secrets.token_hex(8)}"
        unfinished = Unfinished(id, self._unfinished / id)
        try:
            unfinished.directory.mkdir(mode=0o700)
            yield unfinished
        except OSError as error:
            reason = f"no snapshot could be written: {error.strerror or error}"
            if error.errno in DISK_ERRORS:
                raise CheckpointFailed(reason) from error
            raise AttemptFailed(reason, machine=True) from error
        finally:
            if unfinished.directory.exists():
                self._discard(unfinished.directory, id)

    def commit(self, unfinished: Unfinished, container: str, image: str) -> None:
        """Makes an image of a container's files; waits for it if the engine confirms too late.

        Nothing may change in the container meanwhile.

        Raises:
            InfrastructureError: the image was not made.
        """
        changes = self._ownership.changes("snapshot", image)
        (unfinished.directory / _COMMITTING).touch()
        try:
            with self._engine.turn("a commit"):
                self._api.commit(container, REPOSITORY, unfinished.id, pause=False, changes=changes)
        except EngineTimeout:
            if not self._appears(unfinished.reference):
                raise
        except docker.errors.APIError as error:
            raise InfrastructureError(f"the engine would not commit: {error.explanation}") from None

    def put(self, unfinished: Unfinished, archive: IO[bytes], image: str) -> None:
        """Makes an image of one layer from an archive."""
        changes = self._ownership.changes("snapshot", image)
        (unfinished.directory / _COMMITTING).touch()
        with self._engine.turn("the import of a flattened container"):
            self._api.import_image_from_stream(archive, REPOSITORY, unfinished.id, changes)

    def complete(self, unfinished: Unfinished, manifest: Manifest) -> None:
        """Publishes a complete snapshot."""
        (unfinished.directory / _COMMITTING).unlink(missing_ok=True)
        values = {"format": FORMAT, "checksums": _checksums(unfinished.directory), **asdict(manifest)}
        (unfinished.directory / MANIFEST).write_text(to_sealed_json(values))
        unfinished.directory.rename(self._complete / unfinished.id)

    def all(self) -> Iterator[str]:
        """Yields the ids of all complete snapshots."""
        for entry in os.scandir(self._complete):
            if os.path.exists(f"{entry.path}/{MANIFEST}"):
                yield entry.name

    def delete(self, snapshot: str) -> None:
        """Deletes a snapshot: its manifest first, so that an incomplete deletion leaves none.

        The image when possible.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._complete / snapshot / MANIFEST)
        self._discard(self._complete / snapshot, snapshot)
        self.bury()

    def bury(self) -> None:
        """Tries again to remove the images of deleted snapshots that were still needed."""
        for since, grave in self._graves():
            removed = self._engine.remove_image(reference_of(grave.name))
            if removed or (removed is None and time.time() - since > _GRACE):
                grave.unlink(missing_ok=True)

    def _graves(self) -> list[tuple[float, Path]]:
        """Returns the records of images that are still to be removed, and since when (s), the youngest first."""
        graves = []
        for grave in self._doomed.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another thread or process has just removed it
                graves.append((grave.stat().st_mtime, grave))
        return sorted(graves, reverse=True)

    def sweep(self, is_alive: Callable[[str], bool]) -> tuple[int, int]:
        """Removes what dead owners left; returns the numbers of half-deleted and of unfinished snapshots."""
        deleted = unfinished = 0
        for entry in os.scandir(self._unfinished):
            if not is_alive(entry.name.partition(".")[0]):
                self._discard(Path(entry.path), entry.name)
                unfinished += 1
        for entry in os.scandir(self._complete):
            if not os.path.exists(f"{entry.path}/{MANIFEST}"):
                self._discard(Path(entry.path), entry.name)
                deleted += 1
        self.bury()
        return deleted, unfinished

    def _discard(self, directory: Path, id: str) -> None:
        removed = self._engine.remove_image(reference_of(id))
        if removed is False or (removed is None and (directory / _COMMITTING).exists()):
            (self._doomed / id).touch()
        shutil.rmtree(directory, ignore_errors=True)

    def _appears(self, reference: str) -> bool:
        deadline = time.monotonic() + self._late_commit
        while time.monotonic() < deadline:
            with contextlib.suppress(docker.errors.NotFound, EngineTimeout):
                self._engine.image(reference)
                return True
            time.sleep(_POLL)
        return False


def _checksums(directory: Path) -> dict[str, list[int]]:
    """Returns the size and the checksum of each file of a snapshot except its manifest."""
    paths = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(path.relative_to(directory)): [*checksum(path)] for path in paths if path != directory / MANIFEST}
