"""Adds the trees of an image's services to its own, and describes their programs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tvsnap.images.build.built_base import BuiltBase
from tvsnap.images.descriptions.config import keeps_alive
from tvsnap.images.descriptions.service_spec import ServiceSettings
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import make_directories, remove_entry, resolve_inside, write_file
from tvsnap.model.images import UID_BASE, Image
from tvsnap.model.services import PLACE, ImageService, Program, Services, start_order

VOLUMES = f"{PLACE}/.volumes"
"""The place inside of the directories that services share."""

_FIRST_ADDRESS = 2
"""The last part of the address of the first service after the main one, which has 127.0.0.1."""


@dataclass(frozen=True, slots=True)
class BuiltService:
    """A service with files that are built.

    Attributes:
        settings: from the description.
        image: its files, variables, user and working directory.
        program: from its container image.
    """

    settings: ServiceSettings
    image: Image
    program: Program

    def signature(self) -> object:
        """Returns all that the service depends on, as JSON."""
        return [asdict(self.settings), self.image.digest, asdict(self.program)]

    def configured(self) -> ImageService:
        """Returns how it is run; raises BuildStepFailed if it has no command."""
        settings, program = self.settings, self.program
        entrypoint, command = _words(settings, program)
        if not (words := (*entrypoint, *command)):
            raise BuildStepFailed(f"failed: nothing says what the service {settings.name} runs; give it a command")
        return ImageService(
            name=settings.name,
            command=words,
            env=dict(self.image.env),
            workdir=self.image.workdir,
            user=self.image.user,
            after=dict(settings.after),
            health=None if settings.healthless else settings.health or program.health,
            ports=tuple(sorted({*settings.ports, *program.ports})),
        )


def _words(settings: ServiceSettings, program: Program) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the entrypoint and the command of a service. As in Compose, an entrypoint drops the image's command."""
    entrypoint = program.entrypoint if settings.entrypoint is None else settings.entrypoint
    command = settings.command
    if command is None:
        command = program.command if settings.entrypoint is None else ()
    return entrypoint, command


def main_program(
    settings: ServiceSettings, program: Program, env: Mapping[str, str], workdir: str, user: str
) -> ImageService | None:
    """Returns the main service's program beside the shell; None if it would only keep its container alive.

    Args:
        settings: from the description.
        program: from the container image.
        env, workdir, user: see `ImageService`.
    """
    entrypoint, command = _words(settings, program)
    if keeps_alive(entrypoint, command):
        return None
    health = None if settings.healthless else settings.health or program.health
    words = (*entrypoint, *command)
    return ImageService(settings.name, words, dict(env), workdir, user, dict(settings.after), health, is_main=True)


def add_program(root: Path, program: ImageService) -> str:
    """Makes the directory for the output of the main service's program; returns a hash of the program."""
    make_directories(root, PLACE, UID_BASE).chmod(0o700)
    return hashlib.sha256(json.dumps(asdict(program), sort_keys=True).encode()).hexdigest()


def names_of(main: ServiceSettings, services: Sequence[BuiltService]) -> str:
    """Returns the lines of /etc/hosts with the names of an image's services; empty for an image without any."""
    if not services:
        return ""
    all = (main, *(one.settings for one in services))
    numbers = (1, *range(_FIRST_ADDRESS, _FIRST_ADDRESS + len(services)))
    return "".join(
        f"127.0.0.{number}\t{' '.join(dict.fromkeys((one.name, *one.aliases)))}\n"
        for number, one in zip(numbers, all, strict=True)
    )


def port_conflicts(services: Sequence[ImageService]) -> Iterator[str]:
    """Yields notes on ports that several services declare."""
    by_port: dict[int, list[str]] = {}
    for service in services:
        for port in service.ports:
            by_port.setdefault(port, []).append(service.name)
    for port, names in by_port.items():
        if len(names) > 1:
            yield (
                f"services {', '.join(names)}: each says that it listens at port {port}; services share one network, "
                "where each must listen at its own address or another port"
            )


def join(
    root: Path,
    main: ServiceSettings,
    services: Sequence[BuiltService],
    work: Path,
    output: Callable[[str], None],
    fraction: Callable[[float | None], None],
) -> tuple[Services, str]:
    """Adds services to a finished tree; returns how they are run, and a hash of all that was added.

    Raises BuildStepFailed if a copy fails, or if the description is impossible.

    Args:
        root: the tree.
        main: the settings of the service that has the tree's own files.
        services: the other services.
        work: a directory for temporary files, on the same file system.
        output: gets printed lines.
        fraction: gets the progress.
    """
    try:
        configured = start_order([one.configured() for one in services])
    except ValueError as error:
        raise BuildStepFailed(f"failed: the services {error}") from None
    place = make_directories(root, PLACE, UID_BASE)
    place.chmod(0o700)
    hosts = (root / "etc/hosts").read_bytes()
    for one in services:
        tree = work / f"service-{one.settings.name}"
        tree.mkdir()
        tree.chmod(0o755)
        BuiltBase(one.image).unpack(tree, output, fraction)
        write_file(tree, "/etc/hosts", hosts)
        tree.rename(place / one.settings.name)
    binds = tuple(_share(root, [main, *(one.settings for one in services)], main.name))
    description = json.dumps([[one.signature() for one in services], asdict(main), hosts.decode()], sort_keys=True)
    return Services(main.name, configured, binds), hashlib.sha256(description.encode()).hexdigest()


def _share(root: Path, services: Sequence[ServiceSettings], main: str) -> Iterator[tuple[str, str]]:
    """Makes the directories that several services share; yields sources and targets of mounts."""
    targets: dict[str, list[tuple[str, str]]] = {}
    for service in services:
        for volume, target in service.volumes.items():
            targets.setdefault(volume, []).append((service.name, target))
    for number, shared in enumerate(places for places in targets.values() if len(places) > 1):
        what = f"{VOLUMES}/{number}"
        make_directories(root, VOLUMES, UID_BASE)
        for name, target in shared:
            prefix = "" if name == main else f"{PLACE}/{name}"
            tree = root / prefix.lstrip("/")
            make_directories(tree, target, UID_BASE)
            directory = resolve_inside(tree, target, follow=True)
            _fill(root / what.lstrip("/"), directory)
            yield what, f"{prefix}/{directory.relative_to(tree)}"


def _fill(volume: Path, directory: Path) -> None:
    """Makes the first directory with contents the volume's, like a container engine that fills a new volume."""
    about = directory.stat()
    first = not volume.exists()
    if first or (any(os.scandir(directory)) and not any(os.scandir(volume))):
        if not first:
            remove_entry(volume)
        directory.rename(volume)
        directory.mkdir()
        os.chown(directory, about.st_uid, about.st_gid)
        directory.chmod(about.st_mode & 0o7777)
