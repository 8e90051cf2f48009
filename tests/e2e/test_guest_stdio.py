"""PID 1 on its standard streams, and the bridge to its socket: the real program, in namespaces."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tvsnap.guest.protocol import CONTROL, GUEST_FILES, INIT, Guest
from tvsnap.model.errors import InfrastructureError
from tvsnap.plugins.docker.engine import Engine
from tvsnap.plugins.docker.stream import AttachedStream

MEGABYTE = 1 << 20
START = 'mount -t tmpfs tmpfs /run && mkdir /run/tvsnap && cp "$1" /run/tvsnap/rc && cp "$0" {init} && '
SERVE = "exec {init} serve 80 24 root /tmp"


class Pipes:
    """A pair of descriptors as a connection."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._timeout: float | None = 10.0

    def sendall(self, data: bytes, /) -> None:
        while data:
            data = data[os.write(self._writer, data) :]

    def recv(self, size: int, /) -> bytes:
        if not select.select([self._reader], [], [], self._timeout)[0]:
            raise TimeoutError
        return os.read(self._reader, size)

    def settimeout(self, seconds: float | None, /) -> None:
        self._timeout = seconds

    def shutdown(self, how: int, /) -> None:
        pass

    def close(self) -> None:
        pass


class Served:
    """One PID 1 in namespaces of its own, its standard input a FIFO that anyone may open and close."""

    def __init__(self, directory: Path) -> None:
        fifo = directory / "stdin"
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.fifo = fifo
        script = (START + SERVE).format(init=INIT)
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
        environment = {**os.environ, "HOME": str(directory)}  # not this machine's startup files
        command += [str(GUEST_FILES["init"]), str(GUEST_FILES["rc"])]
        self.process = subprocess.Popen(command, stdin=reader, stdout=subprocess.PIPE, env=environment)
        os.close(reader)
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        self.pid = self._wait()  # PID 1, as the host names it

    def _wait(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for pid in children.read_text().split():
                if Path(f"/proc/{pid}/root/{CONTROL}").exists():
                    return int(pid)
            time.sleep(0.01)
        raise TimeoutError("PID 1 did not start")

    @contextlib.contextmanager
    def writer(self) -> Iterator[int]:
        """A block in which standard input is open."""
        descriptor = os.open(self.fifo, os.O_WRONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def connect(self) -> Guest:
        """Returns a connection to the socket inside."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(f"/proc/{self.pid}/root/{CONTROL}")
        return Guest(connection)

    def time_used(self) -> float:
        """Returns the processor time that PID 1 used, seconds."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    one = Served(tmp_path)
    yield one
    one.process.kill()
    one.process.communicate()


def frame(operation: bytes, *fields: bytes) -> bytes:
    body = operation + b"".join(struct.pack("<I", len(field)) + field for field in fields)
    return struct.pack("<I", len(body)) + body


def test_standard_streams_and_the_socket_are_clients_side_by_side(served: Served) -> None:
    with served.writer() as writer:
        outer = Guest(Pipes(served.output, writer))
        assert outer.run(b"cd /; x=7; echo from $x", 10, 100).output == b"from 7\n"
        inner = served.connect()
        assert inner.run(b"pwd; echo $x", 10, 100).output == b"/\n7\n"
        assert outer.info().shell == inner.info().shell
        inner.close()
        assert outer.execute(["cat"], timeout=10, limit=2 * MEGABYTE, stdin=b"y" * MEGABYTE).output == b"y" * MEGABYTE


def test_children_do_not_inherit_the_standard_streams(served: Served) -> None:
    with served.writer() as writer:
        outer = Guest(Pipes(served.output, writer))
        ours = os.readlink(f"/proc/{served.pid}/fd/1")
        for outcome in (
            outer.execute(["ls", "-l", "/proc/self/fd"], timeout=10, limit=10000),
            outer.run(b"ls -l /proc/self/fd /proc/$$/fd", 10, 10000),
        ):
            assert outcome.output.count(b" -> ") >= 4
            assert ours.encode() not in outcome.output
            assert b"stdin" not in outcome.output


def test_close_and_attach_do_nothing_to_the_standard_streams(served: Served) -> None:
    with served.writer() as writer:
        outer = Guest(Pipes(served.output, writer))
        os.write(writer, frame(b"q"))
        assert outer.run(b"echo there", 10, 100).output == b"there\n"
        with pytest.raises(InfrastructureError, match="a connection of its own"):
            outer.attach(80, 24)
        assert outer.info().shell


def test_an_end_of_input_is_waited_out_without_spinning(served: Served) -> None:
    with served.writer() as writer:
        assert Guest(Pipes(served.output, writer)).run(b"x=kept", 10, 100).exit_code == 0
        os.write(writer, frame(b"r", b"1000000")[:9])  # its rest will not come
    before = served.time_used()
    time.sleep(1.0)
    assert served.time_used() - before < 0.05
    with served.writer() as writer:
        assert Guest(Pipes(served.output, writer)).run(b"echo $x", 10, 100).output == b"kept\n"


def test_frames_before_an_end_of_input_are_answered(served: Served) -> None:
    with served.writer() as writer:
        os.write(writer, frame(b"e", b"5000000", b"100", b"", b"", b"", b"2", b"echo", b"late") + frame(b"i"))
    with served.writer() as writer:
        pipes = Pipes(served.output, writer)
        got = b""
        while b"late" not in got or b"I" not in got:
            got += pipes.recv(4096)


def test_whoever_does_not_read_holds_up_nobody(served: Served) -> None:
    with served.writer() as writer:
        stuck = Guest(Pipes(served.output, writer))
        assert stuck.info().shell
        inner = served.connect()
        count = str(MEGABYTE).encode()
        os.write(writer, frame(b"e", b"60000000", b"9999999", b"", b"", b"", b"4", b"head", b"-c", count, b"/dev/zero"))
        time.sleep(0.5)
        began = time.monotonic()
        assert inner.run(b"echo quick", 10, 100).output == b"quick\n"
        assert time.monotonic() - began < 60
        os.write(writer, frame(b"i"))  # not even read before the answer has been taken
        assert stuck._outcome(60, 9999999).output == bytes(MEGABYTE)
        assert stuck._expect("I")


def test_the_bridge_joins_standard_streams_to_the_socket(served: Served) -> None:
    with served.writer() as writer:
        assert Guest(Pipes(served.output, writer)).run(b"x=9", 10, 100).exit_code == 0
        command = ["nsenter", "--target", str(served.pid), "--mount", "--pid", INIT, "connect"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
            assert bridge.stdin is not None
            assert bridge.stdout is not None
            over = Guest(Pipes(bridge.stdout.fileno(), bridge.stdin.fileno()))
            assert over.run(b"echo $x", 10, 100).output == b"9\n"
            big = over.execute(["cat"], timeout=10, limit=9 * MEGABYTE, stdin=bytes(8 * MEGABYTE))
            assert big.output == bytes(8 * MEGABYTE)
            os.write(bridge.stdin.fileno(), frame(b"q"))
            assert bridge.wait(60) == 0


def test_a_bridge_ends_with_its_input(served: Served) -> None:
    with served.writer() as writer:
        assert Guest(Pipes(served.output, writer)).info()
        command = ["nsenter", "--target", str(served.pid), "--mount", "--pid", INIT, "connect"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
            assert bridge.stdin is not None
            bridge.stdin.close()
            assert bridge.wait(60) == 0


def test_in_a_container_of_an_engine(docker_engine: str, tmp_path: Path) -> None:
    """With an engine's capabilities, over its attach stream, one attach after another."""
    root = tmp_path / "root"
    listed = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
    for name in ["/bin/bash", *(word for word in listed.split() if word.startswith("/"))]:
        target = root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(name).read_bytes())
        target.chmod(0o755)
    (root / "run/tvsnap").mkdir(parents=True)
    for name in ("init", "rc"):
        (root / "run/tvsnap" / name).write_bytes(GUEST_FILES[name].read_bytes())
        (root / "run/tvsnap" / name).chmod(0o755)
    archive = tmp_path / "root.tar"
    subprocess.run(["tar", "--create", "--file", archive, "--directory", root, "."], check=True)
    engine = Engine()
    tag = f"tvsnap-test-stdio-{os.getpid()}"
    engine.api.import_image_from_file(str(archive), repository=tag)
    container = engine.api.create_container(
        tag, entrypoint=[INIT], command=["serve", "80", "24", "root", "/"], detach=True, stdin_open=True,
        host_config=engine.api.create_host_config(network_mode="none"),
    )["Id"]  # fmt: skip
    streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
    try:
        engine.api.start(container)
        for expected in (b"fresh\n", b"again\n"):
            stream = AttachedStream(engine.api.attach_socket(container, params=streams))
            stream.settimeout(60)
            connection = Guest(stream)
            assert connection.run(b'echo "${x-fresh}"; x=again', 10, 100).output == expected
            connection.abandon()
    finally:
        engine.api.remove_container(container, force=True, v=True)
        engine.api.remove_image(tag)
        engine.close()
