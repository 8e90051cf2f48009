"""The page in the package is what its sources build to."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import labels

ROOT = Path(__file__).parents[2]
SOURCES, BUILT = ROOT / "page", ROOT / "tvsnap" / "plugins" / "server" / "page"
FEW = 800_000
"""Bytes that the page has at most: whoever installs tvsnap downloads it."""


@pytest.fixture
def node() -> str:
    program = shutil.which("node")
    if program is None or not (SOURCES / "node_modules").is_dir():
        pytest.skip("the page cannot be built here: install Node.js and npm, then make browser")
    return program


def test_the_page_is_what_its_sources_build_to(node: str, tmp_path: Path) -> None:
    subprocess.run([node, "build.mjs", str(tmp_path / "page")], cwd=SOURCES, check=True)
    built = {file.name: file.read_bytes() for file in (tmp_path / "page").iterdir()}
    assert built == {file.name: file.read_bytes() for file in BUILT.iterdir()}, "make page, and commit what it built"


PROGRAM = """
import { callLine, cutApart } from "./src/text.tsx";
import { toldApart } from "./src/roots.ts";
const { texts, calls, roots } = JSON.parse(process.argv[2]);
console.log(JSON.stringify({
  texts: texts.map(([text, others, width]) => cutApart(text, others, width)),
  calls: calls.map(([name, given]) => callLine({ name, arguments: given })),
  roots: roots.map((group) => [...toldApart(group).values()]),
}));
"""


def test_labels_are_those_of_the_command_line(node: str, tmp_path: Path) -> None:
    built = tmp_path / "labels.mjs"
    options = ("--bundle", "--format=esm", "--jsx=automatic", "--jsx-import-source=preact", "--loader=js")
    subprocess.run(
        [node, "node_modules/esbuild/bin/esbuild", *options, f"--outfile={built}"],
        cwd=SOURCES,
        input=PROGRAM,
        text=True,
        check=True,
        capture_output=True,
    )
    given = {
        "texts": labels.CUT_APART,
        "calls": labels.CALLS,
        "roots": [
            [{**labels.ROOT, "hash": str(number), **root} for number, root in enumerate(group)]
            for group, _ in labels.ROOTS
        ],
    }
    done = subprocess.run([node, str(built), json.dumps(given)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "texts": [shown for *_, shown in labels.CUT_APART],
        "calls": [line for *_, line in labels.CALLS],
        "roots": [apart for _, apart in labels.ROOTS],
    }


def test_the_types_of_the_sources_are_right(node: str) -> None:
    done = subprocess.run([node, "node_modules/typescript/bin/tsc"], cwd=SOURCES, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_page_is_small_and_names_no_other_host() -> None:
    assert sum(file.stat().st_size for file in BUILT.iterdir()) < FEW
    assert "http" not in (BUILT / "index.html").read_text()
