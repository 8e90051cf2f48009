"""The directory of images: which images are in it, by digest, name and recipe.

Layout of `home/images`:

    <digest>/             an image: rootfs/, image.json, build.log; immutable
    names/<name>          the digest of the image that has this name now
    recipes/<recipe>      the digest of the result of building this recipe
    layers/<id>/          a tree that several images share: of a container image that Dockerfiles start from
    .build-<recipe>/      a build in progress; its builder holds the lock on the file `lock` in it
    .removed-<digest>-*   an image that is being deleted; one that others depend on stays, with a file `removed` in it

Everything appears and disappears by a rename, so a crash at any moment leaves complete images, and leftovers that
can be recognised because their owner is dead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Iterable
from pathlib import Path

from tvsnap.images.build_directory import empty, locked
from tvsnap.images.layers import SharedTrees
from tvsnap.images.rootfs import remove_tree
from tvsnap.model.errors import TvsnapError
from tvsnap.model.images import MANIFEST, Image, Manifest

DIGEST = re.compile(r"[0-9a-f]{64}")
_YOUNG = 60.0
"""Seconds; a younger reference that seems broken may be one that another process is creating now."""


class ImageDirectory:
    """The images of one data directory on the disk. Several processes may use it at once.

    Attributes:
        path: the directory.
        names, recipes: the directories of references to images.
        shared: the trees that several images share.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = path / "names"
        self.recipes = path / "recipes"
        self.shared = SharedTrees(path)
        self._manifests: dict[str, tuple[tuple[int, int, int], Manifest]] = {}  # with inode, size and time, by digest

    def create(self) -> None:
        """Makes the directories that a new image needs."""
        self.names.mkdir(parents=True, exist_ok=True)
        self.recipes.mkdir(exist_ok=True)

    def manifest(self, digest: str) -> Manifest:
        """Returns an image's manifest; raises TvsnapError if it is damaged."""
        directory = self.path / digest
        try:
            about = os.stat(directory / MANIFEST)
        except OSError:
            return Manifest.read(directory)  # which says why it cannot
        stamp = about.st_ino, about.st_size, about.st_mtime_ns
        known, manifest = self._manifests.get(digest, (None, None))
        if manifest is None or known != stamp:  # each rollout asks
            manifest = Manifest.read(directory)
            self._manifests[digest] = stamp, manifest
        return manifest

    def image(self, digest: str, name: str = "") -> Image:
        """Returns an image, under one of its names; raises TvsnapError if its manifest is damaged."""
        return self.manifest(digest).image(self.path / digest, name)

    def digest_of(self, name: str) -> str | None:
        """Returns the digest of the image with this name; None if there is none."""
        return self._read_reference(self.names / name)

    def name(self, digest: str, name: str) -> None:
        """Gives an image a name, also if another image has it."""
        self._write_reference(self.names / name, digest)

    def note_built(self, digest: str, recipe: str) -> None:
        """Records an image as the result of a recipe."""
        self._write_reference(self.recipes / recipe, digest)

    def named(self) -> dict[str, str]:
        """Returns every name and its digest, except names of missing images."""
        paths = self.names.iterdir() if self.names.is_dir() else ()
        references = {path.name: self._read_reference(path) for path in paths if not path.name.startswith(".")}
        return {name: digest for name, digest in references.items() if digest is not None}

    def is_named(self, name: str) -> bool:
        """Whether a name belongs to an image, or did until that was removed."""
        return self.names.is_dir() and not name.startswith(".") and name in os.listdir(self.names)

    def built(self, recipe: str) -> str | None:
        """Returns the digest of the image that was built by a recipe; None if there is none."""
        return self._read_reference(self.recipes / recipe)

    def digests(self, *, removed: bool = False) -> tuple[str, ...]:
        """Returns the digests of all images; if `removed`, of removed ones that others still depend on."""
        digests = sorted(path.name for path in self._entries("") if DIGEST.fullmatch(path.name))
        return tuple(digest for digest in digests if self.shared.is_removed(digest) == removed)

    def has(self, digest: str) -> bool:
        """Whether an image exists that was not removed."""
        return (self.path / digest).is_dir() and not self.shared.is_removed(digest)

    def _read_reference(self, path: Path) -> str | None:
        """Returns the digest in a file of `names` or `recipes`; None if the file or its image is missing."""
        try:
            digest = path.read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return digest if DIGEST.fullmatch(digest) and self.has(digest) else None

    def _write_reference(self, path: Path, digest: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        temporary.write_text(digest + "\n", encoding="ascii")
        temporary.replace(path)

    def take(self, image: Path, digest: str) -> None:
        """Moves a complete image into its place."""
        os.sync()  # so that no image is incomplete after a power failure following the rename
        try:
            image.rename(self.path / digest)
        except OSError as error:
            # If the same image exists, it stays, because live sandboxes may use it.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self.shared.mark(digest, removed=False)

    def remove(self, digest: str, names: Iterable[str]) -> None:
        """Removes these names of an image, and the image itself if it has no other."""
        for name in names:
            (self.names / name).unlink(missing_ok=True)
        if digest not in self.named().values():
            self.shared.mark(digest, removed=True)
            self.free_trees()

    def free_trees(self) -> None:
        """Removes shared trees that no image needs, and removed images that no other depends on."""
        with self.shared.lock(alone=True) as alone:
            if not alone:  # a build in progress may be about to need one
                return
            try:
                needed = {id for digest in self.digests() for id in self.manifest(digest).layers}
            except TvsnapError:  # the needs of a damaged image are unknown
                return
            for digest in self.digests(removed=True):
                if digest not in needed:
                    path = self.path / f".removed-{digest}-{secrets.token_hex(4)}"
                    (self.path / digest).rename(path)
                    remove_tree(path)
            self.shared.free(needed)

    def sweep(self) -> None:
        """Removes the leftovers of builds and removals that were interrupted.

        Leftovers in which programs of a killed build are still ending are removed the next time.
        """
        for path in self._entries(".removed-"):
            with contextlib.suppress(OSError):
                remove_tree(path)
        for path in self._entries(".build-"):
            with contextlib.suppress(OSError), locked(path, wait=False) as mine:
                if mine:
                    empty(path)
        self.free_trees()
        for folder in (self.names, self.recipes):
            for reference in tuple(folder.iterdir()) if folder.is_dir() else ():
                # Leftovers of a crash: a reference under a temporary name, or to a missing image.
                with contextlib.suppress(FileNotFoundError):
                    young = time.time() - reference.stat().st_mtime < _YOUNG
                    if not young and (reference.name.startswith(".") or self._read_reference(reference) is None):
                        reference.unlink()

    def _entries(self, prefix: str) -> tuple[Path, ...]:
        if not self.path.is_dir():
            return ()
        return tuple(path for path in self.path.iterdir() if path.name.startswith(prefix))
