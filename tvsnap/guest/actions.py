"""The actions of every backend through a sandbox's PID 1, regardless of the connection: run, exec, files, keys."""

from __future__ import annotations

import errno
import functools
import os
import shlex
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

from tvsnap.guest import parallel_commands, trees
from tvsnap.guest.protocol import INIT, TURN, Guest, NoSuchUser, TerminalBusy
from tvsnap.guest.services import entering, find_service
from tvsnap.host.load import Load
from tvsnap.host.trees import TreeItem, Upload, extract, items_of
from tvsnap.model.arguments import check_seconds, check_variables, check_whole
from tvsnap.model.calls import DEFAULT_TIMEOUT
from tvsnap.model.errors import UsageError
from tvsnap.model.exec_all import MOST_COMMANDS
from tvsnap.model.images import Image
from tvsnap.model.limits import MIB, MOST_FETCHED, Limits
from tvsnap.model.observations import Command, FolderListing, Outcome, Stillness, TerminalBytes
from tvsnap.model.services import ImageService

COLUMNS, ROWS = 80, 24
"""Size of a new sandbox's terminal."""
_SHELL = 16
"""Process id of the first persistent shell (init.c)."""
_STRIDE, _TURNS = 256, 125
"""Distance between the ids of calls, so that ids are not reused soon; below 32,768, the limit on small machines."""
_FILE_TIMEOUT = 60.0
MOST_LISTED = 1_000_000
"""Entries of a folder that may be requested; fewer come if their names are long."""
_LONGEST_ARGUMENT = 100_000
"""Bytes; the kernel allows 128 KiB in one argument."""
_ANY_SHELL = ("/bin/sh", "-c", '[ -x /bin/bash ] && exec /bin/bash -c "$0"; exec /bin/sh -c "$0"')
"""Runs a command in the root of a service, which may have no bash."""
_ANY_EVAL_STDIN = 'command=$(cat); eval "unset command; $command" </dev/null'


S = TypeVar("S", bound="GuestActions")
P = ParamSpec("P")
T = TypeVar("T")


def exclusive(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Makes a method of a sandbox wait for those that other threads have begun.

    PID 1 does one thing after the other, and its answers do not name their requests. Threads meet in a sandbox if the
    caller of an abandoned call goes on, such as a task that was cancelled while its thread waits.
    """

    @functools.wraps(method)
    def wait_and_do(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.turn():
            return method(self, *args, **kwargs)

    return wait_and_do


class GuestActions(ABC):
    """The actions of a `Sandbox`, for its implementations to inherit.

    Attributes:
        id, image: see `tvsnap.sandboxes.protocol.Sandbox`.
        limits: its limits.
        changes_settled: the number of calls that have changed its state, according to `settle`.
    """

    id: str
    image: Image
    limits: Limits
    changes_settled: int = 0
    _turn: int = 0
    _more_variables: Mapping[str, str] = MappingProxyType({})
    _guest: Guest | None = None

    def __init__(self) -> None:
        self._turn_lock = threading.RLock()  # held by the thread whose request PID 1 is answering

    @abstractmethod
    def guest(self) -> Guest:
        """Returns the connection to PID 1, which is made if there is none; raises SandboxDied if the sandbox ended."""

    def stillness(self) -> Stillness | None:
        return None

    def settle(self, *, changed: bool) -> None:
        self.changes_settled += changed

    def number_processes(self) -> None:
        """Gives the next call's processes the ids that they would have in any execution.

        With a random seed, a process with a reused id must not draw the numbers that an earlier one has drawn.
        """
        turn = self.changes_settled // _TURNS
        if turn != self._turn and self.image.random_seed is not None:
            self.write_file(TURN, str(turn).encode(), user="root")
            self._turn = turn
        self.number_after(last_number(self.changes_settled))

    def number_after(self, last: int) -> None:
        """Gives the next processes the ids after `last`, as far as these are free."""
        self.guest().number_processes(last)

    @exclusive
    def run(self, command: str, *, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        check_seconds(timeout)
        self.number_processes()
        try:
            return self.guest().run(parallel_commands.text(command), timeout, self.limits.output)
        except TerminalBusy as busy:
            message = f"the terminal is in use by `{busy}`; send it keys, or run the command with exec\n"
            return Outcome(message.encode(), None, 0.0)

    @exclusive
    def exec(
        self,
        command: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        cwd: str | None = None,
        env: Mapping[str, str] = {},
        user: str | None = None,
        separate: bool = False,
        service: str | None = None,
    ) -> Outcome:
        check_seconds(timeout)
        check_variables(env)
        other = find_service(self.image, service)
        env = {**self._more_variables, **env}
        if separate:
            apart = Command(command, cwd, env, separate)
            if other is not None:
                apart, user = _entering(other, apart, user), "root"
            return self.exec_all([apart], timeout=timeout, user=user)[0]
        script, stdin = parallel_commands.script(command)
        self.number_processes()
        if other is not None:
            program = [*_ANY_SHELL, _ANY_EVAL_STDIN if stdin else script.decode("utf-8", "surrogateescape")]
            return self.guest().execute(
                entering(other, program, cwd=cwd, env=env, user=user),
                stdin=stdin,
                timeout=timeout,
                limit=self.limits.output,
                user="root",
                cwd="/",
            )
        try:
            return self.guest().execute(
                ["/bin/bash", "-c", script.decode("utf-8", "surrogateescape")],
                stdin=stdin,
                timeout=timeout,
                limit=self.limits.output,
                user=user or "",
                cwd=cwd or "",
                env=list(env.items()),
            )
        except NoSuchUser:
            return Outcome(self._no_user(user), 126, 0.0)

    @exclusive
    def exec_all(
        self, commands: Sequence[Command], *, timeout: float = DEFAULT_TIMEOUT, user: str | None = None
    ) -> list[Outcome]:
        check_seconds(timeout)
        if len(commands) > MOST_COMMANDS:
            raise UsageError(f"{len(commands)} commands at once are too many: at most {MOST_COMMANDS}")
        for each in commands:
            check_variables(each.env)
        limit = self.limits.output
        commands = [replace(each, env={**self._more_variables, **each.env}) for each in commands]
        self.number_processes()
        try:
            whole = self.guest().execute(
                [INIT, "together"],
                stdin=parallel_commands.request(commands, limit),
                timeout=timeout,
                limit=parallel_commands.room(commands, limit),
                user=user or "",
            )
        except NoSuchUser:
            return [Outcome(self._no_user(user), 126, 0.0, errors=b"" if one.separate else None) for one in commands]
        return parallel_commands.outcomes(commands, whole, limit)

    def _no_user(self, user: str | None) -> bytes:
        return f"no user {user} in the image {self.image.name}\n".encode()

    def read_file(self, path: str, *, limit: int = 16 * MIB, service: str | None = None) -> bytes:
        return self._file("get", path, str(limit), service=service, limit=limit + 4096).output

    def write_file(self, path: str, data: bytes, *, user: str | None = None, service: str | None = None) -> None:
        # An empty stdin becomes /dev/null, which has the same effect.
        self._file("put", path, service=service, limit=4096, user=user or "", stdin=data)

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
        run, path = self._tree_tool(path, "root" if owners else user or "")
        trees.put(run, items, path, timeout)

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

    def read_tree(self, path: str, *, limit: int = MOST_FETCHED, timeout: float | None = None) -> Iterator[TreeItem]:
        run, path = self._tree_tool(path, "root")
        return trees.read(run, path, limit=limit, timeout=timeout)

    def list_folder(self, path: str, *, limit: int = trees.MOST_ENTRIES) -> FolderListing:
        check_whole(limit, "limit", 1, MOST_LISTED)
        if "\0" in path:  # PID 1 would cut the path there
            raise UsageError(f"path must contain no null character: {path!r}")
        run, path = self._tree_tool(path, "root")
        return trees.list_folder(run, path, limit=limit, timeout=_FILE_TIMEOUT)

    def _tree_tool(self, path: str, user: str) -> tuple[trees.RunTool, str]:
        """Returns a function that runs PID 1's own programs for a path, and the path as these see it.

        A path below the root directory of a service is the service's: users and links are looked up in that directory.
        """
        other = next((one for one in self.image.services.others if f"{path}/".startswith(f"{one.root}/")), None)
        cwd = "/" if path.startswith("/") else "."  # some users may not enter the shell's directory

        def run(*arguments: str, stdin: bytes, limit: int, timeout: float) -> Outcome:
            argv, who = [INIT, *arguments], user
            if other is not None:
                argv, who = entering(other, argv, cwd="/", user=user or None), "root"
            try:
                with self.turn():
                    return self.guest().execute(argv, stdin=stdin, limit=limit, timeout=timeout, user=who, cwd=cwd)
            except NoSuchUser:
                raise UsageError(f"no user {user} in the image {self.image.name}") from None

        return run, path if other is None else path.removeprefix(other.root) or "/"

    @exclusive
    def request(self, path: str, data: bytes, *, timeout: float, limit: int = 16 * MIB) -> bytes:
        self.number_processes()
        outcome = self._file("ask", path, timeout=timeout, limit=limit, user="root", cwd="/", stdin=data)
        if outcome.truncated:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return outcome.output

    def _file(
        self,
        tool: str,
        path: str,
        *more: str,
        timeout: float = _FILE_TIMEOUT,
        user: str = "",
        cwd: str = ".",
        service: str | None = None,
        **options: Any,
    ) -> Outcome:
        """Runs one of PID 1's own tools; returns its outcome, or raises the OSError that it encountered."""
        if "\0" in path:  # PID 1 would cut the path there
            raise UsageError(f"path must contain no null character: {path!r}")
        command = [INIT, tool, path, *more]
        if (other := find_service(self.image, service)) is not None:
            command, user, cwd = entering(other, command, user=user or None), "root", "/"
        with self.turn():
            outcome = self.guest().execute(command, timeout=timeout, user=user, cwd=cwd, **options)
        if outcome.exit_code != 0:
            number = outcome.exit_code or errno.ETIMEDOUT
            raise OSError(number, os.strerror(number), path)
        return outcome

    def lend(self, variables: Mapping[str, str]) -> None:
        self._more_variables = dict(variables)

    def machine_fault(self, said: str) -> str | None:
        return None

    def load(self) -> Load:
        return Load()

    def interrupt(self) -> None:
        if self._guest is not None:
            self._guest.interrupt()

    def turn(self) -> AbstractContextManager[Any]:
        return self._turn_lock

    def uninterrupted(self) -> AbstractContextManager[None]:
        return self.guest().uninterrupted()

    @exclusive
    def send_keys(self, data: bytes, *, wait: float) -> None:
        self.number_processes()
        self.guest().keys(data, wait)

    @exclusive
    def terminal(self) -> TerminalBytes:
        return TerminalBytes(*self.guest().terminal())


def last_number(changes: int) -> int:
    """Returns the process id after which a call's processes are numbered.

    It depends only on the number of calls that have changed the state: not on the number of their processes, on calls
    that changed nothing, or on the place of execution. Live processes keep their ids, which are skipped.
    """
    return _SHELL + changes % _TURNS * _STRIDE


def _entering(service: ImageService, command: Command, user: str | None) -> Command:
    """Returns the command for root in the main service that runs a command in another service."""
    script, stdin = (text.decode("utf-8", "surrogateescape") for text in parallel_commands.script(command.command))
    program = [*_ANY_SHELL, _ANY_EVAL_STDIN if stdin else script]
    line = f"exec {shlex.join(entering(service, program, cwd=command.cwd, env=command.env, user=user))}"
    return Command(f"{line} <<< {shlex.quote(stdin)}" if stdin else line, "/", {}, command.separate)
