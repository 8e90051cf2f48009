"""Files of a sandbox that the host looks at, while the sandbox does its worst to them: links, races, pipes, depths."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, sh, usable
from tvsnap.sandboxes.protocol import Sandbox

SECONDS = 2.0
FILES = 40
SECRET = b"of the host\n" * 333

RACE = """
import ctypes, os, sys
outside = sys.argv[1]
exchange = lambda one, other: ctypes.CDLL(None).renameat2(-100, one, -100, other, 2)
os.makedirs("/srv/real")
for number in range({files}):
    open(f"/srv/real/{{number}}", "w").write("inside")
    open(f"/srv/file{{number}}", "w").write("inside")
os.symlink(outside, "/srv/link")
os.symlink(f"{{outside}}/0", "/srv/to-file")
os.mkfifo("/srv/pipe")
open("/srv/racing", "w").close()
while True:
    for number in range({files}):
        exchange(b"/srv/real", b"/srv/link")
        exchange(b"/srv/file%d" % number, b"/srv/to-file")
        exchange(b"/srv/file%d" % number, b"/srv/pipe")
"""


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory of the host that everybody may read, with files of the names that the racing ones have."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        for number in range(FILES):
            (directory / str(number)).write_bytes(SECRET)
        (directory / "only-outside").mkdir()
        yield directory


@pytest.mark.timeout(300, func_only=True)
def test_races_against_those_who_look(lab: Lab, sandbox: Sandbox, outside: Path) -> None:
    """Directories, files, links and pipes take each other's place thousands of times a second."""
    sandbox.write_file("/var/tmp/race.py", RACE.format(files=FILES).encode())
    sh(sandbox, f"python3 /var/tmp/race.py {outside} & until [ -e /srv/racing ]; do sleep 0.05; done")
    digest = hashlib.sha256(SECRET).hexdigest()
    end = time.monotonic() + SECONDS
    looks = 0
    while time.monotonic() < end or looks < 5:
        changes = dict(sandbox.changes())
        assert not [path for path in changes if "only-outside" in path]
        told = [path for path, change in changes.items() if change.identity == digest or change.size == len(SECRET)]
        assert not told, "contents of the host were read"
        sandbox.observe()
        lab.backend.disk_usage()
        looks += 1
    sh(sandbox, "kill %1; wait")
    usable(sandbox)


@pytest.mark.timeout(300, func_only=True)
def test_an_archive_holds_only_what_is_within(sandbox: Sandbox, outside: Path) -> None:
    """Taken while the race goes on; and all that it names lies below its root."""
    sandbox.write_file("/var/tmp/race.py", RACE.format(files=FILES).encode())
    sh(sandbox, f"python3 /var/tmp/race.py {outside} & until [ -e /srv/racing ]; do sleep 0.05; done")
    sh(sandbox, f"mkdir /srv/e; cd /srv/e; ln -s ../../../..{outside} climbs; touch ./-C ..x $'a\\nb'; ln ..x hard")
    with sandbox.archive() as stream, tarfile.open(fileobj=stream, mode="r|", errors="surrogateescape") as archive:
        seen = set()
        for member in archive:
            names = [member.name, member.linkname] if member.islnk() else [member.name]
            for name in names:
                assert not name.startswith("/"), name
                assert ".." not in name.split("/"), name
            seen.add(member.name.removeprefix("./"))
            if member.isreg() and member.name.removeprefix("./").startswith("srv/"):
                content = archive.extractfile(member)
                assert content is not None
                assert content.read() in (b"inside", b"")
    assert {f"srv/e/{name}" for name in ("climbs", "-C", "..x", "a\nb", "hard")} <= seen
    assert not [name for name in seen if "only-outside" in name]


def test_links_of_the_image_lead_nowhere(sandbox: Sandbox) -> None:
    """The image's /var/run leads to /run: to the sandbox's, not to this machine's."""
    assert sh(sandbox, "readlink /var/run") == "/run\n"
    sh(sandbox, "rm /var/run; mkdir -p /var/run/lock /var/run/here")
    assert {path for path in sandbox.changes() if path.startswith("/var/run")} == {
        "/var/run",
        "/var/run/here",
        "/var/run/lock",
    }


def test_an_abyss(sandbox: Sandbox) -> None:
    """Directories deeper than any path is long: what cannot be looked at counts as changed, and costs no memory."""
    dig = "for _ in range(5000): os.mkdir('d' * 50); os.chdir('d' * 50)"
    sh(sandbox, f'cd /srv; python3 -c "import os\n{dig}"; cd', timeout=120)
    seen = [sandbox.observe(), sandbox.observe()]
    assert seen[0].files != seen[1].files
    usable(sandbox)
