"""Copies files and folders into a sandbox and out of it by many small requests to its PID 1; see native/init/trees.c.

The sandbox may be hostile: only the requested part of an answer is kept, and names are checked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tvsnap.host.trees import TreeItem, check_name
from tvsnap.model.arguments import LONGEST, check_seconds
from tvsnap.model.errors import SandboxDied
from tvsnap.model.limits import MIB
from tvsnap.model.observations import FolderEntry, FolderListing, Outcome

BATCH = 2 * MIB
"""Approximate bytes of contents in a request: PID 1 keeps them in memory, which counts as the sandbox's."""
_MOST_RECORDS = 4000
"""Records in a request."""
_MOST_LISTED = 64 * MIB
"""Bytes of a folder's listing: some 500,000 names."""
_LONGEST_TARGET = 4096
MOST_ENTRIES = 10_000
"""Entries of a folder that are listed by default."""
_LISTING = 16 * MIB
"""Bytes of the listing of one folder: PID 1 stops there (walk.c)."""
_KINDS: dict[int, Any] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}
FIXED_TIME = 946684800
"""The first second of the year 2000: the modification time of new files, as the sandbox sees them."""
_TIMES = 20 * 365 * 86400
_FACTS = re.compile(rb"[0-7]{1,7}( \d{1,10}){2} \d{1,19} -?\d{1,19}")


class RunTool(Protocol):
    """Runs one of PID 1's own programs with a standard input."""

    def __call__(self, *arguments: str, stdin: bytes, limit: int, timeout: float) -> Outcome: ...


@dataclass(slots=True)
class Deadline:
    """The time at which a transfer of many requests must have ended, by time.monotonic()."""

    ends: float

    @classmethod
    def after(cls, timeout: float | None) -> Deadline:
        """Returns the deadline in `timeout` seconds; None for never. Raises UsageError if it is no such number."""
        return cls(time.monotonic() + (LONGEST if timeout is None else check_seconds(timeout, least=0.0)))

    def left(self) -> float:
        """Returns the seconds left; raises TimeoutError if there are none."""
        remaining = self.ends - time.monotonic()
        if remaining <= 0:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return remaining


def put(run: RunTool, items: Iterable[TreeItem], path: str, timeout: float | None) -> None:
    """Creates items in a sandbox, the topmost at `path`; a folder is merged with an existing folder.

    Raises OSError with the errno inside, and the path; items that were created before stay.
    """
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    writer = _Writer(run, Deadline.after(timeout))
    top = path.rstrip("/") or "/"
    above = posixpath.dirname(top)
    ways = [above]
    while (above := posixpath.dirname(above)) not in ways:
        ways.append(above)
    for way in reversed(ways):
        if way not in ("", "/"):
            writer.directory("p", way, TreeItem("", "directory", 0o755))
    for item in items:
        writer.add(f"{top}/{item.name}" if item.name else top, item, top)
    writer.finish()


class _Writer:
    """Collects records into requests."""

    def __init__(self, run: RunTool, deadline: Deadline) -> None:
        self._run = run
        self._deadline = deadline
        self._records: list[bytes] = []
        self._size = 0
        self._listeners: list[Callable[[bool], None]] = []  # for each record: is called with whether it is new
        self._last: list[bytes] = []  # records that set directories' modes, after everything in them was created

    def directory(self, kind: str, path: str, item: TreeItem) -> None:
        def made(new: bool) -> None:
            if new:
                self._last.append(_record("m", path, item, FIXED_TIME))

        self._add(_record(kind, path, replace(item, mode=-1)), made)

    def add(self, path: str, item: TreeItem, top: str) -> None:
        if item.kind == "directory":
            self.directory("d", path, item)
        elif item.kind == "symlink":
            self._add(_record("l", path, item, FIXED_TIME, data=os.fsencode(item.target)))
        elif item.kind == "hardlink":
            self._add(_record("h", path, item, data=os.fsencode(f"{top}/{item.target}")))
        elif item.kind == "file":
            self._file(path, item)

    def finish(self) -> None:
        self._send()
        for record in reversed(self._last):
            self._add(record)
        self._send()

    def _file(self, path: str, item: TreeItem) -> None:
        hasher, offset, is_new = hashlib.sha256(), 0, True
        rest = b""

        def begun(new: bool) -> None:
            nonlocal is_new
            is_new = new

        for piece in (big[at : at + BATCH] for big in item.content for at in range(0, len(big), BATCH)):
            hasher.update(piece)
            rest += piece
            if len(rest) >= BATCH:  # there may be more; the mode is set at the end
                self._add(_record("f", path, replace(item, mode=-1), -1, offset, rest), begun if not offset else None)
                offset, rest = offset + len(rest), b""
        seconds = FIXED_TIME + int.from_bytes(hasher.digest()[:6], "big") % _TIMES
        if not offset:
            self._add(_record("f", path, item, seconds, 0, rest))
            return
        if rest:
            self._add(_record("f", path, replace(item, mode=-1), -1, offset, rest))
        self._send()
        self._add(_record("m", path, item, seconds if is_new else -1))

    def _add(self, record: bytes, listener: Callable[[bool], None] | None = None) -> None:
        self._records.append(record)
        self._listeners.append(listener or (lambda _: None))
        self._size += len(record)
        if self._size >= BATCH or len(self._records) >= _MOST_RECORDS:
            self._send()

    def _send(self) -> None:
        if not self._records:
            return
        listeners, self._listeners = self._listeners, []
        data, self._records, self._size = b"".join(self._records), [], 0
        most = len(listeners) + _LONGEST_TARGET + 1
        outcome = self._run("unpack", stdin=data, limit=2 * most, timeout=self._deadline.left())
        flags, _, path = outcome.output.partition(b"\n")
        _raise_error(outcome, os.fsdecode(path))
        if len(flags) != len(listeners) or flags.strip(b"01"):
            raise SandboxDied(f"the sandbox answers nonsense: {flags[:40]!r}")
        for one, flag in zip(listeners, flags, strict=True):
            one(flag == ord("1"))


def _record(kind: str, path: str, item: TreeItem, seconds: int = -1, offset: int = 0, data: bytes = b"") -> bytes:
    numbers = (item.mode, item.uid, item.gid, seconds, offset, len(data))
    return b"\0".join([kind.encode(), os.fsencode(path), *(b"%d" % number for number in numbers), data])


def read(run: RunTool, path: str, *, limit: int, timeout: float | None) -> Iterator[TreeItem]:
    """Yields the items at a path in a sandbox, without following links below it.

    Raises OSError with the errno inside, EFBIG for more than `limit` bytes or too many names, and ESTALE if a file
    became shorter while it was read.
    """
    deadline = Deadline.after(timeout)
    outcome = run("look", path, stdin=b"", limit=2 * _LONGEST_TARGET, timeout=deadline.left())
    _raise_error(outcome, path)
    facts, _, place = outcome.output.partition(b"\0")
    top = _Entry.of(facts, "")
    real = os.fsdecode(place)
    if top.item.kind == "file":
        if top.item.size > limit:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        reader = _Reader(run, deadline, limit)
        yield (
            reader.read_without_size(replace(top, file=real))
            if not top.item.size
            else next(reader.read([replace(top, file=real)]))
        )
    elif top.item.kind == "directory":
        listed = run("walk", "list", real, stdin=b"", limit=_MOST_LISTED, timeout=deadline.left())
        if listed.truncated:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        _raise_error(listed, path, errno.EIO)
        yield from _Reader(run, deadline, limit).read(_listed(listed.output, real))
    else:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)


def list_folder(run: RunTool, path: str, *, limit: int, timeout: float) -> FolderListing:
    """Returns the entries of a folder of a sandbox, at most `limit`.

    Raises OSError with the errno inside.
    """
    outcome = run("walk", "folder", path, str(limit), stdin=b"", limit=2 * (_LISTING + 2), timeout=timeout)
    _raise_error(outcome, path)
    *fields, end = outcome.output.split(b"\0")
    if len(fields) % 3 != 1 or fields.pop() or end not in (b"0", b"1") or len(fields) > 3 * limit:
        raise SandboxDied(f"the sandbox lists a folder that makes no sense: it ends with {outcome.output[-40:]!r}")
    entries = {}
    for name, facts, target in zip(fields[0::3], fields[1::3], fields[2::3], strict=True):
        words = facts.split() if _FACTS.fullmatch(facts) else [b"0"]
        mode, numbers = int(words[0], 8), [int(word) for word in words[1:]]
        kind = _KINDS.get(stat.S_IFMT(mode))
        bad_name = name in (b"", b".", b"..") or b"/" in name or name in entries
        if bad_name or kind is None or (target and kind != "symlink") or max(map(abs, numbers)) >= 1 << 63:
            raise SandboxDied(f"the sandbox answers nonsense: {name[:40]!r} {facts[:40]!r} in a folder")
        link = os.fsdecode(target) if target else None
        uid, gid, size, mtime = numbers
        entries[name] = FolderEntry(os.fsdecode(name), kind, stat.S_IMODE(mode), uid, gid, size, mtime, link)
    return FolderListing(tuple(one for _, one in sorted(entries.items())), end == b"1")


@dataclass(frozen=True, slots=True)
class _Entry:
    """The facts about a path before it is read.

    Attributes:
        item: the item without its content.
        identity: equal for names of the same file.
        file: its path in the sandbox.
    """

    item: TreeItem
    identity: tuple[bytes, ...] = ()
    file: str = ""

    @classmethod
    def of(cls, facts: bytes, name: str) -> _Entry:
        """Parses the beginning of a record: mode, owner, group, size, ..."""
        try:
            mode, uid, gid, size = (
                int(word, base) for word, base in zip(facts.split()[:4], (8, 10, 10, 10), strict=True)
            )
        except ValueError:
            raise SandboxDied(f"the sandbox answers nonsense: {facts[:40]!r}") from None
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
        kind = kinds.get(stat.S_IFMT(mode), "other")
        bits = stat.S_IMODE(mode)
        if size < 0 or uid < 0 or gid < 0:
            raise SandboxDied(f"the sandbox answers nonsense: {facts[:40]!r}")
        item = TreeItem(name, kind, bits, uid, gid, size if kind == "file" else 0)  # type: ignore[arg-type]
        return cls(item, tuple(facts.split()))


def _listed(records: bytes, top: str) -> list[_Entry]:
    """Parses the output of `walk list` for a folder; sorted by name, each folder before its contents."""
    fields = records.split(b"\0")
    entries = []
    beginning = top.rstrip("/") + "/"
    for place, facts in zip(fields[0::2], fields[1::2], strict=False):
        path = os.fsdecode(place)
        name = "" if path == top else path[len(beginning) :]
        if name and not path.startswith(beginning):
            raise SandboxDied(f"the sandbox answers nonsense: {place[:40]!r} where {top[:40]!r} was asked for")
        if name:
            check_name(name)
        entries.append(replace(_Entry.of(facts, name), file=path))
    entries.sort(key=lambda one: [os.fsencode(part) for part in one.item.name.split("/")] if one.item.name else [])
    if not entries or entries[0].item.name or len({one.item.name for one in entries}) != len(entries):
        raise SandboxDied("the sandbox lists a folder that makes no sense")
    return entries


class _Reader:
    """Reads the contents of files: many small ones in one request, and a large one in several."""

    def __init__(self, run: RunTool, deadline: Deadline, limit: int) -> None:
        self._run = run
        self._deadline = deadline
        self._left = limit

    def read(self, entries: list[_Entry]) -> Iterator[TreeItem]:
        names: dict[tuple[bytes, ...], str] = {}  # the first name of each file, by identity
        batch: list[_Entry] = []
        size = 0
        for one in entries:
            item = one.item
            if item.kind == "file" and item.name and names.setdefault(one.identity, item.name) != item.name:
                one = replace(one, item=replace(item, kind="hardlink", size=0, target=names[one.identity]))
            elif item.kind == "file":
                self._left -= item.size
                if self._left < 0:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), one.file)
            if one.item.kind == "file" and item.size > BATCH:
                yield from self._read_batch(batch)
                batch, size = [], 0
                yield replace(item, content=self._pieces(one))
                continue
            batch.append(one)
            size += one.item.size + _LONGEST_TARGET // 16
            if size >= BATCH or len(batch) >= _MOST_RECORDS:
                yield from self._read_batch(batch)
                batch, size = [], 0
        yield from self._read_batch(batch)

    def read_without_size(self, one: _Entry) -> TreeItem:
        """Returns a file of size 0 with its content: files of /proc have some nevertheless."""
        pieces: list[bytes] = []
        while True:
            offset = sum(map(len, pieces))
            (piece,) = self._ask([(one.file, offset, BATCH)])
            if not piece:
                return replace(one.item, size=offset, content=tuple(pieces))
            if offset + len(piece) > self._left:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), one.file)
            pieces.append(piece)

    def _read_batch(self, batch: list[_Entry]) -> Iterator[TreeItem]:
        contents = [one for one in batch if one.item.kind in ("file", "symlink")]
        wanted = [(one.file, 0, _LONGEST_TARGET if one.item.kind == "symlink" else one.item.size) for one in contents]
        answers = iter(self._ask(wanted))
        for one in batch:
            item = one.item
            if item.kind == "symlink":
                yield replace(item, target=os.fsdecode(next(answers)))
            elif item.kind == "file":
                data = next(answers)
                if len(data) != item.size:
                    raise OSError(errno.ESTALE, "it was changed while it was being read", one.file)
                yield replace(item, content=(data,) if data else ())
            else:
                yield item

    def _pieces(self, one: _Entry) -> Iterator[bytes]:
        offset = 0
        while offset < one.item.size:
            wanted = min(BATCH, one.item.size - offset)
            (piece,) = self._ask([(one.file, offset, wanted)])
            if len(piece) != wanted:
                raise OSError(errno.ESTALE, "it was changed while it was being read", one.file)
            offset += wanted
            yield piece

    def _ask(self, wanted: list[tuple[str, int, int]]) -> list[bytes]:
        """Returns the contents of parts of files: (path, offset, length)."""
        if not wanted:
            return []
        request = b"".join(b"%s\0%d\0%d\0" % (os.fsencode(path), offset, length) for path, offset, length in wanted)
        most = sum(length + 40 for _, _, length in wanted)
        outcome = self._run("pack", stdin=request, limit=2 * most, timeout=self._deadline.left())
        _raise_error(outcome, wanted[0][0])
        data, at, parts = outcome.output, 0, []
        for path, _, length in wanted:
            end = data.find(b"\0", at)
            words = data[at : max(end, at)].split()
            if end < 0 or len(words) != 2 or not all(word.isdigit() and len(word) < 12 for word in words):
                raise SandboxDied(f"the sandbox answers nonsense: {data[at : at + 40]!r}")
            error, size = map(int, words)
            if error:
                raise OSError(error, os.strerror(error), path)
            if size > length or end + 1 + size > len(data):
                raise SandboxDied(f"the sandbox sent {size} bytes of a file, of which {length} were asked for")
            parts.append(data[end + 1 : end + 1 + size])
            at = end + 1 + size
        return parts


def _raise_error(outcome: Outcome, path: str, other: int = 0) -> None:
    """Raises the OSError with which a program of PID 1's ended, or `other` if that is given."""
    if outcome.exit_code is None:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)
    if outcome.exit_code:
        number = other or outcome.exit_code
        raise OSError(number, os.strerror(number), path)
