"""Task folders of Harbor: task.toml, environment/Dockerfile or a prebuilt image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from tvsnap.images.descriptions import values
from tvsnap.images.descriptions.compose import find_compose, with_compose
from tvsnap.images.descriptions.document import load_toml
from tvsnap.images.descriptions.spec import Base, DockerfileBase, DockerImageBase, ImageSpec, name_from
from tvsnap.images.descriptions.variables import expand
from tvsnap.images.errors import ImageSpecError
from tvsnap.model.errors import UsageError
from tvsnap.model.images import Timeouts
from tvsnap.model.network import NO_NETWORK, Network

_MIB = 1024 * 1024
_UNSUPPORTED = {
    "gpus": "no GPU in a sandbox: what needs one fails",
    "tpu": "no TPU in a sandbox: what needs one fails",
    "mcp_servers": "not started",
    "healthcheck": "not run",
}
_LOG_DIRECTORIES = ("/logs/verifier", "/logs/agent")
"""Which the harness mounts, empty, into every container."""


def _linux(system: str) -> str:
    if system.lower() != "linux":
        raise ValueError("a sandbox is a Linux container; it must be linux")
    return system


_Megabytes = Annotated[values.Float, values.must_be("a number of megabytes")]


class _Environment(values.Loose):
    os: Annotated[values.Scalar, AfterValidator(_linux)] = "linux"
    docker_image: values.ImageReference | None = None
    workdir: values.InsidePath | None = None
    env: dict[str, values.Scalar] = Field(default={})
    cpus: values.Processors | None = None
    memory: values.Size | None = None
    memory_mb: _Megabytes | None = None
    storage: values.Size | None = None
    storage_mb: _Megabytes | None = None
    network_mode: (
        Annotated[Literal["public", "no-network", "allowlist"], values.must_be("public, no-network, allowlist")] | None
    ) = None
    allowed_hosts: list[values.Scalar] = Field(default=[])
    allow_internet: Any = None


class _Agent(values.Loose):
    user: values.Account | None = None
    timeout_sec: values.Seconds | None = None


class _Task(values.Loose):
    environment: _Environment = _Environment()
    agent: _Agent = _Agent()
    verifier: _Agent = _Agent()
    steps: Any = None


def load_harbor(path: Path) -> ImageSpec:
    """Reads the task.toml of a folder, and what lies beside it.

    Raises:
        ImageSpecError: a file of it is wrong, or no single Linux container can be what the task needs.
    """
    folder = path.parent
    task = values.read(_Task, path, load_toml(path), values.Place(folder, folder))
    environment = task.environment
    notes = _notes(environment)
    if task.steps is not None:
        notes.append("steps: the image is the one that the first of them begins with")
    compose = find_compose(folder / "environment")
    spec = ImageSpec(
        folder,
        name_from(folder),
        "terminal",
        _base(path, environment, compose),
        env=_env(environment.env, notes),
        workdir=environment.workdir,
        user=task.agent.user,
        timeouts=Timeouts(agent=task.agent.timeout_sec, verifier=task.verifier.timeout_sec),
        network=_network(path, environment),
        notes=tuple(notes),
    )
    if compose:
        told = with_compose(spec, compose, {})
        spec = replace(told, base=spec.base) if environment.docker_image else told
    asked: dict[str, Any] = {
        "memory": int(environment.memory_mb * _MIB) if environment.memory_mb else environment.memory,
        "disk": int(environment.storage_mb * _MIB) if environment.storage_mb else environment.storage,
        "cpus": environment.cpus,
    }
    limits = replace(spec.limits, **{name: value for name, value in asked.items() if value})
    return replace(spec, limits=limits, directories=(*_LOG_DIRECTORIES, *spec.directories))


def _base(path: Path, environment: _Environment, compose: Path | None) -> Base:
    if environment.docker_image:
        return DockerImageBase(environment.docker_image)
    dockerfile = path.parent / "environment/Dockerfile"
    if not dockerfile.is_file() and compose is None:
        raise ImageSpecError(
            f"{path}: environment.docker_image: names no image, and {dockerfile} is not there to build one"
        )
    return DockerfileBase(dockerfile, dockerfile.parent)


def _notes(environment: _Environment) -> list[str]:
    """What the task asks for and a sandbox does not do."""
    notes = []
    for key, meaning in _UNSUPPORTED.items():
        if (value := (environment.model_extra or {}).get(key)) not in (None, 0, "", [], {}):
            shown = f" {value}" if isinstance(value, (str, int, float)) else ""
            notes.append(f"environment.{key}{shown}: {meaning}")
    return notes


def _network(path: Path, environment: _Environment) -> Network:
    """What the task's sandboxes may reach: everything, unless it says otherwise."""
    if environment.network_mode == "allowlist":
        try:
            return Network.of([host.removeprefix("*") for host in environment.allowed_hosts])
        except UsageError as error:
            raise ImageSpecError(f"{path}: environment.allowed_hosts: {error}") from None
    if environment.network_mode == "no-network":
        return NO_NETWORK
    return NO_NETWORK if environment.network_mode is None and environment.allow_internet is False else Network(True)


def _env(said: dict[str, str], notes: list[str]) -> dict[str, str]:
    env = {}
    for name, value in said.items():
        missing: list[str] = []
        text = expand(value, {}, missing.append)
        if missing:
            notes.append(f"environment.env.{name}: ${missing[0]} is not taken from this machine's environment")
        else:
            env[name] = text
    return env
