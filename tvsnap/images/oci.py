"""Unpacks an image from an OCI layout (image-layout.md of the image specification): a directory, or a tar of one.

Archives of `docker save` as well: those of Docker 25 and newer are such layouts, older ones have a manifest.json only.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvsnap.images.build.extract import extract_tar
from tvsnap.images.descriptions.config import BaseConfig, read_config
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.small_files import read_small_text

_BLOB = re.compile(r"(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})")
_CHUNK = 1 << 20
_MOST_DOCUMENTS = 1000
"""Manifests and indexes of one layout, and what is read of them."""
_TAG = "org.opencontainers.image.ref.name"
_FULL_NAME = "io.containerd.image.name"
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_LAYERS = re.compile(
    r"application/vnd\.(oci\.image\.layer\.v1\.tar(\+gzip|\+zstd)?|docker\.image\.rootfs\.diff\.tar(\.gzip)?)"
)
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "i686": "386",
}
"""What the kernel calls a machine -> what images call it, where the two differ."""


def unpack_oci(
    path: Path, tag: str | None, root: Path, scratch: Path, fraction: Callable[[float | None], None]
) -> BaseConfig:
    """Unpacks the layers of the image for this machine.

    Args:
        path: the layout: a directory, or a tar of one.
        tag: which image, by its name in the layout; None where there is but one.
        root: an empty directory that becomes the tree, its owners not shifted.
        scratch: an empty directory for a layout that comes as a tar.
        fraction: told how far it is.

    Returns:
        What the image's configuration says.

    Raises:
        BuildStepFailed: it is no such layout, damaged, hostile, or holds no image for this machine.
    """
    if not path.is_dir():
        extract_tar(path, scratch, fraction)
    layout = _Layout(path if path.is_dir() else scratch, path)
    if not layout.has("index.json") and layout.has("manifest.json"):
        saved = layout.saved(tag)
        for index, file in enumerate(saved.layers):
            extract_tar(file, root, _part(fraction, index, len(saved.layers)), layer=True)
        return saved.config
    manifest = layout.manifest(tag)
    config = layout.document(manifest.get("config"))
    layers = _list(manifest.get("layers"))
    for index, layer in enumerate(layers):
        kind = layer.get("mediaType", "")
        if not _LAYERS.fullmatch(kind):
            raise BuildStepFailed(f"failed: {path}: a layer of the unknown type {kind!r}")
        extract_tar(layout.blob(layer), root, _part(fraction, index, len(layers)), layer=True)
    return read_config(_dict(config.get("config")))


def _part(fraction: Callable[[float | None], None], index: int, count: int) -> Callable[[float | None], None]:
    """Tells how far the whole is that one of `count` parts belongs to."""
    return lambda done: fraction(None if done is None else (index + done) / count)


def this_architecture() -> str:
    """This machine, as images name it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


@dataclass(frozen=True, slots=True)
class _Saved:
    """An image in an archive of `docker save`: its layers, lowest first, and what its configuration says."""

    layers: tuple[Path, ...]
    config: BaseConfig


@dataclass(frozen=True, slots=True)
class _Layout:
    """A layout on disk; `name` is what the user called it, `documents` what was read of it, by digest."""

    directory: Path
    name: Path
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)

    def manifest(self, tag: str | None) -> dict[str, Any]:
        """The manifest for this machine."""
        for required in ("oci-layout", "index.json"):
            if not self.has(required):
                raise BuildStepFailed(f"failed: {self.name} is no OCI layout: it has no file {required}")
        found = self._manifests(self._json(self.directory / "index.json"))
        if tag is not None:
            tags = sorted({name for name, _ in found if name})
            found = [
                (name, descriptor)
                for name, descriptor in found
                if tag in (name, _dict(descriptor.get("annotations")).get(_FULL_NAME))
            ]
            if not found:
                raise BuildStepFailed(
                    f'failed: {self.name} has no image "{tag}"; it has: {", ".join(tags) or "no tags"}'
                )
        architecture = this_architecture()
        platforms = [(name, descriptor, self._platform(descriptor)) for name, descriptor in found]
        fitting = [(name, descriptor) for name, descriptor, kind in platforms if kind == ("linux", architecture)]
        if not fitting:
            others = ", ".join(sorted({"/".join(kind) for _, _, kind in platforms})) or "none"
            raise BuildStepFailed(f"failed: {self.name} has no image for linux/{architecture}; it has: {others}")
        if len({descriptor["digest"] for _, descriptor in fitting}) > 1:
            tags = sorted({name or "an untagged one" for name, _ in fitting})
            raise BuildStepFailed(f"failed: {self.name} has several images; choose by the key tag: {', '.join(tags)}")
        return self.document(fitting[0][1])

    def has(self, name: str) -> bool:
        """Whether there is a file of this name at the top."""
        return self._is_file(self.directory / name)

    def saved(self, tag: str | None) -> _Saved:
        """The image that a manifest.json of `docker save` names."""
        entries = _list(self._json_value(self.directory / "manifest.json"))
        if tag is not None:
            tags = sorted({str(name) for entry in entries for name in entry.get("RepoTags") or ()})
            entries = [entry for entry in entries if tag in (entry.get("RepoTags") or ())]
            if not entries:
                raise BuildStepFailed(
                    f'failed: {self.name} has no image "{tag}"; it has: {", ".join(tags) or "no tags"}'
                )
        if len(entries) != 1:
            tags = sorted({str((entry.get("RepoTags") or ["an untagged one"])[0]) for entry in entries})
            raise BuildStepFailed(f"failed: {self.name} has several images; choose by the key tag: {', '.join(tags)}")
        config = self._json(self._member(entries[0].get("Config")))
        architecture = str(config.get("architecture"))
        if architecture != this_architecture():
            raise BuildStepFailed(
                f"failed: {self.name} has no image for linux/{this_architecture()}; it has: linux/{architecture}"
            )
        names = entries[0].get("Layers")
        layers = tuple(self._member(name) for name in names) if isinstance(names, list) else ()
        digests = _dict(config.get("rootfs")).get("diff_ids")
        for layer, digest in zip(layers, digests if isinstance(digests, list) else (), strict=False):
            if f"sha256:{_digest_of(layer, 'sha256')}" != digest:
                raise BuildStepFailed(f"failed: {self.name} is damaged: the layer {digest} has other contents")
        return _Saved(layers, read_config(_dict(config.get("config"))))

    def _member(self, name: object) -> Path:
        path = self.directory / str(name)
        if not self._is_file(path):
            raise BuildStepFailed(f"failed: {self.name} is incomplete: {name} is missing")
        return path

    def document(self, descriptor: object) -> dict[str, Any]:
        """The JSON that a descriptor points to."""
        digest = str(_dict(descriptor).get("digest"))
        if digest not in self.documents:
            if len(self.documents) == _MOST_DOCUMENTS:
                raise BuildStepFailed(f"failed: {self.name} has more than {_MOST_DOCUMENTS} manifests")
            self.documents[digest] = self._json(self.blob(descriptor))
        return self.documents[digest]

    def blob(self, descriptor: object) -> Path:
        """The file that a descriptor points to, its contents checked against their digest."""
        digest = _dict(descriptor).get("digest")
        if not isinstance(digest, str) or not _BLOB.fullmatch(digest):
            raise BuildStepFailed(f"failed: {self.name}: {digest!r} is no digest")
        kind, value = digest.split(":")
        path = self.directory / "blobs" / kind / value
        if not self._is_file(path):
            raise BuildStepFailed(f"failed: {self.name} is incomplete: the blob {digest} is missing")
        if _digest_of(path, kind) != value:
            raise BuildStepFailed(f"failed: {self.name} is damaged: the blob {digest} has other contents")
        return path

    def _is_file(self, path: Path) -> bool:
        # A link in an unpacked tar could name any file of this machine.
        return path.is_file() and path.resolve().is_relative_to(self.directory.resolve())

    def _manifests(self, index: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Every manifest's descriptor with its tag; an index inside an index is opened, once for each of its tags."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        seen: set[tuple[str, str]] = set()
        waiting = [("", index)]
        while waiting:
            tag, opened = waiting.pop(0)
            for descriptor in _list(opened.get("manifests")):
                name = str(_dict(descriptor.get("annotations")).get(_TAG, tag))
                key = (name, str(descriptor.get("digest")))
                if key in seen:
                    continue
                seen.add(key)
                if len(seen) > _MOST_DOCUMENTS:
                    raise BuildStepFailed(f"failed: {self.name} has more than {_MOST_DOCUMENTS} manifests")
                if descriptor.get("mediaType") in _INDEXES:
                    waiting.append((name, self.document(descriptor)))
                else:
                    found[key] = descriptor
        return [(name, descriptor) for (name, _), descriptor in found.items()]

    def _platform(self, descriptor: dict[str, Any]) -> tuple[str, str]:
        values = _dict(descriptor.get("platform"))
        if not values:
            values = self.document(_dict(self.document(descriptor)).get("config"))
        return str(values.get("os")), str(values.get("architecture"))

    def _json(self, path: Path) -> dict[str, Any]:
        return _dict(self._json_value(path))

    def _json_value(self, path: Path) -> object:
        try:
            value: object = json.loads(read_small_text(path))
            return value
        except OSError as error:
            raise BuildStepFailed(f"failed: {self.name}: {path.name}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise BuildStepFailed(f"failed: {self.name} is damaged: {path.name} is no JSON ({error})") from None


def _digest_of(path: Path, kind: str) -> str:
    found = hashlib.new(kind)
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [_dict(item) for item in value] if isinstance(value, list) else []
