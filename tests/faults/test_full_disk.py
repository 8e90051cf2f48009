"""A small disk that one rollout fills: the others go on or are told why not, and afterwards all is well again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tvsnap.images import Image

DISK = "450m"
PROGRAM = """
import json, os, sys, time
from pathlib import Path
from tvsnap import Cache, Limits, ParkLimits
from tvsnap.errors import InfrastructureError
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

with Cache(home, policy="eager", park=ParkLimits(count=0)) as cache:
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


def test_a_rollout_that_fills_the_disk(tmp_path: Path, terminal_image: Image) -> None:
    told = run_on_a_small_disk(tmp_path, terminal_image)
    assert 256 << 20 < told["pool"] < 450 << 20
    assert told["short"] is True
    assert told["left below"] > 10 << 20
    assert re.search("No space left on device|too full", told["filler"])
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


def run_on_a_small_disk(home: Path, image: Image) -> dict[str, Any]:
    """Runs the program on a file system of its own, in memory, which ends with it."""
    prepare = f'mount -t tmpfs -o size={DISK},mode=700 none "$1" && ln -s "$2" "$1/images" && shift 2 && exec "$@"'
    command = [str(home), str(image.rootfs.parents[1])]
    command += [sys.executable, "-c", PROGRAM, str(home), image.name]
    run = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", prepare, "-", *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert run.returncode == 0, run.stderr
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return told
