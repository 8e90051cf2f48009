"""The services of an image: programs beside the main one, each with a root directory of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

PLACE = "/run/tvsnap-services"
"""The directory, inside, of the trees, logs and shared volumes of services; only root may enter it."""

Condition = Literal["service_started", "service_healthy", "service_completed_successfully"]


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A check whether a service works. It is made while a fresh sandbox is being prepared, and never again.

    Attributes:
        test: a command and its arguments; if it succeeds, the service works.
        interval: seconds between two checks.
        timeout: seconds that a check may take.
        retries: checks in a row that may fail.
        start_period: seconds after the service's start during which failures do not count.
    """

    test: tuple[str, ...]
    interval: float = 30.0
    timeout: float = 30.0
    retries: int = 3
    start_period: float = 0.0


@dataclass(frozen=True, slots=True)
class Program:
    """The main program of the container image from which an image was made.

    Attributes:
        entrypoint, command: the words of ENTRYPOINT and CMD.
        health: its HEALTHCHECK.
        ports: the ports that it exposes.
    """

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    health: HealthCheck | None = None
    ports: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Program:
        """Raises KeyError, TypeError, ValueError or AttributeError if `values` are not a program in JSON."""
        return cls(
            tuple(values["entrypoint"]), tuple(values["command"]), _health(values["health"]), tuple(values["ports"])
        )


@dataclass(frozen=True, slots=True)
class ImageService:
    """A service of an image.

    Attributes:
        name: its name in the image's description, by which other services reach it.
        command: the program and its arguments.
        env: all of its environment variables, except HOME and USER.
        workdir: the directory in which it starts.
        user: the user that runs it, by name or number in its own tree.
        after: services that must have reached a condition before it is started.
        health: the check whether it works; None if there is none.
        ports: the ports on which it listens, according to its description.
        is_main: whether it is the program of the main service, whose files are the image's own.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str = "/"
    user: str = "root"
    after: Mapping[str, Condition] = field(default_factory=dict)
    health: HealthCheck | None = None
    ports: tuple[int, ...] = ()
    is_main: bool = False

    @property
    def root(self) -> str:
        """The path, inside, of the directory that is its root; empty for the image's own."""
        return "" if self.is_main else f"{PLACE}/{self.name}"

    @property
    def log(self) -> str:
        """The path, inside, of the file with its output."""
        return f"{PLACE}/{self.name}.log"

    @property
    def end(self) -> str:
        """The path, inside, of the file with its exit status, once it has ended."""
        return f"{PLACE}/{self.name}.end"


@dataclass(frozen=True, slots=True)
class Services:
    """All services of an image except the main one, whose files are the image's own.

    Attributes:
        main: the name of the main one.
        others: in an order in which they can be started.
        binds: directories that are mounted at other places, as (source, target): those that services share.
        program: the main one's program beside the shell; None if that would only keep its container alive.
    """

    main: str = "main"
    others: tuple[ImageService, ...] = ()
    binds: tuple[tuple[str, str], ...] = ()
    program: ImageService | None = None

    def __bool__(self) -> bool:
        return bool(self.running)

    @property
    def running(self) -> tuple[ImageService, ...]:
        """All that are started with a sandbox, in this order."""
        return (*self.others, *filter(None, (self.program,)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all, the main one first."""
        return (self.main, *(service.name for service in self.others))

    def named(self, name: str) -> ImageService | None:
        """Returns a service; None for the main one, or if there is none of that name.

        Args:
            name: that of the service.
        """
        return next((service for service in self.others if service.name == name), None)

    @property
    def mounts(self) -> tuple[tuple[str, str], ...]:
        """All directories that are mounted at other places: the binds, and the system directories of every root."""
        system = ((path, f"{service.root}{path}") for service in self.others for path in ("/proc", "/dev"))
        return (*system, *self.binds)

    def with_variables(self, env: Mapping[str, str]) -> Services:
        """Returns the same services with more environment variables.

        Args:
            env: the variables, for each program that is started.
        """
        *others, program = (
            replace(one, env={**one.env, **env}) if one else None for one in (*self.others, self.program)
        )
        return replace(self, others=tuple(filter(None, others)), program=program)

    def to_json(self) -> dict[str, Any]:
        """Returns it as plain JSON; see `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Services:
        """Returns the services from a result of `to_json`.

        Args:
            said: the result.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is something else.
        """
        return cls(
            said["main"],
            tuple(map(_service, said["others"])),
            tuple((one, other) for one, other in said["binds"]),
            _service(said["program"]) if said.get("program") else None,
        )


def _service(values: Mapping[str, Any]) -> ImageService:
    parsed = {"command": tuple(values["command"]), "health": _health(values["health"]), "ports": tuple(values["ports"])}
    return ImageService(**{**values, **parsed})


def _health(values: Mapping[str, Any] | None) -> HealthCheck | None:
    return None if values is None else HealthCheck(**{**values, "test": tuple(values["test"])})


def start_order(services: Iterable[ImageService]) -> tuple[ImageService, ...]:
    """Returns services in an order in which each comes after those that it waits for; else in the given order.

    Raises:
        ValueError: they wait for each other in a circle; the message names them.
    """
    waiting = list(services)
    ordered: list[ImageService] = []
    names = {service.name for service in waiting}
    while waiting:
        there = {service.name for service in ordered}
        ready = next((one for one in waiting if not (set(one.after) & names) - there), None)
        if ready is None:
            raise ValueError(f"{', '.join(one.name for one in waiting)} wait for each other (depends_on)")
        waiting.remove(ready)
        ordered.append(ready)
    return tuple(ordered)
