"""The archive of a sandbox's files: all of them, as they are at one moment, in any tar's words."""

from __future__ import annotations

import io
import tarfile
import time

import pytest

from tests.conformance.helpers import Lab, eventually, sh, usable
from tvsnap.model.errors import SandboxDied
from tvsnap.sandboxes.protocol import Sandbox

SMALLER = (
    "rm -rf /usr/share /usr/include /usr/libexec /usr/lib/{gcc,git-core,python3} /usr/bin/*-linux-gnu-* "
    "/usr/lib/*-linux-gnu/{perl*,gconv,lib*san*,*.a}"
)
"""A command that spares archives and engines what no test looks at, most of the image."""
ODD_NAMES = (
    "plain",
    "two\nlines",
    " -blank",
    "*?[a]\\",
    "\u00e4\u65e5",
    b"\xff\xfe.bin".decode("utf-8", "surrogateescape"),
    "n" * 255,
    "/".join("d" * 200 for _ in range(6)) + "/deep",
)

MAKE_TREE = r"""
import os, socket, struct
os.makedirs("/srv/t"); os.chdir("/srv/t")
def file(name, data=b"x"):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    open(name, "wb").write(data)
for name in NAMES:
    file(os.fsencode(name), os.fsencode(name))
file("owned"); os.chown("owned", 1234, 65534)
file("setuid"); os.chmod("setuid", 0o6755)
file("secret"); os.chown("secret", 33, 33); os.chmod("secret", 0)
os.mkdir("closed"); file("closed/in"); os.chown("closed", 33, 33); os.chmod("closed", 0o1000)
file("one", b"linked"); os.link("one", "two")
os.symlink("nowhere/\u00e4", "dangling"); os.symlink("/etc/passwd", "absolute")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
file("old"); os.utime("old", ns=(1, 981173106_123456789))
with open("sparse", "wb") as f: f.truncate(3 << 20); f.seek(1 << 20); f.write(b"middle")
file("big", b"0123456789abcdef" * (1 << 18))
file("capable"); os.setxattr("capable", "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
file("/dev/shm/lost")
"""


@pytest.fixture
def sandbox(lab: Lab) -> Sandbox:
    sandbox = lab.start()
    sh(sandbox, SMALLER)
    return sandbox


def archived(sandbox: Sandbox) -> tuple[dict[str, tarfile.TarInfo], tarfile.TarFile]:
    """Returns the members of a sandbox's archive by name, and the archive."""
    with sandbox.archive() as stream:
        return opened(stream.read())


def opened(archive: bytes) -> tuple[dict[str, tarfile.TarInfo], tarfile.TarFile]:
    tar = tarfile.TarFile.open(fileobj=io.BytesIO(archive), errors="surrogateescape")
    return {member.name.removeprefix("./"): member for member in tar}, tar


def data(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def test_what_was_done_is_in_it(sandbox: Sandbox) -> None:
    sh(sandbox, "mkdir -p /tmp/d; cd /tmp/d; echo 1 > f; echo 2 > g; rm g; rm /etc/debian_version; ln -s f s")
    members, tar = archived(sandbox)
    assert data(tar, members["tmp/d/f"]) == b"1\n"
    assert members["tmp/d/s"].linkname == "f"
    assert "tmp/d/g" not in members
    assert "etc/debian_version" not in members
    usable(sandbox)


def test_every_kind_of_file(sandbox: Sandbox) -> None:
    sandbox.write_file("/tmp/make.py", f"NAMES = {ODD_NAMES!r}\n{MAKE_TREE}".encode())
    assert sh(sandbox, "python3 /tmp/make.py; cd /srv/t; mkdir .wh..; touch +kept .wh.+kept .wh../lost") == ""
    members, tar = archived(sandbox)
    found = {name.removeprefix("srv/t/"): member for name, member in members.items() if name.startswith("srv/t/")}
    for name in ODD_NAMES:
        assert data(tar, found[name]) == name.encode("utf-8", "surrogateescape")
    assert (found["owned"].uid, found["owned"].gid) == (1234, 65534)
    assert found["setuid"].mode == 0o6755
    assert (data(tar, found["secret"]), found["secret"].mode, found["secret"].uid) == (b"x", 0, 33)
    assert (found["closed"].mode, found["closed/in"].size) == (0o1000, 1)
    assert data(tar, found["one"]) == data(tar, found["two"]) == b"linked"
    assert [found[name].islnk() for name in ("one", "two")].count(True) == 1
    assert (found["dangling"].linkname, found["absolute"].linkname) == ("nowhere/\u00e4", "/etc/passwd")
    assert found["pipe"].isfifo()
    assert "socket" not in found
    assert found["old"].pax_headers["mtime"] == "981173106.123456789"
    assert data(tar, found["sparse"]) == bytes(1 << 20) + b"middle" + bytes((2 << 20) - 6)
    assert not found["sparse"].issparse(), "engines that read holes cannot save the image again"
    assert data(tar, found["big"]) == b"0123456789abcdef" * (1 << 18)
    capability = found["capable"].pax_headers["SCHILY.xattr.security.capability"].encode("utf-8", "surrogateescape")
    assert int.from_bytes(capability[:4], "little") == 0x02000001, "no user namespace's"
    outside = [name for name in members if name.startswith(("proc/", "sys/", "dev/", "run/tvsnap"))]
    assert outside == []
    assert "+kept" in found
    assert [name for name in members if ".wh." in name] == [], "by which layers of images say what they delete"
    assert {"proc", "sys", "dev"} <= members.keys()


def test_two_of_the_same_are_equal(sandbox: Sandbox) -> None:
    sh(sandbox, "touch /tmp/f")
    archives = []
    for _ in range(2):
        with sandbox.archive() as stream:
            archives.append(stream.read())
    assert archives[0] == archives[1]


def test_it_is_one_moment_of_what_runs(sandbox: Sandbox) -> None:
    sh(sandbox, "cd /tmp; (while :; do echo x >> a; echo x >> z; done) & until [ -s z ]; do sleep 0.05; done")
    with sandbox.archive() as stream:
        read = stream.read(1 << 20)
        time.sleep(0.3)
        members, _ = opened(read + stream.read())
    sizes = {name: members[f"tmp/{name}"].size for name in ("a", "z")}
    assert sizes["a"] - sizes["z"] in (0, 2)
    eventually(lambda: len(sandbox.read_file("/tmp/a")) > sizes["a"])  # it goes on after that


def test_reading_may_end_early(sandbox: Sandbox) -> None:
    with sandbox.archive() as stream:
        assert len(stream.read(2)) == 2
    with pytest.raises(KeyError), sandbox.archive() as stream:
        raise KeyError
    usable(sandbox)


def test_of_a_closed_one(sandbox: Sandbox) -> None:
    sandbox.close()
    with pytest.raises(SandboxDied), sandbox.archive():
        pass
