"""The layer of tvsnap's own files, which lies above the files of any image in a sandbox."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from tvsnap.guest.protocol import GUEST_FILES
from tvsnap.host import native
from tvsnap.model.images import UID_BASE


def install(directory: Path, owner: str) -> Path:
    """Installs tvsnap's files for sandboxes as a layer, which lies above any image; one for each version of them."""
    files = {name: source.read_bytes() for name, source in GUEST_FILES.items()}
    version = hashlib.sha256(b"3" + b"".join(files.values())).hexdigest()[:16]
    layer = directory / version
    if layer.exists():
        return layer
    directory.mkdir(exist_ok=True, mode=0o711)
    unfinished = directory / f"{owner}.{version}"
    for name in ("proc", "sys", "dev/pts", "dev/shm", "run/tvsnap"):
        (unfinished / name).mkdir(parents=True)
    for device in native.DEVICES:
        (unfinished / "dev" / device).touch()
    for name, target in (
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ):
        (unfinished / "dev" / name).symlink_to(target)
    for name, data in files.items():
        (unfinished / "run" / "tvsnap" / name).write_bytes(data)
    for path in (unfinished, *unfinished.rglob("*")):
        os.lchown(path, UID_BASE, UID_BASE)
        if not path.is_symlink():  # the same modes for all sandboxes, whatever the umask is here
            path.chmod(0o644 if path.parent.name == "dev" and path.is_file() else 0o755)
    (unfinished / "dev" / "shm").chmod(0o1777)
    try:
        unfinished.rename(layer)
    except OSError:  # another process was quicker
        shutil.rmtree(unfinished)
    return layer
