"""Which tests `make test` executes (`pytest --short`); `make test-all` executes all.

What is left to `make test-all` needs more than `make setup` installs, or goes deep into one plug-in or takes minutes
and has a shorter test of the same in `make test`.
"""

from __future__ import annotations

import re

import pytest

INSTALLED_FOR = {
    "docker_engine",
    "everywhere",  # with a Docker Engine, too
    "harbor_programs",
    "harness_programs",
    "openhands_programs",
    "training_programs",
}
"""Fixtures of what `make setup` does not install: tests that use them belong to `make test-all`."""

LEFT = (
    # Container engines and PostgreSQL.
    "tests/conformance/test_registries.py",
    "tests/conformance/test_same_everywhere.py",
    "tests/conformance/test_shipped_suites.py::TestDocker",
    "tests/conformance/test_sql_docker.py",
    "tests/e2e/test_docker_engine.py",
    "tests/e2e/test_image_docker.py",
    "tests/faults/test_distant_engine.py",
    "tests/faults/test_docker_crashes.py",
    "tests/faults/test_docker_faults.py",
    "tests/server/test_container.py",
    "tests/shared_graph",
    # Harnesses, trainers, a browser.
    "tests/integrations/test_harbor.py",
    "tests/integrations/test_harnesses.py",
    "tests/integrations/test_openhands.py",
    "tests/page/test_build.py",
    "tests/page/test_page.py",
    "tests/training/test_appworld.py",
    "tests/training/test_learning.py",
    "tests/training/test_verifiers.py",
    "tests/video/test_local.py",
    # Wheels, a cluster of Ray, and images that take minutes.
    "tests/e2e/test_example_tasks.py",
    "tests/e2e/test_install.py",
    "tests/e2e/test_soak.py",
    "tests/fleet/test_ray.py",
    "tests/video/test_files.py",
    "tests/video/test_guide.py",
    "tests/video/test_tools.py",
    "tests/zoo",
)
"""Folders, files, classes and tests that belong to `make test-all`."""


def is_short(item: pytest.Item) -> bool:
    """Whether a test belongs to `make test`."""
    if not INSTALLED_FOR.isdisjoint(getattr(item, "fixturenames", ())) or _is_on_docker(item):
        return False
    return not any(re.match(rf"{re.escape(left)}($|[/:\[])", item.nodeid) for left in LEFT)


def _is_on_docker(item: pytest.Item) -> bool:
    """Whether a test that is there for several backends is the one for Docker; unit tests have no engine."""
    parameters = (
        item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    )
    return not item.nodeid.startswith("tests/unit/") and any(value == "docker" for value in parameters)
