"""Unpacks an image from an OCI layout (image-layout.md of the image specification): a directory, or a tar of one.

This includes archives of `docker save`: those of Docker 25 and newer are such layouts, older ones have only a
manifest.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tvsnap.images.architecture import this_architecture
from tvsnap.images.build.extract import extract_tar
from tvsnap.images.descriptions.config import BaseConfig, read_config
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import file_digest
from tvsnap.images.small_files import read_small_text

_BLOB = re.compile(r"(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})")
_MOST_DOCUMENTS = 1000
"""Manifests and indexes of one layout that are read."""
_TAG = "org.opencontainers.image.ref.name"
_FULL_NAME = "io.containerd.image.name"
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_LAYERS = re.compile(
    r"application/vnd\.(oci\.image\.layer\.v1\.tar(\+gzip|\+zstd)?|docker\.image\.rootfs\.diff\.tar(\.gzip)?)"
)
"""The kernel's name of an architecture -> the name in images, if the two differ."""


def unpack_oci(
    path: Path, tag: str | None, root: Path, scratch: Path, fraction: Callable[[float | None], None]
) -> BaseConfig:
    """Unpacks the layers of the image for this machine; returns the image's configuration.

    Raises BuildStepFailed if the layout is invalid, damaged, hostile, or has no image for this machine.

    Args:
        path: the layout: a directory, or a tar of one.
        tag: the image's name in the layout; None if there is only one.
        root: an empty directory that becomes the tree, with unshifted owners.
        scratch: an empty directory for unpacking a layout in a tar.
        fraction: gets the progress.
    """
    if not path.is_dir():
        extract_tar(path, scratch, fraction)
    layout = _Layout(path if path.is_dir() else scratch, path)
    saved = not layout.has("index.json") and layout.has("manifest.json")
    layers, config = layout.saved(tag) if saved else layout.image(tag)
    for index, layer in enumerate(layers):
        extract_tar(layer, root, _part(fraction, index, len(layers)), layer=True)
    return read_config(_dict(config.get("config")))


def _part(fraction: Callable[[float | None], None], index: int, count: int) -> Callable[[float | None], None]:
    """Returns a function for the progress of one of `count` parts."""
    return lambda part: fraction(None if part is None else (index + part) / count)


def _this_platform() -> str:
    return f"linux/{this_architecture()}"


@dataclass(frozen=True, slots=True)
class _Layout:
    """A layout on disk; `name` is its path as given by the user, `documents` caches documents by digest."""

    directory: Path
    name: Path
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)

    def fail(self, reason: str) -> NoReturn:
        """Raises `BuildStepFailed` about the layout."""
        raise BuildStepFailed(f"failed: {self.name}{reason}") from None

    def image(self, tag: str | None) -> tuple[list[Path], dict[str, Any]]:
        """Returns the layers of the image for this machine, lowest first, and its configuration."""
        manifest = self._manifest(tag)
        layers = _list(manifest.get("layers"))
        for layer in layers:
            if not _LAYERS.fullmatch(kind := str(layer.get("mediaType", ""))):
                self.fail(f": a layer of the unknown type {kind!r}")
        return [self.blob(layer) for layer in layers], self.document(manifest.get("config"))

    def _manifest(self, tag: str | None) -> dict[str, Any]:
        for required in ("oci-layout", "index.json"):
            if not self.has(required):
                self.fail(f" is no OCI layout: it has no file {required}")
        manifests = self._manifests(self._json(self.directory / "index.json"))
        if tag is not None:
            names = {name for name, _ in manifests if name}
            manifests = [
                (name, descriptor)
                for name, descriptor in manifests
                if tag in (name, _dict(descriptor.get("annotations")).get(_FULL_NAME))
            ] or self._has_no_image(f' "{tag}"', names or {"no tags"})
        platforms = [(name, descriptor, self._platform(descriptor)) for name, descriptor in manifests]
        fitting = [(name, descriptor) for name, descriptor, kind in platforms if kind == _this_platform()]
        if not fitting:
            self._has_no_image(f" for {_this_platform()}", {kind for _, _, kind in platforms} or {"none"})
        if len({descriptor["digest"] for _, descriptor in fitting}) > 1:
            self._has_several({name for name, _ in fitting})
        return self.document(fitting[0][1])

    def _has_no_image(self, wanted: str, others: set[str]) -> NoReturn:
        self.fail(f" has no image{wanted}; it has: {', '.join(sorted(others))}")

    def _has_several(self, tags: set[str]) -> NoReturn:
        names = sorted(tag or "an untagged one" for tag in tags)
        self.fail(f" has several images; choose by the key tag: {', '.join(names)}")

    def has(self, name: str) -> bool:
        """Whether there is a file of this name at the top."""
        return self._is_file(self.directory / name)

    def saved(self, tag: str | None) -> tuple[list[Path], dict[str, Any]]:
        """Returns the same as `image`, for the manifest.json of `docker save`."""
        entries = _list(self._json_value(self.directory / "manifest.json"))
        if tag is not None:
            names = {str(name) for entry in entries for name in entry.get("RepoTags") or ()}
            entries = [entry for entry in entries if tag in (entry.get("RepoTags") or ())]
            if not entries:
                self._has_no_image(f' "{tag}"', names or {"no tags"})
        if len(entries) != 1:
            self._has_several({str((entry.get("RepoTags") or [""])[0]) for entry in entries})
        config = self._json(self._member(entries[0].get("Config")))
        if (platform := f"linux/{config.get('architecture')}") != _this_platform():
            self._has_no_image(f" for {_this_platform()}", {platform})
        files = entries[0].get("Layers")
        layers = [self._member(name) for name in files] if isinstance(files, list) else []
        digests = _dict(config.get("rootfs")).get("diff_ids")
        for layer, digest in zip(layers, digests if isinstance(digests, list) else (), strict=False):
            if f"sha256:{file_digest(layer.resolve())}" != digest:
                self.fail(f" is damaged: the layer {digest} has other contents")
        return layers, config

    def _member(self, name: object) -> Path:
        path = self.directory / str(name)
        if not self._is_file(path):
            self.fail(f" is incomplete: {name} is missing")
        return path

    def document(self, descriptor: object) -> dict[str, Any]:
        """Returns the JSON of a descriptor's blob."""
        digest = str(_dict(descriptor).get("digest"))
        if digest not in self.documents:
            if len(self.documents) == _MOST_DOCUMENTS:
                self.fail(f" has more than {_MOST_DOCUMENTS} manifests")
            self.documents[digest] = self._json(self.blob(descriptor))
        return self.documents[digest]

    def blob(self, descriptor: object) -> Path:
        """Returns the path of a descriptor's blob after verifying its digest."""
        digest = _dict(descriptor).get("digest")
        if not isinstance(digest, str) or not _BLOB.fullmatch(digest):
            self.fail(f": {digest!r} is no digest")
        kind, value = digest.split(":")
        path = self.directory / "blobs" / kind / value
        if not self._is_file(path):
            self.fail(f" is incomplete: the blob {digest} is missing")
        if file_digest(path.resolve(), kind) != value:
            self.fail(f" is damaged: the blob {digest} has other contents")
        return path

    def _is_file(self, path: Path) -> bool:
        # A link in an unpacked tar could lead to any file of this machine.
        return path.is_file() and path.resolve().is_relative_to(self.directory.resolve())

    def _manifests(self, index: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Returns every manifest's descriptor with its tag; a nested index is opened once for each of its tags."""
        manifests: dict[tuple[str, str], dict[str, Any]] = {}
        digests: set[tuple[str, str]] = set()
        waiting = [("", index)]
        while waiting:
            tag, opened = waiting.pop(0)
            for descriptor in _list(opened.get("manifests")):
                name = str(_dict(descriptor.get("annotations")).get(_TAG, tag))
                key = (name, str(descriptor.get("digest")))
                if key in digests:
                    continue
                digests.add(key)
                if len(digests) > _MOST_DOCUMENTS:
                    self.fail(f" has more than {_MOST_DOCUMENTS} manifests")
                if descriptor.get("mediaType") in _INDEXES:
                    waiting.append((name, self.document(descriptor)))
                else:
                    manifests[key] = descriptor
        return [(name, descriptor) for (name, _), descriptor in manifests.items()]

    def _platform(self, descriptor: dict[str, Any]) -> str:
        values = _dict(descriptor.get("platform"))
        if not values:
            values = self.document(_dict(self.document(descriptor)).get("config"))
        return f"{values.get('os')}/{values.get('architecture')}"

    def _json(self, path: Path) -> dict[str, Any]:
        return _dict(self._json_value(path))

    def _json_value(self, path: Path) -> object:
        try:
            value: object = json.loads(read_small_text(path))
            return value
        except OSError as error:
            self.fail(f": {path.name}: {error.strerror}")
        except (ValueError, RecursionError) as error:
            self.fail(f" is damaged: {path.name} is no JSON ({error})")


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [_dict(item) for item in value] if isinstance(value, list) else []
