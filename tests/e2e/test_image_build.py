"""Real Debian systems, bootstrapped from the archive."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from tvsnap.images import UID_BASE, Image, ImageStore
from tvsnap.images.rootfs import CAPABILITY_XATTR
from tvsnap.images.runner import run_inside

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


def test_minimal_system(tmp_path: Path) -> None:
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
    store = ImageStore(tmp_path / "home")
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
    for empty in ("dev", "run", "usr/share/man", "var/lib/apt/lists", "var/cache/apt/archives"):
        assert not (image.rootfs / empty).exists() or list((image.rootfs / empty).iterdir()) == []
    assert image.size < 300 * 1024 * 1024
    assert list((tmp_path / "home/cache/apt/bookworm").glob("bc_*.deb"))

    # Modification times and the like differ between the two, and what a sandbox sees does not.
    assert store.build(tmp_path, force=True) == image


def test_terminal_image(terminal_image: Image) -> None:
    """What agents expect is there, and works."""
    assert terminal_image.name == "terminal"
    assert (terminal_image.workdir, terminal_image.user) == ("/app", "root")
    assert terminal_image.env["LANG"] == "C.UTF-8"
    assert look(terminal_image, f"for tool in {TOOLS}; do command -v $tool > /dev/null || echo $tool; done") == []
    assert look(terminal_image, "python -c 'import json, sqlite3, ssl, venv; print(len(\"\u00e4\"))'") == ["1"]
    assert terminal_image.size < 1024**3
