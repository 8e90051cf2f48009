"""Images that share files: what is kept of each, what a sandbox sees of them, and when shared files go."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.image_lab import left_of_builds, write_spec
from tests.small_image import build_small_image
from tvsnap import Cache, Image
from tvsnap.images import ImageNotFound, ImageStore
from tvsnap.images.layers import in_merged, subtract
from tvsnap.sandboxes.kernel.paths import topmost

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root's rights: overlays, and files of many owners")

TIME = 1_600_000_000
LISTING = ("find", ".", "-printf", "%p %y %m %U %G %T@ %l\\n")


def fill(root: Path, **files: str) -> Path:
    """Writes files, `__` in whose names stands for `/`, and gives all the same time."""
    root.mkdir(exist_ok=True)
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in (root, *root.rglob("*")):
        os.utime(path, (TIME, TIME), follow_symlinks=False)
    return root


def listing(trees: list[Path], place: Path) -> list[str]:
    """What a sandbox would see of trees that lie on top of each other."""
    command = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(place if trees[1:] else trees[0]), *LISTING]
    command = in_merged(trees, place, command) if trees[1:] else command
    return sorted(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())


class TestSubtract:
    """What is left of a tree that others have in part."""

    def test_what_is_seen_stays_the_same(self, tmp_path: Path) -> None:
        files = {"a": "a", "same__deep__f": "f", "gone__deep__g": "g", "dir__x": "x", "dir__y": "y", "turns": "file"}
        below = fill(tmp_path / "below", **files)
        (below / "link").symlink_to("a")
        (below / "folder").mkdir()
        os.setxattr(below / "dir/y", "user.note", b"below")
        fill(below)
        root = tmp_path / "root"
        subprocess.run(["cp", "-a", str(below), str(root)], check=True)
        subprocess.run(["rm", "-r", str(root / "gone"), str(root / "turns"), str(root / "folder")], check=True)
        fill(root, a="A", turns__into="dir", folder="file", dir__new="n")
        os.setxattr(root / "dir/y", "user.note", b"own")
        os.link(root / "dir/x", root / "dir/again")
        (root / "empty").mkdir(mode=0o700)
        fill(root)
        (tmp_path / "place").mkdir()
        seen = listing([root], tmp_path / "place")
        subtract(root, [below])
        assert listing([root, below], tmp_path / "place") == seen
        own = {str(path.relative_to(root)) for path in root.rglob("*")}
        assert own == {
            *("a", "gone", "dir", "dir/x", "dir/y", "dir/again", "dir/new", "turns", "turns/into", "folder", "empty"),
        }
        assert stat.S_ISCHR((root / "gone").lstat().st_mode)
        assert topmost([root, below], "/gone/deep/g") is None

    def test_several_below(self, tmp_path: Path) -> None:
        lowest = fill(tmp_path / "lowest", a="a", b="b", c="c", d__e="e")
        middle = fill(tmp_path / "middle", b="B")
        os.mknod(middle / "c", stat.S_IFCHR, 0)
        fill(middle)
        root = fill(tmp_path / "root", a="a", b="b", d__e="e", d__f="f")
        (tmp_path / "place").mkdir()
        seen = listing([root], tmp_path / "place")
        subtract(root, [middle, lowest])
        assert listing([root, middle, lowest], tmp_path / "place") == seen
        assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["b", "d", "d/f"]


@pytest.fixture
def store(tmp_path: Path, terminal_image: Image) -> ImageStore:
    """With the images `small`, and `more`, which starts from it."""
    home = tmp_path / "home"
    home.mkdir()
    build_small_image(terminal_image, home)
    store = ImageStore(home)
    run = "run: ['rm /usr/bin/seq && echo more > /etc/motd']"
    store.build(write_spec(tmp_path / "more", f"image: small\n{run}\n"))
    return store


@pytest.mark.parametrize("backend", ["local", "docker"])
def test_a_sandbox_sees_both(store: ImageStore, tmp_path: Path, backend: str, request: pytest.FixtureRequest) -> None:
    if backend == "docker":
        request.getfixturevalue("docker_engine")
    small, more = store.get("small"), store.get("more")
    assert more.below == (small.rootfs,)
    assert not (more.rootfs / "usr/bin/bash").exists()
    with Cache(tmp_path / "home", backend=backend, policy="eager") as cache, cache.rollout("more") as rollout:
        result = rollout.call(
            "bash", {"command": "cat /etc/motd; ls /usr/bin/seq; rm /usr/bin/sort; mkdir /usr/bin/sort"}
        )
        assert result.output.splitlines()[0] == "more"
        assert "No such file" in result.output
        rollout.call("bash", {"command": "rm -r /usr/bin/sort /root; mkdir /root"})
        with cache.materialise(rollout.state) as fork:
            outcome = fork.exec("ls /usr/bin; cat /etc/motd", timeout=30)
            changes = fork.changes()
    names = outcome.output.decode().split()
    assert "seq" not in names
    assert "sort" not in names
    assert {"bash", "ls", "more"} <= set(names)
    assert changes["/usr/bin/sort"].kind == "deleted"
    assert "/usr/bin/seq" not in changes


def test_shared_files_go_with_the_last_image_that_needs_them(store: ImageStore, tmp_path: Path) -> None:
    small, more = store.get("small"), store.get("more")
    store.build(write_spec(tmp_path / "most", "image: more\nfiles: [{content: x, dest: /etc/most}]\n"))
    most = store.get("most")
    assert most.layers == (most.rootfs, more.rootfs, small.rootfs)
    store.remove("small")
    store.remove("more")
    with pytest.raises(ImageNotFound):
        store.get("small")
    assert [image.name for image in store.list()] == ["most"]
    found = topmost(store.get("most").layers, "/usr/bin/bash")
    assert found is not None
    store.remove("most")
    assert left_of_builds(tmp_path / "home") == []


def test_an_image_that_comes_back(store: ImageStore, tmp_path: Path, terminal_image: Image) -> None:
    digest = store.remove("small").digest
    again = build_small_image(terminal_image, tmp_path / "home")
    assert again.digest == digest
    store.remove("more")
    assert [image.name for image in store.list()] == ["small"]
