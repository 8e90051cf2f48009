"""Stores snapshots on disk, and reads them.

A snapshot is a directory with `files`, a copy of the sandbox's writable layer; `criu`, CRIU's dump, or `shell.json`, an
idle shell; and `manifest.json`, which exists only if the rest does. It is written under another name, then renamed.
`criu/parent` has links to pages of an earlier dump which are the same in this one. On btrfs, all but `files` is
compressed by the kernel in the background.

The manifest holds a checksum of each file except those in `files`, a seal over the latter, and its own checksum. They
are verified before the first fork in each process, and again if a file's inode, size or time has changed since. `files`
is read-only on btrfs, which verifies data from the disk by its own checksums.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.libc import closing
from tvsnap.host.owners import sweep
from tvsnap.model.errors import CheckpointFailed, InfrastructureError, SnapshotUnusable
from tvsnap.model.observations import Captures, SnapshotInfo
from tvsnap.sandboxes.criu import pages
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.local.storage.layers import CopyStorage
from tvsnap.sandboxes.repairs.all import Noted
from tvsnap.sandboxes.repairs.directory_times import Directories
from tvsnap.sandboxes.sealing import (
    DISK_ERRORS,
    Stamp,
    checksum,
    from_sealed_json,
    is_of_same,
    open_regular,
    reading,
    seal,
    stamp,
    to_sealed_json,
)
from tvsnap.sandboxes.shell.image import ShellImage

FORMAT = 5
"""Version of the snapshots' layout on disk; others cannot be used."""
NODES = "/run/dev"
"""Directory of a sandbox's device nodes, made by mounts.c and hidden from the sandbox."""
REMEMBERED = 1000
"""Verified snapshots that a process remembers."""
_MANIFEST = "manifest.json"
SHELL = "shell.json"
_ALWAYS = (_MANIFEST, "files", "files/upper")
"""Files that every snapshot has."""


@dataclass(frozen=True, slots=True)
class _Sound:
    """A snapshot that was verified.

    Attributes:
        processes: whether it holds live processes.
        plain: whether these are PID 1 and an idle shell, and nothing else.
        stamps: its files' stamps, by path in the snapshot.
        checksums: sizes and CRC-32s of its files but those of the writable layer, by path in the snapshot.
        seal: the seal of its writable layer.
        changes: the number of calls that had changed the state of its sandbox.
        noted: its contents besides files and processes.
        pages: the bytes of its pages of memory.
    """

    processes: bool
    plain: bool
    stamps: Mapping[str, Stamp]
    checksums: Mapping[str, Sequence[int]]
    seal: int
    changes: int
    noted: Noted
    pages: int


@dataclass(frozen=True, slots=True)
class Lent:
    """Files of an earlier snapshot that a new one has, too, by another name of the same file.

    Attributes:
        checksums: their sizes and CRC-32s, by path in the new snapshot.
        stamps: their stamps, likewise.
    """

    checksums: Mapping[str, Sequence[int]]
    stamps: Mapping[str, Stamp]


NOTHING_LENT = Lent({}, {})


class Snapshots:
    """The snapshots of one data directory. Thread-safe."""

    def __init__(self, storage: CopyStorage, owner: str, guest: str) -> None:
        """Opens the directory of the snapshots.

        Args:
            storage: has the directory.
            owner: the name by which unfinished ones can be attributed.
            guest: version of PID 1 in the snapshots to take.
        """
        self._storage = storage
        self._owner = owner
        self._guest = guest
        self.path = storage.path / "snapshots"
        self.temporary = storage.path / "tmp"
        self._sound: OrderedDict[str, _Sound] = OrderedDict()
        self._distrusted: set[str] = set()
        for directory in (self.path, self.temporary):
            directory.mkdir(exist_ok=True, mode=0o700)

    def files(self, snapshot: str) -> Path:
        """Returns the directory of a snapshot's writable layer."""
        return self.path / snapshot / "files"

    def lend(self, earlier: str, images: Path) -> Lent:
        """Links the pages of an earlier dump into the directory of a new one, if it then need not write all of them.

        Args:
            earlier: the snapshot of the same processes, or of those that they were forked from; may be gone, or empty.
            images: the directory.
        """
        entry = self._sound.get(earlier)
        lent = pages.to_lend(entry.stamps) if entry else {}
        if not lent:
            return NOTHING_LENT
        directory = images / pages.DIRECTORY
        try:
            directory.mkdir()
            directory.chmod(0o755)
            for name, path in lent.items():
                os.link(self.path / earlier / path, directory / name)
            return self.lent(earlier, {f"criu/{pages.DIRECTORY}/{name}": path for name, path in lent.items()})
        except (OSError, InfrastructureError):  # it is being deleted, or has as many names as a file can have
            shutil.rmtree(directory, ignore_errors=True)
            return NOTHING_LENT

    def lent(self, earlier: str, files: Mapping[str, str]) -> Lent:
        """Returns what `finish` needs to know of files that a new snapshot has in common with an earlier one.

        Args:
            earlier: the earlier snapshot.
            files: paths of the files in the earlier snapshot, by path in the new one.

        Raises:
            SnapshotUnusable: the earlier one is being deleted.
        """
        entry = self._verified(earlier)
        return Lent(
            {name: entry.checksums[path] for name, path in files.items()},
            {name: entry.stamps[path] for name, path in files.items()},
        )

    # -- from elsewhere ---------------------------------------------------------------------------------------------

    def trees(self, snapshot: str) -> Mapping[str, Path]:
        """Returns the directories with the files of a snapshot; see `Exchanging.trees`."""
        return {"images": self.path / snapshot / "criu", "files": self.files(snapshot)}

    def adopt(self, manifest: Mapping[str, Any], fill: Callable[[str, Path], None]) -> SnapshotInfo:
        """Makes a snapshot of the files of one of another data directory; see `Exchanging.adopt`."""
        try:
            captures, noted = Captures(**manifest["captures"]), Noted.from_json(manifest)
            expected = {name: list(value) for name, value in manifest["checksums"].items()}
            frozen, processes = float(manifest["frozen"]), tuple(map(str, manifest["processes"]))
            changes, plain = int(manifest["changes"]), bool(manifest.get("plain"))
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotUnusable(f"a snapshot from elsewhere makes no sense: {error}") from None
        with self.unfinished("", changes) as (unfinished, finish):
            (unfinished / "criu").mkdir()
            fill("images", unfinished / "criu")
            self._storage.create(unfinished / "unpacked")
            try:
                fill("files", unfinished / "unpacked")
                self._storage.copy(unfinished / "unpacked", unfinished / "files", read_only=True)
            finally:
                self._storage.delete(unfinished / "unpacked")
            with reading("from elsewhere"), paths.directory(unfinished) as directory:
                actual = {name: list(checksum(name, directory)) for name in expected}
            if actual != expected:
                raise SnapshotUnusable("the files of a snapshot from elsewhere are not what they were there")
            info: SnapshotInfo = finish(list(expected), captures, frozen, processes, noted, plain=plain)
            return info

    @contextlib.contextmanager
    def unfinished(self, above: str, changes: int) -> Iterator[tuple[Path, Callable[..., SnapshotInfo]]]:
        """Yields a new directory, and a function that makes a snapshot of it; removes it if it stays unfinished.

        `above` is the snapshot that the sandbox was forked from, or empty; `changes` is how many calls have changed the
        sandbox's state.
        """
        started = time.perf_counter()
        id = f"{self._owner}.{secrets.token_hex(8)}"
        unfinished = self.temporary / id

        def finish(
            names: Sequence[str],
            captures: Captures,
            frozen: float,
            processes: tuple[str, ...],
            noted: Noted,
            lent: Lent = NOTHING_LENT,
            *,
            plain: bool = False,
        ) -> SnapshotInfo:
            # A descriptor and plain names, because operations on pathlib's paths would take most of the time.
            with paths.directory(unfinished) as directory:
                checksums = {**lent.checksums, **{name: checksum(name, directory) for name in names}}
            layer, sealed = seal(unfinished / "files" / "upper")
            info = SnapshotInfo(
                id=id,
                captures=captures,
                size=sum(size for size, _ in checksums.values()) + layer,
                duration=time.perf_counter() - started,
                frozen=frozen,
                processes=processes,
            )
            manifest = {
                "format": FORMAT,
                "guest": self._guest,
                "above": above,
                "changes": changes,
                "checksums": checksums,
                "seal": sealed,
                "plain": plain,
                **noted.to_json(),
                **_as_json(info),
            }
            (unfinished / _MANIFEST).write_text(to_sealed_json(manifest))
            with paths.directory(unfinished) as directory:
                stamps = {**lent.stamps, **{name: stamp(name, directory) for name in (*names, *_ALWAYS)}}
            unfinished.rename(self.path / id)
            sound = _Sound(captures.processes, plain, stamps, checksums, sealed, changes, noted, pages.size(stamps))
            self._remember(id, sound)
            return info

        try:
            unfinished.mkdir(mode=0o700)
            self._storage.compress(unfinished)
            yield unfinished, finish
        except BaseException as error:
            self._remove(unfinished)
            if isinstance(error, OSError):
                reason = f"no snapshot could be written: {error.strerror}"
                if error.errno in DISK_ERRORS:
                    raise CheckpointFailed(reason) from error
                raise AttemptFailed(reason, machine=True) from error
            raise

    # -- reading ----------------------------------------------------------------------------------------------------

    def manifest(self, snapshot: str) -> dict[str, Any]:
        """Returns a snapshot's manifest without verifying the rest, which `check` does.

        Raises SnapshotUnusable if it is missing, damaged or of another version of tvsnap, and AttemptFailed if it
        cannot be read at present.
        """
        with reading(snapshot):
            with open_regular(self.path / snapshot / _MANIFEST) as file:
                manifest = from_sealed_json(file.read())
            if manifest["format"] != FORMAT:
                raise SnapshotUnusable(f"snapshot {snapshot} has format {manifest['format']}, not {FORMAT}")
            if manifest["id"] != snapshot:
                raise SnapshotUnusable(f"snapshot {snapshot} is damaged: its manifest is that of {manifest['id']}")
        if manifest["guest"] != self._guest:
            raise SnapshotUnusable(f"snapshot {snapshot} holds the PID 1 of another version of tvsnap")
        return manifest

    def check(self, snapshot: str) -> bool:
        """Verifies that a snapshot is as it was taken; returns whether it holds processes (or else an idle shell).

        Raises SnapshotUnusable if it is not, and AttemptFailed if it cannot be read at present.
        """
        if snapshot in self._distrusted:
            raise SnapshotUnusable(f"snapshot {snapshot} is damaged: the disk did not give back what it holds")
        entry = self._sound.get(snapshot)
        with reading(snapshot), paths.directory(self.path / snapshot) as directory:
            if entry is not None and _are_of_same(
                entry.stamps, {name: stamp(name, directory) for name in entry.stamps}
            ):
                self._check_layer(snapshot, entry.seal, seen_before=True)
                return entry.processes
            manifest = self.manifest(snapshot)
            # Stamps first: then a change during the verification is noticed later.
            stamps = {name: stamp(name, directory) for name in (*manifest["checksums"], *_ALWAYS)}
            for name, expected in manifest["checksums"].items():
                if [*checksum(name, directory)] != expected:
                    raise SnapshotUnusable(f"snapshot {snapshot} is damaged: {name} is not what was written")
            self._check_layer(snapshot, manifest["seal"], seen_before=False)
            noted = Noted.from_json(manifest)
            processes, changes = manifest["captures"]["processes"], int(manifest["changes"])
            plain = bool(manifest.get("plain"))  # snapshots of earlier versions do not tell
            sound = _Sound(
                processes, plain, stamps, manifest["checksums"], manifest["seal"], changes, noted, pages.size(stamps)
            )
        self._remember(snapshot, sound)
        return sound.processes

    def _check_layer(self, snapshot: str, expected: int, *, seen_before: bool) -> None:
        upper = self.files(snapshot) / "upper"
        if seen_before and not os.access(upper, os.W_OK):
            return  # it has been read-only ever since
        if seal(upper)[1] != expected:
            raise SnapshotUnusable(f"snapshot {snapshot} is damaged: its files are not those that were copied")

    def distrust(self, snapshot: str) -> None:
        """Makes a snapshot and its ancestors, with which it shares disk blocks, unusable for this process."""
        while snapshot and snapshot not in self._distrusted:
            self._distrusted.add(snapshot)
            try:
                snapshot = self.manifest(snapshot)["above"]
            except InfrastructureError:
                return

    def _remember(self, snapshot: str, sound: _Sound) -> None:
        self._sound[snapshot] = sound
        while len(self._sound) > REMEMBERED:
            with contextlib.suppress(KeyError):  # another thread was quicker
                self._sound.popitem(last=False)

    def _verified(self, snapshot: str) -> _Sound:
        """Returns what is remembered of a snapshot that was verified; raises SnapshotUnusable if it was deleted."""
        entry = self._sound.get(snapshot)
        if entry is None:
            raise SnapshotUnusable(f"snapshot {snapshot} is missing")
        return entry

    def shell(self, snapshot: str) -> ShellImage | None:
        """Verifies a snapshot; returns the idle shell that it holds, None if it holds processes.

        Raises SnapshotUnusable if it is damaged.
        """
        if self.check(snapshot):
            return None
        with reading(snapshot):
            return ShellImage.from_bytes((self.path / snapshot / SHELL).read_bytes())

    def noted(self, snapshot: str) -> Noted:
        """Returns the verified `Noted` of a snapshot."""
        entry = self._sound.get(snapshot)
        if entry is None:
            self.check(snapshot)
            entry = self._sound[snapshot]
        return entry.noted

    def is_plain(self, snapshot: str) -> bool:
        """Whether a verified snapshot holds PID 1 and an idle shell, and brings back at most times of directories."""
        entry = self._sound.get(snapshot)
        return entry is not None and entry.plain and all(isinstance(one, Directories) for one in entry.noted.repairs)

    def image_checksums(self, snapshot: str) -> dict[str, Sequence[int]]:
        """Returns size and CRC-32 of CRIU's images of a verified snapshot, by name.

        Raises SnapshotUnusable if it is being deleted.
        """
        checksums = self._verified(snapshot).checksums
        return {name.removeprefix("criu/"): about for name, about in checksums.items() if name.startswith("criu/")}

    def images(self, snapshot: str) -> Path:
        """Returns the directory with CRIU's images of a snapshot."""
        return self.path / snapshot / "criu"

    def pages(self, snapshot: str) -> int:
        """Returns how many bytes of pages of memory a verified snapshot has; 0 if that is not remembered."""
        entry = self._sound.get(snapshot)
        return entry.pages if entry else 0

    def lent_by_both(self, one: str, other: str) -> bool:
        """Whether `lend` links the same pages of an earlier dump for two verified snapshots."""
        lent = [
            {entry.stamps[path][0] for path in pages.to_lend(entry.stamps).values()} if entry else set()
            for entry in map(self._sound.get, (one, other))
        ]
        return bool(lent[0]) and lent[0] == lent[1]

    def changes(self, snapshot: str) -> int:
        """Returns the number of calls that had changed a snapshot's sandbox; the snapshot was verified before."""
        entry = self._sound.get(snapshot)
        return entry.changes if entry else int(self.manifest(snapshot)["changes"])

    @contextlib.contextmanager
    def processes(self, snapshot: str) -> Iterator[int]:
        """Yields a descriptor of the directory with CRIU's images."""
        with reading(snapshot):
            images = os.open(self.path / snapshot / "criu", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with closing(images):
            yield images

    def is_there(self, snapshot: str) -> bool:
        """Whether a snapshot is complete; see `delete`."""
        return os.path.exists(f"{self.path}/{snapshot}/{_MANIFEST}")  # plain text: each fork asks

    def ids(self) -> list[str]:
        """Returns the ids of all snapshots."""
        return os.listdir(self.path)

    # -- removing ---------------------------------------------------------------------------------------------------

    def delete(self, snapshot: str) -> None:
        """Deletes a snapshot; moves it away first, so that a partly deleted one is no snapshot.

        It gets a name of this process, which may die in the midst while the one that took the snapshot lives.
        """
        directory = self.path / snapshot
        self._sound.pop(snapshot, None)
        self._distrusted.discard(snapshot)
        removed = self.temporary / f"{self._owner}.{snapshot}"
        try:
            os.rename(directory, removed)
        except OSError:  # it is gone, or the disk is so full that it takes no new names
            removed = directory
            if not directory.is_symlink():
                with contextlib.suppress(OSError):
                    os.unlink(directory / _MANIFEST)
        self._remove(removed)

    def sweep(self, is_left: Callable[[str], bool]) -> int:
        """Removes snapshots that are neither finished nor quite deleted, and returns their number.

        `is_left` returns whether the owner of one with a name is dead.
        """
        return sweep(self.temporary, is_left, self._remove)

    def _remove(self, directory: Path) -> None:
        self._storage.delete(directory / "files")
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(directory)


def _as_json(info: SnapshotInfo) -> dict[str, Any]:
    """Returns the part of a manifest that tells about the snapshot as a whole."""
    return {name: getattr(info, name) for name in SnapshotInfo.__slots__} | {"captures": asdict(info.captures)}


def _are_of_same(before: Mapping[str, Stamp], now: Mapping[str, Stamp]) -> bool:
    return before == now or all(is_of_same(stamp, now[name]) for name, stamp in before.items())


def size_of(upper: Path) -> int:
    """Returns the bytes on disk of the files in a writable layer."""
    with contextlib.suppress(FileNotFoundError), paths.directory(upper) as root:
        return sum(about.st_blocks * 512 for _, about in paths.scan(root, "/") if not stat.S_ISDIR(about.st_mode))
    return 0  # its sandbox has ended
