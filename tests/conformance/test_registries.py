"""Programs that install packages, in sandboxes and forks: apt, pip and npm, from a server that is lent by name."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import http.server
import json
import shutil
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.targets import TARGETS
from tests.image_lab import file_member, tar_of
from tests.zoo.building import NotInstalled, build
from tests.zoo.table import ZooImage
from tvsnap import Cache, ImageStore
from tvsnap.images import Image
from tvsnap.model.errors import MachineLacks
from tvsnap.types import NetworkSettings

SERVER = "packages.test"
APT = (
    f"echo 'deb [trusted=yes] http://{SERVER}/debian ./' > /etc/apt/sources.list && rm -f /etc/apt/sources.list.d/* && "
    "apt-get update && apt-get install -y tvsnap-probe && tvsnap-probe"
)
PIP = (
    f"pip install --no-cache-dir --break-system-packages --index-url http://{SERVER}/simple --trusted-host {SERVER} "
    "tvsnap-probe && python3 -c 'import tvsnap_probe; print(tvsnap_probe.SAID)'"
)
NPM = (
    f"npm install --no-audit --no-fund --no-update-notifier --registry http://{SERVER}/npm/ tvsnap-probe && "
    "node_modules/.bin/tvsnap-probe"
)


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves a folder."""

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def write_debian(folder: Path) -> None:
    """Writes an archive of one package, which has a program."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    control = "Package: tvsnap-probe\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@a.test>\nDescription: a probe\n"
    (tree / "DEBIAN/control").write_text(control)
    (tree / "usr/bin/tvsnap-probe").write_text("#!/bin/sh\necho installed by apt\n")
    (tree / "usr/bin/tvsnap-probe").chmod(0o755)
    package = folder / "tvsnap-probe.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, package], check=True, capture_output=True)
    shutil.rmtree(tree)
    size = package.stat().st_size
    digest = subprocess.run(["sha256sum", package], check=True, capture_output=True, text=True).stdout.split()[0]
    listed = f"{control}Filename: ./{package.name}\nSize: {size}\nSHA256: {digest}\n"
    (folder / "Packages").write_text(listed)


def write_index(folder: Path) -> None:
    """Writes an index (PEP 503) of one wheel."""
    place = folder / "tvsnap-probe"
    place.mkdir(parents=True)
    wheel = "tvsnap_probe-1.0-py3-none-any.whl"
    about = "tvsnap_probe-1.0.dist-info"
    with zipfile.ZipFile(place / wheel, "w") as archive:
        archive.writestr("tvsnap_probe.py", "SAID = 'installed by pip'\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tvsnap-probe\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = ("tvsnap_probe.py", f"{about}/METADATA", f"{about}/WHEEL", f"{about}/RECORD")
        archive.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in names))
    (place / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>\n')


def write_npm(folder: Path) -> None:
    """Writes a registry of npm with one package, which has a program."""
    folder.mkdir()
    about = {"name": "tvsnap-probe", "version": "1.0.0", "bin": "said.js"}
    said = "#!/usr/bin/env node\nconsole.log('installed by npm')\n"
    members = (("package.json", json.dumps(about)), ("said.js", said))
    data = tar_of(*(file_member(f"package/{name}", text.encode(), mode=0o755) for name, text in members))
    package = folder / "tvsnap-probe-1.0.0.tgz"
    package.write_bytes(gzip.compress(data))
    integrity = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    dist = {"tarball": f"http://{SERVER}/npm/{package.name}", "integrity": f"sha512-{integrity}"}
    versions = {"1.0.0": {**about, "dist": dist}}
    (folder / "tvsnap-probe").write_text(
        json.dumps({"name": "tvsnap-probe", "dist-tags": {"latest": "1.0.0"}, "versions": versions})
    )


@pytest.fixture(scope="module")
def npm_image(tvsnap_home: Path, terminal_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image `terminal` with Node.js and npm."""
    store = ImageStore(tvsnap_home)
    wanted = ZooImage("npm", apt=("nodejs",), npm=("npm@10",))
    try:
        return store.get(build(wanted, store, tmp_path_factory.mktemp("npm")))
    except NotInstalled as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with all three."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is missing: apt-get install dpkg")
    folder = tmp_path_factory.mktemp("registry")
    write_debian(folder / "debian")
    write_index(folder / "simple")
    write_npm(folder / "npm")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(params=["local", "docker"])
def cache(request: pytest.FixtureRequest, tvsnap_home: Path, registry: str) -> Iterator[Cache]:
    if TARGETS[request.param].engine:
        request.getfixturevalue("docker_engine")
    settings = NetworkSettings(hosts={SERVER: registry})
    try:
        cache = Cache(tvsnap_home, backend=request.param, network_settings=settings, policy="eager")
    except MachineLacks as lack:
        pytest.skip(str(lack))
    with cache:
        yield cache


@pytest.mark.parametrize(
    ("image", "command", "said"),
    [
        ("terminal_image", APT, "installed by apt"),
        ("terminal_image", PIP, "installed by pip"),
        ("npm_image", NPM, "installed by npm"),
    ],
    ids=["apt", "pip", "npm"],
)
def test_packages_are_installed(
    cache: Cache, image: str, command: str, said: str, request: pytest.FixtureRequest
) -> None:
    """In a sandbox, in forks of a state before and after; and from the graph the second time."""
    its: Image = request.getfixturevalue(image)
    salt = f"registry-{time.time_ns()}"
    for executed in (True, False):
        with cache.rollout(its, salt=salt, network=[SERVER]) as rollout:
            rollout.call("bash", {"command": "mkdir -p /tmp/work && cd /tmp/work"}, 60)
            before = rollout.state
            result = rollout.call("bash", {"command": command}, 300)
            assert result.output.splitlines()[-1] == said, result.output
            assert (result.source == "executed") is executed
    again = command.rpartition("&&")[2]
    with cache.rollout(its, salt=salt, network=[SERVER]) as rollout:
        rollout.call("bash", {"command": "mkdir -p /tmp/work && cd /tmp/work"}, 60)
        assert rollout.state == before
        with cache.materialise(before) as fork:
            assert fork.run(command, timeout=300).output.decode().splitlines()[-1] == said
        rollout.call("bash", {"command": command}, 300)
        with cache.materialise(rollout.state) as fork:
            assert fork.run(again, timeout=60).output.decode().strip() == said
