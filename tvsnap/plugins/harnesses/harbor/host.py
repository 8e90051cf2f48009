"""Harbor's names that the other modules use, of any supported version."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

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


__all__ = [
    "COMPOSE_FILE_NAME",
    "DOCKERFILE_NAME",
    "MAIN_SERVICE_NAME",
    "BaseEnvironment",
    "EnvironmentCapabilities",
    "EnvironmentOptions",
    "EnvironmentPath",
    "EnvironmentPaths",
    "EnvironmentResourceCapabilities",
    "ExecResult",
    "NetworkMode",
    "NetworkPolicy",
    "ResourceMode",
    "SandboxBuildFailedError",
    "ServiceOperationsUnsupportedError",
    "require_agent_environment_definition",
]
