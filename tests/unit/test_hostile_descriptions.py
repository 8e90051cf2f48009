"""Descriptions of images that mean harm: whatever they are, they are refused at once, and cost no memory."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tvsnap.images.build.oci import unpack_oci
from tvsnap.images.descriptions.dockerfile import read_dockerfile
from tvsnap.images.descriptions.document import load_toml, load_yaml
from tvsnap.images.descriptions.env_file import read_env_file
from tvsnap.images.errors import BuildStepFailed, ImageSpecError
from tvsnap.model.limits import MIB

INDEX = "application/vnd.oci.image.index.v1+json"


@pytest.fixture(autouse=True)
def _at_once_and_in_little_memory() -> Iterator[None]:
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024


def holes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [holes, endless, os.mkfifo], ids=["holes", "a device", "a pipe"])
@pytest.mark.parametrize(
    "read", [load_yaml, load_toml, lambda path: read_dockerfile(path, {})], ids=["yaml", "toml", "dockerfile"]
)
def test_files_that_are_no_descriptions(
    tmp_path: Path, make: Callable[[Path], None], read: Callable[[Path], object]
) -> None:
    make(tmp_path / "file")
    with pytest.raises((ImageSpecError, OSError), match=r"no regular file|more than 4 MiB"):
        read(tmp_path / "file")


def test_an_environment_file_that_is_none(tmp_path: Path) -> None:
    holes(tmp_path / ".env")
    with pytest.raises(ImageSpecError, match="more than 4 MiB"):
        read_env_file(tmp_path / ".env")


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {" + ", ".join(f"k{n}: v" for n in range(2000)) + "}\nb: {<<: [" + ", ".join(["*a"] * 100) + "]}\n",
        "a0: &a0 [v]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(40)),
        "a: &a [*a]\n",
        "[" * 100_000,
        "a: " + "1" * 5000,
        "a: !!timestamp 2001-99-01",
    ],
    ids=["merged", "named", "in itself", "deep", "a number", "a date"],
)
def test_yaml_that_stands_for_more_than_it_is(tmp_path: Path, text: str) -> None:
    (tmp_path / "image.yaml").write_text(text)
    with pytest.raises(ImageSpecError):
        load_yaml(tmp_path / "image.yaml")


class Layout:
    """An OCI layout."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "blobs/sha256").mkdir(parents=True)
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, kind: str, document: object) -> dict[str, object]:
        """Adds a document; returns its descriptor."""
        return self.written(kind, json.dumps(document).encode())

    def written(self, kind: str, data: bytes) -> dict[str, object]:
        """Adds a document that is JSON already; returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        (self.directory / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    def refused(self, index: object) -> str:
        """Returns why it cannot be unpacked with that index."""
        (self.directory / "index.json").write_text(json.dumps(index))
        with pytest.raises(BuildStepFailed) as error:
            unpack_oci(self.directory, None, self.directory, self.directory, lambda done: None)
        return str(error.value)


def test_indexes_in_indexes(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    inner = layout.blob("application/vnd.oci.image.manifest.v1+json", {"config": {}})
    inner["platform"] = {"os": "none", "architecture": "none"}
    for level in range(40):
        inner = layout.blob(INDEX, {"level": level, "manifests": [inner] * 10})
    assert "no image for" in layout.refused({"manifests": [inner]})


def test_more_manifests_than_any_image_has(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    tags = [{"annotations": {"org.opencontainers.image.ref.name": f"t{number}"}} for number in range(10)]
    inner: list[dict[str, object]] = []
    for level in range(101):
        manifests = json.dumps(inner)  # once for all that hold the same
        documents = (f'{{"level": {level}, "number": {number}, "manifests": {manifests}}}' for number in range(10))
        indexes = [layout.written(INDEX, document.encode()) for document in documents]
        inner = [{**index, **tag} for index, tag in zip(indexes, tags, strict=True)]
    assert "more than 1000 manifests" in layout.refused({"manifests": inner})


def test_json_that_is_deep_or_endless(tmp_path: Path) -> None:
    Layout(tmp_path)
    (tmp_path / "index.json").write_text("[" * 1_000_000)
    with pytest.raises(BuildStepFailed, match="no JSON"):
        unpack_oci(tmp_path, None, tmp_path, tmp_path, lambda done: None)
    holes(tmp_path / "index.json")
    with pytest.raises(BuildStepFailed, match=f"more than {4 * MIB >> 20} MiB"):
        unpack_oci(tmp_path, None, tmp_path, tmp_path, lambda done: None)
