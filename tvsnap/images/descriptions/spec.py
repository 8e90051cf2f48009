"""The specification of an image, read from any kind of description."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tvsnap.images.descriptions.service_spec import MAIN, ServiceSettings
from tvsnap.images.errors import ImageSpecError
from tvsnap.images.loaders import Data, check_data
from tvsnap.model.errors import UsageError
from tvsnap.model.images import ImageLimits, Timeouts
from tvsnap.model.limits import Limits
from tvsnap.model.network import Network
from tvsnap.model.task import Task

DEFAULT_SUITE = "bookworm"
LONGEST_NAME = 63
NAME = r"[a-z0-9][a-z0-9._-]{0,62}"
NAME_RULE = "at most 63 lower-case letters, digits and . _ -, a letter or digit first"


@dataclass(frozen=True, slots=True)
class DebianBase:
    """A Debian (or Ubuntu) system, bootstrapped from its archive.

    Attributes:
        suite: such as "bookworm".
        mirror: the archive's address; None for that of this machine's own apt.
    """

    suite: str = DEFAULT_SUITE
    mirror: str | None = None


@dataclass(frozen=True, slots=True)
class DirectoryBase:
    """A copy of a directory with a root filesystem."""

    path: Path


@dataclass(frozen=True, slots=True)
class TarBase:
    """A root filesystem in a tar archive, plain or compressed."""

    path: Path


@dataclass(frozen=True, slots=True)
class OciBase:
    """An image in an OCI layout (a directory, or a tar of one), or in an archive of `docker save`.

    Attributes:
        path: of the layout or archive.
        tag: selects one of several images; None if there is one for this platform.
    """

    path: Path
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class DockerfileBase:
    """The result of a Dockerfile.

    Attributes:
        path: of the Dockerfile, or of the description that contains its text.
        context: the folder for its COPY and ADD.
        args: build arguments (ARG).
        target: the stage to stop at; None for the last.
        text: of the Dockerfile if it is in a description; None if it is a separate file.
    """

    path: Path
    context: Path
    args: dict[str, str] = field(default_factory=dict)
    target: str | None = None
    text: str | None = None


Pull = Literal["missing", "always", "never"]


@dataclass(frozen=True, slots=True)
class DockerImageBase:
    """An image in the Docker Engine, or in buildah's storage.

    Attributes:
        image: a reference or an id.
        pull: when to fetch it from its registry.
    """

    image: str
    pull: Pull = "missing"


@dataclass(frozen=True, slots=True)
class ImageBase:
    """Another image of tvsnap: its files, and settings that the new one does not have.

    Attributes:
        name: of one that is built, or that comes with tvsnap.
    """

    name: str


Base = DebianBase | DirectoryBase | TarBase | OciBase | DockerfileBase | DockerImageBase | ImageBase


@dataclass(frozen=True, slots=True)
class FileCopy:
    """One entry of `files`.

    Attributes:
        source: a file or a directory in the image's folder; None if there is `content`.
        content: the text of the file; None if there is a source.
        dest: the path inside: of the file, or of the directory for the directory's entries. It is absolute, or relative
            to the image's working directory.
        mode: permission bits; None for those of the source, or 0644 for `content`.
        owner: "user" or "user:group", names or numbers.
    """

    source: Path | None
    content: str | None
    dest: str
    mode: int | None = None
    owner: str = "root"


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The contents of an image.yaml, or of a task's folder.

    If the base is an image of tvsnap, the defaults of environment, hostname, no_new_privileges, clock, random_seed,
    reseed and network are the base's.

    Attributes:
        folder: the description's folder; relative paths start there.
        name: of the image; by default the folder's.
        environment: the kind of tools that it is for; "" for the base's.
        base: its base.
        packages: Debian packages to install.
        files: to put into it, in this order, after the packages.
        run: shell commands, in this order, after the files.
        env: environment variables in addition to the base's.
        workdir: None for the base's, or /.
        user: None for the base's, or root.
        hostname: of its sandboxes; "" for the base's.
        directories: absolute paths inside of directories to create if they do not exist.
        limits, timeouts: see `Image`.
        no_new_privileges: None for the base's setting, or else the one that the user implies.
        clock, random_seed: see `Image`; None for the base's.
        reseed: see `Image`; "" for the base's.
        network: see `Image`; None for the base's, or else none.
        data: the data for the environment's loader, loaded after the commands; see `tvsnap.images.loaders`.
        task: see `Image`.
        own_dockerfile: an alternative Dockerfile of a task that names an image; None if it has none.
        notes: the parts of the description that a sandbox ignores, a line each, for people.
        services: the files and settings of the services besides the main one, which the rest describes.
        main: the settings of the main service.
        is_service: whether this is a service of another image.
        runs: how the program of the main service's container is run beside the shell; None if it is not run.
        runs_as: the user that runs it; None for the base's.
    """

    folder: Path
    name: str
    environment: str
    base: Base
    packages: tuple[str, ...] = ()
    files: tuple[FileCopy, ...] = ()
    run: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    hostname: str = "sandbox"
    directories: tuple[str, ...] = ()
    limits: ImageLimits = field(default_factory=ImageLimits)
    timeouts: Timeouts = field(default_factory=Timeouts)
    no_new_privileges: bool | None = None
    clock: int | None = None
    random_seed: int | None = None
    reseed: str = ""
    network: Network | None = None
    data: Data = field(default_factory=dict)
    task: Task = field(default_factory=Task)
    own_dockerfile: DockerfileBase | None = None
    notes: tuple[str, ...] = ()
    services: tuple[tuple[ImageSpec, ServiceSettings], ...] = ()
    main: ServiceSettings = MAIN
    is_service: bool = False
    runs: ServiceSettings | None = None
    runs_as: str | None = None


def check_limits(spec: ImageSpec) -> None:
    """Raises ImageSpecError if a spec's limits leave a sandbox no room to run."""
    try:
        replace(Limits(), **spec.limits.said())
    except UsageError as error:
        raise ImageSpecError(f"image {spec.name}: {error}") from None


def check_complete(spec: ImageSpec) -> None:
    """Raises ImageSpecError if parts of a completed spec are incompatible."""
    if spec.services and (spec.clock is not None or spec.random_seed is not None):
        raise ImageSpecError(
            f"image {spec.name}: clock and random_seed cannot be set for an image with several services"
        )
    try:
        check_data(spec.environment, spec.data)
    except UsageError as error:
        raise ImageSpecError(f"image {spec.name}: {error}") from None


def check_name(name: str) -> str:
    """Returns the name; raises UsageError if no image can have it."""
    if not re.fullmatch(NAME, name):
        raise UsageError(f'"{name}" cannot be the name of an image: {NAME_RULE}')
    return name


def name_from(folder: Path) -> str:
    """Returns the default name of a folder's image: the folder's name with unsuitable characters replaced."""
    name = re.sub(r"[^a-z0-9._-]+", "-", folder.resolve().name.lower()).lstrip("._-")[:63].rstrip("._-")
    return name or "image"
