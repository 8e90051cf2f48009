"""tinker-cookbook's sandbox on tvsnap: `cli_main(..., sandbox_factory=sandbox_factory())` of its Harbor recipe.

Each operation of a sandbox is a call of one rollout, recorded, and answered if possible.
"""

from __future__ import annotations

import base64
import posixpath
import shlex
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from tvsnap.aio.threads import in_thread
from tvsnap.model.arguments import check_text
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import SandboxDied, TvsnapError, UsageError
from tvsnap.plugins.client.protocols import AnyAsyncRollout
from tvsnap.plugins.harnesses.caches import CacheOptions, shared_cache
from tvsnap.plugins.harnesses.images import find_image

try:
    from tinker_cookbook.sandbox.sandbox_interface import SandboxResult, SandboxTerminatedError
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.tinker needs tinker-cookbook, of which {error.name} is missing: "
        "pip install tinker-cookbook",
        name=error.name,
    ) from error

MOST_BYTES = 128 * 1024
"""Bytes of output that are returned where a caller names no number, as in tinker-cookbook's own sandboxes."""


class TvsnapSandbox:
    """A sandbox of tinker-cookbook whose commands run in tvsnap's sandboxes, or are answered from its graph.

    Attributes:
        rollout: the rollout that makes its calls.
        sources: the number of calls by their source.
    """

    def __init__(self, rollout: AnyAsyncRollout) -> None:
        """
        Args:
            rollout: the rollout, which has begun.
        """
        self.rollout = rollout
        self.sources = {"hit": 0, "coalesced": 0, "executed": 0}

    @property
    def sandbox_id(self) -> str:
        """The id of the rollout."""
        return self.rollout.id or self.rollout.root

    async def send_heartbeat(self, timeout: int = 30) -> None:
        """Does nothing: a sandbox lives as long as its rollout.

        Args:
            timeout: ignored.
        """

    async def run_command(
        self, command: str, workdir: str | None = None, timeout: int = 60, max_output_bytes: int | None = None
    ) -> SandboxResult:
        """Runs a command in a fresh shell, or answers it from the graph.

        Args:
            command: the command.
            workdir: the folder in which it starts; by default the image's working directory.
            timeout: seconds after which it is ended; its exit status is then 124.
            max_output_bytes: bytes of each stream that are returned, at most; by default 128 KiB.

        Raises:
            SandboxTerminatedError: tvsnap failed, not the command.
        """
        try:
            check_text(command, "the command")
        except UsageError as error:  # the model's, and not tvsnap's
            return SandboxResult(stdout="", stderr=f"{error}\n", exit_code=1)
        arguments: dict[str, Any] = {"command": command, "separate": True}
        if workdir is not None:
            arguments["cwd"] = workdir
        result = await self._result_of(self.rollout.call("exec", arguments, timeout))
        most = MOST_BYTES if max_output_bytes is None else max_output_bytes
        code = 124 if result.timed_out else 1 if result.exit_code is None else result.exit_code
        return _result(_cut(result.output, most), _cut(result.stderr or "", most), code, result)

    async def read_file(self, path: str, max_bytes: int | None = None, timeout: int = 60) -> SandboxResult:
        """Returns the contents of a file as `stdout`; the exit status is 1 if it cannot be read, or is too long.

        Args:
            path: its path.
            max_bytes: the most bytes that are read.
            timeout: seconds that this may take.

        Raises:
            SandboxTerminatedError: tvsnap failed.
        """
        limit = "cat" if max_bytes is None else f"head -c {int(max_bytes)}"
        # As base64, since line ends of output are those of a terminal, and a file's stay as they are.
        command = f'set -o pipefail; {limit} < "$FILE" | base64'
        arguments = {"command": command, "env": {"FILE": path}, "separate": True}
        result = await self._result_of(self.rollout.call("exec", arguments, timeout))
        code = 124 if result.timed_out else 1 if result.exit_code is None else result.exit_code
        if result.truncated:
            return _result("", f"{path}: longer than what a call returns (Limits.output); read a part\n", 1, result)
        text = base64.b64decode(result.output).decode("utf-8", "replace") if code == 0 else ""
        return _result(text, result.stderr or "", code, result)

    async def write_file(
        self, path: str, content: str | bytes, executable: bool = False, timeout: int = 60
    ) -> SandboxResult:
        """Writes a file, and the folders above it; the exit status is 1 if that fails.

        Args:
            path: its path.
            content: its contents.
            executable: whether it may be executed.
            timeout: seconds that this may take.

        Raises:
            SandboxTerminatedError: tvsnap failed.
        """
        try:
            data = check_text(content, "the content").encode() if isinstance(content, str) else content
        except UsageError as error:
            return SandboxResult(stdout="", stderr=f"{error}\n", exit_code=1)
        folder = posixpath.dirname(path)
        if folder:
            folder_result = await self.run_command(f"mkdir -p -- {shlex.quote(folder)}", timeout=timeout)
            if folder_result.exit_code:
                return folder_result
        result = await self._result_of(self.rollout.put(data, path, timeout=timeout))
        if executable and not result.exit_code:
            return await self.run_command(f"chmod +x -- {shlex.quote(path)}", timeout=timeout)
        return _result("", result.output if result.exit_code else "", result.exit_code or 0, result)

    async def cleanup(self) -> None:
        """Ends the rollout. Its states stay in the graph. It may be called again."""
        await self.rollout.close()

    async def _result_of(self, call: Awaitable[ToolResult]) -> ToolResult:
        try:
            result = await call
        except SandboxDied as error:
            raise SandboxTerminatedError(str(error)) from error
        except TvsnapError as error:
            raise SandboxTerminatedError(f"tvsnap failed, not the command: {error}") from error
        self.sources[result.source] += 1
        return result


def sandbox_factory(
    home: Path | str | None = None, *, url: str | None = None, token: str | None = None, **settings: Any
) -> Callable[[Path, int], Awaitable[TvsnapSandbox]]:
    """Returns what tinker-cookbook's Harbor recipe takes as `sandbox_factory`.

    Args:
        home: the data directory; by default the usual one, or the server in `TVSNAP_URL`.
        url: the address of a server, in place of a data directory; see `tvsnap.connect`.
        token: the token that the server asks for; by default `TVSNAP_TOKEN`.
        settings: `backend`, `policy`, `use_cache`, `timeouts` and `grade_executions`, as in `tvsnap.Cache`.

    Returns:
        A function of the folder that describes the image (Dockerfile, image.yaml or a task's) and of a number of
        seconds, which is ignored: a sandbox lives until `cleanup`. It builds the image where that is not there.

    Raises:
        UsageError: there is both a data directory and a server, or a setting makes no sense.
    """
    options = CacheOptions.chosen(home, url, token, **settings)

    async def make(folder: Path, timeout: int = 0) -> TvsnapSandbox:
        cache = await shared_cache(options)
        image = await in_thread(None, partial(find_image, cache.cache.images, str(folder)))
        rollout = cache.rollout(image, Path(folder).resolve().parent.name)
        await rollout.__aenter__()
        return TvsnapSandbox(rollout)

    return make


def _cut(text: str, most: int) -> str:
    data = text.encode()
    return text if len(data) <= most else data[:most].decode(errors="ignore")


def _result(stdout: str, stderr: str, code: int, result: ToolResult) -> SandboxResult:
    metrics = {"source": result.source, "seconds": result.duration}
    return SandboxResult(stdout=stdout, stderr=stderr, exit_code=code, metrics=metrics)
