"""The rules by which the kernel passes connections of a sandbox on to the relay, or refuses them at once."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from enum import IntEnum

from tvsnap.model.network import NOT_PUBLIC, OWN_ADDRESS, OWN_ADDRESS_6, Network, is_within_reach
from tvsnap.sandboxes.network.addresses import ranges
from tvsnap.sandboxes.network.settings import NetworkSettings

Prefix = ipaddress.IPv4Network | ipaddress.IPv6Network


class Verdict(IntEnum):
    """The treatment of a connection: it is refused, goes to the relay, or stays within the sandbox."""

    REFUSED = 0
    RELAYED = 1
    INSIDE = 2


def rules_of(
    network: Network, settings: NetworkSettings, own: Sequence[Prefix], version_6: bool
) -> dict[Prefix, Verdict]:
    """Returns the verdicts by prefix; the longest prefix counts, and an address without one is refused.

    Addresses that stand for names go to the relay, which knows the names.

    Args:
        network: the policy.
        settings: the host's.
        own: the host's addresses, and the networks that it is in.
        version_6: whether the host reaches addresses of IPv6.
    """
    rules: dict[Prefix, Verdict] = {}
    if network.public:
        rules[ipaddress.ip_network("0.0.0.0/0")] = Verdict.RELAYED
        rules[ipaddress.ip_network("::/0")] = Verdict.RELAYED if version_6 else Verdict.REFUSED
        # The host's own 127.0.0.1/32 is longer than 127.0.0.0/8, but in the sandbox that is the sandbox itself.
        outside = (one for one in own if not one.is_loopback)
        rules |= dict.fromkeys((*NOT_PUBLIC, *outside), Verdict.REFUSED)
    rules |= dict.fromkeys(ranges(), Verdict.RELAYED)
    for host in (*network.allow, *filter(network.allows, settings.hosts)):
        if _is_address(host):
            within = host in settings.hosts or is_within_reach(host, own)
            rules[ipaddress.ip_network(host)] = Verdict.RELAYED if within else Verdict.REFUSED
    inside = ("127.0.0.0/8", f"{OWN_ADDRESS}/32", "::1/128", f"{OWN_ADDRESS_6}/128")
    return rules | {ipaddress.ip_network(one): Verdict.INSIDE for one in inside}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
