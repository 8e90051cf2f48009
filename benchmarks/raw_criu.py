"""The floor of checkpoints and forks: what CRIU alone takes, asked for by RPC with the options that tvsnap gives.

What comes with it in tvsnap (the copy of the files, evidence, the control group, the connection) is not in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.workspace import Workspace
from tvsnap.host.libc import closing
from tvsnap.host.native import DEVICE_OPTIONS, DEVICES, LAUNCH
from tvsnap.images import UID_BASE, UID_COUNT
from tvsnap.sandboxes.criu.binary import find_criu
from tvsnap.sandboxes.criu.client import Criu
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.sandboxes.local.snapshot_store import NODES

ROOT = Path("/run/root")  # where the launcher mounts it


class RawCriu:
    """Dumps one sandbox, and restores what it dumped last."""

    def __init__(self, space: Workspace, sandbox: LocalSandbox) -> None:
        binary = find_criu()
        assert binary is not None, "there is no CRIU: see `tvsnap doctor`"
        self._criu = Criu(binary)
        self._space = space
        self._sandbox = sandbox
        self._directory = space.scratch("criu")
        self._directory.chmod(0o755)
        self._images = self._directory / "images"
        self._count = 0

    def dump(self) -> float:
        """Dumps the sandbox, which goes on; returns the seconds that it took."""
        shutil.rmtree(self._images, ignore_errors=True)
        self._images.mkdir()
        self._sandbox.disconnect()
        enter = [str(LAUNCH), "dump", str(self._sandbox.init), *self._criu.directories, *DEVICE_OPTIONS]
        enter += ["--ids", str(UID_BASE), str(UID_COUNT), "--"]
        external = [f"mnt[/dev/{name}]:{name}" for name in DEVICES]
        with closing(os.open(self._images, os.O_RDONLY | os.O_DIRECTORY)) as images:
            began = time.perf_counter()
            self._criu.dump(self._sandbox.init, images, external, enter, lambda: None, lambda: None)
            return time.perf_counter() - began

    def restore(self) -> float:
        """Restores it and ends what was restored; returns the seconds until it was alive again."""
        for image in self._images.iterdir():
            image.chmod(0o644)
        self._count += 1
        name = f"layer-{self._count}"
        layer = self._directory / name
        upper = self._sandbox.layer / "upper"
        subprocess.run(["cp", "-a", "--", self._visible(upper.parent), str(layer)], check=True)
        guest = next((self._space.home / "guest").iterdir())
        enter = [str(LAUNCH), "restore", *self._criu.directories, "--pool-dir", str(self._directory), "--live", name]
        enter += ["--lower", str(guest), "--lower", str(self._space.image.rootfs), *DEVICE_OPTIONS]
        enter += ["--ids", str(UID_BASE), str(UID_COUNT), "--"]
        external = [f"mnt[{device}]:{NODES}/{device}" for device in DEVICES]
        try:
            with closing(os.open(self._images, os.O_RDONLY | os.O_DIRECTORY)) as images:
                began = time.perf_counter()
                init = self._criu.restore(images, ROOT, external, enter)
                seconds = time.perf_counter() - began
            os.kill(init, 9)
            os.waitpid(init, 0)
        finally:
            shutil.rmtree(layer, ignore_errors=True)
        return seconds

    @staticmethod
    def _visible(path: Path) -> str:
        """Returns a path of ours as another process sees it."""
        return str(path).replace("/proc/self/", f"/proc/{os.getpid()}/", 1)
