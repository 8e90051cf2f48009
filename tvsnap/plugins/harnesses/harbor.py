"""Harbor's environment on tvsnap: `harbor run --environment-import-path tvsnap.integrations.harbor:TvsnapEnvironment`.

Everything that Harbor requests from a trial's environment is a call of one rollout: recorded, and answered if possible.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tvsnap.images import Image, ImageBuildError
from tvsnap.images.descriptions.detect import SPEC_FILE, TASK_TOML
from tvsnap.images.descriptions.spec import name_from
from tvsnap.images.errors import ImageSpecError
from tvsnap.model.arguments import outcome_of
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import MachineLacks, TvsnapError, UsageError
from tvsnap.model.limits import MIB, Limits
from tvsnap.model.network import Network
from tvsnap.model.services import ImageService
from tvsnap.plugins.harnesses.caches import CacheOptions, shared_cache
from tvsnap.plugins.harnesses.clues import Numbered, lacking_network, reads_agent_logs
from tvsnap.plugins.harnesses.stopping import stop_command
from tvsnap.protocols import AnyAsyncCache, AnyAsyncRollout

try:
    from harbor.constants import MAIN_SERVICE_NAME
    from harbor.environments.base import (
        BaseEnvironment,
        EnvironmentPath,
        ExecResult,
        SandboxBuildFailedError,
        ServiceOperationsUnsupportedError,
    )
    from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
    from harbor.environments.definition import COMPOSE_FILE_NAME, DOCKERFILE_NAME, require_agent_environment_definition
    from harbor.models.task.config import NetworkMode, NetworkPolicy
    from harbor.models.trial.config import ResourceMode
    from harbor.models.trial.paths import EnvironmentPaths
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.harbor needs Harbor, of which {error.name} is missing: "
        "pip install 'tvsnap[harbor]' with Python 3.12 or newer",
        name=error.name,
    ) from error

try:
    from harbor.environments.options import EnvironmentOptions
except ModuleNotFoundError:  # Harbor 0.25 knows of no options

    class EnvironmentOptions(BaseModel):  # type: ignore[no-redef]
        """Takes no other options than those that are declared."""

        model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


OUTPUT = 16 * MIB
"""The most bytes that one command may print; more is cut in the middle."""
MOST_MEMORY = 1 << 40
"""Bytes of memory that a sandbox of a server may use where it has no limit: as much as the server's machine has."""
_TOLD: set[str] = set()
"""What this machine lacks for building images, as it was told in this process: once, and not for each trial."""
SERVICE_LOGS = "services"
"""The folder of a trial with what its task's other services printed, in a file NAME.log each."""


class TvsnapOptions(EnvironmentOptions):
    """The options of the environment: a job's `environment.kwargs`, or `--ek`."""

    home: str | None = Field(None, description="The data directory; see tvsnap.Cache.")
    url: str | None = Field(
        None,
        description="The address of a server, in place of a data directory; by default TVSNAP_URL. See tvsnap.connect.",
    )
    token: str | None = Field(
        None,
        repr=False,
        description="What the server lets in with; by default TVSNAP_TOKEN, which is not written into the job's files.",
    )
    image: str | None = Field(
        None, description="The name of an image that is used instead of the one that the task's folder describes."
    )
    backend: str = Field("local", description="The backend of the sandboxes; see tvsnap.Cache.")
    policy: str = Field("default", description="When snapshots are taken; see tvsnap.Cache.")
    use_cache: bool = Field(True, strict=True, description="False to execute every call; see tvsnap.Cache.")
    salt: str | None = Field(None, description="Trials share states only with those of the same salt.")
    timeouts: Literal["private", "shared"] = Field(
        "private", description="Whether commands that timed out while they worked answer others; see tvsnap.Cache."
    )
    agent_logs: Literal["when-read", "always"] = Field(
        "when-read",
        description="When the agent's logs that Harbor wrote on this machine (trajectories with times and random "
        "names, which differ in each trial) are put back into the sandbox: when-read, once a command or a test names "
        "them; or always, as Harbor's other environments do, after which no verifier is answered.",
    )
    deadline: float | None = Field(
        None,
        description="Seconds from the start by which the agent must be done, so that no command waits for another "
        "trial until it is too late; by default the time that the task gives its agent. Set it if the job gives less.",
    )
    grade_executions: int = Field(
        1,
        description="How many trials execute the verifier in one state before its reward answers others; see "
        "tvsnap.Cache.",
    )

    @field_validator("home", "image", "salt", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Returns a path, or digits, which --ek reads as a number, as a text."""
        return str(value) if isinstance(value, (int, os.PathLike)) and not isinstance(value, bool) else value

    @classmethod
    def of(cls, kwargs: Mapping[str, Any]) -> TvsnapOptions:
        """Returns the options among an environment's arguments.

        Args:
            kwargs: the arguments by name, with those of Harbor.

        Raises:
            ValueError: an option makes no sense.
        """
        try:
            chosen: TvsnapOptions = cls.model_validate(
                {name: kwargs[name] for name in cls.model_fields if name in kwargs}
            )
        except ValidationError as error:
            wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False)]
            raise ValueError("; ".join(wrong)) from None
        return chosen


class TvsnapEnvironment(BaseEnvironment):
    """A Harbor environment whose commands run in tvsnap's sandboxes, or are answered from its graph.

    Attributes:
        options_model: what options there are, for `harbor environment schema`.
        options: those of this environment.
    """

    options_model = TvsnapOptions
    options: TvsnapOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """
        Args:
            args: Harbor's arguments for the trial; see its `BaseEnvironment`.
            kwargs: likewise, and the fields of `TvsnapOptions`.

        Raises:
            ValueError: an argument makes no sense, the task requests something that tvsnap does not have, or no
                sandbox can be made by this process, and there is no server.
            FileNotFoundError: the task names no image.
        """
        self.options = TvsnapOptions.of(kwargs)
        self._options = _cache_options(self.options)
        self._held: dict[str, Path] = {}  # the agents' logs by their folders inside, until they are read
        self._numbered = Numbered()
        self._rollout: AnyAsyncRollout | None = None
        self._image: Image | None = None
        self._sources = {"hit": 0, "coalesced": 0, "executed": 0}
        self._tool_time = 0.0
        self._strained: list[str] = []
        self._outcome: str | None = None  # what ended the trial, in words; None where it goes on
        self._warned = False
        self._stopped: set[str] = set()
        self._lacks = ""  # why it did not start; empty if it did
        ours = TvsnapOptions.__annotations__.keys()
        super().__init__(*args, **{name: value for name, value in kwargs.items() if name not in ours})
        if self.extra_docker_compose_paths:
            raise ValueError(
                f"extra_docker_compose: {self.extra_docker_compose_paths[0]}: only the Compose file of the task's own "
                "folder is read (environment/docker-compose.yaml); bring what the other file says into it"
            )
        for mount in self._host_mounts:
            if mount["type"] != "bind" or not mount.get("read_only"):
                raise ValueError(
                    f"mount {mount['target']}: sandboxes of tvsnap share no files with this machine; "
                    "mark it read_only to have it copied, or bring what it holds into the task's image"
                )

    @staticmethod
    def type() -> str:
        """Returns Harbor's name for this environment."""
        return "tvsnap"

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Checks, once before all trials, that options make sense and that this process can make sandboxes.

        Args:
            kwargs: the options; None with Harbor 0.25, which does not tell them.

        Raises:
            ValueError: they do not, or it cannot.
        """
        if kwargs is not None:
            super().preflight(kwargs)
            _cache_options(TvsnapOptions.of(kwargs))

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Its capabilities: networks that are restricted by name, but not changed after the start."""
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            docker_compose=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Returns its capabilities for resources: limits, but no reservations."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        described = self.options.image is not None or (self._folder() / SPEC_FILE).is_file()
        if not described:
            require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)

    # Its beginning and its end.

    async def start(self, force_build: bool) -> None:
        """Begins the rollout, and builds its image if that does not exist.

        Args:
            force_build: build the Dockerfile although the task names an image.

        Raises:
            SandboxBuildFailedError: there is no image; the message says why.
            TvsnapError: no sandbox can be made.
        """
        cache = await shared_cache(self._options)
        try:
            self._image = await self._find_image(cache, force_build)
        except (ImageBuildError, ImageSpecError, MachineLacks) as error:
            self._lacks = f"{self.environment_name}: no image: {_why(error)}"
            if isinstance(error, MachineLacks) and str(error) not in _TOLD:
                _TOLD.add(str(error))
                self.logger.error(f"tvsnap: images cannot be built on this machine. {error}")
            raise SandboxBuildFailedError(self._lacks) from None
        rollout = cache.rollout(
            self._image,
            self.environment_name,
            self.options.salt,
            self.session_id,
            limits=self._limits(await asyncio.to_thread(cache.cache.limits_for, self._image)),
            network=_network(self.network_policy),
            deadline=self._image.timeouts.agent if self.options.deadline is None else self.options.deadline,
        )
        self._rollout = rollout
        try:
            if self.task_env_config.workdir:
                await self.ensure_dirs([self.task_env_config.workdir], chmod=False)
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            for mount in self._host_mounts:
                upload = self.upload_dir if Path(mount["source"]).is_dir() else self.upload_file
                await upload(mount["source"], mount["target"])
            await self._upload_environment_dir_after_start()
        except BaseException as error:
            self._outcome = outcome_of(error)
            await self.stop(delete=True)
            raise

    async def stop(self, delete: bool) -> None:
        """Ends the rollout, and writes its results to `tvsnap-*.json` in the trial's folder.

        Args:
            delete: whether Harbor will not return to it. The state stays in the graph in any case, where `tvsnap shell`
                opens it, for as long as the data directory has room.
        """
        rollout = self._rollout
        if rollout is None:
            return
        try:
            await self._fetch_service_logs()
            await self._write_report(rollout)
        finally:
            self._rollout = None
            await rollout.close(self._outcome)

    async def _fetch_service_logs(self) -> None:
        if self._image is None or not any(self._sources.values()):
            return
        for service in self._image.services.running:
            await self._fetch_log(service)

    async def _fetch_log(self, service: ImageService) -> None:
        target = self.trial_paths.trial_dir / SERVICE_LOGS / f"{service.name}.log"
        try:
            await self._get(service.log, target, "file")
        except (OSError, TvsnapError) as error:
            self.logger.warning(f"{self.session_id}: what {service.name} printed could not be fetched: {error}")

    async def _write_report(self, rollout: AnyAsyncRollout) -> None:
        if self._image is None or not any(self._sources.values()):
            return
        await rollout.settled()
        role = self.session_id.partition("__")[2].partition("__")[2] or self.session_id
        report = {
            "home": self._options.place,
            "image": self._image.name,
            "rollout": rollout.id,
            "root": rollout.root,
            "state": rollout.state,
            "private": rollout.private,
            "calls": sum(self._sources.values()),
            **self._sources,
            "missed": await self._missed(rollout.id),
            "tool_time_s": round(self._tool_time, 3),
            "strained_grades": self._strained,
        }
        path = self.trial_paths.trial_dir / f"tvsnap-{role}.json"
        path.write_text(json.dumps(report, indent=2) + "\n")
        self.logger.debug(f"tvsnap: {report}")

    async def _missed(self, rollout: str | None) -> dict[str, int]:
        """Returns why calls of the rollout were executed, with the number of calls of each reason, the most first."""
        if rollout is None:
            return {}
        graph = (await shared_cache(self._options)).cache.graph
        steps = await asyncio.to_thread(graph.steps, rollout)
        return dict(Counter(step.note for step in steps if step.note and step.source != "failed").most_common())

    async def attach(self) -> None:
        """Opens a shell in a fork of the present state, replacing this process."""
        rollout = self._running()
        await rollout.settled()
        await rollout.snapshot_if_idle()
        shell = self._options.shell(rollout.state)
        cache = await shared_cache(self._options)
        await self.stop(delete=False)
        await cache.close()
        os.execvp(shell[0], shell)

    # Its image and its limits.

    def _folder(self) -> Path:
        """Returns the folder that describes the image: the task's, for the environment of its agent."""
        folder: Path = self.environment_dir
        is_task = folder.name == "environment" and (folder.parent / TASK_TOML).is_file()
        return folder.parent if is_task else folder

    async def _find_image(self, cache: AnyAsyncCache, force_build: bool) -> Image:
        if self.options.image is not None:
            return await cache.images.get(self.options.image)
        folder, image = self._folder(), self.task_env_config.docker_image
        if (folder / SPEC_FILE).is_file():
            return await cache.images.build(folder)
        own = folder == self.environment_dir  # of a verifier that has an environment of its own
        from_dockerfile = bool(image) and force_build and (self.environment_dir / DOCKERFILE_NAME).is_file()
        return await cache.images.build(
            folder,
            name=name_from(Path(f"{self.environment_name}-{folder.name}")) if own else None,
            from_dockerfile=from_dockerfile,
            docker_image=None if from_dockerfile else image,
            # Harbor names the user of each command.
            task_user=own or (self.environment_dir / COMPOSE_FILE_NAME).is_file(),
        )

    def _limits(self, usual: Limits) -> Limits:
        """Returns the sandbox's limits: Harbor's settings, and otherwise the image's.

        Of an image with several services, the limits are those of all; Harbor's are those of the main one.
        """
        cpus = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        if self._resource_mode("memory") == ResourceMode.IGNORE:
            here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            memory = (MOST_MEMORY if self._options.url else here) // MIB
        if self._image is not None and self._image.services:
            whole = self._image.limits
            if cpus and self._override_cpus is None:
                cpus = max(cpus, whole.cpus or 0.0)
            if memory and self._override_memory_mb is None:
                memory = max(memory, (whole.memory or 0) // MIB)
        return replace(
            usual,
            cpus=float(cpus or 0.0),
            memory=int(memory * MIB) if memory else usual.memory,
            disk=self._effective_storage_mb * MIB if self._effective_storage_mb else usual.disk,
            output=max(usual.output, OUTPUT),
        )

    # Commands.

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command in a fresh bash, or answers it from the graph.

        Commands that are awaited at the same time run side by side; see `AsyncRollout.exec`.

        Args:
            command: the command.
            cwd: where it starts; by default the task's or the image's working directory.
            env: environment variables in addition to the task's.
            timeout_sec: seconds after which it is ended; None for never.
            user: the user that runs it; by default the phase's user, or the image's.

        Returns:
            Its output, standard output and standard error as they interleave, and its exit status.

        Raises:
            RuntimeError: it was ended by its timeout, as with Harbor's Docker environment.
            TvsnapError: tvsnap failed, not the command.
        """
        if MAIN_SERVICE_NAME in self._stopped:
            return _not_running(MAIN_SERVICE_NAME)
        if self._held and reads_agent_logs(command):
            await self._put_held()
        arguments: dict[str, Any] = {"command": self._numbered(command)}
        if where := cwd or self.task_env_config.workdir:
            arguments["cwd"] = where
        if variables := self._merge_env(env):
            arguments["env"] = {name: str(value) for name, value in variables.items()}
        if (who := self._resolve_user(user)) is not None:
            arguments["user"] = str(who)
        return await self._exec(arguments, timeout_sec, self._grade_of(command))

    async def _exec(
        self, arguments: Mapping[str, Any], timeout_sec: int | None, grade: tuple[str, ...] | None = None
    ) -> ExecResult:
        rollout = self._running()
        if grade is None and "service" not in arguments:
            pending = rollout.exec(**arguments, timeout=timeout_sec)
        else:
            pending = rollout.call("exec", arguments, timeout_sec, grade=grade)
        try:
            result = self._counted(await pending)
        except BaseException as error:
            self._outcome = outcome_of(error)
            raise
        self._outcome = None  # a trial may go on after its agent was cancelled
        if grade is not None and result.strain:
            self._strained.append(result.strain)
            self.logger.warning(
                f"{self.session_id}: the verifier {result.strain}: its reward may be the machine's doing"
            )
        if result.truncated:
            self.logger.warning(f"{self.session_id}: what a command printed was cut in the middle ({OUTPUT} bytes)")
        if result.exit_code != 0:
            self._look_for_lacking_network(result.output)
        if result.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        if result.output and (emit := self._output_callback()):
            await emit(result.output, "stdout")
        return ExecResult(stdout=result.output, return_code=result.exit_code if result.exit_code is not None else 1)

    def _grade_of(self, command: str) -> tuple[str, ...] | None:
        """Returns the files in which a command leaves a reward; None if it is not the verifier's."""
        inside = EnvironmentPaths.for_os(self.os)
        if str(inside.verifier_dir / self.trial_paths.test_stdout_path.name) not in command:
            return None
        return str(inside.reward_text_path), str(inside.reward_json_path)

    def _counted(self, result: ToolResult) -> ToolResult:
        self._sources[result.source] += 1
        self._tool_time += result.duration
        return result

    def _running(self) -> AnyAsyncRollout:
        if self._rollout is None:
            raise RuntimeError(self._lacks or f"{self.session_id}: the environment is not running")
        return self._rollout

    def _look_for_lacking_network(self, output: str) -> None:
        """Warns once if a command seems to have failed for lack of a network."""
        line = lacking_network(output)
        if line is None or self._warned:
            return
        self._warned = True
        policy = self.network_policy.network_mode.value
        way_out = (
            "see that this machine reaches it, or through which proxy it does (TVSNAP_NETWORK_PROXY)"
            if policy != NetworkMode.NO_NETWORK.value
            else "the task's network_mode allows none; where it needs one, its reward means nothing"
        )
        self.logger.warning(
            f"{self.session_id}: something failed for want of a network, which is {policy} here: {line!r}; {way_out}"
        )

    # Files.

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
            self._held[target_dir] = source
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
            reward = _reward(target / inside.reward_text_path.name, target / inside.reward_json_path.name)
            if reward is not None:
                await self._running().record(reward)

    async def empty_dirs(self, dirs: Sequence[EnvironmentPath], *, chmod: bool = True) -> ExecResult | None:
        """Empties directories, and creates those that are missing; see Harbor's `BaseEnvironment`.

        Args:
            dirs: the directories.
            chmod: let any user write there.
        """
        self._forget_held(dirs)
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
        self._forget_held(remove_dirs)
        return await super().reset_dirs(remove_dirs=remove_dirs, create_dirs=create_dirs, chmod_dirs=chmod_dirs)

    async def _put(self, source: Path, target: str) -> None:
        if bool(self._held) and await asyncio.to_thread(reads_agent_logs, source):
            await self._put_held()
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

    # The other services of the task.

    async def service_exec(
        self,
        command: str,
        *,
        service: str | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command in a service, or answers it from the graph.

        In another service than the main one, a command is one of sh, as with Harbor's Docker environment, and has the
        service's working directory, variables and user, unless they are given.

        Args:
            command, cwd, env, timeout_sec, user: see `exec`.
            service: the service's name in the Compose file; by default the main one.

        Raises:
            ServiceOperationsUnsupportedError: the task has no such service.
            RuntimeError, TvsnapError: see `exec`.
        """
        if service is None or self.is_main_service(service):
            return await self.exec(command, cwd=cwd, env=env, timeout_sec=timeout_sec, user=user)
        target = self._service(service)
        if service in self._stopped:
            return _not_running(service)
        options = {"cwd": cwd, "env": env, "user": None if user is None else str(user)}
        arguments = {name: value for name, value in options.items() if value}
        inside = f"exec sh -c {shlex.quote(self._numbered(command))}"
        return await self._exec({"command": inside, "service": target.name, **arguments}, timeout_sec)

    async def service_download_file(
        self, source_path: str, target_path: Path | str, *, service: str | None = None
    ) -> None:
        """Copies a file of a service to this machine; see `download_file`.

        Args:
            source_path, target_path: see `download_file`.
            service: the service's name in the Compose file; by default the main one.

        Raises:
            ServiceOperationsUnsupportedError: the task has no such service.
            OSError: see `download_file`.
        """
        await self.download_file(self._path_in(service, source_path), target_path)

    async def service_download_dir(
        self, source_dir: str, target_dir: Path | str, *, service: str | None = None
    ) -> None:
        """Copies the contents of a folder of a service to this machine; see `download_dir`.

        Args:
            source_dir, target_dir: see `download_dir`.
            service: the service's name in the Compose file; by default the main one.

        Raises:
            ServiceOperationsUnsupportedError: the task has no such service.
            OSError: see `download_dir`.
        """
        await self.download_dir(self._path_in(service, source_dir), target_dir)

    async def stop_service(self, service: str) -> None:
        """Ends the processes of a service; its files stay. A command in it fails from then on, as with Docker.

        Args:
            service: the service's name in the Compose file. Its program is told to end by SIGTERM, and has 10 s for
                that; the main service ends at once where it has only a shell.

        Raises:
            ServiceOperationsUnsupportedError: the task has no such service.
            RuntimeError: processes of it remain.
        """
        image = self._image
        program = image.services.program if image is not None else None
        target = program if self.is_main_service(service) else self._service(service)
        result = await self._exec({"command": stop_command(target), "cwd": "/", "user": "root"}, None)
        if result.return_code != 0:
            raise RuntimeError(f"the service {service} could not be stopped: {result.stdout}")
        self._stopped.add(service)

    def _service(self, name: str) -> ImageService:
        self._running()
        assert self._image is not None
        service = self._image.services.named(name)
        if service is None:
            have = ", ".join(self._image.services.names)
            raise ServiceOperationsUnsupportedError(f"the task has no service {name!r}; have: {have}")
        return service

    def _path_in(self, service: str | None, path: str) -> str:
        """Returns the path, in the sandbox, of a path in a service."""
        if service is None or self.is_main_service(service):
            return path
        return f"{self._service(service).root}/{path.lstrip('/')}"

    # The agent's logs, which differ in each trial.

    def _is_agent_logs(self, source: Path, target_dir: str) -> bool:
        paths, inside = self.trial_paths, EnvironmentPaths.for_os(self.os)
        return (source, PurePosixPath(target_dir)) in (
            (paths.agent_dir.resolve(), inside.agent_dir),
            (paths.user_agent_dir.resolve(), inside.user_agent_dir),
        )

    async def _put_held(self) -> None:
        folders, self._held = self._held, {}
        for target, source in folders.items():
            if source.is_dir():
                await self._put(source, target)

    def _forget_held(self, emptied: Sequence[EnvironmentPath]) -> None:
        gone = set(map(PurePosixPath, emptied))
        self._held = {target: source for target, source in self._held.items() if PurePosixPath(target) not in gone}


def _not_running(service: str) -> ExecResult:
    return ExecResult(stdout=f'service "{service}" is not running\n', return_code=1)


def _cache_options(chosen: TvsnapOptions) -> CacheOptions:
    settings = ("backend", "policy", "use_cache", "timeouts", "grade_executions")
    try:
        options = CacheOptions.chosen(
            *(chosen.home, chosen.url, chosen.token), **{name: getattr(chosen, name) for name in settings}
        )
    except UsageError as error:
        raise ValueError(str(error)) from None
    if options.url is None and (not sys.platform.startswith("linux") or os.geteuid() != 0):
        raise ValueError(
            "tvsnap makes its sandboxes in this process, which needs Linux and root: run Harbor as root, or give the "
            "url of a server that root runs (tvsnap serve)"
        )
    return options


def _why(error: Exception) -> str:
    """Returns why there is no image, with Harbor's own way out in place of that of the command line."""
    reason = re.sub("tvsnap image build .*? --from-dockerfile", "harbor run --force-build", str(error))
    return f"{reason}\n{error.output}" if isinstance(error, ImageBuildError) and error.output else reason


def _reward(text: Path, data: Path) -> float | None:
    """Returns the reward of the files that a verifier left, as Harbor reads them; None if there is no single one."""
    path = data if data.is_symlink() or data.exists() else text
    if path.is_symlink() or not path.is_file():
        return None
    try:
        content = path.read_text()
        rewards = {"reward": float(content)} if path == text else json.loads(content)
        values = rewards.values() if isinstance(rewards, dict) else [None]
        numbers = all(isinstance(value, (int, float)) and math.isfinite(value) for value in values)
        return float(rewards["reward"]) if numbers and "reward" in rewards else None
    except (ValueError, OverflowError, RecursionError):
        return None


def _network(policy: NetworkPolicy) -> Network:
    """Converts a policy of Harbor's into what sandboxes may reach."""
    if policy.network_mode == NetworkMode.PUBLIC:
        return Network(public=True)
    return Network.of([host.removeprefix("*") for host in policy.allowed_hosts])
