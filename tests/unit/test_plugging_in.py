"""What packages plug in: backends with what they ask for, loaders with their keys; and what is said of broken ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.image_lab import write_spec
from tvsnap import sandboxes
from tvsnap.environments import environment
from tvsnap.host import plugins
from tvsnap.host.checks import Check, Found, check
from tvsnap.images import ImageSpec, ImageSpecError, load_source
from tvsnap.images.descriptions.spec import DebianBase
from tvsnap.images.loaders import loaders
from tvsnap.model.errors import UsageError

Install = Callable[[plugins.Kind, str], None]


@check("the thing", "nothing works")
def check_thing(home: Path) -> Found:
    return Found(home.is_dir(), str(home))


class Plain:
    """A backend, as far as it is looked at, that asks for nothing more."""

    def __init__(self, home: Path, owner: str) -> None:
        self.given = (home, owner)

    def fork(self) -> None:
        """By which a backend is known."""


class Networked(Plain):
    """One that is lent a network, and has a check."""

    def __init__(self, home: Path, owner: str, *, network: Any = None) -> None:
        super().__init__(home, owner)
        self.network = network

    @staticmethod
    def checks(home: Path) -> list[Check]:
        return [check_thing(home)]


def read_mine(path: Path) -> ImageSpec:
    """Reads a file with the name of a suite."""
    return ImageSpec(path.parent, "described", "terminal", DebianBase(path.read_text()))


corpus_loader = SimpleNamespace(keys={"corpus": str, "database": str}, check=lambda data: None)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Adds an entry point with the name `mine` to those that are installed."""

    def add(kind: plugins.Kind, value: str) -> None:
        there = {**plugins._installed(kind), "mine": EntryPoint("mine", value, plugins.GROUPS[kind])}
        before = plugins._installed
        monkeypatch.setattr(plugins, "_installed", lambda asked: there if asked == kind else before(asked))

    return add


def test_tvsnap_plugs_in_what_it_brings() -> None:
    assert {"docker"} <= set(plugins.names("backend"))
    assert {"sqlite", "postgres", "mariadb"} <= set(plugins.names("environment")) & set(loaders())
    assert {"python"} <= set(plugins.names("environment"))
    assert {"task.toml", "task.yaml"} <= set(plugins.names("image description"))
    assert environment("sqlite") is environment("sqlite")
    assert environment("sqlite").name == "sqlite"


def test_the_core_does_without() -> None:
    code = (
        "import sys, tvsnap.aio.cache, tvsnap.cache, tvsnap.images, tvsnap.types\n"
        "import tvsnap.upkeep.doctor, tvsnap.upkeep.replay, tvsnap.upkeep.verify, tvsnap_cli.main, tvsnap_cli.context\n"
        "from tvsnap.environments import environment\n"
        "environment('terminal')\n"
        "assert not [name for name in sys.modules if name.startswith('tvsnap.plugins')]\n"
        "from tvsnap.host import plugins\n"
        "assert not plugins._installed.cache_info().currsize\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_entry_points_it_is_said_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_installed", lambda _kind: {})
    with pytest.raises(UsageError, match=r'backend "docker" not found; have: local; .* install it anew \(make setup\)'):
        sandboxes.check_name("docker")


def test_a_backend_gets_the_network_if_it_takes_it(install: Install, tmp_path: Path) -> None:
    lent: Any = object()
    install("backend", f"{__name__}:Networked")
    made: Any = sandboxes.open_backend("mine", tmp_path, "owner", lent)
    assert made.network is lent
    install("backend", f"{__name__}:Plain")
    made = sandboxes.open_backend("mine", tmp_path, "owner", lent)
    assert made.given == (tmp_path, "owner")


def test_a_backend_brings_checks(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    install("backend", f"{__name__}:Networked")
    assert Check("the thing", True, False, str(tmp_path), "nothing works", "") in sandboxes.checks(tmp_path)
    install("backend", "nowhere.to_be_found:Backend")
    (broken,) = [one for one in sandboxes.checks(tmp_path) if one.name == "backend mine"]
    assert not broken.ok
    assert "nowhere.to_be_found:Backend" in broken.detail


def test_files_that_describe_images(install: Install, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("trixie")
    with pytest.raises(ImageSpecError, match=r"has none of image.yaml, task.toml, task.yaml, Dockerfile"):
        load_source(tmp_path)
    install("image description", f"{__name__}:read_mine")
    assert load_source(tmp_path).base == load_source(tmp_path / "mine").base == DebianBase("trixie")
    write_spec(tmp_path, "{debian: }")
    assert load_source(tmp_path).base == DebianBase()


class TestLoaders:
    def test_keys(self, install: Install, tmp_path: Path) -> None:
        install("image loader", f"{__name__}:corpus_loader")
        spec = load_source(write_spec(tmp_path / "a", "{debian: , environment: mine, corpus: x, database: 'not one'}"))
        assert spec.data == {"corpus": "x", "database": "not one"}
        spec = load_source(write_spec(tmp_path / "b", "{debian: , environment: sqlite, database: one}"))
        assert spec.data == {"database": "one"}
        left_open = load_source(write_spec(tmp_path / "c", "{image: other, corpus: x}"))
        assert left_open.data == {"corpus": "x"}

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            (
                "{debian: , environment: sqlite, corpus: x}",
                'corpus: the environment "sqlite" has none; it must be mine',
            ),
            ("{debian: , environment: mine, corpus: 3}", "corpus: must be a string, not the number 3"),
            ("{debian: , environment: mine, corpse: x}", "corpse: unknown key; allowed here: .*corpus"),
        ],
    )
    def test_mistakes(self, install: Install, tmp_path: Path, text: str, complaint: str) -> None:
        install("image loader", f"{__name__}:corpus_loader")
        with pytest.raises(ImageSpecError, match=complaint):
            load_source(write_spec(tmp_path / "img", text))
