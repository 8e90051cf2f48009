"""Which tests `make test` executes (`pytest --short`); `make test-all` executes all.

What is left to `make test-all` needs more than `make setup` installs, or goes deep into one plug-in, or has a shorter
test of the same in `make test`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    "tests/fleet/test_networks.py",
    "tests/fleet/test_ray.py",
    "tests/video/test_files.py",
    "tests/video/test_guide.py",
    "tests/video/test_paid_calls.py",
    "tests/video/test_tools.py",
    "tests/zoo",
    # What goes deep into one plug-in: its folder's smoke tests are in `SMOKE`.
    "tests/conformance/test_sql_observation.py::test_reads_lead_back_in_any_order[sqlite-1]",
    "tests/conformance/test_sql_observation.py::test_reads_lead_back_in_any_order[sqlite-2]",
    "tests/faults/test_sql_faults.py::test_damaged_snapshots[sqlite-deleted]",
    "tests/server/test_schema.py::test_every_request_is_answered_as_described[about nothing-wrong]",
    "tests/server/test_schema.py::test_every_request_is_answered_as_described[about what there is-wrong]",
    "tests/server/test_tls.py::test_certificates_of_both_sides[1]",
    "tests/server/test_tls.py::test_verbs_show_certificates",
    # What a shorter test beside it has, too.
    "tests/e2e/test_cli.py::test_the_demonstration_is_shown",
    "tests/e2e/test_self_test.py::test_json_with_an_image_of_the_user",
    "tests/e2e/test_self_test.py::test_what_does_not_hold_is_found",
    *(f"tests/native/test_fuzz_requests.py::test_changed_frames_do_no_harm[{seed}]" for seed in (2, 3, 4)),
    *(f"tests/property/test_cached_equals_fresh.py::test_in_directories[{policy}]" for policy in ("default", "never")),
    "tests/property/test_cached_equals_fresh.py::test_in_memory[never]",
    "tests/server/test_stop.py::test_a_build_does_not_hold_up_the_end[2]",
)
"""Folders, files, classes and tests that belong to `make test-all`."""

SMOKE = {
    "tests/fleet/test_fleet.py": (
        "test_a_server_that_is_killed_in_the_middle_of_an_epoch",
        "test_a_task_is_at_one_server",
        "test_an_awaited_fleet_moves_rollouts_too",
        "test_commands_that_are_none_are_refused",
        "test_one_server_is_not_taken_for_two",
    ),
    "tests/proxy": (
        "test_a_cookie_is_for_the_client_that_asked_alone",
        "test_a_similar_text_will_do",
        "test_a_state_is_asked_about_once",
        "test_a_stream_comes_while_it_is_made_and_again_as_the_same_events",
        "test_an_error_is_passed_on_and_never_kept",
        "test_answers_outlive_the_process_and_are_shared_by_others",
        "test_the_same_request_is_asked_once",
        "test_tokens_are_the_proxys_own_and_tenants_share_nothing",
        "test_what_makes_no_sense",
    ),
    "tests/registry/test_store.py": ("test_what_is_put_is_there", "test_what_is_damaged_is_said"),
    "tests/training/test_tasks.py": (
        "test_each_has_several_ways_of_one_to_eight_calls",
        "test_no_instruction_is_in_two_splits",
        "test_solutions_are_graded_1_and_others_0[failing-test]",
        "test_solutions_are_graded_1_and_others_0[make]",
    ),
    "tests/video/test_endpoint.py": (
        "test_a_prompt_with_pictures_is_answered",
        "test_an_answer_has_come_to_its_end_or_to_its_most_tokens",
        "test_texts_are_embedded_in_batches",
        "test_what_may_pass_is_tried_again[429]",
    ),
}
"""The smoke tests of a plug-in: of these folders and files, `make test` executes these tests."""

DATABASE_SERVERS = ("postgres", "mariadb")
"""Of what is tested with several database systems, `make test` has SQLite, as the images of the others take long."""

WAYS = ("unix", "here, awaited", "tcp, awaited")
"""Of the ways to a cache in which `tests/server/test_conformance.py` goes, those of `make test-all` alone."""

_LEFT = re.compile(rf"({'|'.join(map(re.escape, LEFT))})($|[/:\[])")


def is_left_whole(path: Path) -> bool:
    """Whether a folder or file has no test that belongs to `make test`."""
    return _LEFT.fullmatch(path.relative_to(ROOT).as_posix()) is not None


def is_short(item: pytest.Item) -> bool:
    """Whether a test belongs to `make test`."""
    if not INSTALLED_FOR.isdisjoint(getattr(item, "fixturenames", ())) or _is_on_docker(item):
        return False
    return not (_LEFT.match(item.nodeid) or _is_deep(item) or _is_a_way_left(item))


def _parameters(item: pytest.Item) -> tuple[object, ...]:
    """What a test is made for; nothing for unit tests, whose parameters may bear the same names."""
    if item.nodeid.startswith("tests/unit/") or not (isinstance(item, pytest.Function) and hasattr(item, "callspec")):
        return ()
    return tuple(item.callspec.params.values())


def _is_on_docker(item: pytest.Item) -> bool:
    """Whether a test that is there for several backends is the one for Docker."""
    return "docker" in _parameters(item)


def _is_deep(item: pytest.Item) -> bool:
    """Whether a test is none of its plug-in's smoke tests."""
    for path, names in SMOKE.items():
        if item.nodeid.startswith(path):
            name = item.nodeid.rpartition("::")[2]
            return not any(name == kept or name.startswith(f"{kept}[") for kept in names)
    return _is_for(item, DATABASE_SERVERS)


def _is_a_way_left(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/server/test_conformance.py") and _is_for(item, WAYS)


def _is_for(item: pytest.Item, some: Sequence[str]) -> bool:
    return any(value in some for value in _parameters(item) if isinstance(value, str))
