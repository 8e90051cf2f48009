"""Task folders of Harbor: task.toml, environment/Dockerfile or a prebuilt image, environment/docker-compose.yaml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from tvsnap.images.descriptions import values
from tvsnap.images.descriptions.document import load_toml
from tvsnap.images.descriptions.spec import (
    Base,
    DockerfileBase,
    DockerImageBase,
    FileCopy,
    ImageSpec,
    name_from,
)
from tvsnap.images.errors import ImageSpecError
from tvsnap.model.errors import UsageError
from tvsnap.model.images import ImageLimits, Timeouts
from tvsnap.model.network import Network
from tvsnap.model.task import Task, TaskPhase, TaskStep
from tvsnap.plugins.tasks.compose import find_compose, with_compose
from tvsnap.plugins.tasks.compose_service import HARNESS

_MIB = 1024 * 1024
_UNSUPPORTED = {
    "gpus": "no GPU in a sandbox: what needs one fails",
    "tpu": "no TPU in a sandbox: what needs one fails",
    "mcp_servers": "not started",
    "healthcheck": "not run",
}
_MAIN = "main"
"""The service that is the task's container; a Compose file may omit it."""
_COMPOSE_FILE = "docker-compose.yaml"
_COMMAND = ("sh", "-c", "sleep infinity")
"""The harness' command in the task's container, run by the image's ENTRYPOINT, unless the Compose file has another."""
_LOGS = {"VERIFIER_LOGS": "/logs/verifier", "AGENT_LOGS": "/logs/agent", "ARTIFACTS": "/logs/artifacts"}
"""Empty directories that the harness mounts into every container, by their names in the variables for Compose."""
_STEP = re.compile(r'[^<>:"/\\|?*\x00-\x1f\x7f]+')
_UNSAID_NETWORK = Network(public=True)
_TEMPLATE = re.compile(r"[$][{](?P<name>[^:}]+)(:-(?P<default>.*))?[}]")


def _linux(system: str) -> str:
    if system.lower() != "linux":
        raise ValueError("a sandbox is a Linux container; it must be linux")
    return system


def _folder_name(name: str) -> str:
    if not _STEP.fullmatch(name) or not name.strip() or name.endswith((".", " ")):
        raise ValueError
    return name


_Megabytes = Annotated[values.Float, values.must_be("a number of megabytes")]


class _Reach(values.Loose):
    """The network settings of a task, or of a part of it."""

    network_mode: (
        Annotated[Literal["public", "no-network", "allowlist"], values.must_be("public, no-network, allowlist")] | None
    ) = None
    allowed_hosts: list[values.Scalar] = Field(default=[])

    def network(self, where: str) -> Network | None:
        """Returns the network; None if there are no settings. `where` is file and section, for messages."""
        if self.network_mode != "allowlist":
            return Network.of("public" if self.network_mode == "public" else "none") if self.network_mode else None
        try:
            return Network.of([host.removeprefix("*") for host in self.allowed_hosts])
        except UsageError as error:
            raise ImageSpecError(f"{where}.allowed_hosts: {error}") from None


class _Environment(_Reach):
    os: Annotated[values.Scalar, AfterValidator(_linux)] = "linux"
    docker_image: values.ImageReference | None = None
    workdir: values.InsidePath | None = None
    env: dict[str, values.Scalar] = Field(default={})
    cpus: values.Processors | None = None
    memory: values.Size | None = None
    memory_mb: _Megabytes | None = None
    storage: values.Size | None = None
    storage_mb: _Megabytes | None = None
    allow_internet: Any = None

    def limits(self) -> ImageLimits:
        return ImageLimits(
            memory=int(self.memory_mb * _MIB) if self.memory_mb else self.memory,
            disk=int(self.storage_mb * _MIB) if self.storage_mb else self.storage,
            cpus=self.cpus,
        )


class _Phase(_Reach):
    user: values.Account | None = None
    timeout_sec: values.Seconds | None = None
    env: dict[str, values.Scalar] = Field(default={})
    environment_mode: Any = None
    environment: Any = None

    def phase(self, where: str) -> TaskPhase:
        network = self.network(where)
        return TaskPhase(self.user, self.env, None if network is None else str(network), self.timeout_sec)

    @property
    def separate(self) -> bool:
        return self.environment_mode == "separate" or (self.environment_mode is None and self.environment is not None)


class _Step(values.Loose):
    name: Annotated[values.Text, AfterValidator(_folder_name), values.must_be("the name of a folder")] = Field()
    agent: _Phase = _Phase()
    verifier: _Phase = _Phase()


class _Task(values.Loose):
    environment: _Environment = _Environment()
    agent: _Phase = _Phase()
    verifier: _Phase = _Phase()
    solution: _Phase = _Phase()
    steps: list[_Step] = Field(default=[])


def load_harbor(path: Path) -> ImageSpec:
    """Reads a folder's task.toml and the files beside it.

    Raises ImageSpecError if one is wrong, or if the task needs something else than Linux containers.
    """
    folder = path.parent
    task = values.read(_Task, path, load_toml(path), values.Place(folder, path))
    environment = task.environment
    notes = _notes(task)
    inside = folder / "environment"
    dockerfile = DockerfileBase(inside / "Dockerfile", inside)
    spec = ImageSpec(
        folder,
        name_from(folder),
        "terminal",
        DockerImageBase(environment.docker_image) if environment.docker_image else dockerfile,
        env=_env(environment.env, notes),
        workdir=environment.workdir,
        user=task.agent.user,
        limits=environment.limits(),
        timeouts=Timeouts(agent=task.agent.timeout_sec, verifier=task.verifier.timeout_sec),
        network=_network(path, environment),
        task=_task(path, task),
        own_dockerfile=dockerfile if dockerfile.path.is_file() else None,
        notes=tuple(notes),
    )
    if compose := find_compose(inside, [_COMPOSE_FILE]):
        spec = _with_base(spec, with_compose(spec, compose, _variables(spec, environment), _MAIN))
    if isinstance(spec.base, DockerfileBase):
        if not spec.base.path.is_file():
            raise ImageSpecError(
                f"{path}: environment.docker_image: names no image, and {spec.base.path} is not there to build one"
            )
    elif spec.own_dockerfile is None and compose is None and inside.is_dir() and any(inside.iterdir()):
        spec = replace(spec, files=(FileCopy(inside, None, "."), *spec.files))
    runs = spec.runs or spec.main
    return replace(
        spec,
        directories=tuple(dict.fromkeys((*_LOGS.values(), *spec.directories))),
        runs=replace(runs, command=_COMMAND) if runs.command is None else runs,
    )


def _with_base(spec: ImageSpec, composed: ImageSpec) -> ImageSpec:
    """Chooses the base like the harness, which starts from task.toml and applies the Compose file on top.

    `spec` is the task's, `composed` is the same with the Compose file's additions.
    """
    if isinstance(composed.base, DockerfileBase):
        # An image that the task names takes precedence, unless it is to be built.
        own = composed.base if composed.base.path.is_file() else spec.own_dockerfile
        base = spec.base if isinstance(spec.base, DockerImageBase) else composed.base
        return replace(composed, base=base, own_dockerfile=own)
    # An image's name beside a Dockerfile is the name of the result.
    names_result = composed.base == DockerImageBase(_main_image(spec)) or isinstance(spec.base, DockerfileBase)
    return replace(composed, base=spec.base) if names_result and _is_there(spec.base) else composed


def _is_there(base: Base) -> bool:
    return not isinstance(base, DockerfileBase) or base.path.is_file()


def _main_image(spec: ImageSpec) -> str:
    """Returns the harness' name for the image that it builds."""
    return f"hb__{spec.name}"


def _variables(spec: ImageSpec, environment: _Environment) -> dict[str, str]:
    """Returns the harness' variables for a task's Compose file: the task's own, and those of a trial."""
    variables = {
        "MAIN_IMAGE_NAME": _main_image(spec),
        "CONTEXT_DIR": str((spec.folder / "environment").absolute()),
        "PREBUILT_IMAGE_NAME": environment.docker_image,
        "CPUS": f"{environment.cpus:g}" if environment.cpus else None,
        "MEMORY": f"{spec.limits.memory // _MIB}M" if spec.limits.memory else None,
    }
    for name, place in _LOGS.items():
        variables |= {f"HOST_{name}_PATH": HARNESS, f"ENV_{name}_PATH": place}
    return {**spec.env, **{name: value for name, value in variables.items() if value is not None}}


def _task(path: Path, task: _Task) -> Task:
    names = [step.name.casefold() for step in task.steps]
    if len(set(names)) < len(names):
        raise ImageSpecError(f"{path}: steps: two of them have the same name")
    steps = [
        TaskStep(
            step.name,
            step.agent.phase(f"{path}: steps.{step.name}.agent"),
            step.verifier.phase(f"{path}: steps.{step.name}.verifier"),
        )
        for step in task.steps
    ]
    # The agent's user, and the timeouts of both, are stored in the image.
    agent, verifier = task.agent.phase(f"{path}: agent"), task.verifier.phase(f"{path}: verifier")
    return Task(
        agent=replace(agent, user=None, timeout=None),
        verifier=replace(verifier, timeout=None),
        solution=task.solution.phase(f"{path}: solution"),
        steps=tuple(steps),
    )


def _notes(task: _Task) -> list[str]:
    """Returns notes on the task's settings that a sandbox ignores."""
    notes = []
    for key, meaning in _UNSUPPORTED.items():
        if (value := (task.environment.model_extra or {}).get(key)) not in (None, 0, "", [], {}):
            shown = f" {value}" if isinstance(value, (str, int, float)) else ""
            notes.append(f"environment.{key}{shown}: {meaning}")
    verifiers: Sequence[_Phase] = (task.verifier, *(step.verifier for step in task.steps))
    if any(verifier.separate for verifier in verifiers):
        notes.append("verifier.environment: the verifier's own container is not built; build its folder by itself")
    return notes


def _network(path: Path, environment: _Environment) -> Network:
    """Returns the network of the task's sandboxes: everything, unless the task limits it."""
    network = environment.network(f"{path}: environment")
    if network is None and environment.allow_internet is False:
        return Network.of("none")
    return _UNSAID_NETWORK if network is None else network


def _env(variables: dict[str, str], notes: list[str]) -> dict[str, str]:
    """Returns the variables. Harbor replaces only a value that is one `${NAME}` or `${NAME:-default}` as a whole."""
    env = {}
    for name, value in variables.items():
        match = _TEMPLATE.fullmatch(value)
        if match is None:
            env[name] = value
        elif match["default"] is not None:
            env[name] = match["default"]
        else:
            notes.append(f"environment.env.{name}: ${match['name']} is not taken from this machine's environment")
    return env
