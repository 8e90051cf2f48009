"""The container image of tvsnap: built by buildah, run by Podman as deploy/compose.yaml says, used from outside."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tvsnap
from tests.control_groups import control_groups
from tests.server import test_kubernetes as kubernetes
from tests.server.test_verbs import program
from tvsnap.host import owners
from tvsnap.images import Image
from tvsnap.images.build.buildah_tool import RUNTIMES
from tvsnap.sandboxes.criu.binary import find_criu

pytestmark = pytest.mark.timeout(1200)

ROOT = Path(__file__).parents[2]
MORE = ("pyproject.toml", "setup.py", "scripts")
DOCKERFILE = ROOT / "deploy/Dockerfile"
TOKEN = "c" * 32
SOURCES = ("cli", "deploy", "images", "native", "tvsnap", "Makefile", "LICENSE", "README.md", "MANIFEST.in", *MORE)
OFFLINE = 'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "/dev/null";\n'
"""Has `apt-get update` ask nobody: the base image of the tests has all packages that the Dockerfile names."""


def run(*words: str, **options: Any) -> str:
    """Runs a command that must succeed; returns what it prints."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-3000:]}"
    return str(done.stdout).strip()


def start(name: str, *words: str) -> None:
    """Starts a container with Podman's own runtime; if that starts none, with another one that is there, as builds do.

    crun starts none where there are control groups of both versions.
    """
    said = []
    for way in ((), *((f"--runtime={runtime}",) for runtime in RUNTIMES if shutil.which(runtime))):
        command = ["podman", *way, "run", "-d", "--replace", "--name", name, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        said.append(f"{' '.join(command[:3])}: {done.stderr[-1000:]}")
    raise AssertionError("Podman starts no container (apt-get install runc): " + "\n".join(said))


def packages() -> list[str]:
    """Returns the Debian packages that the last stage of the Dockerfile installs."""
    last = DOCKERFILE.read_text().rpartition("\nFROM ")[2]
    return last.partition("--no-install-recommends")[2].partition("&&")[0].replace("\\", " ").split()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a checkout has, apart from tests and documents."""
    made = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, made / name)
    return made


@pytest.fixture(scope="module")
def image(source: Path, tvsnap_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image, from a base of this machine's archive, and with its packages and its CRIU."""
    name = f"localhost/tvsnap-test/server-{secrets.token_hex(4)}"
    base, made = f"{name}-base:bookworm", tmp_path_factory.mktemp("image")
    assert sys.version_info[:2] == (3, 11), "the Python of bookworm, for which the wheels are"
    try:
        wanted = [word for package in packages() for word in ("--package", package)]
        status, said = program("image", "base", base, "--suite", "bookworm", "--into", "buildah", *wanted)
        assert status == 0, said
        working = run("buildah", "from", "--pull-never", base)
        (made / "offline").write_text(OFFLINE)
        run("buildah", "copy", working, str(made / "offline"), "/etc/apt/apt.conf.d/99offline")
        run("buildah", "commit", "-q", "--rm", working, base)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--wheel-dir", str(made / "wheels"), f"{source}[server]")
        criu = find_criu()
        assert criu is not None
        shutil.copytree(criu.parent, made / "criu" / criu.parent.name)
        contexts = [f"--build-context={stage}={made / stage}" for stage in ("wheels", "criu")]
        options = ["--isolation", "chroot", "--format", "docker", "--pull-never", "--build-arg", f"BASE={base}"]
        options += ["-f", str(source / "deploy/Dockerfile"), "-t", name]
        run(
            "buildah",
            "build",
            "-q",
            "-f",
            str(source / "deploy/Dockerfile"),
            *options,
            *contexts,
            "-t",
            name,
            str(source),
        )
        yield name
    finally:
        for one in (name, base):
            subprocess.run(["buildah", "rmi", "--force", one], capture_output=True, check=False)


def options_of_compose() -> list[str]:
    """Returns what `podman run` is told so that a container has the privileges that deploy/compose.yaml gives it.

    The limits of the machine that the tests run on may be lower than those of the file.
    """
    service = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]["tvsnap"]
    assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}
    assert service["privileged"]
    return ["--privileged", f"--cgroupns={service['cgroup']}", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]


@pytest.fixture
def container(image: str, terminal_image: Image, tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """A running container; yields its name, the server's address, and its data directory."""
    name = f"tvsnap-test-{secrets.token_hex(4)}"
    home, inside = tmp_path / "home", f"/var/lib/{name}"  # another server may have the usual place on this machine
    home.mkdir()
    (tmp_path / "tokens").write_text(TOKEN)
    (tmp_path / "tokens").chmod(0o600)
    images = terminal_image.rootfs.parents[1].resolve()
    mounts = [f"-v={home}:{inside}", f"-v={images}:{inside}/images", f"-e=TVSNAP_HOME={inside}"]
    mounts += [f"-v={tmp_path / 'tokens'}:/run/secrets/tokens:ro"]
    try:
        command = ["serve", "--host", "127.0.0.1", "--token-file", "/run/secrets/tokens"]  # this machine only
        start(name, *options_of_compose(), "--network=host", *mounts, image, *command)
        yield name, "http://127.0.0.1:8420", home
    finally:
        subprocess.run(["podman", "rm", "--force", "--time", "20", name], capture_output=True, check=False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with a btrfs."""
    place = tmp_path / "disk"
    place.mkdir()
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(3 << 30)
    run("mkfs.btrfs", "-q", str(tmp_path / "disk.img"))
    run("mount", "-o", "loop", str(tmp_path / "disk.img"), str(place))
    yield place
    run("umount", str(place))


@pytest.fixture
def pod(image: str, terminal_image: Image, disk: Path, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A running container with no more than what deploy/kubernetes gives one; yields its name and the address."""
    name, images = f"tvsnap-test-{secrets.token_hex(4)}", terminal_image.rootfs.parents[1].resolve()
    (tmp_path / "tokens").write_text(TOKEN)
    (tmp_path / "tokens").chmod(0o400)
    wanted = kubernetes.container()
    security = wanted["securityContext"]
    assert security["seccompProfile"]["type"] == security["appArmorProfile"]["type"] == "Unconfined"
    inside = {one["name"]: one["mountPath"] for one in wanted["volumeMounts"]}
    options = ["--cap-drop=all", *(f"--cap-add={name}" for name in kubernetes.capabilities()), "--cgroupns=private"]
    options += ["--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined", "--network=host"]
    options += ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096", f"--entrypoint={wanted['command'][0]}"]
    options += [f"-v={disk}:{inside['data']}", f"-v={images}:{inside['data']}/images"]
    options += [f"-v={tmp_path / 'tokens'}:{inside['tokens']}/tokens:ro"]
    options += [f"-v={kubernetes.MANIFESTS / 'base'}:{inside['start']}:ro"]
    command = [*wanted["command"][1:], "serve", "--host=127.0.0.1", "--port=8421", *wanted["args"][3:]]
    command = [one for one in command if not one.startswith("--max-")]
    try:
        start(name, *options, image, *command)
        yield name, "http://127.0.0.1:8421"
    finally:
        subprocess.run(["podman", "rm", "--force", "--time", "20", name], capture_output=True, check=False)


def wait_for(name: str, url: str) -> None:
    """Waits until a container's server takes requests."""
    deadline = time.monotonic() + 60
    ready = f"import urllib.request as u; u.urlopen('{url}/readyz', timeout=4)"
    while subprocess.run([sys.executable, "-c", ready], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, run("podman", "logs", name)
        time.sleep(0.5)


def test_a_container_serves_rollouts_and_stops_without_remains(container: tuple[str, str, Path]) -> None:
    name, url, home = container
    deadline = time.monotonic() + 60
    while subprocess.run(["podman", "healthcheck", "run", name], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, run("podman", "logs", name)
        time.sleep(0.5)
    _use(url)
    run("podman", "stop", "--time", "30", name)
    found = json.loads(run("podman", "inspect", name))[0]["State"]
    assert (found["Status"], found["ExitCode"]) == ("exited", 0)
    tag = hashlib.sha256(f"/var/lib/{name}".encode()).hexdigest()[:12]
    assert control_groups(f"*/tvsnap/{tag}*") == []
    assert owners.live_owners(home) == []
    backings = (path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file"))
    assert [one for one in backings if str(home) in one or name in one] == []


def test_a_container_on_kubernetes_needs_not_be_privileged(pod: tuple[str, str]) -> None:
    name, url = pod
    wait_for(name, url)
    _use(url)
    checks = json.loads(run("podman", "exec", name, "tvsnap", "doctor", "--json"))["checks"]
    missing = {one["name"]: one["detail"] for one in checks if not one["ok"]}
    needed = (
        "capabilities",
        "namespaces",
        "cgroups",
        "CRIU",
        "btrfs",
        "loop devices",
        "disk limits",
        "users",
        "network",
    )
    assert missing.keys().isdisjoint(needed), missing
    run("podman", "stop", "--time", "60", name)
    found = json.loads(run("podman", "inspect", name))[0]["State"]
    assert (found["Status"], found["ExitCode"]) == ("exited", 0)


def _use(url: str) -> None:
    """Makes rollouts whose states are recorded, kept and forked."""
    with tvsnap.connect(url, TOKEN, patience=30) as client:
        for source in ("executed", "hit"):
            with client.rollout("terminal", task="container") as rollout:
                result = rollout.call("bash", {"command": "(sleep 1000 &); export A=1; sleep 1; echo hello > f"})
                assert result.source == source
                result = rollout.call("bash", {"command": "cat f; echo $A; pgrep -c sleep"})
                assert (result.source, result.output) == (source, "hello\n1\n1\n")
                state = rollout.state
        with client.materialise(state) as sandbox:
            assert sandbox.run("pgrep -c sleep", timeout=60).output == b"1\n", "processes are forked, too"
        assert client.stats().trouble is None
