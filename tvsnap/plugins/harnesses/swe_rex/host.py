"""SWE-ReX's names that the other modules use."""

from __future__ import annotations

try:
    from swerex.deployment.abstract import AbstractDeployment
    from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
    from swerex.exceptions import (
        BashIncorrectSyntaxError,
        CommandTimeoutError,
        DeploymentNotStartedError,
        NonZeroExitCodeError,
        SessionDoesNotExistError,
        SessionExistsError,
    )
    from swerex.runtime.abstract import (
        AbstractRuntime,
        Action,
        BashAction,
        BashInterruptAction,
        BashObservation,
        CloseBashSessionResponse,
        CloseResponse,
        CloseSessionRequest,
        CloseSessionResponse,
        Command,
        CommandResponse,
        CreateBashSessionResponse,
        CreateSessionRequest,
        CreateSessionResponse,
        IsAliveResponse,
        Observation,
        ReadFileRequest,
        ReadFileResponse,
        UploadRequest,
        UploadResponse,
        WriteFileRequest,
        WriteFileResponse,
    )
    from swerex.utils.log import get_logger
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tvsnap.integrations.swe_rex needs SWE-ReX, of which {error.name} is missing: pip install 'tvsnap[swe-rex]'",
        name=error.name,
    ) from error

__all__ = [
    "AbstractDeployment",
    "AbstractRuntime",
    "Action",
    "BashAction",
    "BashIncorrectSyntaxError",
    "BashInterruptAction",
    "BashObservation",
    "CloseBashSessionResponse",
    "CloseResponse",
    "CloseSessionRequest",
    "CloseSessionResponse",
    "CombinedDeploymentHook",
    "Command",
    "CommandResponse",
    "CommandTimeoutError",
    "CreateBashSessionResponse",
    "CreateSessionRequest",
    "CreateSessionResponse",
    "DeploymentHook",
    "DeploymentNotStartedError",
    "IsAliveResponse",
    "NonZeroExitCodeError",
    "Observation",
    "ReadFileRequest",
    "ReadFileResponse",
    "SessionDoesNotExistError",
    "SessionExistsError",
    "UploadRequest",
    "UploadResponse",
    "WriteFileRequest",
    "WriteFileResponse",
    "get_logger",
]
