"""The Python, YAML and JSON in README.md and docs/ is right: Python is run, each block as a program of its own.

A comment in the line above a block says what it needs: `<!-- example: sandbox -->` the image `terminal`,
`<!-- example: docker -->` an engine as well, `<!-- example: server -->` a server with that image,
`<!-- example: fleet -->` two of them, `<!-- example: ray -->` a Ray cluster (tests/fleet); `<!-- example: suite -->`
marks what pytest runs in sandboxes, and `<!-- example: image -->` a complete image.yaml. What needs another program
that runs agents, `<!-- example: harness -->`, is run by tests/integrations/test_harnesses.py, and what needs a trainer
or its data by tests/training.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT, Block, blocks
from tests.server.conftest import start
from tvsnap.images import load_source

PYTHON = blocks("python")
TIME = 300.0  # seconds for one program, on a machine that has much else to do


def run(block: Block, home: Path) -> None:
    """Runs a block as a program, with `home` as its data directory."""
    environment = {**os.environ, "TVSNAP_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIME
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


def marked(mark: str) -> list[Block]:
    return [block for block in PYTHON if block.mark == mark]


def test_every_mark_is_known() -> None:
    assert {block.mark for block in PYTHON} <= {
        "",
        "appworld",
        "sandbox",
        "docker",
        "fleet",
        "harness",
        "openhands",
        "ray",
        "server",
        "suite",
        "training",
        "verifiers",
        "video",
    }
    assert len(marked("sandbox")) > 5


@pytest.mark.parametrize("block", marked(""), ids=str)
def test_programs_without_a_sandbox(block: Block, tmp_path: Path) -> None:
    run(block, tmp_path)


@pytest.mark.usefixtures("terminal_image")
@pytest.mark.parametrize("block", marked("sandbox"), ids=str)
def test_programs_with_sandboxes(block: Block, tvsnap_home: Path) -> None:
    run(block, tvsnap_home)


@pytest.mark.usefixtures("terminal_image")
@pytest.mark.parametrize("block", marked("suite"), ids=str)
def test_suites(block: Block, tvsnap_home: Path, tmp_path: Path) -> None:
    """Each is run as a user does: by pytest, in a folder of its own, with the image of the data directory."""
    file = tmp_path / "test_lines.py"
    file.write_text(block.text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file.name],
        cwd=tmp_path,
        env={**os.environ, "TVSNAP_HOME": str(tvsnap_home)},
        capture_output=True,
        text=True,
        timeout=TIME,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


@pytest.mark.parametrize("block", marked("server"), ids=str)
@pytest.mark.usefixtures("terminal_image")
def test_programs_with_a_server(block: Block, tvsnap_home: Path, tmp_path: Path) -> None:
    server = start(tvsnap_home)
    try:
        run(replace(block, text=block.text.replace("http://sandboxes:8420", server.url)), tmp_path)
    finally:
        server.stop()


@pytest.mark.usefixtures("terminal_image", "docker_engine")
@pytest.mark.parametrize("block", marked("docker"), ids=str)
def test_programs_with_containers(block: Block, tvsnap_home: Path) -> None:
    run(block, tvsnap_home)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_images_can_be_described_so(block: Block, tmp_path: Path) -> None:
    assert isinstance(yaml.safe_load(block.text), dict)
    if block.mark == "image":
        folder = tmp_path / "example"
        folder.mkdir()
        (folder / "tools").mkdir()
        (folder / "shop.sql").write_text("CREATE TABLE t (n int);")
        (folder / "schema.sql").write_text("CREATE TABLE items (n int);")
        (folder / "items.csv.gz").write_bytes(gzip.compress(b"n\n1\n"))
        (folder / "old.sqlite").write_bytes(b"SQLite format 3\0")
        (folder / "image.yaml").write_text(block.text)
        assert load_source(folder).name == "example"


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    for line in block.text.splitlines():
        assert isinstance(json.loads(line), dict)
