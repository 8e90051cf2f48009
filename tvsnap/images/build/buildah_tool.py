"""Builds from Dockerfiles, and hands out images' files, through buildah, which needs no daemon."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tvsnap.host.docker_engine import LABEL_PURPOSE
from tvsnap.images.build.bootstrap import PATH
from tvsnap.images.build.containers import Fraction, Output
from tvsnap.images.build.derived import COPY
from tvsnap.images.build.runner import run_beside, run_build, run_client
from tvsnap.images.descriptions.config import BaseConfig, read_config
from tvsnap.images.descriptions.dockerfile import Dockerfile
from tvsnap.images.descriptions.spec import DockerfileBase
from tvsnap.images.errors import BuildStepFailed
from tvsnap.model.errors import MachineLacks

_RUNTIMES = ("runc", "crun")
_STARTS_NOTHING = re.compile(r"from (\S+) (?:creating|starting) container")
"""What buildah says where it could not even start a step, as crun can none beside control groups of both versions."""


def _ignored(line: str) -> None:
    """Output that nobody needs."""


def _build(base: DockerfileBase, arguments: list[str], output: Output) -> str:
    """Runs `buildah build`, and again with another runtime where one starts no step of it; returns the image's id."""
    failed: list[str] = []

    def watch(line: str) -> None:
        if found := _STARTS_NOTHING.search(line):
            failed.append(Path(found[1]).name)
        output(line)

    options: list[str] = []
    while True:
        failed_before = len(failed)
        try:
            # What the steps print comes on standard output, with what buildah says itself.
            command = ["sh", "-c", 'exec "$@" >&2', "sh", "buildah", "build", *options, *arguments]
            return run_build(command, base, watch).removeprefix("sha256:")
        except BuildStepFailed:
            others = [name for name in _RUNTIMES if name not in failed and shutil.which(name)]
            if len(failed) == failed_before or not others:
                raise
            options = [f"--runtime={others[0]}"]


class BuildahTool:
    """A `ContainerTool` on buildah's storage of this user."""

    place = "buildah's storage"

    def image_id(self, reference: str) -> str | None:
        command = ["buildah", "inspect", "--type=image", "--format={{.FromImageID}}", reference]
        try:
            found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise MachineLacks("buildah is missing: apt-get install buildah") from None
        return found.stdout.strip() if found.returncode == 0 else None

    def pull(self, reference: str, output: Output) -> None:
        run_client(["buildah", "pull", reference], output)

    @contextlib.contextmanager
    def built(
        self, base: DockerfileBase, dockerfile: Dockerfile, keep_layers: bool, output: Output, fraction: Fraction
    ) -> Iterator[str]:
        layers = f"--layers={str(keep_layers).lower()}"
        options = ["--network=host", "--pull=false", "--format=docker", layers, "--force-rm"]
        image = _build(base, options, output)
        try:
            yield image
        finally:
            run_client(["buildah", "rmi", image], _ignored)

    def unpack(self, image: str, root: Path, fraction: Fraction) -> BaseConfig:
        about = json.loads(run_client(["buildah", "inspect", "--type=image", image], _ignored))
        container = run_client(["buildah", "from", "--pull-never", image], _ignored).strip()
        try:
            mounted = run_client(["buildah", "mount", container], _ignored).strip()
            run_beside([*COPY, mounted, str(root)], os.environ, _ignored)
        finally:
            run_client(["buildah", "rm", container], _ignored)
        return read_config((about.get("Docker") or {}).get("config") or {})

    def load(self, tree: Path, reference: str, output: Output) -> None:
        container = run_client(["buildah", "from", "scratch"], output).strip()
        try:
            mounted = run_client(["buildah", "mount", container], output).strip()
            run_beside([*COPY, str(tree), mounted], os.environ, output)
            run_client(
                ["buildah", "config", "--cmd=bash", f"--env=PATH={PATH}", f"--label={LABEL_PURPOSE}=image", container],
                output,
            )
            run_client(["buildah", "commit", "--quiet", container, reference], output)
        finally:
            run_client(["buildah", "rm", container], _ignored)

    def close(self) -> None:
        """There is no connection."""
