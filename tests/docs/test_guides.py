"""The shell commands of the guides are executed as they are printed, under the programs that they name.

A comment in the line above a block says what it needs. `<!-- example: shell -->`: a data directory with the image
`terminal` and what a demonstration has recorded; `harbor`, `harness`, `openhands`: in addition, these programs;
`docker`: an engine. `<!-- not run: WHY -->` says why a block is not executed. Python, YAML and JSON belong to
test_examples.py.

What a reader has, and a test has not, is put in its place: hashes of states and rollouts, which are others each time,
the names `fix-git` of a task and `fix-permissions` of an image, and the usual data directory. `pip install` of one of
tvsnap's extras is not executed, but the extra has to exist: what it brings is installed already.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Block, blocks
from tests.integrations.conftest import harbor_programs, harness_programs, openhands_programs
from tests.integrations.harbor_tasks import write_tasks
from tvsnap.images import Image

__all__ = ["harbor_programs", "harness_programs", "openhands_programs"]

GUIDES = (DOCS / "guides").relative_to(ROOT).as_posix() + "/"
SHELL = [block for block in blocks("") if block.page.startswith(GUIDES)]
PROGRAMS = {"shell": "", "docker": "docker_engine"}
PROGRAMS |= {"harbor": "harbor_programs", "harness": "harness_programs", "openhands": "openhands_programs"}
"""The marks, with the fixtures of what they need."""
HASH = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{6,8}\b")
DIFFERS = 'tvsnap() { command tvsnap "$@" || [ $? = 4 ]; }\n'
"""Status 4 says that something differs, as the time does that a call printed: the verb has done its work."""
TIME = 600.0  # seconds for one block, on a machine that has much else to do
INSPECT_TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import solver
from inspect_ai.util import sandbox


@solver
def count():
    async def solve(state, generate):
        state.output.completion = (await sandbox().exec(["seq", "3"])).stdout
        return state

    return solve


@task
def counting():
    return Task(dataset=[Sample(input="Count to three.", target="3")], solver=count(), scorer=includes())
"""


@dataclass(frozen=True)
class Reader:
    """What somebody who reads the guides has.

    Attributes:
        home: the data directory.
        folder: where commands are given, with files that they name.
        states: hashes of states that have a snapshot.
    """

    home: Path
    folder: Path
    states: list[str]

    def run(self, script: str, *programs: Path) -> str:
        """Runs lines of a shell, each of which must succeed; returns what they print."""
        path = ":".join(map(str, [*programs, ROOT / ".venv/bin", os.environ["PATH"]]))
        own = {"TVSNAP_HOME": str(self.home), "HOME": str(self.folder), "INSPECT_EVAL_MODEL": "mockllm/model"}
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", DIFFERS + script],
            env={**os.environ, **own, "PATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME,
            check=False,
        )
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout


@pytest.fixture(scope="module")
def reader(terminal_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.mktemp("reader")
    home = folder / "home"
    home.mkdir()
    (home / "images").symlink_to(terminal_image.rootfs.parents[1].resolve())  # not what builds have downloaded
    write_tasks(folder / "tasks")
    (folder / "task.py").write_text(INSPECT_TASK)
    (rollouts,) = (block for block in blocks("json") if block.page == f"{GUIDES}getting-started.md")
    (folder / "rollouts.jsonl").write_text(rollouts.text)
    (folder / "small").mkdir()
    (folder / "small/image.yaml").write_text("name: fix-permissions\nimage: terminal\n")
    begun = Reader(home, folder, [])
    begun.run(
        "tvsnap demo --json >demo.json; tvsnap run terminal --task fix-git --policy eager -c 'echo x > f'\n"
        "tvsnap image build small/"
    )
    nodes = json.loads(begun.run("tvsnap tree --task demo --json"))["nodes"]
    return Reader(home, folder, [node["state"] for node in nodes if node["snapshots"]])


def lines_of(block: Block) -> list[str]:
    """Returns the lines that a reader types: all, or those after a prompt with what they are continued by."""
    lines = block.text.splitlines()
    if not any(line.startswith("$ ") for line in lines):
        return lines
    typed: list[str] = []
    goes_on = False
    for line in lines:
        if goes_on or line.startswith("$ "):
            typed.append(line.removeprefix("$ "))
            goes_on = line.endswith("\\")
    return typed


def script_of(block: Block, reader: Reader) -> str:
    """Returns what is executed for a block: its lines, with what this reader has in place of what others have."""
    project = (ROOT / "pyproject.toml").read_text()
    typed = []
    for line in lines_of(block):
        if installed := re.match(r"pip install 'tvsnap\[(\S+)\]'", line):
            has_extra = re.search(rf"^{installed[1]} = \[", project, re.MULTILINE)
            assert has_extra, f"{block}: there is no extra {installed[1]}"
        else:
            typed.append(line)
    script = "\n".join(typed).replace("/var/lib/tvsnap", str(reader.home))
    states = itertools.cycle(reader.states)
    known: dict[str, str] = {}
    for found in HASH.findall(script):
        known.setdefault(found, next(states)[:12])
    return HASH.sub(lambda found: known[found[0]], script)


def test_each_block_is_executed_or_says_why_it_is_not() -> None:
    for block in SHELL:
        assert (block.mark in PROGRAMS) != bool(block.not_run), f"{block}: one of `example` and `not run` is missing"
        for named in re.findall(r"tests/[\w/.]+", block.not_run):
            assert (ROOT / named.rstrip(".")).exists(), f"{block}: there is no {named}"
    assert len([block for block in SHELL if block.mark]) > 25


@pytest.mark.parametrize("block", [block for block in SHELL if block.mark], ids=str)
def test_commands_do_what_the_guide_says(block: Block, reader: Reader, request: pytest.FixtureRequest) -> None:
    needed = PROGRAMS[block.mark]
    found = request.getfixturevalue(needed) if needed else None
    said = reader.run(script_of(block, reader), *([found] if isinstance(found, Path) else []))
    if block.mark == "harbor":
        assert "Mean: 1.000" in said, said
    if block.page.endswith("inspect.md"):
        assert re.search(r"accuracy:? +1\.0", said), said


def test_lines_are_those_that_a_reader_types() -> None:
    printed = "$ tvsnap image base x \\\n      --package gcc    # what for\nstep 1 of 2\n$ ls\na\n"
    assert lines_of(Block("p", 1, "", "shell", printed)) == [
        "tvsnap image base x \\",
        "      --package gcc    # what for",
        "ls",
    ]
    assert lines_of(Block("p", 1, "", "shell", "ls\npwd\n")) == ["ls", "pwd"]
