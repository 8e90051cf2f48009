"""Attempts to break out of a sandbox. Runs inside one, with the image's Python and nothing else.

Each probe is tried in a process of its own and comes to a word: the name of the error that it met, what it saw, or
`hangs`. Standard input is JSON about what there is on the host; standard output is JSON: the word of each probe.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import signal
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
SECONDS = 30
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME = 0x10000000, 0x20000000, 0x40000000, 0x80
NAMESPACES = {
    "mount": CLONE_NEWNS, "cgroup": CLONE_NEWCGROUP, "uts": CLONE_NEWUTS, "ipc": CLONE_NEWIPC, "user": CLONE_NEWUSER,
    "pid": CLONE_NEWPID, "network": CLONE_NEWNET,
}  # fmt: skip
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
ADDR_NO_RANDOMIZE = 0x40000
PTRACE_TRACEME, PTRACE_CONT, PTRACE_ATTACH = 0, 7, 16
MACHINE = platform.machine()
# Numbers of system calls: those before 424 differ between machines.
CALLS: dict[str, int] = {
    "x86_64": dict(
        clone=56, ptrace=101, syslog=103, uselib=134, personality=135, vhangup=153, pivot_root=155, acct=163,
        settimeofday=164, mount=165, umount2=166, swapon=167, reboot=169, sethostname=170, setdomainname=171, iopl=172,
        ioperm=173, init_module=175, delete_module=176, quotactl=179, lookup_dcookie=212, clock_settime=227,
        mq_open=240, kexec_load=246, add_key=248, request_key=249, keyctl=250, unshare=272, move_pages=279,
        perf_event_open=298, fanotify_init=300, open_by_handle_at=304, setns=308, process_vm_readv=310, kcmp=312,
        finit_module=313, kexec_file_load=320, bpf=321, userfaultfd=323,
    ),
    "aarch64": dict(
        clone=220, ptrace=117, syslog=116, personality=92, vhangup=58, pivot_root=41, acct=89, settimeofday=170,
        mount=40, umount2=39, swapon=224, reboot=142, sethostname=161, setdomainname=162, init_module=105,
        delete_module=106, quotactl=60, lookup_dcookie=18, clock_settime=112, mq_open=180, kexec_load=104, add_key=217,
        request_key=218, keyctl=219, unshare=97, move_pages=239, perf_event_open=241, fanotify_init=262,
        open_by_handle_at=265, setns=268, process_vm_readv=270, kcmp=272, finit_module=273, kexec_file_load=294,
        bpf=280, userfaultfd=282,
    ),
}[MACHINE] | dict(
    io_uring_setup=425, io_uring_enter=426, io_uring_register=427, open_tree=428, move_mount=429, fsopen=430,
    fsconfig=431, fsmount=432, fspick=433, clone3=435, pidfd_getfd=438, process_madvise=440, mount_setattr=442,
    quotactl_fd=443, landlock_create_ruleset=444, set_mempolicy_home_node=450, none_such=1000,
)  # fmt: skip
PROBES: dict[str, Callable[[], object]] = {}
HOST: dict[str, Any] = {}


def probe(function: Callable[[], object]) -> Callable[[], object]:
    """Registers a probe under its name, with blanks."""
    PROBES[function.__name__.replace("_", " ")] = function
    return function


def call(number: int, *arguments: object) -> int:
    """Makes a system call.

    Raises:
        OSError: it failed.
    """
    words = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    result: int = LIBC.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def word(attempt: Callable[[], object]) -> str:
    """Returns what came of an attempt: a word that it returned, `done`, or the name of its error."""
    try:
        result = attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return result if isinstance(result, str) else "done"


def outcome(attempt: Callable[[], object]) -> str:
    """Returns the word for an attempt, which is made in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.write(writer, word(attempt).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        said = stream.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "hangs" if os.WTERMSIG(status) == signal.SIGALRM else f"killed by {os.WTERMSIG(status)}"
    return said


# -- system calls ----------------------------------------------------------------------------------------------------

for name, number in CALLS.items():
    if name not in ("clone", "unshare", "ptrace", "personality", "process_vm_readv", "mq_open"):
        PROBES[f"call {name}"] = partial(call, number, 0, 0, 0, 0, 0, 0)
for name, flag in NAMESPACES.items():
    PROBES[f"unshare {name}"] = partial(call, CALLS["unshare"], flag)
    PROBES[f"clone {name}"] = partial(call, CALLS["clone"], flag | signal.SIGCHLD, 0, 0, 0, 0)
PROBES["unshare time"] = lambda: call(CALLS["unshare"], CLONE_NEWTIME)
PROBES["message queue"] = lambda: call(CALLS["mq_open"], b"queue", os.O_CREAT | os.O_RDWR, 0o600, 0)
PROBES["personality"] = lambda: call(CALLS["personality"], ADDR_NO_RANDOMIZE)
PROBES["own personality"] = lambda: call(CALLS["personality"], 0xFFFFFFFF)
PROBES["socket vsock"] = lambda: socket.socket(40, socket.SOCK_STREAM)
PROBES["socket alg"] = lambda: socket.socket(38, socket.SOCK_SEQPACKET)
PROBES["socket audit"] = lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)
PROBES["socket firewall"] = lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
PROBES["socket route"] = lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
PROBES["socket diagnosis"] = lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
PROBES["pair of sockets tipc"] = lambda: socket.socketpair(30, socket.SOCK_STREAM)
PROBES["socket packet"] = lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
PROBES["socket ping"] = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
PROBES["socket raw"] = lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)


def terminal(request: int) -> object:
    """Makes a request of a terminal of its own; the kernel looks only at the lower half of its number."""
    _, slave = os.openpty()
    return call({"x86_64": 16, "aarch64": 29}[MACHINE], slave, ctypes.c_ulong(request | 1 << 32), b"x")


PROBES["flow label"] = lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).setsockopt(
    41, 32, struct.pack("16sIBBHHHI", bytes(15) + b"\1", 0x01000000 | 77, 0, 255, 1, 6, 6, 0)
)
PROBES["type into a terminal"] = lambda: terminal(TIOCSTI)
PROBES["paste into a console"] = lambda: terminal(TIOCLINUX)


def share_blocks(request: int) -> object:
    """Asks for a file whose blocks are those of another."""
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        one.write(bytes(4096))
        one.flush()
        return fcntl.ioctl(other.fileno(), request, struct.pack("qQQQ", one.fileno(), 0, 4096, 0))


def copy_a_range() -> object:
    """Asks for a copy, for which a file system may share blocks."""
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        one.write(bytes(4096))
        one.flush()
        return os.copy_file_range(one.fileno(), other.fileno(), 4096, 0, 0)


PROBES["share blocks of a range"] = lambda: share_blocks(0x4020940D)
PROBES["share blocks of equal files"] = lambda: share_blocks(0xC0189436)
PROBES["copy a range"] = copy_a_range


@probe
def call_of_32_bits() -> object:
    if MACHINE != "x86_64":
        return "ENOSYS"  # there is no other way in
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3")  # push rbx; eax = getpid; int 0x80; pop rbx; ret
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    result = function()
    return errno.errorcode[-result] if result < 0 else "done"


@probe
def call_of_x32() -> object:
    return call(0x40000000 | 39) if MACHINE == "x86_64" else "ENOSYS"


@probe
def trace_a_child() -> object:
    child = os.fork()
    if child == 0:
        call(CALLS["ptrace"], PTRACE_TRACEME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(7)
    os.waitpid(child, os.WUNTRACED)
    call(CALLS["ptrace"], PTRACE_CONT, child, 0, 0)
    return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


@probe
def set_user_id_program() -> object:
    """A program of root's that sets the user id makes nobody more than what root is in here."""
    with open("/usr/bin/id", "rb") as source, open("/var/tmp/id", "wb") as copy:
        copy.write(source.read())
    os.chmod("/var/tmp/id", 0o4755)
    os.setresuid(65534, 65534, 65534)
    with os.popen("/var/tmp/id -u; mount -t tmpfs none /mnt 2>&1 || echo refused") as output:
        lines = output.read().split("\n")
    return f"{lines[0]} {lines[-2]}"


@probe
def run_from_memory() -> object:
    """Allowed, and no way out: a program that has no file."""
    program = os.memfd_create("program", 0)
    with open("/bin/true", "rb") as source:
        os.write(program, source.read())
    os.execve(program, ["true"], {})


# -- files -----------------------------------------------------------------------------------------------------------


def read_one(path: str, flags: int = 0) -> str:
    descriptor = os.open(path, os.O_RDONLY | flags)
    return f"read {os.read(descriptor, 1)!r}"


def listing(path: str) -> str:
    return f"list {os.listdir(path)}"


def write(path: str, text: str = "") -> None:
    descriptor = os.open(path, os.O_WRONLY)
    if text:
        os.write(descriptor, text.encode())


for path in ("/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/port", "/dev/sda", "/dev/vda", "/dev/loop-control", "/dev/kvm",
             "/dev/fuse", "/dev/net/tun", "/proc/kcore", "/proc/kmsg"):  # fmt: skip
    PROBES[f"open {path}"] = partial(read_one, path, os.O_NONBLOCK)
for path in ("/proc/keys", "/proc/interrupts", "/proc/timer_list", "/proc/latency_stats"):
    PROBES[f"read {path}"] = partial(read_one, path)
for path in ("/proc/acpi", "/proc/scsi", "/proc/asound", "/sys/firmware", "/sys/devices/virtual/powercap"):
    PROBES[f"list {path}"] = partial(listing, path)
for path, value in {
    "/proc/sys/kernel/core_pattern": "|/bin/sh", "/proc/sys/kernel/modprobe": "/bin/sh",
    "/proc/sys/kernel/hostname": "other", "/proc/sys/kernel/msgmax": "12345", "/proc/sys/kernel/pid_max": "12345",
    "/proc/sys/kernel/shmmax": "12345", "/proc/sys/kernel/ns_last_pid": "1000", "/proc/sys/fs/mqueue/msg_max": "7",
    "/proc/sys/fs/binfmt_misc/register": ":x:M::x::/bin/sh:", "/proc/sys/net/ipv4/ip_forward": "1",
    "/proc/sys/vm/overcommit_memory": "1", "/proc/sys/vm/drop_caches": "1", "/proc/sysrq-trigger": "h",
    "/proc/irq/default_smp_affinity": "1", "/proc/bus/pci/devices": "x", "/proc/mtrr": "x",
    "/sys/kernel/uevent_helper": "/bin/sh", "/sys/fs/cgroup/cgroup.procs": "1", "/sys/fs/cgroup/release_agent": "/x",
    "/sys/fs/cgroup/memory.max": "max", "/sys/fs/cgroup/pids/pids.max": "max", "/sys/module/a": "x",
    "/proc/1/uid_map": "0 0 1", "/proc/self/uid_map": "0 0 1", "/proc/self/oom_score_adj": "-1000",
}.items():  # fmt: skip
    PROBES[f"write {path}"] = partial(write, path, value)
PROBES["make a memory device"] = lambda: os.mknod("/var/tmp/memory", stat.S_IFCHR | 0o666, os.makedev(1, 1))
PROBES["make a disk"] = lambda: os.mknod("/var/tmp/disk", stat.S_IFBLK | 0o666, os.makedev(8, 0))
PROBES["write to the program of PID 1"] = lambda: os.open("/proc/1/exe", os.O_WRONLY)
PROBES["write to our program"] = lambda: os.open("/proc/self/exe", os.O_WRONLY)


@probe
def replace_the_program_of_PID_1() -> object:
    """Only for this sandbox: the host compares its own."""
    with open("/run/tvsnap/init", "rb") as stream:
        program = stream.read()
    os.unlink("/run/tvsnap/init")
    with open("/run/tvsnap/init", "wb") as stream:
        stream.write(program)
    os.chmod("/run/tvsnap/init", 0o755)
    return "replaced"


@probe
def file_of_the_host() -> object:
    roots = ("", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/proc/self/cwd/../../..", "/proc/1/root/../..")
    return str([root for root in roots if os.path.exists(root + HOST["file"])])


@probe
def out_of_a_chroot() -> object:
    """The way out of a chroot in a chroot: by a descriptor of a directory above."""
    os.makedirs("/var/tmp/jail", exist_ok=True)
    above = os.open("/", os.O_RDONLY)
    before = os.fstat(above)
    os.chroot("/var/tmp/jail")
    os.fchdir(above)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    return f"{os.path.samestat(os.stat('/'), before)} {os.path.exists(HOST['file'])}"


@probe
def root_of_PID_1() -> object:
    return str(os.path.samefile("/proc/1/root", "/"))


@probe
def open_files_of_all() -> object:
    """Every descriptor of every process ends in here: no file is open that has no path, and all paths are ours."""
    return str([link for pid in filter(str.isdigit, os.listdir("/proc")) for link in foreign_files(pid)])


def foreign_files(pid: str) -> list[str]:
    """Returns the descriptors of a process that lead to no path of ours."""
    found = []
    with contextlib.suppress(OSError):  # it has ended, or is not to be looked into
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                link = f"/proc/{pid}/fd/{number}"
                target, about = os.readlink(link), os.stat(link)
                nameless = ("/dev/pts/", "pipe:", "socket:", "anon_inode:", "/memfd:", f"/proc/{pid}/")
                if target.startswith(nameless):
                    continue
                if not (os.path.exists(target) and os.path.samestat(os.stat(target), about)):
                    found.append(f"{pid} {number}: {target}")
    return found


@probe
def mounts_name_paths_of_the_host() -> object:
    with open("/proc/self/mountinfo") as stream:
        return str([line for line in stream if HOST["home"] in line])


@probe
def control_groups() -> object:
    """They are seen from within, and there is nothing to write to."""
    with open("/proc/self/cgroup") as stream:
        seen = {line.rstrip("\n").split(":", 2)[2] for line in stream}
    files = (f"{folder}/{name}" for folder, _, names in os.walk("/sys") for name in names)
    writable = [path for path in files if not os.path.islink(path) and word(partial(write, path)) == "done"]
    return f"{sorted(seen)} {writable}"


# -- processes and sockets ---------------------------------------------------------------------------------------------


@probe
def processes_of_the_host() -> object:
    return str([pid for pid in filter(str.isdigit, os.listdir("/proc")) if HOST["command"] in command_line(pid)])


def command_line(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return stream.read().replace(b"\0", b" ").decode("latin-1")
    except OSError:
        return ""


def unknown_pid() -> int:
    """Returns the number of a process of the host that is no process here."""
    pid: int = next(pid for pid in HOST["pids"] if not os.path.exists(f"/proc/{pid}"))
    return pid


PROBES["signal to the host"] = lambda: os.kill(unknown_pid(), signal.SIGKILL)
PROBES["descriptor of a process of the host"] = lambda: os.pidfd_open(unknown_pid())
PROBES["trace a process of the host"] = lambda: call(CALLS["ptrace"], PTRACE_ATTACH, unknown_pid(), 0, 0)
PROBES["priority of the host"] = lambda: os.setpriority(os.PRIO_PROCESS, 0, -20)
PROBES["clock"] = lambda: time.clock_settime(time.CLOCK_REALTIME, 0.0)


@probe
def read_a_process_of_the_host() -> None:
    buffer = ctypes.create_string_buffer(8)
    vector = struct.pack("PN", ctypes.addressof(buffer), 8)
    call(CALLS["process_vm_readv"], unknown_pid(), vector, 1, vector, 1, 0)


def connect(family: socket.AddressFamily, address: object) -> None:
    """Tries to reach a server of the host."""
    with socket.socket(family) as client:
        client.settimeout(5)
        client.connect(address)  # type: ignore[arg-type]


PROBES["abstract socket of the host"] = lambda: connect(socket.AF_UNIX, "\0" + HOST["abstract"])
PROBES["socket file of the host"] = lambda: connect(socket.AF_UNIX, HOST["socket"])
PROBES["port of the host"] = lambda: connect(socket.AF_INET, ("127.0.0.1", HOST["port"]))
PROBES["address of the host"] = lambda: connect(socket.AF_INET, (HOST["address"], HOST["port"]))
PROBES["metadata service"] = lambda: connect(socket.AF_INET, ("169.254.169.254", 80))


@probe
def network_interfaces() -> object:
    return str([name for _, name in socket.if_nameindex()])


@probe
def capabilities() -> object:
    """Those that are left, and those that a program could get."""
    with open("/proc/self/status") as stream:
        fields = dict(line.split(":", 1) for line in stream)
    return " ".join(str(int(fields[name], 16)) for name in ("CapEff", "CapBnd", "CapInh", "CapAmb"))


@probe
def filter_of_system_calls() -> object:
    with open("/proc/1/status") as stream:
        return next(line.split()[1] for line in stream if line.startswith("Seccomp:"))


def main() -> None:
    """Tries all probes."""
    HOST.update(json.load(sys.stdin))
    json.dump({name: outcome(attempt) for name, attempt in PROBES.items()}, sys.stdout)


if __name__ == "__main__":
    main()
