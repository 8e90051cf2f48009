"""What every backend does through a sandbox's PID 1, whichever way it reaches it: run, exec, files, keys."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tvsnap.guest import trees
from tvsnap.guest.protocol import INIT, TURN, Guest, NoSuchUser, TerminalBusy
from tvsnap.host.trees import MOST_FETCHED, Item, Upload, extract, items_of
from tvsnap.model.arguments import check_seconds
from tvsnap.model.errors import UsageError
from tvsnap.model.images import Image
from tvsnap.model.limits import MIB, Limits
from tvsnap.model.observations import Outcome, TerminalBytes

COLUMNS, ROWS = 80, 24
"""Of a fresh sandbox's terminal."""
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TERM": "xterm",
    "PAGER": "cat",
    "LANG": "C.UTF-8",
}
"""Of every process in a sandbox, below what the image says."""
_SHELL = 16
"""The number of the first persistent shell (init.c)."""
_STRIDE, _TURNS = 256, 125
"""Between calls, so that numbers are not soon used again; below 32,768, which is the most on small machines."""
_FILE_TIMEOUT = 60.0
_LONGEST_ARGUMENT = 100_000
"""Bytes; the kernel takes 128 KiB in one argument."""
_EVAL_STDIN = 'IFS= read -r -d "" command; eval "unset command; $command" </dev/null'


class GuestActions(ABC):
    """The actions of a `Sandbox`, for its implementations to inherit.

    Attributes:
        id, image: see `tvsnap.sandboxes.protocol.Sandbox`.
        limits: what it may use.
        changes_settled: how many calls have changed its state, as far as `settle` was told.
    """

    id: str
    image: Image
    limits: Limits
    changes_settled: int = 0
    _turn: int = 0
    _guest: Guest | None = None

    @abstractmethod
    def guest(self) -> Guest:
        """Returns the connection to PID 1, made anew if there is none.

        Raises:
            SandboxDied: the sandbox has ended.
        """

    def settle(self, *, changed: bool) -> None:
        self.changes_settled += changed

    def number_processes(self) -> None:
        """Sees to it that the next call's processes have the numbers that they would have in any execution.

        Where randomness has a seed, what has a number anew is not to draw what another had drawn.
        """
        turn = self.changes_settled // _TURNS
        if turn != self._turn and self.image.random_seed is not None:
            self.write_file(TURN, str(turn).encode(), user="root")
            self._turn = turn
        self.number_after(last_number(self.changes_settled))

    def number_after(self, last: int) -> None:
        """Lets the processes of what is done next have the numbers after `last`, as far as those are free."""
        self.guest().number_processes(last)

    def run(self, command: str, *, timeout: float) -> Outcome:
        check_seconds(timeout)
        self.number_processes()
        try:
            return self.guest().run(_text(command), timeout, self.limits.output)
        except TerminalBusy as busy:
            message = f"the terminal is in use by `{busy}`; send it keys, or run the command with exec\n"
            return Outcome(message.encode(), None, 0.0)

    def exec(
        self,
        command: str,
        *,
        timeout: float,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
    ) -> Outcome:
        check_seconds(timeout)
        script = _text(command)
        long = len(script) > _LONGEST_ARGUMENT
        self.number_processes()
        try:
            return self.guest().execute(
                ["/bin/bash", "-c", _EVAL_STDIN if long else script.decode("utf-8", "surrogateescape")],
                stdin=script if long else b"",
                timeout=timeout,
                limit=self.limits.output,
                user=user or "",
                cwd=cwd or "",
                env=list(env.items()),
            )
        except NoSuchUser:
            return Outcome(f"no user {user} in the image {self.image.name}\n".encode(), 126, 0.0)

    def read_file(self, path: str, *, limit: int = 16 * MIB) -> bytes:
        return self._file("get", path, str(limit), timeout=_FILE_TIMEOUT, limit=limit + 4096).output

    def write_file(self, path: str, data: bytes, *, user: str | None = None) -> None:
        # An empty stdin would be /dev/null, which is as good.
        self._file("put", path, timeout=_FILE_TIMEOUT, limit=4096, user=user or "", stdin=data)

    def put(
        self,
        source: Upload,
        path: str,
        *,
        user: str | None = None,
        owners: bool = False,
        mode: int | None = None,
        timeout: float | None = None,
    ) -> None:
        items = items_of(source, owners=owners, mode=mode)
        trees.put(self._tree_tool(path, "root" if owners else user or ""), items, path, timeout)

    def get(
        self,
        path: str,
        destination: str | Path,
        *,
        owners: bool = False,
        limit: int = MOST_FETCHED,
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        return extract(self.read_tree(path, limit=limit, timeout=timeout), destination, owners=owners)

    def read_tree(self, path: str, *, limit: int = MOST_FETCHED, timeout: float | None = None) -> Iterator[Item]:
        return trees.read(self._tree_tool(path, "root"), path, limit=limit, timeout=timeout)

    def _tree_tool(self, path: str, user: str) -> trees.RunTool:
        cwd = "/" if path.startswith("/") else "."  # the shell's is closed to some users

        def run(*arguments: str, stdin: bytes, limit: int, timeout: float) -> Outcome:
            argv = [INIT, *arguments]
            try:
                return self.guest().execute(argv, stdin=stdin, limit=limit, timeout=timeout, user=user, cwd=cwd)
            except NoSuchUser:
                raise UsageError(f"no user {user} in the image {self.image.name}") from None

        return run

    def request(self, path: str, data: bytes, *, timeout: float, limit: int = 16 * MIB) -> bytes:
        outcome = self._file("ask", path, timeout=timeout, limit=limit, user="root", cwd="/", stdin=data)
        if outcome.truncated:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return outcome.output

    def _file(self, tool: str, path: str, *more: str, cwd: str = ".", **options: Any) -> Outcome:
        """Returns what one of PID 1's own tools came to; raises the OSError that it met."""
        outcome = self.guest().execute([INIT, tool, path, *more], cwd=cwd, **options)
        if outcome.exit_code != 0:
            number = outcome.exit_code or errno.ETIMEDOUT
            raise OSError(number, os.strerror(number), path)
        return outcome

    def trouble(self, said: str) -> str | None:
        return None

    def interrupt(self) -> None:
        if self._guest is not None:
            self._guest.interrupt()

    def send_keys(self, data: bytes, *, wait: float) -> None:
        self.number_processes()
        self.guest().keys(data, wait)

    def terminal(self) -> TerminalBytes:
        return TerminalBytes(*self.guest().terminal())


def last_number(changes: int) -> int:
    """Returns the number after which a call's processes are numbered.

    It depends on nothing but how many calls have changed the state: not on how many processes those had, on calls that
    changed nothing, nor on where it is executed. Processes that live keep their numbers, which are passed over.
    """
    return _SHELL + changes % _TURNS * _STRIDE


def _text(command: str) -> bytes:
    """Returns a command as the shell gets it; it cannot hold a NUL."""
    return command.replace("\0", "").encode("utf-8", "surrogateescape")
