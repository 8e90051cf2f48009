"""Requests of all kinds, made by schemathesis from what the server says of itself."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup

from tests.server.conftest import Server, start
from tests.server.test_server import ask
from tests.small_image import build_small_image
from tvsnap.images import Image
from tvsnap.plugins.server.content_routes import TREE

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "3"))
"""Requests for each operation and mode; with this variable set, other ones each time."""
CHOSEN = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="SCHEMA_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    report_multiple_bugs=False,
    database=None,
)
SMALL = "small"
"""The image that there is: some operations answer with all its files."""
REMOVES = "DELETE /v1/images/{name}"
"""Not done to an image that there is: it is that of all tests."""
CHECKED = (
    *("not_a_server_error", "status_code_conformance"),
    *("response_schema_conformance", "content_type_conformance"),
)


@pytest.fixture(scope="module")
def target(server_home: Path, terminal_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own, which shows all that it can do."""
    assert build_small_image(terminal_image, server_home).name == SMALL
    home = tmp_path_factory.mktemp("schema")
    (home / "images").symlink_to((server_home / "images").resolve())
    server = start(home, "--tvcache", "--max-held", "8", "--max-sandboxes", "8", "--ttl", "5")
    yield server
    assert ask(server, "GET", "/readyz")[0] == 200
    assert server.stop() == 0


def known(server: Server, path: str) -> dict[str, str]:
    """Returns values for the parameters of a path: what there is."""
    opened = ask(server, "POST", "/v1/rollouts", {"image": SMALL, "salt": secrets.token_hex(4)})[1]
    found = {"state": opened["root"], "other": opened["root"], "name": SMALL, "id": opened["id"]}
    if path.startswith("/v1/sandboxes"):
        made = ask(server, "POST", f"/v1/states/{opened['root']}/sandboxes", {})[1]
        found["id"] = made["sandboxes"][0]["id"]
    return found


def send(operation: Any, mode: GenerationMode, values: dict[str, str]) -> int:
    """Sends requests for an operation, with some parameters of its path given; returns how many were answered well."""
    checks = CHECKS.get_by_names(CHECKED)
    answered = 0

    @CHOSEN
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Any) -> None:
        nonlocal answered
        case.path_parameters.update({name: values.get(name, made) for name, made in case.path_parameters.items()})
        try:
            case.validate_response(case.call(timeout=60), checks=checks)
        except (Exception, FailureGroup) as error:
            parts = [str(part) for part in getattr(error, "exceptions", [error])]
            raise AssertionError(f"{case.as_curl_command()}\n" + "\n".join(parts)) from None
        answered += 1

    try:
        one()
    except Unsatisfiable:  # whatever is sent there is right
        assert mode is GenerationMode.NEGATIVE
    return answered


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("real", [False, True], ids=["about nothing", "about what there is"])
def test_every_request_is_answered_as_described(target: Server, mode: GenerationMode, real: bool) -> None:
    load_all_checks()
    schemathesis.serializer.alias(TREE, "application/octet-stream")
    found: dict[str, str] = {}
    answered = 0
    for result in schemathesis.openapi.from_url(f"{target.url}/v1/openapi.json").get_all_operations():
        operation = result.ok()  # type: ignore[union-attr]  # raises what is wrong with it otherwise
        if real and ("{" not in operation.path or operation.label == REMOVES):
            continue
        if operation.path == "/v1/events":  # its answer ends with the server
            continue
        values = known(target, operation.path) if real else {}
        try:
            answered += send(operation, mode, values)
        except AssertionError as error:
            found[operation.label] = str(error)
        for kind in ("rollouts", "sandboxes") if real else ():
            ask(target, "DELETE", f"/v1/{kind}/{values['id']}")
    assert not found, "\n\n".join(f"{label}: {words}" for label, words in found.items())
    assert answered > 20
