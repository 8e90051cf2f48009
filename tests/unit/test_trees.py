"""Trees as streams of items: what a hostile one can do to this machine, and what is kept of an honest one."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tvsnap.guest.trees import list_folder
from tvsnap.host.trees import Damaged, TreeItem, extract, items_of, store, stored
from tvsnap.model.errors import InfrastructureError, SandboxDied, UsageError
from tvsnap.model.observations import Outcome

TOP = TreeItem("", "directory", 0o755)


def file(name: str, data: bytes = b"x") -> TreeItem:
    return TreeItem(name, "file", 0o644, size=len(data), content=(data,))


def link(name: str, target: str) -> TreeItem:
    return TreeItem(name, "symlink", 0o777, target=target)


@pytest.mark.parametrize(
    "items",
    [
        [file("../x")],
        [file("/x")],
        [file("a/../../x")],
        [file("a//x")],
        [file(".")],
        [file("x\0y")],
        [TreeItem("..", "directory", 0o777)],
        [file("a/" * 2000 + "x")],
        [file("missing/x")],
        [TreeItem("d", "directory", 0o755), file("d")],
        [link("d", "."), TreeItem("d", "directory", 0o755), link("d", ".")],
    ],
)
def test_what_makes_no_sense_is_refused_whole(tmp_path: Path, items: list[TreeItem]) -> None:
    with pytest.raises((InfrastructureError, OSError)):
        extract([TOP, *items], tmp_path / "in" / "got")
    assert list((tmp_path / "in").iterdir()) == []
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"0",
        b"\0",
        b"\x002",
        b"f\x00100644 0 0 1 1\0\0",
        b"f\x00100644 0 0 1 1\0\x000",
        b"f\x00100644 0 0 1 1\0\0" * 3 + b"\x000",
        b"\x00100644 0 0 1 1\0\0\x000",
        b"..\x0040755 0 0 1 1\0\0\x000",
        b"a/b\x00100644 0 0 1 1\0\0\x000",
        b"f\x00100644 0 0 1\0\0\x000",
        b"f\x00100644 0 0 -1 1\0\0\x000",
        b"f\x00100644 0 0 1 9999999999999999999\0\0\x000",
        b"f\x00999 0 0 1 1\0\0\x000",
        b"f\x00644 0 0 1 1\0\0\x000",
        b"f\x00100644 0 0 1 1\0target\0\x000",
    ],
)
def test_a_listing_that_makes_no_sense_ends_the_sandbox(output: bytes) -> None:
    with pytest.raises(SandboxDied, match=r"nonsense|no sense"):
        list_folder(lambda *_, **__: Outcome(output, 0, 0.0), "/", limit=2, timeout=1)


def test_a_listing_of_a_folder_is_read() -> None:
    output = b"z\x00100644 0 0 5 -1\0\0\xff\x00120777 1 2 3 4\0\xfe\0\x001"
    listing = list_folder(lambda *_, **__: Outcome(output, 0, 0.0), "/", limit=2, timeout=1)
    assert listing.cut
    file, link = listing.entries
    assert (file.name, file.kind, file.mode, file.size, file.mtime_ns, file.target) == ("z", "file", 0o644, 5, -1, None)
    assert (link.name, link.kind, link.uid, link.gid, link.target) == ("\udcff", "symlink", 1, 2, "\udcfe")


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "old").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        extract([TOP, file("old/x")], tmp_path / "got")
    extract([TOP, file("old")], tmp_path / "got")
    assert (tmp_path / "got" / "old").read_bytes() == b"x"
    assert list((tmp_path / "outside").iterdir()) == []


def test_links_that_lead_out_are_left_out(tmp_path: Path) -> None:
    inside = ["a", "./a", "d/a", "a/b/c", "."]
    outside = ["/etc", "..", "../x", "a/../..", "d/..", "", "../../../etc"]
    items = [link(f"in{number}", target) for number, target in enumerate(inside)]
    items += [link(f"out{number}", target) for number, target in enumerate(outside)]
    left_out = extract([TOP, *items, TreeItem("device", "other")], tmp_path / "got")
    assert {*os.listdir(tmp_path / "got")} == {f"in{number}" for number in range(len(inside))}
    assert len(left_out) == len(outside) + 1


def test_a_hard_link_leads_to_a_file_of_the_same_tree_only(tmp_path: Path) -> None:
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "mine").write_text("mine")
    items = [file("a"), TreeItem("b", "hardlink", target="a"), TreeItem("c", "hardlink", target="mine")]
    left_out = extract([TOP, *items], tmp_path / "got")
    assert [each.partition(":")[0] for each in left_out] == ["c"]
    assert (tmp_path / "got" / "b").samefile(tmp_path / "got" / "a")


def test_a_source_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def items() -> Iterator[TreeItem]:
        yield TOP
        yield file("a")
        raise OSError(5, "on purpose")

    with pytest.raises(OSError, match="on purpose"):
        extract(items(), tmp_path / "got")
    assert list(tmp_path.iterdir()) == []


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff \n")
    items = [TOP, file("a", b"12\n" * 100), file(odd, b""), link("l", odd), TreeItem("o", "file", 0o600, 1, 2)]
    kept = bytearray()
    digest = store(items, kept.extend)
    assert store(items) == digest
    found = [(each, b"".join(each.content)) for each in stored(io.BytesIO(kept), digest)]
    assert [data for _, data in found] == [b"", b"12\n" * 100, b"", b"", b""]
    assert [(e.name, e.kind, e.mode, e.uid, e.gid, e.size, e.target) for e, _ in found] == [
        (e.name, e.kind, e.mode, e.uid, e.gid, e.size, e.target) for e in items
    ]
    assert [each.name for each in stored(io.BytesIO(kept), digest)] == [each.name for each in items]  # unread


@pytest.mark.parametrize("at", [0, 20, -1, -50, None])
def test_what_is_damaged_is_found_out(at: int | None) -> None:
    kept = bytearray()
    digest = store([TOP, file("a", b"12\n" * 100)], kept.extend)
    if at is None:
        del kept[-10:]
    else:
        kept[at] ^= 1
    with pytest.raises(Damaged, match="is damaged"):
        store(stored(io.BytesIO(kept), digest))


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 100)
    items = items_of(tmp_path / "f")
    item = next(items)
    (tmp_path / "f").write_bytes(b"x" * 50)
    with pytest.raises(UsageError, match="changed while"):
        b"".join(item.content)
