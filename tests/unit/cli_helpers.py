"""What the command line's tests share: running it in this process on a fake backend that lasts a whole test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tvsnap.sandboxes
from cli import context
from cli.main import make_app
from tests.fakes.backend import FakeBackend
from tests.fakes.caches import FakeImages
from tvsnap.graph import Graph
from tvsnap.host.home import GRAPH_FILE


@dataclass
class CommandLine:
    """The command line on a data directory and a fake backend of its own.

    Attributes:
        home: the data directory.
        backend: what runs the sandboxes of every verb.
    """

    home: Path
    backend: FakeBackend

    def __call__(self, *arguments: str, status: int | None = 0, stdin: str | bytes | None = None) -> Result:
        """Runs a verb; checks that it ends with `status` (None: any), and that nothing it started is left."""
        result = CliRunner().invoke(make_app(), list(arguments), input=stdin, prog_name="tvsnap")
        if status is not None:
            assert result.exit_code == status, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
        assert "Traceback" not in result.output
        assert not self.backend.live, "sandboxes are left"
        assert not list((self.home / "run" / "owners").glob("*")), "an owner is left"
        return result

    def json(self, *arguments: str, status: int | None = 0, stdin: str | None = None) -> Any:
        """Runs a verb with `--json`; returns what it printed."""
        return json.loads(self(*arguments, "--json", status=status, stdin=stdin).stdout)

    def error(self, *arguments: str, status: int, stdin: str | bytes | None = None) -> str:
        """Runs a verb that fails; returns its message, which is one line."""
        result = self(*arguments, status=status, stdin=stdin)
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("tvsnap: ")
        return lines[0].removeprefix("tvsnap: ")

    def rollout(self, *commands: str, task: str = "task") -> list[dict[str, Any]]:
        """Makes calls of `bash` as one rollout; returns them as `run --json` prints them."""
        options = [word for command in commands for word in ("-c", command)]
        calls: list[dict[str, Any]] = self.json("run", "terminal", "--task", task, "--policy", "eager", *options)[
            "calls"
        ]
        return calls

    @contextmanager
    def graph(self) -> Iterator[Graph]:
        """A block with the graph open."""
        with Graph(self.home / GRAPH_FILE) as graph:
            yield graph


def make_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Returns the command line with everything of it in `tmp_path`."""
    line = CommandLine(tmp_path / "home", FakeBackend())
    (line.home / "images").mkdir(0o700, parents=True)  # as in every data directory
    monkeypatch.setitem(tvsnap.sandboxes.FACTORIES, "fake", lambda home, owner: line.backend)
    monkeypatch.setattr(context, "open_images", FakeImages)
    monkeypatch.setenv("TVSNAP_HOME", str(line.home))
    monkeypatch.setenv("TVSNAP_BACKEND", "fake")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("TVSNAP_DEBUG", raising=False)
    return line


def rollout_line(*commands: str, task: str = "task", name: str = "one", **extra: Any) -> str:
    """Returns a line of a rollout file."""
    calls = [{"name": "bash", "arguments": {"command": command}} for command in commands]
    return json.dumps({"task": task, "rollout": name, "calls": calls, **extra})
