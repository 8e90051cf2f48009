"""Task folders of Harbor: task.toml, environment/Dockerfile or a prebuilt image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tvsnap.images.descriptions.compose import find_compose, load_compose
from tvsnap.images.descriptions.document import Node, load_toml
from tvsnap.images.descriptions.spec import (
    IMAGE_REFERENCE,
    Base,
    DockerfileBase,
    DockerImageBase,
    ImageSpec,
    name_from,
    read_account,
)
from tvsnap.images.descriptions.terminal_bench import from_service
from tvsnap.images.descriptions.variables import expand
from tvsnap.model.images import ImageLimits, Timeouts

TASK_TOML = "task.toml"

_MIB = 1024 * 1024
_ENVIRONMENT = "environment"
_UNSUPPORTED = {
    "gpus": "no GPU in a sandbox: what needs one fails",
    "tpu": "no TPU in a sandbox: what needs one fails",
    "mcp_servers": "not started",
    "healthcheck": "not run",
}
_LOG_DIRECTORIES = ("/logs/verifier", "/logs/agent")
"""Which the harness mounts, empty, into every container."""


def load_harbor(folder: Path) -> ImageSpec:
    """Reads a task folder.

    Raises:
        ImageSpecError: a file of it is wrong, or no single Linux container can be what the task needs.
    """
    task = load_toml(folder / TASK_TOML).entries()
    sections = {name: _section(task.get(name)) for name in (_ENVIRONMENT, "agent", "verifier")}
    environment = sections[_ENVIRONMENT]
    if "os" in environment and environment["os"].scalar().lower() != "linux":
        environment["os"].fail("a sandbox is a Linux container; it must be linux")
    notes: list[str] = []
    for key, meaning in _UNSUPPORTED.items():
        if key in environment and environment[key].value not in (0, "", [], {}):
            value = environment[key].value
            shown = f" {value}" if isinstance(value, (str, int, float)) else ""
            notes.append(f"{_ENVIRONMENT}.{key}{shown}: {meaning}")
    notes += _network_notes(environment)
    if "steps" in task:
        notes.append("steps: the image is the one that the first of them begins with")
    spec = ImageSpec(
        folder,
        name_from(folder),
        "terminal",
        _base(folder, environment),
        env=_env(environment.get("env"), notes),
        workdir=environment["workdir"].inside_path() if "workdir" in environment else None,
        user=read_account(sections["agent"]["user"]) if "user" in sections["agent"] else None,
        directories=_LOG_DIRECTORIES,
        timeouts=Timeouts(agent=_timeout(sections["agent"]), verifier=_timeout(sections["verifier"])),
        notes=tuple(notes),
    )
    compose = find_compose(folder / _ENVIRONMENT)
    if compose is not None:
        service = load_compose(compose, folder, {})
        prebuilt = isinstance(spec.base, DockerImageBase) and "docker_image" in environment
        spec = replace(
            from_service(spec, service),
            base=spec.base if prebuilt or service.base is None else service.base,
            directories=(*_LOG_DIRECTORIES, *service.directories),
        )
    return replace(spec, limits=_limits(environment, spec.limits))


def _section(node: Node | None) -> dict[str, Node]:
    return {} if node is None else node.entries()


def _base(folder: Path, environment: dict[str, Node]) -> Base:
    image = environment.get("docker_image")
    if image is not None and image.value:
        return DockerImageBase(image.text(IMAGE_REFERENCE, "an image's name"))
    path = folder / _ENVIRONMENT / "Dockerfile"
    compose = find_compose(folder / _ENVIRONMENT)
    if not path.is_file() and compose is None:
        missing = Node(folder / TASK_TOML, "environment.docker_image", None)
        missing.fail(f"names no image, and {path} is not there to build one")
    return DockerfileBase(path, path.parent)


def _limits(environment: dict[str, Node], limits: ImageLimits) -> ImageLimits:
    """What task.toml says, and where it says nothing what the Compose file does."""

    def size(name: str, otherwise: int | None) -> int | None:
        if f"{name}_mb" in environment:
            return int(environment[f"{name}_mb"].number("a number of megabytes") * _MIB)
        return environment[name].size() if name in environment else otherwise

    cpus = environment["cpus"].number("a number of processors") if "cpus" in environment else limits.cpus
    return replace(limits, memory=size("memory", limits.memory), cpus=cpus, disk=size("storage", limits.disk))


def _network_notes(environment: dict[str, Node]) -> list[str]:
    none = "a sandbox has no network but loopback: what needs the internet fails"
    mode = environment.get("network_mode")
    if mode is not None:
        return [] if mode.scalar() == "no-network" else [f"environment.network_mode {mode.scalar()}: {none}"]
    internet = environment.get("allow_internet")
    return [f"environment.allow_internet: {none}"] if internet is not None and internet.value is True else []


def _env(node: Node | None, notes: list[str]) -> dict[str, str]:
    env = {}
    for name, value in _section(node).items():
        missing: list[str] = []
        text = expand(value.scalar(), {}, missing.append)
        if missing:
            notes.append(f"environment.env.{name}: ${missing[0]} is not taken from this machine's environment")
        else:
            env[name] = text
    return env


def _timeout(section: dict[str, Node]) -> float | None:
    return section["timeout_sec"].seconds() if "timeout_sec" in section else None
