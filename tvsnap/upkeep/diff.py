"""The differences of two states: files, live processes, and the shell's variables, functions and so on.

Both states are observed in live sandboxes; nothing is recorded.
"""

from __future__ import annotations

import difflib
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tvsnap.model.errors import UsageError
from tvsnap.model.images import UID_BASE
from tvsnap.model.observations import FileChange, Process
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.looks.observing import KINDS
from tvsnap.sandboxes.protocol import Sandbox

if TYPE_CHECKING:
    from tvsnap.cache import Cache

PATCH_LIMIT = 1024 * 1024  # bytes of the largest file that is compared line by line
COMPARE_LIMIT = 16 * 1024 * 1024
"""Bytes of the largest file that is compared byte by byte; larger ones are compared by size and time."""

Kind = Literal["+", "-", "M"]


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A path that differs between both states."""

    path: str  # absolute
    kind: Kind  # `+` only in the second state, `-` only in the first, `M` in both
    before: FileChange | None  # before and after: its condition in each state; None if it does not exist there
    after: FileChange | None
    patch: str = ""  # the difference as a unified diff; empty if not requested, or no text

    @property
    def what(self) -> str:
        """The other changes of a path that exists in both states: its kind, its mode, its owner."""
        before, after = self.before, self.after
        if before is None or after is None:
            return ""
        if before.kind != after.kind:
            return f"{before.kind} became {after.kind}"
        words = []
        if before.mode != after.mode:
            words.append(f"mode {before.mode:04o} -> {after.mode:04o}")
        if (before.uid, before.gid) != (after.uid, after.gid):
            words.append(f"owner {before.uid}:{before.gid} -> {after.uid}:{after.gid}")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class ShellDifference:
    """An item of the shell's state (`var NAME`, `cwd`, ...) that differs; None if it is not set."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class StateDifference:
    """The differences of two states."""

    files: tuple[FileDifference, ...]  # by path
    ended: tuple[Process, ...]  # processes only in the first state
    started: tuple[Process, ...]  # processes only in the second
    shell: tuple[ShellDifference, ...]  # by name

    def __bool__(self) -> bool:
        return bool(self.files or self.ended or self.started or self.shell)


def compare_states(cache: Cache, a: str, b: str, *, patch: bool = False) -> StateDifference:
    """Compares two states of one image in temporary live sandboxes; with `patch`, text files line by line.

    `a` and `b` are hashes of states, or prefixes; see `Graph.resolve`.

    Raises:
        UsageError: they are of different images.
        NotFound: there is no such state.
        StateLost: a state has no snapshot any more, and cannot be rebuilt.
        InfrastructureError: a sandbox failed.
    """
    first, second = cache.graph.resolve(a), cache.graph.resolve(b)
    images = {root.hash: root.image_digest for root in cache.graph.roots()}
    if images[first.root] != images[second.root]:
        raise UsageError(f"{a} and {b} are states of different images")
    with cache.materialise(first.hash) as before, cache.materialise(second.hash) as after:
        return compare(before, after, patch=patch)


def compare(before: Sandbox, after: Sandbox, *, patch: bool = False) -> StateDifference:
    """Compares sandboxes of one image in two states; with `patch`, text files line by line."""
    old, new = before.processes(), after.processes()
    files = tuple(_files(before, after, patch=patch))
    return StateDifference(files, _without(old, new), _without(new, old), _shell(before, after))


def _shell(before: Sandbox, after: Sandbox) -> tuple[ShellDifference, ...]:
    old, new = before.shell_state(), after.shell_state()
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return tuple(ShellDifference(name, old.get(name), new.get(name)) for name in names)


def _without(processes: list[Process], others: list[Process]) -> tuple[Process, ...]:
    """Returns the processes that are not among the others, by their command lines."""
    unmatched = Counter(process.command for process in others)
    surplus = []
    for process in processes:
        unmatched[process.command] -= 1
        if unmatched[process.command] < 0:
            surplus.append(process)
    return tuple(surplus)


def _files(before: Sandbox, after: Sandbox, *, patch: bool) -> Iterator[FileDifference]:
    old, new = before.changes(), after.changes()
    for path in sorted(old.keys() | new.keys()):
        first, second = _at(before, old, path), _at(after, new, path)
        if first is None and second is None:
            continue
        kind: Kind = "+" if first is None else "-" if second is None else "M"
        if kind == "M" and first is not None and second is not None and _same(before, after, path, first, second):
            continue
        text = _patch(before, after, path, first, second) if patch else ""
        yield FileDifference(path, kind, first, second, text)


def _at(sandbox: Sandbox, changes: Mapping[str, FileChange], path: str) -> FileChange | None:
    """Returns the condition of a path in a sandbox; None if it does not exist."""
    change = changes.get(path)
    if change is None:
        return _in_image(sandbox, path)
    return None if change.kind == "deleted" else change


def _in_image(sandbox: Sandbox, path: str) -> FileChange | None:
    """Returns the condition of a path in the image, without following links; None if it does not exist."""
    entry = paths.topmost(sandbox.image.layers, path)
    kind = KINDS.get(stat.S_IFMT(entry[1].st_mode)) if entry else None
    if entry is None or kind is None:
        return None
    about = entry[1]
    owner = about.st_uid - UID_BASE, about.st_gid - UID_BASE
    return FileChange(kind, about.st_size, stat.S_IMODE(about.st_mode), *owner, about.st_mtime_ns, f"image {path}")


def _same(before: Sandbox, after: Sandbox, path: str, first: FileChange, second: FileChange) -> bool:
    """Returns whether a path is the same in both, except for its times."""
    if (first.kind, first.mode, first.uid, first.gid) != (second.kind, second.mode, second.uid, second.gid):
        return False
    if first.kind not in ("file", "symlink") or first.identity == second.identity:
        return True
    if first.kind == "symlink" or first.size != second.size:
        return False
    if first.size > COMPARE_LIMIT:
        return first.mtime_ns == second.mtime_ns
    return _read(before, path, COMPARE_LIMIT) == _read(after, path, COMPARE_LIMIT)


def _read(sandbox: Sandbox, path: str, limit: int) -> bytes | None:
    try:
        return sandbox.read_file(path, limit=limit)
    except OSError:
        return None


def _patch(before: Sandbox, after: Sandbox, path: str, first: FileChange | None, second: FileChange | None) -> str:
    """Returns the difference of two text files as a unified diff; empty if there is none to show."""
    sides = []
    for sandbox, change in ((before, first), (after, second)):
        if change is None:
            sides.append(b"")
            continue
        if change.kind != "file":
            return ""
        data = _read(sandbox, path, PATCH_LIMIT)
        if data is None or b"\0" in data:
            return ""
        sides.append(data)
    old, new = (side.decode("utf-8", "replace").splitlines(keepends=True) for side in sides)
    lines = difflib.unified_diff(
        old, new, "/dev/null" if first is None else f"a{path}", "/dev/null" if second is None else f"b{path}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
