"""`Sandbox.put` and `Sandbox.get`: files and folders, whole and alike each time, and what is hostile in them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import sh, usable
from tvsnap.host.trees import TreeItem, store
from tvsnap.model.errors import UsageError
from tvsnap.model.limits import MIB
from tvsnap.sandboxes.protocol import Sandbox

EVERY_BYTE = bytes(range(256))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a bit of everything."""
    top = tmp_path / "folder"
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "empty").mkdir(mode=0o700)
    (top / "program").write_bytes(b"#!/bin/sh\necho it runs\n")
    (top / "sub" / "bytes").write_bytes(EVERY_BYTE)
    (top / "sub" / "second").hardlink_to(top / "program")
    (top / "sub" / "link").symlink_to("deep/../bytes")
    (top / "out").symlink_to("/etc/hostname")
    (top / "nothing").write_bytes(b"")
    (top / os.fsdecode(b"\xff odd\nname")).write_bytes(b"odd")
    for path, mode in (("program", 0o4751), ("sub", 0o2755), ("sub/deep", 0o555), ("sub/bytes", 0o600), ("", 0o750)):
        (top / path).chmod(mode)
    return top


def facts(top: Path) -> dict[str, tuple[object, ...]]:
    """Returns what is in a folder, by name."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(top.rglob("*")):
        about = path.lstat()
        what: object = None
        if path.is_symlink():
            what = os.readlink(path)
        elif path.is_file():
            what = path.read_bytes()
        mode = stat.S_IMODE(about.st_mode) & 0o777
        found[str(path.relative_to(top))] = (stat.S_IFMT(about.st_mode), mode, what, path.is_file() and about.st_nlink)
    return found


def test_a_folder_goes_in_and_comes_out(sandbox: Sandbox, folder: Path, tmp_path: Path) -> None:
    sandbox.put(folder, "/made/above/it")
    listed = "cd /made/above/it; stat -c '%n %a %u:%g' program sub sub/deep sub/bytes . ..; stat -c %h program"
    assert sh(sandbox, f"{listed}; readlink sub/link out; ./program") == (
        "program 4751 0:0\nsub 2755 0:0\nsub/deep 555 0:0\nsub/bytes 600 0:0\n. 750 0:0\n.. 755 0:0\n"
        "2\ndeep/../bytes\n/etc/hostname\nit runs\n"
    )
    left_out = sandbox.get("/made/above/it", tmp_path / "back")
    assert [line.partition(":")[0] for line in left_out] == ["out", "sub/link"]
    expected = facts(folder)
    del expected["out"], expected["sub/link"]
    assert facts(tmp_path / "back") == expected
    assert sandbox.get("/made/above/it/sub/bytes", tmp_path / "new" / "file") == ()
    assert (tmp_path / "new" / "file").read_bytes() == EVERY_BYTE
    usable(sandbox)


def test_the_same_upload_is_the_same_everywhere(sandbox: Sandbox, folder: Path) -> None:
    look = "cd /tmp/a; find . -exec stat -c '%n %a %u:%g %s %Y' {} + | sort"
    sandbox.put(folder, "/tmp/a")
    first, digest = sh(sandbox, look), store(sandbox.read_tree("/tmp/a"))
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (1, 1), follow_symlinks=False)
        if os.geteuid() == 0:
            os.chown(path, 1234, 567, follow_symlinks=False)
    (folder / "program").chmod(0o4751)
    sh(sandbox, "rm -rf /tmp/a")
    sandbox.put(folder, "/tmp/a")
    assert sh(sandbox, look) == first
    assert store(sandbox.read_tree("/tmp/a")) == digest


def test_times_tell_one_content_from_another(sandbox: Sandbox) -> None:
    """As make and Python's compiled files need it."""
    sandbox.put(b"x = 1", "/tmp/x")
    sandbox.put(b"x = 2", "/tmp/y")
    one, other = sh(sandbox, "stat -c %Y /tmp/x /tmp/y").split()
    assert one != other
    sh(sandbox, "touch /tmp/built")
    sandbox.put(b"x = 2", "/tmp/x")
    assert (
        sh(sandbox, "cat /tmp/x; test /tmp/built -nt /tmp/x || echo; date -d @$(stat -c %Y /tmp/y) +%C")
        == "x = 2\n20\n"
    )


def test_owners_are_kept_where_that_is_asked_for(sandbox: Sandbox, tmp_path: Path) -> None:
    items = [
        TreeItem("", "directory", 0o755, 12, 34),
        TreeItem("f", "file", 0o640, 56, 78),
        TreeItem("l", "symlink", 0o777, 9, 9),
    ]
    items[2] = TreeItem("l", "symlink", 0o777, 9, 9, target="f")
    sandbox.put(items, "/tmp/d", owners=True)
    assert sh(sandbox, "stat -c '%u:%g' /tmp/d /tmp/d/f /tmp/d/l") == "12:34\n56:78\n9:9\n"
    assert [(item.uid, item.gid) for item in sandbox.read_tree("/tmp/d")] == [(12, 34), (56, 78), (9, 9)]
    sandbox.put(b"mine", "/tmp/mine", user="nobody")
    assert sh(sandbox, "stat -c '%U %a' /tmp/mine") == "nobody 644\n"
    with pytest.raises(PermissionError):
        sandbox.put(b"", "/etc/mine", user="nobody")
    with pytest.raises(UsageError, match="no user nessuno"):
        sandbox.put(b"", "/tmp/x", user="nessuno")
    if os.geteuid() == 0:
        sandbox.get("/tmp/d", tmp_path / "d", owners=True)
        assert (tmp_path / "d" / "f").stat().st_uid == 56


def test_what_is_there_is_replaced_and_folders_are_merged(sandbox: Sandbox, folder: Path) -> None:
    sh(sandbox, "mkdir -m 711 /tmp/a; echo kept > /tmp/a/kept; echo > /tmp/target; ln -s /tmp/target /tmp/a/program")
    sandbox.put(folder, "/tmp/a")
    assert sh(sandbox, "stat -c %a /tmp/a; cat /tmp/a/kept /tmp/target; test -L /tmp/a/program || echo no link") == (
        "711\nkept\n\nno link\n"
    )
    sh(sandbox, "cp /bin/sleep /tmp/busy; /tmp/busy 60 & until grep -q busy /proc/$!/comm; do :; done; disown")
    sandbox.put(b"other", "/tmp/busy")  # a program that runs can be replaced
    assert sh(sandbox, "cat /tmp/busy; kill %% 2>/dev/null; pkill busy || kill $!") == "other"


@pytest.mark.parametrize("number", [2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 7])
def test_large_files_come_in_parts(sandbox: Sandbox, tmp_path: Path, number: int) -> None:
    data = os.urandom(number)
    (tmp_path / "large").write_bytes(data)
    (tmp_path / "large").chmod(0o604)
    sandbox.put(tmp_path / "large", "/tmp/large")
    sandbox.put(data, "/tmp/same", mode=0o604)
    assert sh(sandbox, "cmp /tmp/large /tmp/same; stat -c '%a %Y' /tmp/large /tmp/same | uniq | wc -l") == "1\n"
    sandbox.get("/tmp/large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    assert stat.S_IMODE((tmp_path / "back").stat().st_mode) == 0o604


def test_a_file_of_the_kernel_that_says_to_be_empty(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.get("/proc/version", tmp_path / "version")
    assert (tmp_path / "version").read_bytes() == sandbox.read_file("/proc/version") != b""
    sh(sandbox, "> /tmp/empty")
    sandbox.get("/tmp/empty", tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


def test_many_small_files(sandbox: Sandbox, tmp_path: Path) -> None:
    top = tmp_path / "many"
    for number in range(5000):
        (top / str(number % 50)).mkdir(parents=True, exist_ok=True)
        (top / str(number % 50) / str(number)).write_text(str(number))
    sandbox.put(top, "/tmp/many")
    assert sh(sandbox, "find /tmp/many -type f | wc -l; cat /tmp/many/7/4957") == "5000\n4957"
    sandbox.get("/tmp/many", tmp_path / "back")
    assert facts(tmp_path / "back") == facts(top)


def number_of(caught: pytest.ExceptionInfo[OSError]) -> int | None:
    return caught.value.errno


def test_errors_are_those_met_inside(sandbox: Sandbox, tmp_path: Path) -> None:
    for path, expected in (
        ("/tmp/none", errno.ENOENT),
        ("/etc/hostname/x", errno.ENOTDIR),
        ("/dev/null", errno.EINVAL),
    ):
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            sandbox.get(path, tmp_path / "x")
        assert number_of(caught) == expected
    for path, expected in (("/etc", errno.EISDIR), ("/etc/hostname/x", errno.ENOTDIR), ("", errno.ENOENT)):
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            sandbox.put(b"x", path)
        assert number_of(caught) == expected
    with pytest.raises(UsageError, match="cannot be read"):
        sandbox.put(tmp_path / "none", "/tmp/x")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="neither a file"):
        sandbox.put(tmp_path, "/tmp/x")
    assert list(tmp_path.iterdir()) == [tmp_path / "fifo"]
    usable(sandbox)


def test_sizes_have_bounds(sandbox: Sandbox, tmp_path: Path) -> None:
    sh(sandbox, "mkdir /tmp/d; truncate -s 1T /tmp/d/sparse; seq 1000 > /tmp/small")
    for path in ("/tmp/d", "/tmp/d/sparse"):
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            sandbox.get(path, tmp_path / "x")
        assert number_of(caught) == errno.EFBIG
    with pytest.raises(OSError, match=r"\[Errno"):
        sandbox.get("/tmp/small", tmp_path / "x", limit=1000)
    with pytest.raises(TimeoutError):
        sandbox.get("/tmp/small", tmp_path / "x", timeout=0.0)
    assert list(tmp_path.iterdir()) == []
    usable(sandbox)


def test_nothing_is_written_outside_the_destination(sandbox: Sandbox, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    sh(
        sandbox,
        f"mkdir -p /tmp/d/real; cd /tmp/d; ln -s {outside} abs; ln -s ../../.. up; ln -s real fine; ln -s real/.. sly;"
        "ln -s .. real/top; mkfifo pipe; mknod node c 1 3; echo 1 > real/f; chmod 6777 real/f; ln -s ../x real/x",
    )
    left_out = sandbox.get("/tmp/d", tmp_path / "got")
    kept = {str(path.relative_to(tmp_path / "got")) for path in (tmp_path / "got").rglob("*")}
    assert kept == {"real", "real/f", "real/top", "real/x", "fine"}
    assert {line.partition(":")[0] for line in left_out} >= {"abs", "up", "sly", "pipe"}
    assert stat.S_IMODE((tmp_path / "got" / "real" / "f").stat().st_mode) == 0o777
    # A link that an earlier fetch made is not written through by a later one.
    sh(sandbox, "cd /tmp/d; rm fine; mkdir fine; echo 2 > fine/f")
    sandbox.get("/tmp/d", tmp_path / "got")
    assert (tmp_path / "got" / "real" / "f").read_text() == "1\n"
    assert (tmp_path / "got" / "fine" / "f").read_text() == "2\n"
    assert list(outside.iterdir()) == []


def test_what_changes_meanwhile(sandbox: Sandbox, tmp_path: Path) -> None:
    """It is fetched as it was at some moment, or the error says so; nothing waits for a FIFO in a file's place."""
    sh(sandbox, "mkdir /tmp/d; (while :; do for n in 1 2 3; do seq $((n * 99)) > /tmp/d/$n; rm /tmp/d/2; done; done) &")
    failed = []
    for number in range(20):
        try:
            sandbox.get("/tmp/d", tmp_path / f"got{number}")
        except OSError as error:  # noqa: PERF203
            failed.append(error.errno)
    assert {*failed} <= {errno.ESTALE, errno.ENOENT}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    usable(sandbox)


def test_a_source_that_fails_leaves_the_sandbox_usable(sandbox: Sandbox) -> None:
    def items() -> Iterator[TreeItem]:
        yield TreeItem("", "directory", 0o755)
        raise UsageError("on purpose")

    with pytest.raises(UsageError, match="on purpose"):
        sandbox.put(items(), "/tmp/d")
    usable(sandbox)
