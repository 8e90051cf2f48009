"""Builds from Dockerfiles, and provides images' files, by buildah, which needs no daemon."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tvsnap.host.native import INIT
from tvsnap.images.build.bootstrap import PATH
from tvsnap.images.build.built_base import COPY
from tvsnap.images.build.certificates import CONTEXT, NAME, certificates, lending
from tvsnap.images.build.containers import LABEL_PURPOSE, LABEL_STAND_IN, Fraction, Output
from tvsnap.images.build.plain_dockerfile import FILES, plain_dockerfile
from tvsnap.images.build.references import with_registry
from tvsnap.images.build.runner import run_beside, run_build, run_client
from tvsnap.images.descriptions.config import BaseConfig, read_config
from tvsnap.images.descriptions.dockerfile import Dockerfile
from tvsnap.images.descriptions.spec import DockerfileBase
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.small_files import read_small_text
from tvsnap.model.errors import MachineLacks

RUNTIMES = ("runc", "crun")
_STARTS_NOTHING = re.compile(
    r"from (\S+) (?:creating|starting) container"
    r"|did not get container \w+ message"
    r'|exec: "(?:runc|crun)": executable file not found'
)
"""The output of buildah if it cannot start a step; crun cannot with control groups of both versions."""
_CHROOT = "--isolation=chroot"
"""Runs steps without a runtime and without their own namespaces, if no runtime can start any."""


def _ignored(line: str) -> None:
    """Ignores output."""


def _build(base: DockerfileBase, arguments: list[str], output: Output, storage: Sequence[str] = ()) -> str:
    """Runs `buildah build`, again with other runtimes and finally a chroot if no step starts; returns the image's id.

    Args:
        base: the base to build.
        arguments: additional arguments of the command.
        output: gets printed lines.
        storage: options for another storage than the usual one.
    """
    failed: list[str] = []

    def watch(line: str) -> None:
        if match := _STARTS_NOTHING.search(line):
            failed.append(Path(match[1] or "").name)
        output(line)

    way: list[str] = []
    while True:
        failed_before = len(failed)
        try:
            # The output of the steps is on standard output, together with buildah's own.
            command = [
                "sh",
                "-c",
                'exec "$@" >&2',
                "sh",
                "buildah",
                *storage,
                "build",
                *way,
                *arguments,
            ]
            return run_build(command, base, watch).removeprefix("sha256:")
        except BuildStepFailed:
            if len(failed) == failed_before or way == [_CHROOT]:
                raise
            others = [name for name in RUNTIMES if name not in failed and shutil.which(name)]
            way = [f"--runtime={others[0]}" if others else _CHROOT]
            output(f"buildah starts no step here: trying again with {way[0]}")


def steps_complaint() -> str:
    """Returns why buildah cannot run steps of a Dockerfile here, by trying in a temporary storage; "" if it can."""
    with tempfile.TemporaryDirectory(prefix="tvsnap-buildah-") as scratch:
        place = Path(scratch)
        context = place / "context"
        context.mkdir()
        shutil.copy(INIT, context / "program")
        (context / "Dockerfile").write_text('FROM scratch\nCOPY program /\nRUN ["/program", "holds", "/"]\n')
        storage = [f"--root={place / 'storage'}", f"--runroot={place / 'run'}", "--storage-driver=vfs"]
        try:
            base = DockerfileBase(context / "Dockerfile", context)
            _build(base, ["--network=host", "--format=docker", "--layers=false"], _ignored, storage)
        except (BuildStepFailed, OSError) as error:
            return str(error)
        return ""


def _plain(base: DockerfileBase, scratch: Path) -> tuple[DockerfileBase, Path]:
    """Returns a base with a Dockerfile that any version understands, and the folder of files that it copies."""
    text = read_small_text(base.path, "replace") if base.text is None else base.text
    plain = plain_dockerfile(text)
    for name, content in plain.files.items():
        (scratch / name).parent.mkdir()
        (scratch / name).write_text(content, encoding="utf-8", newline="")
        (scratch / name).chmod(0o644)
    return replace(base, text=plain.text), scratch


class BuildahTool:
    """A `ContainerTool` with a storage of buildah."""

    place = "buildah's storage"

    def __init__(self, storage: Sequence[str] = (), options: Sequence[str] = ()) -> None:
        """Takes options for another storage than this user's, and further options for builds."""
        self._buildah = ["buildah", *storage]
        self._options = options

    def image_id(self, reference: str) -> str | None:
        command = [*self._buildah, "inspect", "--type=image", "--format={{.FromImageID}}", reference]
        try:
            result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise MachineLacks("buildah is missing: apt-get install buildah") from None
        return result.stdout.strip() if result.returncode == 0 else None

    def pull(self, reference: str, output: Output) -> None:
        run_client([*self._buildah, "pull", with_registry(reference)], output)

    @contextlib.contextmanager
    def built(
        self, base: DockerfileBase, dockerfile: Dockerfile, keep_layers: bool, output: Output, fraction: Fraction
    ) -> Iterator[str]:
        layers = f"--layers={str(keep_layers).lower()}"
        options = ["--network=host", "--pull=false", "--format=docker", layers, "--force-rm"]
        # The label makes the result differ from the base itself, and from images that others built of the same steps.
        options += [f"--label={LABEL_PURPOSE}=build", *self._options]
        with tempfile.TemporaryDirectory(prefix="tvsnap-build-") as scratch:
            lent = certificates()
            if lent is not None:
                base = lending(base, CONTEXT)
                folder = Path(scratch, CONTEXT)
                folder.mkdir()
                (folder / NAME).write_bytes(lent)
                (folder / NAME).chmod(0o644)
                options += [f"--build-context={CONTEXT}={folder}"]
            if dockerfile.buildkit:  # older versions know neither here-documents nor --link
                base, files = _plain(base, Path(scratch))
                options += [f"--build-context={FILES}={files}"]
            image = _build(base, options, output, self._buildah[1:])
        try:
            yield image
        finally:
            run_client([*self._buildah, "rmi", image], _ignored)

    def bring(self, archive: Path, reference: str) -> None:
        """Takes over an image from an archive of `docker save`."""
        image = run_client([*self._buildah, "pull", f"docker-archive:{archive}"], _ignored).strip()
        run_client([*self._buildah, "tag", image, with_registry(reference)], _ignored)

    def save(self, image: str, archive: Path, reference: str) -> None:
        """Writes an image into an archive for `docker load`, under a name."""
        run_client([*self._buildah, "push", image, f"docker-archive:{archive}:{reference}"], _ignored)

    def unpack(self, image: str, root: Path, fraction: Fraction) -> BaseConfig:
        about = json.loads(run_client([*self._buildah, "inspect", "--type=image", image], _ignored))
        container = run_client([*self._buildah, "from", "--pull-never", image], _ignored).strip()
        try:
            mounted = run_client([*self._buildah, "mount", container], _ignored).strip()
            run_beside([*COPY, mounted, str(root)], os.environ, _ignored)
        finally:
            run_client([*self._buildah, "rm", container], _ignored)
        return read_config((about.get("Docker") or {}).get("config") or {})

    def stand_in(self, reference: str) -> str:
        about = json.loads(run_client([*self._buildah, "inspect", "--type=image", reference], _ignored))
        config = (about.get("Docker") or {}).get("config") or {}
        return str((config.get("Labels") or {}).get(LABEL_STAND_IN, ""))

    def load(self, tree: Path, reference: str, output: Output, stand_in: str = "") -> None:
        container = run_client([*self._buildah, "from", "scratch"], output).strip()
        try:
            mounted = run_client([*self._buildah, "mount", container], output).strip()
            run_beside([*COPY, str(tree), mounted], os.environ, output)
            labels = [f"--label={LABEL_PURPOSE}=image"]
            labels += [f"--label={LABEL_STAND_IN}={stand_in}"] if stand_in else []
            run_client([*self._buildah, "config", "--cmd=bash", f"--env=PATH={PATH}", *labels, container], output)
            run_client([*self._buildah, "commit", "--quiet", container, with_registry(reference)], output)
        finally:
            run_client([*self._buildah, "rm", container], _ignored)

    def close(self) -> None:
        """Does nothing, because there is no connection."""
