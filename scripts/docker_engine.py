"""A Docker Engine of one's own, for tests and benchmarks: nothing of it stays, however it or its owner ends.

`python -m scripts.docker_engine` runs one until it is interrupted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.room import Room
from tvsnap.model.errors import InfrastructureError, MachineLacks
from tvsnap.plugins.docker.engine import Engine
from tvsnap.sandboxes.criu.binary import find_criu

START_TIMEOUT = 60.0
COVERED = ("/run/containerd", "/run/docker", "/opt/containerd", "/etc/docker", "/etc/criu")
"""Where dockerd, containerd and CRIU keep or look for things whatever they are told."""
_CONFIGURE = 'echo file-locks >/etc/criu/runc.conf && exec "$@"'
"""What an administrator does so that the engine checkpoints programs that hold file locks."""
_POLL = 0.02


class PrivateEngine:
    """One `dockerd`, experimental so that it takes checkpoints, without bridges, firewall rules or any outside network.

    Attributes:
        address: as for DOCKER_HOST.
        directory: all that it keeps.
    """

    def __init__(self) -> None:
        """Finds it a place.

        Raises:
            MachineLacks: there is no dockerd, or no place for it.
        """
        if not shutil.which("dockerd"):
            raise MachineLacks("dockerd is not installed; make engines (apt-get install docker.io)")
        self._room = Room(COVERED)
        self.directory = self._room.directory
        self.address = f"unix://{self.directory}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What it and its containerd say."""
        return self.directory / "log"

    @property
    def pid(self) -> int:
        """Of dockerd."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it, also again after `kill`; returns once it answers.

        Raises:
            InfrastructureError: it does not start; the end of its log is in the message.
        """
        environment = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
        temporary = self.directory / "tmp"  # containerd leaves directories there, one for each checkpoint
        temporary.mkdir(exist_ok=True)
        environment["TMPDIR"] = str(temporary)
        if criu := find_criu():
            environment["PATH"] = f"{Path(criu).parent}:{environment['PATH']}"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._room.enter(["sh", "-c", _CONFIGURE, "sh", *self._dockerd()]),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
                raise InfrastructureError(f"dockerd did not start:\n{tail}")
            time.sleep(_POLL)

    def _dockerd(self) -> list[str]:
        driver = "overlay2" if self._room.takes_overlays else "vfs"
        command = ["dockerd", "--host", self.address, "--pidfile", f"{self.directory}/pid", "--experimental"]
        command += ["--data-root", f"{self.directory}/data", "--exec-root", f"{self.directory}/exec"]
        command += ["--storage-driver", driver, "--exec-opt", "native.cgroupdriver=cgroupfs"]
        command += ["--cgroup-parent", self._room.group, "--bridge", "none"]
        return [*command, "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]

    def _answers(self) -> bool:
        with pointing_at(self.address):
            try:
                Engine().close()
            except MachineLacks:
                return False
        return True

    def kill(self) -> None:
        """Ends dockerd as a crash would, and so its containerd; its containers' processes may go on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        # Until it is reaped, the next dockerd would take that containerd for a live one, and wait for it.
        for pidfile in (self.directory / "exec" / "containerd").glob("*.pid"):
            pidfile.unlink(missing_ok=True)

    def stop(self) -> None:
        """Ends it with its containers, and removes all that it kept; safe to repeat."""
        self._room.close()
        if self._process is not None:
            self._process.wait()


@contextlib.contextmanager
def pointing_at(address: str) -> Iterator[None]:
    """A block in which Docker's clients find the engine at `address`."""
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = address
    try:
        yield
    finally:
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before


@contextlib.contextmanager
def private_engine() -> Iterator[PrivateEngine]:
    """A block with an engine, to which DOCKER_HOST points."""
    engine = PrivateEngine()
    try:
        engine.start()
        with pointing_at(engine.address):
            yield engine
    finally:
        engine.stop()


def main() -> int:
    """Runs an engine until interrupted; prints the line that points Docker's clients to it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), private_engine() as engine:
        print(f"export DOCKER_HOST={engine.address}", flush=True)
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
