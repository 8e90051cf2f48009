"""The wheel of `make dist`: what is in it, and that it works in a fresh environment of another Python."""

from __future__ import annotations

import email
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tvsnap.sandboxes.criu.binary import KEPT

ROOT = Path(__file__).parents[2]
LIBRARIES = ("tvsnap-fixed.so", "tvsnap-rewind.so", "tvsnap-look.so", "criu_plugin/interrupted.so")
PROGRAMS = ("tvsnap-init", "tvsnap-launch", *LIBRARIES)
BIN = "tvsnap/host/bin/"
CARRIED = "tvsnap/host/setup/"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built anew."""
    directory = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [ROOT / "scripts/build_dist.sh", "--wheel", directory], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    (made,) = directory.iterdir()
    return made


def files(wheel: Path) -> dict[str, int]:
    """Returns the names of the wheel's files, each with its mode."""
    with zipfile.ZipFile(wheel) as opened:
        return {file.filename: file.external_attr >> 16 & 0o777 for file in opened.infolist()}


def test_what_is_in_the_wheel(wheel: Path) -> None:
    contents = files(wheel)
    (criu,) = (name for name in contents if name.startswith(BIN + "criu-") and name.endswith("/criu"))
    for program in (*(BIN + name for name in PROGRAMS), criu):
        assert contents[program] == 0o755, program
    for told in (f"{BIN}NOTICE", f"{BIN}licences/musl-dev.copyright"):
        assert told in contents
    beside = {Path(name).name for name in contents if name.startswith(f"{Path(criu).parent}/")}
    assert {"COPYING", "sources.txt", "libc6-dev.copyright", "LGPL-2.1"} <= beside
    tops = {name.split("/")[0] for name in contents}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tvsnap", "tvsnap_cli", "tvsnap_images"}
    assert {Path(name).parent.name for name in contents if name.endswith((".c", ".h"))} == {"bin", "criu"}
    of_pages = {f"tvsnap_cli/{name}" for name in ("tree_svg.css", "tree_page.css", "tree_page.js", "report.css")}
    assert of_pages <= set(contents)
    data = [*ROOT.glob("tvsnap/**/*.sql"), *ROOT.glob("tvsnap/plugins/server/page/*")]
    assert {str(path.relative_to(ROOT)) for path in data} <= set(contents)

    # It goes for every Python, and for a C library that is older than those of today.
    _, _, *tags = wheel.stem.split("-")
    assert tags[:2] == ["py3", "none"]
    assert tags[2].startswith("manylinux_2_")
    guide = (ROOT / "docs/guides/getting-started.md").read_text()
    glibc = tags[2].removeprefix("manylinux_").rpartition("_x86")[0].replace("_", ".")
    assert wheel.name in guide, "the guide names another wheel"
    assert f"glibc {glibc} or newer" in guide, "the guide names another C library"
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in contents if name.endswith(".dist-info/WHEEL"))
        assert email.message_from_bytes(opened.read(name)).get_all("Tag") == ["-".join(tags)]

        # What `tvsnap setup` runs is what the checkout has.
        names = [name.removeprefix(CARRIED) for name in contents if name.startswith(CARRIED)]
        assert {"scripts/ensure_criu.sh", "scripts/common.sh", "native/criu/owners.c"} <= set(names)
        for name in names:
            assert opened.read(CARRIED + name) == (ROOT / name).read_bytes()


def other_pythons() -> list[str]:
    """Returns the interpreters that tvsnap can run with, the newest first: others than this one, if any."""
    kept = sorted(Path.home().glob(".pyenv/versions/*/bin/python"), reverse=True)
    named = [shutil.which(f"python3.{minor}") for minor in range(14, 9, -1)]
    found: dict[tuple[int, ...], str] = {}
    for python in [*filter(None, named), *map(str, kept)]:
        look = "import sys, venv; print(*sys.version_info[:2])"
        run = subprocess.run([python, "-c", look], capture_output=True, text=True, check=False)
        if run.returncode == 0:
            version = tuple(map(int, run.stdout.split()))
            if version >= (3, 10) and version != sys.version_info[:2]:
                found.setdefault(version, python)
    return [found[version] for version in sorted(found, reverse=True)] or [sys.executable]


@dataclass
class Installed:
    """The command in a fresh environment, where there is no checkout and no CRIU but its own.

    Attributes:
        environment: where it is installed.
        home: a directory for all that it writes.
    """

    environment: Path
    home: Path

    def __call__(self, *arguments: str) -> str:
        """Runs the command; returns what it printed."""
        env = {name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ}
        env |= {"TVSNAP_HOME": str(self.home / "data"), "XDG_CACHE_HOME": str(self.home / "cache")}
        command = [str(self.environment / "bin/tvsnap"), *arguments]
        done = subprocess.run(command, cwd=self.home, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Runs the command with `--json`; returns what it printed."""
        return json.loads(self(*arguments, "--json"))


def install(wheel: Path, directory: Path, age: str) -> Installed:
    """Installs the wheel and what it needs as others would.

    Args:
        age: "newest" or "oldest": of the versions that the wheel admits, and of the Pythons there are.
    """
    environment = directory / "environment"
    python = other_pythons()[0 if age == "newest" else -1]
    subprocess.run([python, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    pip_install(environment, age, "--no-compile", str(wheel))
    return Installed(environment, directory)


def pip_install(environment: Path, age: str, *arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(environment), "--disable-pip-version-check", "--quiet"]
    pip += ["install", "-c", str(ROOT / f"tests/constraints/{age}.txt"), *arguments]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="sandboxes need root's rights")
@pytest.mark.parametrize("age", ["newest", "oldest"])
def test_what_was_installed_works(wheel: Path, tmp_path: Path, age: str) -> None:
    """One test, since what it needs takes a while to install."""
    tvsnap = install(wheel, tmp_path, age)
    assert "tvsnap replay" in tvsnap("--help")

    found = {check["name"]: check for check in tvsnap.json("doctor")["checks"]}
    assert found["native programs"]["ok"]
    assert found["CRIU"]["ok"], found["CRIU"]
    assert f"{tvsnap.environment}/lib/" in found["CRIU"]["detail"]

    assert "criu" not in [step["name"] for step in tvsnap.json("setup", "--dry-run")["steps"]]
    result = tvsnap.json("doctor", "--self-test")
    assert result["ok"], [check for check in result["checks"] if not check["ok"]]

    (carried,) = tvsnap.environment.glob(f"lib/python3.*/site-packages/{BIN}criu-*")
    shutil.rmtree(carried)
    steps = [step["name"] for step in tvsnap.json("setup", "--dry-run")["steps"]]
    assert ("criu" in steps) != (KEPT / carried.name).is_dir(), "it is built, unless this machine has one for all"


USING_OTHERS: tuple[str, ...] = (
    "cli",
    "docker_distinction",
    "dumps",
    "hostile_descriptions",
    "hostile_sandbox",
    "image_spec",
    "network",
)
USING_OTHERS += ("screen_work", "sql_statements", "terminal_environment", "tools")
"""Unit tests of what uses the packages that tvsnap depends on."""


def test_the_oldest_packages_that_are_admitted_will_do(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([other_pythons()[-1], "-m", "venv", "--without-pip", str(tmp_path)], check=True, timeout=120)
    pip_install(tmp_path, "oldest", str(wheel), "pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
    command = [str(tmp_path / "bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"tests/unit/test_{name}.py" for name in USING_OTHERS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
