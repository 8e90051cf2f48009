"""tvsnap's errors as JSON: a status of HTTP and a way out for each class, and the same class again at the client."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from tvsnap.model import errors
from tvsnap.model.errors import InfrastructureError, TvsnapError, UsageError


class Busy(InfrastructureError):
    """The server's sandboxes or rollouts are used up; the request was not begun and may be made again later.

    Attributes:
        retry_after: seconds before the next attempt.
    """

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Stopping(Busy):
    """The server is being stopped; nothing remains of the request, which may be made again once the server runs."""


class Unauthorized(UsageError):
    """The request has no token, or one that the server does not know."""


class TooLarge(UsageError):
    """The body of the request is larger than the server takes."""


class KeyReused(UsageError):
    """An idempotency key was sent again with another request, or so late that its answer is not kept any more."""


class WorkerDied(InfrastructureError):
    """The server's process that had the rollout or the sandbox has died, and they have ended with it."""


class ServerStopped(WorkerDied):
    """The server is being stopped, and the rollout or the sandbox of the request ends with it."""


class Unreachable(InfrastructureError):
    """The server cannot be reached, or the address is not that of a tvsnap server."""


class Meaning(NamedTuple):
    """The form of an error class over HTTP.

    Attributes:
        status: the status of HTTP.
        way_out: the remedy for the caller, in one sentence.
    """

    status: int
    way_out: str


MEANINGS: dict[str, Meaning] = {
    "UsageError": Meaning(400, "Correct the request; /v1/openapi.json describes it."),
    "ImageSpecError": Meaning(400, "Correct the image's description at the place that the message names."),
    "UnknownContent": Meaning(400, "Upload the content with PUT /v1/contents/DIGEST first."),
    "Unauthorized": Meaning(401, "Send a token of the server's token file as 'Authorization: Bearer TOKEN'."),
    "Forbidden": Meaning(403, "Ask who runs the server for a token without a tenant."),
    "NotFound": Meaning(404, "Look at /v1/tree for states and at /v1/images for images."),
    "ImageNotFound": Meaning(404, "Look at /v1/images, or build the image with POST /v1/images."),
    "CallCancelled": Meaning(409, "Make the call again, with a new idempotency key."),
    "NotCheckpointable": Meaning(409, "Make another call and try again, or go on without a snapshot."),
    "StateLost": Meaning(410, "Begin a new rollout: this state can no longer be reached."),
    "SnapshotUnusable": Meaning(410, "Begin a new rollout; 'tvsnap gc' on the server deletes the snapshot."),
    "WorkerDied": Meaning(410, "Begin a new rollout; its calls are answered as far as they were recorded."),
    "TooLarge": Meaning(413, "Send less at once, or raise the limit that the message names on the server."),
    "OSError": Meaning(422, "Correct the path, or make room for what is written."),
    "GradingFailed": Meaning(422, "Correct the verifier; the message says what it printed."),
    "KeyReused": Meaning(422, "Use a new idempotency key for each new request."),
    "ImageBuildError": Meaning(422, "Correct the step of the image's description that the message names."),
    "Busy": Meaning(429, "Ask again after the seconds that Retry-After says, or close what is not needed."),
    "TvsnapError": Meaning(500, "Look at the server's log."),
    "InfrastructureError": Meaning(500, "Make the request again; if it fails again, look at the server's log."),
    "MachineLacks": Meaning(501, "Run 'tvsnap doctor' on the server."),
    "NotRestorable": Meaning(501, "Run 'tvsnap doctor' on the server; another host may restore the snapshot."),
    "DependencyFailed": Meaning(502, "Make the call again, once what the tool asks works; the message names it."),
    "SandboxDied": Meaning(502, "Make the call again."),
    "SandboxRefused": Meaning(503, "Give the sandbox higher limits, or end processes in it."),
    "CheckpointFailed": Meaning(503, "Try again when the server's machine has less to do."),
    "ForkFailed": Meaning(503, "Try again when the server's machine has less to do."),
    "ServerStopped": Meaning(503, "Begin a new rollout once the server runs again."),
    "Stopping": Meaning(503, "Make the request again once the server runs again."),
    "Unreachable": Meaning(503, "See whether the server runs."),
    "NoRoom": Meaning(507, "Free room on the server's disk, for example with 'tvsnap gc'."),
}
"""The forms by the names of the classes; a class that is not here has the form of its nearest base."""

_ELSEWHERE = {
    "ImageNotFound": "tvsnap.images.errors",
    "ImageSpecError": "tvsnap.images.errors",
    "UnknownContent": "tvsnap.environments.files",
}
_OWN = {
    kind.__name__: kind
    for kind in (*(Busy, Stopping, Unauthorized, TooLarge, KeyReused, WorkerDied, ServerStopped, Unreachable),)
}


def meaning_of(error: BaseException) -> Meaning:
    """Returns the status and the way out of an error.

    Args:
        error: any error; one that is neither tvsnap's nor OSError counts as a failure of tvsnap.
    """
    for kind in type(error).__mro__:
        if kind.__name__ in MEANINGS:
            return MEANINGS[kind.__name__]
    return MEANINGS["TvsnapError"]


def error_data(error: BaseException) -> dict[str, Any]:
    """Returns an error as plain JSON.

    Args:
        error: any error.
    """
    names = [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, (TvsnapError, OSError))]
    data: dict[str, Any] = {
        "type": names[0] if names else "InfrastructureError",
        "is_a": [name for name in names if name in MEANINGS] or ["InfrastructureError", "TvsnapError"],
        "message": str(error) or type(error).__name__,
        "way_out": meaning_of(error).way_out,
    }
    if isinstance(error, OSError):
        data["is_a"] = ["OSError"]
        data |= {"errno": error.errno, "message": error.strerror or str(error), "path": error.filename}
    elif not names:
        data["message"] = f"internal error: {type(error).__name__}: {error}"
    if isinstance(error, Busy):
        data["retry_after"] = error.retry_after
    step = getattr(error, "step", None)
    if isinstance(step, str):
        data |= {"step": step, "output": getattr(error, "output", "")}
    return data


def error_of(data: object, status: int) -> Exception:
    """Returns the error in an answer, of the class that the server raised, or of the nearest one that exists here.

    Args:
        data: the member `error` of the answer's JSON.
        status: the status of HTTP.
    """
    if not isinstance(data, dict) or not isinstance(data.get("message"), str):
        return Unreachable(f"the server answered with status {status}, and not as tvsnap does; is this its address?")
    message = data["message"]
    if "errno" in data:
        number = data["errno"]
        return OSError(number, message, data.get("path")) if number else OSError(message)
    names = [data.get("type"), *data.get("is_a", ())]
    kind = next((known_class for name in names if (known_class := _class_named(name)) is not None), InfrastructureError)
    if issubclass(kind, Busy):
        return kind(message, float(data.get("retry_after", 1.0)))
    if kind.__name__ == "ImageBuildError":
        step = str(data.get("step", ""))
        return kind(step, message.removeprefix(f"{step} "), str(data.get("output", "")))
    return kind(message)


def _class_named(name: object) -> Any:
    """Returns an error class of tvsnap; None if there is none of this name, or it cannot be imported here."""
    if not isinstance(name, str):
        return None
    if name in _OWN:
        return _OWN[name]
    if name in _ELSEWHERE or name == "ImageBuildError":
        try:
            return getattr(importlib.import_module(_ELSEWHERE.get(name, "tvsnap.images.errors")), name)
        except ImportError:  # descriptions of images need packages that a client may lack
            return None
    value = getattr(errors, name, None)
    return value if isinstance(value, type) and issubclass(value, TvsnapError) else None
