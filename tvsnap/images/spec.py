"""image.yaml: what an image is made of. Parsing and checking, and no building.

Every complaint names the file, the key, the reason and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import yaml

from tvsnap.errors import UsageError
from tvsnap.images.errors import ImageSpecError

SPEC_FILE = "image.yaml"
DEFAULT_SUITE = "bookworm"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_NAME_RULE = "at most 63 lower-case letters, digits and . _ -, a letter or digit first"
_SUITE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_MIRROR = re.compile(r"(https?|file|ftp)://?\S+")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
_MODE = re.compile(r"0?[0-7]{3,4}")
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
    """An image in an OCI layout: a directory, or a tar of one.

    Attributes:
        path: of the layout.
        tag: which of several images; None where there is one for this platform.
    """

    path: Path
    tag: str | None = None


Base = DebianBase | DirectoryBase | TarBase | OciBase


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
    """All that an image.yaml says.

    Attributes:
        folder: the folder that image.yaml is in; relative paths count from there.
        name: of the image; the folder's by default.
        environment: what kind of tools it is for.
        base: what it starts from.
        packages: Debian packages to install.
        files: to put into it, in this order, after the packages.
        run: shell commands, in this order, after the files.
        env: environment variables, beyond those that the base brings.
        workdir: None for the base's, or /.
        user: None for the base's, or root.
        hostname: of its sandboxes.
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


def load_spec(folder: Path) -> ImageSpec:
    """Reads the image.yaml of a folder.

    Args:
        folder: holds image.yaml; that file itself will do as well.

    Raises:
        ImageSpecError: it is missing or wrong.
    """
    folder = folder.absolute()
    path = folder if folder.name == SPEC_FILE else folder / SPEC_FILE
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise ImageSpecError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ImageSpecError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except yaml.YAMLError as error:
        raise ImageSpecError(f"{path}: {_yaml_reason(error)}") from None
    return _read_spec(_Node(path, "", document), path.parent)


def check_name(name: str) -> str:
    """Returns the name if an image can have it.

    Raises:
        UsageError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f'"{name}" cannot be the name of an image: {_NAME_RULE}')
    return name


class _Loader(yaml.SafeLoader):
    """YAML in which a key that is given twice is an error, not a silent choice of the second."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is given twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def _yaml_reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error).splitlines()[0]


@dataclass(frozen=True, slots=True)
class _Node:
    """A value of the file, and where it stands, so that complaints can say so."""

    path: Path
    key: str
    value: object

    def fail(self, reason: str) -> NoReturn:
        place = f"{self.path}: {self.key}" if self.key else f"{self.path}"
        raise ImageSpecError(f"{place}: {reason}")

    def child(self, key: str | int, value: object) -> _Node:
        if isinstance(key, int):
            return _Node(self.path, f"{self.key}[{key}]", value)
        return _Node(self.path, f"{self.key}.{key}" if self.key else key, value)

    def mapping(self, allowed: tuple[str, ...]) -> dict[str, _Node]:
        if not isinstance(self.value, dict):
            self.fail(f"must be a mapping with the keys {_listed(allowed)}, not {_kind(self.value)}")
        for key in self.value:
            if key not in allowed:
                self.child(str(key), None).fail(f"unknown key; allowed here: {_listed(allowed)}")
        return {key: self.child(key, value) for key, value in self.value.items()}

    def sequence(self) -> list[_Node]:
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.fail(f"must be a list, not {_kind(self.value)}")
        return [self.child(index, value) for index, value in enumerate(self.value)]

    def text(self, pattern: re.Pattern[str] | None = None, expected: str = "a string") -> str:
        if not isinstance(self.value, str):
            self.fail(f"must be {expected}, not {_kind(self.value)}")
        if "\0" in self.value:
            self.fail("must not hold a null character")
        if pattern and not pattern.fullmatch(self.value):
            self.fail(f"must be {expected}, not {self.value!r}")
        return self.value

    def inside_path(self) -> str:
        """An absolute path inside the image, without `..`."""
        text = self.text()
        if not text.startswith("/") or ".." in PurePosixPath(text).parts:
            self.fail(f"must be an absolute path without '..', not {text!r}")
        return text

    def existing(self, folder: Path, expected: str, right: Callable[[Path], bool]) -> Path:
        """A path on this machine, relative to the image's folder."""
        path = folder / Path(self.text(expected=f"the path of {expected}")).expanduser()
        try:
            if not path.exists():
                self.fail(f"{path} does not exist; it must be {expected}")
            if not right(path):
                self.fail(f"{path} is not {expected}")
        except OSError as error:
            self.fail(f"{path}: {error.strerror}")
        return path


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _kind(value: object) -> str:
    if value is None:
        return "empty"
    names = {bool: "a truth value", int: "a number", float: "a number", str: "a string", list: "a list"}
    name = names.get(type(value), "a mapping" if isinstance(value, dict) else type(value).__name__)
    return f"{name} ({value!r})" if isinstance(value, (bool, int, float)) else name


def _read_spec(node: _Node, folder: Path) -> ImageSpec:
    keys = node.mapping(("name", "environment", *_BASES, *_OPTIONAL))
    given = [key for key in _BASES if key in keys]
    if len(given) != 1:
        node.fail(f"exactly one of these keys must say what the image starts from: {_listed(tuple(_BASES))}")
    base = _BASES[given[0]](keys[given[0]], folder)
    options = {key: read(keys[key], folder) for key, read in _OPTIONAL.items() if key in keys}
    name = keys.get("name") or _Node(node.path, "name (by default the folder's)", folder.name)
    environment = keys.get("environment") or node.child("environment", "terminal")
    return ImageSpec(
        folder=folder,
        name=name.text(_NAME, _NAME_RULE),
        environment=environment.text(_NAME, _NAME_RULE),
        base=base,
        **options,
    )


def _read_debian(node: _Node, folder: Path) -> DebianBase:
    # A bare `debian:` will do: everything about it has a default.
    values = {} if node.value is None else node.mapping(("suite", "mirror"))
    suite = values["suite"].text(_SUITE, "a suite's name as bookworm") if "suite" in values else DEFAULT_SUITE
    mirror = values["mirror"].text(_MIRROR, "an archive's address as http://...") if "mirror" in values else None
    return DebianBase(suite, mirror)


def _read_directory(node: _Node, folder: Path) -> DirectoryBase:
    return DirectoryBase(node.existing(folder, "a directory with a root filesystem", Path.is_dir))


def _read_tar(node: _Node, folder: Path) -> TarBase:
    return TarBase(node.existing(folder, "a tar archive", Path.is_file))


def _read_oci(node: _Node, folder: Path) -> OciBase:
    expected = "an OCI layout (a directory, or a tar of one)"
    if not isinstance(node.value, dict):
        return OciBase(node.existing(folder, expected, _any_path))
    keys = node.mapping(("path", "tag"))
    if "path" not in keys:
        node.fail(f"the key path must name {expected}")
    return OciBase(keys["path"].existing(folder, expected, _any_path), keys["tag"].text() if "tag" in keys else None)


def _any_path(path: Path) -> bool:
    return path.is_dir() or path.is_file()


def _read_packages(node: _Node, folder: Path) -> tuple[str, ...]:
    packages = tuple(child.text(_PACKAGE, "a package's name") for child in node.sequence())
    return tuple(dict.fromkeys(packages))


def _read_files(node: _Node, folder: Path) -> tuple[FileCopy, ...]:
    return tuple(_read_file(child, folder) for child in node.sequence())


def _read_file(node: _Node, folder: Path) -> FileCopy:
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


def _read_run(node: _Node, folder: Path) -> tuple[str, ...]:
    commands = tuple(child.text(expected="a shell command") for child in node.sequence())
    for child, command in zip(node.sequence(), commands, strict=True):
        if not command.strip():
            child.fail("is an empty command")
    return commands


def _read_env(node: _Node, folder: Path) -> dict[str, str]:
    if not isinstance(node.value, dict):
        node.fail(f"must be a mapping of names to strings, not {_kind(node.value)}")
    env = {}
    for name, value in node.value.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            node.child(str(name), value).fail("no name for a variable; letters, digits and _ are allowed")
        env[name] = node.child(name, value).text(expected="a string (in quotes)")
    return env


def _read_workdir(node: _Node, folder: Path) -> str:
    return str(PurePosixPath(node.inside_path()))


def _read_user(node: _Node, folder: Path) -> str:
    if isinstance(node.value, int) and not isinstance(node.value, bool) and node.value >= 0:
        return str(node.value)
    return node.text(_ACCOUNT, "user or user:group, names or numbers")


def _read_hostname(node: _Node, folder: Path) -> str:
    return node.text(_HOSTNAME, "a host name of lower-case letters, digits and -")


_BASES: dict[str, Callable[[_Node, Path], Base]] = {
    "debian": _read_debian,
    "directory": _read_directory,
    "tar": _read_tar,
    "oci": _read_oci,
}

_OPTIONAL: dict[str, Callable[[_Node, Path], Any]] = {
    "packages": _read_packages,
    "files": _read_files,
    "run": _read_run,
    "env": _read_env,
    "workdir": _read_workdir,
    "user": _read_user,
    "hostname": _read_hostname,
}
