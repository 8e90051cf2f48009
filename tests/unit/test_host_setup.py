"""What `tvsnap setup` would do, what it refuses, and that it leaves nothing half done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.cli_helpers import CommandLine, make_command_line
from tests.unit.test_doctor import fake_criu
from tvsnap.host import scripts
from tvsnap.model.errors import InfrastructureError, MachineLacks
from tvsnap.sandboxes.criu import binary as criu_binary
from tvsnap.upkeep import host_setup
from tvsnap.upkeep.host_setup import Step


def script(text: str) -> Step:
    return Step("test", "run a script", "this test", ("bash", "-euo", "pipefail", "-c", text))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with nothing but apt, which is root's. Returns where its CRIU would be kept."""
    for name in ("TVSNAP_CRIU", "TVSNAP_WITHOUT_CRIU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tvsnap.host.native.BIN", tmp_path / "carried")
    monkeypatch.setattr(criu_binary, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(shutil, "which", lambda name, **_: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return tmp_path / "kept"


def test_a_bare_machine_gets_packages_and_criu(bare: Path) -> None:
    packages, criu = host_setup.plan()
    assert (packages.name, criu.name) == ("packages", "criu")
    assert packages.packages == ("btrfs-progs", "mmdebstrap", "mount", "util-linux", "tar")
    assert set(packages.packages) <= set(packages.command)
    assert str(bare) in criu.what
    assert [step.name for step in host_setup.plan(criu=False)] == ["packages"]
    host_setup.check_possible([packages, criu])


def test_only_what_is_missing(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name in ("mkfs.btrfs", "mmdebstrap") else f"/{name}")
    assert [step.packages for step in host_setup.plan(criu=False)] == [("btrfs-progs",)], "debootstrap will do"
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/{name}")
    assert host_setup.plan(criu=False) == []


def test_a_criu_without_the_additions_of_today_is_built_anew(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/{name}")
    assert [step.name for step in host_setup.plan()] == ["criu"], "the distribution's lacks them"
    fake_criu(bare / "criu-4.2.1-tvsnap1" / "criu")
    assert [step.name for step in host_setup.plan()] == ["criu"]
    fake_criu(bare / f"criu-4.2.1-{scripts.criu_additions()}" / "criu")
    assert host_setup.plan() == []


def test_a_criu_that_was_chosen_stays(bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVSNAP_CRIU", str(tmp_path / "nothing"))
    assert [step.name for step in host_setup.plan()] == ["packages"]


def test_rights_and_apt_are_needed_only_for_what_is_missing(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = host_setup.plan()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MachineLacks, match="run tvsnap setup as root"):
        host_setup.check_possible(steps)
    host_setup.check_possible([])
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(MachineLacks, match=r"no apt-get here.* btrfs-progs, mmdebstrap"):
        host_setup.check_possible(steps)


def test_what_a_step_says(tmp_path: Path) -> None:
    said: list[str] = []
    host_setup.carry_out(script("echo '==> one'; echo '==> two' >&2; test -e scripts/common.sh"), said.append)
    assert said == ["==> one", "==> two"]


def test_a_step_that_fails() -> None:
    said: list[str] = []
    with pytest.raises(InfrastructureError, match=r"^run a script: no such luck$"):
        host_setup.carry_out(script(". scripts/common.sh; echo the end of a log >&2; die no such luck"), said.append)
    assert said == ["the end of a log"]
    with pytest.raises(InfrastructureError, match=r"^run a script: ended with status 7$"):
        host_setup.carry_out(script("exit 7"), said.append)


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_a_step_that_is_interrupted_cleans_up(tmp_path: Path, ending: type[BaseException]) -> None:
    """Also what the scripts run ends; what must not be cut short is ended first."""
    left, finished = tmp_path / "left", tmp_path / "finished"
    text = (
        f". scripts/common.sh; trap 'rm {left}' EXIT; touch {left}; echo '==> begun'; "
        f"(sleep 600 & trap '' INT TERM HUP; echo '==> now'; wait $! || touch {finished}); sleep 600"
    )

    def interrupt(line: str) -> None:
        if line == "==> now":
            raise ending

    with pytest.raises(ending):
        host_setup.carry_out(script(text), interrupt)
    assert not left.exists()
    assert finished.exists()


@pytest.fixture
def tvsnap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return make_command_line(tmp_path, monkeypatch)


def test_what_would_be_done_is_told(tvsnap: CommandLine, bare: Path) -> None:
    told = tvsnap("setup", "--dry-run").stdout
    assert "install btrfs-progs, mmdebstrap, mount, util-linux, tar with apt" in told
    assert "build CRIU" in told
    data = tvsnap.json("setup", "--dry-run")
    assert [step["name"] for step in data["steps"]] == ["packages", "criu"]
    assert (data["dry_run"], data["ok"], data["lacks"]) == (True, False, [])
    assert len(tvsnap.json("setup", "--dry-run", "--without-criu")["steps"]) == 1


def test_nothing_is_changed_unasked(tvsnap: CommandLine, bare: Path) -> None:
    assert "add --yes" in tvsnap.error("setup", status=2)
    assert "add --yes" in tvsnap.error("setup", "--json", status=2)
