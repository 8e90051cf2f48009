"""Which tests `make test` executes (`pytest --short`); `make test-all` executes all.

What is left to `make test-all` needs more than `make setup` installs, or goes deep into one plug-in or takes minutes
and has a shorter test of the same in `make test`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INSTALLED_FOR = {
    "compose_program",
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
    "tests/docs/test_guides.py",
    "tests/integrations/test_harbor.py",
    "tests/integrations/test_harnesses.py",
    "tests/integrations/test_openhands.py",
    "tests/page/test_build.py",
    "tests/page/test_page.py",
    "tests/page/test_report.py",
    "tests/training/test_appworld.py",
    "tests/training/test_learning.py",
    "tests/training/test_verifiers.py",
    "tests/video/test_local.py",
    # Wheels, a cluster of Ray, images that take long.
    "tests/e2e/test_example_tasks.py",
    "tests/e2e/test_image_build.py::test_a_kept_minimal_system_that_is_old_or_damaged",
    "tests/e2e/test_image_build.py::test_minimal_system",  # as is the image `terminal`, of all tests
    "tests/e2e/test_image_export.py",
    "tests/e2e/test_install.py",
    "tests/e2e/test_others_environment.py",
    "tests/e2e/test_soak.py",
    "tests/fleet/test_ray.py",
    "tests/video/test_files.py",
    "tests/video/test_guide.py",
    "tests/video/test_paid_calls.py",
    "tests/video/test_tools.py",
    "tests/zoo",
    # What goes deep into one plug-in: databases, tasks for training, a fleet.
    *(
        f"tests/conformance/test_sql_observation.py::test_reads_lead_back_in_any_order[{system}-{seed}]"
        for system in ("sqlite", "postgres", "mariadb")
        for seed in (1, 2)
    ),
    *(
        f"tests/faults/test_sql_faults.py::test_damaged_snapshots[{case}]"
        for case in ("sqlite-deleted", "postgres-truncated", "mariadb-truncated", "mariadb-deleted")
    ),
    "tests/faults/test_sql_faults.py::test_without_criu[mariadb]",
    "tests/fleet/test_fleet.py::test_time_that_passed_passes_again",
    "tests/fleet/test_networks.py",
    "tests/training/test_tasks.py::test_what_only_looks_right_is_told_from_what_is",
    *(
        f"tests/training/test_tasks.py::test_solutions_are_graded_1_and_others_0[{kind}]"  # in images of their own
        for kind in (
            *("question", "change", "postgres-question", "postgres-change", "mariadb-question", "mariadb-change"),
            *("bill", "frame", "clean", "apps-pay", "apps-split", "apps-reply"),
        )
    ),
    # What a shorter test beside it has, too.
    "tests/e2e/test_cli.py::test_the_demonstration_is_shown",
    "tests/e2e/test_self_test.py::test_json_with_an_image_of_the_user",
    "tests/e2e/test_self_test.py::test_what_does_not_hold_is_found",
    *(
        f"tests/server/test_conformance.py::test_a_grade_is_of_the_moment_at_which_the_rollout_stands[{way}]"
        for way in ("here, awaited", "unix", "workers", "fleet, awaited")
    ),
    "tests/server/test_stop.py::test_a_build_does_not_hold_up_the_end[2]",
    "tests/server/test_tls.py::test_certificates_of_both_sides[1]",
)
"""Folders, files, classes and tests that belong to `make test-all`."""

_LEFT = re.compile(rf"({'|'.join(map(re.escape, LEFT))})($|[/:\[])")


def is_left_whole(path: Path) -> bool:
    """Whether a folder or file has no test that belongs to `make test`."""
    return _LEFT.fullmatch(path.relative_to(ROOT).as_posix()) is not None


def is_short(item: pytest.Item) -> bool:
    """Whether a test belongs to `make test`."""
    if not INSTALLED_FOR.isdisjoint(getattr(item, "fixturenames", ())) or _is_on_docker(item):
        return False
    return not _LEFT.match(item.nodeid)


def _is_on_docker(item: pytest.Item) -> bool:
    """Whether a test that is there for several backends is the one for Docker; unit tests have no engine."""
    parameters = (
        item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    )
    return not item.nodeid.startswith("tests/unit/") and any(value == "docker" for value in parameters)
