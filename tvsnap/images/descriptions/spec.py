"""image.yaml: what an image is made of. Parsing and checking, and no building.

Every complaint names the file, the key, the reason and what would be right.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

from tvsnap.images.build.databases import Database, check_databases, read_database_name, read_databases
from tvsnap.images.descriptions.document import Node, kind, listed, load_yaml
from tvsnap.images.errors import ImageSpecError
from tvsnap.model.errors import UsageError
from tvsnap.model.images import ImageLimits, Timeouts
from tvsnap.model.limits import Limits

SPEC_FILE = "image.yaml"
DEFAULT_SUITE = "bookworm"
_EARLIEST = 631_152_000
"""1990, in seconds since 1970."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_NAME_RULE = "at most 63 lower-case letters, digits and . _ -, a letter or digit first"
_SUITE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_MIRROR = re.compile(r"(https?|file|ftp)://?\S+")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
_MODE = re.compile(r"0?[0-7]{3,4}")
_PULL = re.compile(r"missing|always|never")
IMAGE_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class DebianBase:
    """A Debian (or Ubuntu) system, bootstrapped from its archive.

    Attributes:
        suite: as "bookworm".
        mirror: the archive's address; None for that of this machine's own apt.
    """

    suite: str
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
        path: of the Dockerfile.
        context: the folder that its COPY and ADD take files from.
        args: build arguments (ARG).
        target: the stage to stop at; None for the last.
    """

    path: Path
    context: Path
    args: dict[str, str] = field(default_factory=dict)
    target: str | None = None


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
        dest: the absolute path inside: of the file, or of the directory that receives the directory's entries.
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
        databases: to be loaded, in this order, after the commands.
        database: the one of them in use from the start; None for the first.
        notes: what of the description a sandbox does not do, a line each, for people.
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
    databases: tuple[Database, ...] = ()
    database: str | None = None
    notes: tuple[str, ...] = ()


def load_spec(folder: Path, allow: Sequence[Path] = ()) -> ImageSpec:
    """Reads the image.yaml of a folder.

    Args:
        folder: holds image.yaml; that file itself will do as well.
        allow: directories outside it that hold what the image may start from (`directory`, `tar`, `oci`).

    Raises:
        ImageSpecError: it is missing or wrong.
    """
    folder = folder.absolute()
    path = folder if folder.name == SPEC_FILE else folder / SPEC_FILE
    return _read_spec(load_yaml(path), path.parent, allow)


def check_limits(spec: ImageSpec) -> None:
    """Raises ImageSpecError if what a spec says of limits leaves a sandbox no room to run."""
    try:
        replace(Limits(), **spec.limits.said())
    except UsageError as error:
        raise ImageSpecError(f"image {spec.name}: {error}") from None


def check_complete(spec: ImageSpec) -> ImageSpec:
    """Returns a spec that leaves nothing to its base, if its parts go together.

    Raises:
        ImageSpecError: they do not.
    """
    try:
        check_databases(spec.environment, spec.databases, spec.database)
    except UsageError as error:
        raise ImageSpecError(f"image {spec.name}: {error}") from None
    return spec


def check_name(name: str) -> str:
    """Returns the name if an image can have it.

    Raises:
        UsageError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f'"{name}" cannot be the name of an image: {_NAME_RULE}')
    return name


def _read_spec(node: Node, folder: Path, allow: Sequence[Path]) -> ImageSpec:
    keys = node.mapping(("name", "environment", *_BASES, *_OPTIONAL))
    given = [key for key in _BASES if key in keys]
    if len(given) != 1:
        node.fail(f"exactly one of these keys must say what the image starts from: {listed(tuple(_BASES))}")
    base = _BASES[given[0]](keys[given[0]], folder)
    if isinstance(base, DirectoryBase | TarBase | OciBase):
        # An image.yaml that came from elsewhere must not carry the user's other files into an agent's reach.
        place = base.path.resolve()
        if not any(place.is_relative_to(allowed.resolve()) for allowed in (folder, *allow)):
            keys[given[0]].fail(f"{base.path} lies outside the image's folder; copy it there, or allow it (--allow)")
    options = {key: read(keys[key], folder) for key, read in _OPTIONAL.items() if key in keys}
    name = keys.get("name") or Node(node.path, "name (by default the folder's)", folder.name)
    environment = keys["environment"].text(_NAME, _NAME_RULE) if "environment" in keys else ""
    if isinstance(base, ImageBase):
        options = {"hostname": "", **options}
    else:
        environment = environment or "terminal"
    spec = ImageSpec(folder, name.text(_NAME, _NAME_RULE), environment, base, **options)
    if environment:
        try:
            check_databases(environment, spec.databases, spec.database)
        except UsageError as error:
            node.fail(str(error))
    return spec


def _read_debian(node: Node, folder: Path) -> DebianBase:
    # A bare `debian:` will do: everything about it has a default.
    values = {} if node.value is None else node.mapping(("suite", "mirror"))
    suite = values["suite"].text(_SUITE, "a suite's name as bookworm") if "suite" in values else DEFAULT_SUITE
    mirror = values["mirror"].text(_MIRROR, "an archive's address as http://...") if "mirror" in values else None
    return DebianBase(suite, mirror)


def _read_directory(node: Node, folder: Path) -> DirectoryBase:
    return DirectoryBase(node.existing(folder, "a directory with a root filesystem", Path.is_dir))


def _read_tar(node: Node, folder: Path) -> TarBase:
    return TarBase(node.existing(folder, "a tar archive", Path.is_file))


def _read_oci(node: Node, folder: Path) -> OciBase:
    expected = "an OCI layout (a directory, or a tar of one), or an archive of docker save"
    if not isinstance(node.value, dict):
        return OciBase(node.existing(folder, expected, _any_path))
    keys = node.mapping(("path", "tag"))
    if "path" not in keys:
        node.fail(f"the key path must name {expected}")
    return OciBase(keys["path"].existing(folder, expected, _any_path), keys["tag"].text() if "tag" in keys else None)


def _any_path(path: Path) -> bool:
    return path.is_dir() or path.is_file()


def _read_dockerfile(node: Node, folder: Path) -> DockerfileBase:
    if not isinstance(node.value, dict):
        path = node.existing(folder, "a Dockerfile", Path.is_file)
        return dockerfile_base(node, folder, path, path.parent)
    keys = node.mapping(("path", "context", "args", "target"))
    if "path" not in keys and "context" not in keys:
        node.fail("needs path, the Dockerfile, or context, the folder that has one")
    context = keys["context"].existing(folder, "a folder", Path.is_dir) if "context" in keys else None
    if "path" in keys:
        path = keys["path"].existing(folder, "a Dockerfile", Path.is_file)
    else:
        assert context is not None
        path = keys["context"].child("path", "Dockerfile").existing(context, "a Dockerfile", Path.is_file)
    args = _read_env(keys["args"], folder) if "args" in keys else {}
    target = keys["target"].text() if "target" in keys else None
    return dockerfile_base(node, folder, path, context or path.parent, args, target)


def name_from(folder: Path) -> str:
    """A name for the image of a folder that does not say one: the folder's own, as far as an image can have it."""
    name = re.sub(r"[^a-z0-9._-]+", "-", folder.resolve().name.lower()).lstrip("._-")[:63].rstrip("._-")
    return name or "image"


def dockerfile_base(
    node: Node, folder: Path, path: Path, context: Path, args: dict[str, str] | None = None, target: str | None = None
) -> DockerfileBase:
    """A Dockerfile as a base, after a look that it and its context lie in the image's folder.

    A description that came from elsewhere must not carry the user's other files into an agent's reach.

    Args:
        node: what names it, for the complaint.
        folder: the image's folder.
        path, context, args, target: see `DockerfileBase`.

    Raises:
        ImageSpecError: they do not.
    """
    for what, place in (("Dockerfile", path), ("build context", context)):
        if not place.resolve().is_relative_to(folder.resolve()):
            node.fail(f"the {what} {place} lies outside the folder {folder}, which is all that a build may read")
    return DockerfileBase(path, context, args or {}, target)


def _read_docker_image(node: Node, folder: Path) -> DockerImageBase:
    expected = "an image's reference or id, as debian:bookworm-slim"
    if not isinstance(node.value, dict):
        return DockerImageBase(node.text(IMAGE_REFERENCE, expected))
    keys = node.mapping(("image", "pull"))
    if "image" not in keys:
        node.fail(f"the key image must be {expected}")
    pull = keys["pull"].text(_PULL, "missing, always or never") if "pull" in keys else "missing"
    return DockerImageBase(keys["image"].text(IMAGE_REFERENCE, expected), cast(Pull, pull))


def _read_image(node: Node, folder: Path) -> ImageBase:
    return ImageBase(node.text(_NAME, "the name of an image of tvsnap's, as terminal"))


def _read_limits(node: Node, folder: Path) -> ImageLimits:
    keys = node.mapping(("memory", "processes", "cpus", "disk"))
    return ImageLimits(
        memory=keys["memory"].size() if "memory" in keys else None,
        processes=int(keys["processes"].number("how many processes there may be", 1)) if "processes" in keys else None,
        cpus=keys["cpus"].number("how many processors' time, as 1.5") if "cpus" in keys else None,
        disk=keys["disk"].size() if "disk" in keys else None,
    )


def _read_timeouts(node: Node, folder: Path) -> Timeouts:
    keys = node.mapping(("agent", "verifier"))
    return Timeouts(**{name: value.seconds() for name, value in keys.items()})


def _read_no_new_privileges(node: Node, folder: Path) -> bool:
    return node.truth()


def _read_clock(node: Node, folder: Path) -> int:
    moment = node.moment("a time as 2024-01-01T00:00:00Z")
    if moment < _EARLIEST:
        node.fail("must not be before 1990: clocks that count from a machine's start must not be taken for it")
    if moment > time.time():
        node.fail("must not be in the future: the image's own files have times, too; take a time that has passed")
    return moment


def _read_random_seed(node: Node, folder: Path) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, int) or not 0 <= node.value < 1 << 64:
        node.fail(f"must be a whole number from 0 to {(1 << 64) - 1}, not {node.value!r}")
    return node.value


def _read_packages(node: Node, folder: Path) -> tuple[str, ...]:
    packages = tuple(child.text(_PACKAGE, "a package's name") for child in node.sequence())
    return tuple(dict.fromkeys(packages))


def _read_files(node: Node, folder: Path) -> tuple[FileCopy, ...]:
    return tuple(_read_file(child, folder) for child in node.sequence())


def _read_file(node: Node, folder: Path) -> FileCopy:
    keys = node.mapping(("source", "content", "dest", "mode", "owner"))
    if ("source" in keys) == ("content" in keys):
        node.fail("needs exactly one of source (a file or directory in the image's folder) and content (text)")
    if "dest" not in keys:
        node.fail("needs dest, the absolute path inside the image")
    dest = keys["dest"].inside_path()
    source = None
    if "source" in keys:
        source = keys["source"].existing(folder, "a file or directory in the image's folder", _any_path)
        # An image.yaml that came from elsewhere must not carry the user's other files into an agent's reach.
        if not source.resolve().is_relative_to(folder.resolve()):
            keys["source"].fail(f"{source} lies outside the image's folder; copy it there")
    if dest.endswith("/"):
        if source is None:
            keys["dest"].fail("must name the file, not end with /")
        if not source.is_dir():
            dest += source.name
    mode = None
    if "mode" in keys:
        expected = 'octal digits in quotes as "0644"'
        mode = int(keys["mode"].text(_MODE, expected), 8)
        if source is not None and source.is_dir():
            keys["mode"].fail("is for single files; a directory's entries keep their own modes")
    owner = keys["owner"].text(_ACCOUNT, "user or user:group") if "owner" in keys else "root"
    content = keys["content"].text() if "content" in keys else None
    return FileCopy(source, content, dest, mode, owner)


def _read_run(node: Node, folder: Path) -> tuple[str, ...]:
    commands = tuple(child.text(expected="a shell command") for child in node.sequence())
    for child, command in zip(node.sequence(), commands, strict=True):
        if not command.strip():
            child.fail("is an empty command")
    return commands


def _read_env(node: Node, folder: Path) -> dict[str, str]:
    if not isinstance(node.value, dict):
        node.fail(f"must be a mapping of names to strings, not {kind(node.value)}")
    env = {}
    for name, value in node.value.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            node.child(str(name), value).fail("no name for a variable; letters, digits and _ are allowed")
        env[name] = node.child(name, value).text(expected="a string (in quotes)")
    return env


def _read_workdir(node: Node, folder: Path) -> str:
    return str(PurePosixPath(node.inside_path()))


def _read_user(node: Node, folder: Path) -> str:
    return read_account(node)


def read_account(node: Node) -> str:
    """Who shells run as: user or user:group, names or numbers."""
    if isinstance(node.value, int) and not isinstance(node.value, bool) and node.value >= 0:
        return str(node.value)
    return node.text(_ACCOUNT, "user or user:group, names or numbers")


def _read_hostname(node: Node, folder: Path) -> str:
    return read_hostname(node)


def read_hostname(node: Node) -> str:
    """A host name."""
    return node.text(_HOSTNAME, "a host name of lower-case letters, digits and -")


_BASES: dict[str, Callable[[Node, Path], Base]] = {
    "debian": _read_debian,
    "directory": _read_directory,
    "tar": _read_tar,
    "oci": _read_oci,
    "dockerfile": _read_dockerfile,
    "docker_image": _read_docker_image,
    "image": _read_image,
}

_OPTIONAL: dict[str, Callable[[Node, Path], Any]] = {
    "packages": _read_packages,
    "files": _read_files,
    "run": _read_run,
    "env": _read_env,
    "workdir": _read_workdir,
    "user": _read_user,
    "hostname": _read_hostname,
    "limits": _read_limits,
    "timeouts": _read_timeouts,
    "no_new_privileges": _read_no_new_privileges,
    "clock": _read_clock,
    "random_seed": _read_random_seed,
    "databases": read_databases,
    "database": read_database_name,
}
