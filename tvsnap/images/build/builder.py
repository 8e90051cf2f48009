"""Builds the tree of an image, step by step: base, packages, files, commands, data, finish."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath

from tvsnap.images.architecture import this_architecture
from tvsnap.images.build.bootstrap import PATH, bootstrap, bootstrap_installs_packages, install_script
from tvsnap.images.build.built_base import COPY, BuiltBase
from tvsnap.images.build.certificates import lend, step_variables, take_back
from tvsnap.images.build.container_base import ContainerBase
from tvsnap.images.build.extract import extract_tar
from tvsnap.images.build.oci import unpack_oci
from tvsnap.images.build.runner import proxy_variables, run_beside, run_inside
from tvsnap.images.build.services import BuiltService, add_program, join, main_program, names_of, port_conflicts
from tvsnap.images.build.steps import Steps
from tvsnap.images.descriptions.config import BaseConfig
from tvsnap.images.descriptions.spec import (
    DebianBase,
    DirectoryBase,
    DockerfileBase,
    DockerImageBase,
    FileCopy,
    ImageBase,
    ImageSpec,
    OciBase,
    TarBase,
)
from tvsnap.images.errors import BuildStepFailed, ImageSpecError
from tvsnap.images.layers import Below, subtract
from tvsnap.images.loaders import ImageLoader, Loaded, loader
from tvsnap.images.preload import preload, without_preload
from tvsnap.images.progress import BuildProgress
from tvsnap.images.rootfs import (
    TreeSummary,
    account_ids,
    file_digest,
    finish_tree,
    make_directories,
    resolve_inside,
    shift_owners,
    walk,
    write_file,
)
from tvsnap.model.images import UID_BASE, has_nothing_to_gain
from tvsnap.model.services import Program, Services

BUILDER_VERSION = 1
"""Increases when the same spec is built into something else."""

Base = ContainerBase | BuiltBase
"""A base that other code provides, if a spec starts from one."""

_ABOUT_PROGRAM = ("ENTRYPOINT ", "CMD ")
_ABOUT_HEALTH = ("HEALTHCHECK", "healthcheck: not run for the main service")
"""Beginnings of the notes that the main service's program is not run, or not checked."""
_NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts")
"""This machine's files, lent to the build so that its steps reach the network; the finish replaces them."""


@dataclass(frozen=True, slots=True)
class BuiltTree:
    """A finished tree and how to run it; see `Image` and `Manifest` for the fields."""

    digest: str
    size: int
    env: dict[str, str]
    workdir: str
    user: str
    no_new_privileges: bool
    notes: tuple[str, ...]
    contents: Mapping[str, tuple[str, ...]]
    services: Services
    program: Program


def recipe_of(spec: ImageSpec, origin: Base | None = None, services: Sequence[BuiltService] = ()) -> str:
    """Returns a hash of all that a build depends on: the spec, the files that it names, this machine's architecture.

    Files count by name, mode, content and link target, those of a base by their owners as well, and never by inodes and
    times: a fresh copy of a folder is the same image. Container images count by their ids, other images of tvsnap by
    their digests, data by its loader's signature. Raises ImageSpecError if one of the files is unreadable.
    """
    try:
        return _recipe_of(spec, origin, services)
    except OSError as error:
        raise ImageSpecError(f"{spec.folder}: cannot read what the image is made of: {error}") from error


def _recipe_of(spec: ImageSpec, origin: Base | None, services: Sequence[BuiltService]) -> str:
    filled_by = loader(spec.environment)
    settings = {
        "builder": BUILDER_VERSION,
        "architecture": this_architecture(),
        "base": [type(spec.base).__name__, {key: _told(value, spec) for key, value in asdict(spec.base).items()}],
        "inputs": origin.signature() if origin else _base_signature(spec),
        "packages": sorted(spec.packages),
        "files": [[_file_signature(entry), entry.dest, entry.mode, entry.owner] for entry in spec.files],
        "run": spec.run,
        "environment": spec.environment,
        "env": spec.env,
        "workdir": spec.workdir,
        "user": spec.user,
        "hostname": spec.hostname,
        "no_new_privileges": spec.no_new_privileges,
        **({"directories": spec.directories} if spec.directories else {}),
        **(filled_by.signature(spec.data) if filled_by else {}),
        **({"services": [one.signature() for one in services], "main": asdict(spec.main)} if services else {}),
        **({"is_service": True} if spec.is_service else {}),
        **({"runs": [asdict(spec.runs), spec.runs_as]} if spec.runs else {}),
        **_asked_for(spec),
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _told(value: object, spec: ImageSpec) -> str:
    """Returns a value as text; a path as seen from the description's folder, which may be a copy of another."""
    return os.path.relpath(value, spec.folder) if isinstance(value, Path) else str(value)


def _asked_for(spec: ImageSpec) -> dict[str, object]:
    """Returns an image's rarely used settings in a form to be hashed: clock, seed, limits, network, ..."""
    settings = {
        "clock": spec.clock,
        "random_seed": spec.random_seed,
        "reseed": spec.reseed or None,
        "limits": spec.limits.said() or None,
        "timeouts": spec.timeouts.said() or None,
        "network": str(spec.network) if spec.network is not None and spec.network.attached else None,
        "task": spec.task.said() or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _base_signature(spec: ImageSpec) -> str | None:
    if not isinstance(spec.base, (DirectoryBase, TarBase, OciBase)):
        return None
    return _tree_signature(spec.base.path, owners=True)


def _file_signature(entry: FileCopy) -> object:
    if entry.source is None:
        return entry.content
    return _tree_signature(entry.source)


def _tree_signature(path: Path, owners: bool = False) -> str:
    """Returns a hash of a file or a tree: names, modes, contents, link targets and, if asked for, owners."""
    signature = hashlib.sha256()
    top = path.resolve()
    for name, info in walk(top):
        fields: list[object] = [os.path.relpath(name, top), info.st_mode]
        if owners:
            fields += [info.st_uid, info.st_gid]
        if stat.S_ISREG(info.st_mode):
            fields.append(file_digest(name))
        elif stat.S_ISLNK(info.st_mode):
            fields.append(os.readlink(name))
        elif not stat.S_ISDIR(info.st_mode):
            fields.append(info.st_rdev)
        signature.update(os.fsencode(repr(fields)))
    return signature.hexdigest()


def build_tree(
    spec: ImageSpec,
    origin: Base | None,
    work: Path,
    root: Path,
    log: Path,
    cache: Path,
    progress: BuildProgress,
    below: Below,
    services: Sequence[BuiltService],
) -> BuiltTree:
    """Builds an image's tree.

    Raises ImageBuildError if a step fails, and MachineLacks if this machine lacks what a step needs; the caller removes
    the directories.

    Args:
        spec: the image's description.
        origin: its base, if other code provides that.
        work: an empty directory for temporary files.
        root: where to make the tree; does not exist yet.
        log: a file that gets all output.
        cache: a directory for packages that make later builds faster.
        progress: receives the reports.
        below: the shared trees; the new tree omits their contents.
        services: the services besides the main one.
    """
    installs = bool(spec.packages) and not (isinstance(spec.base, DebianBase) and bootstrap_installs_packages())
    filled_by = None if _is_loaded(spec, origin) else loader(spec.environment)
    count = 2 + installs + bool(spec.files) + len(spec.run) + (filled_by is not None)
    with log.open("w", encoding="utf-8", errors="backslashreplace") as stream:
        steps = Steps(spec.name, count, progress, stream)
        return _Build(spec, origin, work, root, cache, progress, steps, filled_by, below, services).run()


@dataclass(slots=True)
class _Build:
    """One build in progress; see `build_tree`."""

    spec: ImageSpec
    origin: Base | None
    work: Path
    root: Path
    cache: Path
    progress: BuildProgress
    steps: Steps
    loader: ImageLoader | None
    below: Below
    services: Sequence[BuiltService]
    notes: list[str] = field(default_factory=list)

    def run(self) -> BuiltTree:
        spec = self.spec
        with self.steps.step(_base_title(spec)):
            config, remaining = self._make_base()
            if not isinstance(self.origin, BuiltBase):
                shift_owners(self.root)
            without_preload(self.root)
            env = {"PATH": PATH, **config.env, **spec.env}
            workdir = spec.workdir or config.workdir or "/"
            for directory in (workdir, *config.volumes, *spec.directories):
                make_directories(self.root, directory, UID_BASE)
        runs_as = spec.runs_as or config.user or "root"
        program = main_program(spec.runs, config.program, env, workdir, runs_as) if spec.runs else None
        for note in (*spec.notes, *(config.notes_of_service if spec.is_service else config.notes)):
            if not (spec.runs and note.startswith(_ABOUT_PROGRAM)) and not (program and note.startswith(_ABOUT_HEALTH)):
                self._note(note)
        self._lend_network()
        lend(self.root)
        if remaining:
            with self.steps.step(f"packages: {', '.join(remaining)}"):
                self._shell(install_script(remaining), {**env, "DEBIAN_FRONTEND": "noninteractive"}, "/")
        if spec.files:
            with self.steps.step(f"files: {', '.join(entry.dest for entry in spec.files)}"):
                for entry in spec.files:
                    self._put(replace(entry, dest=str(PurePosixPath(workdir, entry.dest))))
        for command in spec.run:
            with self.steps.step(f'run "{_one_line(command)}"'):
                self._shell(command, env, workdir)
        loaded = self._load(env)
        env = {**env, **loaded.env, **spec.env}
        with self.steps.step("finish"):
            take_back(self.root)
            user = spec.user or config.user or "root"
            account_ids(self.root, user)
            if spec.clock is not None or spec.random_seed is not None:
                preload(self.root)
            hosts = names_of(spec.main, self.services)
            tree = finish_tree(self.root, spec.hostname, self.progress.fraction, hosts=hosts)
            services, added = self._join()
            if program is not None:
                account_ids(self.root, program.user)
                services = replace(services, program=replace(program, env=env))
                added += add_program(self.root, program)
            if self.below.trees:
                subtract(self.root, self.below.trees)
        confined = has_nothing_to_gain(user) if spec.no_new_privileges is None else spec.no_new_privileges
        digest = _image_digest(tree, spec, env, workdir, user, confined, self.below, added)
        size = tree.size + sum(one.image.size for one in self.services)
        notes = tuple(self.notes)
        return BuiltTree(digest, size, env, workdir, user, confined, notes, loaded.contents, services, config.program)

    def _join(self) -> tuple[Services, str]:
        """Adds the services; returns them, and a hash of their additions."""
        if not self.services:
            return Services(), ""
        joined = join(self.root, self.spec.main, self.services, self.work, self.steps.output, self.progress.fraction)
        for note in port_conflicts(joined[0].others):
            self._note(note)
        return joined

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.steps.note(text)

    def _load(self, env: Mapping[str, str]) -> Loaded:
        data = self.spec.data
        if self.loader is None:
            return Loaded(self.origin.contents if isinstance(self.origin, BuiltBase) else {})
        with self.steps.step(self.loader.title(data)):
            return self.loader.load(
                data, self.root, self.work, lambda script: self._shell(script, env, "/"), self._note
            )

    def _make_base(self) -> tuple[BaseConfig, tuple[str, ...]]:
        """Makes the tree; returns its configuration, and the packages that are not installed yet."""
        spec = self.spec
        config = BaseConfig()
        match spec.base:
            case DebianBase(suite=suite):
                cache = self.cache / "apt" / suite
                return config, bootstrap(spec.base, spec.packages, self.root, self.work, cache, self.steps.output)
            case DirectoryBase(path=path):
                run_beside([*COPY, str(path.resolve()), str(self.root)], os.environ, self.steps.output)
            case TarBase(path=path):
                self._new_root()
                extract_tar(path, self.root, self.progress.fraction)
            case OciBase(path=path, tag=tag):
                self._new_root()
                scratch = self.work / "layout"
                scratch.mkdir()
                config = unpack_oci(path, tag, self.root, scratch, self.progress.fraction)
            case DockerfileBase() | DockerImageBase() | ImageBase():
                assert self.origin is not None
                self._new_root()
                config = self.origin.unpack(self.root, self.steps.output, self.progress.fraction)
        return config, spec.packages

    def _new_root(self) -> None:
        self.root.mkdir()
        self.root.chmod(0o755)

    def _shell(self, script: str, env: Mapping[str, str], cwd: str) -> None:
        run_inside(
            self.root,
            ["/bin/sh", "-e", "-c", script],
            {**proxy_variables(), **step_variables(), "HOME": "/root", **env},
            self.steps.output,
            cwd=cwd,
            hostname=self.spec.hostname,
        )

    def _lend_network(self) -> None:
        for name in _NETWORK_FILES:
            with contextlib.suppress(FileNotFoundError):
                write_file(self.root, name, Path(name).read_bytes())

    def _put(self, entry: FileCopy) -> None:
        uid, gid = account_ids(self.root, entry.owner)
        if entry.source is None:
            assert entry.content is not None
            mode = 0o644 if entry.mode is None else entry.mode
            write_file(self.root, entry.dest, entry.content.encode(), mode=mode, uid=uid, gid=gid)
            return
        source = entry.source.resolve()
        for path, info in walk(source):
            inside = PurePosixPath(entry.dest, os.path.relpath(path, source)) if path != str(source) else entry.dest
            self._put_one(Path(path), info, str(inside), entry.mode, uid, gid)

    def _put_one(self, path: Path, info: os.stat_result, inside: str, mode: int | None, uid: int, gid: int) -> None:
        permissions = stat.S_IMODE(info.st_mode) if mode is None else mode
        if stat.S_ISDIR(info.st_mode):
            # A directory that the image has already, such as /etc, stays as it is.
            if not resolve_inside(self.root, inside, follow=True).is_dir():
                directory = make_directories(self.root, inside, UID_BASE)
                os.chown(directory, UID_BASE + uid, UID_BASE + gid)
                directory.chmod(permissions)
        elif stat.S_ISLNK(info.st_mode):
            make_directories(self.root, str(PurePosixPath(inside).parent), UID_BASE)
            target = resolve_inside(self.root, inside)
            target.unlink(missing_ok=True)
            target.symlink_to(os.readlink(path))
            os.chown(target, UID_BASE + uid, UID_BASE + gid, follow_symlinks=False)
        elif stat.S_ISREG(info.st_mode):
            with path.open("rb") as stream:
                write_file(self.root, inside, stream, mode=permissions, uid=uid, gid=gid)
        else:
            raise BuildStepFailed(f"failed: {path} is no file, directory or symbolic link")


def _base_title(spec: ImageSpec) -> str:
    match spec.base:
        case DebianBase(suite=suite):
            count = len(spec.packages)
            more = f" with {count} package{'s' * (count != 1)}" if count else ""
            return f"bootstrap of {suite}{more}"
        case DirectoryBase(path=path):
            return f"copy of {path}"
        case TarBase(path=path) | OciBase(path=path):
            return f"unpacking of {path}"
        case DockerfileBase(path=path):
            return f"build of {os.path.relpath(path, spec.folder)}"
        case DockerImageBase(image=image):
            return f"files of {image}"
        case ImageBase(name=name):
            return f"copy of the image {name}"


def _is_loaded(spec: ImageSpec, origin: Base | None) -> bool:
    """Whether the base already has all data that the image should have."""
    same = isinstance(origin, BuiltBase) and origin.image.environment == spec.environment
    return same and not spec.data


def _one_line(command: str) -> str:
    lines = command.strip().splitlines()
    text = lines[0] if len(lines) == 1 else f"{lines[0]} ..."
    return text if len(text) <= 100 else f"{text[:97]}..."


def _image_digest(
    tree: TreeSummary,
    spec: ImageSpec,
    env: dict[str, str],
    workdir: str,
    user: str,
    no_new_privileges: bool,
    below: Below,
    services: str,
) -> str:
    """Returns a hash of all that a sandbox sees of an image: its files, the start of shells, and its settings."""
    parts = {
        "format": BUILDER_VERSION,
        "tree": tree.digest,
        "environment": spec.environment,
        "env": env,
        "workdir": workdir,
        "user": user,
        "hostname": spec.hostname,
        **({"no_new_privileges": True} if no_new_privileges else {}),
        **({"below": below.digest} if below.trees else {}),  # joined directories have other link counts
        **({"services": services} if services else {}),
        **_asked_for(spec),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
