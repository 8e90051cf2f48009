"""Saves inotify watches by path when a snapshot is taken, and adds them again in forks.

The kernel shows the inode of a watched file, and the backend finds a path to it. An inotify instance of our own checks
that the path leads to this inode, and the watching instance itself confirms that it watches the file. CRIU dumps an
instance without its watches (native/criu/watches.c), and restores it empty.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import groupby, islice
from typing import Any

from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.libc import closing
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.kernel.borrowing import borrowed, compare
from tvsnap.sandboxes.kernel.procfs import describe, head, inner_pid, insiders
from tvsnap.sandboxes.repairs import inotify
from tvsnap.sandboxes.repairs.inotify import Mark
from tvsnap.sandboxes.repairs.noted_file import NotedFile
from tvsnap.sandboxes.repairs.repair import Find, Fork, Frozen

_MOST = 10_000
_MOST_DESCRIPTORS = 1000
"""Watches of a sandbox, and descriptors of instances; with more a state has no snapshot."""
_USUAL_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch: its descriptor, its mask (see `inotify.Mark`), and a path inside the sandbox without symbolic links."""

    number: int
    mask: int
    path: str


@dataclass(frozen=True, slots=True)
class Instance:
    """An inotify instance.

    Attributes:
        holder: a process that has it open, by its id in the sandbox, and the descriptor.
        watches: oldest first.
        next_number: the number of its next watch.
    """

    holder: tuple[int, int]
    watches: tuple[Watch, ...]
    next_number: int

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> Instance:
        """Raises KeyError, TypeError or ValueError if `about` is no instance."""
        watches = tuple(Watch(**one) for one in about["watches"])
        return cls(**{**about, "holder": tuple(about["holder"]), "watches": watches})


FILE = NotedFile("tvsnap-watches.json", Instance.from_json)
"""The file of the results of `note`, beside the images of a snapshot."""


@dataclass(frozen=True, slots=True)
class _Handle:
    """An instance that a process of a sandbox has open, and its watches, newest first."""

    pid: int
    number: int
    marks: tuple[Mark, ...]

    def __str__(self) -> str:
        return f"{describe(self.pid)} watches files with inotify (descriptor {self.number})"


def look_for(init: int, pids: Iterable[int], find: Find) -> None:
    """Finds watched files before the processes are frozen, so that `note`, which runs then, has less to search.

    Raises NotCheckpointable if a fork could not watch something.
    """
    with contextlib.suppress(OSError):  # a process has ended
        _find_all(init, _instances(pids), find)


def note(init: int, pids: Iterable[int], find: Find) -> list[Instance]:
    """Returns the inotify instances of a sandbox, in which no process runs meanwhile.

    Raises NotCheckpointable if a fork could not have the same ones, and AttemptFailed if they cannot be inspected, or
    if events wait to be read.
    """
    try:
        instances = _instances(pids)
        names = _find_all(init, instances, find)
        with paths.directory(f"/proc/{init}/root") as root, inotify.own_instance() as own:
            return [_note(handle, names, root, own) for handle in instances]
    except OSError as error:
        raise AttemptFailed(f"watches of inotify could not be looked at: {error.strerror}", machine=True) from None


def bring_back(init: int, pids: Iterable[int], instances: Iterable[Instance]) -> dict[int, str]:
    """Adds the watches to a fork's restored, empty instances; returns the watched paths by inode.

    `pids` may include other sandboxes' processes; none of the fork's runs yet. Raises AttemptFailed if that fails.
    """
    inside = insiders(init, pids)
    names: dict[int, str] = {}
    try:
        with paths.directory(f"/proc/{init}/root") as root:
            for one in instances:
                pid, number = one.holder
                with borrowed(inside[pid], number) as instance:
                    names |= _watch_again(instance, one, root)
    except (OSError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else "one of the processes is not there"
        raise AttemptFailed(f"watches of inotify could not be brought back in a fork: {reason}") from None
    return names


@dataclass(frozen=True, slots=True)
class Watches:
    """See `Repair`: whether there were inotify instances, which are in a file beside CRIU's."""

    present: bool = False

    @classmethod
    def note(cls, frozen: Frozen) -> Watches | None:
        """See `Repair.note`."""
        if frozen.find is None:
            return None
        instances = note(frozen.init, frozen.pids, frozen.find)
        return cls(True) if FILE.write(instances, frozen.images) else None

    @classmethod
    def from_json(cls, manifest: Mapping[str, Any]) -> Watches | None:
        """See `Repair.from_json`."""
        return cls(True) if manifest.get("watches") else None

    def to_json(self) -> dict[str, Any]:
        """See `Repair.to_json`."""
        return {"watches": self.present}

    def bring_back(self, fork: Fork) -> None:
        """See `Repair.bring_back`."""
        fork.watched.update(bring_back(fork.init, fork.pids(), FILE.read(fork.images)))


def _watch_again(instance: int, noted: Instance, root: int) -> dict[int, str]:
    for one in noted.watches:
        with closing(paths.open_beneath(root, one.path)) as file:
            inotify.watch_anew(instance, file, one.number, one.mask)
    inotify.set_next(instance, noted.next_number)
    marks = list(inotify.marks_of(instance))
    wanted = [(one.number, one.mask) for one in reversed(noted.watches)]
    if [(mark.number, mark.mask) for mark in marks] != wanted or inotify.unread(instance):
        raise OSError(errno.EINVAL, "they are others than they were")
    return {mark.inode: one.path for mark, one in zip(marks, reversed(noted.watches), strict=True)}


def _instances(pids: Iterable[int]) -> list[_Handle]:
    """Returns the distinct instances of some processes."""
    descriptors = list(islice(_descriptors(pids), _MOST_DESCRIPTORS + 1))
    if len(descriptors) > _MOST_DESCRIPTORS:
        raise NotCheckpointable(f"a process has, with others, more than {_MOST_DESCRIPTORS} descriptors of inotify")
    by_file = cmp_to_key(compare)
    marks_left, handles = _MOST, []
    for _, same in groupby(sorted(descriptors, key=by_file), by_file):
        pid, number = next(same)
        marks = tuple(islice(inotify.marks(f"/proc/{pid}/fdinfo/{number}"), marks_left + 1))
        marks_left -= len(marks)
        if marks_left < 0:
            raise NotCheckpointable(f"a process watches, with others, more than {_MOST} files with inotify")
        handles.append(_Handle(pid, number, marks))
    return handles


def _descriptors(pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):  # it has ended
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile, or a descriptor of CRIU's
                    if os.readlink(f"/proc/{pid}/fd/{name}") == inotify.LINK:
                        yield pid, int(name)


def _find_all(init: int, instances: Iterable[_Handle], find: Find) -> Mapping[int, str]:
    """Returns the paths of the watched files, by inode.

    Raises NotCheckpointable if a watched file has no path, or cannot be identified, and OSError if a process has ended.
    """
    watching = [handle for handle in instances if handle.marks]
    if not watching:
        return {}
    about = os.stat(f"/proc/{init}/root/.")
    device = os.major(about.st_dev) << 20 | os.minor(about.st_dev)
    for handle in watching:
        if any(mark.device != device for mark in handle.marks):
            raise NotCheckpointable(f"{handle}: one is none of its root, such as those in /proc")
        if len({mark.inode for mark in handle.marks}) < len(handle.marks):
            raise NotCheckpointable(f"{handle}: several have the same number")
        if not inotify.tells_all():
            raise NotCheckpointable(f"{handle}: this kernel does not tell how (Linux 5.19 does)")
    names = find({mark.inode for handle in watching for mark in handle.marks}, {handle.pid for handle in watching})
    for handle in watching:
        if not all(mark.inode in names for mark in handle.marks):
            raise NotCheckpointable(f"{handle}: one was deleted, or no name of it was found")
    return names


def _note(handle: _Handle, names: Mapping[int, str], root: int, own: int) -> Instance:
    """Returns an instance in the form in which it is saved, after verifying that the paths lead to the watched files.

    `names` has paths by inode, `root` is a descriptor of the sandbox's root, `own` an inotify instance of our own.
    """
    flags = int(head(f"/proc/{handle.pid}/fdinfo/{handle.number}").partition("flags:")[2].split()[0], 8)
    if flags & ~_USUAL_FLAGS:
        raise NotCheckpointable(f"{handle}: CRIU does not bring back its flags ({flags:o})")
    with borrowed(handle.pid, handle.number) as instance:
        if inotify.unread(instance):
            raise AttemptFailed(f"{handle}: events wait to be read", kind="events of inotify to read")
        numbers: dict[int, int] = {}
        for mark in handle.marks:
            with closing(paths.open_beneath(root, names[mark.inode])) as file:
                numbers[mark.number] = inotify.watch(own, file)
                if not inotify.watches(instance, file):
                    raise _other(handle)
        inodes = {mark.number: mark.inode for mark in inotify.marks_of(own)}
        if any(inodes[numbers[mark.number]] != mark.inode for mark in handle.marks):
            raise _other(handle)
        following = _next_number(handle, instance)
        if tuple(inotify.marks_of(instance)) != handle.marks:
            raise AttemptFailed(f"{handle}: others than a moment ago", kind="watches of inotify change")
    watches = tuple(Watch(mark.number, mark.mask, names[mark.inode]) for mark in reversed(handle.marks))
    return Instance((inner_pid(handle.pid), handle.number), watches, following)


def _next_number(handle: _Handle, instance: int) -> int:
    try:
        return inotify.next_number(instance)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise NotCheckpointable(f"{handle}: its user may watch no more, as it must for a moment") from None


def _other(handle: _Handle) -> NotCheckpointable:
    return NotCheckpointable(f"{handle}: one is no longer what its name leads to")
