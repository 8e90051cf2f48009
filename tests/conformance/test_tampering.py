"""What a call has the shell or PID 1 do by system calls, and is in no file and no memory: it is found out."""

from __future__ import annotations

import pytest

from tests.conformance.helpers import sh
from tests.conformance.injection import program
from tvsnap.sandboxes.protocol import Sandbox

PRCTL, FCNTL, SOON = 157, 72, 'data=struct.pack("4q", 0, 0, 300, 0)'
CALLS = {
    "securebits": f"process.call({PRCTL}, 28, 3)",
    "capabilities that are kept": f"process.call({PRCTL}, 8, 1)",
    "who gets orphans": f"process.call({PRCTL}, 36, 1)",
    "dumpable": f"process.call({PRCTL}, 4, 0)",
    "signal at its parent's end": f"process.call({PRCTL}, 1, 9)",
    "huge pages": f"process.call({PRCTL}, 41, 1)",
    "no clock of the processor": f"process.call({PRCTL}, 26, 2)",
    "no new programs in memory": f"process.call({PRCTL}, 65, 1)",
    "memory errors": f"process.call({PRCTL}, 33, 1, 1)",
    "merged memory": f"process.call({PRCTL}, 67, 1)",
    "slack of timers": f"process.call({PRCTL}, 29, 123456)",
    "locked memory": "process.call(151, 2)",
    "timer, real": f"process.call(38, 0, process.room, 0, {SOON})",
    "timer, virtual": f"process.call(38, 1, process.room, 0, {SOON})",
    "timer, of processor time": f"process.call(38, 2, process.room, 0, {SOON})",
    "timer, of POSIX": "process.call(222, 1, 0, process.room, data=bytes(8))",
    "debug register": "process.poke(848, process.registers.rip + 4096) + process.poke(848 + 56, 1)",
    "dispatch of calls": (
        "ptrace(0x4210, process.pid, 32, "
        "ctypes.cast((ctypes.c_uint64 * 4)(1, process.heap()[1] - 64, 0, 0), ctypes.c_void_p))"
    ),
    "dispatch of calls, by itself": f"process.call({PRCTL}, 59, 1, 0, 0, process.heap()[1] - 64)",
    "local descriptor table": "process.call(154, 1, process.room, 16, data=struct.pack('4I', 0, 0, 0xFFFFF, 0x51))",
    "restartable sequences": "process.call(334, *process.sequences())",
    "number that is cleared": "process.call(218, process.room) and 0",
    "list of locks": "process.call(273, process.room, 24)",
    "registered barriers": "process.call(324, 16)",
    "scheduling of children": "process.call(144, 0, 0x40000000 | 3, process.room, data=bytes(4))",
    "priority of input and output": "process.call(251, 1, 0, 3 << 13)",
    "arguments": (
        "process.call(157, 35, 14, process.room, 104, data=(lambda stat: struct.pack('12Q', *[int(stat[i]) for i in "
        "(25, 26, 44, 45, 46)], process.heap()[1], int(stat[27]), int(stat[47]) + 4, *[int(stat[i]) for i in "
        "(48, 49, 50)], 0) + struct.pack('Ii', 0, -1))(open(f'/proc/{process.pid}/stat').read().split()))"
    ),
    "guarded memory": "process.call(28, process.heap()[1] - 4096, 4096, 102)",
    "larger table of descriptors": "process.call(33, 1, 1000) and process.call(3, 1000)",
    "lock of its commands": "process.call(73, process.descriptor('/memfd:command'), 6)",
    "owner of its commands": "os.chown(f'/proc/{process.pid}/fd/{process.descriptor(\"/memfd:command\")}', 5, 5) or 0",
    "mode of its commands": "os.chmod(f'/proc/{process.pid}/fd/{process.descriptor(\"/memfd:command\")}', 0) or 0",
    "attribute of its commands": (
        "os.setxattr(f'/proc/{process.pid}/fd/{process.descriptor(\"/memfd:command\")}', 'user.x', b'y') or 0"
    ),
    "hint for its commands": (
        f"process.call({FCNTL}, process.descriptor('/memfd:command'), 1036, process.room, data=struct.pack('Q', 3))"
    ),
    "size of a pipe": f"process.call({FCNTL}, process.descriptor('pipe:'), 1031, 1 << 18)",
    "mode of a pipe": "os.chmod(f'/proc/{process.pid}/fd/{process.descriptor(\"pipe:\")}', 0) or 0",
    "terminal that nobody else may open": "process.call(16, 0, 0x540C)",
}
NOT_EVERYWHERE = {"EINVAL", "ENODEV", "ENOSYS", "EPERM", "ENOTSUP", "EIO", "ENXIO"}


def act(sandbox: Sandbox, action: str, pid: str = "os.getppid()") -> tuple[str, bool]:
    """Returns what a call says in which a process does something, and whether that counts as a change."""
    sandbox.write_file("/tmp/inject.py", program(action, pid).encode())
    sh(sandbox, "cd /root; true")
    before = sandbox.observe()
    sandbox.note()
    said = sh(sandbox, "python3 /tmp/inject.py").strip()
    return said, sandbox.observe() != before or not sandbox.go_back()


@pytest.mark.parametrize("action", CALLS.values(), ids=CALLS)
def test_what_the_shell_was_made_to_do_is_found_out(sandbox: Sandbox, action: str) -> None:
    said, found_out = act(sandbox, action)
    if said in NOT_EVERYWHERE:
        pytest.skip(f"this kernel refuses it: {said}")
    assert (said, found_out) == ("done", True)


def test_what_leaves_nothing_changes_nothing(sandbox: Sandbox) -> None:
    """That somebody traced the shell is not what is found out."""
    assert act(sandbox, "process.call(39)") == ("done", False)


def test_what_pid_1_was_made_to_do_is_found_out(sandbox: Sandbox) -> None:
    """Or root inside may not trace it."""
    assert act(sandbox, f"process.call({PRCTL}, 28, 3)", pid="1") in (("done", True), ("EPERM", False))
