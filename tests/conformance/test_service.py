"""Services inside a sandbox: they are asked over a Unix socket, and what is theirs is observed apart."""

from __future__ import annotations

import errno
import os

import pytest

from tests.conformance.helpers import TIMEOUT, Lab, eventually, sh, usable
from tvsnap.model.observations import Service
from tvsnap.sandboxes.protocol import Sandbox

PATH = "/run/answers"
SERVICE = f"""
import os, socket
if os.fork():
    os._exit(0)
os.setsid()
os.makedirs("/srv/data", exist_ok=True)
server = socket.socket(socket.AF_UNIX)
server.bind("{PATH}")
server.listen()
with open("/srv/data/pid", "w") as file:
    file.write(str(os.getpid()))
null = os.open("/dev/null", os.O_RDWR)
for descriptor in 0, 1, 2:
    os.dup2(null, descriptor)
count = 0
while True:
    client, _ = server.accept()
    with client, client.makefile("rb") as stream:
        data = stream.read()
        count += 1
        if data == b"fork" and not os.fork():
            os.execlp("sleep", "sleep", "1000")
        if data == b"write":
            with open("/srv/data/file", "a") as file:
                file.write("x")
        if data != b"hang up":
            client.sendall(b"%d " % count + data[::-1])
        if data == b"hang":
            import time
            time.sleep(1000)
"""


def serve(sandbox: Sandbox) -> Service:
    sandbox.write_file("/root/service.py", SERVICE.encode())
    assert sandbox.exec("python3 /root/service.py", timeout=TIMEOUT, user="root").exit_code == 0
    eventually(lambda: sandbox.exec(f"test -S {PATH} -a -s /srv/data/pid", timeout=TIMEOUT).exit_code == 0)
    return Service(frozenset({int(sandbox.read_file("/srv/data/pid"))}), ("/srv/data",))


def ask(sandbox: Sandbox, data: bytes) -> bytes:
    return sandbox.request(PATH, data, timeout=TIMEOUT)


def test_request(sandbox: Sandbox) -> None:
    serve(sandbox)
    assert ask(sandbox, b"abc") == b"1 cba"
    big = bytes(range(256)) * 4096
    assert ask(sandbox, big) == b"2 " + big[::-1]
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        sandbox.request(PATH, big, timeout=TIMEOUT, limit=1000)
    usable(sandbox)


def test_request_to_nobody(sandbox: Sandbox) -> None:
    for path, number in (
        ("/nowhere", errno.ENOENT),
        ("/etc/passwd", errno.ECONNREFUSED),
        ("/x" * 99, errno.ENAMETOOLONG),
    ):
        with pytest.raises(OSError, match=os.strerror(number)):
            sandbox.request(path, b"x", timeout=TIMEOUT)
    usable(sandbox)


def test_request_that_is_not_answered(sandbox: Sandbox) -> None:
    serve(sandbox)
    with pytest.raises(OSError, match=os.strerror(errno.ECONNRESET)):
        ask(sandbox, b"hang up")
    assert ask(sandbox, b"x") == b"2 x"
    with pytest.raises(OSError, match=os.strerror(errno.ETIMEDOUT)):
        sandbox.request(PATH, b"hang", timeout=0.5)
    usable(sandbox)


def test_a_service_is_observed_apart(sandbox: Sandbox) -> None:
    service = serve(sandbox)
    ask(sandbox, b"fork")
    sh(sandbox, "true")
    before, alone = sandbox.observe(service), sandbox.observe()
    assert before.serving == 2
    ask(sandbox, b"one")
    ask(sandbox, b"two")
    assert sandbox.observe(service) == before
    assert sandbox.observe().processes != alone.processes
    ask(sandbox, b"write")
    after = sandbox.observe(service)
    assert (after.files, after.processes, after.shell) == (before.files, before.processes, before.shell)
    assert after.data != before.data
    sh(sandbox, "echo x > /root/other; true")
    assert sandbox.observe(service).files != before.files
    assert sandbox.observe(service).data == after.data
    sh(sandbox, f"kill -9 {min(service.processes)}; sleep 0.1; true")
    assert sandbox.observe(service).processes != before.processes


@pytest.mark.needs_processes
def test_a_service_goes_on_in_a_fork(lab: Lab, sandbox: Sandbox) -> None:
    serve(sandbox)
    assert ask(sandbox, b"a") == b"1 a"
    fork = lab.fork_of(sandbox)
    assert ask(fork, b"b") == b"2 b"
    assert ask(fork, b"c") == b"3 c"
    assert ask(sandbox, b"d") == b"2 d"
