"""Compose files that consist of several: `include` and `extends` are replaced by their contents.

The rules are those of the Compose specification (its chapters "Include", "Merge", and on services "extends").
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvsnap.images.descriptions.document import load_yaml
from tvsnap.images.descriptions.values import listed
from tvsnap.images.descriptions.variables import InvalidReference, VariableMissing, expand
from tvsnap.images.errors import ImageSpecError
from tvsnap.plugins.tasks.env_file import read_env_file

_MOST = 100
"""Files that one may include, and services that one may extend by way of others."""
_RESOURCES = ("services", "networks", "volumes", "secrets", "configs")
"""Top-level keys, of which an included file may have further entries."""
_REPLACED = ("command", "entrypoint", "healthcheck.test")
"""Lists of which the later one counts; all others are appended."""
_PAIRS = ("environment", "build.args", "labels", "build.labels", "annotations", "sysctls")
"""Mappings that may be written as lists of NAME=value."""
_LISTS = ("env_file", "tmpfs", "dns", "dns_search")
"""Lists of which a single entry may be written alone."""
_STARTED = {"condition": "service_started"}


def read_compose(path: Path, folder: Path, variables: Mapping[str, str], missing: Callable[[str], None]) -> Any:
    """Reads a Compose file with all that it includes and extends, and replaces variables.

    Returns the contents as if they stood in one file at `path`, relative paths included; the kinds of values are not
    checked. Raises ImageSpecError if a file is missing, invalid or outside of the folder, if one includes itself or a
    service extends itself, or if two files describe one resource differently.

    Args:
        path: of the file.
        folder: of the image, in which all files must be.
        variables: those of an included file's `.env` are added for that file.
        missing: gets the names of variables that have neither a value nor a default.
    """
    return _Reader(folder.resolve(), path.parent, missing).read(path, path.parent, variables, ())


@dataclass
class _Reader:
    folder: Path
    root: Path
    missing: Callable[[str], None]
    included: int = 0
    loaded: dict[Path, Any] = field(default_factory=dict)

    def read(self, path: Path, home: Path, variables: Mapping[str, str], within: tuple[Path, ...]) -> Any:
        """Returns a file's contents; `home` is the base of its relative paths, `within` the files that include it."""
        document = self._load(path, variables)
        if not isinstance(document, dict):
            return document
        result = {key: value for key, value in document.items() if key != "include"}
        if isinstance(services := result.get("services"), dict):
            result["services"] = {name: self._service(name, services, path, home, variables, ()) for name in services}
        for kind in ("secrets", "configs"):
            if isinstance(result.get(kind), dict):
                result[kind] = {name: self._lent(about, home) for name, about in result[kind].items()}
        entries = document.get("include") or []
        if not isinstance(entries, list):
            raise ImageSpecError(f"{path}: include: must be a list of files")
        for entry in entries:
            self._include(result, path, entry, home, variables, (*within, path.resolve()))
        return result

    def _load(self, path: Path, variables: Mapping[str, str]) -> Any:
        if path not in self.loaded:
            self.loaded[path] = load_yaml(path, of_compose=True)
        try:
            return _expanded(self.loaded[path], variables, self.missing)
        except VariableMissing as error:
            raise ImageSpecError(f"{path}: {error}; set it in {self.root / '.env'}") from None
        except InvalidReference as error:
            raise ImageSpecError(f"{path}: {error}") from None

    def _include(
        self,
        result: dict[str, Any],
        path: Path,
        entry: Any,
        home: Path,
        variables: Mapping[str, str],
        within: tuple[Path, ...],
    ) -> None:
        """Adds the contents of an entry of `include`."""
        where = f"{path}: include"
        settings = entry if isinstance(entry, dict) else {"path": entry}
        files = [self._file(where, home, each) for each in _listed(settings.get("path"))]
        if not files:
            raise ImageSpecError(f"{where}: needs the path of a file")
        self.included += len(files)
        if self.included > _MOST:
            raise ImageSpecError(f"{where}: more than {_MOST} files")
        its_home = home / str(settings["project_directory"]) if settings.get("project_directory") else files[0].parent
        env_files = [self._file(where, home, each) for each in _listed(settings.get("env_file"))] or [its_home / ".env"]
        defaults = {name: value for file in env_files for name, value in read_env_file(file, variables).items()}
        more: Any = {}
        for file in files:
            if file.resolve() in within:
                raise ImageSpecError(f"{where}: {file} includes itself, by way of: {listed(within)}")
            part = self.read(file, its_home, {**defaults, **variables}, within)
            if not isinstance(part, dict):
                raise ImageSpecError(f"{file}: must be a mapping")
            more = _merged(more, {key: part[key] for key in _RESOURCES if part.get(key)}, "", 2)
        for kind, entries in more.items():
            have = result.get(kind) or {}
            if not isinstance(have, dict) or not isinstance(entries, dict):
                raise ImageSpecError(f"{where}: {kind}: must be a mapping")
            for name, about in entries.items():
                if name in have and have[name] != about:
                    raise ImageSpecError(
                        f"{where}: {kind}.{name} is described by {listed(files)}, and differently elsewhere; "
                        "rename one of them"
                    )
            result[kind] = {**have, **entries}

    def _service(
        self,
        name: Any,
        services: dict[Any, Any],
        path: Path,
        home: Path,
        variables: Mapping[str, str],
        chain: tuple[tuple[Path, Any], ...],
    ) -> Any:
        """Returns a service merged with the one that it extends; `chain` are those that extend it."""
        service = services[name]
        if not isinstance(service, dict):
            return service
        own = self._moved({key: value for key, value in service.items() if key != "extends"}, home)
        if not (extends := service.get("extends")):
            return own
        where = f"{path}: services.{name}.extends"
        about = extends if isinstance(extends, dict) else {"service": extends}
        if not isinstance(other := about.get("service"), str):
            raise ImageSpecError(f"{where}: needs service, the name of the one that it extends")
        chain = (*chain, (path.resolve(), name))
        file = self._file(where, home, about["file"]) if about.get("file") else path
        if (file.resolve(), other) in chain or len(chain) > _MOST:
            raise ImageSpecError(f"{where}: {other} extends itself, by way of: {listed(each for _, each in chain)}")
        document = self._load(file, variables) if file != path else {"services": services}
        have = document.get("services") if isinstance(document, dict) else None
        if not isinstance(have, dict) or other not in have:
            known_names = listed(have) if isinstance(have, dict) else "none"
            raise ImageSpecError(f"{where}: {file} has no service {other}; have: {known_names}")
        base = self._service(other, have, file, home if file == path else file.parent, variables, chain)
        return _merged(base, own)

    def _file(self, where: str, home: Path, name: Any) -> Path:
        file = Path(os.path.normpath(home / str(name)))
        if "://" in str(name):
            raise ImageSpecError(f"{where}: {name}: is not here, and nothing is fetched; copy it into the folder")
        if not file.resolve().is_relative_to(self.folder):
            raise ImageSpecError(f"{where}: {file} lies outside the image's folder; copy it there")
        if not file.is_file():
            raise ImageSpecError(f"{where}: {file} does not exist; it must be a file")
        return file

    # -- paths -------------------------------------------------------------------------------------------------------

    def _relative(self, path: Any, home: Path) -> Any:
        """Returns a path that begins at `home` as one that begins beside the first Compose file."""
        if not isinstance(path, str) or path.startswith(("/", "~")) or "://" in path or home == self.root:
            return path
        return "./" + os.path.normpath(os.path.join(os.path.relpath(home, self.root), path))

    def _moved(self, service: dict[str, Any], home: Path) -> dict[str, Any]:
        if home == self.root:
            return service
        moved = dict(service)
        if build := service.get("build"):
            build = build if isinstance(build, dict) else {"context": build}
            moved["build"] = {**build, "context": self._relative(build.get("context") or ".", home)}
        if service.get("env_file"):
            moved["env_file"] = [
                {**each, "path": self._relative(each.get("path"), home)}
                if isinstance(each, dict)
                else self._relative(each, home)
                for each in _listed(service["env_file"])
            ]
        if isinstance(volumes := service.get("volumes"), list):
            moved["volumes"] = [self._volume(each, home) for each in volumes]
        return moved

    def _volume(self, volume: Any, home: Path) -> Any:
        if isinstance(volume, dict):
            source = volume.get("source")
            ours = volume.get("type") == "bind" or str(source).startswith(".")
            return {**volume, "source": self._relative(source, home)} if ours and source else volume
        source, colon, rest = str(volume).partition(":")
        return f"{self._relative(source, home)}:{rest}" if colon and source.startswith(".") else volume

    def _lent(self, about: Any, home: Path) -> Any:
        file = about.get("file") if isinstance(about, dict) else None
        return {**about, "file": self._relative(file, home)} if file else about


def _merged(base: Any, later: Any, key: str = "", above: int = 0) -> Any:
    """Returns a value on top of another.

    `key` is their place in a service, with dots; `above` is the number of levels of mappings still above a service.
    """
    if later is None or base is None or key in _REPLACED:
        return base if later is None else later
    base, later = _long_form(key, base), _long_form(key, later)
    if isinstance(base, dict) and isinstance(later, dict):

        def within(name: Any) -> str:
            return "" if above else f"{key}.{name}".lstrip(".")

        both = {
            name: _merged(base[name], later[name], within(name), max(0, above - 1)) for name in base if name in later
        }
        return {**base, **later, **both}
    if isinstance(base, list) and isinstance(later, list):
        if key == "volumes":
            targets = [_target(each) for each in later]
            return [*(each for each in base if _target(each) not in targets), *later]
        return [*base, *(each for each in later if each not in base)]
    return later


def _long_form(key: str, value: Any) -> Any:
    """Returns a value in the form in which it can be merged."""
    if key in _PAIRS and isinstance(value, list):
        pairs = (str(each).partition("=") for each in value)
        return {name: text if equals else None for name, equals, text in pairs}
    if key == "depends_on" and isinstance(value, list):
        return {str(name): _STARTED for name in value}
    if key == "networks" and isinstance(value, list):
        return dict.fromkeys(map(str, value))
    if key == "build" and isinstance(value, str):
        return {"context": value}
    return _listed(value) if key in _LISTS else value


def _target(volume: Any) -> str:
    """Returns the path at which a volume is mounted."""
    if isinstance(volume, dict):
        return str(volume.get("target")).rstrip("/")
    source, colon, rest = str(volume).partition(":")
    return (rest.partition(":")[0] if colon else source).rstrip("/")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _expanded(value: Any, variables: Mapping[str, str], missing: Callable[[str], None]) -> Any:
    if isinstance(value, str):
        return expand(value, variables, missing)
    if isinstance(value, list):
        return [_expanded(item, variables, missing) for item in value]
    if isinstance(value, dict):
        return {key: _expanded(item, variables, missing) for key, item in value.items()}
    return value
