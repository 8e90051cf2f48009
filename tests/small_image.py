"""A small image for tests that make many or large copies of one: bash and a few programs, 6 MB."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tvsnap.images import UID_BASE, Image, ImageStore

PROGRAMS = (
    "bash",
    "cat",
    "chmod",
    "chown",
    "date",
    "env",
    "id",
    "ln",
    "ls",
    "mkdir",
    "rm",
    "seq",
    "sleep",
    "sort",
    "stat",
    "touch",
)
_ACCOUNTS = {"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n", "etc/group": "root:x:0:\n"}


def build_small_image(terminal: Image, home: Path) -> Image:
    """Builds the image `small` in a data directory.

    Args:
        terminal: where the programs come from.
        home: the data directory.
    """
    folder = home / "small-image"
    root = folder / "rootfs"
    shutil.rmtree(folder, ignore_errors=True)
    for path in ("usr/bin", "usr/lib", "usr/lib64", "etc", "root", "proc", "dev", "tmp"):
        (root / path).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "usr/bin/sh").symlink_to("bash")
    names = [f"/usr/bin/{name}" for name in PROGRAMS]
    listed = subprocess.run(
        ["chroot", f"--userspec={UID_BASE}:{UID_BASE}", str(terminal.rootfs), "ldd", *names],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    libraries = sorted(set(re.findall(r"(/\S+) \(0x", listed)))
    for name in (*names, *libraries):
        source = terminal.rootfs / os.path.realpath(f"{terminal.rootfs}{name}").removeprefix(f"{terminal.rootfs}/")
        target = root / (name if name.startswith("/usr") else f"/usr{name}").lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755)
    for path, text in _ACCOUNTS.items():
        (root / path).write_text(text)
    (folder / "image.yaml").write_text("name: small\ndirectory: rootfs\n")
    try:
        return ImageStore(home).build(folder)
    finally:
        shutil.rmtree(folder)
