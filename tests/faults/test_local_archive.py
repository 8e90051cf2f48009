"""Archives of the local backend that are cut short: an error, never a part that passes for the whole."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import LIMITS, eventually, sh, usable
from tvsnap.host.owners import Owner
from tvsnap.images import Image
from tvsnap.model.errors import InfrastructureError, SandboxDied
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.local.sandbox import LocalSandbox

REPOSITORY = Path(__file__).parents[2]

ATTRIBUTES = r"""
import os, struct
open("/srv/f", "w").close()
os.setxattr("/srv/f", "user.note", b"a=b\nc")
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in (
    (1, 6, 0xffffffff), (2, 4, 1234), (4, 4, 0xffffffff), (16, 4, 0xffffffff), (32, 4, 0xffffffff)))
os.setxattr("/srv/f", "system.posix_acl_access", acl)
"""

DIE_WHILE_ARCHIVING = """
import os, signal
from pathlib import Path
from tvsnap import Cache
with Cache({home!r}) as cache:
    image = cache.images.get({image!r})
    sandbox = cache.backend.start(image, cache.limits_for(image))
    sandbox.run("sleep 1000 &", timeout=60)
    with sandbox.archive() as stream:
        stream.read(1)
        print(sandbox.init, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def sandbox(backend: LocalBackend, terminal_image: Image) -> Iterator[LocalSandbox]:
    sandbox = backend.start(terminal_image, LIMITS)
    yield sandbox
    sandbox.close()


def tar_below(pid: int) -> int:
    """Returns the process that archives: the one child of ours that is a tar."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text() == "tar\n":
            return int(child)
    raise AssertionError("no tar runs")


def has_ended(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def read_with_tar_killed(sandbox: LocalSandbox) -> None:
    with sandbox.archive() as stream:
        stream.read(1 << 20)
        os.kill(tar_below(os.getpid()), signal.SIGKILL)
        stream.read()


def test_a_killed_tar(sandbox: LocalSandbox) -> None:
    with pytest.raises(InfrastructureError, match="could not be read"):
        read_with_tar_killed(sandbox)
    usable(sandbox)


def test_a_deep_tree(sandbox: LocalSandbox) -> None:
    """GNU tar tries a pattern that is not anchored at each level of each name: 600 levels took more than a minute."""
    sh(sandbox, "cd /srv; for n in {1..600}; do mkdir -p d; cd d; done; echo deep > f")
    with sandbox.archive() as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        names = {member.name for member in archive}
    assert f"./srv/{'d/' * 600}f" in names
    assert {"proc", "./etc/passwd"} <= names
    assert not any(name.startswith(("./proc/", "./dev/", "./run/tvsnap")) for name in names)


def test_a_file_that_is_all_holes(sandbox: LocalSandbox) -> None:
    sh(sandbox, "truncate -s 7E /srv/f")
    said = "take more than 128 GiB, holes included.*the largest is /srv/f, 8,070,450,532,247,928,832 bytes"
    with pytest.raises(InfrastructureError, match=said), sandbox.archive() as stream:
        stream.read()
    usable(sandbox)


def test_a_sandbox_that_has_died(sandbox: LocalSandbox) -> None:
    os.kill(sandbox.init, signal.SIGKILL)
    eventually(lambda: has_ended(sandbox.init))
    with pytest.raises(SandboxDied), sandbox.archive() as stream:
        stream.read()


def test_a_sandbox_that_dies_meanwhile(sandbox: LocalSandbox) -> None:
    """What is killed while it stands still ends after that; all of its files are read."""
    sh(sandbox, "echo kept > /tmp/z")
    with sandbox.archive() as stream:
        start = stream.read(1 << 20)
        os.kill(sandbox.init, signal.SIGKILL)
        tar = tarfile.TarFile.open(fileobj=io.BytesIO(start + stream.read()))
    assert tar.getmember("./tmp/z").size == 5


def test_a_sandbox_that_is_closed_meanwhile(sandbox: LocalSandbox) -> None:
    sh(sandbox, "head -c 20M /dev/zero > /var/big; sleep 1000 & sync")
    try:
        with sandbox.archive() as stream:
            stream.read(1)
            closing = threading.Thread(target=sandbox.close)
            began = time.monotonic()
            closing.start()
            closing.join()
            assert time.monotonic() - began < 60, "what stands still was not let go"
            tar = tarfile.TarFile.open(fileobj=io.BytesIO(b"." + stream.read()))
            whole = "./var/big" in tar.getnames()
    except (InfrastructureError, tarfile.TarError):
        whole = True
    assert whole, "a part passed for the whole"


def test_a_program_that_dies_meanwhile(tvsnap_home: Path, terminal_image: Image) -> None:
    """Its sandbox, which stands still, is reaped all the same."""
    script = DIE_WHILE_ARCHIVING.format(home=str(tvsnap_home), image=terminal_image.digest)
    run = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert run.returncode == -signal.SIGKILL, run.stderr
    init = int(run.stdout)
    owner = Owner(tvsnap_home)
    backend = LocalBackend(tvsnap_home, owner.id)
    try:
        began = time.monotonic()
        assert backend.reap().sandboxes >= 1
        assert time.monotonic() - began < 60
        assert not Path(f"/proc/{init}/root/tmp").exists()
    finally:
        backend.close()
        owner.close()


def test_attributes_and_access_control_lists(sandbox: LocalSandbox) -> None:
    sandbox.write_file("/tmp/make.py", ATTRIBUTES.encode())
    assert sh(sandbox, "python3 /tmp/make.py") == ""
    with sandbox.archive() as stream:
        member = tarfile.TarFile.open(fileobj=io.BytesIO(stream.read())).getmember("./srv/f")
    assert member.pax_headers["SCHILY.xattr.user.note"] == "a=b\nc"
    assert "user:1234:r--" in member.pax_headers["SCHILY.acl.access"].splitlines()
