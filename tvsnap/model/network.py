"""Network policies: the hosts that a sandbox may reach."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvsnap.model.errors import UsageError

OWN_ADDRESS = "198.18.0.2"
"""A sandbox's own address.

198.18.0.0/15 is reserved for network tests (RFC 2544): no internet host has one of these.
"""
OWN_ADDRESS_6 = "2001:2::2"
"""The same for IPv6: of 2001:2::/48, which is reserved for network tests, too (RFC 5180)."""
RELAY_ADDRESS = "198.18.0.1"
"""The address at which names are looked up inside, and the only one at which the relay's sockets are visible."""
_CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO", "UV_NATIVE_TLS",
)  # fmt: skip
_HOST = re.compile(r"\.?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PRIVATE_ENDS = ("localhost", "local", "internal", "intranet", "private", "corp", "home", "lan", "arpa")
_MOST_HOSTS, _LONGEST = 1000, 32768  # of all of them together, in characters
_UNREACHED = re.compile(
    r"temporary failure (in name resolution|resolving)|could ?n[o']t resolve|name or service not known"
    r"|network is unreachable|no address associated with hostname|getaddrinfo (EAI_AGAIN|ENOTFOUND)"
    r"|dial tcp: lookup|unable to resolve host address|failed to lookup address",
    re.IGNORECASE,
)
"""Messages of programs that cannot resolve a name, or find no route: glibc, curl, wget, apt, pip, npm, git, go, uv."""
_WAYS_OUT = 'give "none", "public", or a list of hosts ("example.org") and suffixes (".example.org")'


def certificate_variables(path: str) -> Mapping[str, str]:
    """Returns the environment variables by which programs find a file of certificates.

    Args:
        path: the file's path, as the programs see it.
    """
    return {name: "1" if name == "UV_NATIVE_TLS" else path for name in _CERTIFICATE_VARIABLES}


@dataclass(frozen=True, slots=True)
class Traffic:
    """A sandbox's requests to the network since the last report.

    Attributes:
        asked: `name:port` for a connection, and the bare name for a look-up, each once, in order of appearance.
        refused: those of them that its policy does not allow.
        open: the number of connections and look-ups that are active now.
        stirred: there were connections or look-ups since the last report, whether they have ended or not.
    """

    asked: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    open: int = 0
    stirred: bool = False


@dataclass(frozen=True, slots=True)
class Network:
    """The hosts that a sandbox may reach beyond its own loopback; never one of the host or of a private network.

    Attributes:
        public: all other addresses may be reached.
        allow: otherwise these hosts: "example.org" is that host, ".example.org" all below it.
        space: sandboxes of one space share the addresses that stand for names, and learn of no others. Not part of the
            policy's text.
    """

    public: bool = False
    allow: tuple[str, ...] = ()
    space: str = ""

    @classmethod
    def of(cls, said: NetworkLike) -> Network:
        """Returns the policy for a text or a list.

        Args:
            said: "none", "public", or the hosts that may be reached; None for none.

        Raises:
            UsageError: it is no policy.
        """
        if isinstance(said, Network):
            return said
        if said is None or said == "none":
            return NO_NETWORK
        if said == "public":
            return cls(public=True)
        if isinstance(said, str) or not isinstance(said, Sequence):
            raise UsageError(f"network cannot be {said!r}: {_WAYS_OUT}")
        if len(said) > _MOST_HOSTS:
            raise UsageError(f"network has {len(said)} hosts, more than {_MOST_HOSTS}; name suffixes")
        for host in said:
            if not isinstance(host, str) or not _HOST.fullmatch(host.lower()) or len(host) > 253:
                raise UsageError(f"network cannot allow {host!r}: {_WAYS_OUT}")
        if sum(map(len, said)) > _LONGEST:
            raise UsageError(f"network names hosts of more than {_LONGEST} characters in all; name suffixes")
        return cls(allow=tuple(sorted({host.lower() for host in said})))

    @property
    def attached(self) -> bool:
        """Whether anything outside may be reached."""
        return self.public or bool(self.allow)

    def __str__(self) -> str:
        """Returns it as text, which is part of a root's name: the same for the same policy."""
        return "public" if self.public else ",".join(self.allow) or "none"

    @classmethod
    def parse(cls, text: str) -> Network:
        """Returns the policy from a result of `str`.

        Args:
            text: the text.
        """
        return cls.of(text if text in ("none", "public") else text.split(","))

    def allows(self, host: str) -> bool:
        """Returns whether the policy allows a host by its name.

        Args:
            host: its name in lower case, or the address that was requested.
        """
        if self.public:
            return True
        return any(host == one or (one.startswith(".") and host.endswith(one)) for one in self.allow)


def lacks_network(output: str) -> bool:
    """Returns whether the output of a call suggests that it needed a network and found none."""
    return _UNREACHED.search(output) is not None


NO_NETWORK = Network()
NetworkLike = Network | str | Sequence[str] | None
"""Values that stand for a network policy: a `Network`, "none", "public", or the hosts that may be reached."""


def is_host_name(name: str) -> bool:
    """Returns whether a lower-case name is that of a host, and not another name in DNS or an address in any form."""
    fits = len(name) <= 253 and not name.startswith(".") and _HOST.fullmatch(name) is not None
    return fits and not _NUMBER.fullmatch(name.rpartition(".")[2])


def is_private_name(name: str) -> bool:
    """Returns whether a name, in lower case, is surely not public: it has no domain, or a reserved one."""
    _, dot, end = name.rpartition(".")
    return not dot or end in _PRIVATE_ENDS


def is_within_reach(address: str, own: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    """Returns whether a policy may allow an address: it is neither the host's nor one of a private network.

    `own`: the host's own addresses and networks.
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        return False
    return not any(parsed in network for network in (*NOT_PUBLIC, *own) if network.version == parsed.version)


NOT_PUBLIC = [
    ipaddress.ip_network(one)
    for one in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3",
        "::/128", "::1/128", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "fc00::/7", "fe80::/10",
        "fec0::/10", "ff00::/8", "2001:2::/48",
    )
]  # fmt: skip
"""Private, local and special addresses (the registries of RFC 6890), and those that map to IPv4 addresses.

Addresses reserved for documentation are not among them, because they lead nowhere.
"""
