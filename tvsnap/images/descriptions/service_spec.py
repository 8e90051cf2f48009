"""A service of an image, read from any kind of description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvsnap.model.services import Condition, HealthCheck


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """A service's settings in a description besides its files; None if they are missing.

    Attributes:
        name: of the service.
        aliases: other host names of it.
        entrypoint, command: replace those of its image.
        after: services that must reach a condition before it is started.
        health: replaces its image's health check.
        healthless: whether its image's health check is disabled.
        ports: at which it listens according to the description.
        volumes: the paths of directories that services may share, by the names of these.
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
"""The main service of an image that has no settings for it."""
