"""Exported states in a real Docker Engine, and back in tvsnap."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_archive import MAKE_TREE, ODD_NAMES, SMALLER
from tests.unit.test_image_export import ABOUT, export
from tvsnap import Cache
from tvsnap.images import Image, ImageStore
from tvsnap.images.build.oci import unpack_oci
from tvsnap.plugins.docker.engine import Engine

TVSNAP = Path(sys.executable).with_name("tvsnap")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the local backend needs root")

LOOK = r"""
import hashlib, json, os
found = {}
for folder, _, names in os.walk(b"/srv/t"):
    for name in [b"."] + names:
        path = os.path.join(folder, name)
        info = os.lstat(path)
        what = os.readlink(path) if os.path.islink(path) else b""
        if os.path.isfile(path) and not what:
            what = hashlib.sha256(open(path, "rb").read()).hexdigest().encode()
        capability = b"" if os.path.islink(path) else dict(
            (n, os.getxattr(path, n)) for n in os.listxattr(path)).get("security.capability", b"")
        links = info.st_nlink if name != b"." else 0
        found[path.decode("latin-1")] = [oct(info.st_mode), info.st_uid, info.st_gid, int(info.st_mtime), info.st_size
            if links else 0, links, what.decode("latin-1"), capability.hex()]
print(json.dumps(found, sort_keys=True))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, terminal_image: Image) -> Path:
    """A data directory that only these tests use."""
    home = tmp_path_factory.mktemp("export-home")
    (home / "images").symlink_to(terminal_image.rootfs.parents[1])
    return home


def tvsnap(home: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [TVSNAP, "--home", str(home), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def rollout(home: Path, policy: str, *commands: str) -> str:
    """Makes a rollout; returns the state that it came to."""
    with Cache(home, policy=policy) as cache, cache.rollout("terminal", salt=f"{time.time_ns()}") as rollout:
        for command in (SMALLER, *commands):
            result = rollout.call("bash", {"command": command}, timeout=60)
            assert (result.exit_code, result.output) == (0, ""), result
        return rollout.state


class Loaded:
    """An image in the engine.

    Attributes:
        about: what the engine says of it.
    """

    def __init__(self, engine: Engine, id: str) -> None:
        self._engine = engine
        self._id = id
        self.about = engine.image(id)

    def run(self, *command: str) -> str:
        """Runs a command in a container of it; returns its output."""
        api = self._engine.api
        container = api.create_container(self._id, list(command), network_disabled=True)["Id"]
        try:
            api.start(container)
            status = api.wait(container)["StatusCode"]
            output = api.logs(container).decode()
            assert status == 0, output
            return output
        finally:
            api.remove_container(container, force=True, v=True)


@pytest.fixture
def engine(docker_engine: str) -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


@contextlib.contextmanager
def loaded(engine: Engine, file: Path) -> Iterator[Loaded]:
    """A block with an exported image in the engine."""
    api: Any = engine.api
    with file.open("rb") as stream:
        said = list(api.load_image(stream))
    name = "".join(each.get("stream", "") for each in said).split("Loaded image: ")[1].split()[0]
    try:
        yield Loaded(engine, name)
    finally:
        engine.api.remove_image(name, force=True)


def test_every_kind_of_file(home: Path, engine: Engine, tmp_path: Path) -> None:
    script = f"NAMES = {ODD_NAMES!r}\n{MAKE_TREE}"
    state = rollout(
        home, "eager", f"cat > /tmp/m.py <<'EOF'\n{script}\nEOF\npython3 /tmp/m.py; rm /srv/t/socket /tmp/m.py"
    )
    wanted = tvsnap(home, "exec", state, "--", "python3", "-c", LOOK).stdout
    tvsnap(home, "image", "export", state, "-o", f"{tmp_path}/i.tar", "--tag", "exported:kinds")
    with loaded(engine, tmp_path / "i.tar") as image:
        assert json.loads(image.run("python3", "-c", LOOK)) == json.loads(wanted)
        assert image.run("sh", "-c", "ls /dev/shm /run") == "/dev/shm:\n\n/run:\nlock\n"
        # The engine can write it again, as for a registry: it kept what it needs of the layer's tar.
        size = sum(len(chunk) for chunk in engine.api.get_image("exported:kinds"))
    assert size > (tmp_path / "i.tar").stat().st_size * 0.9


def test_a_state_with_a_live_process(home: Path, engine: Engine, tmp_path: Path) -> None:
    state = rollout(
        home,
        "eager",
        "mkdir -p /srv/here && cd /srv/here && export SECRET=1",
        "(echo begun > log; sleep 1000; echo ended >> log) & until [ -s log ]; do sleep 0.05; done",
    )
    data = json.loads(tvsnap(home, "image", "export", state, "-o", f"{tmp_path}/i.tar", "--compress", "--json").stdout)
    with loaded(engine, tmp_path / "i.tar") as image:
        assert image.run("sh", "-c", "pwd; cat log; echo ${SECRET-lost}; whoami") == "/srv/here\nbegun\nlost\nroot\n"
        assert image.about["Id"] == data["image_id"]
        assert image.about["RootFS"]["Layers"] == [data["diff_id"]]
        config = image.about["Config"]
        assert config["Labels"] == {"tvsnap.state": state, "tvsnap.image": config["Labels"]["tvsnap.image"]}
        assert config["Cmd"] == ["/bin/bash"]
        assert config["WorkingDir"] == "/srv/here"
        assert image.about["Architecture"] == engine.api.version()["Arch"]


def test_back_in_tvsnap(home: Path, terminal_image: Image, tmp_path: Path) -> None:
    """An image that is exported and taken in again is the very same."""
    tvsnap(home, "image", "export", "terminal", "--format", "oci", "-o", f"{tmp_path}/layout/")
    (tmp_path / "image.yaml").write_text(f"{{name: again, oci: layout, hostname: {terminal_image.hostname}}}")
    again = ImageStore(tmp_path / "home").build(tmp_path)
    assert again.digest == terminal_image.digest
    assert (again.env, again.workdir, again.user) == (terminal_image.env, terminal_image.workdir, terminal_image.user)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing(home: Path, tmp_path: Path, number: signal.Signals, status: int) -> None:
    command = [str(TVSNAP), "--home", str(home), "image", "export", "terminal", "--compress", "-o", f"{tmp_path}/i.tar"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 1 << 20 for path in tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(number)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == status, stderr
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []
    assert list((home / "run" / "owners").glob("*")) == []


def test_standard_output(home: Path, tmp_path: Path) -> None:
    with (tmp_path / "i.tar").open("wb") as file:
        subprocess.run(
            [TVSNAP, "--home", str(home), "image", "export", "terminal", "-o", "-"],
            stdout=file,
            check=True,
            timeout=120,
        )
    with tarfile.open(tmp_path / "i.tar") as tar:
        assert tar.getnames()[-1] == "manifest.json"
    run = subprocess.run(
        f"{TVSNAP} --home {home} image export terminal -o - | head -c 1000 > /dev/null",
        shell=True,
        executable="/bin/bash",
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in run.stderr
    assert "cannot write standard output" in run.stderr


def test_our_own_reader_takes_it(tmp_path: Path) -> None:
    for number, output in enumerate(("i.tar", "i/")):
        export(f"{tmp_path}/{output}", format="oci")
        root, scratch = tmp_path / f"root{number}", tmp_path / f"scratch{number}"
        root.mkdir()
        scratch.mkdir()
        config = unpack_oci(tmp_path / output, "broken", root, scratch, lambda done: None)
        assert (config.env, config.workdir, config.user) == (ABOUT.env, ABOUT.workdir, ABOUT.user)
        assert (root / "etc/motd").read_text() == "hi\n"
