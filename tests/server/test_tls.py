"""TLS at the server's TCP port: its certificate, and those that clients show."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tvsnap
import tvsnap.aio
from tests.authority import Authority
from tests.server.conftest import Server, start
from tests.server.test_limits import home as home
from tests.server.test_verbs import verb
from tvsnap.plugins.client.wire.errors import Unauthorized, Unreachable
from tvsnap.plugins.server.settings import ServerSettings
from tvsnap.plugins.server.tls import server_context

Issue = Callable[..., Path]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs what the server and its clients show."""
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs what nobody trusts."""
    return Authority(tmp_path_factory.mktemp("tls") / "stranger")


@contextlib.contextmanager
def serving(home: Path, *options: str | Path) -> Iterator[Server]:
    """A block with a server that shows a certificate."""
    server = start(home, *map(str, options))
    try:
        assert server.url.startswith("https://127.0.0.1:")
        yield server
    finally:
        assert server.stop() == 0


def test_connect_reads_the_variables(
    home: Path, authority: Authority, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = authority.issue("server", "subjectAltName=IP:127.0.0.1")
    shown = authority.issue("trainer", "extendedKeyUsage=clientAuth")

    async def name() -> str:
        async with await tvsnap.aio.connect(server.url) as client, client.rollout("terminal") as rollout:
            return rollout.root

    with serving(home, "--tls-certificate", certificate, "--tls-client-ca", authority.file) as server:
        for ca, own in ((None, shown), (stranger.file, shown), (authority.file, None)):
            for variable, value in (("TVSNAP_CA", ca), ("TVSNAP_CERTIFICATE", own)):
                monkeypatch.setenv(variable, str(value or ""))
            with pytest.raises(Unreachable):
                tvsnap.connect(server.url)
        monkeypatch.setenv("TVSNAP_CERTIFICATE", str(shown))
        assert asyncio.run(name())
        monkeypatch.setenv("TVSNAP_CA", str(stranger.file))
        with tvsnap.connect(server.url, ca=authority.file) as client:  # what is given comes first
            client.images.list()
        with tvsnap.connect(f"unix:{server.socket}") as client:  # which has no TLS
            client.images.list()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_certificates_of_both_sides(home: Path, authority: Authority, stranger: Authority, workers: str) -> None:
    server_file = authority.issue("server", "subjectAltName=IP:127.0.0.1")
    ours = authority.issue("trainer", "extendedKeyUsage=clientAuth")
    pair = (ours.with_suffix(".pem"), ours.with_suffix(".key"))
    theirs = stranger.issue("trainer", "extendedKeyUsage=clientAuth")
    options = ("--tls-certificate", server_file, "--tls-client-ca", authority.file, "--workers", workers)
    with serving(home, *options) as server:
        data = secrets.token_bytes(1 << 20)
        with tvsnap.connect(server.url, ca=authority.file, certificate=ours) as client:
            for _ in range(4):  # each may be another process's
                with client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
                    rollout.put(data, "/tmp/data")
                    digest = rollout.call("bash", {"command": "wc -c < /tmp/data"}).output
                    assert digest == f"{len(data)}\n"
                    with client.materialise(rollout.state) as sandbox:
                        assert sandbox.read_file("/tmp/data") == data

        async def use() -> str:
            async with (
                await tvsnap.aio.connect(server.url, ca=str(authority.file), certificate=pair) as opened,
                opened.rollout("terminal") as rollout,
            ):
                return (await rollout.call("bash", {"command": "echo there"})).output

        assert asyncio.run(use()) == "there\n"
        for refused in ({"certificate": ours}, {"ca": stranger.file}, {"ca": authority.file, "certificate": theirs}):
            with pytest.raises(Unreachable):
                tvsnap.connect(server.url, **refused)  # type: ignore[arg-type]
        with pytest.raises(Unreachable):
            asyncio.run(tvsnap.aio.connect(server.url, ca=authority.file))
        with pytest.raises(Unreachable):  # in plain
            tvsnap.connect(server.url.replace("https", "http"))
        with tvsnap.connect(f"unix:{server.socket}") as client:
            assert client.graph.roots()


def test_tokens_are_asked_for_beside_certificates(home: Path, authority: Authority, tmp_path: Path) -> None:
    server_file = authority.issue("other", "subjectAltName=IP:127.0.0.1")
    tokens = tmp_path / "tokens"
    tokens.write_text("t" * 32 + "\n")
    tokens.chmod(0o600)
    key = ("--tls-key", server_file.with_suffix(".key"))
    options = ("--tls-certificate", server_file.with_suffix(".pem"), *key, "--token-file", tokens)
    with serving(home, *options) as server:
        with pytest.raises(Unauthorized):
            tvsnap.connect(server.url, ca=authority.file)
        with tvsnap.connect(server.url, "t" * 32, ca=authority.file) as client:
            assert client.graph.roots() == []


def test_verbs_show_certificates(home: Path, authority: Authority, stranger: Authority) -> None:
    server_file = authority.issue("verbs", "subjectAltName=IP:127.0.0.1")
    ours = authority.issue("caller", "extendedKeyUsage=clientAuth")
    with serving(home, "--tls-certificate", server_file, "--tls-client-ca", authority.file) as server:
        given = ("--ca", str(authority.file), "--certificate", str(ours))
        said = verb("run", "terminal", "-c", "echo there", "--url", server.url, *given)
        assert said[0] == 0
        assert "there" in said[1]
        variables = {"TVSNAP_CA": str(authority.file), "TVSNAP_CERTIFICATE": str(ours)}
        assert verb("tree", TVSNAP_URL=server.url, **variables)[0] == 0
        for refused in (given[:2], given[2:], ("--ca", str(stranger.file), *given[2:])):
            status, said_why = verb("tree", "--url", server.url, *refused)
            assert (status, server.url in said_why) == (1, True), said_why
        status, said_why = verb("tree", "--url", f"unix:{server.socket}", *given)
        assert (status, "https://" in said_why) == (2, True)


def test_settings_that_make_no_sense(authority: Authority, stranger: Authority, tmp_path: Path) -> None:
    file, other = authority.issue("a", ""), stranger.issue("b", "")
    ServerSettings(host="0.0.0.0", tls_certificate=file, tls_client_ca=authority.file)
    with pytest.raises(tvsnap.UsageError, match="--tls-client-ca"):
        ServerSettings(host="0.0.0.0", tls_certificate=file)  # it tells who the server is, not who asks
    with pytest.raises(tvsnap.UsageError, match="without a certificate"):
        ServerSettings(tls_client_ca=authority.file)
    with pytest.raises(tvsnap.UsageError, match="TCP port"):
        ServerSettings(host=None, socket=tmp_path / "socket", tls_certificate=file)
    for settings, words in (
        (ServerSettings(tls_certificate=tmp_path / "none"), "--tls-certificate"),
        (ServerSettings(tls_certificate=file, tls_key=other.with_suffix(".key")), "--tls-key"),
        (ServerSettings(tls_certificate=file, tls_client_ca=tmp_path / "none"), "--tls-client-ca"),
    ):
        with pytest.raises(tvsnap.UsageError, match=words):
            server_context(settings)
    for url, chosen, words in (
        ("http://127.0.0.1:1", {"ca": authority.file}, "https"),
        ("https://127.0.0.1:1", {"ca": tmp_path / "none"}, "authority"),
        ("https://127.0.0.1:1", {"certificate": authority.file}, "key"),
    ):
        with pytest.raises(tvsnap.UsageError, match=words):
            tvsnap.connect(url, **chosen)  # type: ignore[arg-type]
