"""Writes a root filesystem as an image of one layer for Docker, Podman and every tool for OCI images.

Both formats are OCI layouts (image-layout.md, manifest.md and config.md of the image specification 1.0). For `docker
load` there is also a `manifest.json`, like in the output of `docker save` since version 25: older engines read only
this file, other tools only the layout.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal

from tvsnap.images.architecture import this_architecture
from tvsnap.images.layout import BLOBS, INDEX_FILE, LAYOUT_FILE, Blob, Layout
from tvsnap.model.errors import UsageError

Format = Literal["docker", "oci"]

DOCKER_FILE = "manifest.json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
TAG_ANNOTATION = "org.opencontainers.image.ref.name"
NAME_ANNOTATION = "io.containerd.image.name"
"""The annotation in which containerd, Podman and Docker look for the full name; the specification has only the tag."""

_CHUNK = 1 << 20
_GZIP_LEVEL = 6
_GZIP = 31  # zlib's window bits for a gzip header, which has no time in it
_WORD = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_WORD}(?:/{_WORD})*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?"
)


@dataclass(frozen=True, slots=True)
class Tag:
    """The name of an image: `shop:broken` has the name `shop` and the tag `broken`."""

    name: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> Tag:
        """Parses `NAME` or `NAME:TAG` (`latest` by default); raises UsageError if no engine would accept it."""
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise UsageError(f'"{text}" cannot name an image: write NAME:TAG, the name in small letters: shop:broken')
        return cls(match["name"], match["tag"] or "latest")

    def __str__(self) -> str:
        return f"{self.name}:{self.tag}"

    @property
    def full(self) -> str:
        """The name with the registry that engines assume."""
        first, slash, _ = self.name.partition("/")
        if not slash:
            return f"docker.io/library/{self}"
        return str(self) if first == "localhost" or set(first) & set(".:") else f"docker.io/{self}"


@dataclass(frozen=True, slots=True)
class Description:
    """The configuration of an image and of its containers.

    Attributes:
        env: environment variables.
        workdir: the working directory of commands.
        user: name or number, optionally with ":group".
        labels: for people and programs.
        created: seconds since the epoch.
        origin: its origin in words, for its history.
    """

    env: Mapping[str, str]
    workdir: str
    user: str
    labels: Mapping[str, str]
    created: float
    origin: str


@dataclass(frozen=True, slots=True)
class Exported:
    """The written image; digests are `sha256:` and 64 hexadecimal digits.

    Attributes:
        image_id: digest of the configuration, by which engines identify an image.
        digest: of the manifest, by which registries identify it.
        layer: digest of the layer as it was written.
        diff_id: digest of the layer's tar.
        layer_bytes: size of the layer as it was written.
    """

    image_id: str
    digest: str
    layer: str
    diff_id: str
    layer_bytes: int


def write_image(
    layout: Layout,
    files: IO[bytes],
    about: Description,
    *,
    format: Format,
    tag: Tag,
    compress: bool,
    progress: Callable[[int], None],
) -> Exported:
    """Writes an image; equal files and descriptions yield equal digests.

    Raises TvsnapError if the layout cannot be written, for example on a full disk.

    Args:
        layout: the destination.
        files: the root filesystem as a tar, which is read to its end and never held in memory.
        about: the configuration.
        format: `docker`, or `oci` to write only the OCI layout.
        tag: the image's name.
        compress: with gzip.
        progress: gets the number of bytes of `files` read since the last call.
    """
    layout.add(LAYOUT_FILE, _json({"imageLayoutVersion": "1.0.0"}))
    with layout.large_blob() as blob:
        diff_id = _copy(files, blob, compress, progress)
    config, config_digest = _added(layout, CONFIG_TYPE, _config(about, diff_id))
    layer = _descriptor(f"{LAYER_TYPE}+gzip" if compress else LAYER_TYPE, blob.digest, blob.size)
    manifest, digest = _added(
        layout,
        MANIFEST_TYPE,
        {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": [layer]},
    )
    named = {
        **manifest,
        "annotations": {NAME_ANNOTATION: tag.full, TAG_ANNOTATION: tag.tag},
        "platform": {"architecture": this_architecture(), "os": "linux"},
    }
    layout.add(INDEX_FILE, _json({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [named]}))
    if format == "docker":
        paths = {"Config": f"{BLOBS}/{config_digest}", "Layers": [f"{BLOBS}/{blob.digest}"]}
        layout.add(DOCKER_FILE, _json([{**paths, "RepoTags": [str(tag)]}]))
    return Exported(f"sha256:{config_digest}", f"sha256:{digest}", f"sha256:{blob.digest}", diff_id, blob.size)


def _copy(files: IO[bytes], blob: Blob, compress: bool, progress: Callable[[int], None]) -> str:
    """Copies the layer; returns its diff id, the digest of its uncompressed tar."""
    if not compress:
        while chunk := files.read(_CHUNK):
            blob.write(chunk)
            progress(len(chunk))
        return f"sha256:{blob.digest}"
    plain = hashlib.sha256()
    gzip = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP)
    while chunk := files.read(_CHUNK):
        plain.update(chunk)
        blob.write(gzip.compress(chunk))
        progress(len(chunk))
    blob.write(gzip.flush())
    return f"sha256:{plain.hexdigest()}"


def _config(about: Description, diff_id: str) -> dict[str, Any]:
    created = datetime.datetime.fromtimestamp(about.created, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "created": created,
        "architecture": this_architecture(),
        "os": "linux",
        "config": {
            "Env": [f"{name}={value}" for name, value in sorted(about.env.items())],
            "Cmd": ["/bin/bash"],
            "WorkingDir": about.workdir,
            "User": about.user,
            "Labels": dict(about.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": created, "created_by": about.origin}],
    }


def _added(layout: Layout, kind: str, content: object) -> tuple[dict[str, Any], str]:
    """Adds a document as a blob; returns its descriptor and its digest."""
    data = _json(content)
    digest = hashlib.sha256(data).hexdigest()
    layout.add(f"{BLOBS}/{digest}", data)
    return _descriptor(kind, digest, len(data)), digest


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
