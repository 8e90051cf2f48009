"""A small disk that a rollout fills, or others: the rest goes on or is told why not, and then all is well again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.helpers import eventually
from tvsnap import Budget, Cache
from tvsnap.images import Image
from tvsnap.sandboxes.local.storage import reclaiming
from tvsnap.sandboxes.local.storage.layers import POOL_FILE

DISK = "450m"
PROGRAM = """
import json, os, sys, time
from pathlib import Path
from tvsnap import Budget, Cache, Limits
from tvsnap.model.errors import InfrastructureError
from tvsnap.images import ImageStore

home, image = Path(sys.argv[1]), sys.argv[2]
told = {}

def told_by(what, act):
    try:
        told[what] = act()
    except InfrastructureError as error:
        told[what] = f"error: {error}"

def bash(rollout, command):
    return rollout.call("bash", {"command": command}, timeout=120).output

def at_last(what, act):
    # btrfs takes its time to make free regions free for trees.
    began = time.monotonic()
    told_by(what, act)
    while str(told[what]).startswith("error") and time.monotonic() - began < 90:
        time.sleep(0.1)
        told_by(what, act)

def a_new_one(cache, salt):
    with cache.rollout(image, salt=salt) as rollout:
        return bash(rollout, "echo new")

def errors_of_the_pool():
    name = os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    found = [path for path in Path("/sys/fs/btrfs").glob("*/devices/*") if path.name == name]
    return [(path.parents[1] / "devinfo/1/error_stats").read_text() for path in found]

def becomes(short):
    began = time.monotonic()
    while cache.backend.room().short != short and time.monotonic() - began < 60:
        time.sleep(0.02)
    return cache.backend.room().short

with Cache(home, policy="eager", budget=Budget(parked=0)) as cache:
    device = os.stat(cache.backend._storage.device).st_rdev
    neighbour = cache.rollout(image)
    bash(neighbour, "echo precious > /root/p; x=1")
    bash(neighbour, "true")  # once the snapshot before it was taken
    pool = os.statvfs(cache.backend._storage.path)
    told["pool"] = pool.f_blocks * pool.f_frsize
    hostile = cache.rollout(image)
    filler = "until [ -e /tmp/go ]; do sleep 0.01; done; while :; do cat /dev/zero >> /root/filler; sleep 0.01; done"
    bash(hostile, f"{{ {filler}; }} 2>/dev/null &")
    hostile.sandbox().write_file("/tmp/go", b"")
    told["short"] = becomes(True)
    disk = os.statvfs(home)
    told["left below"] = disk.f_bavail * disk.f_frsize
    told_by("neighbour", lambda: bash(neighbour, "cat /root/p; echo $x"))
    told_by("new one", lambda: a_new_one(cache, "amid"))
    told_by("filler", lambda: bash(hostile, "cat /dev/zero > /root/more"))
    hostile.close()
    told["short afterwards"] = becomes(False)
    at_last("new one afterwards", lambda: a_new_one(cache, "afterwards"))
    told_by("neighbour afterwards", lambda: bash(neighbour, "cat /root/p; echo $x; echo more >> /root/p; cat /root/p"))
    told["errors"] = errors_of_the_pool()
    neighbour.close()
with Cache(home, policy="eager") as cache:
    def both():
        with cache.rollout(image) as rollout:
            return [bash(rollout, "echo precious > /root/p; x=1"), bash(rollout, "cat /root/p; echo again")]

    at_last("once more", both)
    told["snapshots"] = len(list(cache.backend.snapshots()))
print(json.dumps(told))
"""


OTHERS_FILL_IT = """
import json, os, subprocess, sys
from pathlib import Path
from tvsnap import Budget, Cache

home, image = Path(sys.argv[1]), sys.argv[2]
told = {}

def bash(rollout, command):
    result = rollout.call("bash", {"command": command}, timeout=120)
    return [result.source, result.output]

def pool():
    return (home / "pool.btrfs").stat().st_blocks * 512 >> 20

with Cache(home, policy="eager", budget=Budget(parked=0)) as cache:
    told["empty"] = pool()
    with cache.rollout(image) as precious:
        bash(precious, "head -c 20M /dev/urandom > /root/p; sha256sum < /root/p > /root/sum; x=1")
        precious.sandbox()
        precious.keep("precious")
    with cache.rollout(image, salt="large") as large:
        told["large"] = bash(large, "head -c 150M /dev/urandom > /root/big; sync; wc -c < /root/big")[1]
        told["filled"] = pool()
        with open(home / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(1 << 20))
            except OSError as error:
                told["filler"] = error.strerror
        # Many small files, again and again: trees are written, and written anew.
        few = "for i in {1..500}; do echo $i > /root/f$i; done; sync; rm /root/f*; sync"
        told["while full"] = [bash(large, f"{few}; echo {turn}")[1] for turn in range(3)]
        told["read-only"] = cache.backend.room().read_only
        told["left while full"] = os.statvfs(home).f_bavail
tvsnap = [sys.executable, "-c", "from cli.entry import main; main()"]
told["gc while full"] = subprocess.run([*tvsnap, "gc", "--home", str(home)], stdout=sys.stderr).returncode
with open(home / "filler", "ab", buffering=0) as filler:  # what that has freed
    try:
        while True:
            filler.write(bytes(4096))
    except OSError as error:
        told["filler"] = error.strerror
told["forget while full"] = subprocess.run(
    [*tvsnap, "forget", "--task", "other", "--yes", "--home", str(home)], stdout=sys.stderr
).returncode
(home / "filler").unlink()
subprocess.run([*tvsnap, "gc", "--keep-bytes", "30MB", "--home", str(home)], check=True, stdout=sys.stderr)
told["after gc"] = pool()
with Cache(home, policy="eager", budget=Budget(parked=0)) as cache:
    with cache.rollout(image, salt="new") as new:
        told["new"] = bash(new, "head -c 150M /dev/zero | tee /root/big | wc -c")[1]
    with cache.rollout(image) as precious:
        told["known"] = bash(precious, "head -c 20M /dev/urandom > /root/p; sha256sum < /root/p > /root/sum; x=1")
        told["kept"] = bash(precious, "sha256sum < /root/p | diff - /root/sum && echo $x")
print(json.dumps(told))
"""


def test_others_fill_the_disk_below_the_pool(tmp_path: Path, terminal_image: Image) -> None:
    told = run_on_a_small_disk(OTHERS_FILL_IT, tmp_path, terminal_image)
    assert told["large"] == "157286400\n"
    assert told["filled"] > told["empty"] + 150
    assert told["filler"] == "No space left on device"
    assert told["while full"] == ["0\n", "1\n", "2\n"]
    assert told["read-only"] is False
    assert told["left while full"] == 0
    assert (told["gc while full"], told["forget while full"]) == (0, 3), "it runs, and there is no such task"
    assert told["after gc"] < told["empty"] + 40  # the disk has the rest back
    assert told["new"] == "157286400\n"
    assert told["known"] == ["hit", ""]
    assert told["kept"] == ["executed", "1\n"]


def test_what_is_deleted_goes_back_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal_image: Image
) -> None:
    monkeypatch.setattr(reclaiming, "_SOON", 0.2)
    monkeypatch.setattr(reclaiming, "_PATIENCE", 1000)
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    with Cache(tmp_path, policy="never", budget=Budget(parked=0)) as cache:
        pool = tmp_path / POOL_FILE
        empty = pool.stat().st_blocks
        with cache.rollout(terminal_image) as rollout:
            rollout.call("bash", {"command": "head -c 200M /dev/urandom > /root/big; sync"})
            full = pool.stat().st_blocks
        eventually(lambda: pool.stat().st_blocks < empty + (full - empty) // 4, timeout=90)
        with cache.rollout(terminal_image) as rollout:  # closing does not wait for half a minute
            rollout.call("bash", {"command": "true"})
        monkeypatch.setattr(reclaiming, "_SOON", 60.0)
        began = time.monotonic()
    assert time.monotonic() - began < 50


def test_what_the_disk_gets_back_is_told(
    tmp_path: Path, terminal_image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaiming, "_SOON", 600.0)  # else some of it may be back before it is asked for
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    with Cache(tmp_path, policy="never", budget=Budget(parked=0)) as cache:
        pool = tmp_path / POOL_FILE
        with cache.rollout(terminal_image) as rollout:
            rollout.call("bash", {"command": "head -c 100M /dev/urandom > /root/big; sync"})
        eventually(lambda: cache.backend.disk_usage()["sandboxes"] < 1 << 20, timeout=60)
        full = pool.stat().st_blocks * 512
        returned = cache.backend.reclaim()
        assert 80 << 20 < returned == full - pool.stat().st_blocks * 512
        assert cache.backend.reclaim() < 2 << 20


def test_a_rollout_that_fills_the_disk(tmp_path: Path, terminal_image: Image) -> None:
    told = run_on_a_small_disk(PROGRAM, tmp_path, terminal_image)
    assert 256 << 20 < told["pool"] < 450 << 20
    assert told["short"] is True
    assert told["left below"] > 10 << 20
    assert re.search("No space left on device|had only", told["filler"])
    assert told["neighbour"] == "precious\n1\n"
    # What is left for trees may serve for a start.
    assert re.match(r"new\n|error: .*(no room for a sandbox|No space left on device)", told["new one"])
    assert told["short afterwards"] is False
    assert told["new one afterwards"] == "new\n"
    assert told["neighbour afterwards"] == "precious\n1\nprecious\nmore\n"
    assert told["once more"] == ["", "precious\nagain\n"]
    assert told["snapshots"] > 0
    assert len(told["errors"]) == 1
    assert {line.split()[1] for line in told["errors"][0].splitlines()} == {"0"}


def run_on_a_small_disk(program: str, home: Path, image: Image) -> dict[str, Any]:
    """Runs a program on a file system of its own, in memory, which ends with it."""
    prepare = f'mount -t tmpfs -o size={DISK},mode=700 none "$1" && ln -s "$2" "$1/images" && shift 2 && exec "$@"'
    command = [str(home), str(image.rootfs.parents[1])]
    command += [sys.executable, "-c", program, str(home), image.name]
    run = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", prepare, "-", *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert run.returncode == 0, run.stderr
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return told
