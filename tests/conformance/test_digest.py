"""`Sandbox.digest`: equal for equal states however they came about, and for no others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.conformance.helpers import Lab, acl, attribute, job, sh
from tests.conformance.targets import TARGETS, claim, make_local
from tvsnap.images import Image
from tvsnap.plugins.docker.containers import Layers
from tvsnap.plugins.docker.files import OuterFiles
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.looks.digest import Contents, Incomparable
from tvsnap.sandboxes.looks.observing import ImageTree
from tvsnap.sandboxes.protocol import Sandbox

HISTORY = ("mkdir -p d/e; echo one > d/f; echo two > d/e/g", "x=1; f() { echo $x; }; cd d", "rm /etc/os-release; true")


def after(sandbox: Sandbox, *history: str) -> str | None:
    """Returns the digest of a sandbox once it has executed a history."""
    for command in history:
        sh(sandbox, command)
    return sandbox.digest()


def compared(sandbox: Sandbox, *history: str) -> str | None:
    """Returns the same, asked again for some seconds while there is none: on a loaded machine, a look may fail."""
    found = after(sandbox, *history)
    for _ in range(20):
        if found is not None:
            break
        time.sleep(0.2)
        found = sandbox.digest()
    return found


def test_equal_histories_have_equal_digests(lab: Lab) -> None:
    one, other = lab.start(), lab.start()
    assert one.digest() == other.digest() is not None
    first = after(one, *HISTORY)
    assert first == after(other, *HISTORY) == one.digest() is not None
    fork = lab.fork_of(one)
    assert fork.digest() == first
    assert lab.fork_of(fork).digest() == first
    more = after(fork, "echo three > h; unset x")
    assert more == after(one, "echo three > h; unset x")
    assert more not in (first, "")


def test_what_leaves_nothing_is_not_in_it(lab: Lab) -> None:
    sandbox = lab.start()
    before = after(sandbox, "echo one > f; true")
    assert after(sandbox, "ls; touch f; touch x; rm x; cat /etc/passwd; true") == before
    assert after(sandbox, "echo two > f; echo one > f; chmod 600 f; chmod 644 f; true") == before
    assert after(sandbox, "touch /etc/hostname; chmod 600 /etc/hostname; chmod 644 /etc/hostname") == before
    assert after(sandbox, "cp f g; mv g f; mkdir d; rmdir d; true") == before


LAYERS = (
    "cp -r /usr/share/perl5 /srv/p; rm -r /usr/share/perl5; ln /etc/issue /root/issue; mkdir -p d/e; echo 1 > d/e/f",
    "mkdir /usr/share/perl5; echo x > /usr/share/perl5/x; rm -r d; echo 2 > d; rm /etc/issue; chmod 711 /usr/share",
    "rm d; mkdir -p d/e; rm -r /usr/share/perl5; rm -r /srv/p; chmod 640 /etc/hostname; touch /srv/p",
    "mkdir -p /usr/share/perl5/y; mv d d2; echo 3 > /etc/issue; chmod 755 /usr/share",
)


def test_a_chain_of_forks_is_as_one_sandbox(lab: Lab) -> None:
    """Whatever is deleted, replaced and made again in one layer over another."""
    whole, step = lab.start(), lab.start()
    for command in LAYERS:
        first = after(whole, command)
        assert after(step, command) == first not in (None, "")
        step = lab.fork_of(step)
        assert step.digest() == first


REACH = (
    "mkdir d d2; echo one > f; echo one > other; echo one > extra; ln f second; ln -s f link; umask 022; y=1; "
    "exec 7< /etc/hostname"
)

DIFFERENCES = (
    "echo two > f",
    "printf 'one\\0' > f",
    "chmod 600 f",
    "chmod 700 d",
    "rm extra",
    "rm /etc/os-release",
    "mv other third",
    "ln -sf other link",
    "rm second; cp f second",
    "ln second fourth",
    "rm -r d2; echo x > d2",
    "x=1",
    "y=2",
    "export y",
    "g() { echo; }",
    "alias a=b",
    "cd d",
    "cd ..",
    "umask 027",
    "chown 33 f",
    "chown 34 d",
    "chown -h 33 link",
    attribute("f", "v"),
    attribute("f", "w"),
    attribute("d", "v"),
    acl("f", "u:33:7"),
    acl("f", "u:34:7"),
    acl("d", "u:33:7"),
    acl("d", "default"),
    "chmod 711 /srv",
    "rm -r /srv; mkdir /srv; echo x > /srv/new",
    "mkfifo fifo",
    "rm -r /usr/share/doc; mkdir /usr/share/doc",
    "truncate -s 100000 f",
    "truncate -s 100001 f",
    "truncate -s 10M big; printf x | dd of=big bs=1 seek=9000000 conv=notrunc status=none",
    "truncate -s 0 big; truncate -s 10M big; printf x | dd of=big bs=1 seek=9000001 conv=notrunc status=none",
    "chattr +A f",
    "chattr +A d",
    "read -r z <&7; z=; unset z; true",
    "exec 7<&-",
    "exec 8< /etc/hostname",
    "exec 8<> f",
    "chmod 700 /",
    "a=(1 2)",
    "set -o pipefail",
    "shopt -s nullglob",
    "trap 'echo x' USR1",
    "ulimit -n 100",
    "pushd /tmp > /dev/null",
)


def test_every_difference_is_seen(sandbox: Sandbox) -> None:
    """Each leads on from the state before it: all of them differ."""
    seen = {after(sandbox, REACH): "nothing"}
    for command in DIFFERENCES:
        found = after(sandbox, f"{command} || echo failed")
        assert found not in ("", *seen), (command, seen.get(found))
        seen[found] = command


@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000 &",
        "sleep 0 & wait; true",
        "exec 7<> <(:)",
        "exec 7< f; rm f",
        "exec 7< f; flock 7",
        "cd d; rmdir ../d",
        "RANDOM=7",
        "ipcmk -M 4096 > /dev/null",
        "stty -echo < /dev/tty",
        "exec 0< f",
        "mkfifo q; exec 7<> q",
        'python3 -c \'import socket as s; l = s.create_server(("127.0.0.1", 9)); '
        'c = s.create_connection(("127.0.0.1", 9)); a, _ = l.accept(); c.close(); a.recv(1)\'',
    ],
)
def test_what_cannot_be_compared_makes_it_empty(reused: Sandbox, command: str) -> None:
    sh(reused, "mkdir d; echo 1 > f")
    assert after(reused, command) is None or command == "exec 0< f"  # bash has its input from elsewhere by then


def test_a_job_makes_it_empty(sandbox: Sandbox) -> None:
    job(sandbox, "sleep 1000")
    assert sandbox.digest() is None


def test_a_shell_at_its_prompt_makes_it_empty(sandbox: Sandbox) -> None:
    sandbox.send_keys(b"echo hi\r", wait=1)
    assert sandbox.digest() is None


@pytest.fixture
def everywhere(
    request: pytest.FixtureRequest, tvsnap_home: Path, terminal_image: Image, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Lab]]:
    """Laboratories on all backends that run real programs, and one on the local backend without CRIU."""
    request.getfixturevalue("docker_engine")
    backends = [TARGETS[name].make(tvsnap_home) for name in ("local", "docker")]
    with monkeypatch.context() as patch:
        patch.setenv("TVSNAP_WITHOUT_CRIU", "1")
        patch.setattr("tvsnap.sandboxes.local.backend.find_criu", lambda: None)
        backends.append(LocalBackend(tvsnap_home, claim(tvsnap_home).id))
    labs = [Lab(backend, terminal_image) for backend in backends]
    yield labs
    for laboratory in labs:
        laboratory.close()
        laboratory.backend.close()


MADE = (
    f"mkdir d; echo one > f; ln f g; ln -s f link; cp /etc/passwd p; chown 33 p; {attribute('d', 'v')}; mkfifo q",
    f"{acl('d', 'u:33:7')}; {acl('d', 'default')}; {acl('p', 'u:33:7')}; truncate -s 5M sparse; printf x >> sparse",
    "rm -r /usr/share/doc; mkdir /usr/share/doc; rm /etc/os-release; chmod 600 /etc/passwd; mv /srv /s; echo 1 > /x",
    "git init -q w; cd w; echo a > a; git add a; x=1; f() { echo $x; }; trap 'echo bye' EXIT; exec 7< a; rm -rf .git",
)


def test_digests_are_the_same_everywhere(everywhere: list[Lab]) -> None:
    started = [lab.start() for lab in everywhere]
    found = [sandbox.digest() for sandbox in started]
    assert len(set(found)) == 1, found
    for command in MADE[:-1]:
        found = [compared(sandbox, command) for sandbox in started]
        assert len(set(found)) == 1, (command, found)
        assert found[0]
    forks = [lab.fork_of(sandbox) for lab, sandbox in zip(everywhere, started, strict=True)]
    assert [fork.digest() for fork in forks] == found
    assert len({after(sandbox, MADE[-1]) for sandbox in (*started, *forks)}) == 1
    assert forks[0].digest() is not None


def test_contents_are_read_once(tvsnap_home: Path, terminal_image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = make_local(tvsnap_home)
    lab = Lab(backend, terminal_image)
    monkeypatch.setattr("tvsnap.sandboxes.looks.digest.MOST_BYTES", 1_000_000)
    try:
        sandbox = lab.start()
        first = after(sandbox, "head -c 900K /dev/zero | tr '\\0' x > big; sleep 0.1")
        second = after(sandbox, "cp big more; sleep 0.1; true")
        assert None not in (first, second)  # together they are more than may be read at once
        assert lab.fork_of(sandbox).digest() == sandbox.digest() == second
        assert after(sandbox, "echo y >> big; echo y >> more; true") is None
    finally:
        lab.close()
        backend.close()


def test_a_directory_that_an_overlay_has_renamed_as_a_whole_is_not_compared(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    os.setxattr(tmp_path / "d", "trusted.overlay.redirect", b"/etc")
    layers = Layers(tmp_path, tmp_path, ())
    files = OuterFiles(cast("Any", None), layers, lambda: tmp_path, cast("Any", None), lambda: ())
    with pytest.raises(Incomparable, match="renamed"), files.differing(ImageTree(), Contents()):
        pass
