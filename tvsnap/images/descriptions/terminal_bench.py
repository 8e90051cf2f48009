"""Task folders of terminal-bench: task.yaml, Dockerfile, docker-compose.yaml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tvsnap.images.descriptions.compose import HARNESS, Service, find_compose, load_compose
from tvsnap.images.descriptions.document import Node, load_yaml
from tvsnap.images.descriptions.spec import DockerfileBase, ImageSpec, name_from
from tvsnap.model.images import Timeouts

TASK_YAML = "task.yaml"

_LOGS = {"T_BENCH_CONTAINER_LOGS_PATH": "/logs", "T_BENCH_CONTAINER_AGENT_LOGS_PATH": "/agent-logs"}


def load_terminal_bench(folder: Path) -> ImageSpec:
    """Reads a task folder.

    Raises:
        ImageSpecError: a file of it is wrong, or the task needs several containers.
    """
    task = load_yaml(folder / TASK_YAML)
    keys = task.entries()
    name = name_from(folder)
    path = find_compose(folder)
    service = load_compose(path, folder, _variables(name)) if path else None
    base = service.base if service else None
    if base is None:
        dockerfile = task.child("Dockerfile", "Dockerfile").existing(folder, "a Dockerfile", Path.is_file)
        base = DockerfileBase(dockerfile, folder)
    timeouts = Timeouts(
        agent=_seconds(keys.get("max_agent_timeout_sec")), verifier=_seconds(keys.get("max_test_timeout_sec"))
    )
    spec = ImageSpec(folder, name, "terminal", base, timeouts=timeouts)
    return spec if service is None else from_service(spec, service)


def from_service(spec: ImageSpec, service: Service) -> ImageSpec:
    """A spec with what a Compose file says beyond it."""
    return replace(
        spec,
        env={**spec.env, **service.env},
        workdir=spec.workdir or service.workdir,
        user=spec.user or service.user,
        hostname=service.hostname or spec.hostname,
        directories=service.directories,
        files=service.files,
        limits=service.limits,
        no_new_privileges=service.no_new_privileges,
        notes=(*spec.notes, *service.notes),
    )


def _variables(name: str) -> dict[str, str]:
    """What the harness sets for a task's Compose file."""
    return {
        "T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME": "",
        "T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME": name,
        "T_BENCH_TASK_DOCKER_NAME_PREFIX": name,
        "T_BENCH_TEST_DIR": "/tests",
        "T_BENCH_TASK_LOGS_PATH": HARNESS,
        "T_BENCH_TASK_AGENT_LOGS_PATH": HARNESS,
        **_LOGS,
    }


def _seconds(node: Node | None) -> float | None:
    return None if node is None or node.value is None else node.seconds()
