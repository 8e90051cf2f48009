"""Access to a container's files, and handling of what a commit loses of them.

If the engine stores its layers on this machine, they are read there, at a cost that depends on the difference from the
image. Elsewhere a program of ours walks all files inside, which takes 50 ms for 20,000 of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from tvsnap.guest.protocol import DISTINCTION, INIT, Guest
from tvsnap.host.libc import closing
from tvsnap.images.rootfs import HOSTS
from tvsnap.model.errors import NotCheckpointable, SandboxDied
from tvsnap.model.limits import MIB
from tvsnap.model.observations import Service
from tvsnap.plugins.docker.containers import Layers
from tvsnap.plugins.docker.engine import Engine
from tvsnap.plugins.docker.images import DISTINCTION_LENGTH
from tvsnap.plugins.docker.inside import TIMEOUT, list_inside, run_tool
from tvsnap.plugins.docker.layers import relink, repair, unmask
from tvsnap.plugins.docker.notes import amend, note_links, read_links, restore_lent, script_inside
from tvsnap.plugins.docker.snapshot_store import TIMES, Unfinished
from tvsnap.sandboxes import file_times
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.looks import digest, observing
from tvsnap.sandboxes.looks.digest import Contents
from tvsnap.sandboxes.looks.observe import files_fingerprints
from tvsnap.sandboxes.sealing import DISK_ERRORS

_DIRECTORY_TIMES = "/run/tvsnap/times"
"""Inside: the initial times of directories, by which a digest recognises times that were set on purpose."""
_NOTE_TIMES = ["/bin/bash", "-c", f"{INIT} walk times / >{_DIRECTORY_TIMES}"]
MOUNTED = ("/dev", "/proc", "/sys")  # directories on which the runtime mounts what belongs to no image
_DIGESTED = 64 * MIB  # bytes up to which a file is identified by a digest of its contents, if it can be read directly
_REDIRECT = "trusted.overlay.redirect"


class Files(ABC):
    """The files of one container.

    Some files are lent: the engine mounts its own over those of an image, and a commit does not contain what is written
    there.
    """

    lent: ClassVar[tuple[str, ...]]  # those files

    @abstractmethod
    def lent_states(self) -> Mapping[str, str]:
        """Returns, for each lent file that exists, a value that changes when the file does."""

    def prepare(self, snapshot: Path | None) -> None:  # noqa: B027
        """Called before the container starts.

        `snapshot` is the directory of the snapshot that it is a fork of, if any.
        """

    def begin(self) -> None:  # noqa: B027
        """Called when the container runs, before any command."""

    @abstractmethod
    def bring_back(self, snapshot: Path) -> None:
        """Called after that in a fork, to restore what commits lose."""

    def outside(self) -> Path | None:
        """Returns the directory of PID 1 in this machine's /proc; None if it is on another machine."""
        return None

    @abstractmethod
    def fingerprints(self, service: Service) -> tuple[str, str]:
        """Returns hashes that change whenever a file does, except those in memory: of all other files, and a service's.

        If the two cannot be separated, the first is of all files.
        """

    @abstractmethod
    def identity(self, entry: observing.Entry) -> str:
        """Identifies a file's contents: equal for two files only if they are; see `FileChange`."""

    @abstractmethod
    def all(self) -> Iterable[observing.Entry]:
        """Returns all files of the container, including those of its image."""

    def differing(self, image: observing.ImageTree, contents: Contents) -> AbstractContextManager[digest.Files]:
        """A block with the files that may differ from the image's, for a digest; without those in memory.

        Args:
            image: the files of the image.
            contents: known contents of files.

        Raises:
            Incomparable: they cannot be read.
        """
        raise digest.Incomparable("the files lie on the machine of the engine")

    def written(self) -> Iterable[observing.Entry]:
        """Returns the files of the container's writable layer; none if they are on another machine."""
        return ()

    def set_times(self, times: Mapping[str, int]) -> None:  # noqa: B027
        """See `Sandbox.set_file_times`; nothing is done if the files are on another machine."""

    def distinguish(self, unfinished: Unfinished) -> None:  # noqa: B027
        """Called before the commit, so that no layer that is repaired afterwards belongs to another snapshot, too.

        Raises:
            NotCheckpointable: it cannot be done.
            OSError: the disk is full or fails.
        """

    @abstractmethod
    def mend(self, unfinished: Unfinished) -> None:
        """Repairs what the commit of these files has lost: in the engine's image, or in notes for its forks.

        Raises:
            NotCheckpointable: it cannot be restored.
        """


class OuterFiles(Files):
    """Files that are read in the engine's own storage."""

    lent: ClassVar[tuple[str, ...]] = ("/etc/hostname",)

    def __init__(
        self,
        engine: Engine,
        layers: Layers,
        root: Callable[[], Path],
        guest: Callable[[], Guest],
        image: Callable[[], tuple[Path, ...]],
    ) -> None:
        """`root` returns the container's root once it runs; `image` the image's layers in the engine, topmost first."""
        self._engine = engine
        self._layers = layers
        self._guest = guest
        self._root = cache(root)
        self._image = cache(image)
        self._image_tree = cache(lambda: observing.ImageTree(*self._image()))
        self._between = cache(self._entries_between)
        self._tree = observing.ImageTree(*layers.lower)
        self._distinction: frozenset[str] = frozenset()  # the stamp of the file that `distinguish` wrote

    def prepare(self, snapshot: Path | None) -> None:
        layers = self._layers
        unmask(layers.init, layers.upper, layers.lower)
        if snapshot is not None:
            relink(read_links(snapshot), layers.upper, layers.lower)

    def bring_back(self, snapshot: Path) -> None:
        restore_lent(self._guest(), snapshot)

    def lent_states(self) -> Mapping[str, str]:
        states = {}
        for path in self.lent:
            with opened(self._root(), os.path.dirname(path)) as directory:
                try:
                    status = os.stat(os.path.basename(path), dir_fd=directory, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                states[path] = f"{status.st_mode} {status.st_uid} {status.st_gid} {status.st_size} {status.st_ctime_ns}"
        return states

    def outside(self) -> Path | None:
        return self._root().parent

    def fingerprints(self, service: Service) -> tuple[str, str]:
        files, data = files_fingerprints(
            self._layers.upper, self._tree, service, accessed=False, known=self._distinction
        )
        return files + str(self.lent_states()), data

    def identity(self, entry: observing.Entry) -> str:
        with contextlib.suppress(OSError), paths.directory(self._root()) as root:
            return paths.contents(root, entry.path, _DIGESTED) or _stamp(entry)
        return _stamp(entry)

    def all(self) -> Iterable[observing.Entry]:
        return observing.walk(self._root())

    @contextlib.contextmanager
    def differing(self, image: observing.ImageTree, contents: Contents) -> Iterator[digest.Files]:
        upper = list(observing.walk(self._layers.upper))
        if any(map(self._is_elsewhere_below, upper)):
            raise digest.Incomparable("a directory was renamed as a whole")
        there = _merged(upper, self._between())
        deleted = digest.gone(there.values(), self._image_tree())
        entries = [entry for entry in there.values() if not _is_mounted(entry.path) and entry.path not in self.lent]
        with opened(self._root(), "/etc") as directory:  # what is mounted, not what that covers
            etc = observing.walk(Path(f"/proc/self/fd/{directory}"))
            entries += [replace(one, path=f"/etc{one.path}") for one in etc if f"/etc{one.path}" in self.lent]
        gone = [path for path in deleted if not _is_mounted(path)]
        with paths.directory(self._root()) as root:
            yield digest.Files(entries, lambda: gone, root, 0, image, contents)

    def _is_elsewhere_below(self, entry: observing.Entry) -> bool:
        """Returns whether a directory of the writable layer stands for one with another path in the layers below.

        An overlay renames a directory in that way where it is mounted with `redirect_dir` (the kernel's
        filesystems/overlayfs.rst).
        """
        if not stat.S_ISDIR(entry.mode):
            return False
        return _REDIRECT in os.listxattr(f"{self._layers.upper}{entry.path}", follow_symlinks=False)

    def _entries_between(self) -> Mapping[str, observing.Entry]:
        """Returns what the layers between the image's and the writable one come to, by path."""
        image, lower = self._image(), self._layers.lower
        alike = lower[-len(image) :] == image
        entries: Mapping[str, observing.Entry] = {}
        for layer in lower[: -len(image)] if alike else lower:
            entries = _merged(entries.values(), {entry.path: entry for entry in observing.walk(layer)})
        if not alike:  # all files are in one layer, which hides the image
            entries = {**entries, "/": replace(entries["/"], opaque=True)}
        return entries

    def written(self) -> Iterable[observing.Entry]:
        return observing.walk(self._layers.upper)

    def set_times(self, times: Mapping[str, int]) -> None:
        with paths.directory(self._root()) as root:
            file_times.set_again(root, times)

    def distinguish(self, unfinished: Unfinished) -> None:
        """Writes contents that no other snapshot has into a file of ours.

        An engine identifies layers by a digest of their archives, in which times are whole seconds, and which lack
        sockets and attributes: two snapshots that differ only in these would share one layer, repaired for the later of
        them.
        """
        folder, name = os.path.split(DISTINCTION)
        digits = hashlib.sha256(unfinished.id.encode()).hexdigest()[: 2 * DISTINCTION_LENGTH]
        try:
            with opened(self._root(), folder) as directory:
                flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with open(os.open(name, flags, dir_fd=directory), "w") as file:
                    before = os.fstat(file.fileno())
                    file.write(digits)
                    file.flush()
                    os.utime(file.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))
            self._distinction = frozenset([self._stamp_above(DISTINCTION)])
        except OSError as error:
            if error.errno in DISK_ERRORS:
                raise  # a fault of the machine, which says nothing about the state
            raise NotCheckpointable(
                f"/{DISTINCTION}, a file of tvsnap's, cannot be written: {error.strerror}"
            ) from None

    def _stamp_above(self, path: str) -> str:
        """Returns the stamp of a file in the writable layer, as a walk through that layer computes it."""
        with paths.directory(self._layers.upper) as root, closing(paths.open_beneath(root, path)) as file:
            return observing.stamp(os.fstat(file))

    def mend(self, unfinished: Unfinished) -> None:
        about = self._engine.image(unfinished.reference)
        entries = list(observing.walk(self._layers.upper))
        repair(entries, self._layers.upper, Path(about["GraphDriver"]["Data"]["UpperDir"]))
        note_links(entries, unfinished.directory)


@dataclass(frozen=True)
class InnerFiles(Files):
    """Files that are read from inside."""

    lent: ClassVar[tuple[str, ...]] = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/mtab", "/.dockerenv")

    guest: Callable[[], Guest]
    created: int  # nanoseconds since the epoch; no file of the container's own was changed before
    hostname: str

    def bring_back(self, snapshot: Path) -> None:
        guest = self.guest()
        restore_lent(guest, snapshot)
        for first, *others in read_links(snapshot):
            script_inside(guest, 'for other in "${@:2}"; do ln -f -- "$1" "$other" || exit; done', first, *others)
        amend(guest, snapshot)

    def lent_states(self) -> Mapping[str, str]:
        return {entry.path: str(entry) for entry in list_inside(self.guest(), "/") if entry.path in self.lent}

    def begin(self) -> None:
        self.guest().execute(_NOTE_TIMES, timeout=TIMEOUT, limit=4096, user="root")
        for path, text in (("/etc/hosts", HOSTS.format(hostname=self.hostname)), ("/etc/resolv.conf", "")):
            script_inside(self.guest(), 'cat >"$1" && chmod 644 "$1"', path, text=text.encode())

    def fingerprints(self, service: Service) -> tuple[str, str]:
        return run_tool(self.guest(), "walk", "digest", "--times", _DIRECTORY_TIMES, "/").decode(), ""

    def identity(self, entry: observing.Entry) -> str:
        if stat.S_ISREG(entry.mode) and entry.size <= observing.SMALL_FILE:
            command = [INIT, "get", entry.path, str(observing.SMALL_FILE)]
            outcome = self.guest().execute(command, timeout=TIMEOUT, limit=2 * observing.SMALL_FILE, user="root")
            if outcome.exit_code == 0:
                return hashlib.sha256(outcome.output).hexdigest()
        return _stamp(entry)

    def all(self) -> Iterable[observing.Entry]:
        return list_inside(self.guest(), "/")

    def mend(self, unfinished: Unfinished) -> None:
        notes, entries = bytearray(), list(list_inside(self.guest(), "/", str(self.created)))
        for entry in entries:
            if entry.path in (*self.lent, *MOUNTED):
                continue
            if stat.S_ISSOCK(entry.mode):
                raise NotCheckpointable(f"{entry.path} is a socket, which no commit of this engine holds")
            if entry.has_attributes:
                raise NotCheckpointable(f"{entry.path} has extended attributes, which no commit of this engine holds")
            if entry.mtime_ns % 10**9:
                notes += f"{entry.path}\0{entry.mtime_ns}\0".encode("utf-8", "surrogateescape")
        if notes:
            (unfinished.directory / TIMES).write_bytes(notes)
        note_links(entries, unfinished.directory)


@contextlib.contextmanager
def opened(root: Path, path: str) -> Iterator[int]:
    """Opens a directory of a container for the block; no link in its path can lead out of the container."""
    try:
        top = paths.directory(root)
    except OSError as error:
        raise SandboxDied(f"the sandbox is gone: its root cannot be opened ({error.strerror})") from None
    with top as opened, closing(paths.open_in_root(opened, path)) as directory:
        yield directory


def _is_mounted(path: str) -> bool:
    """Returns whether the runtime has mounted something over a path that no image holds."""
    return f"{path}/".startswith(tuple(f"{mounted}/" for mounted in MOUNTED))


def _merged(upper: Iterable[observing.Entry], lower: Mapping[str, observing.Entry]) -> dict[str, observing.Entry]:
    """Returns the entries of two layers as one, by path."""
    entries = {entry.path: entry for entry in upper}
    visible = [entry for entry in lower.values() if not _hidden(entry.path, entries)]
    for entry in visible:
        above = entries.setdefault(entry.path, entry)
        if above is not entry and _covers(entry) and not _covers(above):
            entries[entry.path] = replace(above, opaque=True)  # what is below the lower one stays hidden
    return entries


def _hidden(path: str, layer: Mapping[str, observing.Entry]) -> bool:
    """Returns whether a layer hides a path of those below because of what it has in the place of a directory above."""
    while path != "/":
        path = os.path.dirname(path)
        if path in layer and _covers(layer[path]):
            return True
    return False


def _covers(entry: observing.Entry) -> bool:
    return entry.opaque or not stat.S_ISDIR(entry.mode)


def _stamp(entry: observing.Entry) -> str:
    """Identifies contents by what stays the same in a fork: a layer gives files other inodes and times of change."""
    return f"{entry.size}:{entry.mtime_ns}"
