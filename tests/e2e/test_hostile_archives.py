"""Archives put together at random from hostile parts: whatever they say, nothing outside their tree is touched."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tvsnap.images import archives
from tvsnap.images.build import extract
from tvsnap.images.build.extract import extract_tar
from tvsnap.images.errors import BuildStepFailed
from tvsnap.model.limits import MIB

NAMES = ["a", "b", "a/b", "a/b/c", "./a", "/a", "/", ".", "a//b/", "a/./c", "../a", "a/../../a", "..", "a/..", ".wh.a",
         "a/.wh.b", ".wh..wh..opq", "a/.wh..wh..opq", ".wh...", "a/.wh."]  # fmt: skip
TARGETS = ["a", "b", "a/b", ".", "..", "../outside", "../../outside/kept", "{outside}", "{outside}/kept", "/", "/a",
           "/proc/self/root", "/proc/self/cwd", "a/../../outside"]  # fmt: skip
TYPES = [
    tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE,
    tarfile.BLKTYPE, tarfile.CONTTYPE,
]  # fmt: skip

Member = tuple[bytes, str, str, int]
members = st.tuples(st.sampled_from(TYPES), st.sampled_from(NAMES), st.sampled_from(TARGETS), st.integers(0, 0o7777))


def packed(parts: list[Member], outside: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for kind, name, target, mode in parts:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid, member.mtime = kind, mode, 7, 1
            member.linkname = target.format(outside=outside)
            member.devmajor, member.devminor = 1, 5
            content = b"new" if member.isreg() else b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def everything(directory: Path) -> list[tuple[object, ...]]:
    """Returns all that can be told of a tree, its own directory and links' numbers included."""
    found: list[tuple[object, ...]] = []
    for path in (directory, *sorted(directory.rglob("*"))):
        about = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
        found.append((str(path), about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns, about.st_nlink, content))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="images are built by root, whose rights an escape would have")
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(layers=st.lists(st.lists(members, min_size=1, max_size=8), min_size=1, max_size=3), layer=st.booleans())
def test_nothing_outside_is_touched(layers: list[list[Member]], layer: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        outside, root, archive = Path(name, "outside"), Path(name, "tree"), Path(name, "archive")
        (outside / "kept").mkdir(parents=True)
        (outside / "kept/a").write_text("old")
        (outside / "b").write_text("old")
        root.mkdir()
        before = everything(outside)
        for parts in layers:
            archive.write_bytes(packed(parts, outside))
            with contextlib.suppress(BuildStepFailed):
                extract_tar(archive, root, lambda done: None, layer=layer)
            assert everything(outside) == before
            assert sorted(os.listdir(name)) == ["archive", "outside", "tree"]
        for path in root.rglob("*"):
            mode = path.lstat().st_mode
            assert not stat.S_ISCHR(mode)
            assert not stat.S_ISBLK(mode)


def archive_of(directory: Path, *members: tuple[str, bytes]) -> Path:
    """Returns an archive of files."""
    path = directory / "archive"
    with tarfile.open(path, mode="w:gz") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="the owners of files are set")
def test_holes_stay_holes(tmp_path: Path) -> None:
    """They take no room: 64 MiB of them come out of an archive of some hundred bytes."""
    content = bytes(1 << 26) + b"end" + bytes(100_000)
    root = tmp_path / "tree"
    root.mkdir()
    extract_tar(archive_of(tmp_path, ("f", content), ("empty", b""), ("zeros", bytes(1 << 16))), root, lambda _: None)
    assert (root / "f").read_bytes() == content
    assert (root / "f").stat().st_blocks * 512 < 1 << 20
    assert ((root / "empty").stat().st_size, (root / "zeros").stat().st_size) == (0, 1 << 16)


@pytest.mark.skipif(os.geteuid() != 0, reason="the owners of files are set")
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([("a", bytes(600)), ("b", bytes(600))], 'up to "b" the archive has files of more than'),
        ([(str(number), b"") for number in range(20)], "more than 10 entries"),
        ([("d/" * 12 + "f", b"")], "more than 10 directories deep"),
    ],
    ids=["size", "entries", "depth"],
)
def test_an_archive_that_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: list[tuple[str, bytes]], reason: str
) -> None:
    for name, value in (("MOST_BYTES", 1000), ("MOST_ENTRIES", 10), ("MOST_DEPTH", 10)):
        monkeypatch.setattr(extract, name, value)
    root = tmp_path / "tree"
    root.mkdir()
    with pytest.raises(BuildStepFailed, match=reason):
        extract_tar(archive_of(tmp_path, *members), root, lambda _: None)


def test_paths_that_are_too_long_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept until the end; a small archive may hold hundreds of megabytes of them."""
    monkeypatch.setattr(extract, "MOST_NAMES", 20 * len(str(tmp_path)))
    archive = tmp_path / "a.tar"
    archive.write_bytes(b"".join(header(tarfile.DIRTYPE, 0, f"d{number}") for number in range(30)) + bytes(1024))
    (tmp_path / "tree").mkdir()
    with pytest.raises(BuildStepFailed, match="paths of more than 0 MiB in all"):
        extract_tar(archive, tmp_path / "tree", lambda _: None)


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


SPARSE_MAP = b"".join(b"%011o\0%011o\0" % (number, 1) for number in range(21)) + b"\1" + bytes(7)
CLAIM = 3 << 30
HEADERS = {
    "pax": (header(tarfile.XHDTYPE, CLAIM),),
    "long name": (header(tarfile.GNUTYPE_LONGNAME, CLAIM),),
    "long link": (header(tarfile.GNUTYPE_LONGLINK, CLAIM),),
    "global pax": (header(tarfile.XGLTYPE, CLAIM),),
    "Solaris pax": (header(tarfile.SOLARIS_XHDTYPE, CLAIM),),
    "after a member": (header(tarfile.REGTYPE, 0, "a"), header(tarfile.XHDTYPE, CLAIM)),
    "many global ones": (header(tarfile.XGLTYPE, 600_000), header(tarfile.REGTYPE, 0, "a")),
    "without end": (header(tarfile.XHDTYPE, 0),),
}


class Repeated(io.RawIOBase):
    """Parts of an archive, each header with as many zeros as it claims, again and again."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__()
        self._parts = [(part, tarfile.TarInfo.frombuf(part, "utf-8", "strict").size if part else 0) for part in parts]
        self._at = self._zeros = 0
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        found = bytearray()
        while len(found) < size:
            if self._zeros:
                some = min(self._zeros, size - len(found))
                found += bytes(some)
                self._zeros -= some
            else:
                part, length = self._parts[self._at % len(self._parts)]
                found += part
                self._zeros = -(-length // 512) * 512
                self._at += 1
        self.given += len(found)
        return bytes(found)


@pytest.mark.parametrize("parts", HEADERS.values(), ids=HEADERS)
def test_headers_of_any_size_are_refused_before_they_are_read(parts: tuple[bytes, ...]) -> None:
    stream = Repeated(*parts)
    with pytest.raises(tarfile.TarError, match="header"):
        [member.name for member in archives.opened(stream)]  # type: ignore[arg-type]
    assert stream.given < 8 * MIB


def test_a_map_of_holes_without_end_is_refused() -> None:
    first = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
    first[482] = 1  # its map goes on in the next block
    first[148:156] = b" " * 8
    first[148:156] = b"%06o\0 " % sum(first)
    with pytest.raises(tarfile.TarError, match="header"), archives.opened(io.BytesIO(bytes(first) + SPARSE_MAP * 9000)):
        pass


def test_names_and_attributes_as_long_as_can_be(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("/".join(["d" * 200] * 19))
        member.pax_headers = {"SCHILY.xattr.user.a": "x" * 65536}
        tar.addfile(member)
    buffer.seek(0)
    with archives.opened(buffer) as tar:
        found = tar.next()
        assert found is not None
        assert (found.name, len(found.pax_headers["SCHILY.xattr.user.a"])) == (member.name, 65536)
