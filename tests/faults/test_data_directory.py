"""Data directories that cannot be used: one line that names the directory and the way out, from everything."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import make_app
from tests.conformance.helpers import eventually
from tests.fakes.caches import open_cache, run
from tvsnap import Cache
from tvsnap.host.home import LONGEST, check_there
from tvsnap.images import Image
from tvsnap.model.errors import InfrastructureError, NotFound, UsageError

WAY_OUT = "choose another with --home or $TVSNAP_HOME"
PROGRAM = """
import sys
from tests.fakes.caches import open_cache
from tvsnap.model.errors import TvsnapError
try:
    open_cache(sys.argv[1])
except TvsnapError as error:
    print(f"{type(error).__name__}: {error}")
"""


def a_file(directory: Path) -> Path:
    (directory / "home").touch()
    return directory / "home"


def below_a_file(directory: Path) -> Path:
    (directory / "file").touch()
    return directory / "file" / "home"


def a_device(directory: Path) -> Path:
    return Path("/dev/null")


def a_broken_link(directory: Path) -> Path:
    (directory / "home").symlink_to("nowhere/at/all")
    return directory / "home"


def too_long(directory: Path) -> Path:
    return directory.joinpath(*["d" * 50] * (LONGEST // 50))


def a_name_too_long(directory: Path) -> Path:
    return directory / ("n" * 256)


def where_nothing_can_be_made(directory: Path) -> Path:
    return Path("/proc/home")


@pytest.mark.parametrize(
    "make", [a_file, below_a_file, a_device, a_broken_link, too_long, a_name_too_long, where_nothing_can_be_made]
)
def test_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Path]) -> None:
    home = make(tmp_path)
    with pytest.raises(UsageError) as raised:
        open_cache(home)
    said = str(raised.value)
    assert str(home)[:40] in said
    assert said.endswith(WAY_OUT)
    assert "\n" not in said
    monkeypatch.setenv("TVSNAP_HOME", str(home))
    for verb in (["tree"], ["stats"], ["image", "ls"], ["run", "terminal", "-c", "true"]):
        ended = CliRunner().invoke(make_app(), verb, prog_name="tvsnap")
        missing = verb[0] != "run" and make in (below_a_file, where_nothing_can_be_made)  # which only reads
        assert (ended.exit_code, ended.stdout) == ((NotFound if missing else UsageError).exit_status, "")
        assert ended.stderr == f"tvsnap: {check_there_says(home) if missing else said}\n"


def check_there_says(home: Path) -> str:
    with pytest.raises(NotFound) as raised:
        check_there(home)
    assert str(home) in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("when", ["at first", "after it was used"])
def test_a_file_system_that_is_read_only(tmp_path: Path, when: str) -> None:
    """Mounted where only the program sees it."""
    if when == "after it was used":
        with open_cache(tmp_path) as cache:
            run(cache, "echo 1 > f")
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", tmp_path, sys.executable, PROGRAM],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == (
        f"MachineLacks: the data directory {tmp_path} is on a read-only file system; remount it, or {WAY_OUT}\n"
    ), ended.stderr


def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    """Whoever has the rights may use it."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, 12345, 12345)
    with open_cache(home) as cache:
        run(cache, "echo 1 > f")
    assert (home.stat().st_uid, home.stat().st_mode & 0o777) == (12345, 0o700)


def test_one_that_is_moved_while_it_is_used(tmp_path: Path, terminal_image: Image) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    (home / "images").symlink_to(terminal_image.rootfs.parents[1])

    def bash(command: str) -> str:
        return rollout.call("bash", {"command": command}).output

    with Cache(home, policy="eager") as cache:
        rollout = cache.rollout("terminal")
        bash("echo one > f")
        assert rollout.state != rollout.root  # once it is known
        home.rename(elsewhere)
        for attempt in (lambda: bash("echo two > f"), lambda: cache.rollout("terminal")):
            with pytest.raises(InfrastructureError, match=f"{home} was moved or deleted while it was in use"):
                attempt()
        elsewhere.rename(home)
        assert bash("cat f") == "one\n"
    home.rename(elsewhere)
    with Cache(elsewhere) as cache:
        rollout = cache.rollout("terminal")
        assert bash("echo one > f") == ""
        assert bash("cat f") == "one\n"


def test_the_child_of_a_fork_is_told_so_at_once(tmp_path: Path, terminal_image: Image) -> None:
    """Also while its parent's threads, which it does not have, take a snapshot."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    with Cache(tmp_path, policy="eager") as cache:
        rollout = cache.rollout("terminal")
        rollout.call("bash", {"command": "sleep 1000 & head -c 30M /dev/urandom > f"})
        child = os.fork()
        if child == 0:
            told = 0
            for attempt in (lambda: rollout.call("bash", {"command": "true"}), lambda: rollout.state):
                with contextlib.suppress(InfrastructureError):
                    attempt()
                    break
                told += 1
            rollout.close()
            cache.close()
            os._exit(told)
        ended = eventually(lambda: os.waitpid(child, os.WNOHANG)[1], timeout=60)
        assert os.waitstatus_to_exitcode(ended) == 2
        assert rollout.call("bash", {"command": "wc -c < f"}).output == "31457280\n"
