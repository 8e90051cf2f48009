"""The surroundings of the self-test: a data directory with an image and an open backend."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import subprocess
from pathlib import Path

from tvsnap.host.owners import Owner
from tvsnap.images import ImageStore
from tvsnap.model.errors import InfrastructureError, NotFound
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.sandboxes import open_backend
from tvsnap.sandboxes.protocol import Backend, Sandbox

PROGRAMS = ("bash", "cat", "ls", "rm", "sleep", "true")  # what an image made of this machine's own programs has


class Laboratory:
    """A data directory with an image and an open backend, and the sandboxes of one check."""

    def __init__(self, home: Path, backend: str, image: Image | None) -> None:
        self.home = home
        self._image = image
        self.marker = f"{secrets.randbelow(10**9):09}"
        self._owner = Owner(home)
        try:
            self.backend: Backend = open_backend(backend, home, self._owner.id)
        except BaseException:
            self._owner.close()
            raise
        self._sandboxes = contextlib.ExitStack()

    @property
    def image(self) -> Image:
        if self._image is None:
            self._image = own_image(self.home)
        return self._image

    @property
    def long_sleep(self) -> str:
        """A command line that no other process of this machine has."""
        return f"sleep 9999.{self.marker}"

    def start(self, limits: Limits | None = None) -> Sandbox:
        return self._keep(self.backend.start(self.image, limits or Limits()))

    def fork(self, snapshot: str) -> Sandbox:
        return self._keep(self.backend.fork(snapshot, self.image, Limits()))

    def _keep(self, sandbox: Sandbox) -> Sandbox:
        self._sandboxes.callback(sandbox.close)
        return sandbox

    def end_sandboxes(self) -> None:
        self._sandboxes.close()

    def close(self) -> None:
        self.end_sandboxes()
        with contextlib.suppress(InfrastructureError):
            for snapshot in list(self.backend.snapshots()):
                self.backend.delete_snapshot(snapshot)
            shutil.rmtree(self.home / "images", ignore_errors=True)
            (self.home / "images").mkdir()
            self.backend.reap()  # removes the remains of the image
        self.backend.close()
        self._owner.close()


def own_image(home: Path) -> Image:
    """Makes an image of this machine's own bash, of a few programs, and of the libraries that they need."""
    folder = home / "self-test"
    root = folder / "rootfs"
    for path in ("usr/bin", "etc", "root", "proc", "dev", "tmp"):
        (root / path).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    programs = {name: shutil.which(name) for name in PROGRAMS}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        raise NotFound(f"this machine has no {', '.join(missing)} to make an image of; name one of yours: --image NAME")
    for name, program in programs.items():
        _copy(str(program), root / "usr" / "bin" / name)
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listed, re.MULTILINE):
            _copy(library, root / library.lstrip("/"))
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    (folder / "image.yaml").write_text("name: self-test\ndirectory: rootfs\n")
    return ImageStore(home).build(folder)


def _copy(source: str, target: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755)
