"""What sandboxes may reach, as policies, names and addresses; nothing here has a network."""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import math
import socket
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dns.message
import dns.rcode
import pytest

from tests.fakes.backend import fake_image
from tvsnap import InfrastructureError, Network, UsageError
from tvsnap.model.network import NO_NETWORK, Traffic, is_host_name, is_private_name, is_within_reach, lacks_network
from tvsnap.model.observations import Observation
from tvsnap.sandboxes.network import addresses, relay
from tvsnap.sandboxes.network.addresses import Addresses, stands_for_a_name
from tvsnap.sandboxes.network.attach import WayOut
from tvsnap.sandboxes.network.dns_questions import NoQuestion, Question
from tvsnap.sandboxes.network.pace import Pace
from tvsnap.sandboxes.network.resolver import Resolver
from tvsnap.sandboxes.network.rules import Verdict, rules_of
from tvsnap.sandboxes.network.sandbox import Networked
from tvsnap.sandboxes.network.way import Way
from tvsnap.types import NetworkSettings


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (None, "none"),
        ("none", "none"),
        ("public", "public"),
        ([], "none"),
        (["b.test", ".A.test", "b.test"], ".a.test,b.test"),
        (Network(public=True), "public"),
    ],
)
def test_a_policy_is_one_text(said: Any, text: str) -> None:
    policy = Network.of(said)
    assert str(policy) == text
    assert Network.parse(text) == policy
    assert policy.attached is (text != "none")


@pytest.mark.parametrize(
    "said", ["everything", "", 1, ["a b"], ["http://a.test"], ["a.test:80"], [""], [1], ["."], ["a"] * 1001]
)
def test_what_is_no_policy(said: Any) -> None:
    with pytest.raises(UsageError, match="network"):
        Network.of(said)


def test_what_a_policy_allows() -> None:
    some = Network.of(["a.test", ".b.test", "192.0.2.7"])
    for host, allowed in {
        "a.test": True, "x.a.test": False, "x.b.test": True, "b.test": False, "xb.test": False, "192.0.2.7": True,
    }.items():  # fmt: skip
        assert some.allows(host) is allowed
    assert Network(public=True).allows("anything.test")
    assert not NO_NETWORK.allows("a.test")


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("8.8.8.8", True), ("2600::1", True), ("203.0.113.80", True),
        ("127.0.0.1", False), ("10.1.2.3", False), ("172.31.0.1", False), ("192.168.1.1", False), ("100.64.0.1", False),
        ("169.254.169.254", False), ("0.0.0.0", False), ("198.18.0.2", False), ("224.0.0.1", False), ("::1", False),
        ("fe80::1", False), ("fd00::1", False), ("::ffff:127.0.0.1", False), ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False), ("2002:0a00:0001::", False), ("192.0.2.2", False), ("192.0.2.77", False),
    ],
)  # fmt: skip
def test_which_addresses_are_within_reach(address: str, reached: bool) -> None:
    own = [ipaddress.ip_network("192.0.2.2"), ipaddress.ip_network("192.0.2.0/24")]
    assert is_within_reach(address, own) is reached


@pytest.mark.parametrize(
    ("said", "address", "verdict"),
    [
        ("public", "192.0.2.1", Verdict.RELAYED),
        ("public", "2001:db8::1", Verdict.RELAYED),
        ("public", "10.1.2.3", Verdict.REFUSED),
        ("public", "203.0.113.9", Verdict.REFUSED),
        ("public", "fd00::1", Verdict.REFUSED),
        ("public", "10.9.9.9", Verdict.RELAYED),
        ("public", "127.0.0.1", Verdict.INSIDE),
        ("public", "::1", Verdict.INSIDE),
        ("public", "198.18.0.2", Verdict.INSIDE),
        ("public", "198.18.0.1", Verdict.REFUSED),
        ("public", "198.18.1.0", Verdict.RELAYED),
        (["a.test", "192.0.2.1", "203.0.113.9"], "192.0.2.1", Verdict.RELAYED),
        (["a.test", "192.0.2.1", "203.0.113.9"], "203.0.113.9", Verdict.REFUSED),
        (["a.test", "192.0.2.1"], "192.0.2.2", Verdict.REFUSED),
        (["a.test"], "10.9.9.9", Verdict.REFUSED),
        (["a.test"], "198.19.2.3", Verdict.RELAYED),
    ],
)
def test_what_the_kernel_makes_of_an_address(said: Any, address: str, verdict: Verdict) -> None:
    settings = NetworkSettings(hosts={"10.9.9.9": "127.0.0.1:1"})
    own = [ipaddress.ip_network(one) for one in ("203.0.113.0/24", "127.0.0.0/8", "127.0.0.1/32", "::1/128")]
    rules = rules_of(Network.of(said), settings, own, version_6=True)
    its = ipaddress.ip_address(address)
    longest = max((one for one in rules if its in one), key=lambda one: one.prefixlen, default=None)
    assert (Verdict.REFUSED if longest is None else rules[longest]) == verdict


def test_a_name_has_one_address_for_ever(tmp_path: Path) -> None:
    first, second = Addresses(tmp_path), Addresses(tmp_path)
    names = [f"{number}.test" for number in range(500)]
    found = {name: first.address_of("", name) for name in names}
    assert len(set(found.values())) == len(names)
    assert all(stands_for_a_name(address) for address in found.values())
    assert {name: second.address_of("", name) for name in reversed(names)} == found
    first.close()
    second.close()
    later = Addresses(tmp_path)
    assert {later.name_of("", address): address for address in found.values()} == found
    assert {later.name_of("another", address) for address in found.values()} == {None}
    assert later.name_of("", "198.19.255.255") is None
    assert later.name_of("", "8.8.8.8") is None
    assert not stands_for_a_name("198.18.0.1")
    later.close()


def test_more_names_than_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many names are known, one more has an address of the last resort, or fails at once, in one space only."""
    monkeypatch.setattr(addresses, "_RANGES", (("198.18.1.0", "198.18.1.16"), ("240.0.0.0", "240.0.0.16")))
    known = Addresses(tmp_path)
    found = [known.address_of("", f"{number}.test") for number in range(32)]
    assert len(set(found)) == 32
    assert all(map(stands_for_a_name, found))
    with pytest.raises(InfrastructureError, match=r"no address is free for one-more\.test"):
        known.address_of("", "one-more.test")
    assert known.name_of("another", known.address_of("another", "one-more.test")) == "one-more.test"
    known.close()


@pytest.mark.parametrize(
    ("name", "is_one", "private"),
    [
        ("example.org", True, False), ("a_b.example.org", True, False), ("xn--bcher-kva.example", True, False),
        ("localhost", True, True), ("db", True, True), ("metadata.google.internal", True, True),
        ("a.localhost", True, True), ("127.0.0.1", False, False), ("127.1", False, False), ("2130706433", False, True),
        ("0x7f.1", False, False), ("0x7f000001", False, True), ("a.0x7f", False, False), (".example.org", False, False),
        ("", False, True), ("a..b", False, False), (r"\200.test", False, False), ("x" * 64 + ".test", False, False),
        (".".join(["a"] * 127), True, False), (".".join(["a"] * 128), False, True),
    ],
)  # fmt: skip
def test_names_of_hosts(name: str, is_one: bool, private: bool) -> None:
    assert is_host_name(name) is is_one
    if is_one:
        assert is_private_name(name) is private


def test_private_names_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host knows to be private is not there; what it does not know is, unless its name says otherwise."""
    known = {"inside.example.org": ["10.0.0.1"], "both.example.org": ["10.0.0.1", "8.8.8.8"]}

    def look_up(name: str, *_: object, **__: object) -> list[Any]:
        if name not in known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in known[name]]

    async def there(proxy: str | None) -> dict[str, bool]:
        resolver, turn = Resolver(NetworkSettings(proxy=proxy, hosts={"db": "127.0.0.1:1"})), asyncio.Semaphore()
        return {name: await resolver.is_there(name, turn) for name in (*known, "far.example.org", "db", "other")}

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert list(asyncio.run(there("http://proxy.test:3128")).values()) == [False, True, True, True, False]
    assert list(asyncio.run(there(None)).values()) == [False, True, False, True, False]


def asks(name: str, kind: str = "A") -> bytes:
    return bytes(dns.message.make_query(name, kind).to_wire())


def test_a_question() -> None:
    question = Question(asks("Example.ORG"))
    assert (question.name, question.wants_address, question.wants_name) == ("example.org", True, False)
    answered = dns.message.from_wire(question.answer("A", "198.18.1.2"))
    assert "198.18.1.2" in answered.to_text()
    assert dns.message.from_wire(Question(asks("a.test")).answer_unknown()).rcode() == dns.rcode.NXDOMAIN
    assert dns.message.from_wire(Question(asks("a.test")).answer_failure()).rcode() == dns.rcode.SERVFAIL
    assert not dns.message.from_wire(Question(asks("a.test", "AAAA")).answer_nothing()).answer
    assert Question(asks("4.3.2.1.in-addr.arpa", "PTR")).address == "1.2.3.4"
    for other in ("3.2.1.in-addr.arpa", "4.3.2.1.in-addr.arpa.test", "300.3.2.1.in-addr.arpa", "a.test"):
        assert Question(asks(other, "PTR")).address is None


@pytest.mark.parametrize(
    "message",
    [
        b"", bytes(11), bytes(12), b"\xff" * 100, asks("a.test") + bytes(500), asks("a.test")[:20],
        asks("a.test")[:4] + b"\0\2" + asks("a.test")[6:], asks("a.test")[:6] + b"\0\1" + asks("a.test")[8:],
    ],
    ids=range(8),
)  # fmt: skip
def test_what_is_no_question(message: bytes) -> None:
    with pytest.raises(NoQuestion):
        Question(message)


def test_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("tvsnap.sandboxes.network.pace.time.monotonic", lambda: now)
    pace = Pace(10, 3)
    assert [round(pace.take(), 3) for _ in range(4)] == [0, 0, 0.1, 0.2]
    now += 0.2
    assert round(pace.take(), 3) == 0.1
    now += 1000
    assert [round(pace.take(), 3) for _ in range(3)] == [0, 0, 0.1]


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVSNAP_NETWORK_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("TVSNAP_NETWORK_HOSTS", "git.test=127.0.0.1:80,Other.test=[::1]:8080")
    monkeypatch.setenv("TVSNAP_NETWORK_CERTIFICATES", str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match=r"none\.pem"):
        NetworkSettings.of_environment()
    (tmp_path / "none.pem").write_text("")
    settings = NetworkSettings.of_environment()
    assert settings.server("git.test") == ("127.0.0.1", 80)
    assert settings.server("other.test") == ("::1", 8080)
    assert settings.server("a.test") is None
    assert settings.proxy == "http://proxy.test:3128"
    for name, wrong in (("PROXY", "socks5://a:1"), ("HOSTS", "git.test"), ("HOSTS", "a=b"), ("HOSTS", "a=b:c")):
        with monkeypatch.context() as patch:
            patch.setenv(f"TVSNAP_NETWORK_{name}", wrong)
            with pytest.raises(UsageError):
                NetworkSettings.of_environment()


@pytest.mark.parametrize(
    "output",
    [
        "curl: (6) Could not resolve host: example.org",
        "E: Failed to fetch http://deb.example/x  Temporary failure resolving 'deb.example'",
        "ping: example.org: Name or service not known",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "npm error request to https://example.org/ failed, reason: getaddrinfo EAI_AGAIN example.org",
        "fatal: unable to access 'https://example.org/': Couldn't resolve host 'example.org'",
        "OSError: [Errno 101] Network is unreachable",
    ],
)
def test_what_is_printed_for_want_of_a_network(output: str) -> None:
    assert lacks_network(f"one line\n{output}\n")


@pytest.mark.parametrize("output", ["", "resolved", "curl: (7) Failed to connect to localhost port 80", "no such file"])
def test_what_says_nothing_of_the_network(output: str) -> None:
    assert not lacks_network(output)


def test_what_is_under_way() -> None:
    """Also what the relay has not taken yet: who waits for an answer does not see the difference."""
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as tcp,
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as dns,
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as udp,
        closing(socket.socket(socket.AF_INET6, socket.SOCK_STREAM)) as tcp6,
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asker,
    ):
        dns.bind(("127.0.0.1", 0))
        tcp6.listen()
        way = Way(Network(public=True), WayOut(tcp, tcp6, udp, dns, udp, -1, -1, -1))
        assert way.under_way() == 0
        with closing(socket.create_connection(tcp.getsockname())):
            assert way.under_way() == 1
            asker.sendto(b"?", dns.getsockname())
            assert way.under_way() == 2


@pytest.mark.parametrize(
    ("told", "looks", "active"),
    [
        ([Traffic(stirred=True), Traffic()], 1, None),
        ([Traffic(), Traffic(open=1, stirred=True)], 1, "a connection or look-up out of the sandbox may be answered"),
        ([Traffic(), Traffic(open=2, stirred=True)], 1, "2 connections or look-ups out of the sandbox may be answered"),
        ([Traffic(open=1, stirred=True), Traffic(stirred=True), Traffic()], 2, None),
        ([Traffic(stirred=True)] * 6, 5, "a connection or look-up out of the sandbox may be answered"),
    ],
)
def test_a_look_during_which_something_was_under_way(told: list[Traffic], looks: int, active: str | None) -> None:
    """What ended meanwhile may have woken who had been looked at: then all is looked at again."""
    answers = iter(told)
    sandbox, seen = Networked(), list[None]()
    sandbox.id, sandbox.image = "one", dataclasses.replace(fake_image(), network=Network(public=True))
    sandbox.gateway = SimpleNamespace(traffic=lambda _, forget: next(answers))  # type: ignore[assignment]

    def look() -> Observation:
        seen.append(None)
        return Observation("files", "processes", "shell")

    found = sandbox.with_connections(look)
    assert (len(seen), found.active, found.quiet_s) == (looks, active, 0.0 if active else math.inf)
    assert next(answers, None) is None


def test_nothing_is_lost_when_all_is_said() -> None:
    """Also where it is read late, and both ends are let go at once."""

    async def pass_on(data: bytes) -> bytes:
        ours, its = socket.socketpair()
        with ours, its:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            said = asyncio.StreamReader()
            said.feed_data(data)
            said.feed_eof()
            _, writer = await asyncio.open_connection(sock=ours)

            async def pump_and_end() -> None:
                await relay.pump(said, writer)
                writer.transport.abort()

            pumping = asyncio.create_task(pump_and_end())
            its.setblocking(False)
            loop, heard = asyncio.get_running_loop(), b""
            while part := await loop.sock_recv(its, 1000):
                heard += part
            await pumping
            return heard

    data = bytes(range(256)) * 1000
    assert asyncio.run(pass_on(data)) == data


def test_an_address_that_is_refused_is_shown_without_its_password() -> None:
    with pytest.raises(UsageError, match=r"'\.\.\.@proxy:3128' is no HTTP proxy") as caught:
        NetworkSettings(proxy="https://user:SECRET@proxy:3128")
    assert "SECRET" not in str(caught.value)
