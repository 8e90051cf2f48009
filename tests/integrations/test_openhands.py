"""OpenHands itself on tvsnap's plug-in: its agent with a scripted model, run by a Python that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks
from tests.integrations.conftest import PLAIN_USER
from tests.integrations.test_harnesses import pytest_of, run
from tests.server.conftest import Server

CHECKS = "with_openhands.py"
EXAMPLES = [block for block in blocks("python") if block.mark == "openhands"]


@pytest.mark.usefixtures("terminal_image")
def test_checks_pass(openhands_programs: Path, tvsnap_home: Path, tmp_path: Path) -> None:
    said = run(pytest_of(openhands_programs, tmp_path, CHECKS), tmp_path, TVSNAP_HOME=str(tvsnap_home))
    assert " passed" in said, said


def test_checks_pass_with_a_server_and_without_root(openhands_programs: Path, server: Server, tmp_path: Path) -> None:
    command = [*PLAIN_USER, *pytest_of(openhands_programs, tmp_path, CHECKS)]
    said = run(command, tmp_path, TVSNAP_URL=server.url)
    assert " passed" in said, said


@pytest.mark.usefixtures("terminal_image")
@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_examples_of_the_guide(block: Block, openhands_programs: Path, tvsnap_home: Path, tmp_path: Path) -> None:
    run([openhands_programs / "python", "-c", block.text], tmp_path, TVSNAP_HOME=str(tvsnap_home))
