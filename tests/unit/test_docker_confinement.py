"""How a container is confined, by what the engine says about itself."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.fakes.backend import fake_image
from tvsnap.host import native
from tvsnap.model.limits import Limits
from tvsnap.plugins.docker.containers import Containers, Ownership
from tvsnap.plugins.docker.engine import Engine
from tvsnap.plugins.docker.seccomp import profile

OURS = f"seccomp={profile()}"


class RecordingEngine:
    """An engine that makes nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        self.api = self
        self.asked: dict[str, Any] = {}

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        self.asked = options
        return options

    def create_container(self, *_: Any, **__: Any) -> dict[str, str]:
        return {"Id": "made"}

    def do(self, _: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return call(*arguments, **options)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["name=apparmor", "name=seccomp,profile=builtin"], [OURS]),
        (["name=seccomp,profile=default"], [OURS]),
        (["name=seccomp,profile=unconfined"], [OURS]),
        (["name=seccomp,profile=/etc/docker/profile.json"], []),
        (["name=apparmor"], ["no-new-privileges"]),
        (None, ["no-new-privileges"]),
    ],
)
def test_without_a_filter_of_the_engine_PID_1_sets_its_own(said: list[str] | None, expected: list[str]) -> None:
    """Which the kernel lets it do only where nobody can gain rights any more."""
    engine = RecordingEngine()
    containers = Containers(cast("Engine", engine), Ownership("home", "owner"), {"SecurityOptions": said})
    containers.create("name", fake_image(), "tag", Limits(), bare=False)
    assert "no-new-privileges" in engine.asked["security_opt"]  # as the image says
    containers.create("name", replace(fake_image(), no_new_privileges=False), "tag", Limits(), bare=False)
    assert engine.asked["security_opt"] == expected
    assert engine.asked["cap_drop"] == ["ALL"]
    assert "SYS_ADMIN" not in engine.asked["cap_add"]
    assert not engine.asked.keys() & {"privileged", "devices", "binds", "pid_mode", "network_mode"}


def error_of(call: str, *arguments: int) -> int:
    """Returns the error that the filter has a call end in, as an engine takes it, and no two rules differ; or 0."""
    found = {
        rule.get("errnoRet", errno.EPERM) if rule["action"] == "SCMP_ACT_ERRNO" else 0
        for rule in json.loads(profile())["syscalls"]
        if call in rule["names"]
        and all(arguments[each["index"]] & each["value"] == each["valueTwo"] for each in rule.get("args", []))
    }
    assert len(found) <= 1, found
    return found.pop() if found else errno.EPERM


def allowed(call: str, *arguments: int) -> bool:
    return error_of(call, *arguments) == 0


def test_the_filter_is_the_one_of_PID_1() -> None:
    header = native.SYSTEM_CALLS.read_text()
    listed = re.findall(r"^ +(?:SYS_\w+|\d+),", header, re.MULTILINE)
    assert len(json.loads(profile())["syscalls"][0]["names"]) == len(set(listed)) + 1 > 250
    assert all(map(allowed, ("read", "openat2", "cachestat", "uretprobe", "pidfd_getfd")))
    assert not any(map(allowed, ("io_uring_setup", "mount", "setns", "bpf", "clone3", "mq_open", "none_such")))


@pytest.mark.parametrize(
    ("call", "argument", "refused", "passed"),
    [
        ("ioctl", 1, [0x5412, 0x541C], [0, 0x5401, 0x5411, 0x5413, 0x541B, 0x541D, 0x541E, 0x80045430, 0xFFFFFFFF]),
        ("personality", 0, [1, 0x40000], [0, 8, 0x20000, 0x20008, 0xFFFFFFFF]),
        ("clone", 0, [0x10000000, 0x20011, 0x02000000], [17, 0x3D0F00]),
        ("unshare", 0, [0x10000000, 0x80], [0x400]),
        ("fcntl", 1, [1026], [0, 1, 2, 3, 1024, 1025, 1027, 1033]),
    ],
)
def test_the_filter_looks_at_arguments(call: str, argument: int, refused: list[int], passed: list[int]) -> None:
    """At their lower half, as the kernel does."""
    for value, expected in [*((each, False) for each in refused), *((each, True) for each in passed)]:
        for upper in (0, 1 << 32):
            assert allowed(call, *[0] * argument, value | upper) is expected, hex(value)


def test_the_filter_lets_no_files_share_blocks() -> None:
    assert {error_of("ioctl", 3, request) for request in (0x40049409, 0x4020940D, 0xC0189436)} == {errno.EOPNOTSUPP}
    assert error_of("copy_file_range", 3, 0, 4) == errno.ENOSYS


@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_the_filter_looks_at_families(call: str) -> None:
    """And, of netlink, at the protocol."""
    passed = [(1, 5), (2, 0), (10, 6), (16, 0), (16, 4), (16 | 1 << 32, 4 | 1 << 32)]
    assert {error_of(call, family, 2, protocol) for family, protocol in passed} == {0}
    families = [0, 3, 5, 9, 11, 15, 17, 18, 26, 38, 40, 44, 1 << 31 | 1, 0xFFFFFFFF]
    assert {error_of(call, family, 2, 0) for family in families} == {errno.EAFNOSUPPORT}
    protocols = [1, 2, 3, 5, 6, 9, 12, 15, 20, 1 << 31, 0xFFFFFFFF]
    assert {error_of(call, 16, 3, protocol) for protocol in protocols} == {errno.EPROTONOSUPPORT}
