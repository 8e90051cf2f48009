"""Files between the sandbox and this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tvsnap.plugins.harnesses.clues import reads_agent_logs
from tvsnap.plugins.harnesses.harbor.host import EnvironmentPath, EnvironmentPaths, ExecResult
from tvsnap.plugins.harnesses.harbor.rewards import read_reward
from tvsnap.plugins.harnesses.harbor.trial import Trial


class TrialFiles(Trial):
    """A trial with methods for files.

    The agent's logs that Harbor wrote on this machine differ in each trial: they are put into the sandbox when
    something there reads them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See `TvsnapEnvironment`."""
        self._agent_logs: dict[str, Path] = {}  # folders here by folders inside, until they are read
        super().__init__(*args, **kwargs)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copies a file of this machine into the sandbox, as root.

        Args:
            source_path: the file.
            target_path: its path inside; the directories above it are created.

        Raises:
            OSError: it cannot be written.
        """
        await self._put(Path(source_path).resolve(), self._numbered(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copies the contents of a folder of this machine into a folder of the sandbox, as root.

        Args:
            source_dir: the folder.
            target_dir: the folder inside, which is created if it is missing.

        Raises:
            OSError: it cannot be written.
        """
        source = Path(source_dir).resolve()
        if self.options.agent_logs == "when-read" and self._is_agent_logs(source, target_dir):
            self._agent_logs[target_dir] = source
            return
        await self._put(source, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copies a file of the sandbox to this machine.

        Args:
            source_path: the file's path inside.
            target_path: the file here, which is replaced.

        Raises:
            OSError: there is no such file, or it cannot be written here.
        """
        if self._lacks:  # see `download_dir`
            return
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        await self._get(self._numbered(source_path), target, "file")

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copies the contents of a folder of the sandbox to this machine; existing files are overwritten.

        Args:
            source_dir: the folder inside.
            target_dir: the folder here.

        Raises:
            OSError: there is no such folder, or it cannot be written here.
        """
        if self._lacks:  # Harbor asks for logs all the same, and would tell of a second error
            return
        target = Path(target_dir)
        target.mkdir(parents=True, exist_ok=True)
        await self._get(source_dir, target, "directory")
        tests = target / self.trial_paths.test_stdout_path.name
        if tests.is_file() and not tests.is_symlink():
            self._look_for_lacking_network(tests.read_text(errors="replace"))
        inside = EnvironmentPaths.for_os(self.os)
        if PurePosixPath(source_dir) == PurePosixPath(str(inside.verifier_dir)):
            reward = read_reward(target / inside.reward_text_path.name, target / inside.reward_json_path.name)
            if reward is not None:
                await self._running().record(reward)

    async def empty_dirs(self, dirs: Sequence[EnvironmentPath], *, chmod: bool = True) -> ExecResult | None:
        """Empties directories, and creates those that are missing; see Harbor's `BaseEnvironment`.

        Args:
            dirs: the directories.
            chmod: let any user write there.
        """
        self._forget_agent_logs(dirs)
        return await super().empty_dirs(dirs, chmod=chmod)

    async def reset_dirs(
        self,
        *,
        remove_dirs: Sequence[EnvironmentPath],
        create_dirs: Sequence[EnvironmentPath],
        chmod_dirs: Sequence[EnvironmentPath] | None = None,
    ) -> ExecResult:
        """Removes directories, and creates others; see Harbor's `BaseEnvironment`.

        Args:
            remove_dirs, create_dirs, chmod_dirs: the directories; any user may write to the last ones.
        """
        self._forget_agent_logs(remove_dirs)
        return await super().reset_dirs(remove_dirs=remove_dirs, create_dirs=create_dirs, chmod_dirs=chmod_dirs)

    async def _put(self, source: Path, target: str) -> None:
        if bool(self._agent_logs) and await asyncio.to_thread(reads_agent_logs, source):
            await self._put_agent_logs()
        result = self._counted(await self._running().put(source, target, user="root"))
        if result.exit_code != 0:
            raise OSError(f"{source} could not be copied into the sandbox: {result.output.strip()}")

    async def _get(self, path: str, target: Path, kind: str) -> None:
        fetched = await self._running().get(path)
        self._counted(fetched.result)
        if fetched.kind not in (kind, None):
            raise OSError(f"{path} is a {fetched.kind} in the sandbox, not a {kind}")
        left_out = await asyncio.to_thread(fetched.extract, target)
        if left_out:
            self.logger.warning(f"{self.session_id}: not all of {path} could be fetched, as {left_out[0]}")

    def _is_agent_logs(self, source: Path, target_dir: str) -> bool:
        paths, inside = self.trial_paths, EnvironmentPaths.for_os(self.os)
        return (source, PurePosixPath(target_dir)) in (
            (paths.agent_dir.resolve(), inside.agent_dir),
            (paths.user_agent_dir.resolve(), inside.user_agent_dir),
        )

    async def _put_agent_logs(self) -> None:
        folders, self._agent_logs = self._agent_logs, {}
        for target, source in folders.items():
            if source.is_dir():
                await self._put(source, target)

    def _forget_agent_logs(self, emptied: Sequence[EnvironmentPath]) -> None:
        gone = set(map(PurePosixPath, emptied))
        self._agent_logs = {
            target: source for target, source in self._agent_logs.items() if PurePosixPath(target) not in gone
        }
