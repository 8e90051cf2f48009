"""Harbor's environment: its start and end, its image and limits, and its commands."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvsnap.images import Image, ImageBuildError
from tvsnap.images.descriptions.detect import SPEC_FILE
from tvsnap.images.descriptions.spec import name_from
from tvsnap.images.errors import ImageSpecError
from tvsnap.model.arguments import outcome_of
from tvsnap.model.errors import MachineLacks, TvsnapError
from tvsnap.model.limits import MIB, Limits
from tvsnap.model.network import Network
from tvsnap.model.services import ImageService
from tvsnap.plugins.client.protocols import AnyAsyncCache
from tvsnap.plugins.harnesses.caches import shared_cache
from tvsnap.plugins.harnesses.clues import reads_agent_logs
from tvsnap.plugins.harnesses.harbor.host import (
    COMPOSE_FILE_NAME,
    DOCKERFILE_NAME,
    MAIN_SERVICE_NAME,
    EnvironmentCapabilities,
    EnvironmentPaths,
    EnvironmentResourceCapabilities,
    ExecResult,
    NetworkMode,
    NetworkPolicy,
    ResourceMode,
    SandboxBuildFailedError,
    require_agent_environment_definition,
)
from tvsnap.plugins.harnesses.harbor.options import TvsnapOptions, cache_options
from tvsnap.plugins.harnesses.harbor.services import TrialServices, not_running
from tvsnap.plugins.harnesses.harbor.trial import OUTPUT
from tvsnap.plugins.tasks import TASK_TOML

MOST_MEMORY = 1 << 40
"""Bytes of memory that a sandbox of a server may use if it has no limit: as much as the server's machine has."""
_REPORTED: set[str] = set()
"""Reasons, in words, for which this machine builds no images; each is logged once in this process."""
SERVICE_LOGS = "services"
"""The folder of a trial with the output of its task's other services, in a file NAME.log each."""


class TvsnapEnvironment(TrialServices):
    """A Harbor environment whose commands run in tvsnap's sandboxes, or are answered from its graph.

    Attributes:
        options_model: the class of its options, for `harbor environment schema`.
        options: those of this environment.
    """

    options_model = TvsnapOptions

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
        super().__init__(*args, **kwargs)
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
            cache_options(TvsnapOptions.of(kwargs))

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
            self._lacks = f"{self.environment_name}: no image: {_reason(error)}"
            if isinstance(error, MachineLacks) and str(error) not in _REPORTED:
                _REPORTED.add(str(error))
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
            cwd: the folder in which it starts; by default the task's or the image's working directory.
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
            return not_running(MAIN_SERVICE_NAME)
        if self._agent_logs and reads_agent_logs(command):
            await self._put_agent_logs()
        arguments: dict[str, Any] = {"command": self._numbered(command)}
        if where := cwd or self.task_env_config.workdir:
            arguments["cwd"] = where
        if variables := self._merge_env(env):
            arguments["env"] = {name: str(value) for name, value in variables.items()}
        if (who := self._resolve_user(user)) is not None:
            arguments["user"] = str(who)
        return await self._exec(arguments, timeout_sec, self._grade_of(command))

    def _grade_of(self, command: str) -> tuple[str, ...] | None:
        """Returns the files in which a command leaves a reward; None if it is not the verifier's."""
        inside = EnvironmentPaths.for_os(self.os)
        if str(inside.verifier_dir / self.trial_paths.test_stdout_path.name) not in command:
            return None
        return str(inside.reward_text_path), str(inside.reward_json_path)


def _reason(error: Exception) -> str:
    """Returns why there is no image, with Harbor's own way out in place of that of the command line."""
    reason = re.sub("tvsnap image build .*? --from-dockerfile", "harbor run --force-build", str(error))
    return f"{reason}\n{error.output}" if isinstance(error, ImageBuildError) and error.output else reason


def _network(policy: NetworkPolicy) -> Network:
    """Converts a policy of Harbor's into what sandboxes may reach."""
    if policy.network_mode == NetworkMode.PUBLIC:
        return Network(public=True)
    return Network.of([host.removeprefix("*") for host in policy.allowed_hosts])
