"""The shell commands of the guides are executed as they are printed, under the programs that they name.

A comment in the line above a block says what it needs. `<!-- example: shell -->`: a data directory with the image
`terminal` and what a demonstration has recorded; `harbor`, `harness`, `openhands`: in addition, these programs;
`docker`: an engine; `servers`: a model's server and an object store, and what is printed runs until it is stopped.
`<!-- not run: WHY -->` says why a block is not executed. Python, YAML and JSON belong to test_examples.py.

What a reader has, and a test has not, is put in its place: hashes of states and rollouts, which are others each time,
the names `fix-git` of a task and `fix-permissions` of an image, folders, a bucket, a terminal and another host.
`pip install` of one of tvsnap's extras is not executed, but the extra has to exist: what it brings is installed
already.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.authority import Authority
from tests.docs.pages import DOCS, ROOT, Block, blocks
from tests.integrations.conftest import harbor_programs, harness_programs, openhands_programs
from tests.integrations.harbor_tasks import write_tasks
from tvsnap.images import Image

__all__ = ["harbor_programs", "harness_programs", "openhands_programs"]

GUIDES = (DOCS / "guides").relative_to(ROOT).as_posix() + "/"
SHELL = [block for block in blocks("") if block.page.startswith(GUIDES)]
PROGRAMS = {"shell": "", "servers": "", "docker": "docker_engine"}
PROGRAMS |= {"harbor": "harbor_programs", "harness": "harness_programs", "openhands": "openhands_programs"}
"""The marks, with the fixtures of what they need."""
HASH = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{6,8}\b")
FIX_GIT = "tvsnap run terminal --task fix-git --policy eager -c 'echo x > f'"
SERVERS = list(dict.fromkeys(block.page for block in SHELL if block.mark == "servers"))
"""Pages with programs that run until they are stopped."""
DIFFERS = 'tvsnap() { command tvsnap "$@" || [ $? = 4 ]; }\n'
"""Status 4 says that something differs, as the time does that a call printed: the verb has done its work."""
RUNS = re.compile(r"^(?=tvsnap (?:serve|web|proxy --upstream)\b)", re.MULTILINE)
STARTED = r"""
running=
stopped() { [ -z "$running" ] || { kill "$running"; wait "$running"; running=; }; }
trap '[ -z "$running" ] || kill "$running"' EXIT
started() {
    stopped
    : >said
    (exec "$@" >said 2>&1) & running=$!
    until grep -q :// said; do kill -0 "$running" || { cat said; return 1; }; sleep 0.1; done
    cat said
    curl --silent --fail --insecure --output page "$(grep -o 'https\?://[^ /,]*' said | head -n 1)/"
}
"""
"""`started`: ends, with status 0, what it has started before; starts a program; and waits for it to answer."""
ELSEWHERE = 'ssh() { shift; "$@"; }\ndocker() { command docker "${@/-it/-i}"; }\n'
"""Another host is this one, and a terminal an empty standard input."""
TIME = 600.0  # seconds for one block, on a machine that has much else to do
AGENT = """
import json, os, urllib.request

body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "Where is the key?"}]}
asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode())
asked.add_header("content-type", "application/json")
for _ in range(2):
    with urllib.request.urlopen(asked) as answer:
        print(answer.headers["x-tvsnap-cache"], json.load(answer)["choices"][0]["message"]["content"])
"""
CITIES = """-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
CREATE TABLE `city` (`id` int NOT NULL, `name` varchar(35) COLLATE utf8mb4_0900_ai_ci, PRIMARY KEY (`id`));
INSERT INTO `city` VALUES (1,'Bonn'),(2,'Quito');
"""
QUERIES: dict[str, object] = {"task": "cities", "rollout": "first", "database": "world_mysql"}
QUERIES |= {"calls": [{"name": "sql", "arguments": {"query": "SELECT name FROM city"}}]}
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

    def run(self, script: str, *programs: Path, beside: bool = False) -> str:
        """Runs lines of a shell, each of which must succeed, beside servers or alone; returns what they print."""
        path = ":".join(map(str, [*programs, ROOT / ".venv/bin", os.environ["PATH"]]))
        own = {"TVSNAP_HOME": str(self.home), "HOME": str(self.folder), "INSPECT_EVAL_MODEL": "mockllm/model"}
        own |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "BROWSER": "true"}
        within = ["unshare", "--net", sys.executable, "-m", "tests.docs.beside"] if beside else []
        ran = subprocess.run(
            [*within, "bash", "-euo", "pipefail", "-c", f"cd {self.folder}\n{DIFFERS}{ELSEWHERE}{STARTED}{script}"],
            env={**os.environ, **own, "PATH": path},
            cwd=ROOT,
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
    shutil.copytree(folder / "tasks/wait", folder / "tasks/fix-permissions")
    shutil.copytree(folder / "tasks/wait", folder / "task")
    (folder / "task.py").write_text(INSPECT_TASK)
    (folder / "agent.py").write_text(AGENT)
    (folder / "world_mysql.sql").write_text(CITIES)
    (folder / "sql_rollouts.jsonl").write_text(json.dumps(QUERIES) + "\n")
    (folder / "tokens").write_text(secrets.token_hex(16))
    (folder / "tokens").chmod(0o600)
    Authority(folder / "authority").issue("server", "subjectAltName=DNS:sandboxes-1")
    for end in ("pem", "key"):
        (folder / "authority" / f"server.{end}").rename(folder / f"server.{end}")
    (rollouts,) = (block for block in blocks("json") if block.page == f"{GUIDES}getting-started.md")
    (folder / "rollouts.jsonl").write_text(rollouts.text)
    (folder / "small").mkdir()
    (folder / "small/image.yaml").write_text("name: fix-permissions\nimage: terminal\n")
    begun = Reader(home, folder, [])
    begun.run(f"tvsnap demo --json >demo.json; {FIX_GIT}\ntvsnap image build small/")
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
    script = "\n".join(typed)
    for theirs, ours in (
        ("/var/lib/tvsnap", str(reader.home)),
        ("/data/run-7", str(reader.home)),
        ("/mnt/shared", str(reader.folder / "shared")),
        ("s3://bucket/", "s3://tests/"),
    ):
        script = script.replace(theirs, ours)
    script = RUNS.sub("started ", script)
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


@pytest.mark.parametrize("block", [block for block in SHELL if block.mark not in ("", "servers")], ids=str)
def test_commands_do_what_the_guide_says(block: Block, reader: Reader, request: pytest.FixtureRequest) -> None:
    needed = PROGRAMS[block.mark]
    found = request.getfixturevalue(needed) if needed else None
    said = reader.run(script_of(block, reader), *([found] if isinstance(found, Path) else []))
    if block.mark == "harbor":
        assert "Mean: 1.000" in said, said
    if block.page.endswith("inspect.md"):
        assert re.search(r"accuracy:? +1\.0", said), said


@pytest.mark.parametrize("page", SERVERS)
def test_what_runs_until_it_is_stopped(page: str, reader: Reader) -> None:
    script = "\n".join(script_of(block, reader) for block in SHELL if (block.page, block.mark) == (page, "servers"))
    said = reader.run(f"{FIX_GIT}\n{script}\nstopped", beside=True)  # other guides forget the task
    if page.endswith("proxy.md"):
        answer = "The key is under the mat"
        assert f"miss {answer}\nhit {answer}\n" in said, said
        assert '"source":"asked"' in said.replace(" ", ""), said


def test_lines_are_those_that_a_reader_types() -> None:
    printed = "$ tvsnap image base x \\\n      --package gcc    # what for\nstep 1 of 2\n$ ls\na\n"
    assert lines_of(Block("p", 1, "", "shell", printed)) == [
        "tvsnap image base x \\",
        "      --package gcc    # what for",
        "ls",
    ]
    assert lines_of(Block("p", 1, "", "shell", "ls\npwd\n")) == ["ls", "pwd"]
