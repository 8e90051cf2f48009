"""The checks of the self-test. Each returns its observations, and raises `CheckFailed` if they are wrong."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tvsnap.cache import Cache
from tvsnap.host.owners import Owner
from tvsnap.model.errors import InfrastructureError, NotCheckpointable
from tvsnap.model.limits import MIB, Limits
from tvsnap.sandboxes import open_backend
from tvsnap.sandboxes.local.cgroups import CgroupTree
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.self_test.laboratory import Laboratory

TIMEOUT = 20.0  # seconds, for a command that takes none
SHORT = 0.5  # seconds, for one that must be timed out
PATIENCE = 10.0  # seconds, for events that come by themselves
ROLLOUT = (
    "cd /tmp; echo one > f; x=1",
    "cat f; echo $x",
    "x=$((x + 1)); echo two >> f; f() { echo $x; }",
    "f; cat f; (exit 3)",
    "ls nothing-here; echo $?",
    "rm f; ls; pwd",
)


Check = Callable[[Laboratory], str]


class CheckFailed(Exception):
    """A check failed; the message is the reason."""


def _starts(laboratory: Laboratory) -> str:
    sandbox = laboratory.start()
    _expect(sandbox, "echo hello; (exit 3)", "hello\n", exit_code=3)
    sandbox.write_file("/tmp/written", b"by hand")
    _expect(sandbox, "cat /tmp/written", "by hand")
    return laboratory.image.name


def _shell_persists(laboratory: Laboratory) -> str:
    sandbox = laboratory.start()
    _expect(sandbox, "cd /tmp; x=41; f() { echo $((x + 1)); }", "")
    _expect(sandbox, "pwd; f", "/tmp\n42\n")
    return ""


def _forks(laboratory: Laboratory) -> str:
    sandbox = laboratory.start()
    _expect(sandbox, "cd /tmp; x=0; echo base > f", "")
    began = time.perf_counter()
    snapshot = sandbox.checkpoint()
    forking = time.perf_counter()
    forks = [laboratory.fork(snapshot.id) for _ in range(2)]
    ended = time.perf_counter()
    for number, each in enumerate((sandbox, *forks)):
        _expect(each, f"x=$((x + {number})); echo {number} >> f", "")
    for number, each in enumerate((sandbox, *forks)):
        _expect(each, "pwd; echo $x; cat f", f"/tmp\n{number}\nbase\n{number}\n")
    return f"checkpoint {(forking - began) * 1e3:.0f} ms, fork {(ended - forking) / 2 * 1e3:.0f} ms"


def _processes_go_on(laboratory: Laboratory) -> str:
    sandbox = laboratory.start()
    _expect(sandbox, "n=0; while :; do n=$((n + 1)); echo $n > /tmp/n; sleep 0.02; done &", "")
    _wait_for(lambda: _number(sandbox, "/tmp/n") > 0, "the background job does not run")
    if not laboratory.backend.captures.processes:
        refusal = _refusal(sandbox, "a snapshot was taken that cannot hold live processes")
        return f"not captured on this machine, and it says so: {refusal}"
    fork = laboratory.fork(sandbox.checkpoint().id)
    before = _number(fork, "/tmp/n")
    _wait_for(lambda: _number(fork, "/tmp/n") > before, "the background job does not go on in a fork")
    _expect(fork, "kill $!; wait $! 2> /dev/null; echo $?", "143\n")
    _wait_for(lambda: _number(sandbox, "/tmp/n") > before, "its end in a fork ended the original")
    return ""


def _refuses(laboratory: Laboratory) -> str:
    sandbox = laboratory.start()
    # To a port where nobody listens: the answer, an error, waits at the socket until somebody reads.
    _expect(sandbox, "exec 9<> /dev/udp/127.0.0.1/9; echo x >&9; x=1", "")
    refusal = _refusal(sandbox, "a snapshot was taken of a socket that no fork would have as it was")
    _expect(sandbox, "echo $x", "1\n")
    return refusal


def _times_out(laboratory: Laboratory) -> str:
    sandbox = laboratory.start()
    _expect(sandbox, "x=kept", "")
    outcome = sandbox.run(f"echo before; {laboratory.long_sleep}", timeout=SHORT)
    if not outcome.timed_out or outcome.output != b"before\n":
        raise CheckFailed(f"a command beyond its timeout came to {outcome}")
    if laboratory.long_sleep in {process.command for process in sandbox.processes()}:
        raise CheckFailed("a command that was timed out runs on")
    _expect(sandbox, "echo $x", "kept\n")
    return f"after {outcome.duration:.2f} s"


def _limits_memory(laboratory: Laboratory) -> str:
    sandbox = laboratory.start(Limits(memory=128 * MIB))
    _expect(sandbox, "x=kept", "")
    outcome = sandbox.run("bash -c 'x=12345678; for i in {1..26}; do x=$x$x; done; echo ${#x}'", timeout=TIMEOUT)
    if outcome.exit_code in (0, None):
        raise CheckFailed("a sandbox of 128 MiB could use 512 MiB")
    _expect(sandbox, "echo $x", "kept\n")
    return ""


def _limits_processes(laboratory: Laboratory) -> str:
    limit = 24
    sandbox = laboratory.start(Limits(processes=limit))

    def count() -> int:
        try:
            return len(sandbox.processes())
        except InfrastructureError:  # if a look takes a process, and there is no room for one
            return limit

    _expect(sandbox, "(for i in 0 1 2 3; do for j in 0 1 2 3 4 5 6 7 8 9; do sleep 99 & done; done) 2> /dev/null &", "")
    _wait_for(lambda: count() > limit // 2, "processes do not start")
    end = time.monotonic() + SHORT
    while time.monotonic() < end:
        if count() > limit:
            raise CheckFailed(f"more than {limit} processes run in a sandbox that may have no more")
        time.sleep(SHORT / 10)
    return ""


def _has_no_network(laboratory: Laboratory) -> str:
    sandbox = laboratory.start()
    interfaces = re.findall(r"^ *(\S+):", _output(sandbox, "cat /proc/net/dev"), re.MULTILINE)
    if interfaces != ["lo"]:
        raise CheckFailed(f"a sandbox has the network interfaces {', '.join(interfaces) or 'none at all'}")
    output = _output(sandbox, "(exec 3<> /dev/tcp/192.0.2.1/80) 2>&1; true")
    if "unreachable" not in output:
        raise CheckFailed(f"a connection to the outside came to: {output.strip() or 'success'}")
    return "loopback only"


def _hides_the_host(laboratory: Laboratory) -> str:
    secret = laboratory.home / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    sandbox = laboratory.start()
    output = _output(sandbox, f"cat {secret} /proc/1/root{secret} 2> /dev/null")
    if output:
        raise CheckFailed("a file of the host can be read in a sandbox")
    processes = _output(sandbox, "echo /proc/[0-9]*").split()
    if not 2 <= len(processes) < 10:
        raise CheckFailed(f"{len(processes)} processes are seen in a sandbox that runs two")
    user = _output(sandbox, "cat /proc/self/uid_map").split()
    return f"root inside is user {user[1]} outside" if user[1:2] != ["0"] else ""


def _cached_equals_fresh(laboratory: Laboratory) -> str:
    fresh, _ = _rollout(laboratory, ROLLOUT, use_cache=False)
    _rollout(laboratory, ROLLOUT[:3])
    for kind in ("recorded", "answered"):
        cached, sources = _rollout(laboratory, ROLLOUT)
        for command, one, other in zip(ROLLOUT, fresh, cached, strict=True):
            if one != other:
                raise CheckFailed(f"`{command}` returned {other} with the cache and {one} without")
        if kind == "answered" and set(sources) != {"hit"}:
            raise CheckFailed(f"a rollout made before was not answered from the graph: {', '.join(sources)}")
    return f"{len(ROLLOUT)} calls answered"


def _rollout(
    laboratory: Laboratory, commands: tuple[str, ...], *, use_cache: bool = True
) -> tuple[list[tuple[str, int | None]], list[str]]:
    """Makes a rollout; returns the result of each call, and its source."""
    with (
        Cache(
            laboratory.home, backend=laboratory.backend.name, policy="eager", use_cache=use_cache, same_ids=True
        ) as cache,
        cache.rollout(laboratory.image) as rollout,
    ):
        results = [rollout.call("bash", {"command": command}, TIMEOUT) for command in commands]
    return [(result.output, result.exit_code) for result in results], [result.source for result in results]


def _outlives_a_kill(laboratory: Laboratory) -> str:
    program = f"""
import sys, time
from pathlib import Path
from tvsnap.cache import Cache
from tvsnap.images import ImageStore
cache = Cache(sys.argv[1], backend=sys.argv[2], policy="eager")
rollout = cache.rollout(ImageStore(Path(sys.argv[3])).get(sys.argv[4]))
rollout.call("bash", {{"command": "{laboratory.long_sleep} &"}})
print("ready", flush=True)
time.sleep(1000)
"""
    images = laboratory.image.rootfs.parents[2]
    arguments = [str(laboratory.home), laboratory.backend.name, str(images), laboratory.image.digest]
    command, pipe = [sys.executable, "-c", program, *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as victim:
        assert victim.stdout is not None
        assert victim.stderr is not None
        ready = victim.stdout.readline()
        victim.kill()
        complaint = victim.stderr.read().decode(errors="replace").strip()
    if ready != b"ready\n":
        raise CheckFailed(f"another process could not use the data directory: {complaint.splitlines()[-1:]}")
    reaped = laboratory.backend.reap()
    if laboratory.backend.name == "local":
        _wait_for(lambda: not _runs(laboratory.long_sleep), "a killed process' sandbox runs on")
    if reaped.sandboxes < 1:
        raise CheckFailed("the sandbox of a killed process was not found")
    return "its sandbox was ended"


def leaves_nothing(laboratory: Laboratory) -> str:
    home, sleep = laboratory.home, laboratory.long_sleep
    with contextlib.closing(Owner(home)) as owner:
        backend = open_backend(laboratory.backend.name, home, owner.id)
        with contextlib.closing(backend):
            report, snapshots = backend.reap(), list(backend.snapshots())
    if report.sandboxes or report.snapshots or report.temporary or snapshots:
        raise CheckFailed(f"left in the data directory: {report}, {len(snapshots)} snapshots")
    if backend.name != "local":
        return ""
    _wait_for(lambda: not _runs(sleep), "a process is left")
    _wait_for(lambda: not _loops(home), "a loop device is left")  # the kernel clears it a moment after its last use
    if str(home) in Path("/proc/self/mounts").read_text():
        raise CheckFailed("a mount is left")
    groups = [str(root) for root in CgroupTree.find(home).roots if root.exists()]
    if groups:
        raise CheckFailed(f"control groups are left: {', '.join(groups)}")
    return "no process, mount, loop device or control group"


CHECKS: tuple[tuple[str, Check], ...] = (
    ("a sandbox starts and runs commands", _starts),
    ("its shell keeps its state", _shell_persists),
    ("two forks go their own ways", _forks),
    ("background processes go on in a fork", _processes_go_on),
    ("what cannot be captured is refused", _refuses),
    ("timeouts are enforced", _times_out),
    ("the memory limit holds", _limits_memory),
    ("the process limit holds", _limits_processes),
    ("there is no network", _has_no_network),
    ("the host's files and processes are invisible", _hides_the_host),
    ("a cached rollout equals a fresh one", _cached_equals_fresh),
    ("kill -9 of a process that uses tvsnap", _outlives_a_kill),
)
"""The checks by their subjects; `leaves_nothing` is made after all of them."""


# -- what they have in common ------------------------------------------------------------------------------------


def _refusal(sandbox: Sandbox, otherwise: str) -> str:
    """Returns the reason why no snapshot can be taken."""
    try:
        sandbox.checkpoint()
    except NotCheckpointable as refusal:
        return str(refusal)
    raise CheckFailed(otherwise)


def _output(sandbox: Sandbox, command: str) -> str:
    outcome = sandbox.run(command, timeout=TIMEOUT)
    if outcome.timed_out:
        raise CheckFailed(f"`{command}` timed out after {TIMEOUT:.0f} s")
    return outcome.output.decode(errors="replace")


def _expect(sandbox: Sandbox, command: str, output: str, exit_code: int = 0) -> None:
    outcome = sandbox.run(command, timeout=TIMEOUT)
    text, status = outcome.output.decode(errors="replace"), outcome.exit_code
    if (text, status) != (output, exit_code):
        raise CheckFailed(f"`{command}` printed {text!r} and ended with {status}, not {output!r} and {exit_code}")


def _number(sandbox: Sandbox, path: str) -> int:
    try:
        return int(sandbox.read_file(path) or b"0")
    except OSError:  # not there yet
        return 0


def _wait_for(probe: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE
    while not probe():
        if time.monotonic() > end:
            raise CheckFailed(otherwise)
        time.sleep(0.02)


def _runs(command: str) -> bool:
    """Returns whether a process with this command line runs anywhere on this machine."""
    line = command.replace(" ", "\0").encode() + b"\0"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if path.read_bytes() == line:
                return True
    return False


def _loops(home: Path) -> list[str]:
    """Returns the files in a data directory that have a loop device."""
    files = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it has just gone
            files += [line for line in backing.read_text().splitlines() if line.startswith(f"{home}/")]
    return files
