"""What an image is made of: what every kind of description is read as."""

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
        suite: as "bookworm".
        mirror: the archive's address; None for that of this machine's own apt.
    """

    suite: str = DEFAULT_SUITE
    mirror: str | None = None


@dataclass(frozen=True, slots=True)
class DirectoryBase:
    """A copy of a directory that holds a root filesystem."""

    path: Path


@dataclass(frozen=True, slots=True)
class TarBase:
    """A root filesystem in a tar archive, plain or compressed."""

    path: Path


@dataclass(frozen=True, slots=True)
class OciBase:
    """An image in an OCI layout (a directory, or a tar of one), or in an archive that `docker save` wrote.

    Attributes:
        path: of the layout or archive.
        tag: which of several images; None where there is one for this platform.
    """

    path: Path
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class DockerfileBase:
    """What a Dockerfile makes.

    Attributes:
        path: of the Dockerfile, or of the description that holds its text.
        context: the folder that its COPY and ADD take files from.
        args: build arguments (ARG).
        target: the stage to stop at; None for the last.
        text: of the Dockerfile, where a description holds it; None where it is a file of its own.
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
    """Another image of tvsnap's: its files, and what the new one does not say itself.

    Attributes:
        name: of one that is built, or that comes with tvsnap.
    """

    name: str


Base = DebianBase | DirectoryBase | TarBase | OciBase | DockerfileBase | DockerImageBase | ImageBase


@dataclass(frozen=True, slots=True)
class FileCopy:
    """One entry of `files`.

    Attributes:
        source: a file or a directory in the image's folder; None where `content` says it all.
        content: the text of the file; None where there is a source.
        dest: the path inside: of the file, or of the directory that receives the directory's entries. It is absolute,
            or relative to the image's working directory.
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
    """All that an image.yaml, or the folder of a task, says.

    Attributes:
        folder: the folder that says it; relative paths count from there.
        name: of the image; the folder's by default.
        environment: what kind of tools it is for; "" for the base's, if that is an image of tvsnap's.
        base: what it starts from.
        packages: Debian packages to install.
        files: to put into it, in this order, after the packages.
        run: shell commands, in this order, after the files.
        env: environment variables, beyond those that the base brings.
        workdir: None for the base's, or /.
        user: None for the base's, or root.
        hostname: of its sandboxes; "" for the base's, if that is an image of tvsnap's.
        directories: that are to be there, empty if they are not yet; absolute paths inside.
        limits, timeouts: see `Image`.
        no_new_privileges: None for what the base, if that is an image of tvsnap's, or else the user asks for.
        clock, random_seed: see `Image`; None for the base's, if that is an image of tvsnap's.
        network: see `Image`; None for the base's, if that is an image of tvsnap's, or else none.
        data: what the environment's loader is to load, after the commands; see `tvsnap.images.loaders`.
        task: see `Image`.
        own_dockerfile: the Dockerfile by which a task that names an image can be built instead; None if it has none.
        notes: what of the description a sandbox does not do, a line each, for people.
        services: beside the main one, which the rest describes: what each is made of, and how it is run.
        main: how the main service is known to the others.
        is_service: whether this is a service of another image.
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
    network: Network | None = None
    data: Data = field(default_factory=dict)
    task: Task = field(default_factory=Task)
    own_dockerfile: DockerfileBase | None = None
    notes: tuple[str, ...] = ()
    services: tuple[tuple[ImageSpec, ServiceSettings], ...] = ()
    main: ServiceSettings = MAIN
    is_service: bool = False


def check_limits(spec: ImageSpec) -> None:
    """Raises ImageSpecError if what a spec says of limits leaves a sandbox no room to run."""
    try:
        replace(Limits(), **spec.limits.said())
    except UsageError as error:
        raise ImageSpecError(f"image {spec.name}: {error}") from None


def check_complete(spec: ImageSpec) -> None:
    """Raises ImageSpecError if the parts of a spec that leaves nothing to its base do not go together."""
    if spec.services and (spec.clock is not None or spec.random_seed is not None):
        raise ImageSpecError(
            f"image {spec.name}: clock and random_seed cannot be set for an image with several services"
        )
    try:
        check_data(spec.environment, spec.data)
    except UsageError as error:
        raise ImageSpecError(f"image {spec.name}: {error}") from None


def check_name(name: str) -> str:
    """Returns the name if an image can have it.

    Raises:
        UsageError: it cannot.
    """
    if not re.fullmatch(NAME, name):
        raise UsageError(f'"{name}" cannot be the name of an image: {NAME_RULE}')
    return name


def name_from(folder: Path) -> str:
    """A name for the image of a folder that does not say one: the folder's own, as far as an image can have it."""
    name = re.sub(r"[^a-z0-9._-]+", "-", folder.resolve().name.lower()).lstrip("._-")[:63].rstrip("._-")
    return name or "image"
