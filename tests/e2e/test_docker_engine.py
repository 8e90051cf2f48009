"""An engine of one's own leaves nothing behind: however it ends, whatever ran in it, and beside others."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from scripts import room
from tests.control_groups import control_groups
from tests.engine import TestEngine
from tvsnap.upkeep.doctor import run_checks

PAUSE = b"#include <unistd.h>\nint main(void) { pause(); }"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A tar with one program, which waits."""
    program = tmp_path_factory.mktemp("rootfs") / "wait"
    subprocess.run(["cc", "-static", "-x", "c", "-o", program, "-"], input=PAUSE, check=True)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        tar.add(program, "wait")
    return stream.getvalue()


@pytest.fixture
def engine() -> Iterator[TestEngine]:
    engine = TestEngine()
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


def run_container(address: str, rootfs: bytes) -> Container:
    """Starts a container that waits."""
    client = docker.DockerClient(base_url=address)
    client.api.import_image_from_data(rootfs, repository="wait")
    return client.containers.run("wait", ["/wait"], detach=True, network_mode="none")


def traces(name: str) -> list[str]:
    """Returns what there is on the machine of the engine whose directory has this name."""
    found = control_groups(f"*/{name}")
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if name in line]
    found += [str(path) for parent in room._parents() for path in parent.glob(name)]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            groups = (process / "cgroup").read_text()
        except OSError:
            continue
        if command and name in command + groups:  # one that has ended, and waits to be reaped, has no command
            found.append(f"{process.name}: {command}")
    return found


def shim_sockets(engine: TestEngine) -> list[Path]:
    """Returns where the shims of an engine's containers listen, as they name it."""
    files = list((engine.directory / "exec").rglob("address"))
    return [Path(file.read_text().removeprefix("unix://")) for file in files]


def test_nothing_is_left_of_a_stopped_engine(engine: TestEngine, rootfs: bytes) -> None:
    run_container(engine.address, rootfs)
    run_container(engine.address, rootfs).pause()
    sockets = shim_sockets(engine)
    assert len(sockets) == 2
    assert len(traces(engine.directory.name)) > 3
    engine.stop()
    assert traces(engine.directory.name) == []
    assert not any(socket.exists() for socket in sockets)


def test_a_killed_engine_starts_again_with_what_it_held(engine: TestEngine, rootfs: bytes) -> None:
    container = run_container(engine.address, rootfs)
    engine.kill()
    engine.start()
    client = docker.DockerClient(base_url=engine.address)
    again = client.containers.get(str(container.id))
    again.restart(timeout=0)
    again.reload()
    assert again.status == "running"


def test_nothing_is_left_of_a_killed_engine(engine: TestEngine, rootfs: bytes) -> None:
    run_container(engine.address, rootfs).pause()
    engine.kill()
    engine.stop()
    assert traces(engine.directory.name) == []


def test_engines_live_side_by_side(engine: TestEngine, rootfs: bytes) -> None:
    other = TestEngine()
    try:
        other.start()
        container = run_container(engine.address, rootfs)
        run_container(other.address, rootfs)
    finally:
        other.stop()
    container.reload()
    assert container.status == "running"


def test_the_engine_of_a_dead_owner_is_swept(rootfs: bytes) -> None:
    command = [sys.executable, "-m", "scripts.docker_engine"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        address = owner.stdout.readline().strip().partition("=")[2]
        run_container(address, rootfs)
        owner.kill()
    directory = Path(address.removeprefix("unix://")).parent
    name = directory.name
    assert len(traces(name)) > 3
    os.utime(directory, (0, 0))
    room.sweep()
    assert traces(name) == []


def test_the_command_ends_with_its_engine() -> None:
    command = [sys.executable, "-m", "scripts.docker_engine"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        address = owner.stdout.readline().strip().partition("=")[2]
        owner.send_signal(signal.SIGTERM)
        assert owner.wait() == 0
    assert traces(Path(address.removeprefix("unix://")).parent.name) == []


def test_a_directory_on_an_overlay_takes_no_overlays(tmp_path: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    ask = f"from scripts.room import _takes_overlays as t, Path as P; print(t(P('{tmp_path}/merged')))"
    command = f'mount -t overlay overlay -o "{options}" {tmp_path}/merged && {sys.executable} -c "{ask}"'
    answer = subprocess.run(["unshare", "--mount", "sh", "-c", command], cwd=ROOT, capture_output=True, check=True)
    assert answer.stdout == b"False\n"
    assert room._takes_overlays(room._place()[0])


def test_the_doctor_asks_a_real_engine(docker_engine: str, tmp_path: Path) -> None:
    checks = {check.name: check for check in run_checks(tmp_path)}
    names = ["Docker engine", "Docker checkpoints", "Docker data", "Docker storage", "Docker CRIU", "Dockerfile builds"]
    assert [checks[name].ok for name in names] == [True] * 6, checks
    assert docker_engine in checks["Docker engine"].detail
    assert checks["Docker storage"].detail == "overlay2"
    assert "in the engine's PATH" in checks["Docker CRIU"].detail
