"""Builds from Dockerfiles, and hands out images' files, through buildah, which needs no daemon."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tvsnap.host.docker_engine import LABEL_PURPOSE
from tvsnap.images.build.bootstrap import PATH
from tvsnap.images.build.containers import Fraction, Output
from tvsnap.images.build.runner import proxy_variables, run_beside, run_client
from tvsnap.images.descriptions.config import BaseConfig, read_config
from tvsnap.images.descriptions.dockerfile import Dockerfile
from tvsnap.images.descriptions.spec import DockerfileBase
from tvsnap.model.errors import MachineLacks


def _ignored(line: str) -> None:
    """Output that nobody needs."""


class BuildahTool:
    """A `ContainerTool` on buildah's storage of this user."""

    place = "buildah's storage"

    def image_id(self, reference: str) -> str | None:
        """See `ContainerTool`."""
        command = ["buildah", "inspect", "--type=image", "--format={{.FromImageID}}", reference]
        try:
            found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise MachineLacks("buildah is missing: apt-get install buildah") from None
        return found.stdout.strip() if found.returncode == 0 else None

    def pull(self, reference: str, output: Output) -> None:
        """See `ContainerTool`."""
        run_client(["buildah", "pull", reference], output)

    @contextlib.contextmanager
    def built(
        self, base: DockerfileBase, dockerfile: Dockerfile, keep_layers: bool, output: Output, fraction: Fraction
    ) -> Iterator[str]:
        """See `ContainerTool`."""
        with tempfile.TemporaryDirectory(prefix="tvsnap-build-") as scratch:
            result = Path(scratch) / "id"
            command = ["buildah", "build", f"--iidfile={result}", f"--file={base.path}", "--network=host"]
            command += ["--pull=false", "--format=docker", f"--layers={str(keep_layers).lower()}", "--force-rm"]
            for name, value in {**proxy_variables(), **base.args}.items():
                command.append(f"--build-arg={name}={value}")
            command += [f"--target={base.target}"] if base.target else []
            # What the steps print comes on standard output, with what buildah says itself.
            run_client(["sh", "-c", 'exec "$@" >&2', "sh", *command, str(base.context)], output)
            image = result.read_text(encoding="ascii").strip().removeprefix("sha256:")
        try:
            yield image
        finally:
            run_client(["buildah", "rmi", image], _ignored)

    def unpack(self, image: str, root: Path, fraction: Fraction) -> BaseConfig:
        """See `ContainerTool`."""
        about = json.loads(run_client(["buildah", "inspect", "--type=image", image], _ignored))
        container = run_client(["buildah", "from", "--pull-never", image], _ignored).strip()
        try:
            mounted = run_client(["buildah", "mount", container], _ignored).strip()
            copy = ["cp", "--archive", "--reflink=auto", "--no-target-directory", mounted, str(root)]
            run_beside(copy, os.environ, _ignored)
        finally:
            run_client(["buildah", "rm", container], _ignored)
        return read_config((about.get("Docker") or {}).get("config") or {})

    def load(self, tree: Path, reference: str, output: Output) -> None:
        """See `ContainerTool`."""
        container = run_client(["buildah", "from", "scratch"], output).strip()
        try:
            mounted = run_client(["buildah", "mount", container], output).strip()
            run_beside(["cp", "--archive", "--reflink=auto", f"{tree}/.", mounted], os.environ, output)
            run_client(
                ["buildah", "config", "--cmd=bash", f"--env=PATH={PATH}", f"--label={LABEL_PURPOSE}=image", container],
                output,
            )
            run_client(["buildah", "commit", "--quiet", container, reference], output)
        finally:
            run_client(["buildah", "rm", container], _ignored)

    def close(self) -> None:
        """There is no connection."""
