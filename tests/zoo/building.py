"""Builds the images of the zoo: the image `terminal` with packages of Debian, PyPI and npm in it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.zoo.table import ZooImage
from tvsnap import ImageStore

PACKAGES = Path("/opt/packages")
NODE = Path("/opt/node")
"""Where programs of npm are, in the image."""


class NotInstalled(Exception):
    """The packages of an image cannot be had on this machine; the message says why."""


def build(image: ZooImage, store: ImageStore, work: Path) -> str:
    """Builds an image, or takes the one that was built before; returns its name.

    The packages of PyPI and npm are fetched by this machine's own clients, which know how to reach the registries.

    Args:
        image: what is to be in it.
        store: where it goes; it must have the image `terminal`.
        work: a directory that is kept, for what was fetched.

    Raises:
        NotInstalled: packages could not be fetched.
        ImageBuildError: the build failed.
    """
    folder = work / image.name
    wanted = hashlib.sha256(json.dumps([image.pip, image.npm]).encode()).hexdigest()
    stamp = folder / "fetched"
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _fetch(image, folder)
        stamp.write_text(wanted)
    description: dict[str, object] = {"name": f"zoo-{image.name}", "image": "terminal", "packages": list(image.apt)}
    files, run = [], list(image.run)
    if image.pip:
        files.append({"source": "wheels", "dest": f"{PACKAGES}/"})
        install = "pip install --break-system-packages --no-index --no-compile --find-links"
        run.insert(0, f"{install} {PACKAGES} {PACKAGES}/*.whl && rm -r {PACKAGES}")
    if image.npm:
        files.append({"source": "node", "dest": f"{NODE}/"})
        description["env"] = {
            "PATH": f"{NODE}/node_modules/.bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        }
    description |= {"files": files, "run": run}
    (folder / "image.yaml").write_text(yaml.safe_dump(description))
    return store.build(folder).name


def _fetch(image: ZooImage, folder: Path) -> None:
    if image.pip:
        # For the image's Python, whatever that of this machine is.
        python = ["--python-version=3.11", "--only-binary=:all:"]
        _client(
            [sys.executable, "-m", "pip", "download", "--quiet", *python, "--dest", str(folder / "wheels"), *image.pip]
        )
    if image.npm:
        if shutil.which("npm") is None:
            raise NotInstalled("this machine has no npm")
        _client(["npm", "install", "--silent", "--prefix", str(folder / "node"), *image.npm])


def _client(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1]
        raise NotInstalled(f"{command[0].rpartition('/')[2]} failed: {last[:200]}")
