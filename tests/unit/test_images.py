"""Images: what image.yaml may say, what comes of it, and what must not come of what is hostile or fails."""

from __future__ import annotations

import contextlib
import decimal
import errno
import functools
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli.image import register
from tvsnap.host.home import resolve_home
from tvsnap.images import (
    UID_BASE,
    Image,
    ImageBuildError,
    ImageNotFound,
    ImageSpecError,
    ImageStore,
    find_source,
    load_spec,
    shipped_images,
)
from tvsnap.images.build.builder import recipe_of
from tvsnap.images.build.extract import extract_tar
from tvsnap.images.descriptions.spec import DebianBase, FileCopy, OciBase
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.oci import this_architecture
from tvsnap.images.rootfs import finish_tree, make_directories, read_text, resolve_inside, shift_owners, write_file
from tvsnap.model.errors import MachineLacks, NotFound, TvsnapError, UsageError
from tvsnap.model.images import CAPABILITY_XATTR

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root's rights")

CHECKOUT = Path(__file__).parents[2]
CAP_NET_RAW = 1 << 13


def silent(done: float | None) -> None:
    """A measure of progress that nobody watches."""


class Recorder:
    """Progress, remembered."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.lines: list[str] = []
        self.fractions: list[float | None] = []
        self.notes: list[str] = []

    def step(self, index: int, total: int, text: str) -> None:
        self.steps.append(f"{index}/{total} {text}")

    def output(self, line: str) -> None:
        self.lines.append(line)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def fraction(self, done: float | None) -> None:
        self.fractions.append(done)


@pytest.fixture
def store(tmp_path: Path, small_system: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    """An empty store, whose images may start from what tests made."""
    build = functools.partialmethod(ImageStore.build, allow=(tmp_path, small_system))
    monkeypatch.setattr(ImageStore, "build", build)
    return ImageStore(tmp_path / "home")


@pytest.fixture(scope="session")
def small_system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root filesystem with a shell and a few programs of this machine: enough to run steps in."""
    root = tmp_path_factory.mktemp("small") / "rootfs"
    for name in ("sh", "cat", "chmod", "id", "ln", "ls", "mkdir", "mknod", "sleep", "touch"):
        program = shutil.which(name)
        assert program is not None
        add_program(root, program, f"bin/{name}")
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1001::/home/agent:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nagents:x:1001:\n")
    return root


def add_program(root: Path, program: str, dest: str) -> None:
    """Copies a program and the libraries that it needs."""
    libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    needed = [word for word in libraries.split() if word.startswith("/")]
    for path, target in [(program, dest), *((path, path) for path in needed)]:
        copy = root / target.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copy(path, copy)


def write_spec(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "image.yaml").write_text(text)
    return folder


def tar_of(*members: tuple[str, dict[str, Any], bytes]) -> bytes:
    """A tar of members: name, fields of TarInfo, contents."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, fields, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for field, value in fields.items():
                setattr(member, field, value)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def file_member(name: str, content: bytes = b"x", **fields: object) -> tuple[str, dict[str, Any], bytes]:
    return name, {"mode": 0o644, **fields}, content


def dir_member(name: str, **fields: object) -> tuple[str, dict[str, Any], bytes]:
    return name, {"type": tarfile.DIRTYPE, "mode": 0o755, **fields}, b""


def link_member(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[str, dict[str, Any], bytes]:
    return name, {"type": kind, "linkname": target}, b""


def left_of_builds(home: Path) -> list[str]:
    images = home / "images"
    return sorted(path.name for path in images.iterdir() if path.name not in ("names", "recipes"))


class TestSpec:
    def test_everything(self, tmp_path: Path) -> None:
        (tmp_path / "img/data").mkdir(parents=True)
        (tmp_path / "img/data/a.txt").write_text("a")
        folder = write_spec(
            tmp_path / "img",
            """
            name: mine
            environment: terminal
            debian: {suite: trixie, mirror: "http://archive.example/debian"}
            packages: [bash, g++, bash]
            files:
              - {source: data, dest: /srv/}
              - {source: data/a.txt, dest: /srv/, owner: "agent:agents"}
              - {content: "hello", dest: /etc/motd, mode: "0600"}
            run: [echo hi]
            env: {LANG: C.UTF-8}
            workdir: /app/
            user: 1000
            hostname: box
            no_new_privileges: false
            """,
        )
        spec = load_spec(folder)
        assert spec.base == DebianBase("trixie", "http://archive.example/debian")
        assert spec.packages == ("bash", "g++")
        assert spec.files == (
            FileCopy(folder / "data", None, "/srv/", None, "root"),
            FileCopy(folder / "data/a.txt", None, "/srv/a.txt", None, "agent:agents"),
            FileCopy(None, "hello", "/etc/motd", 0o600, "root"),
        )
        assert (spec.name, spec.run, spec.env) == ("mine", ("echo hi",), {"LANG": "C.UTF-8"})
        assert (spec.workdir, spec.user, spec.hostname) == ("/app", "1000", "box")
        assert spec.no_new_privileges is False

    def test_defaults(self, tmp_path: Path) -> None:
        spec = load_spec(write_spec(tmp_path / "plain", "debian:"))
        assert spec.name == "plain"
        assert spec.environment == "terminal"
        assert spec.base == DebianBase("bookworm", None)
        assert (spec.packages, spec.files, spec.run, spec.env) == ((), (), (), {})

    def test_oci_with_a_tag(self, tmp_path: Path) -> None:
        (tmp_path / "layout").mkdir()
        folder = write_spec(tmp_path / "img", "oci: {path: ../layout, tag: v1}")
        assert load_spec(folder, [tmp_path / "layout"]).base == OciBase(folder / "../layout", "v1")

    @pytest.mark.parametrize("said", ["directory: ../tree", "tar: ../a.tar", "oci: {path: ../tree}", "directory: link"])
    def test_a_base_outside_the_folder(self, tmp_path: Path, said: str) -> None:
        """A description that came from elsewhere names what is the user's: only with leave."""
        (tmp_path / "tree").mkdir()
        (tmp_path / "a.tar").touch()
        folder = write_spec(tmp_path / "img", said)
        (folder / "link").symlink_to("../tree")
        for allow in ([], [tmp_path / "tr"]):
            with pytest.raises(ImageSpecError, match=r"lies outside the image's folder; .*--allow"):
                load_spec(folder, allow)
        load_spec(folder, [tmp_path])

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "must be a mapping with the keys name, environment, debian"),
            ("[1]", "must be a mapping"),
            ("packages: [git]", "exactly one of these keys .*: debian, directory, tar, oci"),
            ("debian:\ntar: x.tar", "exactly one of these keys"),
            ("debian:\npackagse: [git]", "packagse: unknown key; allowed here: .*packages"),
            ("debian: {siute: sid}", "debian.siute: unknown key; allowed here: suite, mirror"),
            ("debian: {suite: 12}", r"debian.suite: must be .*, not a number \(12\)"),
            ("debian: bookworm", "debian: must be a mapping with the keys suite, mirror, not a string"),
            ("debian: {mirror: somewhere}", "debian.mirror: must be an archive's address as http://"),
            ("debian:\npackages: git", "packages: must be a list, not a string"),
            ("debian:\npackages: [git, 3]", r"packages\[1\]: must be a package's name, not a number"),
            ("debian:\npackages: ['git; rm -rf /']", r"packages\[0\]: must be a package's name, not 'git; rm"),
            ("debian:\npackages: [--force]", r"packages\[0\]: must be a package's name"),
            ("debian:\nrun: [[ls]]", r"run\[0\]: must be a shell command, not a list"),
            ("debian:\nrun: ['  ']", r"run\[0\]: is an empty command"),
            ("debian:\nenv: {A: 1}", r"env.A: must be a string \(in quotes\), not a number"),
            ("debian:\nenv: {'A-B': x}", "env.A-B: no name for a variable"),
            ("debian:\nenv: [A]", "env: must be a mapping"),
            ("debian:\nworkdir: app", "workdir: must be an absolute path without '..', not 'app'"),
            ("debian:\nworkdir: /app/../..", "workdir: must be an absolute path"),
            ("debian:\nuser: 'a b'", "user: must be user or user:group"),
            ("debian:\nno_new_privileges: 'no'", "no_new_privileges: must be true or false, not a string"),
            ("debian:\nhostname: A_B", "hostname: must be a host name"),
            ("debian:\nname: 'Up Per'", "name: must be .*lower-case letters"),
            ("directory: nowhere", "directory: .*nowhere does not exist; it must be a directory with a root"),
            ("directory: image.yaml", "directory: .*image.yaml is not a directory"),
            ("tar: .", "tar: .* is not a tar archive"),
            ("oci: {tag: a}", "oci: the key path must name"),
            ("debian:\nfiles: [{dest: /a}]", r"files\[0\]: needs exactly one of source .* and content"),
            ("debian:\nfiles: [{dest: /a, source: image.yaml, content: x}]", r"files\[0\]: needs exactly one of"),
            ("debian:\nfiles: [{content: x}]", r"files\[0\]: needs dest"),
            ("debian:\nfiles: [{content: x, dest: a}]", r"files\[0\].dest: must be an absolute path"),
            ("debian:\nfiles: [{content: x, dest: /a/}]", r"files\[0\].dest: must name the file"),
            ("debian:\nfiles: [{content: x, dest: /a, mode: 0644}]", r'files\[0\].mode: must be octal .* as "0644"'),
            ("debian:\nfiles: [{content: x, dest: /a, mode: '9'}]", r"files\[0\].mode: must be octal digits"),
            ("debian:\nfiles: [{source: ., dest: /a, mode: '0644'}]", r"files\[0\].mode: is for single files"),
            ("debian:\nfiles: [{source: ../o, dest: /a}]", r"files\[0\].source: .*does not exist"),
            ("debian:\nfiles: [{source: /etc/passwd, dest: /a}]", r"files\[0\].source: .*outside the image's folder"),
            ("debian:\ndebian:", "line 2, column 1: the key 'debian' is given twice"),
            ("debian: {", "line 1, column 10: "),
        ],
    )
    def test_mistakes(self, tmp_path: Path, text: str, complaint: str) -> None:
        folder = write_spec(tmp_path / "img", text)
        with pytest.raises(ImageSpecError, match=complaint) as caught:
            load_spec(folder)
        assert str(caught.value).startswith(str(folder / "image.yaml"))
        assert "\n" not in str(caught.value)
        assert caught.value.exit_status == 2

    def test_a_link_does_not_lead_out_of_the_folder(self, tmp_path: Path) -> None:
        folder = write_spec(tmp_path / "img", "debian:\nfiles: [{source: link, dest: /a}]")
        (folder / "link").symlink_to("/etc/passwd")
        with pytest.raises(ImageSpecError, match="outside the image's folder"):
            load_spec(folder)

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ImageSpecError, match=r"image.yaml: No such file"):
            load_spec(tmp_path)

    def test_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "image.yaml").write_bytes(b"debian: \xff")
        with pytest.raises(ImageSpecError, match="not UTF-8"):
            load_spec(tmp_path)

    def test_shipped(self) -> None:
        folder = find_source("terminal")
        assert folder == shipped_images()["terminal"] == CHECKOUT / "images/terminal"
        spec = load_spec(folder)
        assert (spec.name, spec.environment, spec.workdir) == ("terminal", "terminal", "/app")
        assert {"bash", "git", "python3", "tmux", "vim", "less", "gcc", "make"} <= set(spec.packages)

    def test_no_such_source(self, tmp_path: Path) -> None:
        with pytest.raises(ImageNotFound, match=r'"nope" is neither .*terminal.* nor a folder'):
            find_source("nope")
        with pytest.raises(ImageNotFound, match=r"has none of image.yaml"):
            find_source(tmp_path)


class TestHome:
    def test_order(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TVSNAP_HOME", str(tmp_path / "from-environment"))
        assert resolve_home(tmp_path / "given") == tmp_path / "given"
        assert resolve_home() == tmp_path / "from-environment"
        assert stat.S_IMODE((tmp_path / "given").stat().st_mode) == 0o700

    def test_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TVSNAP_HOME", raising=False)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert resolve_home() == tmp_path / "tvsnap"

    def test_no_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="is no directory; choose another with --home"):
            resolve_home(tmp_path / "file")
        with pytest.raises(UsageError, match="is no directory"):
            resolve_home(tmp_path / "file" / "below")

    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (errno.ENOENT, UsageError),
            (errno.EPERM, UsageError),
            (errno.ENAMETOOLONG, UsageError),
            (errno.EACCES, MachineLacks),
            (errno.EROFS, MachineLacks),
            (errno.ENOSPC, MachineLacks),
        ],
    )
    def test_no_directory_can_be_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TvsnapError]
    ) -> None:
        def fail(*_arguments: object, **_options: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Path, "mkdir", fail)
        with pytest.raises(TvsnapError, match=f"{os.strerror(number)}; choose another with --home") as raised:
            resolve_home(tmp_path / "home")
        assert type(raised.value) is kind

    def test_no_rights(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(MachineLacks, match="no rights to read and write"):
            resolve_home(tmp_path)


class TestPathsInside:
    def test_links_stay_inside(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        (root / "usr/lib").mkdir(parents=True)
        (root / "lib").symlink_to("usr/lib")
        (root / "absolute").symlink_to("/usr")
        (root / "up").symlink_to("../../../../usr")
        assert resolve_inside(root, "/lib/a") == root / "usr/lib/a"
        assert resolve_inside(root, "absolute/lib/a") == root / "usr/lib/a"
        assert resolve_inside(root, "up/lib/a") == root / "usr/lib/a"
        assert resolve_inside(root, "lib") == root / "lib"
        assert resolve_inside(root, "lib", follow=True) == root / "usr/lib"
        assert resolve_inside(root, "/") == resolve_inside(root, ".") == root

    def test_refused(self, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(BuildStepFailed, match="leads out of the image"):
            resolve_inside(tmp_path, "a/../b")
        with pytest.raises(BuildStepFailed, match="round in a circle"):
            resolve_inside(tmp_path, "loop/a")

    @needs_root
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

    def test_something_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(BuildStepFailed, match="could not make the directory file/a: something else is in its"):
            make_directories(tmp_path, "file/a", os.getuid())


@needs_root
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


@needs_root
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


@needs_root
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


@needs_root
class TestBuild:
    def test_directory(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        (tmp_path / "img/tools").mkdir(parents=True)
        (tmp_path / "img/tools/run-me").write_text("#!/bin/sh\n")
        (tmp_path / "img/tools/run-me").chmod(0o755)
        (tmp_path / "img/tools/link").symlink_to("run-me")
        folder = write_spec(
            tmp_path / "img",
            f"""
            directory: {small_system}
            files:
              - {{content: "hello\\n", dest: /etc/greeting, mode: "0640", owner: agent}}
              - {{source: tools, dest: /opt/tools/}}
            run:
              - cat /etc/greeting > /result; echo printed
              - |
                echo "$COLOUR $PWD $HOME $(id -u)" > seen
                mkdir /made
            env: {{COLOUR: blue}}
            workdir: /srv/here
            user: agent
            """,
        )
        progress = Recorder()
        image = store.build(folder, progress=progress)
        root = image.rootfs
        assert (image.name, image.environment, image.workdir, image.user) == ("img", "terminal", "/srv/here", "agent")
        assert image.env["COLOUR"] == "blue"
        assert "/usr/bin" in image.env["PATH"]
        assert len(image.digest) == 64
        assert root == tmp_path / "home/images" / image.digest / "rootfs"
        assert image.size >= (small_system / "bin/sh").stat().st_size
        assert (root / "result").read_text() == "hello\n"
        assert (root / "srv/here/seen").read_text() == "blue /srv/here /root 0\n"
        info = (root / "etc/greeting").stat()
        assert (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid) == (0o640, UID_BASE + 1000, UID_BASE + 1001)
        assert stat.S_IMODE((root / "opt/tools/run-me").stat().st_mode) == 0o755
        assert os.readlink(root / "opt/tools/link") == "run-me"
        assert {UID_BASE, UID_BASE + 1000} == {path.lstat().st_uid for path in root.rglob("*")}
        assert progress.steps == [
            f"1/5 copy of {small_system}",
            "2/5 files: /etc/greeting, /opt/tools/",
            '3/5 run "cat /etc/greeting > /result; echo printed"',
            '4/5 run "echo "$COLOUR $PWD $HOME $(id -u)" > seen ..."',
            "5/5 finish",
        ]
        assert progress.lines == ["printed"]
        assert "printed" in root.with_name("build.log").read_text()
        assert left_of_builds(tmp_path / "home") == [image.digest]
        assert store.get("img") == image

    @pytest.mark.parametrize(
        ("said", "more", "expected"),
        [
            ("", "", True),
            ("user: 0:0", "", True),
            ("user: agent", "", False),
            ("user: agent\nno_new_privileges: true", "", True),
            ("no_new_privileges: false", "", False),
            ("", "user: agent", False),
            ("user: agent", "user: root", True),
            ("user: agent\nno_new_privileges: true", "hostname: other", True),
            ("no_new_privileges: false", "hostname: other", False),
            ("no_new_privileges: false", "no_new_privileges: true", True),
        ],
    )
    def test_no_new_privileges(
        self, store: ImageStore, small_system: Path, tmp_path: Path, said: str, more: str, expected: bool
    ) -> None:
        """By default where the user is root; what an image says against that holds for those that start from it."""
        image = store.build(write_spec(tmp_path / "base", f"directory: {small_system}\n{said}"))
        if more:
            image = store.build(write_spec(tmp_path / "other", f"image: base\n{more}"))
        assert image.no_new_privileges is expected
        assert store.manifest(image).no_new_privileges is expected

    def test_no_new_privileges_make_another_image(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        """As what is recorded with one must not be answered with the other."""
        texts = [f"directory: {small_system}{more}" for more in ("", "\nno_new_privileges: false")]
        one, other = (store.build(write_spec(tmp_path / "img", text)) for text in texts)
        assert one.digest != other.digest

    def test_unchanged_is_instant_and_changed_is_not(
        self, store: ImageStore, small_system: Path, tmp_path: Path
    ) -> None:
        system = tmp_path / "system"
        shutil.copytree(small_system, system)
        folder = write_spec(tmp_path / "img", f"directory: {system}\nfiles: [{{source: data, dest: /data}}]")
        (folder / "data").write_text("1")

        def built() -> tuple[Image, bool]:
            progress = Recorder()
            image = store.build(folder, progress=progress)
            return image, bool(progress.steps)

        first, _ = built()
        assert built() == (first, False)
        # What counts is what is in the files, but a base is looked at only from outside.
        os.utime(folder / "data", (1, 1))
        assert built() == (first, False)
        (system / "etc/passwd").touch()
        assert built() == (first, True)
        (folder / "data").write_text("2")
        second, _ = built()
        assert second.digest != first.digest
        (folder / "data").chmod(0o600)
        third, _ = built()
        assert third.digest != second.digest
        (folder / "data").write_text("1")
        (folder / "data").chmod(0o644)
        assert built() == (first, False)

    def test_recipe_depends_on_what_is_said(self, small_system: Path, tmp_path: Path) -> None:
        def recipe(more: str) -> str:
            folder = write_spec(tmp_path / "img", f"directory: {small_system}\n{more}")
            return recipe_of(load_spec(folder, [small_system]))

        variants = ["", "run: [a]", "run: [a, b]", "env: {A: b}", "workdir: /x", "user: agent", "hostname: x"]
        variants += [
            "packages: [aa]",
            "files: [{content: x, dest: /a}]",
            "files: [{content: x, dest: /a, mode: '600'}]",
        ]
        variants += ["files: [{content: x, dest: /a, owner: agent}]", "environment: sqlite"]
        assert len({recipe(more) for more in variants}) == len(variants)
        assert recipe("packages: [aa, bb]") == recipe("packages: [bb, aa]  # sorted")
        assert recipe("name: other") == recipe("")

    def test_tar_is_like_its_directory(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        archive = tmp_path / "system.tar.gz"
        subprocess.run(["tar", "-C", small_system, "-czf", archive, "."], check=True)
        progress = Recorder()
        from_tar = store.build(write_spec(tmp_path / "a", f"tar: {archive}\nrun: [touch /x]"), progress=progress)
        from_directory = store.build(write_spec(tmp_path / "b", f"directory: {small_system}\nrun: [touch /x]"))
        assert from_tar.digest == from_directory.digest
        assert from_tar.name == "a"
        assert any(done is not None and 0 < done <= 1 for done in progress.fractions)

    def test_steps_are_isolated(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        mounts = Path("/proc/self/mounts").read_text()
        progress = Recorder()
        folder = write_spec(
            tmp_path / "img",
            f"""
            directory: {small_system}
            run:
              - echo "pid $$"; cat /proc/self/uid_map; ls /proc/1/root; echo x > /dev/null
              - "! mknod /disk b 8 0 2> /dev/null"
              - "! echo 1 > /proc/sys/kernel/sysrq"
              - "(sleep 1000 &)"
            """,
        )
        started = time.monotonic()
        store.build(folder, progress=progress)
        assert time.monotonic() - started < 60
        assert progress.lines[0] == "pid 1"
        assert progress.lines[1].split() == ["0", str(UID_BASE), "65536"]
        assert "home" not in progress.lines
        assert Path("/proc/self/mounts").read_text() == mounts

    def test_a_failing_step_leaves_nothing(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        folder = write_spec(
            tmp_path / "img",
            f"""
            directory: {small_system}
            run:
              - touch /fine
              - |
                echo "no rule to make target"
                false_start || exit 7
            """,
        )
        with pytest.raises(ImageBuildError) as caught:
            store.build(folder)
        error = caught.value
        assert error.step == 'image img: step 3 of 4: run "echo "no rule to make target" ..."'
        assert str(error) == f"{error.step} failed with exit status 7"
        assert error.output.splitlines()[0] == "no rule to make target"
        assert error.exit_status == 1
        assert left_of_builds(tmp_path / "home") == []
        assert store.list() == []

    @pytest.mark.parametrize(
        ("more", "complaint"),
        [
            ("user: ghost", r'step 2 of 2: finish failed: the image has no user "ghost"; it has: root, agent'),
            ("user: '70000'", "user 70000 is beyond 65535"),
            ("files: [{content: x, dest: /a, owner: 'root:ghosts'}]", 'files: /a failed: the image has no group "gho'),
            ("files: [{content: x, dest: /bin/sh/a}]", "could not make the directory /bin/sh: something else is in"),
            ("workdir: /bin/sh", "could not make the directory /bin/sh: something else"),
            ("packages: [hello]", "step 2 of 3: packages: hello failed with exit status 127"),
            ("run: ['kill -9 $$']", "step 2 of 3"),
        ],
    )
    def test_other_failures(
        self, store: ImageStore, small_system: Path, tmp_path: Path, more: str, complaint: str
    ) -> None:
        folder = write_spec(tmp_path / "img", f"directory: {small_system}\n{more}")
        if "kill" in more:
            store.build(folder)  # the first process of a namespace cannot kill itself
            return
        with pytest.raises(ImageBuildError, match=complaint):
            store.build(folder)
        assert left_of_builds(tmp_path / "home") == []

    def test_no_shell(self, store: ImageStore, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        folder = write_spec(tmp_path / "img", f"directory: {tmp_path / 'empty'}\nrun: [ls]")
        with pytest.raises(ImageBuildError, match=r'run "ls" could not start: .*/bin/sh'):
            store.build(folder)

    def test_no_rights(self, store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = write_spec(tmp_path / "img", "debian:")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(MachineLacks, match="needs root's rights"):
            store.build(folder)

    def test_no_bootstrap_program(self, store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        with pytest.raises(MachineLacks, match="apt-get install mmdebstrap"):
            store.build(write_spec(tmp_path / "img", "debian:"))
        assert left_of_builds(tmp_path / "home") == []

    def test_no_right_to_make_namespaces(self, small_system: Path, tmp_path: Path) -> None:
        folder = write_spec(tmp_path / "img", f"directory: {small_system}")
        build = [sys.executable, "-c", BUILDER, str(CHECKOUT), str(tmp_path), str(folder)]
        result = subprocess.run(
            ["setpriv", "--bounding-set=-sys_admin", *build], capture_output=True, text=True, check=False
        )
        assert "MachineLacks: this machine does not allow what building needs (unshare: Operation" in result.stderr

    def test_unknown_name(self, store: ImageStore, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match='"Not Good" cannot be the name of an image'):
            store.build(write_spec(tmp_path / "img", "debian:"), name="Not Good")


BUILDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tvsnap.images import ImageStore
class Show:
    def step(self, index, total, text): print(text, flush=True)
    def output(self, line): print(line, flush=True)
    def fraction(self, done): pass
print(ImageStore(Path(sys.argv[2])).build(sys.argv[3], progress=Show(), allow=[Path("/")]).digest)
"""


@needs_root
class TestInterrupted:
    @pytest.fixture
    def start(self, tmp_path: Path, small_system: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
        """Starts a build in another process, and waits until its command prints "started"."""
        begun: list[subprocess.Popen[str]] = []

        def do(command: str, wait: bool = True) -> subprocess.Popen[str]:
            folder = write_spec(tmp_path / "img", f"directory: {small_system}\nrun: ['{command}']")
            process = subprocess.Popen(
                [sys.executable, "-c", BUILDER, str(CHECKOUT), str(tmp_path / "home"), str(folder)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            begun.append(process)
            assert process.stdout is not None
            while wait and process.stdout.readline() != "started\n":
                assert process.poll() is None
            return process

        yield do
        for process in begun:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def running(self, seconds: str) -> bool:
        """Whether `sleep SECONDS` runs; gives it a moment to die."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            lines = [path for path in Path("/proc").glob("[0-9]*/cmdline") if self._is_sleep(path, seconds)]
            if not lines:
                return False
            time.sleep(0.05)
        return True

    def _is_sleep(self, path: Path, seconds: str) -> bool:
        try:
            return path.read_bytes() == f"sleep\0{seconds}\0".encode()
        except OSError:
            return False

    def test_ctrl_c_leaves_nothing(self, start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
        process = start("(sleep 86417 &) ; echo started; sleep 86417")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        assert left_of_builds(tmp_path / "home") == []
        assert not self.running("86417")

    def test_kill_leaves_what_the_next_sweeps(
        self, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
    ) -> None:
        process = start("(sleep 86418 &) ; echo started; sleep 86418")
        process.kill()
        process.wait()
        assert not self.running("86418")
        assert left_of_builds(tmp_path / "home") != []
        ImageStore(tmp_path / "home").sweep()
        assert left_of_builds(tmp_path / "home") == []

    def test_a_live_build_is_not_swept(self, start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
        process = start("echo started; sleep 2; touch /done")
        store = ImageStore(tmp_path / "home")
        store.sweep()
        assert len(left_of_builds(tmp_path / "home")) == 1
        assert process.wait(timeout=60) == 0
        assert (store.get("img").rootfs / "done").exists()

    def test_two_at_once_build_once(self, start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
        # Two builds of this would never agree.
        command = "cat /proc/sys/kernel/random/uuid > /id; echo started; until [ -s /go ]; do sleep 0.1; done"
        first = start(command)
        second = start(command, wait=False)
        assert second.stdout is not None
        assert second.stdout.readline() == "another process builds this image: waiting for it\n"
        [build] = (tmp_path / "home/images").glob(".build-*")
        (build / "image/rootfs/go").write_text("now")
        os.chown(build / "image/rootfs/go", UID_BASE, UID_BASE)
        outputs = [process.communicate(timeout=60)[0].splitlines() for process in (first, second)]
        assert outputs[0][-1] == outputs[1][-1]
        assert left_of_builds(tmp_path / "home") == [outputs[0][-1]]


@needs_root
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


@needs_root
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


@needs_root
class TestCommandLine:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Callable[..., Any]:
        app = typer.Typer()
        register(app)
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
        assert run("rm", "img", "other").stdout == "removed img\nremoved other\n"
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
