"""Checks of Docker on this machine: for the Docker backend, and for images that are built from Dockerfiles."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvsnap.host.checks import Check, Found, check
from tvsnap.images.build.buildah_tool import steps_complaint
from tvsnap.model.errors import TvsnapError
from tvsnap.plugins.docker.engine import Engine
from tvsnap.sandboxes.criu.binary import criu_version

PATIENCE = 5  # seconds that one answer of the engine may take; three are requested

REPLAYED = "with --backend docker, states with live processes beyond the idle shell are replayed instead of forked"


def check_docker() -> list[Check]:
    """Returns the checks of the Docker Engine and of other programs for images; those without an engine come last."""
    try:
        with contextlib.closing(Engine(timeout=PATIENCE, patience=0)) as engine:
            about: Mapping[str, Any] = engine.do("a look at the engine", engine.api.info)
    except TvsnapError as error:
        return [check_engine(str(error)), check_builder(engine=False)]
    traits = [engine.version, engine.address, f"cgroup v{about.get('CgroupVersion', '1')}", *_confinement(about)]
    return [
        check_engine("", ", ".join(traits)),
        check_experimental(about),
        check_data(about, engine.address),
        check_storage_driver(about),
        check_engines_criu(engine.address),
        check_builder(engine=True),
    ]


@check("Docker engine", "no --backend docker, and no images from Docker's; the local backend does not need it")
def check_engine(lack: str, traits: str = "") -> Found:
    """An engine, with these properties; or why there is none."""
    installed = shutil.which("dockerd") or shutil.which("docker")
    start = "start one (systemctl start docker), or name its address in DOCKER_HOST"
    remedy = start if installed else f"apt-get install docker.io, and {start}"
    return Found(False, lack.split("; ")[0], remedy) if lack else Found(True, traits)


@check("Docker checkpoints", REPLAYED)
def check_experimental(about: Mapping[str, Any]) -> Found:
    """An engine that takes checkpoints: an experimental feature, for which it needs root's rights."""
    if "rootless" in _confinement(about):
        return Found(False, "the engine runs without root's rights", "use an engine that root runs")
    if not about.get("ExperimentalBuild"):
        remedy = 'put {"experimental": true} in /etc/docker/daemon.json, then systemctl restart docker'
        return Found(False, "the engine's experimental features are off", remedy)
    return Found(True, "the engine takes them")


@check("Docker data", REPLAYED, "run tvsnap as root on the machine and in the file system of the engine")
def check_data(about: Mapping[str, Any], address: str) -> Found:
    """The engine's own directory, in which checkpoints are moved from one container to another."""
    root = Path(str(about.get("DockerRootDir", "")))
    if not address.startswith("unix://"):
        return Found(False, f"the engine is on another machine, {address}")
    if not root.is_dir():
        return Found(False, f"{root} is not on this machine; the engine may run in a virtual one")
    if not os.access(root / "containers", os.R_OK | os.W_OK | os.X_OK):
        return Found(False, f"no rights to {root}/containers")
    if not _is_of(root, str(about.get("ID", ""))):
        return Found(False, f"{root} on this machine is another engine's")
    return Found(True, f"{root} can be written")


@check(
    "Docker storage",
    REPLAYED,
    'put {"storage-driver": "overlay2"} in /etc/docker/daemon.json, then systemctl restart docker '
    "(its images have to be built or loaded again)",
)
def check_storage_driver(about: Mapping[str, Any]) -> Found:
    """The driver whose layers are separate, and share files."""
    driver = str(about.get("Driver", "")) or "unknown"
    copies = f"{REPLAYED}; and each container is a full copy of its image"
    return Found(driver == "overlay2", driver, cost=copies if driver == "vfs" else None)


@check(
    "Docker CRIU",
    REPLAYED,
    "tvsnap setup; ln -s CRIU /usr/local/sbin/criu, whose path tvsnap doctor tells; systemctl restart docker",
)
def check_engines_criu(address: str) -> Found:
    """The CRIU that the engine's containers are checkpointed with: the first in the engine's own PATH."""
    place = _engines_path(address)
    binary = shutil.which("criu", path=place or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    where = "in the engine's PATH" if place else "where an engine usually looks; its own PATH cannot be told"
    if binary is None:
        return Found(False, f"none {where}")
    version = criu_version(Path(binary))
    return Found(bool(version), f"{'.'.join(map(str, version)) or 'does not run'}, {binary}, {where}")


@check(
    "Dockerfile builds",
    "images cannot be built from Dockerfiles; OCI layouts and tars still can be taken",
    "apt-get install buildah (needs no daemon)",
)
def check_builder(*, engine: bool) -> Found:
    """A program that builds Dockerfiles, for any backend."""
    missing = [program for program in ("buildah", "podman") if not shutil.which(program)]
    builders = [*(["the Docker engine"] if engine else []), *(["buildah"] if "buildah" not in missing else [])]
    # Without an engine, buildah runs the steps.
    if builders == ["buildah"] and os.geteuid() == 0 and (complaint := steps_complaint()):
        return Found(False, f"buildah runs no step: {complaint}", "apt-get install runc, or start a Docker Engine")
    detail = f"by {' or '.join(builders)}" if builders else "neither a Docker engine nor buildah"
    others = f" (not installed: {', '.join(missing)})" if missing else ", podman is there too"
    return Found(bool(builders), detail + others)


def _confinement(about: Mapping[str, Any]) -> list[str]:
    """Returns how the engine's containers are separated from the host's root: `rootless`, `userns`."""
    options = [str(option).split(",")[0].removeprefix("name=") for option in about.get("SecurityOptions") or ()]
    return [option for option in options if option in ("rootless", "userns")]


def _is_of(root: Path, id: str) -> bool:
    """Returns whether a directory is that of the engine with this id; engines before 23.0 do not record theirs."""
    try:
        return (root / "engine-id").read_text().strip() == id
    except OSError:
        return True


def _engines_path(address: str) -> str | None:
    """Returns the PATH of the process that listens at a Unix socket; None if it is no engine, or not readable."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(address.removeprefix("unix://"))
            listener = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        # If systemd listens in place of the engine, that would not be the engine's PATH.
        if Path(f"/proc/{listener}/comm").read_text().strip() != "dockerd":
            return None
        variables = Path(f"/proc/{listener}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((os.fsdecode(each[5:]) for each in variables if each.startswith(b"PATH=")), None)
