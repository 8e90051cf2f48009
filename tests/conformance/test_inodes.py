"""Inode numbers and the order of directories: the same in forks, and wherever a history is executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, sh
from tests.conformance.targets import claim, make_local
from tvsnap.images import Image
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.protocol import Sandbox

MADE = (
    "mkdir -p w/d/e; for i in 9 3 7 1; do echo $i > w/d/$i; done; ln w/d/1 w/d/one; rm w/d/7",
    "echo more >> /etc/passwd; chmod 700 /srv; touch /usr/share/x; mkdir /etc/new; rm -r /usr/share/doc; rm /etc/issue",
)
NUMBERS = (
    "find / -xdev -not -path '/run/*' -not -path '/dev/*' -not -path /proc -printf '%p %i %n\\n' | sort | sha256sum; "
    "stat -c '%n %i' / /etc /etc/passwd /etc/new /srv /usr/share w/d/9; "
    "for d in / /etc /usr/share w/d; do ls -U $d; done; stat -f -c '%i %t' /; mount | head -n 1"
)


@pytest.fixture(params=[True, False], ids=["with CRIU", "without CRIU"])
def laboratory(
    request: pytest.FixtureRequest, tvsnap_home: Path, terminal_image: Image, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """Laboratories of the local backend: a commit of an engine gives files other inodes."""
    if request.param:
        backend = make_local(tvsnap_home)
    else:
        monkeypatch.setenv("TVSNAP_WITHOUT_CRIU", "1")
        monkeypatch.setattr("tvsnap.sandboxes.local.backend.find_criu", lambda: None)
        backend = LocalBackend(tvsnap_home, claim(tvsnap_home).id)
    found = Lab(backend, terminal_image)
    yield found
    found.close()
    backend.close()


def numbers(sandbox: Sandbox, *history: str) -> str:
    for command in history:
        sh(sandbox, command)
    return sh(sandbox, NUMBERS)


def test_numbers_and_order_are_those_of_the_fork_s_origin(laboratory: Lab) -> None:
    sandbox = laboratory.start()
    before = numbers(sandbox, *MADE)
    fork = laboratory.fork_of(sandbox)
    assert numbers(fork) == before
    assert numbers(laboratory.fork_of(fork)) == before
    assert numbers(laboratory.start(), *MADE) == before


def test_files_of_the_image_keep_their_numbers_when_they_are_written(laboratory: Lab) -> None:
    sandbox = laboratory.start()
    look = "stat -c %i /etc /etc/passwd /usr/share; find /etc -inum $(stat -c %i /etc/passwd)"
    before = sh(sandbox, look)
    assert "/etc/passwd" in before
    sh(sandbox, "echo x >> /etc/passwd; touch /usr/share/x")
    assert sh(sandbox, look) == before
    assert sh(laboratory.fork_of(sandbox), look) == before


def test_programs_that_remember_numbers(laboratory: Lab) -> None:
    sandbox = laboratory.start()
    sh(sandbox, "mkdir w; cd w; git init -q .; for i in 1 2 3; do echo $i > $i; done; mkdir d; echo 4 > d/4; git add .")
    sh(sandbox, "git -c user.name=n -c user.email=e commit -qm m; sleep 0.02; git update-index --really-refresh")
    tar = "tar --create --no-check-device -g /tmp/list -f /tmp/out.tar /etc . 2> /dev/null; tar tf /tmp/out.tar"
    sh(sandbox, f"{tar} > /dev/null; sleep 1; {tar} > /dev/null")
    clean = "git diff-index --quiet HEAD; echo $?"
    assert sh(sandbox, clean) == "0\n"
    again = sh(sandbox, f"cp /tmp/list /tmp/kept; {tar}; cp /tmp/kept /tmp/list")
    assert "./d/4" not in again.split()
    assert "etc/passwd" not in again.split()
    fork = laboratory.fork_of(sandbox)
    assert sh(fork, clean) == "0\n"
    assert sh(fork, tar) == again
