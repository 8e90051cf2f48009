"""What differs from the image, and fingerprints of it: files from the overlay's upper layer, processes from /proc."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tvsnap.backends.base import FileChange, Process
from tvsnap.images.rootfs import UID_BASE

LAUNCH = Path(__file__).with_name("tvsnap-launch")
_SMALL_FILE = 64 * 1024
_SHELL_OWN_FDS = {"0", "1", "2", "27", "28", "29", "255"}
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}
# Variables that change by themselves or with every command: no part of the state.
_VOLATILE = {
    "_", "BASHPID", "BASH_ARGC", "BASH_ARGV", "BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL",
    "COMP_WORDBREAKS", "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "HISTCMD", "LINENO", "PIPESTATUS", "RANDOM",
    "SECONDS", "SRANDOM",
}  # fmt: skip
_QUOTED = rb"""\"(?:[^\"\\]|\\.)*\"|\$'(?:[^'\\]|\\.)*'"""
_DECLARATION = re.compile(
    rb"declare -\S+ (\w+)(?:=(?:" + _QUOTED + rb"|\((?:[^()\"']|" + _QUOTED + rb")*\)|[^\n]*))?\n", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One path in the upper layer, as lstat tells it; `opaque` directories hide what the image has there."""

    path: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    opaque: bool

    @property
    def deleted(self) -> bool:
        return stat.S_ISCHR(self.mode) and self.device == 0


def walk(upper: Path) -> Iterator[Entry]:
    """Yields all that an upper layer holds, without following any link."""
    descriptor = os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        run = subprocess.run([LAUNCH, "walk", str(descriptor)], pass_fds=[descriptor], capture_output=True, check=True)
    finally:
        os.close(descriptor)
    fields = run.stdout.split(b"\0")
    for name, numbers in zip(fields[0::2], fields[1::2], strict=False):
        mode, *rest = numbers.split()
        uid, gid, size, mtime, ctime, inode, device, opaque = map(int, rest)
        yield Entry(os.fsdecode(name), int(mode, 8), uid, gid, size, mtime, ctime, inode, device, bool(opaque))


class ImageTree:
    """What a read-only image has at a path; remembered, since it never changes."""

    def __init__(self, *layers: Path) -> None:
        """Args: layers: root directories, topmost first."""
        self._lookup = lru_cache(maxsize=65536)(self._find)
        self._layers = layers

    def directory(self, path: str) -> tuple[int, int, int, int] | None:
        """Returns mode, uid, gid and mtime (ns) of a directory of the image; None if it has none there."""
        return self._lookup(path)

    def below(self, path: str) -> Iterator[str]:
        """Yields all paths below a directory of the image."""
        for layer in self._layers:
            for parent, folders, files in os.walk(f"{layer}{path}"):
                for name in (*folders, *files):
                    yield f"{parent[len(str(layer)) :]}/{name}"

    def _find(self, path: str) -> tuple[int, int, int, int] | None:
        for layer in self._layers:
            with contextlib.suppress(OSError):
                found = os.lstat(f"{layer}{path}")
                if not stat.S_ISDIR(found.st_mode):
                    return None
                return (found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns)
        return None


def _differs(entry: Entry, image: ImageTree) -> bool:
    """Whether an entry says anything: a directory is there also because something below it was touched once."""
    if not stat.S_ISDIR(entry.mode) or entry.opaque:
        return True
    there = image.directory(entry.path)
    if there is None or there[:3] != (entry.mode, entry.uid, entry.gid):
        return True
    return _set_time(entry) not in (0, there[3])


def _set_time(entry: Entry) -> int:
    """Returns a directory's modification time if it was set on purpose (`touch -d`); 0 if its entries just changed."""
    return 0 if entry.mtime_ns == entry.ctime_ns else entry.mtime_ns


def files_fingerprint(upper: Path, image: ImageTree) -> str:
    """Returns a hash that changes whenever a file does.

    A directory's own times are left out unless they were set on purpose: its entries count.
    """
    hasher = hashlib.sha256()
    lines = []
    for entry in walk(upper):
        if not _differs(entry, image):
            continue
        if stat.S_ISDIR(entry.mode):
            lines.append(f"{entry.path}\0{entry.mode} {entry.uid} {entry.gid} {entry.opaque} {_set_time(entry)}")
        elif entry.deleted:
            lines.append(f"{entry.path}\0deleted")
        else:
            lines.append(
                f"{entry.path}\0{entry.mode} {entry.uid} {entry.gid} {entry.size} {entry.mtime_ns} {entry.ctime_ns} "
                f"{entry.inode} {entry.device}"
            )
    for line in sorted(lines):
        hasher.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return hasher.hexdigest()


def file_changes(upper: Path, image: ImageTree) -> Mapping[str, FileChange]:
    """Returns how the files differ from the image, by absolute path."""
    found: dict[str, FileChange] = {}
    hidden: list[str] = []
    present: set[str] = set()
    for entry in walk(upper):
        present.add(entry.path)
        if not _differs(entry, image):
            continue
        if entry.deleted:
            found[entry.path] = FileChange("deleted")
        if entry.deleted or entry.opaque:
            hidden.append(entry.path)
        if entry.deleted:
            continue
        kind = _KINDS.get(stat.S_IFMT(entry.mode))
        if kind is None:
            continue
        found[entry.path] = FileChange(
            kind=kind,  # type: ignore[arg-type]
            size=0 if kind == "directory" else entry.size,
            mode=stat.S_IMODE(entry.mode),
            uid=entry.uid - UID_BASE,
            gid=entry.gid - UID_BASE,
            mtime_ns=entry.mtime_ns,
            identity="" if kind == "directory" else _identity(upper, entry),
        )
    for directory in hidden:
        for path in image.below(directory):
            if path not in present:
                found[path] = FileChange("deleted")
    return found


def _identity(upper: Path, entry: Entry) -> str:
    """Names a file's contents: a digest where that is cheap, else what changes with them."""
    stamp = f"{entry.inode}:{entry.size}:{entry.mtime_ns}:{entry.ctime_ns}"
    path = f"{upper}{entry.path}"
    try:
        if stat.S_ISLNK(entry.mode):
            return os.readlink(path)
        if stat.S_ISREG(entry.mode) and entry.size <= _SMALL_FILE:
            # The last component is not followed; those before it are directories of the upper layer, seen by the walk.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                return hashlib.sha256(file.read(_SMALL_FILE + 1)).hexdigest()
    except OSError:
        pass
    return stamp


def shell_fingerprint(dump: bytes) -> str:
    """Returns a hash of what the shell said of its state, without what changes by itself."""
    variables, _, rest = dump.partition(b"\1")
    hasher = hashlib.sha256(rest)
    end = 0
    for match in _DECLARATION.finditer(variables):
        name = match[1].decode()
        if match.start() != end:
            hasher.update(variables[end : match.start()])  # not understood: all of it counts
        if name not in _VOLATILE and not name.startswith("__tvsnap_"):
            hasher.update(match[0])
        end = match.end()
    hasher.update(variables[end:])
    return hasher.hexdigest()


def shell_items(dump: bytes) -> dict[str, str]:
    """Returns the shell's state by name, for people: `var X`, `function f`, `alias`, `option`, `cwd`, ..."""
    sections = dump.decode("utf-8", "replace").split("\1")
    items: dict[str, str] = {}
    for match in _DECLARATION.finditer(sections[0].encode()):
        name = match[1].decode()
        if name not in _VOLATILE and not name.startswith("__tvsnap_") and name != "PROMPT_COMMAND":
            items[f"var {name}"] = match[0].decode("utf-8", "replace").rstrip("\n").removeprefix("declare ")
    for section in sections[1:]:
        title, _, text = section.partition("\n")
        if title == "functions":
            for function in re.finditer(r"^(\S+) \(\) *\n\{.*?^\}", text, re.DOTALL | re.MULTILINE):
                if not function[1].startswith("__tvsnap_"):
                    items[f"function {function[1]}"] = function[0]
        elif title == "aliases":
            for line in text.splitlines():
                name, _, value = line.removeprefix("alias ").partition("=")
                items[f"alias {name}"] = value
        elif title == "options":
            for line in text.splitlines():
                command, flag, *names = [*line.split(), ""]
                items[f"option {names[0]}"] = f"{command} {flag}"
        elif title == "limits":
            mask, _, limits = text.partition("\n")
            items["umask"] = mask
            for line in limits.splitlines():
                name, _, value = line.partition(") ")
                items[f"limit {re.sub(r' +[(].*', '', name)}"] = value
        elif title == "last":
            status, _, background = text.strip().partition(" ")
            items["status"] = status
            items["background"] = background
        else:
            items[title] = text.strip("\n")
    return {name: value for name, value in items.items() if value or name == "arguments"}


def _stat_fields(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return text[text.rindex(")") + 2 :].split()


def inner_pid(pid: int) -> int:
    """Returns the id that a process has in its own pid namespace; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return 0


def processes_fingerprint(pids: list[int], init: int, shell: int) -> str:
    """Returns a hash that changes when a process starts, ends, stops or has run.

    PID 1 and the shell run with every call, so only what the shell holds open counts of it.

    Args:
        pids: the sandbox's processes, as the host sees them.
        init: its PID 1.
        shell: its persistent shell.
    """
    hasher = hashlib.sha256()
    for pid in sorted(pids):
        if pid == init:
            continue
        try:
            fields = _stat_fields(pid)
            if pid == shell:
                gone = os.readlink(f"/proc/{pid}/cwd").endswith(" (deleted)")  # its path, the shell itself tells
                nice, processors = fields[16], sorted(os.sched_getaffinity(pid))
                hasher.update(f"shell {pid} {fields[19]} {nice} {processors} {gone} {_open_files(pid)}\n".encode())
                continue
            ran = sum(
                int(Path(task.path, "schedstat").read_text().split()[0]) for task in os.scandir(f"/proc/{pid}/task")
            )
            stopped = fields[0] in "Tt"
            zombie = fields[0] == "Z"
            hasher.update(f"{pid} {fields[19]} {stopped} {zombie} {ran}\n".encode())
        except OSError:
            hasher.update(os.urandom(16))  # it ended under our eyes
    return hasher.hexdigest()


def _open_files(pid: int) -> str:
    """Returns what a shell holds open beyond its terminal and our pipes, with positions."""
    parts = []
    for name in sorted(os.listdir(f"/proc/{pid}/fd")):
        if name in _SHELL_OWN_FDS:
            continue
        target = os.readlink(f"/proc/{pid}/fd/{name}")
        position = Path(f"/proc/{pid}/fdinfo/{name}").read_text().split("\n", 2)[:2]
        parts.append(f"{name}:{target}:{position}")
    return ",".join(parts)


def list_processes(pids: list[int], init: int) -> list[Process]:
    """Returns the sandbox's processes but for its PID 1, with ids as they are inside."""
    found = []
    for pid in pids:
        if pid == init:
            continue
        with contextlib.suppress(OSError):
            fields = _stat_fields(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if not command:
                name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
                command = f"[{name}]"
            memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            found.append(Process(inner_pid(pid), inner_pid(int(fields[1])), fields[0], command, memory))
    return sorted(found, key=lambda process: process.pid)
