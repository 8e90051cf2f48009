"""Inspect's sandbox `tvsnap`: `Task(..., sandbox=("tvsnap", "terminal"))`. Inspect finds it by its entry point.

Commands and files are calls of one rollout for each sample: recorded, and answered if possible.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import re
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

from pydantic import BaseModel, ConfigDict

from tvsnap.aio.threads import in_thread
from tvsnap.images import Image, ImageNotFound, ImageStore
from tvsnap.images.descriptions.detect import descriptions
from tvsnap.model.calls import ToolResult
from tvsnap.plugins.client.images_and_graph import RemoteImages
from tvsnap.plugins.client.protocols import AnyAsyncRollout
from tvsnap.plugins.harnesses.caches import shared_cache
from tvsnap.plugins.harnesses.configuration import CacheConfig, cache_options
from tvsnap.plugins.harnesses.images import find_image

try:
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxConnection,
        SandboxEnvironment,
        SandboxEnvironmentLimits,
        sandboxenv,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.inspect_ai needs Inspect, of which {error.name} is missing: "
        "pip install 'tvsnap[inspect]'",
        name=error.name,
    ) from error

FILE_TIMEOUT = 600
"""Seconds that reading or writing a file may take."""
_INLINE_INPUT = 32 * 1024  # bytes of standard input that are part of a call; more is put into a file
_SETUP_FILE = re.compile(r"/tmp/([2-9A-HJ-NP-Za-km-z]{22})(?![\w.-])")
"""The path of a sample's setup script, with a random name (shortuuid) that Inspect chooses."""
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1"'
_SIZE = 'size=$(wc -c <"$1") && echo $((size))'
_ERRORS = {
    "is a directory": IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)),
    "permission denied": PermissionError(errno.EACCES, os.strerror(errno.EACCES)),
    "no such file or directory": FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)),
    "not a directory": FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)),
}
"""Messages of the programs in the sandbox, in lower case, and the errors that Inspect expects for them."""


class TvsnapSandboxConfig(CacheConfig):
    """The configuration of a sandbox; a text instead of it is the `image`, a path relative to the task's folder."""

    model_config = ConfigDict(frozen=True)

    image: str = "terminal"
    """An image's name or digest; or the path of a folder (with a slash) or file that an image is built from."""
    cwd: str = ""
    """The folder in which commands start and relative paths begin; by default the image's working directory."""
    user: str | None = None
    """The user of commands that name none; by default the image's user."""
    network: Literal["none", "public"] | tuple[str, ...] | None = None
    """Hosts that commands may reach; by default the image's setting. See `tvsnap.Cache.rollout`."""


def _config(config: BaseModel | str | None) -> TvsnapSandboxConfig:
    if config is None or isinstance(config, str):
        return TvsnapSandboxConfig(image=config) if config else TvsnapSandboxConfig()
    if isinstance(config, TvsnapSandboxConfig):
        return config
    raise ValueError(f"the sandbox tvsnap takes an image's name or a TvsnapSandboxConfig, not {type(config).__name__}")


def _find_image(store: ImageStore | RemoteImages, image: str) -> Image:
    """Returns an image, see `find_image`.

    Of a text that is no absolute path, as in `--sandbox tvsnap:terminal`, Inspect makes one below the task's folder.
    If there is nothing, its end is the image's name.
    """
    path = Path(image)
    if path.is_absolute() and not path.exists():
        for place in range(1, len(path.parts) - 1):  # a name may have slashes, as of a registry
            with contextlib.suppress(ImageNotFound):
                return store.get("/".join(path.parts[place:]))
        image = path.name
    return find_image(store, image)


@sandboxenv(name="tvsnap")
class TvsnapSandboxEnvironment(SandboxEnvironment):
    """An Inspect sandbox whose commands run in tvsnap's sandboxes, or are answered from its graph.

    Attributes:
        config: its configuration.
        rollout: the rollout that makes its calls.
        sources: the number of calls by their source.
    """

    def __init__(self, config: TvsnapSandboxConfig, rollout: AnyAsyncRollout, cwd: str) -> None:
        """
        Args:
            config: its configuration.
            rollout: the rollout, which has begun.
            cwd: the folder in which commands start, an absolute path.
        """
        super().__init__()
        self.config = config
        self.rollout = rollout
        self.sources = {"hit": 0, "coalesced": 0, "executed": 0}
        self._cwd = cwd
        self._inputs = 0  # inputs that were put into files
        self._setup_files: dict[str, str] = {}  # by Inspect's random names

    @classmethod
    def config_files(cls) -> list[str]:
        """Returns the files beside a task that describe its image, if the task names none."""
        return list(descriptions())

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Returns the configuration from a log or a file.

        Args:
            config: the configuration as JSON.
        """
        return TvsnapSandboxConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: BaseModel | str | None) -> None:
        """Builds the image, if a folder describes it, before any sample begins.

        Args:
            task_name: the task's name.
            config: the configuration of the sandboxes.

        Raises:
            ImageNotFound: there is no such image.
            TvsnapError: it cannot be built, or sandboxes are not possible on this machine.
        """
        chosen = _config(config)
        cache = await shared_cache(cache_options(chosen))
        await in_thread(None, partial(_find_image, cache.cache.images, chosen.image))

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Begins a sample's rollout.

        Args:
            task_name: the task's name, by which tvsnap's listings group rollouts.
            config: the configuration of the sandbox.
            metadata: the sample's.

        Raises:
            TvsnapError: there is no such image, or no sandbox can be made.
        """
        chosen = _config(config)
        cache = await shared_cache(cache_options(chosen))
        image = await in_thread(None, partial(_find_image, cache.cache.images, chosen.image))
        limits = await in_thread(None, partial(cache.cache.limits_for, image))
        # More than Inspect's limit, so that Inspect's is reached first.
        limits = replace(limits, output=max(limits.output, 2 * SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE))
        sample = metadata.get("__sample_id__")
        label = None if sample is None else str(sample)
        rollout = cache.rollout(image, task_name, chosen.salt, label, limits=limits, network=chosen.network)
        await rollout.__aenter__()
        return {"default": cls(chosen, rollout, posixpath.join("/", image.workdir, chosen.cwd))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: BaseModel | str | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Ends the rollouts of a sample. Their states stay in the graph, where `tvsnap shell` opens them.

        Args:
            task_name, config: see `sample_init`.
            environments: the result of `sample_init`.
            interrupted: whether the sample was.
        """
        for environment in environments.values():
            await environment.as_type(cls).rollout.close()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command, or answers it from the graph; see Inspect's `SandboxEnvironment.exec`.

        Commands that are awaited at the same time run side by side; see `AsyncRollout.exec`.

        Args:
            cmd: the command and its arguments.
            input: its standard input.
            cwd: the folder in which it starts; a relative path begins at the sandbox's working directory.
            env: environment variables.
            user: the user that runs it.
            timeout: seconds after which it is ended.
            timeout_retry: ignored: a timeout here is never one of the connection to the sandbox.
            concurrency: ignored: tvsnap itself limits how many sandboxes live at once.

        Returns:
            Its output and its exit status. Invalid UTF-8 is replaced, and line ends are line feeds.

        Raises:
            TimeoutError: it was ended by its timeout; `truncated_output` is what it had printed.
            PermissionError: it is no program that the user may run.
            OutputLimitExceededError: it printed more than Inspect's limit.
            TvsnapError: tvsnap failed, not the command.
        """
        who = user or self.config.user
        command = "exec -- " + shlex.join(map(self._without_chance, cmd))
        if input is not None:
            command = await self._with_input(command, input.encode() if isinstance(input, str) else input, who)
        pending = self.rollout.exec(
            command, timeout, cwd=self._path(cwd or ""), env=env, user=who or None, separate=True
        )
        result = self._count(await pending)
        if result.timed_out:
            late = TimeoutError(f"{shlex.join(cmd)[:200]}: was ended after {timeout} seconds")
            if so_far := result.output + (result.stderr or ""):
                vars(late)["truncated_output"] = so_far  # where Inspect looks for it, to show it to the model
            raise late
        errors = result.stderr or ""
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        if result.truncated or len(result.output.encode()) > most or len(errors.encode()) > most:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.output)
        code = 1 if result.exit_code is None else result.exit_code
        if code == 126 and "permission denied" in errors.lower():
            raise PermissionError(errno.EACCES, errors.strip(), cmd[0])
        return ExecResult(code == 0, code, result.output, errors)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file, as the sandbox's user; see Inspect's `SandboxEnvironment.write_file`.

        Args:
            file: its path.
            contents: its contents.

        Raises:
            OSError: it cannot be written: a `PermissionError`, an `IsADirectoryError`, or another.
            TimeoutError: it took too long.
            TvsnapError: tvsnap failed.
        """
        data = contents.encode() if isinstance(contents, str) else contents
        if (drawn := _SETUP_FILE.fullmatch(file)) is not None:
            self._setup_files[drawn[1]] = f"tvsnap-{hashlib.sha256(data).hexdigest()[:15]}"
        result = await self._run(_WRITE, file, data)
        if not result.success:
            raise _error(result.stderr, file)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Returns the contents of a file, read by the sandbox's user; see Inspect's `SandboxEnvironment.read_file`.

        Args:
            file: its path.
            text: decode it as UTF-8.

        Raises:
            OSError: it cannot be read: a `FileNotFoundError`, a `PermissionError`, an `IsADirectoryError`, or another.
            UnicodeDecodeError: it is no text.
            OutputLimitExceededError: it is larger than Inspect's limit.
            TimeoutError: it took too long.
            TvsnapError: tvsnap failed.
        """
        result = await self._run(_SIZE, file)
        if not result.success:
            raise _error(result.stderr, file)
        if int(result.stdout) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        fetched = await self.rollout.get(self._without_chance(self._path(file)), timeout=FILE_TIMEOUT)
        self._count(fetched.result)
        data = await in_thread(None, fetched.read)
        return data.decode() if text else data

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Returns how to examine the sandbox: by a shell in a fork of its state, which changes nothing.

        Args:
            user: ignored: it is the image's.

        Raises:
            ConnectionError: the sample has ended, or its state can neither be forked nor rebuilt.
        """
        rollout = self.rollout
        try:
            await rollout.settled()
            await rollout.snapshot_if_idle()
        except Exception as error:
            raise ConnectionError(f"no shell can be opened in the sandbox: {error}") from error
        return SandboxConnection(type="tvsnap", command=shlex.join(cache_options(self.config).shell(rollout.state)))

    def default_polling_interval(self) -> float:
        """Returns the seconds between two polls of a program in the background."""
        return 0.2

    async def _with_input(self, command: str, data: bytes, user: str | None) -> str:
        """Returns a command that reads `data` from its standard input; long data is first put into a file."""
        if len(data) <= _INLINE_INPUT and b"\0" not in data:
            try:
                return f"printf %s {shlex.quote(data.decode())} | {command}"
            except UnicodeDecodeError:
                pass
        path = f"/tmp/.tvsnap-input-{self._inputs}"
        self._inputs += 1
        self._count(await self.rollout.put(data, path, user=user, timeout=FILE_TIMEOUT))
        return f"exec <{path} && rm -f {path} && {command}"

    async def _run(self, script: str, file: str, data: bytes | None = None) -> ExecResult[str]:
        path = self._without_chance(self._path(file))
        return await self.exec(["/bin/bash", "-c", script, "bash", path], data, cwd="/", timeout=FILE_TIMEOUT)

    def _path(self, path: str) -> str:
        return posixpath.join(self._cwd, path)

    def _count(self, result: ToolResult) -> ToolResult:
        self.sources[result.source] += 1
        return result

    def _without_chance(self, text: str) -> str:
        """Returns a text with Inspect's random names of setup scripts replaced by names derived from their contents."""

        def settled(match: re.Match[str]) -> str:
            return "/tmp/" + self._setup_files.get(match[1], match[1])

        return _SETUP_FILE.sub(settled, text)


def _error(message: str, file: str) -> OSError:
    """Returns the error that Inspect expects if a file could not be read or written."""
    error = next((kind for text, kind in _ERRORS.items() if text in message.lower()), None)
    if error is None:
        return OSError(errno.EIO, message.strip(), file)
    return type(error)(error.errno, error.strerror, file)
