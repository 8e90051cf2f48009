"""`tvsnap doctor --self-test`: it passes where tvsnap works, fails where it does not, and leaves nothing either way."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.helpers import eventually
from tests.control_groups import control_groups
from tests.faults.consistency import loops_of
from tvsnap.images import Image
from tvsnap.model.errors import MachineLacks, NotFound
from tvsnap.sandboxes.local.cgroups import Cgroup
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.self_test import Result, self_test
from tvsnap.self_test.checks import CHECKS

TVSNAP = Path(sys.executable).with_name("tvsnap")


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A user's data directory, with the terminal image and nothing else, alone in a directory."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "images").symlink_to(terminal_image.rootfs.parents[1])
    return home


def run(*options: str, home: Path, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TVSNAP_")}
    done = subprocess.run(
        [TVSNAP, "doctor", "--self-test", *options],
        env={**kept, "TVSNAP_HOME": str(home), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def assert_nothing_left(home: Path) -> None:
    assert [path.name for path in home.iterdir()] == ["images"]
    assert [path.name for path in home.parent.iterdir()] == ["home"]
    eventually(lambda: loops_of(home) == [])  # the kernel clears it a moment after its last user


def checks(home: Path, image: str | None = None) -> dict[str, Result]:
    return {result.name: result for result in self_test(home, "local", image, lambda name: None)}


def test_all_is_well(home: Path) -> None:
    done = run(home=home)
    lines = done.stdout.splitlines()
    assert [line[:1] for line in lines[: len(CHECKS) + 1]] == ["✓"] * (len(CHECKS) + 1)
    assert "keeps its word" in lines[-1]
    assert_nothing_left(home)


def test_docker(home: Path, docker_engine: str) -> None:
    told = json.loads(run("--json", "--backend", "docker", home=home).stdout)
    assert [check for check in told["checks"] if not check["ok"]] == []
    assert_nothing_left(home)


def test_json_with_an_image_of_the_user(home: Path) -> None:
    told = json.loads(run("--json", "--image", "terminal", home=home).stdout)
    assert told["ok"] is True
    assert {check["ok"] for check in told["checks"]} == {True}
    assert told["checks"][0]["detail"] == "terminal"
    assert len(told["checks"]) == len(CHECKS) + 1
    assert_nothing_left(home)


def test_image_that_is_not_there(home: Path) -> None:
    assert "not found" in run("--image", "no-such-image", home=home, status=3).stderr
    with pytest.raises(NotFound):
        checks(home, "no-such-image")
    assert_nothing_left(home)


def test_machine_that_lacks_something(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home=home, status=5, TVSNAP_CRIU="/nowhere/criu")
    monkeypatch.setenv("TVSNAP_CRIU", "/nowhere/criu")
    with pytest.raises(MachineLacks, match="CRIU"):
        checks(home)
    assert_nothing_left(home)


def test_what_does_not_hold_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault is one that a machine could have; the checks that are about it fail, and no other does."""
    run_really = LocalSandbox.run

    def forget_timeouts(self: LocalSandbox, command: str, *, timeout: float) -> object:
        outcome = run_really(self, command, timeout=timeout)
        return outcome if not outcome.timed_out else type(outcome)(b"before\n", 0, outcome.duration)

    monkeypatch.setattr(LocalSandbox, "run", forget_timeouts)
    monkeypatch.setattr("tvsnap.sandboxes.local.cgroups._limit", lambda *_: None)
    monkeypatch.setattr("tvsnap.sandboxes.criu.fidelity.refuse_loss", lambda *_, **__: [])
    failed = {name for name, result in checks(home).items() if not result.ok}
    assert failed == {
        "timeouts are enforced",
        "the memory limit holds",
        "the process limit holds",
        "what cannot be captured is refused",
    }
    assert_nothing_left(home)


def test_what_is_left_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Cgroup] = []
    destroy = Cgroup.destroy
    monkeypatch.setattr("tvsnap.self_test.checks.PATIENCE", 2.0)
    monkeypatch.setattr(Cgroup, "destroy", lambda self: left.append(self) or False)  # type: ignore[func-returns-value]
    try:
        failed = {name: result.detail for name, result in checks(home).items() if not result.ok}
        assert "nothing is left behind" in failed
    finally:
        assert left
        for group in left:
            destroy(group)
            for path in group.paths:
                for above in Path(path).parents[:2]:  # the owner's, the data directory's
                    with contextlib.suppress(OSError):
                        above.rmdir()
    assert control_groups(f"*/tvsnap/{Path(left[0].paths[0]).parents[1].name}*") == []


def test_options_that_make_no_sense(home: Path) -> None:
    done = subprocess.run([TVSNAP, "doctor", "--image", "terminal"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--self-test" in done.stderr
    assert 'backend "nope" not found' in run("--backend", "nope", home=home, status=2).stderr
