"""The engine's images for sandboxes: a tvsnap image as one layer, and on it a layer with our PID 1."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from tvsnap.guest.protocol import DISTINCTION, GUEST_FILES
from tvsnap.host.libc import closing
from tvsnap.host.locks import locked
from tvsnap.images.layers import in_merged
from tvsnap.images.rootfs import unshifted_capability, walk
from tvsnap.model.errors import InfrastructureError, NotFound
from tvsnap.model.images import CAPABILITY_XATTR, UID_BASE, Image
from tvsnap.plugins.docker.containers import Ownership, packed
from tvsnap.plugins.docker.engine import Engine
from tvsnap.plugins.docker.layers import rewritten

IMAGES = "tvsnap/image"  # the repository of tvsnap images as they are
STARTABLE = "tvsnap/guest"  # the repository of the same with PID 1 in them
DISTINCTION_LENGTH = 16  # bytes, of which each is two digits


class EngineImages:
    """Imports images into the engine when they are first needed. Thread-safe."""

    DEPTH = 2
    """The number of layers of `startable` images."""

    def __init__(self, engine: Engine, ownership: Ownership, directory: Path, data: Path) -> None:
        """`directory` is the data directory's for this engine; `data` the engine's own, on its machine."""
        self._engine = engine
        self._api = engine.api
        self._ownership = ownership
        self._directory, self._data = directory, data
        self._records = directory / "images"
        self._records.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._guest = _guest_files()
        self.guest_version = hashlib.sha256(self._guest).hexdigest()[:16]
        self._there: set[str] = set()
        self._lock = threading.Lock()

    def startable(self, image: Image) -> str:
        """Returns the reference of the engine's image for sandboxes of `image`; makes it if necessary.

        Raises:
            NotFound: the engine does not have the image, and its files are not in the data directory either.
            InfrastructureError: the engine failed.
        """
        build = _build_of(image)
        reference = f"{STARTABLE}:{build}-{self.guest_version}"
        if reference in self._there:
            return reference
        base = f"{IMAGES}:{build}"
        with self._lock, self._alone():
            for each in (base, reference):  # first, so that everything in the engine is known here
                (self._records / _tag(each)).touch()
            if not self._engine.has_image(reference):
                if not self._engine.has_image(base):
                    self._import(image, base)
                self._add_guest(image, base, reference)
            self._there.add(reference)
        return reference

    def layers(self, image: Image) -> tuple[Path, ...]:
        """Returns the directories of an image's files on the engine's machine, topmost first, without PID 1's layer."""
        about = self._engine.image(self.startable(image))
        return tuple(map(Path, about["GraphDriver"]["Data"]["LowerDir"].split(":")))

    def reap(self, images: Path) -> None:
        """Removes what was imported into the engine for images that no longer exist, or with another version's PID 1.

        `images` is the data directory's; if it does not exist, images come from elsewhere and stay.
        """
        have = {path.name[:40] for path in images.iterdir()} if images.is_dir() else None
        for record in sorted(self._records.iterdir(), reverse=True):  # dependent ones first
            build, _, version = record.name.partition("-")
            gone = have is not None and build.partition(".")[0] not in have
            if gone or version not in ("", self.guest_version):
                removed = self._engine.remove_image(f"{STARTABLE if version else IMAGES}:{record.name}")
                if removed is not False:  # nothing depends on it
                    record.unlink(missing_ok=True)

    def forget(self, reference: str) -> None:
        """Checks the next time whether the engine has an image, because it may have been removed there."""
        self._there.discard(reference)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks the engine's images against other processes during the block, so that none is made twice.

        If the engine's own directory is out of reach, those of other data directories are not locked out.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            opened = os.open(self._data, flags)
        except OSError:
            opened = os.open(self._directory, flags)
        with closing(opened) as descriptor, locked(descriptor):
            yield

    def _import(self, image: Image, reference: str) -> None:
        """Imports an image's files as one layer: owners as seen inside, times to the nanosecond, attributes."""
        if not image.rootfs.is_dir():
            raise NotFound(
                f'the files of image "{image.name}" are neither in the data directory nor in the Docker Engine at '
                f"{self._engine.address}; build it again (tvsnap image build)"
            )
        owners = {number for _, info in _files(image) for number in (info.st_uid, info.st_gid)}
        with (
            tempfile.TemporaryDirectory(prefix="tvsnap-image-") as joined,
            tempfile.NamedTemporaryFile("w", prefix="tvsnap-owners-") as numbers,
            tempfile.TemporaryFile() as complaints,
        ):
            numbers.writelines(f"+{number} :{number - UID_BASE}\n" for number in sorted(owners))
            numbers.flush()
            command = ["tar", "--create", "--format=posix", "--numeric-owner"]
            command += ["--xattrs", "--xattrs-include=user.*", "--xattrs-include=security.capability"]
            command += [f"--owner-map={numbers.name}", f"--group-map={numbers.name}"]
            tree = joined if image.below else str(image.rootfs)
            command += ["--directory", tree, "."]
            if image.below:
                command = in_merged(image.layers, Path(joined), command)
            with (
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints) as tar,
                _counting_here(tar.stdout, image) as archive,
                self._engine.turn(f"the import of image {image.name}"),
            ):
                changes = self._ownership.changes("image", image.digest)
                self._api.import_image_from_stream(archive, IMAGES, _tag(reference), changes)
            complaints.seek(0)
            if tar.returncode:
                reason = complaints.read().decode(errors="replace").strip()
                raise InfrastructureError(f"the files of image {image.name} could not be read: {reason}")

    def _add_guest(self, image: Image, base: str, reference: str) -> None:
        doing = "adding PID 1 to an image"
        labels = self._ownership.labels("image", image.digest)
        container = self._engine.do(
            doing, self._api.create_container, base, command=["/bin/true"], labels=labels, network_disabled=True
        )
        try:
            self._engine.do(doing, self._api.put_archive, container["Id"], "/", self._guest)
            tag, changes = _tag(reference), self._ownership.changes("image", image.digest)
            self._engine.do(doing, self._api.commit, container["Id"], STARTABLE, tag, changes=changes)
        finally:
            self._engine.do("removing a container", self._api.remove_container, container["Id"], v=True, force=True)


def _build_of(image: Image) -> str:
    """Returns a name for a build of an image: builds that differ only in times of files have the same digest."""
    return f"{image.digest[:40]}.{hashlib.sha256(repr(image.created).encode()).hexdigest()[:12]}"


def _files(image: Image) -> Iterator[tuple[str, os.stat_result]]:
    """Yields all files in the trees of an image, except the marks by which a tree hides those below it."""
    for tree in image.layers:
        yield from ((path, about) for path, about in walk(tree) if not stat.S_ISCHR(about.st_mode))


def _counting_here(archive: IO[bytes] | None, image: Image) -> AbstractContextManager[IO[bytes]]:
    """Returns a context with an image's archive, whose file capabilities are valid without a user namespace."""
    assert archive is not None
    files = (path for path, info in _files(image) if stat.S_ISREG(info.st_mode))
    if not any(CAPABILITY_XATTR in os.listxattr(path, follow_symlinks=False) for path in files):
        return contextlib.nullcontext(archive)
    header = f"SCHILY.xattr.{CAPABILITY_XATTR}"

    def change(member: tarfile.TarInfo) -> bool:
        if header in member.pax_headers:
            value = unshifted_capability(member.pax_headers[header].encode("utf-8", "surrogateescape"))
            member.pax_headers = {**member.pax_headers, header: value.decode("utf-8", "surrogateescape")}
        return True

    return rewritten(archive, change)


def _tag(reference: str) -> str:
    return reference.partition(":")[2]


def _guest_files() -> bytes:
    """Returns our files for each sandbox as a tar."""
    files = {f"run/tvsnap/{name}": source.read_bytes() for name, source in GUEST_FILES.items()}
    files[DISTINCTION] = bytes(DISTINCTION_LENGTH).hex().encode()
    return packed(files, 0o755, folders=("run", "run/tvsnap"))
