"""Runs one program of a build in namespaces of its own. Started as a script, by `runner.py` and nothing else.

It is a program apart because it changes itself beyond return: it unshares namespaces, pivots its root and gives up
its rights, and then becomes the program that it was told to run. It ends, with all that it started, when its parent
does. It imports nothing of tvsnap, and nothing at all once it has pivoted into a tree that may be hostile.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

PR_SET_PDEATHSIG = 1

# What did not work, when there is something to report: what the machine must allow, or the program itself.
SETUP = "setup"
START = "start"

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
TTY_GROUP = 5

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    _call(
        "mount",
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )


def main() -> int:
    """Reads its job, which `runner.py` writes, from standard input; that is not the program's."""
    job = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    report: int = job["report"]
    os.set_inheritable(report, False)
    child = 0

    def end(_number: int, _frame: object) -> None:
        # The death of its first process ends the pid namespace, and waiting for that one waits for all of them.
        if child:
            os.kill(child, signal.SIGKILL)
        else:
            os._exit(1)

    signal.signal(signal.SIGTERM, end)
    try:
        _die_with_parent(job["parent"])
        _call("unshare", CLONE_NEWPID)
        ready, say_ready = os.pipe()
        mapped, say_mapped = os.pipe()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.close(ready)
            os.close(say_mapped)
            _become(job, say_ready, mapped, report)
        os.close(say_ready)
        os.close(mapped)
        if os.read(ready, 1):
            if job["root"] is not None:
                for name in ("uid_map", "gid_map"):
                    with open(f"/proc/{child}/{name}", "w", encoding="ascii") as stream:
                        stream.write(f"0 {job['uid_base']} {job['uid_count']}\n")
            os.write(say_mapped, b"x")
    except OSError as error:
        _complain(report, SETUP, error)
        return 1
    os.close(report)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _complain(report: int, stage: str, error: OSError) -> None:
    about = f"{error.filename}: " if error.filename else ""
    os.write(report, f"{stage}: {about}{error.strerror}".encode())


def _die_with_parent(parent: int) -> None:
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It died before we could ask to be told.
        os._exit(1)


def _become(job: dict[str, object], say_ready: int, mapped: int, report: int) -> NoReturn:
    stage = SETUP
    try:
        # Here and not before the fork: to pivot changes the root of every process in the mount namespace, and our
        # parent needs its /proc.
        _call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC)
        _mount("none", "/", None, MS_REC | MS_PRIVATE)
        hostname = str(job["hostname"]).encode()
        _call("sethostname", hostname, len(hostname))
        if job["root"] is None:
            _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        else:
            _enter_root(str(job["root"]), int(str(job["uid_base"])))
            _call("unshare", CLONE_NEWUSER)
        os.write(say_ready, b"x")
        if not os.read(mapped, 1):
            os._exit(1)
        if job["root"] is not None:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            # Changing ids forgets whose death to follow. If the parent died meanwhile, its end of the pipe is closed.
            _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.set_blocking(mapped, False)
            with contextlib.suppress(BlockingIOError):
                if not os.read(mapped, 1):
                    os._exit(1)
        stage = START
        os.chdir(str(job["cwd"]))
        os.umask(0o022)
        argv: list[str] = job["argv"]  # type: ignore[assignment]
        env: dict[str, str] = job["env"]  # type: ignore[assignment]
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        _complain(report, stage, error)
    os._exit(1)


def _enter_root(root: str, uid_base: int) -> None:
    """Makes `root` the root, with /proc and a minimal /dev, and nothing of the host in reach."""
    # Without devices: a node in the tree would be the host's own.
    _mount(root, root, None, MS_BIND)
    _mount("none", root, None, MS_REMOUNT | MS_BIND | MS_NODEV)
    os.chdir(root)
    _mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("tmpfs", "dev", "tmpfs", MS_NOSUID, "mode=755,size=65536k")
    for name in DEVICES:
        os.close(os.open(f"dev/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        _mount(f"/dev/{name}", f"dev/{name}", None, MS_BIND)
    for link, target in {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        os.symlink(f"/proc/self/{target}", f"dev/{link}")
    os.mkdir("dev/shm")
    os.chmod("dev/shm", 0o1777)
    os.mkdir("dev/pts")
    options = f"newinstance,ptmxmode=0666,mode=0620,gid={uid_base + TTY_GROUP}"
    _mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)
    os.symlink("pts/ptmx", "dev/ptmx")
    old = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # The old root ends up on top of the new one, and is then detached through the descriptor: no directory for it
    # is needed in the tree.
    _call("pivot_root", b".", b".")
    os.fchdir(old)
    _call("umount2", b".", MNT_DETACH)
    os.close(old)
    os.chdir("/")


if __name__ == "__main__":
    sys.exit(main())
