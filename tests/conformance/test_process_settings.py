"""What processes set of themselves by prctl(2) and the like: each setting is in a fork, too, or fails.

The table lists the settings of Linux 6.18 on x86-64, except for those of other processors, those that need rights which
nobody in a sandbox has, and those that other tests try: names, capabilities, timer slacks, the parts of a program.
"""

from __future__ import annotations

import ast

from tests.conformance.helpers import Lab
from tests.conformance.jobs import REPORTING, report_of, start

# What sets it, and what tells of it. These are kept.
KEPT = {
    "PR_SET_PDEATHSIG": ("prctl(1, 10)", "told(2)"),
    "PR_SET_KEEPCAPS": ("prctl(8, 1)", "prctl(7)"),
    "PR_CAPBSET_DROP": ("prctl(24, 3)", "prctl(23, 3)"),
    "PR_SET_SECUREBITS": ("prctl(28, 0x10)", "prctl(27)"),
    "PR_SET_CHILD_SUBREAPER": ("prctl(36, 1)", "told(37)"),
    "PR_SET_NO_NEW_PRIVS": ("prctl(38, 1)", "prctl(39)"),
    "PR_SET_THP_DISABLE": ("prctl(41, 1)", "prctl(42)"),
    "PR_SET_DUMPABLE": ("prctl(4, 0)", "prctl(3)"),
}
# These fail as on a kernel that lacks them; a process that does not try them has the default.
FAILING = {
    "PR_SET_TIMING": ("prctl(14, 1)", "prctl(13)"),
    "PR_SET_TSC": ("prctl(26, 2)", "told(25)"),
    "PR_MCE_KILL": ("prctl(33, 1, 1)", "prctl(34)"),
    "PR_MCE_KILL, late": ("prctl(33, 1, 0)", "prctl(34)"),
    "PR_SET_THP_DISABLE with flags": ("prctl(41, 1, 2)", "0"),
    "PR_SET_SYSCALL_USER_DISPATCH": ("prctl(59, 1, 0, 0, 0)", "0"),
    "PR_SET_MDWE": ("prctl(65, 1)", "prctl(66)"),
    "PR_SET_MEMORY_MERGE": ("prctl(67, 1)", "prctl(68)"),
    "PR_TIMER_CREATE_RESTORE_IDS": ("prctl(77, 1)", "prctl(77, 2)"),
    "PR_FUTEX_HASH": ("prctl(78, 1, 16)", "prctl(78, 2)"),
    "a setting of a later kernel": ("prctl(200, 1)", "0"),
    "MLOCK_ONFAULT": ("code(libc.syscall(325, ctypes.c_void_p(PLACE), 4096, 1))", "FLAGS(' lf')"),
    "MCL_ONFAULT": ("code(libc.mlockall(5))", "FLAGS(' lf')"),
}
FUNCTIONS = """
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
def code(result): return result if result >= 0 else -ctypes.get_errno()
def prctl(option, *arguments): return code(libc.prctl(option, *(*arguments, 0, 0, 0, 0)[:4]))
def told(option):
    found = ctypes.c_int(0)
    return code(libc.prctl(option, ctypes.addressof(found), 0, 0, 0)) or found.value
memory = mmap.mmap(-1, 4096)
PLACE = ctypes.addressof(ctypes.c_char.from_buffer(memory))
def FLAGS(flag): return [line for line in open('/proc/self/smaps') if line.startswith('VmFlags') and flag in line]
"""


def program(settings: dict[str, tuple[str, str]]) -> str:
    """Returns a program that sets them; it tells what came of that, and how they are."""
    results = ", ".join(change for change, _ in settings.values())
    looks = ", ".join(look for _, look in settings.values())
    made = f"before = [{looks}]\ncame = [{results}]\ndef report(): return before, came, [{looks}]"
    return f"{FUNCTIONS}\n{made}\n{REPORTING}"


def test_each_setting_is_kept_or_fails(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    start(sandbox, "kept", program(KEPT))
    start(sandbox, "failing", program(FAILING))
    fork = local_lab.fork_of(sandbox)
    for one in (fork, sandbox):
        before, came, now = ast.literal_eval(report_of(one, "kept"))
        assert came == [0] * len(KEPT)
        assert now == [10, 1, 0, 16, 1, 1, 1, 0]
        assert dict(zip(KEPT, before, strict=True)) != dict(zip(KEPT, now, strict=True))
        before, came, now = ast.literal_eval(report_of(one, "failing"))
        assert dict(zip(FAILING, came, strict=True)) == dict.fromkeys(FAILING, -22)
        assert now == before
