"""One service in a Docker Compose file, as far as a sandbox can do the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from tvsnap.images.descriptions import values
from tvsnap.images.descriptions.dockerfile_part import DockerfilePart
from tvsnap.images.descriptions.go_values import command_words
from tvsnap.images.descriptions.spec import DockerfileBase, FileCopy
from tvsnap.model.images import ImageLimits
from tvsnap.plugins.tasks.env_file import read_env_file

HARNESS = "harness"
"""Stands for a folder of the benchmark's own, empty when a task begins; as a volume's source it needs no note."""

_NO_NETWORK = "a sandbox has a way out of its own, and no network but that"
_NO_GPU = "no GPU in a sandbox: what needs one fails"
_UNSUPPORTED = {
    "annotations attach container_name develop init label_file labels logging profiles pull_policy pull_refresh_after "
    "restart scale stdin_open stop_grace_period tty": "",
    "ports expose": "nothing outside a sandbox reaches its ports",
    "networks links external_links dns dns_opt dns_search mac_address": _NO_NETWORK,
    "extra_hosts": "a sandbox has the names of loopback only",
    "privileged": "not granted: mounts, kernel settings and the like fail",
    "cap_add": "not granted: what needs these rights fails",
    "cap_drop": "not done: root keeps its usual rights inside",
    "devices device_cgroup_rules": "not there: a sandbox has /dev/null and its like only",
    "group_add": "not given: the user has the groups that the image says",
    "volumes_from": "not there: name the volumes",
    "use_api_socket credential_spec models provider": "not there: nothing outside is lent",
    "gpus": _NO_GPU,
    "runtime": "not used: a sandbox has its own",
    "healthcheck post_start pre_stop": "not run",
    "ulimits sysctls": "not set",
    "shm_size": "not set: /dev/shm may fill the sandbox's memory limit",
    "memswap_limit mem_swappiness": "not set: a sandbox does not swap",
    "oom_kill_disable oom_score_adj": "not set: a sandbox's memory limit ends processes in it",
    "blkio_config": "no limits of input and output",
    "cpu_count cpu_percent cpu_rt_period cpu_rt_runtime": "not set: cpus and cpu_quota are limits",
    "mem_reservation": "no reservations: only limits are kept",
    "cpu_shares": "no shares: only limits are kept",
    "cpuset": "a sandbox may run on any processor",
    "secrets configs": "not there",
    "read_only": "the root file system can be written",
    "ipc pid userns_mode uts isolation cgroup cgroup_parent": "a sandbox has its own",
    "domainname": "not set: a sandbox has a host name only",
    "stop_signal": "not used; a sandbox ends at once",
    "platform": "the image is built for this machine",
}
"""Keys that a sandbox ignores, with the consequence; empty if it makes no difference inside."""
_MEANING = {key: meaning for keys, meaning in _UNSUPPORTED.items() for key in keys.split()}

_PERIOD = 100_000.0
"""Microseconds of the scheduler's period, of which `cpu_quota` is a part, if `cpu_period` is not given."""

_BUILD = {
    "context",
    "dockerfile",
    "dockerfile_inline",
    "args",
    "target",
    "labels",
    "tags",
    "cache_from",
    "cache_to",
    "no_cache",
    "pull",
}
"""Keys of `build` that are read, or make no difference."""

_Processes = Annotated[int, Field(ge=-1), BeforeValidator(values.scalar), values.must_be("a number of processes")]


def _strings(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _listed(value: object) -> object:
    return [value] if isinstance(value, (str, dict)) else value


def _no_number(value: object) -> object:
    if isinstance(value, (bool, int, float)):
        raise ValueError(f"must be a string, not {values.kind(value)}; put it in quotes")
    return value


def _words(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        for item in value if isinstance(value, list) else ():
            if not isinstance(item, str):
                raise ValueError(f"must be a list of strings, not of {values.kind(item)}; put it in quotes")
        return value
    words, rest = command_words(value)
    if rest:
        values.place_of(info).notes.append(
            f"{info.field_name}: no shell runs it, and Compose drops what follows: {rest}"
        )
    return words


def _variables(value: object, info: ValidationInfo) -> dict[str, str | None]:
    """Parses a mapping of names to values, or a list of NAME=value.

    A name alone has the value that `.env` gives it. Without one it is not set, even if a file of `env_file` sets it.
    """
    place = values.place_of(info)
    if isinstance(value, dict):
        pairs = [(str(name), None if item is None else values.scalar(item)) for name, item in value.items()]
    elif isinstance(value, list):
        texts = [values.scalar(item).partition("=") for item in value]
        pairs = [(name, item if equals else None) for name, equals, item in texts if name or equals]
    else:
        raise ValueError(f"must be a mapping, or a list of NAME=value, not {values.kind(value)}")
    variables = {name: place.variables.get(name) if item is None else item for name, item in pairs}
    for name in [name for name, item in variables.items() if item is None]:
        place.notes.append(f"{info.field_name} {name}: not taken from this machine's environment")
    return variables


def _set_variables(value: object, info: ValidationInfo) -> dict[str, str]:
    return {name: item for name, item in _variables(value, info).items() if item is not None}


Variables = Annotated[dict[str, values.Text | None], BeforeValidator(_variables)]
"""Values by name; None for a name that is not to be set."""
SetVariables = Annotated[dict[str, values.Text], BeforeValidator(_set_variables)]
Words = Annotated[values.Many[values.Scalar], BeforeValidator(_words)]
Strings = Annotated[values.Many[values.Scalar], BeforeValidator(_strings)]
"""A list, or a single string."""


class _Build(DockerfilePart):
    args: SetVariables = values.UNSAID
    text: values.Text = values.UNSAID

    @model_validator(mode="before")
    @classmethod
    def translate(cls, value: Any, info: ValidationInfo) -> Any:
        """Converts it to the form in image.yaml."""
        if not isinstance(value, dict):
            value = {"context": value}
        if "dockerfile_inline" in value and value.get("dockerfile"):
            raise values.wrong_key("dockerfile_inline", "stands beside dockerfile; give one of them")
        values.place_of(info).notes.extend(f"build.{key}: not used" for key in sorted(map(str, value.keys() - _BUILD)))
        settings = {"context": "."} | {key: value[key] for key in ("context", "args", "target") if value.get(key)}
        if "dockerfile_inline" in value:
            return {**settings, "path": values.place_of(info).file.name, "text": value["dockerfile_inline"]}
        parts = settings["context"], value.get("dockerfile") or "Dockerfile"
        return {**settings, "path": os.path.join(*map(values.scalar, parts))}


class _Volume(values.Loose):
    """A mount; with `content`, a file of that text (it and the keys after it are ours: see `_with_lent`)."""

    source: values.Scalar = ""
    target: values.InsidePath = Field()
    content: values.Text | None = None
    mode: int | None = None
    owner: str = "root"

    @model_validator(mode="before")
    @classmethod
    def take_apart(cls, value: Any) -> Any:
        """Parses the short form."""
        if isinstance(value, dict) and not value.get("target"):
            raise ValueError("needs a target")
        if isinstance(value, str):
            source, colon, rest = value.partition(":")
            return {"source": source, "target": rest.partition(":")[0]} if colon else {"target": source}
        return value


class _EnvFile(values.Loose):
    """A file of environment variables; one that need not be there has no path if it is not."""

    path: Annotated[Path, values.existing("a file", Path.is_file)] | None = None
    format: Annotated[str, values.word("raw", "raw, or left out")] = ""

    @model_validator(mode="before")
    @classmethod
    def take_apart(cls, value: Any, info: ValidationInfo) -> Any:
        """Parses the short form."""
        value = value if isinstance(value, dict) else {"path": value}
        if not value.get("path"):
            raise ValueError("needs a path")
        if value.get("required") is False and not (values.place_of(info).here / str(value["path"])).is_file():
            return {}
        return value

    def variables(self, outer: Mapping[str, str]) -> dict[str, str]:
        """Returns the variables in the file."""
        return read_env_file(self.path, outer, raw=self.format == "raw") if self.path else {}


class _Limits(values.Loose):
    memory: values.Size | None = None
    cpus: values.Processors | None = None
    pids: _Processes | None = None
    size: values.Size | None = None


class _Resources(values.Loose):
    limits: _Limits = _Limits()
    reservations: values.Loose = values.Loose()


class _Deploy(values.Loose):
    resources: _Resources = _Resources()


class Service(values.Loose):
    """A service in a Compose file."""

    build: Annotated[DockerfileBase, _Build.to(DockerfileBase)] | None = None
    image: values.ImageReference | None = None
    entrypoint: Words = ()
    command: Words = ()
    environment: Variables = Field(default={})
    env_file: Annotated[values.Many[_EnvFile], BeforeValidator(_listed)] = ()
    volumes: values.Many[_Volume] = ()
    tmpfs: Strings = ()
    working_dir: values.InsidePath | None = None
    user: Annotated[values.Account, BeforeValidator(_no_number)] | None = None
    hostname: values.Hostname | None = None
    deploy: _Deploy = _Deploy()
    mem_limit: values.Size | None = None
    cpus: values.Processors | None = None
    cpu_quota: Annotated[values.Float, values.must_be("microseconds in each cpu_period")] | None = None
    cpu_period: Annotated[values.Float, values.must_be("a number of microseconds")] = _PERIOD
    pids_limit: _Processes | None = None
    storage_opt: _Limits = _Limits()
    network_mode: values.Scalar = "bridge"
    security_opt: Strings = ()

    @model_validator(mode="before")
    @classmethod
    def check_base(cls, value: Any) -> Any:
        """Drops an image's name beside `build`, because it is the name of the result."""
        if isinstance(value, dict) and value.get("extends"):
            raise values.wrong_key("extends", "is for Compose files; write out what it stands for")
        if not isinstance(value, dict):
            return value
        without = {"image"} if value.get("build") else set()
        # Empty words are kept, though keys without a value are dropped: they replace those of the image by none.
        return {
            key: [] if key in ("command", "entrypoint") and item == "" else item
            for key, item in value.items()
            if key not in without
        }

    @model_validator(mode="after")
    def check_limits(self) -> Service:
        """Rejects two values of one limit; beside limits of `deploy`, one that is only said here counts as another."""
        limits = self.deploy.resources.limits
        if not limits.model_fields_set:
            return self
        for name, key, one, other in (
            ("memory", "mem_limit", limits.memory, self.mem_limit),
            ("cpus", "cpus", limits.cpus, self.cpus),
            ("pids", "pids_limit", limits.pids, self.pids_limit),
        ):
            if other and one != other:
                raise values.wrong_key(key, f"differs from deploy.resources.limits.{name}; give it there alone")
        return self

    def variables(self, place: values.Place) -> dict[str, str]:
        """Returns its environment: that of its files, and its own, which takes precedence."""
        variables: dict[str, str] = {}
        for file in self.env_file:  # which may refer to those before
            variables |= file.variables({**place.variables, **variables})
        both = {**variables, **self.environment}
        return {name: value for name, value in both.items() if value is not None}

    @property
    def limits(self) -> ImageLimits:
        """Its limits."""
        limits = self.deploy.resources.limits
        pids = limits.pids or self.pids_limit or 0
        return ImageLimits(
            memory=limits.memory or self.mem_limit,
            processes=pids if pids > 0 else None,
            cpus=limits.cpus or self.cpus or (self.cpu_quota / self.cpu_period if self.cpu_quota else None),
            disk=self.storage_opt.size,
        )

    def not_done(self) -> Iterator[str]:
        """Yields the keys that a sandbox ignores, with the consequence."""
        for key, value in (self.model_extra or {}).items():
            meaning = _MEANING.get(key, "not understood, and passed over")
            if meaning and not key.startswith("x-") and (key not in _MEANING or value not in (False, [], {})):
                yield f"{key}: {meaning}"
        if self.network_mode not in ("none", "bridge", "default"):
            yield f"network_mode {self.network_mode}: {_NO_NETWORK}"
        if "devices" in (self.deploy.resources.reservations.model_extra or {}):
            yield f"deploy.resources.reservations.devices: {_NO_GPU}"

    def mounts(self, place: values.Place) -> tuple[tuple[FileCopy, ...], tuple[str, ...]]:
        """Returns the task's own files, to copy to their mount points, and directories for other mounts."""
        files, directories = [], []
        for volume in self.volumes:
            source, target = volume.source, volume.target
            if volume.content is not None:
                files.append(FileCopy(None, volume.content, str(PurePosixPath(target)), volume.mode, volume.owner))
                continue
            ours = source.startswith(("./", "../", "/", "~")) or source in (".", "..")
            path = (place.here / source).resolve()
            if ours and path.is_relative_to(place.folder.resolve()) and path.exists():
                files.append(FileCopy(path, None, str(PurePosixPath(target))))
                place.notes.append(f"volume {source}:{target}: copied into the image; changes stay in the sandbox")
                continue
            directories.append(str(PurePosixPath(target)))
            if ours:
                place.notes.append(f"volume {source}:{target}: an empty directory, for nothing outside is mounted")
            elif source != HARNESS:
                place.notes.append(f"volume {source or target}: an ordinary directory, part of every snapshot")
        for mount in self.tmpfs:
            directories.append(str(PurePosixPath(mount.partition(":")[0])))
            place.notes.append(f"tmpfs {mount}: an ordinary directory, part of every snapshot")
        return tuple(files), tuple(directories)
