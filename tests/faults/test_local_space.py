"""No room: on the disk below a data directory, and in its pool; and a disk that gives back something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conformance.helpers import eventually
from tests.fakes.caches import settle
from tests.faults.consistency import loops_of
from tests.faults.dying import REPOSITORY
from tvsnap import Budget, Cache
from tvsnap.images import Image
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import TvsnapError

SIZE = "600m"

PROGRAM = """
import contextlib, json, os, sys, threading, time
from pathlib import Path
import tvsnap.engine.keeping.snapshotter
from tests.conformance.helpers import eventually, is_running
from tests.faults.consistency import loops_of
from tvsnap import Cache
from tvsnap.sandboxes.protocol import Limits
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import TvsnapError
from tvsnap import Budget

home, image = Path(sys.argv[1]), sys.argv[2]
tvsnap.engine.keeping.pauses.RETRY_AFTER = 0.0
seen = {}

def bash(rollout, command):
    result = rollout.call("bash", {"command": command})
    return [result.source, result.output, result.exit_code]

def attempt(name, *commands, salt=None):
    # A rollout that gets its answers, or an error that says what to do.
    with cache.rollout(image, salt=salt) as rollout:
        try:
            seen[name] = [bash(rollout, command) for command in commands]
        except TvsnapError as error:
            seen[name] = str(error)
        seen[name + ", private"] = rollout.private

def use(name, salt):
    deadline = time.monotonic() + 60
    while True:
        attempt(name, "echo one > f; x=1", "cat f; echo $x", salt=f"{salt}{time.monotonic()}")
        if isinstance(seen[name], list) and not seen[name + ", private"] and not cache.trouble or \\
                time.monotonic() > deadline:
            return
        time.sleep(0.1)

with Cache(home, policy="eager", budget=Budget(parked=0), prefork=0, limits=Limits(disk=0)) as cache:
    attempt("before", "echo one > f; x=1", "cat f; echo $x")
    # One sandbox fills the pool.
    with cache.rollout(image) as greedy:
        bash(greedy, "cd /tmp")
        filling = bash(greedy, "head -c 3G /dev/zero > big 2> /dev/null; echo ended with $?")
        seen["filling"] = filling
        seen["filling, private"] = greedy.private
        attempt("beside it, recorded", "echo one > f; x=1", "cat f; echo $x")
        attempt("beside it", "echo two > f; y=1", "cat f; echo $y")
        seen["trouble"] = cache.trouble
        seen["cleaning"] = bash(greedy, "rm big; echo $?")
    use("after it", "a")
    attempt("said aloud", "head -c 3G /dev/zero > big; echo ended with $?", salt="aloud")
    use("after that", "c")
    with cache.rollout(image) as large:  # fails though there is room for more than this
        seen["too large"] = bash(large, "fallocate -l 2G big; echo ended with $?")
        seen["too large, private"] = large.private
    with cache.rollout(image) as other:  # what says so for another reason is not to be shared either, to be safe
        bash(other, "echo No space left on device")
        seen["said so"] = other.unshared
    # One sandbox fills the pool and empties it again while a call of another is at work.
    with cache.rollout(image, salt="squeezed") as squeezed, cache.rollout(image, salt="greedy") as greedy:
        waiting = "until [ $(stat -f -c %a /tmp) -lt 512 ]; do sleep 0.1; done; " \
            "until [ $(stat -f -c %a /tmp) -gt 25600 ]; do sleep 0.123; done; echo over"  # blocks of 4 KiB
        call = threading.Thread(target=lambda: squeezed.call("bash", {"command": waiting}, 200))
        call.start()
        bash(greedy, "head -c 3G /dev/zero > big 2> /dev/null")
        eventually(lambda: is_running("sleep 0.123"))  # it has seen that
        bash(greedy, "rm big")
        while call.is_alive():
            cache.backend.room()  # clears away what was deleted
            call.join(0.1)
        seen["squeezed"] = squeezed.unshared
    use("after squeezing", "d")
    seen["trouble after it"] = cache.trouble
    with cache.rollout(image) as again:
        bash(again, "cd /tmp")
        edges = cache.graph.out_edges(again.state)
        seen["shared"] = [edge.shared for edge in edges if "/dev/zero" in edge.call.canonical]

    # Something else fills the disk.
    filler = home / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 20)):
            pass
    with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
        while file.write(b" "):
            pass
    attempt("full, recorded", "echo one > f; x=1", "cat f; echo $x")
    for number in range(30):  # the database takes a few more
        attempt("full", f"echo {number} > f; z=1", "cat f; echo $z")
        full = seen["full"]
        assert isinstance(full, str) or [each[1] for each in full] == ["", f"{number}\\n1\\n"], full
    seen["trouble when full"] = cache.trouble
    filler.unlink()
    attempt("emptied, recorded", "echo one > f; x=1", "cat f; echo $x")
    attempt("emptied", "echo three > f; z=1", "cat f; echo $z", salt="emptied")
eventually(lambda: loops_of(home) == [], timeout=60)  # while anyone uses the pool as it is, nobody gets another
with Cache(home, policy="eager", budget=Budget(parked=0), prefork=0, limits=Limits(disk=0)) as cache:
    use("opened again", "b")
    seen["checkpoints, opened again"] = cache.stats().checkpoints
    seen["trouble, opened again"] = cache.trouble
    attempt("opened again, recorded", "echo one > f; x=1", "cat f;  echo $x")
    eventually(lambda: cache.graph.leases() == [], timeout=60)  # what a call led to is kept first
print(json.dumps(seen))
"""


def with_mounts(script: str, *arguments: str | Path) -> Any:
    """Runs a shell script whose mounts only it sees; returns the JSON that it prints."""
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=800,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_no_room(tmp_path: Path, terminal_image: Image) -> None:
    """On a small disk, mounted where only the program sees it."""
    images = terminal_image.rootfs.parents[1]
    script = f'mount -t tmpfs -o size={SIZE} none "$1" && ln -s "$2" "$1/images" && exec "$3" -c "$4" "$1" "$5"'
    seen = with_mounts(script, tmp_path, images, sys.executable, PROGRAM, "terminal")
    one, three = ["one\n1\n"], ["three\n1\n"]

    def said(name: str) -> list[str] | None:
        """Returns what was printed, None where an error was raised that names the directory."""
        if isinstance(seen[name], str):
            assert str(tmp_path) in seen[name]
            return None
        return [output for _, output, _ in seen[name]]

    assert said("before") == ["", *one]
    assert seen["filling"][1] == "ended with 1\n"
    assert "may have failed by no fault of its own: sandboxes and snapshots had" in seen["filling, private"]
    assert seen["shared"] == [False], "what a full pool caused was shared"
    assert seen["beside it, recorded"] == [["hit", "", 0], ["hit", *one, 0]]
    assert said("beside it") in (None, ["", "two\n1\n"])
    assert seen["cleaning"][1] == "0\n"
    assert said("after it") == ["", *one]
    assert (seen["after it, private"], seen["trouble after it"]) == (None, None)
    assert said("said aloud") is None
    assert "a call failed for want of room: sandboxes and snapshots had only" in seen["said aloud"]
    assert said("after that") == ["", *one]
    assert "No space left on device" in seen["too large"][1]
    assert "by no fault of its own" in seen["too large, private"]
    assert "by no fault of its own" in seen["said so"]
    assert "too little room in" in seen["squeezed"]

    assert said("full, recorded") in (None, ["", *one])
    assert said("full") in (None, ["", "29\n1\n"])
    assert seen["emptied, recorded"] == [["hit", "", 0], ["hit", *one, 0]]
    assert said("emptied") in (None, ["", *three])
    assert said("opened again") == ["", *one]
    assert (seen["opened again, private"], seen["trouble, opened again"]) == (None, None)
    assert seen["checkpoints, opened again"] >= 1
    assert [source for source, *_ in seen["opened again, recorded"]] == ["hit", "executed"]
    assert said("opened again, recorded") == ["", *one]


MARKER = b"what the disk holds of it"


def damage_on_disk(pool: Path, marker: bytes) -> int:
    """Flips a bit wherever the file of a pool, which nobody has open, holds some text; returns how often."""
    found = 0
    with pool.open("r+b") as file:
        at = 0
        size = os.fstat(file.fileno()).st_size
        while at < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # a hole to the end
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            data = file.read(at - start)
            place = data.find(marker)
            while place >= 0:
                found += 1
                file.seek(start + place)
                file.write(bytes([marker[0] ^ 1]))
                place = data.find(marker, place + 1)
    return found


OPTIONS: dict[str, Any] = {"policy": "eager", "budget": Budget(parked=0), "prefork": 0}


def record(home: Path, image: Image, calls: tuple[str, ...]) -> None:
    """Makes a rollout, and leaves nothing open."""
    (home / "images").symlink_to(image.rootfs.parents[1])
    with Cache(home, **OPTIONS) as cache, cache.rollout(image.name) as rollout:
        for command in calls:
            rollout.call("bash", {"command": command})
            settle(rollout)
        assert len(cache.graph.snapshots()) >= 2
    eventually(lambda: loops_of(home) == [], timeout=60)


def look(home: Path, image: Image, calls: tuple[str, ...], command: str, *, kept: bool = True) -> ToolResult:
    """Makes the same calls, and one that is new.

    Args:
        kept: nothing of what the calls led to was dropped yet, so that all of them are answered.
    """
    with Cache(home, **OPTIONS) as cache, cache.rollout(image.name) as rollout:
        for made in calls:
            assert rollout.call("bash", {"command": made}).source == "hit" or not kept
        result = rollout.call("bash", {"command": command})
        assert rollout.private is None
    eventually(lambda: loops_of(home) == [], timeout=60)
    return result


def test_a_disk_that_gives_back_something_else(tmp_path: Path, terminal_image: Image) -> None:
    """btrfs notices, and a command sees a read error: what it makes of that is no answer."""
    calls = (f"cd /tmp; yes '{MARKER.decode()}' | head -n 20000 > f", "x=1", "y=2")
    record(tmp_path, terminal_image, calls)
    assert damage_on_disk(tmp_path / "pool.btrfs", MARKER) >= 1
    for number in range(2):
        command = f"echo $x$y; sort -u f; wc -l < f; echo {number}"
        result = look(tmp_path, terminal_image, calls, command, kept=number == 0)
        assert (result.output, result.source) == (f"12\n{MARKER.decode()}\n20000\n{number}\n", "executed")


def test_a_disk_that_gives_back_another_tree(tmp_path: Path, terminal_image: Image) -> None:
    """A small file lies in a tree of btrfs, without which the pool may not work at all: then that is said."""
    calls = (f"cd /tmp; echo '{MARKER.decode()}' > f", "x=1", "y=2")
    record(tmp_path, terminal_image, calls)
    assert damage_on_disk(tmp_path / "pool.btrfs", MARKER) >= 1
    try:
        assert look(tmp_path, terminal_image, calls, "echo $x$y; cat f").output == f"12\n{MARKER.decode()}\n"
    except TvsnapError as error:
        said = str(error)
    else:
        said = str(tmp_path)
    assert str(tmp_path) in said
    eventually(lambda: loops_of(tmp_path) == [], timeout=60)
    (tmp_path / "pool.btrfs").unlink()
    assert look(tmp_path, terminal_image, calls, "echo $x$y; cat f; :", kept=False).output == f"12\n{MARKER.decode()}\n"


NO_NEW_NAMES = """
import json, os, sys
from pathlib import Path
from tvsnap import Cache

home, image = Path(sys.argv[1]), sys.argv[2]

def fill(add):
    try:
        while True:
            add()
    except OSError:
        os.sync()

with Cache(home, policy="eager", prefork=0) as cache:
    with cache.rollout(image) as rollout:
        for turn in range(3):
            rollout.call("bash", {"command": f"echo {turn} > f"})
    snapshots = cache.backend._snapshots
    with open(snapshots.path.parent / "filler", "wb", buffering=0) as filler:
        fill(lambda: filler.write(bytes(1 << 20)))
    links = snapshots.path.parent / "links"
    links.mkdir()
    for turn in range(3):
        numbers = iter(range(1 << 20))
        fill(lambda: (links / f"{turn}{next(numbers):0200}").symlink_to("x" * 2000))
    names, said = os.listdir(snapshots.path), ""
    try:
        os.rename(snapshots.path / names[0], snapshots.temporary / "moved")
    except OSError as error:
        said = error.strerror
    for name in names:
        cache.backend.delete_snapshot(name)
    print(json.dumps([len(names), said, os.listdir(snapshots.path), os.listdir(snapshots.temporary)]))
"""


def test_snapshots_are_deleted_where_the_disk_takes_no_new_names(tmp_path: Path, terminal_image: Image) -> None:
    """On a btrfs of the host, full of data and then of names."""
    (tmp_path / "pool").mkdir()
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    disk = tmp_path / "disk"
    disk.touch()
    os.truncate(disk, 160 << 20)
    subprocess.run(["mkfs.btrfs", "-q", disk], check=True, capture_output=True)
    script = 'mount -o loop "$1/disk" "$1/pool" && exec "$2" -c "$3" "$1" "$4"'
    seen = with_mounts(script, tmp_path, sys.executable, NO_NEW_NAMES, "terminal")
    assert seen == [3, "No space left on device", [], []]
