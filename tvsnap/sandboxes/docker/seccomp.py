"""The filter of system calls that an engine sets for a sandbox: the one that PID 1 sets where it may (confine.c)."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

from tvsnap.host import native

_NAME = re.compile(r"^    (?:SYS_(\w+),|\d+, /\* (\w+) \*/)$", re.MULTILINE)
_ALL = 0xFFFFFFFF
_NAMESPACES, _TIME_NAMESPACE = 0x7E020000, 0x80
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_ROUTE, _SOCK_DIAG = 0, 4
_TYPING = (0x5412, 0x541C)
"""TIOCSTI, TIOCLINUX."""
_SHARING = (0x40049409, 0x4020940D, 0xC0189436)
"""FICLONE, FICLONERANGE, FIDEDUPERANGE."""

_Rule = dict[str, Any]


@cache
def profile() -> str:
    """Returns the filter as an engine takes it, JSON. It names no machine: only calls of the engine's own pass."""
    names = sorted(system or newer for system, newer in _NAME.findall(native.SYSTEM_CALLS.read_text()))
    rules = [
        _allow(*names),
        _allow_if("clone", 0, _NAMESPACES, 0),
        _allow_if("unshare", 0, _NAMESPACES | _TIME_NAMESPACE, 0),
        *(_allow_if("personality", 0, _ALL, value) for value in _PERSONALITIES),
        *_sockets(),
        *(_allow_if("ioctl", 1, *others) for others in _all_but((*_TYPING, *_SHARING))),
        *({**_refuse(errno.EOPNOTSUPP, "ioctl"), "args": [_fits(1, _ALL, request)]} for request in _SHARING),
        _refuse(errno.ENOSYS, "clone3", "copy_file_range", "landlock_create_ruleset", "mq_open"),
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules})


def _sockets() -> Iterator[_Rule]:
    """Yields the rules of calls that make sockets; see `allow_socket_families` in confine.c."""
    names = ["socket", "socketpair"]
    families, netlink = (_UNIX, _INET, _INET6, _NETLINK), _fits(0, _ALL, _NETLINK)
    for family in families[:-1]:
        yield {**_allow(*names), "args": [_fits(0, _ALL, family)]}
    for protocol in (_ROUTE, _SOCK_DIAG):
        yield {**_allow(*names), "args": [netlink, _fits(2, _ALL, protocol)]}
    for others in _all_but(families):
        yield {**_refuse(errno.EAFNOSUPPORT, *names), "args": [_fits(0, *others)]}
    for others in _all_but((_ROUTE, _SOCK_DIAG)):
        yield {**_refuse(errno.EPROTONOSUPPORT, *names), "args": [netlink, _fits(2, *others)]}


def _allow(*names: str) -> _Rule:
    return {"names": names, "action": "SCMP_ACT_ALLOW"}


def _refuse(error: int, *names: str) -> _Rule:
    return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error}


def _allow_if(name: str, argument: int, mask: int, value: int) -> _Rule:
    """Returns a rule for a call whose argument, masked, is `value`."""
    return {**_allow(name), "args": [_fits(argument, mask, value)]}


def _fits(argument: int, mask: int, value: int) -> dict[str, Any]:
    """Returns the condition that an argument, masked, is `value`. The kernel looks at the lower half of each only."""
    return {"index": argument, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}


def _all_but(values: Collection[int], mask: int = 0, value: int = 0) -> Iterator[tuple[int, int]]:
    """Yields masks and values such that a number of 32 bits fits one of them, unless it is among those given.

    Rules of one call are alternatives, and so none can say what two values an argument must not have.

    Args:
        values: to be left out.
        mask, value: of the numbers that are to be told apart, which agree in their upper bits.
    """
    if not values:
        yield mask, value
    elif mask != _ALL:
        bit = (_ALL & ~mask).bit_length() - 1
        for choice in (0, 1 << bit):
            yield from _all_but([one for one in values if one & 1 << bit == choice], mask | 1 << bit, value | choice)
