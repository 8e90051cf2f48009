"""Builds from Dockerfiles, and exports images' files, through a Docker Engine."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import docker.errors

from tvsnap.host.owners import Owner, is_alive
from tvsnap.images.build.bootstrap import PATH
from tvsnap.images.build.buildah_tool import BuildahTool
from tvsnap.images.build.certificates import NAME, certificates, lending
from tvsnap.images.build.containers import LABEL_PURPOSE, LABEL_STAND_IN, Fraction, Output
from tvsnap.images.build.context import pack_context
from tvsnap.images.build.extract import extract_chunks
from tvsnap.images.build.runner import proxy_variables, run_build
from tvsnap.images.descriptions.config import BaseConfig, read_config
from tvsnap.images.descriptions.dockerfile import Dockerfile
from tvsnap.images.descriptions.spec import DockerfileBase
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import remove_entry
from tvsnap.model.errors import InfrastructureError, MachineLacks
from tvsnap.plugins.docker.engine import LABEL_HOME, LABEL_OWNER, Engine, home_tag

BUILD = "build"
"""The purpose of intermediate objects; see `LABEL_PURPOSE`."""

_NO_COMMAND = ["/bin/true"]
"""Containers need a command to be created; they are never started."""
_MARKER = ".dockerenv"
"""A file that the engine puts into every container, and that no image has."""
_STEP = re.compile(r"Step (\d+)/(\d+) : (\w+)")
_LAYER = re.compile(r" ---> ([0-9a-f]{12,64})")
_RUNNING = re.compile(r" ---> Running in ([0-9a-f]{12,64})")
_CACHED = " ---> Using cache"
_BUILDKIT_IN_CLIENT = range(18, 23)
"""Versions of the `docker` command that drive BuildKit without the plug-in buildx."""
_TEMPORARY = "tvsnap-build"
"""The name of what buildah has built, while it is in the engine."""
_GONE = 10.0
"""Seconds to wait for an engine to end a build whose client has gone."""


class EngineTool:
    """A `ContainerTool` on a Docker Engine."""

    def __init__(self, home: Path) -> None:
        """Connects, and removes what builds of dead processes on the same data directory left in the engine.

        Raises:
            MachineLacks: no engine answers.
        """
        self.engine = Engine()
        self._api: Any = self.engine.api
        self.place = f"the Docker Engine at {self.engine.address}"
        self._home = home
        self._owner: Owner | None = None

    def close(self) -> None:
        """Ends the connection."""
        if self._owner is not None:
            self._owner.close()
        self.engine.close()

    def labels(self, purpose: str) -> dict[str, str]:
        """Returns the labels of objects with a purpose."""
        if self._owner is None:
            self._owner = Owner(self._home)
            self._sweep()
        return {LABEL_PURPOSE: purpose, LABEL_HOME: home_tag(self._home), LABEL_OWNER: self._owner.id}

    def image_id(self, reference: str) -> str | None:
        try:
            return str(self.engine.do(f"looking for {reference}", self._api.inspect_image, reference)["Id"])
        except docker.errors.NotFound:
            return None

    def pull(self, reference: str, output: Output) -> None:
        try:
            # For the SDK, a digest is part of the name, and a name without a tag means the newest.
            tagged = "@" in reference or ":" in reference.rsplit("/", 1)[-1]
            name = reference if tagged else f"{reference}:latest"
            with self.engine.turn(f"fetching {reference}"):
                for message in self._api.pull(name, stream=True, decode=True):
                    if "error" in message:
                        raise BuildStepFailed(f"failed: {str(message['error']).strip()}")
                    if message.get("status") and "progressDetail" not in message:
                        output(str(message["status"]))
        except (docker.errors.APIError, InfrastructureError) as error:
            reason = error.explanation if isinstance(error, docker.errors.APIError) else error
            raise BuildStepFailed(f"failed: {str(reason).strip()}") from None

    @contextlib.contextmanager
    def built(
        self, base: DockerfileBase, dockerfile: Dockerfile, keep_layers: bool, output: Output, fraction: Fraction
    ) -> Iterator[str]:
        if dockerfile.buildkit and not _has_buildkit():
            with self._built_by_buildah(base, dockerfile, output) as image:
                yield image
            return
        with self._lending(base) as base:
            if dockerfile.buildkit:
                with self._built_by_buildkit(base, output) as image:
                    yield image
            else:
                with self._built_by_engine(base, keep_layers, output, fraction) as image:
                    yield image

    @contextlib.contextmanager
    def _lending(self, base: DockerfileBase) -> Iterator[DockerfileBase]:
        """A block in which the certificates that builds are lent are an image; yields a base that copies them."""
        lent = certificates()
        if lent is None:
            yield base
            return
        tag, packed, member = secrets.token_hex(8), io.BytesIO(), tarfile.TarInfo(NAME)
        member.size = len(lent)
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.addfile(member, io.BytesIO(lent))
        labels = [f"LABEL {name}={json.dumps(value)}" for name, value in self.labels(BUILD).items()]
        bring = partial(self._api.import_image_from_data, repository=_TEMPORARY, tag=tag, changes=labels)
        self.engine.do("lending certificates", bring, packed.getvalue())
        reference = f"{_TEMPORARY}:{tag}"
        try:
            yield lending(base, reference)
        finally:
            self._remove_images([reference])

    @contextlib.contextmanager
    def _built_by_engine(
        self, base: DockerfileBase, keep_layers: bool, output: Output, fraction: Fraction
    ) -> Iterator[str]:
        """Builds with the engine's own builder, and removes what that made."""
        build = _ClassicBuild(output, fraction)
        try:
            try:
                self._build(base, build)
            except BaseException:
                self._end_container(build.running)
                raise
            yield build.image
        finally:
            self._remove_images(build.layers[-1:] if keep_layers else build.layers)

    def _build(self, base: DockerfileBase, build: _ClassicBuild) -> None:
        """Builds with the engine's own builder, which any engine has."""
        context, name = pack_context(base)
        parameters = {
            "dockerfile": name,
            "rm": True,
            "forcerm": True,
            "buildargs": json.dumps({**proxy_variables(), **base.args}),
            "labels": json.dumps(self.labels(BUILD)),
            "target": base.target,
            "networkmode": self._network(),
        }
        with context, self.engine.turn("the build"), contextlib.ExitStack() as stack:
            # Not by the SDK's method: the response must be closed to end the build, so it is needed here.
            try:
                response = self._api._post(
                    self._api._url("/build"),
                    data=context,
                    params=parameters,
                    headers={"Content-Type": "application/tar"},
                    stream=True,
                    timeout=None,
                )
                stack.callback(response.close)
                self._api._raise_for_status(response)
            except docker.errors.APIError as error:
                raise BuildStepFailed(f"failed: {error.explanation}") from None
            for line in response.iter_lines():
                if line.strip():
                    build.hear(json.loads(line))
        if not build.image:
            raise BuildStepFailed("failed: the engine did not say what it built")

    def _network(self) -> str | None:
        """Returns the network of RUN steps: the engine's default, or the host's if the engine has none."""
        networks = self.engine.do("asking for networks", self._api.networks, names=["bridge"])
        return None if any(network["Name"] == "bridge" for network in networks) else "host"

    @contextlib.contextmanager
    def _built_by_buildkit(self, base: DockerfileBase, output: Output) -> Iterator[str]:
        """Builds with the `docker` command, because the SDK does not support BuildKit."""
        command, env = _buildkit_command()
        command += ["--progress=plain", *(f"--label={name}={value}" for name, value in self.labels(BUILD).items())]
        command += [f"--network={network}"] if (network := self._network()) else []
        image = run_build(command, base, output, env)
        try:
            yield image
        finally:
            self._remove_images([image])

    @contextlib.contextmanager
    def _built_by_buildah(self, base: DockerfileBase, dockerfile: Dockerfile, output: Output) -> Iterator[str]:
        """Builds with buildah, from the engine's images and in a storage of its own, as a `docker` without BuildKit."""
        if shutil.which("buildah") is None:
            raise MachineLacks(
                f"the Dockerfile needs BuildKit ({'; '.join(dockerfile.buildkit)}) or buildah: install docker-buildx "
                "or buildah, or write these lines without it"
            )
        output("no docker buildx here: buildah builds")
        labels = [f"--label={name}={value}" for name, value in self.labels(BUILD).items()]
        with tempfile.TemporaryDirectory(prefix="tvsnap-buildah-") as scratch:
            place = Path(scratch)
            buildah = BuildahTool([f"--root={place / 'storage'}", f"--runroot={place / 'run'}"], labels)
            for index, reference in enumerate(dockerfile.images):
                self._save(reference, archive := place / f"{index}.tar")
                buildah.bring(archive, reference)
                archive.unlink()
            name = f"{_TEMPORARY}:{secrets.token_hex(8)}"
            with buildah.built(base, dockerfile, False, output, lambda _fraction: None) as image:
                buildah.save(image, place / "built.tar", name)
            with self.engine.turn("an import"), (place / "built.tar").open("rb") as archive_of_built:
                for _ in self._api.load_image(archive_of_built):
                    pass
        try:
            yield name
        finally:
            self._remove_images([name])

    def _save(self, reference: str, archive: Path) -> None:
        """Writes an image into an archive, as `docker save` does."""
        with self.engine.turn(f"the export of {reference}"), archive.open("wb") as stream:
            for part in self._api.get_image(reference):
                stream.write(part)

    def unpack(self, image: str, root: Path, fraction: Fraction) -> BaseConfig:
        about = self.engine.do("looking at an image", self._api.inspect_image, image)
        size = max(int(about.get("Size") or 0), 1)
        with (
            self.container(image) as container,
            self.exported(container) as chunks,
        ):
            extract_chunks(
                chunks, f"the export of {image}", root, lambda size_so_far: fraction(min(size_so_far / size, 1.0))
            )
        remove_entry(root / _MARKER)
        return read_config(about.get("Config") or {})

    @contextlib.contextmanager
    def container(self, image: str) -> Iterator[str]:
        """Creates a container of an image for the block, without starting it, and yields its id."""
        answer = self.engine.do(
            "making a container",
            self._api.create_container,
            image,
            command=_NO_COMMAND,
            labels=self.labels(BUILD),
            network_disabled=True,
        )
        try:
            yield str(answer["Id"])
        finally:
            self._end_container(str(answer["Id"]))

    @contextlib.contextmanager
    def exported(self, container: str) -> Iterator[Iterator[bytes]]:
        """Yields a container's files as a tar, in chunks."""
        with self.engine.turn("an export"), contextlib.ExitStack() as stack:
            response = self._api._get(self._api._url("/containers/{0}/export", container), stream=True)
            stack.callback(response.close)
            self._api._raise_for_status(response)
            yield response.iter_content(1 << 20)

    def stand_in(self, reference: str) -> str:
        about = self.engine.do(f"looking at {reference}", self._api.inspect_image, reference)
        return str(((about.get("Config") or {}).get("Labels") or {}).get(LABEL_STAND_IN, ""))

    def load(self, tree: Path, reference: str, output: Output, stand_in: str = "") -> None:
        # Not --sparse: an engine accepts such members, but can then never save the image.
        tar = ["tar", "--create", "--format=posix", "--numeric-owner", f"--directory={tree}"]
        tar += ["--xattrs", "--xattrs-include=user.*", "--xattrs-include=security.capability", "."]
        changes = ['CMD ["bash"]', f"ENV PATH={PATH}", f"LABEL {LABEL_PURPOSE}=image"]
        changes += [f"LABEL {LABEL_STAND_IN}={json.dumps(stand_in)}"] if stand_in else []
        name, _, tag = reference.rpartition(":")
        with subprocess.Popen(tar, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
            try:
                with self.engine.turn(f"the import of {reference}"):
                    self._api.import_image_from_stream(process.stdout, repository=name, tag=tag, changes=changes)
            except BaseException:
                process.kill()
                raise
            complaint = process.communicate()[1].decode(errors="replace").strip()
        if process.returncode:
            raise BuildStepFailed(f"failed: {complaint}")

    def _end_container(self, container: str) -> None:
        """Removes a container that may be ending just now; it may be gone already."""
        deadline = time.monotonic() + _GONE
        while container and time.monotonic() < deadline and not self._is_gone(container):
            time.sleep(0.1)  # the engine is removing it itself

    def _is_gone(self, container: str) -> bool:
        try:
            self.engine.do("removing a container", self._api.remove_container, container, v=True, force=True)
        except docker.errors.APIError as error:
            return isinstance(error, docker.errors.NotFound)
        return True

    def _remove_images(self, images: list[str]) -> None:
        """Removes images, newest first, except those that others are based on by now."""
        for image in reversed(images):
            with contextlib.suppress(docker.errors.APIError, InfrastructureError):
                self.engine.do("removing an image", self._api.remove_image, image, noprune=True)

    def _sweep(self) -> None:
        """Removes what builds of dead processes left."""
        filters = {"label": [f"{LABEL_PURPOSE}={BUILD}", f"{LABEL_HOME}={home_tag(self._home)}"]}
        for listing, remove in (
            (partial(self._api.containers, all=True), self._end_container),
            (self._api.images, lambda image: self._remove_images([image])),
        ):
            for one in self.engine.do("looking for leftovers", listing, filters=filters):
                if not is_alive(self._home, (one["Labels"] or {}).get(LABEL_OWNER, "")):
                    remove(one["Id"])


@dataclass(slots=True)
class _ClassicBuild:
    """An engine's messages about its build.

    Attributes:
        image: the id of the result; empty until it exists.
        layers: images that this build made, in order: layers, and at the end the result.
        running: the container of the step that is running; empty if there is none.
    """

    output: Output
    fraction: Fraction
    image: str = ""
    layers: list[str] = field(default_factory=list)
    running: str = ""
    _new: bool = False
    _step: str = ""

    def hear(self, message: dict[str, Any]) -> None:
        """Processes one message; raises BuildStepFailed if the build failed."""
        if "error" in message:
            step = f" at {self._step}" if self._step else ""
            raise BuildStepFailed(f"failed{step}: {str(message['error']).strip()}")
        for line in str(message.get("stream", "")).splitlines():
            if line.strip():
                self._hear_line(line)

    def _hear_line(self, line: str) -> None:
        self.output(line)
        if step := _STEP.match(line):
            self._step = line
            self.fraction((int(step[1]) - 1) / int(step[2]))
            # The base of a stage existed before.
            self._new = step[3].upper() != "FROM"
        elif line.startswith(_CACHED):
            self._new = False
        elif running := _RUNNING.match(line):
            self.running = running[1]
        elif layer := _LAYER.match(line):
            self.running = ""
            self.image = layer[1]
            if self._new:
                self.layers.append(layer[1])


def _has_buildkit() -> bool:
    """Whether the `docker` command here can build with BuildKit."""
    return shutil.which("docker") is not None and bool(_buildkit_command()[0])


def _buildkit_command() -> tuple[list[str], dict[str, str] | None]:
    """Returns the command that builds with BuildKit, without its arguments, and its environment; empty if it cannot."""
    if subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "buildx", "build", "--load"], None
    version = subprocess.run(
        ["docker", "version", "--format", "{{.Client.Version}}"], capture_output=True, text=True, check=False
    ).stdout
    major = version.partition(".")[0]
    if major.isdigit() and int(major) in _BUILDKIT_IN_CLIENT:
        return ["docker", "build"], {**os.environ, "DOCKER_BUILDKIT": "1"}
    return [], None
