"""What of Docker works on this machine: for the Docker backend, and for images that are built from Dockerfiles."""

from __future__ import annotations

import os
import shutil
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvsnap.host.docker_engine import Engine
from tvsnap.model.errors import TvsnapError
from tvsnap.sandboxes.criu.binary import criu_version
from tvsnap.upkeep.doctor import Check

PATIENCE = 5
"""Seconds that one answer of the engine may take; it is asked for three."""

REPLAYED = "with --backend docker, states with live processes beyond the idle shell are replayed instead of forked"


def check_docker() -> list[Check]:
    """Returns the checks of the Docker Engine and of other programs for images; what needs no engine comes last."""
    try:
        engine = Engine(timeout=PATIENCE, patience=0)
    except TvsnapError as error:
        return [_no_engine(str(error)), check_builder(engine=False)]
    try:
        about: Mapping[str, Any] = engine.do("a look at the engine", engine.api.info)
    except TvsnapError as error:
        return [_no_engine(str(error)), check_builder(engine=False)]
    finally:
        engine.close()
    return [
        _engine(engine, about),
        check_experimental(about),
        check_data(about, engine.address),
        check_storage_driver(about),
        check_engines_criu(engine.address),
        check_builder(engine=True),
    ]


def _no_engine(reason: str) -> Check:
    installed = shutil.which("dockerd") or shutil.which("docker")
    start = "start one (systemctl start docker), or name its address in DOCKER_HOST"
    return Check(
        name="Docker engine",
        ok=False,
        required=False,
        detail=reason.split("; ")[0],
        cost="no --backend docker, and no images from Docker's; the local backend does not need it",
        remedy=start if installed else f"apt-get install docker.io, and {start}",
    )


def _engine(engine: Engine, about: Mapping[str, Any]) -> Check:
    traits = [engine.version, engine.address, f"cgroup v{about.get('CgroupVersion', '1')}", *_confinement(about)]
    return Check(
        name="Docker engine",
        ok=True,
        required=False,
        detail=", ".join(traits),
        cost="no --backend docker",
        remedy="",
    )


def check_experimental(about: Mapping[str, Any]) -> Check:
    """An engine that takes checkpoints: an experimental feature, for which it needs root's rights."""
    rootless = "rootless" in _confinement(about)
    experimental = bool(about.get("ExperimentalBuild"))
    if rootless:
        detail, remedy = "the engine runs without root's rights", "use an engine that root runs"
    elif not experimental:
        detail = "the engine's experimental features are off"
        remedy = 'put {"experimental": true} in /etc/docker/daemon.json, then systemctl restart docker'
    else:
        detail, remedy = "the engine takes them", ""
    return Check(name="Docker checkpoints", ok=not remedy, required=False, detail=detail, cost=REPLAYED, remedy=remedy)


def check_data(about: Mapping[str, Any], address: str) -> Check:
    """The engine's own directory, to which checkpoints are moved from one container to another."""
    root = Path(str(about.get("DockerRootDir", "")))
    if not address.startswith("unix://"):
        complaint = f"the engine is on another machine, {address}"
    elif not root.is_dir():
        complaint = f"{root} is not on this machine; the engine may run in a virtual one"
    elif not os.access(root / "containers", os.R_OK | os.W_OK | os.X_OK):
        complaint = f"no rights to {root}/containers"
    elif not _is_of(root, str(about.get("ID", ""))):
        complaint = f"{root} on this machine is another engine's"
    else:
        complaint = ""
    return Check(
        name="Docker data",
        ok=not complaint,
        required=False,
        detail=complaint or f"{root} can be written",
        cost=REPLAYED,
        remedy="run tvsnap as root on the machine and in the file system of the engine",
    )


def check_storage_driver(about: Mapping[str, Any]) -> Check:
    """The driver whose layers can be told apart, and share files."""
    driver = str(about.get("Driver", "")) or "unknown"
    return Check(
        name="Docker storage",
        ok=driver == "overlay2",
        required=False,
        detail=driver,
        cost=REPLAYED + ("; and each container is a full copy of its image" if driver == "vfs" else ""),
        remedy='put {"storage-driver": "overlay2"} in /etc/docker/daemon.json, then systemctl restart docker '
        "(its images have to be built or loaded again)",
    )


def check_engines_criu(address: str) -> Check:
    """The CRIU that the engine's containers are checkpointed with: the first in the engine's own PATH."""
    place = _engines_path(address)
    binary = shutil.which("criu", path=place or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    version = criu_version(Path(binary)) if binary else ()
    where = "in the engine's PATH" if place else "where an engine usually looks; its own PATH cannot be told"
    if binary is None:
        detail = f"none {where}"
    else:
        detail = f"{'.'.join(map(str, version)) or 'does not run'}, {binary}, {where}"
    return Check(
        name="Docker CRIU",
        ok=bool(version),
        required=False,
        detail=detail,
        cost=REPLAYED,
        remedy='make setup, then ln -s "$PWD/.venv/bin/criu" /usr/local/sbin/criu and systemctl restart docker',
    )


def check_builder(*, engine: bool) -> Check:
    """A program that builds Dockerfiles, for any backend."""
    found = [program for program in ("buildah", "podman") if shutil.which(program)]
    builders = [*(["the Docker engine"] if engine else []), *(["buildah"] if "buildah" in found else [])]
    detail = f"by {' or '.join(builders)}" if builders else "neither a Docker engine nor buildah"
    missing = [program for program in ("buildah", "podman") if program not in found]
    return Check(
        name="Dockerfile builds",
        ok=bool(builders),
        required=False,
        detail=detail + (f" (not installed: {', '.join(missing)})" if missing else ", podman is there too"),
        cost="images cannot be built from Dockerfiles; OCI layouts and tars still can be taken",
        remedy="apt-get install buildah (needs no daemon)",
    )


def _confinement(about: Mapping[str, Any]) -> list[str]:
    """Returns how far the engine's containers are from the host's root: `rootless`, `userns`."""
    options = [str(option).split(",")[0].removeprefix("name=") for option in about.get("SecurityOptions") or ()]
    return [option for option in options if option in ("rootless", "userns")]


def _is_of(root: Path, id: str) -> bool:
    """Whether a directory is that of the engine with this id; engines before 23.0 do not tell."""
    try:
        return (root / "engine-id").read_text().strip() == id
    except OSError:
        return True


def _engines_path(address: str) -> str | None:
    """Returns the PATH of the process that listens at a Unix socket, if that is an engine of which it can be told."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(address.removeprefix("unix://"))
            listener = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        # Where systemd listens in the engine's place, it is not the engine's PATH that would be found.
        if Path(f"/proc/{listener}/comm").read_text().strip() != "dockerd":
            return None
        variables = Path(f"/proc/{listener}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((os.fsdecode(each[5:]) for each in variables if each.startswith(b"PATH=")), None)
