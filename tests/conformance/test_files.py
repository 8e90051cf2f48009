"""`Sandbox.read_file` and `Sandbox.write_file`: exact bytes, and the errors met inside."""

from __future__ import annotations

import errno

import pytest

from tests.conformance.helpers import sh, usable
from tvsnap.model.errors import UsageError
from tvsnap.model.limits import MIB
from tvsnap.sandboxes.protocol import Sandbox

EVERY_BYTE = bytes(range(256))


def failure(sandbox: Sandbox, path: str) -> int | None:
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        sandbox.read_file(path)
    return caught.value.errno


@pytest.mark.parametrize("data", [b"", b"x", b"\n", EVERY_BYTE * 3, b"\r\n\r", "héllo".encode()])
def test_round_trip(reused: Sandbox, data: bytes) -> None:
    reused.write_file("/tmp/f", data)
    assert reused.read_file("/tmp/f") == data
    assert sh(reused, "wc -c < /tmp/f").strip() == str(len(data))


def test_one_level_of_a_folder_is_listed(sandbox: Sandbox) -> None:
    sh(
        sandbox,
        "mkdir -p /tmp/d/sub/deep; cd /tmp/d; printf abc > $'line\\nbreak'; printf x > $'\\xff\\u202e';"
        " ln -s nowhere link; mkfifo -m 600 fifo; chmod 1750 sub; touch -d @1.5 -- -n $'line\\nbreak'",
    )
    listing = sandbox.list_folder("/tmp/d")
    assert not listing.cut
    assert [(one.name, one.kind, one.target) for one in listing.entries] == [
        ("-n", "file", None),
        ("fifo", "fifo", None),
        ("line\nbreak", "file", None),
        ("link", "symlink", "nowhere"),
        ("sub", "directory", None),
        ("\udcff\u202e", "file", None),
    ]
    by_name = {one.name: one for one in listing.entries}
    assert by_name["sub"].mode == 0o1750
    about = by_name["line\nbreak"]
    assert (about.size, about.mtime_ns, about.uid, about.gid) == (3, 1_500_000_000, 0, 0)
    assert sandbox.read_file("/tmp/d/\udcff\u202e") == b"x"
    assert [one.name for one in sandbox.list_folder("sub").entries] == ["deep"]
    assert sandbox.list_folder("/tmp/d/sub/deep").entries == ()
    kinds = {one.name: one.kind for one in sandbox.list_folder("/dev").entries}
    assert kinds["null"] == "character device"
    usable(sandbox)


def test_a_folder_is_listed_up_to_a_limit_and_without_programs(sandbox: Sandbox) -> None:
    sh(sandbox, "mkdir /tmp/many; cd /tmp/many; touch {1..300}; ln -s /tmp/many /tmp/to; find() { :; }; PATH=/nowhere")
    assert sandbox.list_folder("/tmp/many", limit=300) == sandbox.list_folder("/tmp/to")
    cut = sandbox.list_folder("/tmp/many", limit=299)
    assert (len(cut.entries), cut.cut) == (299, True)
    for limit in (0, 1_000_001, True):
        with pytest.raises(UsageError, match="limit must be"):
            sandbox.list_folder("/tmp/many", limit=limit)
    for path, number in (("/nowhere", errno.ENOENT), ("/tmp/many/7", errno.ENOTDIR), ("/dev/null", errno.ENOTDIR)):
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            sandbox.list_folder(path)
        assert caught.value.errno == number


def test_large(sandbox: Sandbox) -> None:
    data = EVERY_BYTE * (5 * MIB // 256)
    sandbox.write_file("/tmp/large", data)
    assert sandbox.read_file("/tmp/large") == data


def test_shell_and_files_agree(sandbox: Sandbox) -> None:
    sh(sandbox, "printf 'a\\000b' > /tmp/f")
    assert sandbox.read_file("/tmp/f") == b"a\0b"
    sandbox.write_file("/tmp/f", b"new\n")
    assert sh(sandbox, "cat /tmp/f") == "new\n"


def test_relative_paths_start_at_the_shells_cwd(sandbox: Sandbox) -> None:
    sh(sandbox, "mkdir -p /tmp/here/sub; cd /tmp/here")
    sandbox.write_file("sub/../f", b"1")
    assert sandbox.read_file("/tmp/here/f") == b"1"
    sh(sandbox, "cd sub")
    assert sandbox.read_file("../f") == b"1"
    sandbox.write_file("g", b"2")
    assert sh(sandbox, "cat /tmp/here/sub/g") == "2"


def test_parents_are_made(sandbox: Sandbox) -> None:
    sandbox.write_file("/tmp/a/b/c/f", b"deep")
    assert sh(sandbox, "cat /tmp/a/b/c/f") == "deep"


def test_overwriting_keeps_the_mode(sandbox: Sandbox) -> None:
    sh(sandbox, "echo long contents > /tmp/f; chmod 751 /tmp/f")
    sandbox.write_file("/tmp/f", b"s")
    assert sh(sandbox, "cat /tmp/f; echo; stat -c %a /tmp/f") == "s\n751\n"


def test_missing(sandbox: Sandbox) -> None:
    assert failure(sandbox, "/tmp/none") == errno.ENOENT
    assert failure(sandbox, "/no/such/dir/f") == errno.ENOENT
    usable(sandbox)


def test_directory(sandbox: Sandbox) -> None:
    assert failure(sandbox, "/etc") == errno.EISDIR
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        sandbox.write_file("/etc", b"x")
    assert caught.value.errno == errno.EISDIR
    usable(sandbox)


def test_file_in_the_way(sandbox: Sandbox) -> None:
    assert failure(sandbox, "/etc/hostname/x") == errno.ENOTDIR
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        sandbox.write_file("/etc/hostname/x", b"x")
    assert caught.value.errno in (errno.ENOTDIR, errno.EEXIST)


def test_symlink_loop(sandbox: Sandbox) -> None:
    sh(sandbox, "ln -s b /tmp/a; ln -s a /tmp/b")
    assert failure(sandbox, "/tmp/a") == errno.ELOOP


def test_too_large(sandbox: Sandbox) -> None:
    sh(sandbox, "head -c 1001 /dev/zero > /tmp/f")
    assert len(sandbox.read_file("/tmp/f", limit=1001)) == 1001
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        sandbox.read_file("/tmp/f", limit=1000)
    assert caught.value.errno == errno.EFBIG


def test_symlinks_stay_inside(sandbox: Sandbox) -> None:
    sh(sandbox, "echo inside > /tmp/target; ln -s /tmp/target /tmp/l; ln -s / /tmp/root; ln -s ../../../.. /tmp/up")
    for path in ("/tmp/l", "/tmp/root/tmp/target", "/tmp/up/tmp/target"):
        assert sandbox.read_file(path) == b"inside\n"
    sandbox.write_file("/tmp/l", b"through\n")
    assert sh(sandbox, "cat /tmp/target; readlink /tmp/l") == "through\n/tmp/target\n"


@pytest.mark.parametrize("name", ["with space", "newline\nin", "quote'\"", "ünïcode☃", "-dash", "a" * 200])
def test_odd_names(reused: Sandbox, name: str) -> None:
    reused.write_file(f"/tmp/{name}", b"x")
    assert reused.read_file(f"/tmp/{name}") == b"x"
    assert f"/tmp/{name}" in reused.changes()


def test_the_persistent_shell_is_left_alone(sandbox: Sandbox) -> None:
    sh(sandbox, "(exit 7)")
    before = sandbox.observe().shell
    sandbox.read_file("/etc/hostname")
    sandbox.write_file("/tmp/f", b"x")
    assert sandbox.observe().shell == before
    assert sh(sandbox, "echo $?") == "7\n"


def test_permission(sandbox: Sandbox) -> None:
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        sandbox.write_file("/proc/version", b"x")
    assert caught.value.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)


def test_file_of_unknown_size(sandbox: Sandbox) -> None:
    assert sandbox.read_file("/proc/version").startswith(b"Linux")


def test_endless_file(sandbox: Sandbox) -> None:
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        sandbox.read_file("/dev/zero", limit=1000)
    assert caught.value.errno in (errno.EFBIG, errno.EINVAL)
    usable(sandbox)


@pytest.mark.timeout(60, func_only=True)
def test_fifo_without_a_writer_does_not_hang(sandbox: Sandbox) -> None:
    sh(sandbox, "mkfifo /tmp/p")
    with pytest.raises(OSError, match=r"\[Errno"):
        sandbox.read_file("/tmp/p")
    usable(sandbox)


def test_a_fifo_that_is_not_written_to_is_not_opened(sandbox: Sandbox) -> None:
    """Whoever reads it would take it for an end."""
    sh(sandbox, "mkfifo /tmp/p; { cat < /tmp/p > /tmp/got; } &")
    with pytest.raises(OSError, match="Invalid argument"):
        sandbox.write_file("/tmp/p", b"refused")
    assert sh(sandbox, "timeout 20 sh -c 'echo x > /tmp/p'; echo $?; wait; cat /tmp/got") == "0\nx\n"


def test_written_file_belongs_to_the_user(sandbox: Sandbox) -> None:
    sandbox.write_file("/tmp/dir/f", b"x")
    assert sh(sandbox, "stat -c '%u:%g %a' /tmp/dir/f /tmp/dir") == "0:0 644\n0:0 755\n"


def test_a_path_with_a_null_character_is_none(sandbox: Sandbox) -> None:
    sandbox.write_file("/root/kept", b"kept")
    with pytest.raises(UsageError, match="null character"):
        sandbox.write_file("/root/kept\0.bak", b"gone")
    with pytest.raises(UsageError, match="null character"):
        sandbox.read_file("/root/kept\0.bak")
    assert sandbox.read_file("/root/kept") == b"kept"
