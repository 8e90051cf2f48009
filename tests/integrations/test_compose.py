"""Compose files come to what Docker Compose itself makes of them (`config`), and are wrong where it says so."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.compose_cases import CASES, NOT_READ, READ_ALL_THE_SAME, WRONG
from tvsnap.images.descriptions.detect import load_source
from tvsnap.images.descriptions.spec import ImageSpec
from tvsnap.images.errors import ImageSpecError

COMPOSE_FILE = "docker-compose.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder; its name is that of the project."""
    (tmp_path / "task").mkdir()
    return tmp_path / "task"


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes a task of terminal-bench with these files."""
    for name, text in {"Dockerfile": "FROM a\n", "task.yaml": "instruction: hello\n", **files}.items():
        (folder / name).write_bytes(text.encode())


def composed(program: Path, folder: Path) -> dict[str, Any] | None:
    """Returns what Compose makes of the folder's file, with relative paths; None if it refuses the file."""
    command = [str(program), "-f", COMPOSE_FILE, "config", "--format", "json"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    said: dict[str, Any] = json.loads(done.stdout.replace(f"{folder}/", "./").replace(f'"{folder}"', '"."'))
    return said


def undoubled(text: str) -> str:
    """Returns a value without the second dollar that Compose adds to each in what it prints."""
    return text.replace("$$", "$")


def told(spec: ImageSpec) -> dict[str, Any]:
    """Returns all that is read of a folder, with services by name, except notes."""
    read: dict[str, Any] = {field.name: getattr(spec, field.name) for field in fields(spec) if field.name != "notes"}
    read["services"] = {settings.name: (told(one), settings) for one, settings in spec.services}
    return read


@pytest.mark.parametrize("name", CASES)
def test_what_is_read(compose_program: Path, folder: Path, name: str) -> None:
    """The file, and the one that Compose writes of it with all values resolved, are read as the same."""
    write(folder, CASES[name])
    wanted = composed(compose_program, folder)
    assert wanted is not None
    ours = load_source(folder)

    main = wanted["services"]["main"]
    environment = {key: undoubled(text) for key, text in (main.get("environment") or {}).items() if text is not None}
    assert ours.env == environment
    for key in ("command", "entrypoint"):
        assert list(getattr(ours.runs, key) or ()) == [undoubled(word) for word in main.get(key) or ()]
    assert (ours.workdir, ours.user) == (main.get("working_dir"), main.get("user"))

    (folder / ".env").unlink(missing_ok=True)
    (folder / COMPOSE_FILE).write_text(json.dumps(wanted))
    assert told(ours) == told(load_source(folder))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(compose_program: Path, folder: Path, name: str) -> None:
    write(folder, WRONG[name])
    assert composed(compose_program, folder) is None
    with pytest.raises(ImageSpecError):
        load_source(folder)


@pytest.mark.parametrize("name", READ_ALL_THE_SAME)
def test_what_is_read_though_compose_refuses_it(compose_program: Path, folder: Path, name: str) -> None:
    write(folder, READ_ALL_THE_SAME[name])
    assert composed(compose_program, folder) is None
    load_source(folder)


@pytest.mark.parametrize("name", NOT_READ)
def test_what_is_refused_though_compose_reads_it(compose_program: Path, folder: Path, name: str) -> None:
    write(folder, NOT_READ[name])
    assert composed(compose_program, folder) is not None
    with pytest.raises(ImageSpecError):
        load_source(folder)
