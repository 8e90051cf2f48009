"""The options of the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from tvsnap.model.errors import UsageError
from tvsnap.plugins.harnesses.caches import CacheOptions
from tvsnap.plugins.harnesses.harbor.host import EnvironmentOptions


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
        description="The token that the server asks for; by default TVSNAP_TOKEN, which is not written into the job's "
        "files.",
    )
    image: str | None = Field(
        None, description="The name of an image that is used instead of the one that the task's folder describes."
    )
    backend: str = Field("local", description="The backend of the sandboxes; see tvsnap.Cache.")
    policy: str = Field("default", description="The policy for snapshots; see tvsnap.Cache.")
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


def cache_options(chosen: TvsnapOptions) -> CacheOptions:
    """Returns the options of the cache that environments with these options share.

    Raises:
        ValueError: they make no sense, or this process can make no sandboxes, and there is no server.
    """
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
