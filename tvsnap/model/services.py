"""The services of an image: programs that each run with a root directory of their own, beside the main one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

PLACE = "/run/tvsnap-services"
"""Where the trees, logs and shared volumes of services are, inside; root alone may enter it."""

Condition = Literal["service_started", "service_healthy", "service_completed_successfully"]


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """How it is found out that a service works. It is asked while a fresh sandbox is made ready, and never again.

    Attributes:
        test: a command and its arguments; one that succeeds says that the service works.
        interval: seconds between two checks.
        timeout: seconds that a check may take.
        retries: how many checks in a row may fail.
        start_period: seconds from the service's start in which failures do not count.
    """

    test: tuple[str, ...]
    interval: float = 30.0
    timeout: float = 30.0
    retries: int = 3
    start_period: float = 0.0


@dataclass(frozen=True, slots=True)
class Program:
    """What the container image that an image was made from says of its main program.

    Attributes:
        entrypoint, command: the words of ENTRYPOINT and CMD.
        health: its HEALTHCHECK.
        ports: that it exposes.
    """

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    health: HealthCheck | None = None
    ports: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Program:
        """Raises KeyError, TypeError, ValueError or AttributeError if `said` is not a program in JSON."""
        return cls(tuple(said["entrypoint"]), tuple(said["command"]), _health(said["health"]), tuple(said["ports"]))


@dataclass(frozen=True, slots=True)
class ImageService:
    """A service of an image.

    Attributes:
        name: as the image's description says it; other services reach it by that name.
        command: the program and its arguments.
        env: all of its environment variables, but for HOME and USER.
        workdir: where it starts.
        user: who runs it, as its own tree knows users.
        after: services that must have reached a condition before it is started.
        health: how to find out that it works; None if nobody says.
        ports: at which it says that it listens.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str = "/"
    user: str = "root"
    after: Mapping[str, Condition] = field(default_factory=dict)
    health: HealthCheck | None = None
    ports: tuple[int, ...] = ()

    @property
    def root(self) -> str:
        """The path, inside, of the directory that is its root."""
        return f"{PLACE}/{self.name}"

    @property
    def log(self) -> str:
        """The path, inside, of the file with what it prints."""
        return f"{PLACE}/{self.name}.log"

    @property
    def end(self) -> str:
        """The path, inside, of the file with its exit status, once it has ended."""
        return f"{PLACE}/{self.name}.end"


@dataclass(frozen=True, slots=True)
class Services:
    """All services of an image but the main one, whose files are the image's own.

    Attributes:
        main: the name of the main one.
        others: in an order in which they can be started.
        binds: directories that are mounted at other places, as (what, where): those that services share.
    """

    main: str = "main"
    others: tuple[ImageService, ...] = ()
    binds: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.others)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all, the main one first."""
        return (self.main, *(service.name for service in self.others))

    def named(self, name: str) -> ImageService | None:
        """Returns a service; None for the main one, or where there is none of that name.

        Args:
            name: of the service.
        """
        return next((service for service in self.others if service.name == name), None)

    @property
    def mounts(self) -> tuple[tuple[str, str], ...]:
        """All directories that are mounted at other places: the binds, and what every root needs of a system."""
        system = ((path, f"{service.root}{path}") for service in self.others for path in ("/proc", "/dev"))
        return (*system, *self.binds)

    def with_variables(self, env: Mapping[str, str]) -> Services:
        """Returns the same services with more environment variables.

        Args:
            env: the variables, for each of the services but the main one.
        """
        return replace(self, others=tuple(replace(one, env={**one.env, **env}) for one in self.others))

    def to_json(self) -> dict[str, Any]:
        """What JSON can express of it; see `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Services:
        """Returns the services that `to_json` expressed.

        Args:
            said: what it returned.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is something else.
        """
        return cls(
            said["main"], tuple(map(_service, said["others"])), tuple((one, other) for one, other in said["binds"])
        )


def _service(said: Mapping[str, Any]) -> ImageService:
    its = {"command": tuple(said["command"]), "health": _health(said["health"]), "ports": tuple(said["ports"])}
    return ImageService(**{**said, **its})


def _health(said: Mapping[str, Any] | None) -> HealthCheck | None:
    return None if said is None else HealthCheck(**{**said, "test": tuple(said["test"])})


def start_order(services: Iterable[ImageService]) -> tuple[ImageService, ...]:
    """Returns services such that each comes after those that it waits for; else in the order given.

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
