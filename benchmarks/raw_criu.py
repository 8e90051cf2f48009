"""The floor of checkpoints and forks: `criu dump` and `criu restore` by hand, with the options that tvsnap gives.

What comes with it in tvsnap (the copy of the files, the control group, the connection) is not in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.workspace import Workspace
from tvsnap.host.native import DEVICE_OPTIONS, DEVICES, LAUNCH
from tvsnap.images import UID_BASE, UID_COUNT
from tvsnap.sandboxes.criu.binary import find_criu
from tvsnap.sandboxes.local.sandbox import LocalSandbox

OPTIONS = ["--file-locks", "--manage-cgroups=ignore", "--ghost-limit", str(1 << 30), "-v2", "-o", "criu.log"]


class RawCriu:
    """Dumps one sandbox, and restores what it dumped last."""

    def __init__(self, space: Workspace, sandbox: LocalSandbox) -> None:
        self._criu = str(find_criu())
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
        init = str(self._sandbox.init)
        self._sandbox.disconnect()
        external = [item for name in DEVICES for item in ("--external", f"mnt[/dev/{name}]:{name}")]
        command = [self._criu, "dump", "-t", init, "-D", str(self._images), "--leave-running", "--link-remap"]
        command += ["--network-lock", "skip", *external, *OPTIONS]
        return _seconds([str(LAUNCH), "dump", init, *DEVICE_OPTIONS, "--", *command])

    def restore(self) -> float:
        """Restores it and ends what was restored; returns the seconds until it was alive again."""
        for image in self._images.iterdir():
            image.chmod(0o644)
        self._count += 1
        name, pidfile = f"layer-{self._count}", self._directory / "pid"
        layer = self._directory / name
        upper = self._sandbox.layer / "upper"
        subprocess.run(["cp", "-a", "--", self._visible(upper.parent), str(layer)], check=True)
        guest = next((self._space.home / "guest").iterdir())
        options = ["--pool-dir", str(self._directory), "--live", name, "--lower", str(guest)]
        options += ["--lower", str(self._space.image.rootfs), "--ids", str(UID_BASE), str(UID_COUNT)]
        external = [item for device in DEVICES for item in ("--external", f"mnt[{device}]:/dev/{device}")]
        command = [self._criu, "restore", "-D", str(self._images), "--root", "/run/root", "--restore-detached"]
        command += ["--restore-sibling", "--pidfile", str(pidfile), *external, *OPTIONS]
        try:
            seconds = _seconds([str(LAUNCH), "restore", *options, *DEVICE_OPTIONS, "--", *command])
            init = int(pidfile.read_text())
            os.kill(init, 9)
            os.waitpid(init, 0)
        finally:
            pidfile.unlink(missing_ok=True)
            shutil.rmtree(layer, ignore_errors=True)
        return seconds

    @staticmethod
    def _visible(path: Path) -> str:
        """Returns a path of ours as another process sees it."""
        return str(path).replace("/proc/self/", f"/proc/{os.getpid()}/", 1)


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    pid = os.posix_spawn(command[0], command, dict(os.environ))
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
    return seconds
