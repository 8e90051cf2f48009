"""A service of an image: what every kind of description of one is read as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvsnap.model.services import Condition, HealthCheck


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What a description says of a service beyond what its files are made of. None where it says nothing.

    Attributes:
        name: of the service.
        aliases: other names by which it is reached.
        entrypoint, command: in place of those of its image.
        after: services that must have reached a condition before it is started.
        health: in place of its image's health check.
        healthless: its image's health check is not to be run.
        ports: at which it says that it listens.
        volumes: where directories are in it that services may share, by the names of these.
    """

    name: str
    aliases: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    after: Mapping[str, Condition] = field(default_factory=dict)
    health: HealthCheck | None = None
    healthless: bool = False
    ports: tuple[int, ...] = ()
    volumes: Mapping[str, str] = field(default_factory=dict)


MAIN = ServiceSettings("main")
"""The main service of an image that says nothing of it."""
