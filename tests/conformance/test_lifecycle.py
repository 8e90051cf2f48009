"""Starting, looking at, attaching to, closing and reaping."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

from tests.conformance.helpers import LIMITS, TIMEOUT, Lab, commands, eventually, job, on_host, sh, unique_sleep, usable
from tests.conformance.targets import Target
from tvsnap.model.errors import SandboxDied
from tvsnap.model.limits import MIB
from tvsnap.sandboxes.protocol import Sandbox

REPOSITORY = Path(__file__).parents[2]


def test_names_are_unique(lab: Lab) -> None:
    sandboxes = [lab.start() for _ in range(3)]
    sandboxes.append(lab.fork_of(sandboxes[0]))
    assert len({sandbox.id for sandbox in sandboxes}) == 4
    assert all(sandbox.image == lab.image for sandbox in sandboxes)


def test_closing(lab: Lab, sandbox: Sandbox) -> None:
    sandbox.close()
    sandbox.close()
    actions = (
        lambda: sandbox.run("true", timeout=TIMEOUT),
        lambda: sandbox.exec("true", timeout=TIMEOUT),
        lambda: sandbox.read_file("/etc/hostname"),
        lambda: sandbox.write_file("/tmp/f", b""),
        lambda: sandbox.send_keys(b"x", wait=0),
        sandbox.observe,
        sandbox.checkpoint,
        sandbox.processes,
        sandbox.changes,
        sandbox.shell_state,
    )
    for action in actions:
        with pytest.raises(SandboxDied):
            action()


def test_closing_one_leaves_the_others(lab: Lab, sandbox: Sandbox) -> None:
    fork = lab.fork_of(sandbox)
    other = lab.start()
    sandbox.close()
    usable(fork)
    usable(other)


def test_closing_ends_every_process(lab: Lab, sandbox: Sandbox) -> None:
    plain, daemon = unique_sleep(), unique_sleep()
    job(sandbox, plain)
    sh(sandbox, f"(setsid bash -c \"trap '' TERM HUP INT; {daemon}; :\" > /dev/null 2>&1 &)")
    eventually(lambda: on_host(daemon))
    fork = lab.fork_of(sandbox) if lab.backend.captures.processes else None
    sandbox.close()
    if fork is not None:
        assert on_host(plain)
        fork.close()
    assert not on_host(plain)
    assert not on_host(daemon)


def test_closing_frees_disk(lab: Lab) -> None:
    sandbox = lab.start()
    sh(sandbox, "head -c 8M /dev/urandom > big; sync")
    with_it = lab.backend.disk_usage()["sandboxes"]
    assert with_it >= 8 * MIB
    sandbox.close()
    eventually(lambda: lab.backend.disk_usage()["sandboxes"] <= with_it - 7 * MIB, timeout=60)


def test_disk_usage_of_snapshots(lab: Lab, sandbox: Sandbox) -> None:
    usage = lab.backend.disk_usage()
    assert {"snapshots", "sandboxes"} <= set(usage)
    sh(sandbox, "seq 1 300000 > big")
    lab.checkpoint(sandbox)
    assert lab.backend.disk_usage()["snapshots"] > usage["snapshots"]


def test_memory(sandbox: Sandbox) -> None:
    assert 0 < sandbox.memory() < 32 * MIB


def test_memory_grows_with_use(sandbox: Sandbox) -> None:
    before = sandbox.memory()
    sh(sandbox, 'python3 -c \'x = bytearray(64 << 20); open("ready", "w"); import time; time.sleep(99)\' &')
    sh(sandbox, "while [ ! -e ready ]; do sleep 0.02; done")
    assert sandbox.memory() > before + 60 * MIB


def test_processes(sandbox: Sandbox) -> None:
    idle = sandbox.processes()
    assert 1 not in [process.pid for process in idle]
    job(sandbox, "sleep 1000")
    pid = int(sh(sandbox, "echo $!"))
    shell = int(sh(sandbox, "echo $$"))
    found = {process.pid: process for process in sandbox.processes()}
    assert set(found) - {process.pid for process in idle} == {pid}
    assert (found[pid].command, found[pid].parent) == ("sleep 1000", shell)
    assert found[pid].state == "S"
    assert found[pid].memory > 0


def test_changes(sandbox: Sandbox) -> None:
    assert dict(sandbox.changes()) == {}
    sh(
        sandbox,
        "umask 022; mkdir -p /root/d/e; echo 12345 > /root/d/f; chmod 640 /root/d/f; ln -s f /root/d/l; "
        "mkfifo /root/d/p; rm /etc/os-release; echo longer-name > /etc/hostname; touch /root/gone; rm /root/gone",
    )
    changes = sandbox.changes()
    interesting = {path: (change.kind, change.mode & 0o7777) for path, change in changes.items()}
    # A directory whose entries changed may be listed as well.
    for path in ("/root", "/etc"):
        interesting.pop(path, None)
    interesting["/root/d/l"] = ("symlink", 0)
    assert interesting == {
        "/root/d": ("directory", 0o755),
        "/root/d/e": ("directory", 0o755),
        "/root/d/f": ("file", 0o640),
        "/root/d/l": ("symlink", 0),
        "/root/d/p": ("fifo", 0o644),
        "/etc/os-release": ("deleted", 0),
        "/etc/hostname": ("file", 0o644),
    }
    assert changes["/root/d/l"].kind == "symlink"
    assert changes["/root/d/f"].size == 6
    assert changes["/etc/hostname"].size == len("longer-name\n")


def test_identity_of_contents(sandbox: Sandbox) -> None:
    sh(sandbox, "echo same > /root/a; echo other > /root/b; cp /root/a /root/c")
    changes = sandbox.changes()
    assert changes["/root/a"].identity != changes["/root/b"].identity
    assert changes["/root/a"].identity == changes["/root/c"].identity


def test_owner_in_changes_is_as_seen_inside(sandbox: Sandbox) -> None:
    sh(sandbox, "touch /root/f; chown 33:44 /root/f; touch /root/g")
    changes = sandbox.changes()
    assert (changes["/root/f"].uid, changes["/root/f"].gid) == (33, 44)
    assert (changes["/root/g"].uid, changes["/root/g"].gid) == (0, 0)


def test_deleted_directory_in_changes(sandbox: Sandbox) -> None:
    sh(sandbox, "rm -r /etc/vim; mkdir /etc/vim; touch /etc/vim/new")
    changes = sandbox.changes()
    assert changes["/etc/vim/new"].kind == "file"
    assert changes["/etc/vim/vimrc"].kind == "deleted"


def receive(stream: socket.socket, wanted: bytes) -> bytes:
    data = b""
    stream.settimeout(TIMEOUT)
    while wanted not in data:
        piece = stream.recv(4096)
        assert piece, data
        data += piece
    return data


def test_attaching(sandbox: Sandbox) -> None:
    sh(sandbox, "x=40")
    with contextlib.closing(sandbox.attach(100, 30)) as stream:
        stream.sendall(b"y=2; echo sum-$((x + y))\r")
        receive(stream, b"sum-42")
    time.sleep(0.1)
    assert sh(sandbox, "echo $y") == "2\n"
    with contextlib.closing(sandbox.attach(80, 24)) as stream:
        stream.sendall(b"echo again-$((y + 1))\r")
        receive(stream, b"again-3")
    usable(sandbox)


def test_attaching_sets_the_size(sandbox: Sandbox) -> None:
    with contextlib.closing(sandbox.attach(101, 31)) as stream:
        stream.sendall(b"stty size < /dev/tty\r")
        receive(stream, b"31 101")


def test_checkpoint_after_attaching(lab: Lab, sandbox: Sandbox) -> None:
    with contextlib.closing(sandbox.attach(80, 24)) as stream:
        stream.sendall(b"z=5; echo z-$z\r")
        receive(stream, b"z-5")
    assert sh(lab.fork_of(sandbox), "echo $z") == "5\n"


def test_interrupting_from_the_terminal(sandbox: Sandbox) -> None:
    with contextlib.closing(sandbox.attach(80, 24)) as stream:
        stream.sendall(b"sleep 500\r")
        eventually(lambda: "sleep 500" in commands(sandbox))
        stream.sendall(b"\x03")
        eventually(lambda: "sleep 500" not in commands(sandbox))
        stream.sendall(b"echo awake-$((20 + 1))\r")  # the shell has dealt with the interrupt
        receive(stream, b"awake-21")
    time.sleep(0.1)
    usable(sandbox)


def test_a_client_that_reads_late_is_shown_everything_that_is_kept(sandbox: Sandbox) -> None:
    with contextlib.closing(sandbox.attach(80, 24)) as stream:
        stream.sendall(b"seq 60000; sleep 500\r")  # more than a socket takes
        eventually(lambda: "sleep 500" in commands(sandbox))
        shown = receive(stream, b"\r\n60000\r\n")
    numbers = [int(line) for line in shown.split(b"\r\n") if line.isdigit()]
    assert numbers == list(range(2, 60001))  # before the first one, the shell sets up the terminal


ORPHAN = """
import os, pickle, sys, time
from tvsnap.sandboxes.protocol import Limits
home, image = pickle.loads(bytes.fromhex(sys.argv[1]))
backend = {construction}
sandbox = backend.start(image, Limits())
sandbox.run(os.environ["COMMAND"], timeout=60)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_reaping_what_a_dead_owner_left(lab: Lab, target: Target, tvsnap_home: Path, sign: signal.Signals) -> None:
    import pickle

    theirs, ours = unique_sleep(), unique_sleep()
    argument = pickle.dumps((tvsnap_home, lab.image)).hex()
    program = ORPHAN.format(construction=target.construction)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COMMAND": f"{theirs} &"}
    mine = lab.start()
    job(mine, ours)
    lab.backend.reap()  # what processes may have left that had a data directory of this name before
    with subprocess.Popen(
        [sys.executable, "-c", program, argument],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            eventually(lambda: on_host(theirs))
            assert lab.backend.reap().sandboxes == 0, "a live owner's sandbox was taken"
            assert on_host(theirs)
            process.send_signal(sign)
            process.wait(60)
        finally:
            process.kill()
    if sign == signal.SIGKILL:
        assert on_host(theirs)
    lab.backend.reap()
    eventually(lambda: not on_host(theirs))
    assert lab.backend.reap().sandboxes == 0
    assert on_host(ours)
    usable(mine)


def test_death_of_a_sandbox_is_an_error_of_the_infrastructure(lab: Lab, sandbox: Sandbox) -> None:
    """A sandbox killed from outside raises; its last words are never taken for a command's output."""
    sleep = unique_sleep()
    job(sandbox, sleep)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if sleep.encode() in path.read_bytes().replace(b"\0", b" "):
                status = (path.parent / "status").read_text()
                shell = int(status.split("PPid:")[1].split()[0])
                first = int(Path(f"/proc/{shell}/status").read_text().split("PPid:")[1].split()[0])
                os.kill(first, signal.SIGKILL)
    eventually(lambda: not on_host(sleep))
    with pytest.raises(SandboxDied):
        sandbox.run("echo x", timeout=TIMEOUT)
    with pytest.raises(SandboxDied):
        sandbox.observe()
    sandbox.close()
    usable(lab.start())


def test_backend_closes_its_sandboxes(target: Target, lab: Lab, tvsnap_home: Path) -> None:
    backend = target.make(tvsnap_home)
    sandboxes = [backend.start(lab.image, LIMITS) for _ in range(2)]
    mine = lab.start()
    backend.close()
    backend.close()
    for sandbox in sandboxes:
        with pytest.raises(SandboxDied):
            sandbox.run("true", timeout=TIMEOUT)
    usable(mine)


def test_a_closed_sandbox_is_freed_at_once(target: Target, lab: Lab, tvsnap_home: Path) -> None:
    """With its connection and what is known of its files, not when the interpreter looks for cycles the next time."""
    backend = target.make(tvsnap_home)
    sandbox = backend.start(lab.image, LIMITS)
    sh(sandbox, "echo 1 > f")
    fork = backend.fork(sandbox.checkpoint().id, lab.image, LIMITS)
    kept = [weakref.ref(sandbox), weakref.ref(fork)]
    gc.disable()
    try:
        for one in (sandbox, fork):
            one.note()
            assert sh(one, "cat f") == "1\n"
            one.observe()
            one.digest()
            one.close()
        del sandbox, fork, one
        assert [found() for found in kept] == [None, None]
    finally:
        gc.enable()
        backend.close()


def test_snapshots_outlive_their_backend(target: Target, lab: Lab, tvsnap_home: Path) -> None:
    backend = target.make(tvsnap_home)
    sandbox = backend.start(lab.image, LIMITS)
    sh(sandbox, "x=1; echo 1 > f")
    snapshot = sandbox.checkpoint()
    backend.close()
    assert snapshot.id in list(lab.backend.snapshots())
    assert sh(lab.fork(snapshot), "echo $x; cat f") == "1\n1\n"
    lab.backend.delete_snapshot(snapshot.id)
