"""Calls that mean harm, by name, and what each returns; limits are those of `test_hostile_rollouts`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.helpers import asleep
from tvsnap.environments.terminal import LOST

SHORT = 3.0
"""Seconds for a call that is to time out."""
LONG = 60.0


@dataclass(frozen=True)
class Step:
    """A call and what it returns.

    Attributes:
        tool, arguments, timeout: the call.
        output: regular expression that all of the output matches.
        exit_code, timed_out, truncated: see `ToolResult`.
        busy: it times out while it works, so that it is not shared.
        varies: its output, or what it does to later calls, is chance.

    What may or may not be is None.
    """

    tool: str
    arguments: Mapping[str, Any]
    output: str = ""
    exit_code: int | None = 0
    timeout: float = LONG
    timed_out: bool = False
    truncated: bool | None = False
    busy: bool = False
    varies: bool = False


def bash(command: str, output: str = "", exit_code: int | None = 0, **more: Any) -> Step:
    """A call of `bash`; `output` is a regular expression."""
    return Step("bash", {"command": command}, output, exit_code, **more)


def execute(command: str, output: str = "", exit_code: int | None = 0, **more: Any) -> Step:
    """A call of `exec`."""
    return Step("exec", {"command": command}, output, exit_code, **more)


def hangs(command: str, output: str = "", *, busy: bool = False, tool: str = "bash", **more: Any) -> Step:
    """A call that its timeout ends."""
    return Step(tool, {"command": command}, output, None, SHORT, timed_out=True, busy=busy, **more)


def read(path: str, why: str) -> Step:
    """A call of `read_file` that fails."""
    return Step("read_file", {"path": path}, re.escape(f"read_file: {path}: {why}\n"), 1)


def write(path: str, why: str) -> Step:
    """A call of `write_file` that fails."""
    return Step("write_file", {"path": path, "content": "x"}, re.escape(f"write_file: {path}: {why}\n"), 1)


def keys(text: str, output: str = ".*", **more: Any) -> Step:
    """A call of `keys`."""
    return Step("keys", {"keys": text}, output, **more)


ENDED = re.escape(LOST)
ON = bash("echo on", "on\n")
"""The rollout goes on."""
KEPT = bash("echo $v", "kept\n")
"""It goes on in the same shell."""
MINE = "v=kept; "
FRESH = bash("echo [$v]; pwd", r"\[\]\n/app\n")
"""It goes on in another shell."""
SCREEN = Step("screen", {}, ".*")

MAP_IN_SHELL = """python3 -c '
import ctypes, os
libc, shell = ctypes.CDLL(None), os.getppid()
libc.ptrace.argtypes = ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p
was = (ctypes.c_uint64 * 27)()
assert libc.ptrace(0x4206, shell, None, None) == libc.ptrace(0x4207, shell, None, None) == 0
os.waitpid(shell, 0x40000000)
libc.ptrace(12, shell, None, was)
now = (ctypes.c_uint64 * 27)(*was)
now[16], now[15], now[10] = was[16] - 2, 2**64 - 1, 9  # mmap, in the instruction in which it waits
now[14], now[13], now[12], now[7], now[9], now[8] = 0, 32 << 40, 3, 0x4022, 2**64 - 1, 0
libc.ptrace(13, shell, None, now)
libc.ptrace(9, shell, None, None)
os.waitpid(shell, 0x40000000)
libc.ptrace(12, shell, None, now)
libc.ptrace(13, shell, None, was)
libc.ptrace(17, shell, None, None)
print(0 < now[10] < 1 << 47)
'"""
"""Has the shell map 32 TiB, which take no memory. Numbers are those of registers on x86-64, and of ptrace(2)."""
LONG_PATHS = """python3 -c '
import os
for _ in range(14): os.mkdir("d" * 250); os.chdir("d" * 250)
for number in range(4000): os.mknod(f"{number:0250}")
'"""
CHAIN = "; ".join(f"f{number}() {{ f{number + 1}; }}" for number in range(1500))

LIMITS: dict[str, tuple[Step, ...]] = {
    "shell that maps more than there is": (bash(MINE + MAP_IN_SHELL, "True\n"), KEPT, KEPT),
    "many long paths": (bash(MINE + LONG_PATHS), KEPT, KEPT),
    "functions that call each other": (bash(MINE + CHAIN), KEPT, KEPT),
    "command of many words": (bash(MINE + "alias;" * 10_000 + ":"), KEPT),
    "shell that stops as it tells its state": (
        bash("__tvsnap_state() { kill -STOP $$; }"),
        hangs("echo on", ENDED, busy=True),
        FRESH,
    ),
    "fork bomb": (bash(MINE + "b() { b | b & }; b; wait", ".*", varies=True), KEPT),
    "fork bomb with exec": (execute("bash -c 'b() { b | b & }; b; wait'; true", ".*", varies=True), ON),
    "fork bomb that does not end": (hangs("b() { b | b; }; while :; do b & done", ".*", busy=True, varies=True), ON),
    "memory hog": (bash(MINE + "python3 -c 'x = bytearray(1 << 30)'", exit_code=137), KEPT),
    "memory hog with exec": (execute("exec python3 -c 'x = bytearray(1 << 30)'", exit_code=137), ON),
    "memory hog in a memory file": (
        bash(
            MINE + "python3 -c 'import os; [os.write(f, bytes(1 << 20)) for f in [os.memfd_create(\"f\")] * 999]'",
            exit_code=137,
        ),
        KEPT,
    ),
    "memory hog in the shell": (bash("x=$(yes | head -c 1G)", ENDED, 137), FRESH),
    "many open files": (
        bash("ulimit -Sn 15000; for i in {1..10000}; do exec {n}< /dev/null; done; echo $((n > 10000))", "1\n"),
        ON,
    ),
    "process in many groups": (
        bash(
            MINE + "python3 -c 'import os, time; os.setgroups([60000 - i for i in range(50000)]); "
            'open("/tmp/in", "w"); time.sleep(1000)\' & until [ -e /tmp/in ]; do sleep 0.1; done'
        ),
        KEPT,
        KEPT,
    ),
    "processes with long command lines": (
        bash(
            MINE + 'for i in 1 2 3; do python3 -c \'import os; os.execv("/bin/sh", '
            '["sh", "-c", ": > /tmp/$0; read x < /dev/tty", str(os.getpid())] + ["x" * 120000] * 15)\' '
            "& done; until set -- /tmp/[0-9]*; [ $# = 3 ]; do sleep 0.1; done; set --",
        ),
        KEPT,
        KEPT,
    ),
    "shell without files": (hangs("ulimit -n 4", ".*", busy=True, truncated=None), FRESH),
    "shell without processes": (bash("ulimit -u 1"), hangs("ls", ".*", busy=True, varies=True), ON),
    "shell that may not write files": (bash(MINE + "ulimit -f 0; /bin/echo x > f", ".*", 153), KEPT),
    "shell without memory": (bash("ulimit -v 20000; x=$(yes | head -c 30M)", f"bash: x.*\n{ENDED}", 2), FRESH),
    "shell with more state than is taken": (
        bash("x=$(yes | head -c 9M); echo ${#x}", "9437183\n"),
        bash("echo ${#x}", f"0\n{ENDED}"),
    ),
}
OUTPUT: dict[str, tuple[Step, ...]] = {
    "endless output": (hangs("yes", "y\n.*", busy=True, truncated=True), ON),
    "endless output with exec": (hangs("yes", "y\n.*", tool="exec", busy=True, truncated=True), ON),
    "endless line": (hangs("tr '\\0' a < /dev/zero", r"a.*a\n?", busy=True, truncated=True), ON),
    "a million lines": (bash(MINE + "seq 1000000", "1\n2\n.*\n1000000\n", truncated=True), KEPT),
    "binary output": (bash("printf '\\0\\1\\377\\376\\233\\033[2J\\r\\n\\xc3'", "\0\1���\x1b\\[2J\n�"), ON),
    "output of a job after its call": (bash(MINE + "yes & echo began", ".*", truncated=None, varies=True), KEPT),
    "output of many jobs after their calls": (
        bash("for i in {1..20}; do yes & done; :", ".*", truncated=None, varies=True),
        ON,
    ),
    "output to the terminal without end": (
        bash(
            MINE + "(echo y > /dev/tty; : > up; exec yes > /dev/tty) & until [ -e up ]; do :; done; echo began",
            "began\n",
        ),
        KEPT,
        Step("screen", {}, "(y\n)+"),
        Step("keys", {"keys": "x", "wait": 0.5}, ".*", varies=True),
    ),
}
SHELL: dict[str, tuple[Step, ...]] = {
    "exit": (bash("exit 3", ENDED, 3), FRESH),
    "exit with exec": (execute("exit 3", "", 3), ON),
    "logout": (bash(MINE + "logout", "bash: logout: .*", 1), KEPT),
    "set -e": (bash("set -e; echo x; false", f"x\n{ENDED}", 1), FRESH),
    "no such option": (bash(MINE + "set -o nonesuch", "bash: .*", 2), KEPT),
    "closes its terminal": (bash(MINE + "exec 0<&- 1>&- 2>&-"), KEPT, SCREEN),
    "exec": (hangs("exec sleep 1000", ENDED), FRESH),
    "exec of something else": (bash("exec echo x", f"x\n{ENDED}"), FRESH),
    "kill of the shell": (bash("kill -9 $$", ENDED, 137), FRESH),
    "kill of the shell by exec": (
        execute("kill -9 $(pgrep -x -f bash)"),
        bash("echo [$v]", rf"\[\]\n{ENDED}"),
        FRESH,
    ),
    "kill of all from the shell": (bash(MINE + "sleep 1000 & kill -9 -1; echo on", "on\n"), KEPT),
    "kill of all from a child": (bash("sleep 1000 & bash -c 'kill -9 -1'; echo on", ENDED, 137), FRESH),
    "kill of all with exec": (execute("kill -9 -1; echo on", "on\n"), bash("echo on", f"on\n{ENDED}"), FRESH),
    "kill of the first process": (
        bash(MINE + "for s in {1..64}; do kill -$s 1 2> /dev/null; done; kill -9 1; echo $?", "0\n"),
        KEPT,
    ),
    "stops the shell": (hangs("kill -STOP $$", ENDED), FRESH),
    "stops itself": (bash(MINE + "bash -c 'kill -STOP $$'; echo $?", ".*147\n"), KEPT),
    "stops all": (hangs(MINE + "sleep 1000 & kill -STOP -1; bash -c 'kill -STOP -1'", f"(.*{ENDED})?"), ON),
    "changes the terminal": (bash(MINE + "stty raw -echo < /dev/tty"), KEPT, keys("x")),
    "has no working directory": (
        bash(MINE + "mkdir -p /tmp/d/e; cd /tmp/d/e; rm -rf /tmp/d"),
        bash("echo $v; pwd", "kept\n/tmp/d/e\n"),
        execute("pwd", "/app\n"),
        read("x", "No such file or directory"),
    ),
    "ends as it starts": (
        bash("echo 'exit 7' >> ~/.bashrc; exit", ENDED),
        bash(
            "echo on", rf"no shell: /bin/bash ended before it was ready, exit status 7 \(~/\.bashrc\?\)\n{ENDED}", 127
        ),
        execute("sed -i '$d' ~/.bashrc"),
        bash("echo on", f"on\n(?:{ENDED})?"),
    ),
    "hangs as it starts": (
        bash("echo 'while :; do :; done' >> ~/.bashrc; exit", ENDED),
        hangs("echo on", f"(.*{ENDED})?", busy=True),
        execute("sed -i '$d' ~/.bashrc"),
    ),
}
TAMPERING: dict[str, tuple[Step, ...]] = {
    "readonly prompt": (bash(MINE + "readonly PROMPT_COMMAND=false"), KEPT),
    "prompt of its own": (bash(MINE + "PROMPT_COMMAND='exit 5'; PS1='$(exit)'"), KEPT),
    "aliases": (bash(MINE + "shopt -s expand_aliases; alias builtin=false eval=false exec=false if=false"), KEPT),
    "functions": (
        bash(MINE + 'for f in read printf eval exec declare set jobs; do eval "$f() { return 9; }"; done', "", 9),
        KEPT,
    ),
    "function builtin": (hangs("builtin() { :; }", ENDED, busy=True), FRESH),
    "trap that loops": (hangs("trap 'while :; do :; done' DEBUG", ENDED, busy=True), FRESH),
    "trap that exits": (bash("trap 'exit 5' DEBUG", ENDED, 5), FRESH),
    "trap that ignores": (hangs(MINE + "trap '' TERM INT HUP QUIT TSTP; sleep 1000", f"(?:{ENDED})?"), ON),
    "child that ignores": (
        hangs(MINE + "bash -c \"trap '' TERM INT HUP QUIT TSTP; while :; do sleep 1; done\"", varies=True),
        KEPT,
    ),
    "readonly variables of the loop": (
        bash("readonly __tvsnap_s __tvsnap_m __tvsnap_c"),
        bash("echo on", f".*was ended\n{ENDED}", 137),
        FRESH,
    ),
    "functions of the loop": (
        bash("__tvsnap_wait() { return 0; }; __tvsnap_state() { yes; }"),
        bash("echo on", f"on\n{ENDED}"),
        FRESH,
    ),
    "output that is no FIFO": (bash(MINE + "rm -f /run/tvsnap/out; mkdir -p /run/tvsnap/out/x"), KEPT),
    "output read by another": (
        bash(MINE + f"cat /run/tvsnap/out > /dev/null & {asleep('cat')}", ".*"),
        bash(":", ".*"),
    ),
    "startup file": (bash("echo 'exit 9' > /run/tvsnap/rc; exit 4", ENDED, 4), FRESH),
    "program": (
        bash("rm /run/tvsnap/init; printf '#!/bin/sh\\necho no' > /run/tvsnap/init; chmod +x /run/tvsnap/init"),
        Step("write_file", {"path": "/tmp/x", "content": "x"}, "wrote 1 bytes to /tmp/x\n"),
        Step("read_file", {"path": "/tmp/x"}, "x"),
    ),
    "socket": (bash(MINE + "rm /run/tvsnap/control; mkfifo /run/tvsnap/control"), KEPT),
    "socket of its own": (
        bash(
            MINE + "cd /run/tvsnap; rm control; python3 -c 'import socket, time; s = socket.socket(socket.AF_UNIX); "
            's.bind("control"); s.listen(); open("/tmp/up", "w"); time.sleep(999)\' & '
            "until [ -e /tmp/up ]; do :; done; cd /app"
        ),
        KEPT,
    ),
    "no directory": (bash(MINE + "rm -rf /run"), KEPT, execute("ls /run", "tvsnap\n")),
    "no directory, again and again": (
        # The shell may not get to open its output before that is deleted, time after time.
        bash(MINE + "(while :; do rm -rf /run/tvsnap; done) > /dev/null 2>&1 &", varies=True),
        Step("exec", {"command": "echo on"}, "on\n"),
    ),
    "file in place of the directory": (bash(MINE + "rm -rf /run; echo x > /run"), KEPT, execute("ls /run", "tvsnap\n")),
    "link in place of the directory": (bash(MINE + "rm -rf /run; ln -s /tmp /run"), KEPT),
}
FILES: dict[str, tuple[Step, ...]] = {
    "no files": (
        bash(MINE + "rm -rf --no-preserve-root / 2> /dev/null; echo $?", "1\n"),
        bash("echo $v /*", "kept /dev /proc /run\n"),
        execute("echo on", "/bin/bash: No such file or directory\n", 127),
        read("/etc/passwd", "No such file or directory"),
        Step("write_file", {"path": "/etc/passwd", "content": "x"}, "wrote 1 bytes to /etc/passwd\n"),
        KEPT,
    ),
    "no files and no shell": (
        bash("rm -rf --no-preserve-root / 2> /dev/null; exit 3", ENDED, 3),
        bash("echo on", f"no shell: /bin/bash: No such file or directory\n{ENDED}", 127),
        Step("write_file", {"path": "/f", "content": "x"}, "wrote 1 bytes to /f\n"),
        Step("read_file", {"path": "/f"}, "x"),
    ),
    "another shell": (
        bash(MINE + "rm /bin/bash; printf '#!/bin/cat\\nfake\\n' > /bin/bash; chmod +x /bin/bash"),
        KEPT,
        execute("echo on", "#!/bin/cat\nfake\n/bin/bash: -c: .*|.*cat: .*", 1),
        bash("exit 3", ENDED, 3),
        bash("echo on", f"no shell: /bin/bash ended before it was ready, exit status 1 .*{ENDED}", 127),
    ),
    "a shell that is none": (
        bash("rm /bin/bash; echo junk > /bin/bash; chmod +x /bin/bash; exit 3", ENDED, 3),
        bash("echo on", f"no shell: /bin/bash cannot be executed\n{ENDED}", 127),
    ),
    "links in circles": (
        bash("cd /tmp; ln -s a b; ln -s b a; ln -s . self; cat a", "cat: a: Too many levels of symbolic links\n", 1),
        read("/tmp/a", "Too many levels of symbolic links"),
        write("/tmp/a", "Too many levels of symbolic links"),
        ON,
    ),
    "deep directories": (
        bash(
            "d=$(printf 'd%.0s' {1..200}); for i in {1..25}; do mkdir $d; cd $d; done; pwd | wc -c; cd /app", "5030\n"
        ),
        ON,
    ),
    "names": (bash("cd /tmp; touch $'a\\nb' $'\\e[2J' $'\\xff'; ls | wc -l", "4\n"), ON),
    "special files": (
        bash("mkfifo /tmp/fifo"),
        read("/tmp/fifo", "Invalid argument"),
        write("/tmp/fifo", "Invalid argument"),
        read("/dev/zero", "Invalid argument"),
        write("/dev/full", "Invalid argument"),
        read("/run/tvsnap/out", "Invalid argument"),
        Step("write_file", {"path": "/run/tvsnap/out", "content": "x"}, "write_file: .*", 1),
        read("/", "Is a directory"),
        Step("read_file", {"path": "/proc/1/mem"}, "read_file: .*", 1),
        Step("write_file", {"path": "/proc/1/mem", "content": "x"}, "write_file: .*", 1),
        ON,
    ),
}
PROCESSES: dict[str, tuple[Step, ...]] = {
    "daemons": (
        bash(MINE + "(setsid bash -c 'trap \"\" TERM HUP INT; (sleep 1000 &) & wait; sleep 1001' > /dev/null 2>&1 &)"),
        KEPT,
    ),
    "daemons that outlive a timeout": (
        hangs(MINE + "(setsid sleep 1234 &); setsid -f sleep 1234; sleep 1235"),
        bash("pgrep -fc 'sleep 123[4]'", "0\n", 1),
        KEPT,
    ),
    "program that ignores its timeout": (
        hangs("exec python3 -c 'import signal, time; signal.pthread_sigmask(0, range(1, 32)); time.sleep(99)'", ".*"),
        FRESH,
    ),
    "exec that ignores its timeout": (
        hangs("trap '' TERM INT HUP; (setsid sleep 1234 &); sleep 1235", tool="exec"),
        bash("pgrep -fc 'sleep 123[4]'", "0\n", 1),
    ),
}
TEXT: dict[str, tuple[Step, ...]] = {
    "long command": (
        bash(f": {'a' * 1_000_000}; echo on", "on\n"),
        ON,
        execute(f": {'a' * 1_000_000}; echo on", "on\n"),
    ),
    "command that is no UTF-8": (bash("echo $'\\xff\\xfe' | wc -c; $'\\xff'", "3\nbash: .*", 127), ON),
    "command of control characters": (bash("echo '\x03\x04\x1a\x1b[2J'", "\x03\x04\x1a\x1b\\[2J\n"), ON),
    "terminal as large as can be": (bash("stty rows 65000 cols 65000 < /dev/tty"), SCREEN, keys("echo on\n", ".*on.*")),
    "terminal as small as can be": (bash("stty rows 1 cols 1 < /dev/tty"), SCREEN, ON),
    "sequences that no terminal knows": (
        bash("printf '\\e[1;2;3A\\e[?25n\\e[%05000dA\\e[²A\\e]52;c;eA==\\a\\eP+q\\e\\\\seen\\n' 9 > /dev/tty"),
        Step("screen", {}, ".*seen\n"),
        ON,
    ),
    "a heap of accents": (
        bash('python3 -c \'print("a" + "\\u0301" * 100000)\' > /dev/tty'),
        Step("screen", {}, ".{1,20}\n"),
        ON,
    ),
}
ON_DOCKER = (
    "fork bomb",
    "memory hog",
    "kill of all with exec",
    "stops the shell",
    "startup file",
    "program",
    "no directory",
    "no files and no shell",
)
"""Those that are made on the Docker backend too: what differs there is how PID 1 is reached, and snapshots."""
HOSTILE = {**LIMITS, **OUTPUT, **SHELL, **TAMPERING, **FILES, **PROCESSES, **TEXT}
