"""Looking at a sandbox's files from outside: what is opened lies where it seems to, and nothing is waited for."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tvsnap.plugins.docker.layers import unmask
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.local.storage.layers import CopyStorage
from tvsnap.sandboxes.looks.observing import ImageTree

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    (directory / "folder").mkdir(parents=True)
    (directory / "hosts").write_text("of the host")
    return directory


@pytest.fixture
def tree(tmp_path: Path, outside: Path) -> Path:
    """What a sandbox may leave: a file, and links of all kinds that lead out."""
    root = tmp_path / "tree"
    (root / "d/below").mkdir(parents=True)
    (root / "d/file").write_text("text")
    (root / "d/odd\udcff").write_text("odd")
    (root / "absolute").symlink_to(outside)
    (root / "climbs").symlink_to("../outside")
    (root / "d/up").symlink_to("../../outside/hosts")
    (root / "magic").symlink_to("/proc/self/root")
    (root / "circle").symlink_to("circle")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture
def root(tree: Path) -> Iterator[int]:
    with paths.directory(tree) as descriptor:
        yield descriptor


@pytest.mark.parametrize(
    "path",
    [
        "/absolute/hosts",
        "climbs/hosts",
        "/d/../climbs/hosts",
        "/magic/etc/hostname",
        "/circle",
        "circle/x",
        "/../outside",
    ],
)
def test_no_way_leads_out(root: int, path: str) -> None:
    for opening in (paths.open_in_root, paths.open_beneath):
        try:
            descriptor = opening(root, path)
        except OSError:
            continue
        assert path == "/circle", "only the link itself can be opened"
        assert stat.S_ISLNK(os.fstat(descriptor).st_mode)
        os.close(descriptor)


def test_links_are_followed_within(root: int, tree: Path) -> None:
    (tree / "within").symlink_to("/d/below/../file")
    descriptor = paths.open_in_root(root, "within")
    assert os.path.samestat(os.fstat(descriptor), (tree / "d/file").stat())
    os.close(descriptor)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        paths.open_beneath(root, "within", os.O_RDONLY)


def test_contents(root: int, tree: Path, outside: Path) -> None:
    same = tree / "same"
    same.write_text("text")
    assert paths.contents(root, "/d/file", 100) == paths.contents(root, "/same", 100) != None  # noqa: E711
    assert paths.contents(root, "/d/odd\udcff", 100) not in (None, paths.contents(root, "/same", 100))
    assert paths.contents(root, "/absolute", 100) == str(outside)
    for neither in ("/d", "/pipe", "/none", "/absolute/hosts", "/d/file/x"):
        assert paths.contents(root, neither, 100) is None
    assert paths.contents(root, "/same", 3) is None
    assert paths.contents(root, "/same", 4) is not None


@needs_root
def test_contents_of_a_device_and_a_socket(root: int, tree: Path) -> None:
    os.mknod(tree / "device", stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero has no end
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "s"))
        assert paths.contents(root, "/device", 1 << 40) is None
        assert paths.contents(root, "/s", 100) is None


def test_a_lease_is_not_waited_for(root: int, tree: Path) -> None:
    """The owner of a file may make others wait for it, for 45 seconds."""
    with open(tree / "d/file", "r+") as file:
        fcntl.fcntl(file, fcntl.F_SETSIG, 18)  # SIGCONT, which does nothing
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        assert paths.contents(root, "/d/file", 100) is None
    assert paths.contents(root, "/d/file", 100) is not None


def test_scan_sees_all_and_follows_nothing(root: int, tree: Path) -> None:
    expected = {str(path)[len(str(tree)) :] for path in tree.rglob("*")}
    assert {path for path, _ in paths.scan(root, "/")} == expected
    assert {path for path, _ in paths.scan(root, "/d")} == {"/d/below", "/d/file", "/d/odd\udcff", "/d/up"}
    for nothing in ("/absolute", "/absolute/folder", "/pipe", "/none"):
        assert list(paths.scan(root, nothing)) == []


def test_scan_while_links_take_the_place_of_directories(root: int, tree: Path, outside: Path) -> None:
    (tree / "racing").mkdir()
    (outside / "only-outside").touch()
    (tree / "link").symlink_to(outside)
    done = threading.Event()

    def race() -> None:
        while not done.is_set():
            (tree / "racing").rename(tree / "aside")
            (tree / "link").rename(tree / "racing")
            (tree / "racing").rename(tree / "link")
            (tree / "aside").rename(tree / "racing")

    racer = threading.Thread(target=race)
    racer.start()
    try:
        for _ in range(300):
            assert not [path for path, _ in paths.scan(root, "/") if path.endswith("only-outside")]
    finally:
        done.set()
        racer.join()


def test_an_image_ends_at_its_links(tree: Path, outside: Path) -> None:
    image = ImageTree(tree)
    assert image.directory("/d/below") is not None
    assert image.directory("") is not None
    assert image.directory("/absolute/folder") is None
    assert list(image.below("/absolute")) == []
    assert set(image.below("/d")) == {"/d/below", "/d/file", "/d/odd\udcff", "/d/up"}


@needs_root
def test_the_topmost_layer_hides_what_is_below(tmp_path: Path) -> None:
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    for name in ("deleted", "file", "kept"):
        (lower / name / "below").mkdir(parents=True)
    upper.mkdir()
    os.mknod(upper / "deleted", stat.S_IFCHR, os.makedev(0, 0))
    (upper / "file").write_text("")
    image = ImageTree(upper, lower)
    assert image.directory("/kept/below") is not None
    for hidden in ("/deleted", "/deleted/below", "/file/below"):
        assert image.directory(hidden) is None


@needs_root
def test_an_image_has_what_its_layers_have(tmp_path: Path) -> None:
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    for name in ("deleted", "file", "link", "both"):
        (lower / name / "below").mkdir(parents=True)
    (upper / "both").mkdir(parents=True)
    (upper / "link").symlink_to("both")
    (upper / "file").write_text("")
    os.mknod(upper / "deleted", stat.S_IFCHR, os.makedev(0, 0))
    image = ImageTree(upper, lower)
    for name in ("", "/", "/new", "/deleted", "/file", "/link", "/both"):
        for path in (name, f"{name}/below", f"{name}/below/below", f"{name}/new/below"):
            assert image.entry(path) == paths.topmost((upper, lower), path)


def test_files_of_new_directories_are_not_looked_for_in_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    topmost = paths.topmost

    def look(layers: Iterable[Path], path: str) -> tuple[Path, os.stat_result] | None:
        looked.append(path)
        return topmost(layers, path)

    monkeypatch.setattr(paths, "topmost", look)
    image = ImageTree(tmp_path)
    assert [image.entry(f"/new/{name}") for name in range(1000)] == [None] * 1000
    assert looked == ["/new"]


@needs_root
def test_no_file_of_the_host_is_laid_into_a_container(tmp_path: Path, outside: Path) -> None:
    """Its /etc was made a link: in the engine's storage, where no sandbox is around it, it leads to the host."""
    init, upper, lower = tmp_path / "init", tmp_path / "upper", tmp_path / "lower"
    (init / "etc").mkdir(parents=True)
    (init / "etc/hosts").write_text("")
    upper.mkdir()
    lower.mkdir()
    (lower / "etc").symlink_to(outside)
    unmask(init, upper, (lower,))
    assert stat.S_ISCHR((upper / "etc/hosts").lstat().st_mode), "it stands for no file"


def test_an_abyss_is_deleted(tmp_path: Path) -> None:
    storage = CopyStorage(tmp_path)
    storage.create(tmp_path / "layer")
    here = os.open(tmp_path / "layer", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    storage.delete(tmp_path / "layer")
    assert os.listdir(tmp_path) == []
