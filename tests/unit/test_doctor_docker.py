"""The doctor on Docker: an engine, none, one that hangs, and those that lack something."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tvsnap.host.checks import Check
from tvsnap.plugins.docker import checks


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    found = by_name(checks.check_docker())
    assert found.keys() == {"Docker engine", "Dockerfile builds"}
    check = found["Docker engine"]
    assert not check.ok
    assert not check.required
    assert str(tmp_path) in check.detail
    assert "local backend does not need it" in check.cost


def test_an_engine_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    monkeypatch.setattr(checks, "PATIENCE", 1)
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(f"{tmp_path}/socket")
        engine.listen()
        began = time.monotonic()
        check = by_name(checks.check_docker())["Docker engine"]
        assert time.monotonic() - began < 20
    assert not check.ok
    assert "timed out" in check.detail


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"ExperimentalBuild": False}, "experimental features are off"),
        ({"ExperimentalBuild": True, "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}, "root"),
    ],
)
def test_no_checkpoints(about: dict[str, Any], said: str) -> None:
    check = checks.check_experimental(about)
    assert not check.ok
    assert said in check.detail
    assert check.remedy
    assert "replayed" in check.cost


def test_the_engines_directory(tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()
    (tmp_path / "engine-id").write_text("this-one\n")
    about = {"DockerRootDir": str(tmp_path), "ID": "this-one"}
    assert checks.check_data(about, "unix:///socket").ok
    assert "another engine's" in checks.check_data({**about, "ID": "other"}, "unix:///socket").detail
    assert "another machine" in checks.check_data(about, "tcp://there:2375").detail
    away = checks.check_data({**about, "DockerRootDir": f"{tmp_path}/away"}, "unix:///socket")
    assert "not on this machine" in away.detail
    assert away.remedy


def test_storage_drivers() -> None:
    assert checks.check_storage_driver({"Driver": "overlay2"}).ok
    check = checks.check_storage_driver({"Driver": "vfs"})
    assert not check.ok
    assert "full copy" in check.cost


def test_a_builder_of_dockerfiles(monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[str] = set()
    monkeypatch.setattr("shutil.which", lambda program, **_: f"/bin/{program}" if program in found else None)
    check = checks.check_builder(engine=False)
    assert not check.ok
    assert "buildah" in check.remedy
    assert checks.check_builder(engine=True).ok
    found.update({"buildah", "podman"})
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(checks, "steps_complaint", lambda: "")
    check = checks.check_builder(engine=False)
    assert check.ok
    assert "podman is there too" in check.detail
    monkeypatch.setattr(checks, "steps_complaint", lambda: "it cannot")
    check = checks.check_builder(engine=False)
    assert not check.ok
    assert check.detail == "buildah runs no step: it cannot"
    assert checks.check_builder(engine=True).ok
