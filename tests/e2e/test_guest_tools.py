"""The programs that look into a sandbox, run on directories and processes of this machine: walk, processes, amend."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.caches import eventually
from tvsnap.host import native
from tvsnap.model.observations import NO_SERVICE
from tvsnap.sandboxes import sealing
from tvsnap.sandboxes.kernel import process_report
from tvsnap.sandboxes.kernel.allowance import NotSeen
from tvsnap.sandboxes.kernel.process_report import ProcessTable
from tvsnap.sandboxes.looks import observe, observing
from tvsnap.sandboxes.looks.observing import Entry

PROGRAM = native.INIT


def run(*arguments: str | Path, stdin: bytes = b"", code: int = 0) -> bytes:
    done = subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, check=False, timeout=60)
    assert done.returncode == code, done
    return done.stdout


def listing(*arguments: str | Path) -> dict[str, Entry]:
    return {entry.path: entry for entry in observing.parse_entries(run("walk", "list", *arguments))}


def digest(*arguments: str | Path) -> bytes:
    return run("walk", "digest", *arguments)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one of each kind of entry."""
    root = tmp_path / "tree"
    (root / "a/b").mkdir(parents=True)
    (root / "a/file").write_text("text")
    (root / "a/b/odd\nname\udcff").write_text("odd")
    (root / "link").symlink_to("a/file")
    os.mkfifo(root / "fifo")
    (root / "a/b").chmod(0o1751)
    os.utime(root / "a/file", ns=(1, 123456789012345678))
    return root


def test_list_tells_each_entry_as_lstat_does(tree: Path) -> None:
    found = listing(tree)
    names = {f"{tree}/{name}" for name in ("a", "a/b", "a/file", "a/b/odd\nname\udcff", "link", "fifo")}
    assert set(found) == {str(tree), *names}
    for path, entry in found.items():
        told = os.lstat(path)
        assert (entry.mode, entry.uid, entry.gid, entry.size) == (told.st_mode, told.st_uid, told.st_gid, told.st_size)
        assert (entry.mtime_ns, entry.ctime_ns) == (told.st_mtime_ns, told.st_ctime_ns)
        assert (entry.inode, entry.device, entry.opaque) == (told.st_ino, told.st_rdev, False)


def test_an_inherited_descriptor_is_the_root_of_its_paths(tree: Path) -> None:
    assert {entry.path for entry in observing.walk(tree)} == {path[len(str(tree)) :] or "/" for path in listing(tree)}


def test_what_cannot_be_walked_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run([PROGRAM, "walk", "digest", tmp_path / "none"], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"none: No such file" in done.stderr


def test_deep_trees_are_walked_to_their_ends(tmp_path: Path) -> None:
    depth = 1500
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        assert len(listing(tmp_path)) == depth + 1
    finally:
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)


def test_list_since_leaves_out_what_is_older(tree: Path) -> None:
    newest = max(entry.ctime_ns for entry in listing(tree).values())
    time.sleep(0.02)
    (tree / "a/b/new").write_text("new")
    assert set(listing(tree, str(newest + 1))) == {f"{tree}/a/b", f"{tree}/a/b/new"}


def test_several_directories_each_within_its_own_file_system(tree: Path) -> None:
    mounted = tree / "mounted"
    mounted.mkdir()
    script = 'mount -t tmpfs tmpfs "$2" && touch "$2/inside" && shift 0 && "$0" walk list "$1" | tr "\\0" "\\n"'
    command = ["unshare", "--mount", "sh", "-c", script, str(PROGRAM), str(tree), str(mounted)]
    shown = subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")
    assert f"{mounted}\n" in shown
    assert "inside" not in shown
    command[4] = script.replace('"$1" |', '"$1" "$2" |')
    shown = subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")
    assert f"{mounted}/inside\n" in shown


def test_attributes_are_told_by_a_hash(tree: Path) -> None:
    assert not any(entry.has_attributes for entry in listing(tree).values())
    seen = set()
    for path in ("a/file", "a"):
        for value in (b"blue", b"green", b"blue and long" * 100):
            os.setxattr(tree / path, "user.colour", value)
            flagged = {name: entry.attributes for name, entry in listing(tree).items() if entry.has_attributes}
            assert set(flagged) == {f"{tree}/{path}"}
            seen.add(flagged.popitem()[1])
        os.removexattr(tree / path, "user.colour")
    assert len(seen) == 3


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file's contents": lambda tree: (tree / "a/file").write_text("more"),
    "a file's mode": lambda tree: (tree / "a/file").chmod(0o600),
    "its contents, size and time kept": lambda tree: rewrite(tree / "a/file"),
    "a directory's mode": lambda tree: (tree / "a").chmod(0o700),
    "a directory's owner": lambda tree: os.chown(tree / "a", 12, 34),
    "a new file": lambda tree: (tree / "a/new").touch(),
    "a removed file": lambda tree: (tree / "a/file").unlink(),
    "a renamed file": lambda tree: (tree / "a/file").rename(tree / "a/other"),
    "a link's target": lambda tree: os.replace(link(tree / "other"), tree / "link"),
    "a directory's time, set on purpose": lambda tree: os.utime(tree / "a", (5, 5)),
    "a directory's attribute": lambda tree: os.setxattr(tree / "a", "user.colour", b"blue"),
    "the mode of all of it": lambda tree: tree.chmod(0o700),
}


def link(path: Path) -> Path:
    path.symlink_to("a/filf")
    return path


def rewrite(path: Path) -> None:
    before = path.stat()
    path.write_text("TEXT")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", CHANGES)
def test_a_digest_changes_with(change: str, tree: Path) -> None:
    before = digest(tree)
    assert len(before.strip()) == 64
    assert digest(tree) == before
    CHANGES[change](tree)
    assert digest(tree) != before


@pytest.mark.parametrize(
    ("directory", "same"),
    [("a", False), ("a/.gitx", False), ("a/x.git", False), ("sticky", True), ("a/.git", True), ("a/.git/x", True)],
)
def test_a_digest_stays_when_temporary_files_are_gone(tree: Path, directory: str, same: bool) -> None:
    folder = tree / directory
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o1755 if directory == "sticky" else 0o755)
    folder.joinpath("settled").touch()  # the directory's time is that of its entries now
    before, entries = digest(tree), listing(tree)
    time.sleep(0.02)
    (folder / "temporary").touch()
    (folder / "temporary").unlink()
    assert (digest(tree) == before) is same
    assert all(listing(tree)[path].dated is not same for path in entries if path.endswith(directory))


def test_times_that_an_image_has_are_not_set_on_purpose(tree: Path, tmp_path: Path) -> None:
    os.utime(tree / "a", ns=(5, 5))
    times = tmp_path / "times"
    times.write_bytes(run("walk", "times", tree))
    before = digest("--times", times, tree)
    assert before != digest(tree)
    os.utime(tree / "a", ns=(6, 6))
    assert digest("--times", times, tree) != before


def test_a_digest_does_not_depend_on_order_and_swaps_do_not_cancel(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("x", "y"):
        (folder / name).touch()
    os.chown(folder / "x", 1, 1)
    os.chown(folder / "y", 2, 2)
    entries = listing(folder)
    first = digest(folder)
    os.chown(folder / "x", 2, 2)
    os.chown(folder / "y", 1, 1)
    assert digest(folder) != first
    tree = observing.ImageTree()
    assert observing.files_fingerprint(entries.values(), tree) == observing.files_fingerprint(
        reversed(entries.values()), tree
    )


def processes(shell: int) -> ProcessTable:
    return process_report.parse_processes(run("processes", str(shell)))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A bash that does as it is told, one line each."""
    gone = tmp_path / "gone"
    gone.mkdir()
    with subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=gone) as bash:
        yield bash
        bash.kill()


def tell(bash: subprocess.Popen[bytes], line: str) -> str:
    assert bash.stdin is not None
    assert bash.stdout is not None
    bash.stdin.write(f"{line}; echo done\n".encode())
    bash.stdin.flush()
    said = ""
    while not said.endswith("done\n"):
        said += bash.stdout.readline().decode()
    return said.removesuffix("done\n")


def asleep(pid: int) -> bool:
    """Whether a process, at first a copy of the shell, has become `sleep` and come to its sleep."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return name.endswith("(sleep") and rest.split()[0] == "S"


def test_processes_are_told_as_proc_has_them(shell: subprocess.Popen[bytes]) -> None:
    child = int(tell(shell, "sleep 1000 >/dev/null & echo $!"))
    eventually(lambda: asleep(child))
    table = processes(shell.pid)
    found = {process.pid: process for process in table.processes}
    assert found[child].command == "sleep 1000"
    assert found[child].parent == shell.pid
    assert found[child].state == "S"
    assert 0 < found[child].memory < 1 << 24
    assert 1 not in found
    assert shell.pid not in {process.pid for process in table.others}
    activity = {one.pid: one for one in table.activities}[child]
    assert activity.start == int(Path(f"/proc/{child}/stat").read_text().rsplit(") ", 1)[1].split()[19])
    assert activity.ran == int(Path(f"/proc/{child}/schedstat").read_text().split()[0])
    tell(shell, f"kill {child}; wait {child} 2>/dev/null")


def test_the_time_of_all_threads_counts(shell: subprocess.Popen[bytes]) -> None:
    ready = threading.Event()
    thread = threading.Thread(target=lambda: (sum(range(10**7)), ready.wait(60)))
    thread.start()
    try:
        time.sleep(0.01)
        ran = {one.pid: one.ran for one in processes(shell.pid).activities}[os.getpid()]
        tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
        now = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
        assert now * 0.5 < ran <= now
    finally:
        ready.set()
        thread.join()


@pytest.mark.parametrize(
    "change",
    [
        "exec 9</etc/passwd",
        "exec 9<&-; exec 9</etc/passwd; read -r -N 5 -u 9",
        "renice -n 5 $$ >/dev/null",
        "rmdir ../gone",
    ],
)
def test_what_the_shell_holds_counts(change: str, shell: subprocess.Popen[bytes]) -> None:
    if "9<&-" in change:
        tell(shell, "exec 9</etc/passwd")
    hold = processes(shell.pid).shell
    assert hold is not None
    tell(shell, "true")
    again = processes(shell.pid).shell
    assert again is not None
    assert again.fingerprint == hold.fingerprint
    tell(shell, change)
    after = processes(shell.pid).shell
    assert after is not None
    assert after.fingerprint != hold.fingerprint


def test_open_files_keep_their_odd_names(shell: subprocess.Popen[bytes], tmp_path: Path) -> None:
    odd = tmp_path / "a\nb\\nc\\"
    odd.touch()
    tell(shell, f"exec 9<{tmp_path}/a*")
    hold = processes(shell.pid).shell
    assert hold is not None
    assert {file.number: file.target for file in hold.files}[9] == str(odd)


def test_a_shell_that_is_gone_has_no_fingerprint() -> None:
    table = ProcessTable((), (), None)
    assert table.fingerprint() != table.fingerprint()


def test_amend_sets_times_to_the_nanosecond_directories_last(tree: Path) -> None:
    times = {tree / "a": 5, tree / "a/b": -1, tree / "a/file": 1700000000123456789, tree / "link": 7}
    records = b"".join(os.fsencode(path) + b"\0%d\0" % when for path, when in times.items())
    assert run("amend", stdin=records) == b"0\n"
    for path, when in times.items():
        assert path.lstat().st_mtime_ns == when
    assert stat.S_ISLNK((tree / "link").lstat().st_mode)
    assert (tree / "link").stat().st_mtime_ns == 1700000000123456789


def test_amend_counts_what_is_missing(tree: Path) -> None:
    records = os.fsencode(tree / "none") + b"\x005\0" + os.fsencode(tree / "a/file") + b"\x006\0"
    assert run("amend", stdin=records, code=1) == b"1\n"
    assert (tree / "a/file").stat().st_mtime_ns == 6
    run("amend", stdin=b"/no-time", code=2)


def test_a_list_that_comes_in_pieces(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(observing.walk(tree))
    assert len(whole) > 5
    for size in (1, 7, 100, 101):
        monkeypatch.setattr(observing, "_CHUNK", size)
        assert list(observing.walk(tree)) == whole


def test_more_names_than_anybody_looks_at(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "MOST_RECORDS", 500)
    with pytest.raises(NotSeen, match="are too many"):
        list(observing.walk(tree))
    with pytest.raises(NotSeen, match="are too many"):
        observe.files_fingerprints(tree, observing.ImageTree(), NO_SERVICE, accessed=False)


def test_long_paths_cost_little_memory(tmp_path: Path) -> None:
    """What is told of each is 4 KiB; an image of such a directory has 120 MB of it."""
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(14):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        for number in range(30_000):
            os.mknod(f"{number:0250}")
    finally:
        os.chdir(here)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    image = observing.ImageTree()
    prints = {observe.files_fingerprints(tmp_path, image, NO_SERVICE, accessed=False) for _ in range(2)}
    sealing.seal(tmp_path)
    assert len(prints) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
