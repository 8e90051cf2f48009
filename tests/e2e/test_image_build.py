"""Real Debian systems, bootstrapped from the archive."""

from __future__ import annotations

import io
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tvsnap.images import UID_BASE, Image, ImageBuildError, ImageStore
from tvsnap.images.build.runner import run_inside
from tvsnap.model.images import CAPABILITY_XATTR

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root's rights"),
    pytest.mark.timeout(900),
]

TOOLS = (
    "awk bash bc curl diff file find g++ gcc git grep hexdump jq less lsof make nc netstat patch pip ps python python3 "
    "rsync sed sqlite3 ss ssh tmux tree unzip vim wget xxd xz zip"
)


def look(image: Image, script: str) -> list[str]:
    """Runs a script in the image's own tree, and returns what it printed; it must not write."""
    lines: list[str] = []
    argv = ["/bin/sh", "-e", "-c", script]
    run_inside(image.rootfs, argv, image.env, lines.append, cwd=image.workdir, hostname=image.hostname)
    return lines


def test_a_missing_key_of_the_archive_is_told_with_the_keyring_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "image.yaml").write_text("name: keyless\ndebian: {suite: bookworm}\n")
    (tmp_path / "none").mkdir()
    places = [path for path in ("/usr/share/keyrings", "/etc/apt/trusted.gpg.d") if os.path.isdir(path)]
    covered = [f"mount --bind {tmp_path}/none {path}" for path in places]
    build = f"exec {sys.executable} -m tvsnap --home {tmp_path}/home image build {tmp_path}/"
    script = "\n".join([*covered, build])
    ran = subprocess.run(["unshare", "--mount", "sh", "-ec", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert re.search(
        r"failed with exit status \d+: this machine has no key [0-9A-F, ]+ of Debian's archive of bookworm: "
        r"apt-get install debian-archive-keyring, or put a newer one of its keyrings into /etc/apt/trusted.gpg.d\n$",
        ran.stderr,
    ), ran.stderr


def test_minimal_system(tmp_path: Path, packages_kept: Path) -> None:
    """A bootstrap with packages, a file and a step; again by force, which must come to the same."""
    (tmp_path / "image.yaml").write_text(
        """
        name: minimal
        debian: {suite: bookworm}
        packages: [bc, iputils-ping]
        files:
          - {content: "6 * 7\\n", dest: /app/sum, owner: games}
        run:
          - bc < sum > result
        workdir: /app
        """
    )
    home = tmp_path / "home"
    home.mkdir()
    (home / "cache").symlink_to(packages_kept)
    store = ImageStore(home)
    image = store.build(tmp_path)

    assert (image.rootfs / "app/result").read_text() == "42\n"
    assert (image.rootfs / "app/sum").stat().st_uid == UID_BASE + 5
    assert (image.rootfs / "etc/debian_version").read_text().startswith("12.")
    assert (image.rootfs / "usr/bin/su").stat().st_mode & 0o4000
    assert look(image, "cat /etc/hostname; stat -c '%U %a' /tmp /usr/bin/su; pwd") == [
        "sandbox",
        "root 1777",
        "root 4755",
        "/app",
    ]
    # ping's file capability counts in the image's user namespace.
    capability = os.getxattr(image.rootfs / "usr/bin/ping", CAPABILITY_XATTR)
    assert struct.unpack("<6I", capability)[-1] == UID_BASE
    assert (image.rootfs / "run/lock").is_dir()  # as in Debian's containers
    assert [path.name for path in (image.rootfs / "usr/share/man").iterdir()] == ["man1"]  # for Java's packages
    for empty in ("dev", "usr/share/man/man1", "var/lib/apt/lists", "var/cache/apt/archives"):
        assert not (image.rootfs / empty).exists() or list((image.rootfs / empty).iterdir()) == []
    assert image.size < 300 * 1024 * 1024
    assert list((home / "cache/apt/bookworm").glob("bc_*.deb"))

    # Modification times and the like differ between the two, and what a sandbox sees does not.
    assert store.build(tmp_path, force=True) == image


def test_a_kept_minimal_system_that_is_old_or_damaged(tmp_path: Path, packages_kept: Path) -> None:
    """What is kept for later builds is brought up to date, or goes."""
    (tmp_path / "image.yaml").write_text("name: minimal\ndebian: {suite: bookworm}\npackages: [bc]\n")
    packages = tmp_path / "home/cache/apt/bookworm"
    shutil.copytree(packages_kept / "apt/bookworm", packages, copy_function=os.link)
    store = ImageStore(tmp_path / "home")
    if not list(packages.glob("minimal-*.tar")):
        store.build(tmp_path)
    [kept] = packages.glob("minimal-*.tar")

    make_old(kept, "mawk")
    image = store.build(tmp_path)
    assert "Version: 1-1\n" not in (image.rootfs / "var/lib/dpkg/status").read_text()
    assert not kept.exists(), "the next build makes a new one"

    kept.write_bytes(b"no archive")
    with pytest.raises(ImageBuildError, match="bootstrap of bookworm"):
        store.build(tmp_path, force=True)
    assert not kept.exists()


def make_old(archive: Path, package: str) -> None:
    """Has the system in an archive hold an older version of a package, as far as it knows."""
    other = archive.with_suffix(".other")
    with tarfile.open(archive) as system, tarfile.open(other, "w", format=tarfile.PAX_FORMAT) as changed:
        for member in system:
            content = system.extractfile(member) if member.isreg() else None
            if member.name.endswith("var/lib/dpkg/status"):
                assert content is not None
                pattern = rf"(?m)^(Package: {package}\n(?:.+\n)*?Version: ).*"
                text = re.sub(pattern, r"\g<1>1-1", content.read().decode())
                member.size = len(text.encode())
                content = io.BytesIO(text.encode())
            changed.addfile(member, content)
    other.rename(archive)


def test_terminal_image(terminal_image: Image) -> None:
    """What agents expect is there, and works."""
    assert terminal_image.name == "terminal"
    assert (terminal_image.workdir, terminal_image.user) == ("/app", "root")
    assert terminal_image.env["LANG"] == "C.UTF-8"
    assert look(terminal_image, f"for tool in {TOOLS}; do command -v $tool > /dev/null || echo $tool; done") == []
    assert look(terminal_image, "python -c 'import json, sqlite3, ssl, venv; print(len(\"\u00e4\"))'") == ["1"]
    assert terminal_image.size < 1024**3
