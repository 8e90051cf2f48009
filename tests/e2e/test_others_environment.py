"""An environment of another package: installed by itself, found by its entry point, and held to the shipped suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tvsnap import Image

TVSNAP = Path(sys.executable).with_name("tvsnap")
EXAMPLE = Path(__file__).parents[2] / "examples" / "environment"
SUITE = """
from dataclasses import replace
import pytest
from tvsnap.environments import environment
from tvsnap.images import ImageStore
from tvsnap.testing import EnvironmentConformance

class TestWordcount(EnvironmentConformance):
    environment = environment("wordcount")
    histories = [
        [
            ("write_file", {"path": "/tmp/t", "content": "a cat and a dog"}),
            ("count_words", {"path": "/tmp/t"}),
            ("replace_word", {"path": "/tmp/t", "word": "a", "by": "the"}),
            ("replace_word", {"path": "/tmp/t", "word": "a", "by": "the"}),
            ("bash", {"command": "cat /tmp/t; cd /tmp"}),
            ("count_words", {"path": "t"}),
            ("count_words", {"path": "nowhere"}),
            ("look_up", {"word": "cat"}),
            ("look_up", {"word": "dog"}),
            ("exec", {"command": "true"}),
            ("exec_all", {"commands": [{"command": "echo 1"}, {"command": "echo 2"}]}),
            ("read_file", {"path": "t"}),
            ("keys", {"keys": "", "wait": 0.1}),
            ("screen", {}),
        ]
    ]

    @pytest.fixture(scope="class")
    @classmethod
    def home(cls):
        from pathlib import Path
        return Path(HOME)

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls, home):
        return replace(ImageStore(home).get("terminal"), environment="wordcount")
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The variables of a process that has the example's package installed."""
    copy = tmp_path / "source"
    subprocess.run(["cp", "-r", str(EXAMPLE), str(copy)], check=True)
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(site), str(copy)], check=True, timeout=120)
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def test_it_is_found_and_conforms(
    installed: dict[str, str], tmp_path: Path, tvsnap_home: Path, terminal_image: Image
) -> None:
    suite = tmp_path / "test_wordcount.py"
    suite.write_text(f"HOME = {str(tvsnap_home)!r}\n{SUITE}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(suite)]
    run = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "7 passed" in run.stdout, run.stdout


def test_it_is_used_on_the_command_line(installed: dict[str, str], tmp_path: Path, terminal_image: Image) -> None:
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "image.yaml").write_text("name: words\nenvironment: wordcount\nimage: terminal\n")
    for name in ("images", "cache"):
        (tmp_path / "home").mkdir(exist_ok=True)
        os.symlink(terminal_image.rootfs.parents[2] / name, tmp_path / "home" / name)
    variables = {**installed, "TVSNAP_HOME": str(tmp_path / "home")}

    def tvsnap(*arguments: str) -> str:
        done = subprocess.run(
            [str(TVSNAP), *arguments], env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    tvsnap("image", "build", str(folder))
    calls = [
        {"name": "write_file", "arguments": {"path": "t", "content": "a b a"}},
        {"name": "count_words", "arguments": {"path": "t"}},
        {"name": "look_up", "arguments": {"word": "tvsnap"}},
    ]
    (tmp_path / "r.jsonl").write_text(
        json.dumps({"task": "t", "rollout": "r", "image": "words", "calls": calls}) + "\n"
    )
    tvsnap("replay", "r.jsonl", "--repeat", "2", "--outputs", "out.jsonl")
    made = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [one["output"] for one in made[:3]] == ["wrote 5 bytes to t\n", '{"a":2,"b":1}', "A cache of tool calls.\n"]
    assert [one["source"] for one in made[3:]] == ["hit"] * 3
    assert "(any image)" in tvsnap("tree")
    checked = json.loads(tvsnap("verify", "--all", "--json"))
    assert (checked["checked"], checked["same"]) == (2, 2), "what was asked on the host is left alone"
