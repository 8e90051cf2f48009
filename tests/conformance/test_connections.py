"""TCP connections within a sandbox go on in its forks, and in itself, as if nothing had been.

`test_refusals.py` tries each kind of connection once; here is what programs make of them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.conformance.helpers import Lab, eventually, sh
from tests.conformance.jobs import REPORTING, report_of, start
from tvsnap.sandboxes.protocol import Sandbox

SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = []
    def do_GET(self):
        self.asked.append(self.path)
        body = f"{self.client_address[1]} {' '.join(self.asked)}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 9300), Handler).serve_forever()
"""
CLIENT = """
import http.client, os
connection = http.client.HTTPConnection("127.0.0.1", 9300)
connection.auto_open = 0
connection.connect()
while True:
    with open("/tmp/ask") as asked: path = asked.read().strip()
    connection.request("GET", path)
    with open("/tmp/answer", "w") as answer: answer.write(connection.getresponse().read().decode())
"""
STREAM = """
import os, select, socket
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())
p, _ = s.accept()
c.setblocking(False)
p.setblocking(False)
PATTERN = bytes(range(251)) * 40
sent = got = 0
while True:
    if got > 20 << 20 and got == sent: sent, got = 0, 0  # both begin anew
    writing = [c] if sent <= 20 << 20 else []
    for its in sum(select.select([p], writing, []), []):
        if its is c:
            sent += c.send(PATTERN[sent % 251 :][:4000])
        else:
            data = p.recv(3000)
            if data != PATTERN[got % 251 :][: len(data)]: os._exit(1)
            got += len(data)
            with open("/tmp/progress", "a") as file: file.write(".")
"""
FORGE = """
import socket
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())
for attempt in (
    lambda: c.setsockopt(6, 19, 1),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 6),
    lambda: c.setsockopt(1, 33, 1 << 24),
):
    try:
        attempt()
    except OSError as error:
        print(error.strerror)
"""


def ask(sandbox: Sandbox, path: str) -> list[str]:
    return sh(sandbox, f"echo {path} > /tmp/ask; cat /tmp/answer").split()


def test_a_client_keeps_its_connection(local_lab: Lab) -> None:
    """In the sandbox and in a hundred forks, of which each has a server and a client of its own."""
    sandbox = local_lab.start()
    for name, program in (("server", SERVER), ("client", CLIENT)):
        sandbox.write_file(f"/tmp/{name}.py", program.encode())
    sh(sandbox, "mkfifo /tmp/ask /tmp/answer; python3 /tmp/server.py > /tmp/server.log 2>&1 &")
    eventually(lambda: "244" in sh(sandbox, "grep -o ':2454 ' /proc/net/tcp | sed s/.*/244/"))
    sh(sandbox, "python3 /tmp/client.py > /tmp/client.log 2>&1 &")
    port, *asked = ask(sandbox, "/first")
    assert asked == ["/first"]

    def is_still() -> bool:
        before = sandbox.observe()
        sh(sandbox, "true")
        return sandbox.observe() == before

    eventually(is_still)  # the server may yet be on its way back to waiting
    snapshot = local_lab.checkpoint(sandbox)

    def try_one(index: int) -> None:
        fork = local_lab.fork(snapshot)
        assert ask(fork, f"/{index}") == [port, "/first", f"/{index}"]
        if index == 50:
            again = local_lab.fork_of(fork)
            assert ask(again, "/again") == [port, "/first", "/50", "/again"]
        fork.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(try_one, range(100)))
    assert ask(sandbox, "/last") == [port, "/first", "/last"]
    assert sh(sandbox, "cat /tmp/*.log") == ""


CLOSED = """
import socket, time
s = socket.create_server(("127.0.0.1", 9301))
c = socket.create_connection(("127.0.0.1", 9301))
p, _ = s.accept()
p.send(b"last words")
p.close()
open("/tmp/closed", "w").close()
with open("/tmp/ask") as asked: asked.read()
with open("/tmp/answer", "w") as answer: answer.write(repr((c.recv(99), c.recv(99))))
c.close()
time.sleep(1000)
"""


def test_a_closed_end_keeps_its_port_for_as_long(local_lab: Lab) -> None:
    """A minute, until the other is closed as well, and then another one."""
    sandbox = local_lab.start()
    sandbox.write_file("/tmp/closed.py", CLOSED.encode())
    sh(sandbox, "mkfifo /tmp/ask /tmp/answer; python3 /tmp/closed.py > /tmp/log 2>&1 &")
    eventually(lambda: sh(sandbox, "ls /tmp/closed 2> /dev/null"))
    fork = local_lab.fork_of(sandbox)
    again = local_lab.fork_of(fork)
    for one in (sandbox, fork, again):
        # Not looked at while anything runs.
        eventually(lambda one=one: "TCP port 9301 is in FIN_WAIT2" in str(one.observe().active))  # type: ignore[misc]
        assert one.observe().quiet_s <= 61
    for one in (sandbox, fork, again):
        assert "".join(ask(one, "go")) == "(b'lastwords',b'')"
        eventually(lambda one=one: "TCP port 9301 is in TIME_WAIT" in str(one.observe().active))  # type: ignore[misc]


ENDED = """
s = socket.create_server(("127.0.0.1", 9302))
def pair():
    c = socket.create_connection(("127.0.0.1", 9302))
    return c, s.accept()[0]
def has_ended(its):
    return its.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == bytes([7])
def shut_both():
    c, p = pair()
    c.shutdown(2)
    p.shutdown(2)
    until(lambda: has_ended(c) and has_ended(p))
    return c, p
def shut_by_turns():
    c, p = pair()
    c.sendall(b"words")
    c.shutdown(1)
    while p.recv(9): pass
    p.shutdown(1)
    until(lambda: has_ended(c) and has_ended(p))
    return c, p
def reset():
    c, p = pair()
    p.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    p.close()
    attempt(c.recv, 9)
    return (c,)
def timed_out():
    c, p = pair()
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 300)
    while not isinstance(attempt(c.send, bytes(1 << 16)), str): pass
    return c, p
kept = {make.__name__: make() for make in (shut_both, shut_by_turns, reset, timed_out)}
ended = {name: [its for its in both if has_ended(its)] for name, both in kept.items()}
def report():
    return {name: [(attempt(its.getpeername), attempt(its.recv, 9), attempt(its.send, b"more"), hangs_up(its))
                   for its in one] for name, one in ended.items()}
"""


def test_a_socket_whose_connection_has_ended_is_there_in_forks(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    start(sandbox, "ended", ENDED + REPORTING)
    fork = local_lab.fork_of(sandbox)
    first, second = (eval(report_of(one, "ended")) for one in (sandbox, fork))
    assert {name: len(one) for name, one in first.items()} == {
        "shut_both": 2,
        "shut_by_turns": 2,
        "reset": 1,
        "timed_out": 1,
    }
    assert first == second


def test_a_stream_is_neither_cut_nor_doubled(local_lab: Lab) -> None:
    """While a snapshot is taken in the midst of it, over and over."""
    sandbox = local_lab.start()
    sandbox.write_file("/tmp/stream.py", STREAM.encode())
    sh(sandbox, "python3 /tmp/stream.py > /tmp/log 2>&1 &")

    def goes_on(one: Sandbox) -> None:
        size = int(sh(one, "stat -c %s /tmp/progress"))
        eventually(lambda: int(sh(one, "stat -c %s /tmp/progress")) > size + 100)
        assert sh(one, "cat /tmp/log; jobs -r | wc -l") == "1\n"

    eventually(lambda: sh(sandbox, "cat /tmp/progress 2> /dev/null"))
    for _ in range(10):
        fork = local_lab.fork_of(sandbox)
        goes_on(sandbox)
        goes_on(fork)
        fork.close()


def test_nobody_inside_can_repair_a_connection(local_lab: Lab) -> None:
    """Which would let a program forge what comes over it: the rights over the network are the host's."""
    sandbox = local_lab.start()
    sandbox.write_file("/tmp/forge.py", FORGE.encode())
    for one in (sandbox, local_lab.fork_of(sandbox)):
        assert sh(one, "python3 /tmp/forge.py") == "Operation not permitted\n" * 3
