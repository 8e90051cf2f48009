"""What a sandbox may send to the host, made wrong at random: each reader must stay within bounds and say what it means.

`TARGETS` are the readers of bytes that come from inside, with examples of what is right. Examples are mutated, and each
reader may return whatever it likes, or raise one of tvsnap's own errors; anything else is a finding, and so is more
memory or time than `MEMORY` and `PATIENCE`. `python -m tests.fuzz.interfaces --seconds 600` goes on for long.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tvsnap.environments.screen import render
from tvsnap.environments.service import parse_answer
from tvsnap.guest import protocol
from tvsnap.guest.protocol import Guest
from tvsnap.model.errors import TvsnapError
from tvsnap.model.limits import MIB
from tvsnap.model.observations import TerminalBytes
from tvsnap.sandboxes import shell_report
from tvsnap.sandboxes.criu import excess, refusals
from tvsnap.sandboxes.kernel import process_report, procfs
from tvsnap.sandboxes.looks import observing
from tvsnap.sandboxes.network.dns_questions import NoQuestion, Question
from tvsnap.sandboxes.repairs import inotify
from tvsnap.sandboxes.repairs.all import Noted
from tvsnap.sandboxes.repairs.directory_times import Directories, DirectoryTimes
from tvsnap.sandboxes.repairs.processors import Affinities, Bound
from tvsnap.sandboxes.repairs.sockets import Sockets
from tvsnap.sandboxes.sealing import reading
from tvsnap.sandboxes.shell.dump import NotUnderstood, parse_dump

MEMORY = 512 * MIB
"""Bytes of address space beyond what a process has at first."""
PATIENCE = 5.0
"""Seconds of processor time for one input."""
LONGEST = 1 << 19
"""Bytes of an input."""
ERRORS = (TvsnapError, NotUnderstood, NoQuestion, OSError)

TOKENS = (
    b"\0", b"\n", b"\r", b" ", b"\1", b"\x1b[", b"\xff\xfe", b"'", b'"', b"$'", b"\\", b"(", b"{", b"[", b"-1", b"0x",
    b"9" * 30, b"9" * 5000, b"\xf0\x9f\x98\x80", b"null", b"NaN", b"1e999", b"%s", b"\x1b[999999999;999999999H", b"=",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """A reader.

    Attributes:
        examples: of what it should be given.
        read: reads.
    """

    examples: tuple[bytes, ...]
    read: Callable[[bytes], object]


def _frame(kind: bytes, payload: bytes) -> bytes:
    return struct.pack("<I", len(payload) + 1) + kind + payload


def _with_guest(ask: Callable[[Guest], object]) -> Callable[[bytes], object]:
    """Returns a reader that asks a PID 1 which answers with the bytes, and ends."""

    def read(data: bytes) -> object:
        ours, theirs = socket.socketpair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LONGEST)
        guest = Guest(ours)
        try:
            with theirs:
                theirs.setblocking(False)
                theirs.send(data)
                theirs.shutdown(socket.SHUT_WR)
                return ask(guest)
        finally:
            guest.abandon()

    return read


def _screen(data: bytes) -> object:
    return render(TerminalBytes(data, 80, 24))


def _with_file(look: Callable[[str], object]) -> Callable[[bytes], object]:
    """Returns a reader of what a file of /proc says, given its path."""

    def read(data: bytes) -> object:
        with open(os.memfd_create("proc"), "r+b", buffering=0) as file:
            file.write(data)
            return look(f"/proc/self/fd/{file.fileno()}")

    return read


def _question(data: bytes) -> object:
    asked = Question(data)
    return asked.address, asked.answer("A", "192.0.2.1") if asked.wants_address else asked.answer_nothing()


def _manifest(data: bytes) -> object:
    """Past its checksum, which lets through what another version of tvsnap wrote."""
    with reading("snapshot"):
        try:
            values = json.loads(data)
        except RecursionError:
            return None
        return Noted.from_json(values)


_QUESTION = (
    b"\xab\xcd\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1",
    b"\xab\xcd\1\0\0\1\0\0\0\0\0\0\0011\0012\0013\0014\7in-addr\4arpa\0\0\14\0\1",
)
_MANIFEST = json.dumps(
    Noted(
        (Sockets(connections=True), Affinities((Bound((1, 2), (0, 1)),)), Directories((DirectoryTimes("/tmp", 1, 2),)))
    ).to_json()
).encode()
_MAPS = (
    b"7f0000000000-7f0000400000 rw-s 00000000 00:01 1042                       /dev/zero (deleted)\n"
    b"7f0000400000-7f0000500000 r--p 00000000 fe:00 77                         /tmp/a b (deleted)\n"
)
_MARKS = (
    b"pos:\t0\nflags:\t02000000\ninotify wd:1 ino:4e2 sdev:1c mask:fc6 ignored_mask:0 fhandle-bytes:8 fhandle-type:1\n"
)


_END = _frame(b"X", b"0 1234 5 0 0 0")
_SHELL = (
    b'declare -- x="1"\ndeclare -a y=([0]="a" [1]="b c")\ndeclare -x PATH="/usr/bin"\n'
    b"\1functions\nf () \n{ \n    echo 1\n}\n"
    b"\1aliases\nalias ll='ls -l'\n\1traps\ntrap -- 'echo' EXIT\n\1options\nset +o posix\n\1clock\n1 2\n3 4\n"
)
_LOG = (
    b"(00.012345) Error (criu/sk-inet.c:200): inet: Connected TCP socket, consider using --tcp-established option.\n"
    b"(00.012346) Error (criu/cr-dump.c:1545): Dump files (pid: 1) failed with -1\n"
    b"     1: Error (criu/files-reg.c:2592): No entry for reg-file-ID 0x31\n",
    b"Error (criu/files-reg.c:1931): Can't link remap to /etc/vim: Operation not permitted\n"
    b"Error (criu/sk-inet.c:185): inet: In-flight connection (l) for dad849\nError (criu/x.c:1): Can't cure (pid: 1)\n",
)
_PROCESSES = b"shell 9 8 0 ff 0 none none\x000 0 02 /dev/null\n\x0012 1 S 77 88 4096 none none\0sleep 1000\0"
_ENTRIES = b"/app/f\x00100644 0 0 5 1 2 3 4 5 0 0 \0/app\x0040755 0 0 5 1 2 3 4 5 1 0 00ff\0"
_ANSWER = json.dumps({"columns": ["a"], "rows": [[1, None, "x"]], "error": None, "known": {"names": ["t"]}}).encode()

TARGETS: dict[str, Target] = {
    "output": Target((_frame(b"O", b"hello\n") + _END, _END), _with_guest(lambda guest: guest.run(b"true", 1.0, 1000))),
    "information": Target(
        (_frame(b"I", b"9 1 0 7-%b 4 1 %b 1" % (b"0f" * 32, b"a5" * 32)),), _with_guest(lambda guest: guest.info())
    ),
    "terminal": Target((_frame(b"W", b"80 24") + _frame(b"T", b"shown"),), _with_guest(lambda guest: guest.terminal())),
    "state": Target((_frame(b"D", _SHELL), _frame(b"L", b"")), _with_guest(lambda guest: guest.shell_state(0.0))),
    "waits": Target((_frame(b"H", b"1"),), _with_guest(lambda guest: guest.data_waits([1], [2]))),
    "fingerprint of a shell": Target((_SHELL,), shell_report.shell_fingerprint),
    "items of a shell": Target((_SHELL,), lambda data: dict(shell_report.shell_items(data))),
    "what a shell hides": Target((_SHELL,), shell_report.shell_hidden),
    "shell that is to be made again": Target((_SHELL,), parse_dump),
    "processes": Target((_PROCESSES,), process_report.parse_processes),
    "files": Target((_ENTRIES,), lambda data: list(observing.parse_entries(data))),
    "screen": Target((b"one\r\n\x1b[31mtwo\x1b[2;3H\x1b[?1049h", "é漢\x1b]0;title\x07".encode()), _screen),
    "reason of CRIU's": Target(_LOG, lambda data: refusals.reason(data.decode(errors="replace"), 0)),
    "cause of CRIU's": Target(_LOG, lambda data: refusals.cause(data.decode(errors="replace"))),
    "processes that CRIU holds": Target(_LOG, lambda data: refusals.held(data.decode(errors="replace"), 0)),
    "question about a name": Target(_QUESTION, _question),
    "manifest": Target((_MANIFEST,), _manifest),
    "mappings": Target((_MAPS,), lambda data: [found.groups() for found in excess.UNNAMED.finditer(data)]),
    "lines of /proc": Target((_MAPS, _MARKS), _with_file(lambda path: list(procfs.lines(path)))),
    "watches": Target((_MARKS,), _with_file(lambda path: list(inotify.marks(path)))),
    "answer of a database": Target((_ANSWER, b'{"broken": "x"}'), lambda data: parse_answer(data, "sql")),
}


def mutated(chance: random.Random, examples: tuple[bytes, ...]) -> bytes:
    """Returns an example, made wrong in a few places."""
    data = bytearray(chance.choice(examples))
    for _ in range(chance.choice((1, 1, 2, 3, 8, 30))):
        at = chance.randrange(len(data) + 1)
        upto = min(len(data), at + chance.choice((1, 2, 4, 16, 200)))
        kind = chance.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at:upto]
        elif kind == 2:
            data[at:at] = bytes(data[at:upto]) * chance.choice((1, 2, 50, 5000, 50_000))
        elif kind == 3:
            data[at:at] = chance.choice(TOKENS) * chance.choice((1, 1, 3, 1000))
        elif kind == 4:
            data[at:upto] = chance.choice(TOKENS)
        else:
            data[at:at] = chance.choice(examples)
        del data[LONGEST:]
    return bytes(data)


def inputs(seed: int) -> Iterator[tuple[str, bytes]]:
    """Yields inputs without end: the target's name, and the bytes."""
    chance = random.Random(seed)
    while True:
        for name, target in TARGETS.items():
            yield name, mutated(chance, target.examples)


def complaint(name: str, data: bytes) -> str:
    """Lets a target read; returns what is wrong, in words, or nothing."""
    began = time.process_time()
    try:
        TARGETS[name].read(data)
    except ERRORS as error:
        if len(str(error)) > 20_000:
            return f"the error has {len(str(error))} characters"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    took = time.process_time() - began
    return f"it took {took:.1f} s of processor time" if took > PATIENCE else ""


def main() -> int:
    """Goes on until the time is over; returns the exit status: 0, or 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.interfaces", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="inputs for each target, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    protocol.GRACE = 1.0
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    end = time.monotonic() + options.seconds
    found: dict[tuple[str, str], bytes] = {}
    for number, (name, data) in enumerate(inputs(options.seed)):
        if time.monotonic() > end or number >= options.rounds * len(TARGETS):
            print(f"seed {options.seed}: {number} inputs, {len(found)} findings")
            break
        said = complaint(name, data)
        kind = name, said.partition(":")[0]
        if said and kind not in found:
            found[kind] = data
            print(f"{name}: {said}\n  {data[:200]!r} ({len(data)} bytes)", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
