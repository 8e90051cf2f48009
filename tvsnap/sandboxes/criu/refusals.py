"""Explains why CRIU refused: turns lines of its log into a sentence that names the process and the thing.

Lines that no rule matches are passed on in CRIU's words. Each reason has a cause: "state" (a property of the processes,
known to a rule), "machine" (recognised by error texts of the system and of CRIU), or "unknown".

The log contains file names, and whoever created the files chose those freely, line ends included. So patterns match at
the beginning of a line, or at its end if CRIU ends it with an error text and not with a name; and a process is
inspected only if it belongs to the sandbox. A file name with a line end in it can still cause its own sandbox's state
to be refused, or tried again, for a wrong reason; nothing else may depend on these results.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable
from typing import Literal

from tvsnap.sandboxes.kernel.procfs import describe, lines, status

_LISTENING = "0A"
_TERMINAL_STOPS = {"21": "read from", "22": "write to or change"}

_Sentence = Callable[[re.Match[str], int], str]
Cause = Literal["state", "machine", "unknown"]


def reason(log: str, init: int) -> str:
    """Returns, in words, the reason in CRIU's log for its failure; empty if the log has none.

    The processes that the log names should still be alive, because their command lines are looked up.

    Args:
        log: CRIU's log.
        init: a process of the sandbox, as the host sees it; processes of others are not described. 0 if there is none.
    """
    lines = _complaints(log)
    pid = next((pid for pid in _culprits(lines) if not is_stranger(pid, init)), 0)
    for line in lines:
        for pattern, sentence in _RULES:
            match = _begins(pattern, line)
            if match:
                what = sentence if isinstance(sentence, str) else sentence(match, pid)
                return f"{describe(pid) if pid else 'a process'} {match.expand(what)}"
    causes = [line for line in lines if not _FOLLOWS.search(line)] or lines
    summary = "; ".join(causes[:3])
    return f"CRIU: {summary} ({describe(pid)})" if summary and pid else summary and f"CRIU: {summary}"


def cause(log: str) -> Cause:
    """Returns the kind of CRIU's failure, according to its log.

    A fault of the machine takes precedence: if processes are killed during a dump, CRIU says wrong things about others.
    """
    lines = _complaints(log)
    if any(map(_is_trouble_of_criu, lines)):
        return "machine"
    stuck = any("Timeout reached" in line for line in lines)
    for line in lines:
        if _begins(_MOMENTARY, line) and not stuck:
            return "unknown"
        if any(_begins(pattern, line) for pattern, _ in _RULES):
            return "state"
    return "unknown" if lines else "machine"


def kind(log: str) -> str:
    """Returns the place in CRIU's source that reported the first error; empty if there is none.

    It is the same for the same reason, regardless of the names of processes and files.
    """
    return next((place for place, message in _errors(log) if not _is_usual(message)), "")


def refused_plugin(log: str, plugin: str) -> bool:
    """Whether CRIU could not load the plugin at this path, which happens before any process is inspected."""
    first = next(iter(_complaints(log)), "")
    return bool(_begins(rf"(?:Unable to load|Can't load plugin|Corrupted plugin) {re.escape(plugin)}(?::|$)", first))


def is_trouble(message: str) -> bool:
    """Whether an error text of the kernel or of a container engine indicates a fault of the machine."""
    return bool(re.search(_SYSTEM_ERRORS, message))


def _is_trouble_of_criu(line: str) -> bool:
    """Whether a line of CRIU's log indicates a fault of the machine, in CRIU's words or the system's."""
    if _begins(_NAMES_LAST, line):
        return False
    return bool(_begins(_TROUBLE, line) or re.search(rf": (?:{_SYSTEM_ERRORS})$", line))


_SYSTEM_ERRORS = (
    r"Too many references: cannot splice|Too many open files(?: in system)?|Cannot allocate memory"
    r"|Resource temporarily unavailable|No space left on device|Disk quota exceeded|Read-only file system"
    r"|Interrupted system call|No such process"
)
_NAMES_LAST = r"Can't lookup mount=|Can't dump file |Can't create link remap for |Unknown shit |Unable to load "
"""Lines that end in a name and not in an error text."""
_TROUBLE = (
    r"Can't chose service_fd_base"
    # A process was killed during the dump, by another process or for lack of memory.
    r"|Can't \w+ [\d (]+/[\w/]+ on procfs\)?: No such file|(?:\d+|Child) (?:was )?killed by (?:signal )?\d"
    r"|Task signaled with"
    r"|(?:SEIZE \d+: )?task not stopped after seize|Task pid reused"
    # CRIU's code in a process reports such errors by number: EAGAIN, ENOMEM, ENFILE, EMFILE, ENOSPC, ...
    r"|[\w' ,():-]*(?:fail\w* |with |for daemon )\(?-(?:11|12|23|24|28|109)\b|[\w' ]* with 0xfffffffffffffff[45]"
    # ... or is cut off before it can report them.
    r"|Message reply from daemon is trimmed|Can't retrieve FDs? from socket|Failed to (?:read ack|send command)"
)
_MOMENTARY = r"Unseizable non-zombie \d+ found, state [^tT]"
"""States in which processes are only briefly, such as waiting for a disk."""


def is_stranger(pid: int, init: int) -> bool:
    """Whether a process (an id on the host) runs outside the PID namespace of `init`; 0 means no namespace."""
    try:
        return not init or os.readlink(f"/proc/{pid}/ns/pid") != os.readlink(f"/proc/{init}/ns/pid")
    except OSError:  # one has ended, or root of this machine may not look at it
        return os.path.exists(f"/proc/{pid}")


def held(log: str, init: int) -> list[int]:
    """Returns the processes of a sandbox that CRIU may have left its code in, or may not have detached from.

    `init`, the sandbox's PID 1, stands for a process that the log does not name. All ids are those of the host.
    """
    matches = [match for line in _complaints(log) if (match := _begins(_HELD, line))]
    pids = [int(match[1] or match[2] or init) for match in matches]
    return [pid for pid in pids if not is_stranger(pid, init)]


def _complaints(log: str) -> list[str]:
    """Returns the distinct errors in a log, without those that CRIU always reports when it lacks privileges."""
    return [message for message in dict.fromkeys(message for _, message in _errors(log)) if not _is_usual(message)]


def _errors(log: str) -> list[tuple[str, str]]:
    """Returns the errors in a log: the place in CRIU's source, and the text."""
    return [(match[1], match[2].strip()) for match in map(_ERROR.match, log.splitlines()) if match]


def _is_usual(message: str) -> bool:
    return bool(_begins(r"(?:rlimit: )?Can't setup RLIMIT_NOFILE|Failed to turn off repair mode on socket", message))


_ERROR = re.compile(r"(?:\([\d.]+\))?\s*(?:pie:\s*)?(?:\d+:\s*)?Error \(([\w./-]+:\d+)\): (.*)")
_FOLLOWS = re.compile(r"\(pid: \d+\) failed with|^(Dumping|Restoring) FAILED|cgroupd: recv|Rollback|Can't freeze")
"""Lines that only report the consequence of another error."""
_CULPRIT = (
    r"[A-Z][a-z ]+ \(pid: (\d{1,9})\) failed with|SEIZE (\d{1,9}):|Unseizable non-zombie (\d{1,9}) found"
    r"|Can't make \w+ id for (\d{1,9})$|ctty inheritance detected sid/pgrp -?\d+ \(ctty pid_real (\d{1,9})"
)
_HELD = r"Can't (?:cure|infect) \(pid: (\d{1,9})\)|Unable to detach from (\d{1,9})|Can't cure"


def _begins(pattern: str, line: str) -> re.Match[str] | None:
    """Matches a pattern at the beginning of a line, after the prefix of CRIU's component if there is one."""
    return re.match(rf"(?:[\w-]+:\s+)??(?:{pattern})", line)


def _culprits(lines: list[str]) -> list[int]:
    """Returns the processes that made a dump fail, as the host sees them."""
    matches = [_begins(_CULPRIT, line) for line in lines]
    return [int(group) for match in matches if match for group in match.groups() if group]


# -- sentences that need a look at the process -------------------------------------------------------------------------


def _tcp(match: re.Match[str], pid: int) -> str:
    return "has a connected TCP socket" + _descriptor(pid, _connected(pid))


def _listening(match: re.Match[str], pid: int) -> str:
    return "has TCP connections that wait to be accepted" + _descriptor(pid, {int(match[1], 16)})


def _unseizable(match: re.Match[str], pid: int) -> str:
    tracer = ""
    with contextlib.suppress(OSError):
        (tracer,) = status(pid, "TracerPid")
    if tracer not in ("", "0"):
        return f"is traced by {describe(int(tracer))}"
    if match[1] == "D":
        return "waits in the kernel for what does not come, such as the end of a child made by vfork()"
    return f"cannot be stopped (its state is {match[1]})"


def _stopped(match: re.Match[str], pid: int) -> str:
    wish = _TERMINAL_STOPS.get(match[1])
    return f"was stopped when it wanted to {wish} the terminal" if wish else f"was stopped by signal {match[1]}"


_RULES: tuple[tuple[str, str | _Sentence], ...] = (
    (r"Connected TCP socket", _tcp),
    (r"In-flight connection \(l\) for ([0-9a-f]+)", _listening),
    (r"Can't dump corked dgram socket", "has a UDP socket with a message that is not finished (UDP_CORK)"),
    (r"Unsupported proto 262 for socket", "has a socket of Multipath TCP"),
    (r"Unsupported proto (\d+) for socket", r"has a socket of protocol \1"),
    (r"(?:BUG! )?Unknown socket collected \(family (\d+)\)", r"has a socket of address family \1"),
    (r"netlink: The socket has data to read", "has a netlink socket with messages that wait to be read"),
    (r"skqueue: Control messages in queue", "has a Unix socket with control messages that wait to be read"),
    (
        r"(?:Non-empty )?write queue on an in-flight socket|Found a closed in-flight socket",
        "has connections to a Unix socket that wait to be accepted",
    ),
    (r"fsnotify:\s+Can't dump that handle", "watches files with inotify or fanotify"),
    (r"fsnotify:\s+An instance of inotify is on its way", "has sent an instance of inotify that is not received yet"),
    (r"Dump eventpoll \(pid: \d+\) failed", "has an epoll that watches a descriptor which the process has closed"),
    (r"Unseizable non-zombie \d+ found, state (\w)", _unseizable),
    (r"SEIZE \d+: unsupported stop signal (\d+)", _stopped),
    (r"Zombies with threads are not supported", "has ended while threads of it go on"),
    (r"Can't make (VM|FS|FILES|SIGHAND) id for", r"shares with another process what threads share (\1; made by clone)"),
    (r"The packetized mode for pipes", "has a pipe of packets (O_DIRECT)"),
    (r"ctty inheritance detected", "has the terminal of its session open as /dev/tty"),  # a CRIU without our additions
    (r"A terminal that is open as /dev/tty has hung up", "has /dev/tty open of a terminal that has hung up"),
    (r"The master of a terminal that is open as /dev/tty", "has /dev/tty open of a terminal of another sandbox"),
    (
        r"Data waits at a terminal of which nobody",
        "has a terminal with data that waits there, and of which nobody has opened the slave",
    ),
    (r"A terminal in packet mode has a status", "has a terminal in packet mode with a status that is not read yet"),
    (r"Can't get \d+:\d+ opt: Bad file descriptor", "holds a socket's file that was opened with O_PATH"),
    (r"Can't link remap to (.+?)(?:: [A-Z][^/]*)?$", r"uses \1, which was deleted or moved away"),
    (
        r"Can't create link remap for (.+?)\. Use link-remap option",
        r"uses \1, which was deleted or replaced and has another name still",
    ),
    (r"Can't lookup mount=\d+ for fd=(\d+) path=(.+)", r"has \2 open, which is no file of the sandbox (descriptor \1)"),
    (r"Can't dump file (\d+) of that type \[\w+\] \((?:\w+ )?(.+)\)", r"has \2 open (descriptor \1)"),
    (r"Unknown shit \d+ \((.+)\)", r"has mapped \1"),
)
"""The meaning of CRIU's lines: a pattern, and the rest of a sentence about the process."""


def _connected(pid: int) -> set[int]:
    """Returns the inodes of the TCP sockets in a process' network namespace that do not listen."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in itertools.islice(lines(f"/proc/{pid}/net/{table}"), 1, None):
                fields = line.split()
                if fields[3] != _LISTENING:
                    inodes.add(int(fields[9]))
    return inodes


def _descriptor(pid: int, inodes: set[int]) -> str:
    """Returns the first descriptor of a process that is one of these sockets: ` (descriptor 5)`; empty if none is."""
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(f"/proc/{pid}/fd"), key=int):
            target = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
            if target and int(target[1]) in inodes:
                return f" (descriptor {name})"
    return ""
