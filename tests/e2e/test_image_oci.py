"""Images of the OCI layout."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.image_lab import dir_member, file_member, left_of_builds, link_member, tar_of, write_spec
from tvsnap.images import (
    UID_BASE,
    Image,
    ImageBuildError,
    ImageStore,
)
from tvsnap.images.architecture import this_architecture


class OciLayout:
    """Writes an OCI layout."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifests: list[dict[str, Any]] = []
        (directory / "blobs/sha256").mkdir(parents=True)
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, content: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (self.directory / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def json_blob(self, document: object, media_type: str) -> dict[str, Any]:
        return self.blob(json.dumps(document).encode(), media_type)

    def image(self, layers: list[bytes], config: dict[str, Any], architecture: str = "") -> dict[str, Any]:
        """Adds an image's blobs; returns the descriptor of its manifest."""
        platform = {"os": "linux", "architecture": architecture or this_architecture()}
        manifest = {
            "schemaVersion": 2,
            "config": self.json_blob({**platform, "config": config}, "application/vnd.oci.image.config.v1+json"),
            "layers": [
                self.blob(gzip.compress(layer, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
                for layer in layers
            ],
        }
        return self.json_blob(manifest, "application/vnd.oci.image.manifest.v1+json")

    def index(self, *manifests: dict[str, Any]) -> None:
        (self.directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))


class TestOci:
    CONFIG = {"Env": ["PATH=/opt/bin", "A=from=image", "B=kept"], "WorkingDir": "/srv", "User": "7:8"}  # noqa: RUF012

    @pytest.fixture
    def layout(self, tmp_path: Path) -> OciLayout:
        return OciLayout(tmp_path / "layout")

    def add_image(self, layout: OciLayout, content: bytes = b"1", architecture: str = "") -> dict[str, Any]:
        base = tar_of(dir_member("etc"), file_member("etc/gone"), file_member("etc/kept", content))
        change = tar_of(file_member("etc/.wh.gone"), file_member("srv/new", uid=33))
        return layout.image([base, change], self.CONFIG, architecture)

    def build(self, store: ImageStore, tmp_path: Path, more: str = "", path: str = "../layout") -> Image:
        return store.build(write_spec(tmp_path / "img", more or f"oci: {path}"))

    def test_layers_and_config(self, layout: OciLayout, store: ImageStore, tmp_path: Path) -> None:
        layout.index(self.add_image(layout))
        image = self.build(store, tmp_path)
        assert sorted(os.listdir(image.rootfs / "etc")) == ["hostname", "hosts", "kept", "resolv.conf"]
        assert (image.rootfs / "srv/new").stat().st_uid == UID_BASE + 33
        assert image.env == {"PATH": "/opt/bin", "A": "from=image", "B": "kept"}
        assert (image.workdir, image.user) == ("/srv", "7:8")

    def test_overrides(self, layout: OciLayout, store: ImageStore, tmp_path: Path) -> None:
        layout.index(self.add_image(layout))
        image = self.build(store, tmp_path, "oci: ../layout\nenv: {A: mine}\nworkdir: /app\nuser: '0'")
        assert image.env == {"PATH": "/opt/bin", "A": "mine", "B": "kept"}
        assert (image.workdir, image.user) == ("/app", "0")
        assert (image.rootfs / "app").is_dir()

    def test_tar_of_a_layout(self, layout: OciLayout, store: ImageStore, tmp_path: Path) -> None:
        layout.index(self.add_image(layout))
        from_directory = self.build(store, tmp_path)
        subprocess.run(["tar", "-C", layout.directory, "-cf", tmp_path / "layout.tar", "."], check=True)
        assert self.build(store, tmp_path, path="../layout.tar") == from_directory

    def test_platform_in_a_nested_index(self, layout: OciLayout, store: ImageStore, tmp_path: Path) -> None:
        here = {"os": "linux", "architecture": this_architecture()}
        other = {"os": "linux", "architecture": "mips"}
        images = [
            {**self.add_image(layout, b"other", "mips"), "platform": other},
            {**self.add_image(layout, b"here"), "platform": here},
        ]
        index = {"schemaVersion": 2, "manifests": images}
        layout.index(layout.json_blob(index, "application/vnd.oci.image.index.v1+json"))
        assert (self.build(store, tmp_path).rootfs / "etc/kept").read_bytes() == b"here"

    def test_tags(self, layout: OciLayout, store: ImageStore, tmp_path: Path) -> None:
        layout.index(
            *(
                {**self.add_image(layout, tag.encode()), "annotations": {"org.opencontainers.image.ref.name": tag}}
                for tag in ("one", "two")
            )
        )
        image = self.build(store, tmp_path, "oci: {path: ../layout, tag: two}")
        assert (image.rootfs / "etc/kept").read_bytes() == b"two"
        with pytest.raises(ImageBuildError, match="has several images; choose by the key tag: one, two"):
            self.build(store, tmp_path)
        with pytest.raises(ImageBuildError, match='has no image "three"; it has: one, two'):
            self.build(store, tmp_path, "oci: {path: ../layout, tag: three}")

    def test_other_platform_only(self, layout: OciLayout, store: ImageStore, tmp_path: Path) -> None:
        layout.index(self.add_image(layout, architecture="mips"))
        with pytest.raises(ImageBuildError, match=f"no image for linux/{this_architecture()}; it has: linux/mips"):
            self.build(store, tmp_path)

    def test_no_layout(self, store: ImageStore, tmp_path: Path) -> None:
        (tmp_path / "layout").mkdir()
        with pytest.raises(ImageBuildError, match="is no OCI layout: it has no file oci-layout"):
            self.build(store, tmp_path)

    def test_damaged_blob(self, layout: OciLayout, store: ImageStore, tmp_path: Path) -> None:
        layout.index(self.add_image(layout))
        blob = max((layout.directory / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
        blob.write_bytes(b"!" + blob.read_bytes()[1:])
        with pytest.raises(ImageBuildError, match="is damaged: the blob sha256:"):
            self.build(store, tmp_path)
        blob.unlink()
        with pytest.raises(ImageBuildError, match="is incomplete: the blob sha256:"):
            self.build(store, tmp_path)
        assert left_of_builds(tmp_path / "home") == []

    def test_a_digest_is_no_path(self, layout: OciLayout, store: ImageStore, tmp_path: Path) -> None:
        layout.index({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:../../secret"})
        with pytest.raises(ImageBuildError, match="is no digest"):
            self.build(store, tmp_path)

    def test_a_link_in_a_tar_names_no_file_of_this_machine(self, store: ImageStore, tmp_path: Path) -> None:
        secret = tmp_path / "secret.json"
        secret.write_text('{"manifests": []}')
        archive = tar_of(file_member("oci-layout", b"{}"), link_member("index.json", str(secret)))
        (tmp_path / "layout.tar").write_bytes(archive)
        with pytest.raises(ImageBuildError, match=r"has no file index\.json"):
            self.build(store, tmp_path, path="../layout.tar")
