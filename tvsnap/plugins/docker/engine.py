"""The Docker Engine: one connection, limited calls, errors in our words, and the labels of everything that is ours."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import docker
import docker.errors
import requests.exceptions
import urllib3.exceptions
from docker.utils import kwargs_from_env

from tvsnap.model.errors import InfrastructureError, MachineLacks

LABEL_OWNER = "tvsnap.owner"  # the id of the `Owner` that made it; others may remove it if that owner is dead
LABEL_HOME = "tvsnap.home"  # the data directory that it belongs to; see `home_tag`
LABEL_IMAGE = "tvsnap.image"  # the digest of the tvsnap image that it contains or is based on

IN_FLIGHT = 8  # concurrent calls to one engine; more would only wait for each other in the engine
CALL_TIMEOUT = 120  # seconds; a commit of a large container takes long
PATIENCE = 15.0  # seconds for which an engine may be away, as for a restart
_POLL = 0.1

P = ParamSpec("P")
R = TypeVar("R")

_LOST = (
    requests.exceptions.ConnectionError,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.HTTPError,
    ConnectionError,
)


def home_tag(home: Path) -> str:
    """Returns the tag of a data directory in labels."""
    return hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]


class EngineUnavailable(InfrastructureError):
    """The engine does not answer."""


class EngineTimeout(InfrastructureError):
    """The engine did not answer in time; it may nevertheless do what was requested."""


class Engine:
    """One Docker Engine, found as Docker's own client finds it (DOCKER_HOST, else the usual socket). Thread-safe.

    Attributes:
        api: the SDK's client; call it through `do` or within `turn`.
        address: the engine's address.
        version: as `28.2.2`.
    """

    def __init__(self, *, timeout: int = CALL_TIMEOUT, patience: float = PATIENCE) -> None:
        """Connects.

        Args:
            timeout: seconds for one call.
            patience: seconds to wait for an engine that no longer answers.

        Raises:
            MachineLacks: no engine answers.
        """
        self.address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        self._patience = patience
        self._slots = threading.BoundedSemaphore(IN_FLIGHT)
        try:
            self.api = docker.APIClient(**kwargs_from_env(), version="auto", timeout=timeout)
            about = self.api.version()
        except (docker.errors.DockerException, requests.exceptions.Timeout, *_LOST) as error:
            raise MachineLacks(
                f"no Docker Engine answers at {self.address} ({_reason(error)}); start one, or name its address in "
                "DOCKER_HOST (tvsnap doctor)"
            ) from None
        self.version = str(about["Version"])

    def do(self, what: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Makes a call that may be repeated; waits for some time if the engine has gone, as for a restart.

        Args:
            what: the action, for messages: "the start of a container".
            function: a method of `api`.

        Raises:
            docker.errors.NotFound: the engine knows no such object.
            docker.errors.APIError: the engine refuses, for a reason that is neither its own nor the machine's.
            EngineUnavailable, EngineTimeout, InfrastructureError: it is gone, too slow, or full.
        """
        deadline = time.monotonic() + self._patience
        while True:
            try:
                with self.turn(what):
                    return function(*args, **kwargs)
            except EngineUnavailable:  # noqa: PERF203
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)

    @contextlib.contextmanager
    def turn(self, what: str) -> Iterator[None]:
        """Limits the calls in flight to `IN_FLIGHT`; the block makes one call, and its errors are those of `do`."""
        with self._slots:
            try:
                yield
            except requests.exceptions.Timeout:
                raise EngineTimeout(f"{what}: the Docker Engine at {self.address} did not answer in time") from None
            except docker.errors.APIError as error:
                if not _is_own_failure(error):
                    raise
                raise InfrastructureError(f"{what}: the Docker Engine failed: {_reason(error)}") from None
            except _LOST as error:
                raise EngineUnavailable(
                    f"{what}: the Docker Engine at {self.address} does not answer ({_reason(error)}); is it running? "
                    "(tvsnap doctor)"
                ) from None

    def image(self, reference: str) -> dict[str, Any]:
        """Returns the engine's data on an image; raises docker.errors.NotFound if it has none of that name."""
        about: dict[str, Any] = self.do("looking at an image", self.api.inspect_image, reference)
        return about

    def has_image(self, reference: str) -> bool:
        """Returns whether the engine has an image of that name."""
        try:
            self.image(reference)
        except docker.errors.NotFound:
            return False
        return True

    def remove_image(self, reference: str) -> bool | None:
        """Removes an image; returns False if it is still needed, and None if it does not exist."""
        try:
            self.do("removing an image", self.api.remove_image, reference)
        except docker.errors.NotFound:
            return None
        except (docker.errors.APIError, InfrastructureError):
            return False
        return True

    def post(self, path: str, **arguments: Any) -> None:
        """Makes a request that the SDK has no method for, with arguments of `requests.post`; within `turn`.

        `path` is below the API's version, as `/containers/ID/start`.
        """
        api: Any = self.api
        api._raise_for_status(api._post(api._url(path), **arguments))

    def close(self) -> None:
        self.api.close()


def _is_own_failure(error: docker.errors.APIError) -> bool:
    """Returns whether the engine or its machine failed, and not the request."""
    return error.status_code is not None and error.status_code >= 500


def _reason(error: BaseException) -> str:
    """Returns the innermost reason in one line; the SDK and its libraries wrap it several times."""
    if isinstance(error, docker.errors.APIError) and error.explanation:
        return str(error.explanation).strip()
    inner: object = error
    while isinstance(inner, BaseException):
        following = next((arg for arg in inner.args if isinstance(arg, BaseException)), inner.__cause__)
        following = following or (inner.__context__ if not isinstance(inner, OSError) else None)
        if following is None or (isinstance(inner, OSError) and inner.strerror):
            break
        inner = following
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner).strip().splitlines()[0] if str(inner).strip() else type(inner).__name__
