"""The images of a data directory: finds, lists, builds and removes them; `directory` has the layout."""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvsnap.images.build.base_image import make_base
from tvsnap.images.build.builder import Base, BuiltTree, build_tree, recipe_of
from tvsnap.images.build.built_base import BuiltBase
from tvsnap.images.build.container_base import ContainerBase
from tvsnap.images.build.container_tool import container_tool
from tvsnap.images.build.references import full_reference
from tvsnap.images.build.services import BuiltService
from tvsnap.images.build_directory import empty, locked
from tvsnap.images.descriptions.detect import describes_image, load_source
from tvsnap.images.descriptions.shipped import find_source, shipped_images
from tvsnap.images.descriptions.spec import (
    LONGEST_NAME,
    DockerfileBase,
    DockerImageBase,
    ImageBase,
    ImageSpec,
    check_complete,
    check_limits,
    check_name,
    name_from,
)
from tvsnap.images.directory import DIGEST, ImageDirectory
from tvsnap.images.errors import ImageNotFound, ImageSpecError
from tvsnap.images.layers import Below
from tvsnap.images.progress import BuildProgress, Silent
from tvsnap.images.rootfs import remove_tree, shift_owners, summarise
from tvsnap.model.errors import MachineLacks, UsageError
from tvsnap.model.images import BUILD_LOG, FORMAT, MANIFEST, ROOTFS, Image, Manifest, shared_tree
from tvsnap.model.network import NO_NETWORK

_PREFIX = re.compile(r"[0-9a-f]{4,64}")


class ImageStore:
    """The images of one data directory: finds, builds, lists and removes them. Several processes may use it at once."""

    def __init__(self, home: Path) -> None:
        """
        Args:
            home: the data directory; see `Cache.home`.
        """
        self._home = home
        self._directory = ImageDirectory(home / "images")
        self.packages = home / "cache"

    def get(self, name: str) -> Image:
        """Returns an image.

        Args:
            name: its name, its digest, or any unique prefix of the digest of at least 4 digits.

        Raises:
            ImageNotFound: there is no such image, or several.
        """
        digest = self._directory.digest_of(name) if self._directory.is_named(name) else None
        if digest is not None:
            return self._directory.image(digest, name)
        digests = self._directory.digests() if _PREFIX.fullmatch(name) else ()
        matches = [digest for digest in digests if digest.startswith(name)]
        if len(matches) > 1:
            raise ImageNotFound(f'"{name}" fits several images: {", ".join(digest[:16] for digest in matches)}')
        if not matches:
            have = ", ".join(sorted(self._directory.named()))
            if name in shipped_images():
                way = f"; build it: tvsnap image build {name}"
            else:
                way = "" if have else "; build one: tvsnap image build terminal"
            raise ImageNotFound(f'image "{name}" not found; have: {have or "none"}{way} (tvsnap image ls)')
        names = {digest: one for one, digest in sorted(self._directory.named().items(), reverse=True)}
        return self._directory.image(matches[0], names.get(matches[0], ""))

    def list(self) -> builtins.list[Image]:
        """Returns all images, sorted by name.

        An image with several names is included once for each. Those without a name come last.
        """
        named = self._directory.named()
        entries = sorted(named.items())
        entries += [("", digest) for digest in self._directory.digests() if digest not in named.values()]
        return [self._directory.image(digest, name) for name, digest in entries]

    def manifest(self, image: Image) -> Manifest:
        """Returns an image's full record: its source, notes of the build, its contents.

        Args:
            image: the image.
        """
        return Manifest.read(image.rootfs.parent)

    def remove(self, name: str) -> Image:
        """Removes an image.

        Args:
            name: a name, which is removed together with the image if that has no other name; or a digest, which removes
                the image with all its names.

        Returns:
            The image that was removed, or that lost its name.

        Raises:
            ImageNotFound: there is no such image, or several.
        """
        image = self.get(name)
        named = self._directory.named()
        names = [name] if name in named else [one for one, digest in named.items() if digest == image.digest]
        self._directory.remove(image.digest, names)
        return image

    def build(
        self,
        source: Path | str | ImageSpec,
        *,
        name: str | None = None,
        progress: BuildProgress | None = None,
        force: bool = False,
        keep_layers: bool = False,
        allow: Sequence[Path] = (),
        from_dockerfile: bool = False,
        docker_image: str | None = None,
        task_user: bool = True,
    ) -> Image:
        """Builds the image that a folder describes, unless it exists already.

        If it starts from an image that comes with tvsnap, that is built first if it is missing or has changed. If
        another process builds the same image, this waits for it and returns its result.

        Args:
            source: the name of an image that comes with tvsnap, as `terminal`; or a folder with an image.yaml, with a
                task of Harbor or terminal-bench, or with a Dockerfile; or the contents of an image.yaml that was read
                already.
            name: the image's name; by default that in image.yaml, or the folder's.
            progress: an object that receives reports of the build.
            force: whether to build even if nothing changed, for example to get newer packages. If the result differs,
                it takes the name, and the old image stays without one.
            keep_layers: whether to leave the layers of a Dockerfile in the Docker Engine, so that its next build is
                faster.
            allow: directories outside the folder with files that the image may start from.
            from_dockerfile: whether to build from the Dockerfile of a task that names an image as well.
            docker_image: an image of a Docker registry to start from, in place of a Dockerfile; the folder may then
                describe nothing.
            task_user: False for the user of its base, although the folder names another.

        Returns:
            The image.

        Raises:
            ImageSpecError: the folder's description is missing or wrong.
            UsageError: the name cannot be the name of an image, or there is no Dockerfile to build from.
            ImageBuildError: a step failed; nothing of the build remains.
            MachineLacks: this machine lacks something that is needed.
        """
        spec = _spec_of(source, docker_image, allow)
        name = spec.name if name is None else check_name(name)
        spec = _with_choices(spec, from_dockerfile, docker_image, task_user)
        self.sweep()
        try:
            return self._get_built(spec, (name,), progress or Silent(), force, keep_layers)
        finally:
            self._directory.free_trees()

    def _get_built(
        self,
        spec: ImageSpec,
        names: tuple[str, ...],
        progress: BuildProgress,
        force: bool = False,
        layers: bool = False,
    ) -> Image:
        """Builds an image unless it exists; `names` are the images that start from it, then its own name."""
        check_limits(spec)
        name = names[-1]
        with self._origin(spec, names, progress, layers) as origin:
            if isinstance(origin, BuiltBase):
                spec = origin.completed(spec)
            check_complete(spec)
            services = self._services(spec, name, progress, force, layers)
            recipe = recipe_of(spec, origin, services)
            digest = None if force else self._directory.built(recipe)
            if digest is None:
                digest = self._build(spec, origin, name, recipe, progress, force, services)
            else:
                for note in self._directory.manifest(digest).notes:
                    progress.note(note)
        self._directory.name(digest, name)
        return self.get(name)

    def _services(
        self, spec: ImageSpec, name: str, progress: BuildProgress, force: bool, layers: bool
    ) -> tuple[BuiltService, ...]:
        """Builds the other services of an image, each as a separate image."""
        built = []
        for service_spec, settings in spec.services:
            service_name = f"{name}.{settings.name}".lower()[:LONGEST_NAME]
            image = self._get_built(service_spec, (service_name,), progress, force, layers)
            built.append(BuiltService(settings, image, self.manifest(image).program))
        return tuple(built)

    @contextlib.contextmanager
    def _origin(
        self, spec: ImageSpec, names: tuple[str, ...], progress: BuildProgress, layers: bool
    ) -> Iterator[Base | None]:
        """A context manager for the source of a base that other code makes; None for other bases."""
        if isinstance(spec.base, ImageBase):
            image = self._base_image(spec.base.name, names, progress)
            if image.services.others:
                raise ImageSpecError(f"image {names[-1]} cannot start from {image.name}, which has several services")
            manifest = self.manifest(image)
            yield BuiltBase(image, manifest.contents, manifest.program)
        elif isinstance(spec.base, (DockerfileBase, DockerImageBase)):
            with container_tool(self._home) as tool:
                base = ContainerBase(spec.base, tool, layers)
                base.fetch(names[-1], progress, _other_way(spec))
                yield base
        else:
            yield None

    def _base_image(self, base: str, names: tuple[str, ...], progress: BuildProgress) -> Image:
        """Returns the image that another one starts from; builds one that comes with tvsnap if necessary."""
        if base in names:
            way = " <- ".join((base, *reversed(names[names.index(base) :])))
            raise ImageSpecError(f"image {names[-1]} cannot start from itself ({way}): give it another name")
        shipped = shipped_images().get(base)
        there = self._directory.digest_of(base)
        # A user's own image of that name takes precedence, and stays as it is.
        if shipped and (there is None or self._directory.manifest(there).source == str(shipped)):
            return self._get_built(load_source(shipped), (*names, base), progress)
        try:
            return self.get(base)
        except ImageNotFound as error:
            raise ImageSpecError(f"image {names[-1]}: what it starts from is not there: {error}") from None

    def adopt(
        self, digest: str, description: Mapping[str, Any], fill: Callable[[str, Path], str], name: str = ""
    ) -> Image:
        """Makes an image from one of another data directory, unless it is here.

        Args:
            digest: the image's digest.
            description: its image.json.
            fill: makes the files of a tree, the image's own or one below it, in an empty directory, given the tree's
                id; returns the tree's digest.
            name: its new name, unless another image has it; empty for no name.

        Raises:
            TvsnapError: it is of another version of tvsnap, or makes no sense, or part of it cannot be had.
        """
        _need_root()
        if not DIGEST.fullmatch(digest):
            raise ImageSpecError(f"an image from elsewhere has the digest {digest[:80]!r}, which is none")
        self._directory.create()
        directory = self._directory.path / f".build-{digest[:32]}"
        with self._directory.shared.lock(alone=False), locked(directory, wait=True):
            if not self._directory.has(digest):
                try:
                    empty(directory)
                    result = directory / "image"
                    result.mkdir()
                    (result / MANIFEST).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
                    manifest = Manifest.read(result)
                    if manifest.digest != digest:
                        raise ImageSpecError(f"image {digest[:12]} from elsewhere is really {manifest.digest[:12]}")
                    for id in manifest.layers:
                        self._adopt_below(id, directory / "below", fill)
                    (result / ROOTFS).mkdir()
                    fill(digest, result / ROOTFS)
                    (result / BUILD_LOG).write_text("pulled from an object store\n", encoding="utf-8")
                    self._directory.take(result, digest)
                finally:
                    empty(directory)
        if name and not self._directory.is_named(check_name(name)):
            self._directory.name(digest, name)
        return self.get(digest)

    def _adopt_below(self, id: str, directory: Path, fill: Callable[[str, Path], str]) -> None:
        """Makes a tree that images share, unless it is here; a tree that is an image was made before."""
        if shared_tree(self._directory.path, id).is_dir():
            return
        if DIGEST.fullmatch(id) is None:
            raise ImageSpecError(f"an image from elsewhere has a tree {id[:80]!r}")
        (directory / ROOTFS).mkdir(parents=True)
        self._directory.shared.keep(id, directory, fill(id, directory / ROOTFS))

    def trees(self, image: Image) -> dict[str, tuple[Path, str]]:
        """Returns the trees of an image by id, its own first, each with the digest of its shared tree ("" for its own).

        Args:
            image: the image.
        """
        trees = {image.digest: (image.rootfs, "")}
        for id in self.manifest(image).layers:
            below = self._directory.shared.find(id)
            trees[id] = (shared_tree(self._directory.path, id), below.digest if below else "")
        return trees

    def make_base(
        self,
        reference: str,
        suite: str,
        packages: Sequence[str] = (),
        *,
        into: str = "auto",
        force: bool = False,
        progress: BuildProgress | None = None,
    ) -> str:
        """Makes a base image for Dockerfiles, for machines that reach no registry.

        It bootstraps a Debian or Ubuntu system, and loads it into the Docker Engine, or the storage of buildah, under a
        name that `FROM` of a Dockerfile finds.

        Args:
            reference: the name and tag, as "debian:bookworm-slim".
            suite: the suite of Debian or Ubuntu, as "bookworm".
            packages: packages to install in addition to a minimal system.
            into: `engine`, `buildah`, or `auto` for the one that builds use.
            force: whether to replace an image that has the name.
            progress: an object that receives reports of the build.

        Returns:
            The place of the image, in words.

        Raises:
            UsageError: `reference` cannot be a name, or an image of that name exists.
            ImageBuildError: a step failed; nothing of it remains.
            MachineLacks: this machine lacks something that is needed.
        """
        progress = progress or Silent()
        reference = full_reference(reference)
        self.sweep()
        _need_root()
        with container_tool(self._home, into) as tool:
            if not force and tool.image_id(reference) is not None:
                raise UsageError(f"{tool.place} has an image {reference} already; --force replaces it")
            directory = self._directory.path / f".build-base-{hashlib.sha256(reference.encode()).hexdigest()[:16]}"
            with locked(directory, wait=True):
                try:
                    empty(directory)
                    make_base(tool, reference, suite, tuple(packages), directory, self.packages, progress)
                finally:
                    empty(directory)
            return tool.place

    def drop_packages(self) -> None:
        """Deletes the downloaded packages that builds keep for later ones."""
        for path in self.packages.iterdir() if self.packages.is_dir() else ():
            with contextlib.suppress(OSError):  # a build that is under way adds to it
                remove_tree(path)

    def sweep(self) -> None:
        """Removes the leftovers of builds and removals that were interrupted.

        Leftovers in which programs of a killed build are still ending are removed the next time.
        """
        self._directory.sweep()

    def _build(
        self,
        spec: ImageSpec,
        origin: Base | None,
        name: str,
        recipe: str,
        progress: BuildProgress,
        force: bool,
        services: Sequence[BuiltService],
    ) -> str:
        _need_root()
        self._directory.create()
        directory = self._directory.path / f".build-{recipe[:32]}"
        with locked(directory, wait=False) as mine:
            if not mine:
                progress.output("another process builds this image: waiting for it")
        with self._directory.shared.lock(alone=False), locked(directory, wait=True):
            # The previous holder of the lock may have built it.
            if not force and (there := self._directory.built(recipe)):
                return there
            started = time.time()
            work, result = directory / "work", directory / "image"
            try:
                empty(directory)
                work.mkdir()
                result.mkdir()
                below = self._below(origin, directory / "below", progress)
                log = result / BUILD_LOG
                tree = build_tree(spec, origin, work, result / ROOTFS, log, self.packages, progress, below, services)
                _manifest(spec, name, recipe, tree, below, started).write(result)
                self._directory.take(result, tree.digest)
                self._directory.note_built(tree.digest, recipe)
                return tree.digest
            finally:
                empty(directory)

    def _below(self, origin: Base | None, directory: Path, progress: BuildProgress) -> Below:
        """Returns the trees that an image shares; those of a container image are made the first time."""
        if isinstance(origin, BuiltBase):
            return self._directory.shared.under(origin.image, self.manifest(origin.image).layers)
        if not isinstance(origin, ContainerBase) or not (id := origin.below()):
            return Below()
        if not (layers := self._directory.shared.find(id)):
            root = directory / ROOTFS
            root.mkdir(parents=True)
            root.chmod(0o755)
            origin.unpack_below(root, progress.fraction)
            shift_owners(root)
            self._directory.shared.keep(id, directory, summarise(root, progress.fraction).digest)
            layers = self._directory.shared.find(id)
        return layers or Below()


def _spec_of(source: Path | str | ImageSpec, docker_image: str | None, allow: Sequence[Path]) -> ImageSpec:
    """Reads the description of an image; see `ImageStore.build`."""
    if isinstance(source, str):
        source = find_source(source)
    if isinstance(source, ImageSpec):
        return source
    if docker_image is not None and source.is_dir() and not describes_image(source):
        return ImageSpec(source, name_from(source), "terminal", DockerImageBase(docker_image))
    return load_source(source, allow)


def _with_choices(spec: ImageSpec, from_dockerfile: bool, docker_image: str | None, task_user: bool) -> ImageSpec:
    """Applies the choices of a build to a description; see `ImageStore.build`."""
    if from_dockerfile:
        spec = _from_dockerfile(spec)
    elif docker_image is not None and isinstance(spec.base, DockerfileBase):
        spec = replace(spec, base=DockerImageBase(docker_image))
    return spec if task_user else replace(spec, user=None)


def _from_dockerfile(spec: ImageSpec) -> ImageSpec:
    if isinstance(spec.base, DockerfileBase):
        return spec
    if spec.own_dockerfile is None:
        raise UsageError(f"image {spec.name}: {spec.folder} has no Dockerfile beside the image that it starts from")
    return replace(spec, base=spec.own_dockerfile, own_dockerfile=None)


def _other_way(spec: ImageSpec) -> str:
    """Returns a command that builds the image if its base is unavailable; "" if there is none."""
    return f"tvsnap image build {shlex.quote(str(spec.folder))} --from-dockerfile" if spec.own_dockerfile else ""


def _manifest(spec: ImageSpec, name: str, recipe: str, tree: BuiltTree, below: Below, started: float) -> Manifest:
    """Returns the manifest of an image; `started` is the time at which its build began, seconds since 1970."""
    return Manifest(
        format=FORMAT,
        name=name,
        digest=tree.digest,
        recipe=recipe,
        environment=spec.environment,
        env=tree.env,
        workdir=tree.workdir,
        user=tree.user,
        hostname=spec.hostname,
        size=tree.size,
        created=time.time(),
        source=str(spec.folder),
        build_seconds=round(time.time() - started, 3),
        limits=spec.limits,
        timeouts=spec.timeouts,
        no_new_privileges=tree.no_new_privileges,
        clock=spec.clock,
        random_seed=spec.random_seed,
        reseed=spec.reseed,
        network=str(spec.network or NO_NETWORK),
        task=spec.task.said(),
        layers=below.ids,
        notes=tree.notes,
        contents=dict(tree.contents),
        services=tree.services,
        program=tree.program,
    )


def _need_root() -> None:
    if os.geteuid() != 0:
        raise MachineLacks("building an image needs root's rights: its files have many owners (sudo tvsnap ...)")
