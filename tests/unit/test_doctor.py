"""The doctor finds what is there, and says of each lack what it costs and how to mend it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cli.main import make_app, verb_app
from tvsnap.host.checks import Check
from tvsnap.host.disk import DiskSpace
from tvsnap.sandboxes.criu import binary as criu_binary
from tvsnap.sandboxes.local.storage.layers import POOL_FILE
from tvsnap.sandboxes.local.storage.pool_file import PoolFile
from tvsnap.upkeep import doctor
from tvsnap.upkeep.doctor import check_pool, run_checks


def fake_criu(path: Path, *, version: str = "4.2.1", complaint: str = "", ours: bool = True) -> Path:
    """Writes a program that answers `--version` and `check` as CRIU does, and is marked as ours is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    status = 1 if complaint else 0
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = --version ]; then echo "Version: {version}"; exit 0; fi\n'
        f'echo "Warn  (criu/x.c:1): something harmless" >&2\necho "{complaint or "Looks good."}" >&2\nexit {status}\n'
        + ("# tvsnap-additions: terminals, owners\0\n" if ours else "")
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def no_criu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without CRIU: none carried, kept for all, in the cache or in PATH. Returns the cache directory."""
    monkeypatch.delenv("TVSNAP_CRIU", raising=False)
    monkeypatch.setattr("tvsnap.host.native.BIN", tmp_path / "carried")
    monkeypatch.setattr(criu_binary, "KEPT", tmp_path / "kept")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda *_args, **_named: None)
    return tmp_path / "cache"


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_every_lack_would_come_with_its_cost_and_remedy(tmp_path: Path) -> None:
    checks = run_checks(tmp_path)
    assert len(by_name(checks)) == len(checks) >= 12
    assert all(check.detail and check.cost for check in checks)
    assert all(check.remedy for check in checks if not check.ok)
    requirements = [check.required for check in checks]
    assert requirements == sorted(requirements, reverse=True)


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/loop-control"), reason="needs loop devices")
def test_a_pool_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_pool(tmp_path).detail == "there is room for it"
    with monkeypatch.context() as full:
        full.setattr(DiskSpace, "on", lambda directory, where: DiskSpace(where, free=60 << 20, reserve=3 << 20))
        check = check_pool(tmp_path)
    assert not check.ok
    assert "60 MiB left" in check.detail
    PoolFile(tmp_path / POOL_FILE).close()
    assert check_pool(tmp_path).ok
    (tmp_path / POOL_FILE).write_bytes(b"no file system" * 100)
    check = by_name(run_checks(tmp_path))["pool of snapshots"]
    assert not check.ok
    assert check.required
    assert "move it away to start a new one" in check.detail


def test_looking_leaves_no_trace(tmp_path: Path) -> None:
    home = tmp_path / "not" / "yet"
    mounts = Path("/proc/self/mountinfo").read_text()
    run_checks(home)
    assert list(tmp_path.iterdir()) == []
    assert Path("/proc/self/mountinfo").read_text() == mounts


def test_criu_is_looked_for_in_order(no_criu: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert criu_binary.find_criu() is None
    old = fake_criu(no_criu / "tvsnap" / "criu-4.9" / "criu")
    assert criu_binary.find_criu() == old
    new = fake_criu(no_criu / "tvsnap" / "criu-4.10.1" / "criu")
    assert criu_binary.find_criu() == new, "versions are compared by number, not by letter"
    for_all = fake_criu(tmp_path / "kept" / "criu-4.10.1-tvsnap5" / "criu")
    assert criu_binary.find_criu() == for_all
    carried = fake_criu(tmp_path / "carried" / "criu-4.10.1-tvsnap5" / "criu")
    assert criu_binary.find_criu() == carried
    newest = fake_criu(tmp_path / "kept" / "criu-4.10.1-tvsnap6" / "criu")
    assert criu_binary.find_criu() == newest, "an older installation may have been given a newer one"
    chosen = fake_criu(tmp_path / "chosen")
    monkeypatch.setenv("TVSNAP_CRIU", str(chosen))
    assert criu_binary.find_criu() == chosen
    monkeypatch.setenv("TVSNAP_CRIU", str(tmp_path / "nothing"))
    assert criu_binary.find_criu() is None, "a path where nothing is simulates a machine without CRIU"


def test_criu_version(tmp_path: Path) -> None:
    assert criu_binary.criu_version(fake_criu(tmp_path / "criu", version="4.2.1")) == (4, 2, 1)
    assert criu_binary.criu_version(tmp_path / "nothing") == ()


def test_criu_that_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVSNAP_CRIU", str(fake_criu(tmp_path / "criu")))
    check = doctor.check_criu()
    assert check.ok
    assert "4.2.1" in check.detail


def test_criu_of_a_distribution(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVSNAP_CRIU", str(fake_criu(tmp_path / "criu", ours=False)))
    check = doctor.check_criu()
    assert not check.ok
    assert "does not bring back the terminal of background jobs" in check.detail
    assert "tvsnap setup" in check.remedy


@pytest.mark.parametrize(
    ("version", "complaint", "said"),
    [("3.17.1", "", "4.2 or newer is needed"), ("4.2.1", "Error (criu/y.c:2): no such luck", "no such luck")],
)
def test_criu_that_will_not_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, complaint: str, said: str
) -> None:
    binary = fake_criu(tmp_path / "criu", version=version, complaint=complaint)
    monkeypatch.setenv("TVSNAP_CRIU", str(binary))
    check = doctor.check_criu()
    assert not check.ok
    assert not check.required
    assert said in check.detail
    assert "replayed" in check.cost


def test_simulated_lack_of_btrfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVSNAP_NO_BTRFS", "1")
    check = doctor.check_btrfs(tmp_path)
    assert not check.ok
    assert not check.required
    assert "TVSNAP_NO_BTRFS" in check.detail


def test_disk_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tvsnap.upkeep.doctor.on_btrfs", lambda _home: False)
    monkeypatch.setattr("platform.release", lambda: "6.7.0-1-amd64")
    assert doctor.check_disk_limits(tmp_path).ok
    monkeypatch.setattr("platform.release", lambda: "6.1.0-28-amd64")
    check = doctor.check_disk_limits(tmp_path)
    assert (check.ok, check.required, check.remedy) == (False, False, "Linux 6.7 or newer")
    monkeypatch.setenv("TVSNAP_STORAGE", "copy")
    assert doctor.check_disk_limits(tmp_path).detail == "copies have no quotas"


def test_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert doctor.check_home(tmp_path).ok
    assert doctor.check_home(tmp_path / "not" / "yet").ok
    assert not doctor.check_home(tmp_path / "file").ok


def test_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": 10 * 1024**2})())
    assert not doctor.check_disk(tmp_path / "home").ok


def command_line() -> typer.Typer:
    return verb_app("doctor")


def test_verb_prints_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVSNAP_HOME", str(tmp_path))
    monkeypatch.setenv("TVSNAP_CRIU", str(tmp_path / "nothing"))
    report = json.loads(CliRunner().invoke(command_line(), ["--json"]).stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["CRIU"]["ok"] is False
    assert report["ok"] == all(check["ok"] for check in report["checks"] if check["required"])


def test_what_only_root_can_find_out_is_no_lack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two verbs tell a plain user the same: that root's rights are missing, and of no fault that may not be there."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(doctor, "_try", lambda _command: "unshare: Operation not permitted")
    monkeypatch.setattr(doctor, "_controllers", dict)
    monkeypatch.setattr(doctor, "criu_complaint", lambda _binary: "CRIU needs to have the CAP_SYS_ADMIN")
    monkeypatch.setenv("TVSNAP_HOME", str(tmp_path))
    checks = by_name(run_checks(tmp_path))
    unknown = {"overlayfs", "cgroups", "users"} | ({"CRIU"} if criu_binary.find_criu() else set())
    assert unknown <= {name for name, check in checks.items() if not check.known}
    assert not any(check.ok for check in checks.values() if not check.known)
    monkeypatch.setattr("tvsnap.upkeep.host_setup.plan", lambda **_: [])
    told = {}
    for verb in ("doctor", "setup"):
        run = CliRunner().invoke(make_app(), [verb])
        assert (run.exit_code, "root rights" in run.stdout, "works here" in run.stdout) == (5, True, False), run.stdout
        assert "modprobe overlay" not in run.stdout
        data = json.loads(CliRunner().invoke(make_app(), [verb, "--json"]).stdout)
        told[verb] = [check for check in data["checks" if verb == "doctor" else "lacks"] if check["required"]]
        assert data["ok"] is False
    assert told["setup"] == [check for check in told["doctor"] if check["known"] and not check["ok"]]


@pytest.mark.parametrize(("required", "status"), [(True, 5), (False, 0)])
def test_verb_exits_by_what_is_required(monkeypatch: pytest.MonkeyPatch, required: bool, status: int) -> None:
    lack = Check(
        name="thing",
        ok=False,
        required=required,
        detail="a rather long sentence about what was found, and [more] of it",
        cost="a rather long sentence about what the lack of it will cost the user",
        remedy="make thing",
    )
    monkeypatch.setattr("cli.doctor.run_checks", lambda _home: [lack])
    monkeypatch.setenv("COLUMNS", "80")
    run = CliRunner().invoke(command_line(), [])
    assert run.exit_code == status
    assert "make thing" in run.stdout
    assert "[more]" in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80
