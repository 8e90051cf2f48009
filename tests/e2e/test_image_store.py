"""The store of images, and its verbs on the command line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import verb_app
from tests.image_lab import Recorder, left_of_builds, write_spec
from tvsnap.images import (
    ImageBuildError,
    ImageNotFound,
    ImageSpecError,
    ImageStore,
)
from tvsnap.model.errors import NotFound, TvsnapError


class TestStore:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """An image of nearly nothing; `content` of its one file is the first argument of `set_content`."""
        (tmp_path / "tree").mkdir()
        self.set_content(tmp_path / "img", "1")
        return tmp_path / "img"

    def set_content(self, folder: Path, content: str) -> None:
        tree = folder.parent / "tree"
        write_spec(folder, f"directory: {tree}\nfiles: [{{content: '{content}', dest: /file}}]")

    def test_not_found(self, store: ImageStore, folder: Path) -> None:
        with pytest.raises(ImageNotFound, match='image "termnal" not found; have: none; build one'):
            store.get("termnal")
        store.build(folder, name="terminal")
        store.build(folder, name="sqlite")
        with pytest.raises(ImageNotFound) as caught:
            store.get("termnal")
        assert str(caught.value) == 'image "termnal" not found; have: sqlite, terminal (tvsnap image ls)'
        assert isinstance(caught.value, NotFound)
        for name in ("../names", "", ".", "abc", "ABCD", "names"):
            with pytest.raises(ImageNotFound):
                store.get(name)

    def test_names_and_prefixes(self, store: ImageStore, folder: Path) -> None:
        image = store.build(folder)
        assert store.get(image.digest) == store.get(image.digest[:6]) == store.get("img") == image
        other = store.build(folder, name="other")
        assert (other.digest, other.name) == (image.digest, "other")
        assert [listed.name for listed in store.list()] == ["img", "other"]
        assert store.manifest(image).source == str(folder)

    def test_ambiguous_prefix(self, store: ImageStore, folder: Path) -> None:
        image = store.build(folder)
        twin = image.rootfs.parent.with_name(image.digest[:20] + "0" * 44)
        shutil.copytree(image.rootfs.parent, twin, symlinks=True)
        with pytest.raises(ImageNotFound, match="fits several images"):
            store.get(image.digest[:12])

    def test_a_name_moves_on(self, store: ImageStore, folder: Path) -> None:
        old = store.build(folder)
        self.set_content(folder, "2")
        new = store.build(folder)
        assert new.digest != old.digest
        assert store.get("img") == new
        assert [(image.name, image.digest) for image in store.list()] == [("img", new.digest), ("", old.digest)]
        assert store.get(old.digest).rootfs.is_dir()

    def test_force(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        random = f"directory: {small_system}\nrun: ['cat /proc/sys/kernel/random/uuid > /id']"
        folder = write_spec(tmp_path / "img", random)
        first = store.build(folder)
        assert store.build(folder) == first
        second = store.build(folder, force=True)
        assert second.digest != first.digest
        assert store.build(folder) == second

    def test_force_of_the_same(self, store: ImageStore, folder: Path, tmp_path: Path) -> None:
        first = store.build(folder)
        progress = Recorder()
        assert store.build(folder, force=True, progress=progress) == first
        assert progress.steps
        assert left_of_builds(tmp_path / "home") == [first.digest]

    def test_remove(self, store: ImageStore, folder: Path, tmp_path: Path) -> None:
        image = store.build(folder)
        store.build(folder, name="other")
        store.remove("img")
        assert store.get("other").digest == image.digest
        store.build(folder)
        assert store.remove(image.digest[:8]).digest == image.digest
        assert store.list() == []
        assert left_of_builds(tmp_path / "home") == []
        with pytest.raises(ImageNotFound):
            store.remove("img")
        assert store.build(folder).digest == image.digest

    def test_litter_of_a_crash_is_swept(self, store: ImageStore, folder: Path, tmp_path: Path) -> None:
        image = store.build(folder)
        images = tmp_path / "home/images"
        image.rootfs.parent.rename(images / f".removed-{image.digest}-1")
        (images / "names/.img-1234").write_text(image.digest)
        assert store.list() == []
        store.sweep()
        assert [path.name for path in (images / "names").glob(".*")] == [".img-1234"]  # perhaps still being written
        for path in [*(images / "names").iterdir(), *(images / "recipes").iterdir()]:
            os.utime(path, (1, 1))
        store.sweep()
        assert left_of_builds(tmp_path / "home") == []
        assert list((images / "names").iterdir()) == list((images / "recipes").iterdir()) == []

    def test_damaged_manifest(self, store: ImageStore, folder: Path) -> None:
        image = store.build(folder)
        image.rootfs.with_name("image.json").write_text("{")
        with pytest.raises(TvsnapError, match=f"image {image.digest[:12]} is damaged"):
            store.get("img")
        image.rootfs.with_name("image.json").unlink()
        with pytest.raises(TvsnapError, match=f"image {image.digest[:12]} is damaged"):
            store.list()


class TestCommandLine:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Callable[..., Any]:
        app = verb_app("image")
        (tmp_path / "home/images").mkdir(parents=True)
        monkeypatched = {"TVSNAP_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
        return lambda *arguments: CliRunner().invoke(app, ["image", *arguments], env=monkeypatched)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        (tmp_path / "tree").mkdir()
        return str(write_spec(tmp_path / "img", f"directory: {tmp_path / 'tree'}"))

    def test_life_of_an_image(self, run: Callable[..., Any], folder: str) -> None:
        assert "no images; build one" in run("ls").stdout
        allow = ("--allow", f"{folder}/..")
        assert "--allow" in str(run("build", folder).exception)
        built = run("build", folder, *allow)
        assert built.exit_code == 0
        assert built.stdout.startswith("img  ")
        assert "built in" in built.stdout
        assert "step 2 of 2: finish" in built.stderr
        again = run("build", folder, *allow, "--name", "other", "--json")
        assert (json.loads(again.stdout)["name"], json.loads(again.stdout)["built"]) == ("other", False)
        listed = json.loads(run("ls", "--json").stdout)
        assert [image["name"] for image in listed] == ["img", "other"]
        digest = listed[0]["digest"]
        assert digest[:12] in run("ls").stdout
        assert json.loads(run("show", "img", "--json").stdout)["source"] == folder
        assert digest in run("show", digest[:8]).stdout
        assert run("rm", "img", "other", "--yes").stdout == "removed img\nremoved other\n"
        assert run("ls", "--json").stdout == "[]\n"

    def test_errors(self, run: Callable[..., Any], folder: str, tmp_path: Path) -> None:
        assert isinstance(run("show", "nope").exception, ImageNotFound)
        assert isinstance(run("rm", "nope").exception, ImageNotFound)
        assert isinstance(run("build", "nope").exception, ImageNotFound)
        assert run("build").exit_code == 2
        (tmp_path / "img/image.yaml").write_text("nonsense: 1")
        assert isinstance(run("build", folder).exception, ImageSpecError)

    def test_a_failed_step_shows_its_output(self, run: Callable[..., Any], folder: str, small_system: Path) -> None:
        write_spec(Path(folder), f"directory: {small_system}\nrun: ['echo told; exit 3']")
        result = run("build", folder, "--allow", str(small_system))
        assert isinstance(result.exception, ImageBuildError)
        assert "told" in result.stderr

    @pytest.mark.parametrize("verb", ["build", "ls", "show", "rm"])
    def test_help(self, run: Callable[..., Any], verb: str) -> None:
        text = run(verb, "--help").stdout
        assert f"tvsnap image {verb}" in text
        assert "Exit status" in text
