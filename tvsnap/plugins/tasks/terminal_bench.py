"""Task folders of terminal-bench: task.yaml, Dockerfile, docker-compose.yaml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tvsnap.images.descriptions.document import load_yaml
from tvsnap.images.descriptions.spec import DockerfileBase, ImageSpec, name_from
from tvsnap.images.descriptions.values import Loose, Place, Seconds, read
from tvsnap.images.errors import ImageSpecError
from tvsnap.model.images import Timeouts
from tvsnap.model.network import Network
from tvsnap.plugins.tasks.compose import find_compose, with_compose
from tvsnap.plugins.tasks.compose_service import HARNESS

_PUBLIC = Network(public=True)
"""The network of the harness' containers, unless the Compose file has another."""


class _Task(Loose):
    max_agent_timeout_sec: Seconds | None = None
    max_test_timeout_sec: Seconds | None = None


def load_terminal_bench(path: Path) -> ImageSpec:
    """Reads a folder's task.yaml and the files beside it; raises ImageSpecError if one is wrong."""
    folder = path.parent
    task = read(_Task, path, load_yaml(path), Place(folder, path))
    name = name_from(folder)
    dockerfile = folder / "Dockerfile"
    timeouts = Timeouts(agent=task.max_agent_timeout_sec, verifier=task.max_test_timeout_sec)
    spec = ImageSpec(folder, name, "terminal", DockerfileBase(dockerfile, folder), timeouts=timeouts, network=_PUBLIC)
    if compose := find_compose(folder):
        spec = with_compose(spec, compose, _variables(name))
        if not isinstance(spec.base, DockerfileBase) and dockerfile.is_file():
            spec = replace(spec, own_dockerfile=DockerfileBase(dockerfile, folder))
    if isinstance(spec.base, DockerfileBase) and not spec.base.path.is_file():
        raise ImageSpecError(f"{path}: {spec.base.path} does not exist; it must be a Dockerfile")
    return spec


def _variables(name: str) -> dict[str, str]:
    """Returns the variables that the harness sets for a task's Compose file."""
    return {
        "T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME": "",
        "T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME": name,
        "T_BENCH_TASK_DOCKER_NAME_PREFIX": name,
        "T_BENCH_TEST_DIR": "/tests",
        "T_BENCH_TASK_LOGS_PATH": HARNESS,
        "T_BENCH_TASK_AGENT_LOGS_PATH": HARNESS,
        "T_BENCH_CONTAINER_LOGS_PATH": "/logs",
        "T_BENCH_CONTAINER_AGENT_LOGS_PATH": "/agent-logs",
    }
