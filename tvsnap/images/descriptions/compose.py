"""A Docker Compose file with one service, as benchmarks describe a task's container: as far as a sandbox can be it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from tvsnap.images.descriptions.config import unused_command
from tvsnap.images.descriptions.document import Node, load_yaml
from tvsnap.images.descriptions.spec import (
    IMAGE_REFERENCE,
    Base,
    DockerImageBase,
    FileCopy,
    dockerfile_base,
    read_account,
    read_hostname,
)
from tvsnap.images.descriptions.variables import expand
from tvsnap.images.errors import ImageSpecError
from tvsnap.images.small_files import read_small_text
from tvsnap.model.images import ImageLimits

COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")

HARNESS = "harness"
"""Stands for a folder of the benchmark's own, empty when a task begins: as the source of a volume it is no news."""

_SILENT = frozenset(
    {
        "annotations",
        "attach",
        "container_name",
        "image",
        "init",
        "labels",
        "logging",
        "restart",
        "stdin_open",
        "tty",
        "develop",
        "pull_policy",
        "profiles",
        "scale",
        "stop_grace_period",
        "build",
        "deploy",
    }
)
"""Keys that make no difference inside a sandbox, or are read elsewhere."""

_UNSUPPORTED = {
    "ports": "nothing outside a sandbox reaches its ports",
    "expose": "nothing outside a sandbox reaches its ports",
    "networks": "a sandbox has no network but loopback",
    "links": "a sandbox has no network but loopback",
    "external_links": "a sandbox has no network but loopback",
    "dns": "a sandbox has no network but loopback",
    "extra_hosts": "a sandbox has the names of loopback only",
    "privileged": "not granted: mounts, kernel settings and the like fail",
    "cap_add": "not granted: what needs these rights fails",
    "cap_drop": "not done: root keeps its usual rights inside",
    "devices": "not there: a sandbox has /dev/null and its like only",
    "gpus": "no GPU in a sandbox: what needs one fails",
    "runtime": "not used: a sandbox has its own",
    "healthcheck": "not run",
    "ulimits": "not set",
    "sysctls": "not set",
    "shm_size": "not set: /dev/shm may fill the sandbox's memory limit",
    "memswap_limit": "not set: a sandbox does not swap",
    "mem_reservation": "no reservations: only limits are kept",
    "cpu_shares": "no shares: only limits are kept",
    "cpuset": "a sandbox may run on any processor",
    "secrets": "not there",
    "configs": "not there",
    "read_only": "the root file system can be written",
    "ipc": "a sandbox has its own",
    "pid": "a sandbox has its own",
    "userns_mode": "a sandbox has its own",
    "cgroup": "a sandbox has its own",
    "stop_signal": "not used; a sandbox ends at once",
    "platform": "the image is built for this machine",
    "post_start": "not run",
    "pre_stop": "not run",
}
"""Keys that a sandbox does not do, and what that means."""

_BUILD_SILENT = frozenset(
    {"context", "dockerfile", "args", "target", "labels", "tags", "cache_from", "cache_to", "no_cache", "pull"}
)


@dataclass(frozen=True, slots=True)
class Service:
    """The one service; see `ImageSpec` for the fields."""

    base: Base | None
    env: dict[str, str]
    workdir: str | None
    user: str | None
    hostname: str | None
    directories: tuple[str, ...]
    files: tuple[FileCopy, ...]
    limits: ImageLimits
    no_new_privileges: bool | None
    notes: tuple[str, ...]


def find_compose(folder: Path) -> Path | None:
    """The Compose file of a folder; None if it has none."""
    return next((folder / name for name in COMPOSE_FILES if (folder / name).is_file()), None)


def load_compose(path: Path, folder: Path, harness: Mapping[str, str]) -> Service:
    """Reads a Compose file.

    Args:
        path: of it.
        folder: of the task: all that a build may read lies in it.
        harness: variables that the benchmark sets. Others come from the file `.env` beside the Compose file, and never
            from this machine's environment, which is no business of a task.

    Raises:
        ImageSpecError: it is wrong, or describes what no single sandbox can be.
    """
    document = load_yaml(path)
    unknown: list[str] = []
    values = {**_dotenv(path.parent / ".env"), **harness}
    document = _expanded(document, values, unknown.append)
    services = document.entries().get("services", document.child("services", None)).entries()
    if len(services) != 1:
        names = ", ".join(services) or "none"
        document.child("services", None).fail(
            f"a sandbox is one container, and this describes {len(services)} ({names}); put what the task needs of the "
            "others into its Dockerfile, and let the first call start it"
        )
    reader = _Reader(path.parent, folder, next(iter(services.values())))
    service = reader.read()
    missing = [f"${name}: not set, so it is empty" for name in dict.fromkeys(unknown)]
    return replace(service, notes=(*service.notes, *missing))


def _expanded(node: Node, values: Mapping[str, str], missing: Callable[[str], None]) -> Node:
    def put_in(value: object) -> object:
        if isinstance(value, str):
            return expand(value, values, missing)
        if isinstance(value, list):
            return [put_in(item) for item in value]
        if isinstance(value, dict):
            return {key: put_in(item) for key, item in value.items()}
        return value

    return Node(node.path, node.key, put_in(node.value))


def _dotenv(path: Path) -> dict[str, str]:
    values = {}
    if path.is_file():
        try:
            text = read_small_text(path, "replace")
        except OSError as error:
            raise ImageSpecError(f"{path}: {error.strerror}") from None
        for line in text.splitlines():
            name, equals, value = line.strip().removeprefix("export ").partition("=")
            if equals and not name.startswith("#"):
                value = value.strip()
                quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
                values[name.strip()] = value[1:-1] if quoted else value.partition(" #")[0].strip()
    return values


@dataclass(slots=True)
class _Reader:
    """One service on its way into a `Service`."""

    place: Path
    folder: Path
    node: Node
    notes: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    files: list[FileCopy] = field(default_factory=list)

    def read(self) -> Service:
        keys = self.node.entries()
        for key in [key for key in keys if not key.startswith("x-")]:
            if key in _UNSUPPORTED:
                if keys[key].value not in (None, False, [], {}):
                    self.notes.append(f"{key}: {_UNSUPPORTED[key]}")
            elif key not in _SILENT and key not in _READ:
                self.notes.append(f"{key}: not understood, and passed over")
        if "extends" in keys:
            keys["extends"].fail("is not supported; write out what it stands for")
        mode = keys["network_mode"].scalar() if "network_mode" in keys else "none"
        if mode != "none":
            self.notes.append(f"network_mode {mode}: a sandbox has no network but loopback")
        entrypoint, command = (self._words(keys.get(key)) for key in ("entrypoint", "command"))
        if note := unused_command(entrypoint, command):
            self.notes.append(note)
        base = self._base(keys)
        env = {**self._env_files(keys.get("env_file")), **self._variables(keys.get("environment"))}
        for volume in keys["volumes"].sequence() if "volumes" in keys else []:
            self._volume(volume)
        for target in self._strings(keys.get("tmpfs")):
            self._directory(target.partition(":")[0], f"tmpfs {target}: an ordinary directory, part of every snapshot")
        no_new_privileges = self._no_new_privileges(keys.get("security_opt"))
        return Service(
            base=base,
            env=env,
            workdir=keys["working_dir"].inside_path() if "working_dir" in keys else None,
            user=read_account(keys["user"]) if "user" in keys else None,
            hostname=read_hostname(keys["hostname"]) if "hostname" in keys else None,
            directories=tuple(self.directories),
            files=tuple(self.files),
            limits=self._limits(keys),
            no_new_privileges=no_new_privileges,
            notes=tuple(self.notes),
        )

    def _base(self, keys: dict[str, Node]) -> Base | None:
        build = keys.get("build")
        if build is None:
            reference = keys["image"].scalar() if "image" in keys else ""
            return DockerImageBase(keys["image"].text(IMAGE_REFERENCE, "an image's name")) if reference else None
        options = build.entries() if isinstance(build.value, dict) else {"context": build}
        if "dockerfile_inline" in options:
            options["dockerfile_inline"].fail("is not supported; write it into a file and name that by dockerfile")
        for key in sorted(options.keys() - _BUILD_SILENT):
            self.notes.append(f"build.{key}: not used")
        here = build.child("context", ".")
        context = options.get("context", here).existing(self.place, "a folder", Path.is_dir)
        name = options.get("dockerfile", build.child("dockerfile", "Dockerfile"))
        path = name.existing(context, "a Dockerfile", Path.is_file)
        args = self._variables(options.get("args"))
        target = options["target"].text() if options.get("target") else None
        return dockerfile_base(build, self.folder, path, context, args, target)

    def _limits(self, keys: dict[str, Node]) -> ImageLimits:
        deploy = keys["deploy"].entries() if "deploy" in keys else {}
        resources = deploy["resources"].entries() if "resources" in deploy else {}
        limits = resources["limits"].entries() if "limits" in resources else {}
        reservations = resources["reservations"].entries() if "reservations" in resources else {}
        if "devices" in reservations:
            self.notes.append(f"deploy.resources.reservations.devices: {_UNSUPPORTED['gpus']}")
        memory = limits.get("memory") or keys.get("mem_limit")
        cpus = limits.get("cpus") or keys.get("cpus")
        processes = limits.get("pids") or keys.get("pids_limit")
        storage = keys["storage_opt"].entries() if "storage_opt" in keys else {}
        return ImageLimits(
            memory=memory.size() if memory else None,
            processes=self._processes(processes),
            cpus=cpus.number("a number of processors") if cpus else None,
            disk=storage["size"].size() if "size" in storage else None,
        )

    def _no_new_privileges(self, node: Node | None) -> bool | None:
        """What the security options say of it; others are not applied."""
        said = None
        for option in self._strings(node):
            name, _, value = option.replace("=", ":").partition(":")
            if name == "no-new-privileges":
                said = value.lower() in ("", "true", "1")
            else:
                self.notes.append(f"security_opt {option}: not applied: a sandbox has its own confinement")
        return said

    def _processes(self, node: Node | None) -> int | None:
        if node is None or node.scalar() in ("-1", "0"):
            return None
        return int(node.number("a number of processes"))

    def _variables(self, node: Node | None) -> dict[str, str]:
        """A mapping of names to values, or a list of NAME=value; a name alone stands for a value from outside."""
        if node is None:
            return {}
        if isinstance(node.value, dict):
            pairs = [(name, None if value.value is None else value.scalar()) for name, value in node.entries().items()]
        else:
            texts = [item.scalar().partition("=") for item in node.sequence()]
            pairs = [(name, value if equals else None) for name, equals, value in texts]
        for name in [name for name, value in pairs if value is None]:
            self.notes.append(f"{node.key.rpartition('.')[2]} {name}: not taken from this machine's environment")
        return {name: value for name, value in pairs if value is not None}

    def _env_files(self, node: Node | None) -> dict[str, str]:
        values: dict[str, str] = {}
        for name in self._strings(node):
            assert node is not None
            path = node.child(name, name).existing(self.place, "a file", Path.is_file)
            self._inside(node, path)
            values |= _dotenv(path)
        return values

    def _volume(self, node: Node) -> None:
        """A mount: the task's own files are copied to where they would appear, for anything else is a directory."""
        if isinstance(node.value, dict):
            keys = node.entries()
            source = keys["source"].scalar() if "source" in keys else ""
            target = keys["target"].inside_path() if "target" in keys else node.fail("needs a target")
        else:
            source, colon, rest = node.scalar().partition(":")
            source, target = (source, rest.partition(":")[0]) if colon else ("", source)
            target = Node(node.path, node.key, target).inside_path()
        if source.startswith(("./", "../", "/", "~")) or source in (".", ".."):
            path = (self.place / Path(source)).resolve()
            if path.is_relative_to(self.folder.resolve()) and path.exists():
                self.files.append(FileCopy(path, None, str(PurePosixPath(target))))
                self.notes.append(f"volume {source}:{target}: copied into the image; changes stay in the sandbox")
            else:
                self._directory(target, f"volume {source}:{target}: an empty directory, for nothing outside is mounted")
        elif source == HARNESS:
            self.directories.append(target)
        else:
            self._directory(target, f"volume {source or target}: an ordinary directory, part of every snapshot")

    def _directory(self, target: str, note: str) -> None:
        self.directories.append(str(PurePosixPath(target)))
        self.notes.append(note)

    def _inside(self, node: Node, path: Path) -> None:
        if not path.resolve().is_relative_to(self.folder.resolve()):
            node.fail(f"{path} lies outside the task's folder")

    def _strings(self, node: Node | None) -> list[str]:
        if node is None or node.value is None:
            return []
        if isinstance(node.value, str):
            return [node.value]
        return [
            item.entries()["path"].scalar() if isinstance(item.value, dict) else item.scalar()
            for item in node.sequence()
        ]

    def _words(self, node: Node | None) -> list[str]:
        if node is None or node.value is None:
            return []
        if isinstance(node.value, str):
            return shlex.split(node.value)
        return [item.scalar() for item in node.sequence()]


_READ = frozenset(
    {
        "entrypoint",
        "command",
        "environment",
        "env_file",
        "volumes",
        "tmpfs",
        "working_dir",
        "user",
        "hostname",
        "mem_limit",
        "cpus",
        "pids_limit",
        "storage_opt",
        "network_mode",
        "security_opt",
        "extends",
    }
)
"""Keys that `_Reader` reads."""
