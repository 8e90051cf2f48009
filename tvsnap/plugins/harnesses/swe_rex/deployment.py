"""A deployment is one rollout."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from typing import Any, Literal

from pydantic import ConfigDict

from tvsnap.aio.threads import in_thread
from tvsnap.model.errors import UsageError
from tvsnap.plugins.harnesses.configuration import RolloutConfig, begin_rollout
from tvsnap.plugins.harnesses.swe_rex.host import (
    AbstractDeployment,
    CombinedDeploymentHook,
    DeploymentHook,
    DeploymentNotStartedError,
    IsAliveResponse,
    get_logger,
)
from tvsnap.plugins.harnesses.swe_rex.runtime import TvsnapRuntime


class TvsnapDeploymentConfig(RolloutConfig):
    """The configuration of `TvsnapDeployment`."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["tvsnap"] = "tvsnap"
    """Tells it from SWE-ReX's own configurations."""

    def get_deployment(self) -> TvsnapDeployment:
        """Returns a deployment with this configuration."""
        return TvsnapDeployment.from_config(self)


class TvsnapDeployment(AbstractDeployment):
    """A SWE-ReX deployment whose commands run in tvsnap's sandboxes, or are answered from its graph.

    Attributes:
        config: its configuration.
        logger: SWE-ReX's logger.
    """

    def __init__(self, *, logger: logging.Logger | None = None, **kwargs: Any) -> None:
        """
        Args:
            logger: its logger; by default SWE-ReX's logger of deployments.
            kwargs: the fields of `TvsnapDeploymentConfig`.
        """
        self.config = TvsnapDeploymentConfig(**kwargs)
        self.logger = logger or get_logger("rex-deploy")
        self._hooks = CombinedDeploymentHook()
        self._runtime: TvsnapRuntime | None = None

    @classmethod
    def from_config(cls, config: TvsnapDeploymentConfig) -> TvsnapDeployment:
        """Returns a deployment.

        Args:
            config: its configuration.
        """
        return cls(**{name: getattr(config, name) for name in TvsnapDeploymentConfig.model_fields})

    def add_hook(self, hook: DeploymentHook) -> None:
        """Has a hook told of what the deployment does.

        Args:
            hook: the hook.
        """
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Returns whether its rollout can go on; see `TvsnapRuntime.is_alive`.

        Args:
            timeout: ignored: nothing is waited for.

        Raises:
            DeploymentNotStartedError: it was not started, or was stopped.
        """
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        """Begins a rollout.

        Raises:
            UsageError: it was started already.
            ImageNotFound: there is no such image.
            TvsnapError: the image cannot be built, or sandboxes are not possible on this machine; see `tvsnap.Cache`,
                and `tvsnap.connect`.
        """
        if self._runtime is not None:
            raise UsageError("the deployment was started already: stop it first, or make another one")
        self._hooks.on_custom_step("Beginning a rollout")
        self._runtime = await in_thread(None, self._begin)

    def _begin(self) -> TvsnapRuntime:
        rollout, image = begin_rollout(self.config)
        return TvsnapRuntime(rollout, image.workdir, logger=self.logger)

    async def stop(self) -> None:
        """Ends the rollout, and a command that is under way. Its states stay in the graph. It may be called again."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    @property
    def runtime(self) -> TvsnapRuntime:
        """The runtime, which makes its calls.

        Raises:
            DeploymentNotStartedError: it was not started, or was stopped.
        """
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime

    def __del__(self) -> None:
        runtime = self.__dict__.get("_runtime")
        if runtime is None or sys.is_finalizing():
            return  # it never began, or was closed with the process's cache: a thread would wait for ever
        # In a thread, because the garbage collector may call this while the calling thread holds tvsnap's locks.
        with contextlib.suppress(RuntimeError):  # at the interpreter's end no thread can start, and the cache is closed
            threading.Thread(target=runtime.end, name="tvsnap-close").start()
