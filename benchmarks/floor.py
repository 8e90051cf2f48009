"""The raw floor of a sandbox: namespaces, an overlay and bash, by a small C program (floor.c) and none of tvsnap."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.workspace import Workspace
from tvsnap.images import UID_BASE, UID_COUNT


class Floor:
    """Starts raw sandboxes of the workspace's image."""

    def __init__(self, space: Workspace) -> None:
        """Compiles the launcher."""
        self._directory = space.scratch("floor")
        self._rootfs = space.image.rootfs
        self._program = self._directory / "floor"
        source = Path(__file__).with_name("floor.c")
        subprocess.run(["cc", "-O2", "-static", "-o", self._program, source], check=True)
        self._count = 0

    def start(self) -> tuple[RawSandbox, float]:
        """Starts bash in a sandbox; returns it, and the seconds until its first output was read."""
        self._count += 1
        scratch = self._directory / str(self._count)
        began = time.perf_counter()
        for name in ("upper", "work"):
            (scratch / name).mkdir(parents=True)
            os.chown(scratch / name, UID_BASE, UID_BASE)
        stdin, ours_in = os.pipe2(os.O_CLOEXEC)
        ours_out, stdout = os.pipe2(os.O_CLOEXEC)
        pid = os.posix_spawn(
            self._program,
            [str(self._program), str(self._rootfs), str(scratch), str(UID_BASE), str(UID_COUNT)],
            {"PATH": os.defpath, "LANG": "C.UTF-8"},
            file_actions=[(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1)],
        )
        os.close(stdin)
        os.close(stdout)
        raw = RawSandbox(pid, ours_in, ours_out, scratch)
        if raw.ask("echo ready\n") != b"ready\n":
            raw.close()
            raise RuntimeError("the raw floor did not start: see the messages above")
        return raw, time.perf_counter() - began


class RawSandbox:
    """Bash in a sandbox, at the other end of two pipes."""

    def __init__(self, pid: int, stdin: int, stdout: int, scratch: Path) -> None:
        self._pid = pid
        self._stdin = stdin
        self._stdout = stdout
        self._scratch = scratch

    def ask(self, command: str) -> bytes:
        """Runs a command that prints one short line; returns that."""
        os.write(self._stdin, command.encode())
        return os.read(self._stdout, 4096)

    def close(self) -> None:
        """Ends it and deletes its files."""
        os.close(self._stdin)
        os.waitpid(self._pid, 0)
        os.close(self._stdout)
        shutil.rmtree(self._scratch, ignore_errors=True)
