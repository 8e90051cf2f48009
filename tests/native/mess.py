"""Trees of files of all kinds, in any order of changes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import stat
from pathlib import Path


class Mess:
    """Makes, changes and removes files of all kinds at random, the same for each seed."""

    def __init__(self, tree: Path, seed: int) -> None:
        self._tree = os.fsencode(tree)
        self._random = random.Random(seed)
        self._others = (self._write, self._remove, self._rename, self._attribute, self._times)

    def stir(self, times: int) -> None:
        for _ in range(times):
            with contextlib.suppress(OSError):
                self._random.choice((*[self._make] * 3, *self._others))()

    def _paths(self) -> list[bytes]:
        return [os.path.join(top, name) for top, below, names in os.walk(self._tree) for name in (*below, *names)]

    def _any(self) -> bytes:
        return self._random.choice(self._paths() or [self._tree])

    def _new(self) -> bytes:
        tops = [top for top, _, _ in os.walk(self._tree) if top.count(b"/") < 20]
        name = self._random.choice((b"a", b"b.git", b"\xff\n", b" -", b"n" * 60, b"%d" % self._random.randrange(50)))
        return os.path.join(self._random.choice(tops), name)

    def _make(self) -> None:
        path = self._new()
        kind = self._random.randrange(8)
        if kind < 2:
            os.mkdir(path)
        elif kind < 4:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        elif kind == 4:
            os.symlink(self._random.choice((b"/", b"/etc", b"a", b"..")), path)
        elif kind == 5:
            os.mkfifo(path)
        elif kind == 6:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(0, 0))  # as an overlay says that something is deleted
        else:
            with socket.socket(socket.AF_UNIX) as its:
                its.bind(path)

    def _write(self) -> None:
        descriptor = os.open(self._any(), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_APPEND)
        os.write(descriptor, b"x" * self._random.randrange(3))
        os.close(descriptor)

    def _remove(self) -> None:
        path = self._any()
        if path == self._tree:
            return
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def _rename(self) -> None:
        path = self._any()
        if path == self._tree:
            return
        if os.path.islink(path) or not os.path.isdir(path) or not next(os.walk(path))[1]:  # levels would add up
            os.rename(path, self._new())

    def _attribute(self) -> None:
        name, value = b"user.%d" % self._random.randrange(3), b"v" * self._random.randrange(9)
        os.setxattr(self._any(), name, value, follow_symlinks=False)

    def _times(self) -> None:
        times = self._random.randrange(10**9), self._random.randrange(10**18)
        os.utime(self._any(), ns=times, follow_symlinks=False)
