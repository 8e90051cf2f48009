"""Sandboxes that may reach something outside, with servers of our own: what gets out, and what does not."""

from __future__ import annotations

import hashlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.helpers import eventually
from tests.conformance.targets import TARGETS
from tvsnap import Cache, Rollout
from tvsnap.images import Image
from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import MachineLacks
from tvsnap.model.network import NetworkLike
from tvsnap.sandboxes.network.addresses import Addresses
from tvsnap.sandboxes.network.gateway import NOT_KNOWN
from tvsnap.types import Command, NetworkSettings
from tvsnap.upkeep import verify

SERVER = "files.test"
FETCH = """python3 -c "
import sys, urllib.request
print(urllib.request.urlopen('http://{host}/{path}', timeout=20).read().decode(), end='')" 2>&1 | tail -1"""


class Site(http.server.ThreadingHTTPServer):
    """A server on this machine: `count` says how often it was asked, `slow` never ends its answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.asked = 0
        self.gone = threading.Event()
        self.ending = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Page(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(200)
        self.end_headers()
        if self.path == "/big":
            self.wfile.write(b"x" * 20_000_000)
        elif self.path == "/slow":
            try:
                while not self.server.ending.wait(0.05):
                    self.wfile.write(b".")
            except OSError:
                self.server.gone.set()
        else:
            self.wfile.write(f"{self.server.asked}\n".encode())

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site
        site.ending.set()
        site.shutdown()


@pytest.fixture(params=["local", "docker"])
def backend(request: pytest.FixtureRequest) -> str:
    if TARGETS[request.param].engine:
        request.getfixturevalue("docker_engine")
    return str(request.param)


def open_cache(home: Path, backend: str, site: Site, answers: float | None = None) -> Cache:
    settings = NetworkSettings(hosts={SERVER: site.address, "other.test": site.address})
    try:
        return Cache(home, backend=backend, network_settings=settings, network_answers=answers, policy="eager")
    except MachineLacks as lack:
        pytest.skip(str(lack))


@pytest.fixture
def cache(backend: str, tvsnap_home: Path, site: Site) -> Iterator[Cache]:
    with open_cache(tvsnap_home, backend, site) as cache:
        yield cache


@pytest.fixture
def salt() -> str:
    return f"network-{time.time_ns()}"


def bash(rollout: Rollout, command: str, timeout: float = 60.0) -> ToolResult:
    return rollout.call("bash", {"command": command}, timeout)


def fetch(rollout: Rollout, path: str = "", host: str = SERVER) -> ToolResult:
    return bash(rollout, FETCH.format(host=host, path=path))


def asked(cache: Cache, state: str) -> list[str]:
    return sorted({name for edge in cache.graph.out_edges(state) for name in edge.asked})


def test_what_is_fetched_is_answered_later(cache: Cache, terminal_image: Image, site: Site, salt: str) -> None:
    for source in ("executed", "hit"):
        with cache.rollout(terminal_image, salt=salt, network="public") as rollout:
            results = [
                bash(rollout, f"getent hosts {SERVER} | cut -d' ' -f1 > /tmp/a"),
                fetch(rollout),
                bash(rollout, "getent hosts $(cat /tmp/a)"),
            ]
            assert [result.source for result in results] == [source] * 3
            assert results[1].output == "1\n"
            assert results[2].output.split()[1:] == [SERVER]
            (before,) = [edge.next_state for edge in cache.graph.out_edges(rollout.root) if edge.changed]
            assert asked(cache, rollout.root) == [SERVER]
            assert asked(cache, before) == [SERVER, f"{SERVER}:80"]
            assert bash(rollout, "echo on").output == "on\n"
    edges = [*cache.graph.out_edges(rollout.root), *cache.graph.out_edges(before)]
    checked = set(verify.candidates(cache.graph.tree()))
    assert {edge.id in checked for edge in edges if edge.asked} == {False}
    assert site.asked == 1


def test_much_gets_through(cache: Cache, terminal_image: Image, salt: str) -> None:
    with cache.rollout(terminal_image, salt=salt, network=[SERVER]) as rollout:
        command = f"python3 -c \"import urllib.request as u; print(len(u.urlopen('http://{SERVER}/big').read()))\""
        assert bash(rollout, command).output == "20000000\n"


@pytest.mark.parametrize(
    ("network", "host", "reached"),
    [
        ("public", SERVER, True),
        ([SERVER], SERVER, True),
        ([".test"], "other.test", True),
        ([SERVER], "other.test", False),
        ("public", "localhost:{port}", False),
        ("public", "127.0.0.1:{port}", False),
        ("public", "{own}:{port}", False),
        ("public", "10.0.0.1", False),
        ("public", "169.254.169.254", False),
        ("public", "[::1]:{port}", False),
        ("public", "[::ffff:127.0.0.1]:{port}", False),
        ("none", SERVER, False),
        ("none", "127.0.0.1:{port}", False),
    ],
)
def test_what_is_within_reach(
    cache: Cache, terminal_image: Image, site: Site, salt: str, network: NetworkLike, host: str, reached: bool
) -> None:
    where = host.format(port=site.server_address[1], own=own_address())
    with cache.rollout(terminal_image, salt=salt, network=network) as rollout:
        said = fetch(rollout, host=where).output
        assert said == "1\n" if reached else "rror" in said, said
    assert site.asked == int(reached)


def own_address() -> str:
    """Returns an address of this machine that is not its loopback's, or that if it has no other."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as one:
        try:
            one.connect(("203.0.113.1", 9))  # nothing is sent
        except OSError:
            return "127.0.0.1"
        return str(one.getsockname()[0])


CONNECT = """
import errno, socket, sys
def attempt(kind, host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as one:
        one.settimeout(20)
        try:
            if port == 9:  # not connected
                one.sendto(b"said", (host, port))
                one.sendto(b"again", (host, port))
                return "sent"
            one.connect((host, port))
            if kind == socket.SOCK_DGRAM:
                one.send(b"said")
                return one.recv(100).decode()
            return "connected"
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
for target in sys.argv[1:]:
    kind, _, host = target.partition(":")
    port = {"udp": 7, "unconnected": 9}.get(kind, 80)
    print(attempt(socket.SOCK_STREAM if port == 80 else socket.SOCK_DGRAM, host, port), flush=True)
"""


def connect(rollout: Rollout, *targets: str) -> list[str]:
    rollout.call("write_file", {"path": "/tmp/connect.py", "content": CONNECT})
    return bash(rollout, f"python3 /tmp/connect.py {' '.join(targets)}").output.splitlines()


def test_what_the_policy_refuses_is_refused_at_connect(cache: Cache, terminal_image: Image, salt: str) -> None:
    """As by a host at which nobody listens: a script that asks whether a port is open is told so."""
    private = ["10.0.0.1", own_address(), "169.254.169.254", "198.18.0.1", "fd00::1"]
    with cache.rollout(terminal_image, salt=salt, network="public") as rollout:
        assert connect(rollout, *(f"tcp:{one}" for one in private)) == ["ECONNREFUSED"] * 5
        assert connect(rollout, *(f"udp:{one}" for one in private)) == ["ECONNREFUSED"] * 5
        if own_address() != "127.0.0.1":
            assert f"{own_address()}:7/udp" in asked(cache, rollout.state)
        loose = connect(rollout, "unconnected:10.0.0.1", "unconnected:fd00::1")
        assert loose == ["sent", "sent"], "no error, as on any Linux"
    with cache.rollout(terminal_image, salt=salt, network=[SERVER]) as rollout:
        assert connect(rollout, "tcp:192.0.2.1", "udp:192.0.2.1", "tcp:2001:db8::1") == ["ECONNREFUSED"] * 3
        assert connect(rollout, f"tcp:{SERVER}") == ["connected"]
        address = bash(rollout, f"getent hosts {SERVER} | cut -d' ' -f1").output.strip()
        with cache.materialise(rollout.state, network=["other.test"]) as grader:  # which another policy refuses
            told = [grader.run(f"python3 /tmp/connect.py tcp:{address}", timeout=60).output for _ in range(2)]
            assert told[1] == b"ECONNREFUSED\n"


SERVE = """
import socket
servers = [
    socket.create_server(("0.0.0.0", 7001)),
    socket.create_server(("::", 7002), family=socket.AF_INET6, dualstack_ipv6=True),
]
for server in servers:
    for address in ("127.0.0.1", "127.0.0.5", "localhost"):
        socket.create_connection((address, server.getsockname()[1]), 9).close()
print("reached")
"""


@pytest.mark.parametrize("network", ["public", [SERVER]])
def test_what_a_sandbox_serves_is_reached_within_it(
    cache: Cache, terminal_image: Image, salt: str, network: NetworkLike
) -> None:
    """The machine has a 127.0.0.1, too, and what is the machine's own is refused; but not this address."""
    with cache.rollout(terminal_image, salt=salt, network=network) as rollout:
        rollout.call("write_file", {"path": "/tmp/serve.py", "content": SERVE})
        assert bash(rollout, "python3 /tmp/serve.py").output == "reached\n"


class Echo(threading.Thread):
    """A UDP server that says what it is told, with its count."""

    def __init__(self, host: str) -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, 0))
        self.count = 0

    @property
    def address(self) -> str:
        """Its host and port."""
        host, port = self.socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def run(self) -> None:
        while True:
            packet, sender = self.socket.recvfrom(65536)
            if packet == b"end":
                break
            self.count += 1
            self.socket.sendto(packet + b"%d" % self.count, sender)


@pytest.fixture(params=["127.0.0.1", "::1"])
def echo(request: pytest.FixtureRequest) -> Iterator[Echo]:
    if ":" in request.param and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    echo = Echo(request.param)
    echo.start()
    yield echo
    echo.socket.sendto(b"end", echo.socket.getsockname())
    echo.join()
    echo.socket.close()


def test_packets_of_udp(
    backend: str, terminal_image: Image, tvsnap_home: Path, site: Site, echo: Echo, salt: str
) -> None:
    """To names that are allowed, and from them; what a call asked for is recorded, in forks as well."""
    settings = NetworkSettings(hosts={"echo.test": echo.address, "2001:db8::7": site.address})
    try:
        cache = Cache(tvsnap_home, backend=backend, network_settings=settings, policy="eager")
    except MachineLacks as lack:
        pytest.skip(str(lack))
    with cache:
        with cache.rollout(terminal_image, salt=salt, network=["echo.test"]) as rollout:
            assert connect(rollout, "udp:echo.test", "udp:echo.test") == ["said1", "said2"]
            edge = cache.graph.edge_to(rollout.state)
            assert edge is not None
            assert edge.asked == ("echo.test", "echo.test:7/udp")
            with cache.materialise(rollout.state) as fork:
                assert fork.run("python3 /tmp/connect.py udp:echo.test", timeout=60).output == b"said3\n"
        if Path("/proc/net/if_inet6").exists():
            with cache.rollout(terminal_image, salt=salt, network="public") as rollout:
                assert fetch(rollout, host="[2001:db8::7]").output == "1\n"
                assert connect(rollout, "udp:2001:db8::7") == ["ECONNREFUSED"]


def test_names_of_one_salt_are_no_matter_of_another(
    cache: Cache, terminal_image: Image, site: Site, salt: str, tmp_path: Path
) -> None:
    """Neither its look-ups nor its addresses tell what another salt has asked for."""
    with (
        cache.rollout(terminal_image, salt=salt, network="public") as one,
        cache.rollout(terminal_image, salt=f"{salt} other", network="public") as other,
    ):
        address = bash(one, f"getent hosts {SERVER}").output.split()[0]
        assert bash(one, f"getent hosts {address}").output.split()[1:] == [SERVER]
        assert bash(other, f"getent hosts {address}").exit_code == 2
        assert "rror" in fetch(other, host=address).output
        assert site.asked == 0
        own = bash(other, f"getent hosts {SERVER}").output.split()[0]
        assert own != address
        with closing(Addresses(tmp_path)) as unasked:  # where nobody has asked for anything
            space = hashlib.sha256(f"{salt} other".encode()).hexdigest()[:32]
            assert unasked.address_of(space, SERVER) == own
        assert fetch(other, host=own).output == "1\n"


def test_roots_are_told_apart(cache: Cache, terminal_image: Image, salt: str) -> None:
    policies: list[NetworkLike] = [None, "none", "public", [SERVER]]
    roots = [cache.rollout(terminal_image, salt=salt, network=policy).root for policy in policies]
    assert roots[0] == roots[1]
    assert len(set(roots)) == 3
    assert {cache.graph.roots()[-1].network, cache.graph.roots()[-2].network} == {"public", SERVER}


def test_forks_have_a_way_out_of_their_own(cache: Cache, terminal_image: Image, site: Site, salt: str) -> None:
    with cache.rollout(terminal_image, salt=salt, network="public") as rollout:
        bash(rollout, "(while sleep 1000; do :; done) > /dev/null 2>&1 & x=1")
        with cache.fork(rollout.state, 2) as forks:
            outputs = [fork.run(FETCH.format(host=SERVER, path=""), timeout=60).output for fork in forks]
            assert outputs == [b"1\n", b"2\n"]
        with cache.materialise(rollout.state, network="none") as grader:
            assert b"rror" in grader.run(FETCH.format(host=SERVER, path=""), timeout=60).output
    assert site.asked == 2


def test_a_grader_may_have_a_network(cache: Cache, terminal_image: Image, salt: str) -> None:
    with cache.rollout(terminal_image, salt=salt) as rollout:
        bash(rollout, "echo made > /tmp/f")
        with cache.materialise(rollout.state, network=[SERVER]) as grader:
            output = grader.run(f"cat /tmp/f; {FETCH.format(host=SERVER, path='')}", timeout=60).output
            assert output == b"made\n1\n"
        assert "rror" in fetch(rollout).output
        root = rollout.root
    with cache.materialise(root, network=[SERVER]) as grader:  # nothing but a fresh sandbox leads there
        assert grader.run(FETCH.format(host=SERVER, path=""), timeout=60).output == b"2\n"
    with cache.rollout(terminal_image, salt=salt) as later:
        assert "198.18" not in bash(later, "cat /etc/resolv.conf").output
        assert later.root == root


def test_what_comes_over_a_connection_counts(cache: Cache, terminal_image: Image, site: Site, salt: str) -> None:
    get = f"import urllib.request as u; open('/tmp/go').read(); page = u.urlopen('http://{SERVER}/slow'); "
    get += "open('/tmp/begun', 'w'); print(len(page.read()))"
    with cache.rollout(terminal_image, salt=salt, network="public") as rollout:
        bash(rollout, f'mkfifo /tmp/go; (python3 -c "{get}" > /tmp/said 2>&1; echo $? > /tmp/status) &')
        bash(rollout, "echo > /tmp/go; until [ -e /tmp/begun ]; do sleep 0.01; done")
        edge = cache.graph.edge_to(rollout.state)
        assert edge is not None
        assert edge.active is not None
        if cache.backend.captures.processes:  # a snapshot of it was taken, for which the connection was ended
            assert site.gone.wait(60)
            eventually(lambda: bash(rollout, "cat /tmp/status").output == "1\n")
            assert "rror" in bash(rollout, "tail -1 /tmp/said").output
        else:  # nothing ended the connection, as no snapshot can be taken
            assert "Running" in bash(rollout, "jobs").output
            assert not site.gone.is_set()


def test_answers_grow_old(backend: str, terminal_image: Image, tvsnap_home: Path, site: Site, salt: str) -> None:
    def get(answers: float | None) -> tuple[str, str]:
        with (
            open_cache(tvsnap_home, backend, site, answers) as cache,
            cache.rollout(terminal_image, salt=salt, network="public") as rollout,
        ):
            result = fetch(rollout)
            return result.source, result.output

    assert get(None) == ("executed", "1\n")
    assert get(1000) == ("hit", "1\n")
    time.sleep(1.1)
    assert get(1.0) == ("executed", "2\n")
    assert get(None) == ("hit", "2\n")
    assert get(0.0) == ("executed", "3\n")


def test_the_relay_is_begun_anew_if_it_dies(
    backend: str, terminal_image: Image, tvsnap_home: Path, site: Site, salt: str
) -> None:
    with open_cache(tvsnap_home, backend, site) as cache:
        with cache.rollout(terminal_image, salt=salt, network="public") as rollout:
            assert fetch(rollout).output == "1\n"
            gateway = cache.backend.gateway  # type: ignore[attr-defined]
            gateway.relay.kill()
            gateway.relay.wait()
            bash(rollout, "x=1")
            edge = cache.graph.edge_to(rollout.state)
            assert edge is not None
            assert edge.asked == (NOT_KNOWN,)  # it may have asked for anything
            assert fetch(rollout).output == "2\n"
        relay = gateway.relay
    assert relay.poll() is not None


def test_many_questions_harm_nobody(cache: Cache, terminal_image: Image, salt: str) -> None:
    ask = (
        'python3 -c "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n'
        "for n in range(3000):\n"
        "    name = ('a' * 60 + '.') * 3 + f'{n:050}.test'\n"
        "    labels = b''.join(bytes([len(one)]) + one.encode() for one in name.split('.'))\n"
        "    head = bytes([n >> 8, n & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0])\n"
        "    s.sendto(head + labels + bytes([0, 0, 1, 0, 1]), ('8.8.8.8', 53))\n"
        "s.sendto(bytes(100), ('8.8.8.8', 53)); s.sendto(b'x', ('8.8.8.8', 53))\""
    )
    with (
        cache.rollout(terminal_image, salt=salt, network=[SERVER]) as hostile,
        cache.rollout(terminal_image, salt=f"{salt} other", network=[SERVER]) as other,
    ):
        assert fetch(other).output == "1\n"
        relay = cache.backend.gateway.relay  # type: ignore[attr-defined]
        assert bash(hostile, ask).exit_code == 0
        assert len(asked(cache, hostile.root)) <= 50
        bash(other, "x=1")
        assert fetch(other).output == "2\n"
        assert cache.backend.gateway.relay is relay  # type: ignore[attr-defined]
        assert relay.poll() is None


FLOOD = """
import socket, struct
def question(number, *labels, more=b"", count=1):
    name = b"".join(bytes([len(one)]) + one for one in labels)
    return struct.pack(">6H", number, 0x100, count, 0, 0, 0) + (name + bytes([0, 0, 1, 0, 1])) * count + more
def ask(*messages):
    its = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for message in messages:
        its.sendto(message, ("8.8.8.8", 53))
    answer = its.recv(512)
    print(answer[1], answer[3] & 15, end=" ", flush=True)
nothing = [question(1, b"files", b"test", more=bytes(600)), question(2, b"files", b"test", count=2), bytes(12), b"x"]
names = [(b"a b", b"test"), (b"127", b"0", b"0", b"1"), (bytes([200, 0, 10]), b"test"), (b"files.test",)]
for number, name in enumerate(names):
    ask(question(number, *name))
ask(*nothing, question(9, b"files", b"test"))  # what is not answered would have been before this
open("/tmp/asked", "w")
its = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for message in [*nothing, *[question(0, *name) for name in names], bytes(60000)]:
        its.sendto(message, ("8.8.8.8", 53))
"""


def test_hostile_questions_take_nothing_from_others(cache: Cache, terminal_image: Image, salt: str) -> None:
    """What is no name of a host is not there, what is no question has no answer, and others are served meanwhile."""
    with (
        cache.rollout(terminal_image, salt=salt, network="public") as hostile,
        cache.rollout(terminal_image, salt=f"{salt} other", network="public") as other,
    ):
        hostile.call("write_file", {"path": "/tmp/flood.py", "content": FLOOD})
        flood = "python3 /tmp/flood.py > /tmp/said 2>&1 & until [ -e /tmp/asked ]; do sleep 0.05; done; cat /tmp/said"
        said = bash(hostile, flood)
        assert said.output == "0 3 1 3 2 3 3 3 9 0 "
        command = f"python3 -c \"import urllib.request as u; print(len(u.urlopen('http://{SERVER}/big').read()))\""
        assert bash(other, command).output == "20000000\n"
        assert bash(other, f"getent hosts {SERVER}").exit_code == 0
        assert bash(hostile, "kill -0 $! && cat /tmp/said").output == said.output, "the flood has ended"


class Proxy(threading.Thread):
    """An HTTP proxy that knows CONNECT: what it was asked for is in `asked`, and leads to one server."""

    def __init__(self, server: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.asked: list[str] = []
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://user:secret@127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        while True:
            client, _ = self._listener.accept()
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1)
            self.asked.append(head.decode())
            server = socket.create_connection(self._server)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    while part := one.recv(65536):
        other.sendall(part)
    other.shutdown(socket.SHUT_WR)


def test_through_a_proxy(backend: str, terminal_image: Image, tvsnap_home: Path, site: Site, salt: str) -> None:
    proxy = Proxy(("127.0.0.1", site.server_address[1]))
    proxy.start()
    try:
        cache = Cache(tvsnap_home, backend=backend, network_settings=NetworkSettings(proxy=proxy.address))
    except MachineLacks as lack:
        pytest.skip(str(lack))
    with cache, cache.rollout(terminal_image, salt=salt, network=["far.test"]) as rollout:
        assert fetch(rollout, host="far.test").output == "1\n"
        assert "rror" in fetch(rollout, host="near.test").output
    (head,) = proxy.asked
    assert head.startswith("CONNECT far.test:80 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n" in head


def test_what_is_private_is_not_asked_of_a_proxy(
    backend: str, terminal_image: Image, tvsnap_home: Path, site: Site, salt: str
) -> None:
    proxy = Proxy(("127.0.0.1", site.server_address[1]))
    proxy.start()
    private = ["127.0.0.1", "10.0.0.1", "169.254.169.254", own_address(), "localhost", "db", "metadata.google.internal"]
    command = f"""python3 -c "
import urllib.request as u
for host in {[*private, "far.test"]}:
    try: print(host, u.urlopen('http://' + host, timeout=20).read())
    except OSError: print(host, 'refused')" """
    try:
        cache = Cache(tvsnap_home, backend=backend, network_settings=NetworkSettings(proxy=proxy.address))
    except MachineLacks as lack:
        pytest.skip(str(lack))
    with cache, cache.rollout(terminal_image, salt=salt, network="public") as rollout:
        said = bash(rollout, command).output.splitlines()
    assert said == [*(f"{host} refused" for host in private), "far.test b'1\\n'"]
    (head,) = proxy.asked
    assert head.startswith("CONNECT far.test:80 ")


def test_certificates_are_handed_in(
    backend: str, terminal_image: Image, tvsnap_home: Path, tmp_path: Path, salt: str
) -> None:
    roots = set()
    for text in ("one", "two"):
        (tmp_path / "ours.pem").write_text(text)
        settings = NetworkSettings(certificates=tmp_path / "ours.pem")
        try:
            cache = Cache(tvsnap_home, backend=backend, network_settings=settings, policy="eager")
        except MachineLacks as lack:
            pytest.skip(str(lack))
        with cache, cache.rollout(terminal_image, salt=salt, network="public") as rollout:
            assert bash(rollout, "cat $SSL_CERT_FILE").output == text
            roots.add(rollout.root)
            with cache.rollout(terminal_image, salt=salt) as without:
                bash(without, "echo > x")
            with cache.materialise(without.state, network="public") as grader:  # that has a network only now
                assert grader.exec("cat $SSL_CERT_FILE", timeout=30).output.decode() == text
                assert grader.exec_all([Command("cat $CURL_CA_BUNDLE")], timeout=30)[0].output.decode() == text
    assert len(roots) == 2
