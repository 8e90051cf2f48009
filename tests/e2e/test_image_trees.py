"""Trees of files: archives that are unpacked, owners that are shifted, and what every image is given in the end."""

from __future__ import annotations

import contextlib
import decimal
import gzip
import os
import shutil
import stat
import struct
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.image_lab import CAP_NET_RAW, dir_member, file_member, link_member, silent, tar_of
from tvsnap.images import (
    UID_BASE,
)
from tvsnap.images.build.extract import extract_tar
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import finish_tree, make_directories, read_text, shift_owners, write_file
from tvsnap.model.errors import MachineLacks
from tvsnap.model.images import CAPABILITY_XATTR


class TestExtraction:
    @pytest.fixture
    def unpack(self, tmp_path: Path) -> Callable[..., Path]:
        """Unpacks members, or bytes, into a fresh tree, or one that is there."""

        def do(*members: Any, root: Path | None = None, layer: bool = False) -> Path:
            archive = tmp_path / "archive"
            archive.write_bytes(members[0] if isinstance(members[0], bytes) else tar_of(*members))
            tree = root or tmp_path / "tree"
            tree.mkdir(exist_ok=True)
            extract_tar(archive, tree, silent, layer=layer)
            return tree

        return do

    def test_all_kinds(self, unpack: Callable[..., Path]) -> None:
        tree = unpack(
            dir_member("./d", mode=0o750, mtime=1000),
            file_member("./d/f", b"text", mode=0o4755, uid=7, gid=8, mtime=2000),
            link_member("./d/s", "/anywhere"),
            link_member("./d/h", "./d/f", tarfile.LNKTYPE),
            ("./d/p", {"type": tarfile.FIFOTYPE, "mode": 0o600}, b""),
            ("./d/null", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}, b""),
            ("./d/disk", {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0}, b""),
            file_member("/absolute/name", b"here"),
        )
        info = (tree / "d/f").stat()
        assert (tree / "d/f").read_bytes() == b"text"
        assert (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, info.st_mtime) == (0o4755, 7, 8, 2000)
        assert info.st_nlink == 2
        assert (tree / "d/h").samefile(tree / "d/f")
        assert os.readlink(tree / "d/s") == "/anywhere"
        assert (tree / "d/p").is_fifo()
        assert sorted(path.name for path in (tree / "d").iterdir()) == ["f", "h", "p", "s"]
        assert (tree / "d").stat().st_mtime == 1000
        assert stat.S_IMODE((tree / "d").stat().st_mode) == 0o750
        assert (tree / "absolute/name").read_bytes() == b"here"

    @pytest.mark.parametrize("said", ["1234567890.757858364", "-12.000000001", "12."])
    def test_times_to_the_nanosecond(self, unpack: Callable[..., Path], said: str) -> None:
        header = {"mtime": said}
        tree = unpack(dir_member("d", pax_headers=header), file_member("d/f", pax_headers=header))
        expected = round(decimal.Decimal(said) * 10**9)
        assert (tree / "d").stat().st_mtime_ns == (tree / "d/f").stat().st_mtime_ns == expected

    @pytest.mark.parametrize("said", ["nan", "inf", "1e300", f"{1 << 62}"])
    @pytest.mark.parametrize("make", [dir_member, file_member])
    def test_times_out_of_range(self, unpack: Callable[..., Path], make: Callable[..., Any], said: str) -> None:
        with pytest.raises(BuildStepFailed, match="is damaged"):
            unpack(make("d", pax_headers={"mtime": said}))

    @pytest.mark.parametrize("compress", ["gz", "bz2", "xz", "zst"])
    def test_compressed(self, unpack: Callable[..., Path], compress: str) -> None:
        tool = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstd"}[compress]
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing")
        plain = tar_of(file_member("f", b"text" * 1000))
        packed = subprocess.run([tool, "-c"], input=plain, capture_output=True, check=True).stdout
        assert (unpack(packed) / "f").read_bytes() == b"text" * 1000

    def test_zstd_is_missing(self, unpack: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        with pytest.raises(MachineLacks, match="apt-get install zstd"):
            unpack(b"\x28\xb5\x2f\xfd rest")

    @pytest.mark.parametrize(
        "archive",
        [b"no tar", b"x" * 2000, tar_of(file_member("f", b"long" * 1000))[:2000], gzip.compress(b"x" * 9999)[:-9]],
    )
    def test_damaged(self, unpack: Callable[..., Path], archive: bytes) -> None:
        with pytest.raises(BuildStepFailed, match="is no tar archive or damaged"):
            unpack(archive)

    @pytest.mark.parametrize(
        "members",
        [
            [file_member("../escaped")],
            [file_member("a/../../escaped")],
            [dir_member("..", mode=0o777)],
            [link_member("l", "../escaped", tarfile.LNKTYPE)],
            [link_member("d", "/"), link_member("l", "d/../escaped", tarfile.LNKTYPE)],
            [link_member("l", "/etc/passwd", tarfile.LNKTYPE)],
            [link_member("d", "/etc"), link_member("l", "d/passwd", tarfile.LNKTYPE)],
            [dir_member("d"), link_member("l", "d", tarfile.LNKTYPE)],
            [link_member(".", "/etc")],
            [file_member("f", uid=70000)],
            [file_member("f", gid=70000)],
        ],
    )
    def test_hostile(self, unpack: Callable[..., Path], members: list[Any], tmp_path: Path) -> None:
        with pytest.raises(BuildStepFailed):
            unpack(*members)
        assert not (tmp_path / "escaped").exists()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "tree"]

    @pytest.mark.parametrize("target", ["{outside}", "../outside", "../../../../../../../../../..{outside}"])
    def test_links_to_the_outside_are_not_followed(
        self, unpack: Callable[..., Path], tmp_path: Path, target: str
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "kept").write_text("kept")
        target = target.format(outside=outside)
        unpack(
            link_member("link", target),
            file_member("link/new"),
            file_member("link/kept", b"changed"),
            dir_member("link/dir"),
            link_member("file", f"{target}/kept"),
            file_member("file", b"changed"),
        )
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"kept": "kept"}

    def test_a_directory_is_not_put_through_a_link(self, unpack: Callable[..., Path], tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir(mode=0o700)
        tree = unpack(link_member("d", str(outside)), dir_member("d", mode=0o777, uid=9))
        assert (tree / "d").is_dir()
        assert not (tree / "d").is_symlink()
        assert (stat.S_IMODE(outside.stat().st_mode), outside.stat().st_uid) == (0o700, 0)

    def test_extended_attributes(self, unpack: Callable[..., Path], tmp_path: Path) -> None:
        capability = struct.pack("<5I", 0x02000001, CAP_NET_RAW, 0, 0, 0)
        source = tmp_path / "source"
        source.write_text("")
        os.setxattr(source, CAPABILITY_XATTR, capability)
        os.setxattr(source, "trusted.overlay.opaque", b"y")
        subprocess.run(
            ["tar", "--xattrs", "--xattrs-include=*", "-cf", "packed.tar", "source"], cwd=tmp_path, check=True
        )
        tree = unpack((tmp_path / "packed.tar").read_bytes())
        assert os.listxattr(tree / "source") == [CAPABILITY_XATTR]
        assert os.getxattr(tree / "source", CAPABILITY_XATTR) == capability

    def test_whiteouts(self, unpack: Callable[..., Path]) -> None:
        tree = unpack(file_member("gone"), file_member("dir/gone"), file_member("dir/kept"), file_member("opaque/old"))
        unpack(
            file_member(".wh.gone"),
            file_member("dir/.wh.gone"),
            file_member("opaque/new"),
            file_member("opaque/.wh..wh..opq"),
            file_member("opaque/later"),
            file_member(".wh..wh.plnk"),
            file_member("added"),
            file_member(".wh.added"),
            root=tree,
            layer=True,
        )
        files = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())
        assert files == ["added", "dir/kept", "opaque/later", "opaque/new"]

    @pytest.mark.parametrize("name", [".wh...", ".wh.", ".wh..", "d/../.wh.kept", "link/.wh.kept"])
    def test_hostile_whiteouts(self, unpack: Callable[..., Path], tmp_path: Path, name: str) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "kept").write_text("")
        tree = unpack(link_member("link", str(outside)), file_member("kept"), dir_member("d"))
        with contextlib.suppress(BuildStepFailed):
            unpack(file_member(name), root=tree, layer=True)
        assert (outside / "kept").exists()
        assert (tree / "kept").exists()


class TestShift:
    def test_every_inode_once(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        root.mkdir()
        (root / "file").write_text("x")
        os.chown(root / "file", 1000, 65535)
        os.link(root / "file", root / "same")
        (root / "link").symlink_to("/etc/passwd")
        before = Path("/etc/passwd").stat().st_uid
        shift_owners(root)
        owners = {path.name: (path.lstat().st_uid, path.lstat().st_gid) for path in [root, *root.iterdir()]}
        assert owners == {
            "root": (UID_BASE, UID_BASE),
            "file": (UID_BASE + 1000, UID_BASE + 65535),
            "same": (UID_BASE + 1000, UID_BASE + 65535),
            "link": (UID_BASE, UID_BASE),
        }
        assert Path("/etc/passwd").stat().st_uid == before

    def test_special_bits_and_capabilities_stay(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        root.mkdir()
        for name, mode in (("setuid", 0o4755), ("setgid", 0o2755), ("capable", 0o755)):
            (root / name).write_text("")
            (root / name).chmod(mode)
        (root / "shared").mkdir()
        (root / "shared").chmod(0o3777)
        os.setxattr(root / "capable", CAPABILITY_XATTR, struct.pack("<5I", 0x02000001, CAP_NET_RAW, 0, 0, 0))
        shift_owners(root)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()}
        assert modes == {"setuid": 0o4755, "setgid": 0o2755, "capable": 0o755, "shared": 0o3777}
        value = os.getxattr(root / "capable", CAPABILITY_XATTR)
        assert struct.unpack("<6I", value) == (0x03000001, CAP_NET_RAW, 0, 0, 0, UID_BASE)

    def test_owner_out_of_range(self, tmp_path: Path) -> None:
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep/file").write_text("")
        os.chown(tmp_path / "deep/file", 100000, 0)
        with pytest.raises(BuildStepFailed, match="/deep/file belongs to user 100000; 65535 is the last"):
            shift_owners(tmp_path)

    def test_marks_of_overlayfs_go(self, tmp_path: Path) -> None:
        (tmp_path / "dir").mkdir()
        os.setxattr(tmp_path / "dir", "trusted.overlay.opaque", b"y")
        shift_owners(tmp_path)
        assert os.listxattr(tmp_path / "dir") == []


class TestFinish:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        root = tmp_path / "tree"
        (root / "dev").mkdir(parents=True)
        os.mknod(root / "dev/sda", stat.S_IFBLK | 0o600, os.makedev(8, 0))
        os.mknod(root / "console", stat.S_IFCHR | 0o600, os.makedev(5, 1))
        (root / "proc").symlink_to("/etc")
        (root / "etc").mkdir()
        (root / "etc/resolv.conf").symlink_to("/etc/passwd")
        (root / "file").write_text("text")
        os.link(root / "file", root / "same")
        shift_owners(root)
        return root

    def test_what_a_sandbox_finds(self, tree: Path) -> None:
        before = Path("/etc/passwd").read_bytes()
        finish_tree(tree, "box", silent)
        names = {path.name for path in tree.iterdir()}
        assert names == {"dev", "etc", "file", "proc", "run", "same", "sys", "tmp"}
        assert list((tree / "dev").iterdir()) == []
        assert not (tree / "proc").is_symlink()
        assert stat.S_IMODE((tree / "tmp").stat().st_mode) == 0o1777
        assert (tree / "etc/hostname").read_text() == "box\n"
        assert "127.0.1.1\tbox\n" in (tree / "etc/hosts").read_text()
        assert (tree / "etc/resolv.conf").read_bytes() == b""
        assert {path.lstat().st_uid for path in tree.rglob("*")} == {UID_BASE}
        assert Path("/etc/passwd").read_bytes() == before

    def test_nobodys_file(self, tree: Path) -> None:
        os.chown(tree / "file", 0, 0)
        with pytest.raises(BuildStepFailed, match="/file belongs to nobody inside"):
            finish_tree(tree, "box", silent)

    def test_digest(self, tree: Path) -> None:
        def change_content() -> None:
            (tree / "file").write_text("taxt")

        def break_link() -> None:
            (tree / "same").unlink()
            write_file(tree, "same", (tree / "file").read_bytes())

        changes: list[Callable[[], object]] = [
            change_content,
            break_link,
            lambda: (tree / "file").chmod(0o600),
            lambda: os.chown(tree / "file", UID_BASE + 1, UID_BASE),
            lambda: (tree / "file").rename(tree / "renamed"),
            lambda: os.setxattr(tree / "renamed", "user.note", b"1"),
            lambda: make_directories(tree, "empty", UID_BASE),
        ]
        digests = [finish_tree(tree, "box", silent).digest]
        os.utime(tree / "file", (1, 1))
        assert finish_tree(tree, "box", silent).digest == digests[0]
        for change in changes:
            change()
            digests.append(finish_tree(tree, "box", silent).digest)
        assert len(set(digests)) == len(changes) + 1


class TestPathsInside:
    def test_nothing_is_written_or_read_outside(self, tmp_path: Path) -> None:
        outside, root = tmp_path / "outside", tmp_path / "root"
        outside.mkdir()
        (outside / "passwd").write_text("secret")
        root.mkdir()
        (root / "etc").symlink_to(outside)
        assert read_text(root, "etc/passwd") == ""
        write_file(root, "/etc/hosts", b"new")
        make_directories(root, "/etc/deep/er")
        assert sorted(path.name for path in outside.iterdir()) == ["passwd"]
