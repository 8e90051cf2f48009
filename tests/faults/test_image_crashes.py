"""Processes that die at every step of building and removing images: what is left is whole images, and no litter."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conformance.helpers import eventually
from tests.faults.dying import program_of, see_it_die
from tests.small_image import build_small_image
from tvsnap import Cache
from tvsnap.images import Image, ImageStore

IMPORTS = """
from pathlib import Path
from tvsnap.images import directory
from tvsnap.images.build import builder
from tvsnap.images.directory import ImageDirectory
from tvsnap.model.images import Manifest
from tvsnap.images.store import ImageStore
"""
RECIPE = """
name: task
directory: rootfs
files:
  - dest: /root/given
    content: given
run:
  - echo begun; for n in $(seq 200); do echo $n > /root/$n; done
"""
BUILDING = {
    "before the base is made": "before(builder._Build, '_make_base')",
    "with the base made": "after(builder._Build, '_make_base')",
    "before owners are shifted": "before(builder, 'shift_owners')",
    "with owners shifted": "after(builder, 'shift_owners')",
    "with files put in": "after(builder._Build, '_put')",
    "before a command": "before(builder, 'run_inside')",
    "with a command under way": "before(builder.Steps, 'output')",
    "after a command": "after(builder, 'run_inside')",
    "before it is finished": "before(builder, 'finish_tree')",
    "finished": "after(builder, 'finish_tree')",
    "without its manifest": "before(Manifest, 'write')",
    "with its manifest": "after(Manifest, 'write')",
    "before it is put in place": "before(ImageDirectory, 'take')",
    "put in place": "after(ImageDirectory, 'take')",
    "with its recipe half noted": "before(Path, 'replace')",
    "with its recipe noted": "after(ImageDirectory, '_write_reference')",
    "half named": "before(Path, 'replace')",
    "named": "after(ImageDirectory, '_write_reference')",
}
REMOVING = {
    "without its name": "after(Path, 'unlink')",
    "on its way out": "before(directory, 'remove_tree')",
    "half removed": "after(os, 'unlink', 10)",
    "removed": "after(ImageDirectory, 'remove')",
}


class Home:
    """A data directory with a small image, and a recipe for another."""

    def __init__(self, path: Path, terminal: Image) -> None:
        self.path = path
        self.store = ImageStore(path)
        self.small = build_small_image(terminal, path)
        self.folder = path / "recipe"
        shutil.copytree(self.small.rootfs, self.folder / "rootfs", symlinks=True)
        (self.folder / "image.yaml").write_text(RECIPE)

    def see_it_die(self, work: str, fault: str) -> None:
        see_it_die(program_of(f"ImageStore(Path({str(self.path)!r})).{work}", fault, imports=IMPORTS))

    def assert_in_order(self) -> None:
        """Asserts that opening the directory leaves nothing but whole images in it."""
        for path in self.references(".*"):
            os.utime(path, (0, 0))  # else a process that lives might be about to rename it
        eventually(self.is_in_order, timeout=60)  # programs of a killed build end a moment after it
        for image in self.store.list():
            assert image.rootfs.is_dir()
            assert self.store.manifest(image).digest == image.digest

    def is_in_order(self) -> bool:
        Cache(self.path).close()
        litter = {path.name for path in (self.path / "images").iterdir() if path.name.startswith(".")}
        return not litter and not self.references(".*")

    def references(self, pattern: str) -> list[Path]:
        return [path for folder in ("names", "recipes") for path in (self.path / "images" / folder).glob(pattern)]


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Home:
    return Home(tmp_path, terminal_image)


def test_killed_while_building(home: Home, tmp_path_factory: pytest.TempPathFactory, terminal_image: Image) -> None:
    undisturbed = Home(tmp_path_factory.mktemp("undisturbed"), terminal_image)
    expected = undisturbed.store.build(undisturbed.folder)
    for fault in BUILDING.values():
        home.see_it_die(f"build({str(home.folder)!r})", fault)
        home.assert_in_order()
    named = {image.name: image.digest for image in home.store.list()}
    assert named == {"small": home.small.digest, "task": expected.digest}
    assert home.store.build(home.folder).digest == expected.digest


def test_killed_while_removing(home: Home) -> None:
    for fault in REMOVING.values():
        built = home.store.build(home.folder)
        home.see_it_die("remove('task')", fault)
        home.assert_in_order()
        assert "task" not in {image.name for image in home.store.list()}
        assert home.store.build(home.folder).digest == built.digest
