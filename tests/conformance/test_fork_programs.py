"""Forks of live programs: editors, interpreters, servers and whatever else holds state in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.helpers import TIMEOUT, Lab, commands, eventually, job, keys, screen, settled, sh, usable
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.protocol import Sandbox

pytestmark = pytest.mark.needs_processes

WAIT_FOR_READY = "for i in $(seq 900); do [ -e ready ] && break; sleep 0.05; done; [ -e ready ]"
WAIT_FOR_REPORT = "until [ -s report ]; do sleep 0.05; done"

COUNTING_SERVER = """
import os, socket, sys
if sys.argv[1] == "unix":
    server = socket.socket(socket.AF_UNIX)
    server.bind("counter.sock")
elif sys.argv[1] == "abstract":
    server = socket.socket(socket.AF_UNIX)
    server.bind("\\0counter")
else:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", 8123))
server.listen()
open("ready", "w").close()
count = 0
while True:
    connection, _ = server.accept()
    count += int(connection.recv(100))
    connection.sendall(b"%d" % count)
    connection.close()
"""

CLIENT = """
import socket, sys
kind, amount = sys.argv[1:]
address = {"unix": "counter.sock", "abstract": "\\0counter", "tcp": ("127.0.0.1", 8123)}[kind]
client = socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX)
client.connect(address)
client.sendall(amount.encode())
print(client.recv(100).decode())
"""


def start_job(sandbox: Sandbox, program: str, arguments: str = "") -> None:
    """Runs a Python program as a background job and waits until it made the file `ready`."""
    sandbox.write_file("job.py", program.encode())
    sh(sandbox, f"python3 job.py {arguments} > job.log 2>&1 &")
    sh(sandbox, f"{WAIT_FOR_READY} || cat job.log", timeout=120)
    assert sh(sandbox, "cat job.log") == ""


@pytest.mark.parametrize("kind", ["unix", "abstract", "tcp"])
def test_server_answers_in_each_fork(lab: Lab, sandbox: Sandbox, kind: str) -> None:
    sandbox.write_file("client.py", CLIENT.encode())
    start_job(sandbox, COUNTING_SERVER, kind)
    assert sh(sandbox, f"python3 client.py {kind} 5") == "5\n"
    snapshot = lab.checkpoint(sandbox)
    first, second = lab.fork(snapshot), lab.fork(snapshot)
    assert sh(first, f"python3 client.py {kind} 10") == "15\n"
    assert sh(second, f"python3 client.py {kind} 100") == "105\n"
    assert sh(sandbox, f"python3 client.py {kind} 1000") == "1005\n"
    assert sh(first, f"python3 client.py {kind} 1") == "16\n"
    assert sh(lab.fork_of(second), f"python3 client.py {kind} 1") == "106\n"


def test_established_connection(lab: Lab, sandbox: Sandbox) -> None:
    program = """
import socket, time
server = socket.socket()
server.bind(("127.0.0.1", 8124))
server.listen()
client = socket.create_connection(("127.0.0.1", 8124))
peer, _ = server.accept()
client.sendall(b"under way")
open("ready", "w").close()
number = 0
while True:
    number += 1
    client.sendall(b".")
    with open("heard", "a") as log:
        log.write(peer.recv(100).decode())
    time.sleep(0.05)
"""
    start_job(sandbox, program)
    forks, refusal = [], ""
    try:
        forks = [lab.fork_of(sandbox)]
    except NotCheckpointable as refused:  # allowed, if it says so and leaves the connection alone
        refusal = str(refused)
    assert forks or "TCP" in refusal
    for fork in (*forks, sandbox):
        before = len(fork.read_file("heard"))
        eventually(lambda fork=fork, before=before: len(fork.read_file("heard")) > before + 3)  # type: ignore[misc]
        assert sh(fork, "cat heard; cat job.log").replace(".", "") == "under way"


def test_memory_and_files_are_of_one_moment(lab: Lab, sandbox: Sandbox) -> None:
    program = """
import os
log = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
number = 0
while number < 2_000_000:
    number += 1
    os.write(log, b"%d\\n" % number)
    if number == 1000: open("ready", "w").close()
"""
    start_job(sandbox, program)
    forks = [lab.fork_of(sandbox) for _ in range(3)]
    for fork in [*forks, sandbox]:
        sh(fork, "kill -STOP $!")
    for fork in [*forks, sandbox]:
        check = "import itertools; print(all(int(a) == b for a, b in zip(open('log'), itertools.count(1))))"
        assert sh(fork, f'python3 -c "{check}"; kill -9 $! 2>/dev/null; true') == "True\n"  # it may have ended


def test_large_heap_and_threads(lab: Lab, sandbox: Sandbox) -> None:
    program = """
import hashlib, signal, threading, time, os
heap = bytearray(os.urandom(1 << 20) * 48)
digest = hashlib.sha256(heap).hexdigest()
ticks = [0]
def tick():
    while True:
        ticks[0] += 1
        time.sleep(0.01)
def report(*_):
    same = hashlib.sha256(heap).hexdigest() == digest
    before = ticks[0]
    while ticks[0] == before: time.sleep(0.01)
    open("report", "w").write(f"{same} {threading.active_count()}")
signal.signal(signal.SIGUSR1, report)
for _ in range(3): threading.Thread(target=tick, daemon=True).start()
open("ready", "w").close()
while True: time.sleep(100)
"""
    start_job(sandbox, program)
    snapshot = lab.checkpoint(sandbox)
    for fork in (lab.fork(snapshot), lab.fork(snapshot), sandbox):
        sh(fork, f"kill -USR1 $!; {WAIT_FOR_REPORT}")
        assert sh(fork, "cat report") == "True 4"


def test_kernel_objects(lab: Lab, sandbox: Sandbox) -> None:
    """Pipes with data in them, epoll, eventfd, timers, locks, a deleted file, a memfd, a child to wait for."""
    program = """
import fcntl, mmap, os, select, signal, socket, subprocess, tempfile, time
r, w = os.pipe(); os.write(w, b"in the pipe")
a, b = socket.socketpair(); a.sendall(b"in the socket")
poll = select.epoll(); poll.register(b, select.EPOLLIN)
deleted = open("deleted", "w+"); deleted.write("still here"); deleted.flush(); os.unlink("deleted")
locked = open("locked", "w"); fcntl.flock(locked, fcntl.LOCK_EX)
shared = mmap.mmap(-1, 4096); shared[:6] = b"shared"
child = subprocess.Popen(["sleep", "3000"])
fired = []
signal.signal(signal.SIGALRM, lambda *_: fired.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
def report(*_):
    deleted.seek(0)
    child.kill()
    while not fired: time.sleep(0.01)
    parts = [os.read(r, 100).decode(), len(poll.poll(1)), b.recv(100).decode(), deleted.read(), shared[:6].decode(),
             child.wait()]
    open("report", "w").write(repr(parts))
signal.signal(signal.SIGUSR1, report)
open("ready", "w").close()
while True: time.sleep(100)
"""
    start_job(sandbox, program)
    snapshot = lab.checkpoint(sandbox)
    for fork in (lab.fork(snapshot), sandbox):
        assert sh(fork, "flock -n locked true; echo $?") == "1\n"
        sh(fork, f"kill -USR1 $!; {WAIT_FOR_REPORT}")
        expected = ["in the pipe", 1, "in the socket", "still here", "shared", -9]
        assert sh(fork, "cat report; cat job.log") == repr(expected)


def test_pipeline_and_coprocess(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "coproc CALC { while read -r line; do echo $((line * 2)); done; }; echo 4 >&${CALC[1]}")
    fork = lab.fork_of(sandbox)
    for each in (fork, sandbox):
        assert sh(each, "read -r x <&${CALC[0]}; echo $x; echo 21 >&${CALC[1]}; read -r x <&${CALC[0]}; echo $x") == (
            "8\n42\n"
        )


def test_python_prompt(lab: Lab, sandbox: Sandbox) -> None:
    keys(sandbox, "python3 -q\r", shows=">>> ")
    keys(sandbox, "x = 40\r", shows=">>> ")
    snapshot = lab.checkpoint(sandbox)
    first, second = lab.fork(snapshot), lab.fork(snapshot)
    keys(first, "x += 2; print('is', x)\r", shows="is 42")
    keys(second, "x += 3; print('is', x)\r", shows="is 43")
    keys(sandbox, "print('is', x)\r", shows="is 40")
    for fork in (first, second, sandbox):
        fork.send_keys(b"exit()\r", wait=2)
        eventually(lambda fork=fork: "python3" not in commands(fork))  # type: ignore[misc]
        usable(fork)


def test_vim_half_way_through_an_edit(lab: Lab, sandbox: Sandbox) -> None:
    sandbox.write_file("notes.txt", b"first line\n")
    keys(sandbox, "vim -n notes.txt\r", shows="first line")
    sandbox.send_keys(b"ohello", wait=1)
    snapshot = lab.checkpoint(sandbox)
    first, second = lab.fork(snapshot), lab.fork(snapshot)
    for editor, text in ((first, " one"), (second, " two"), (sandbox, " origin")):
        editor.send_keys(text.encode(), wait=1)
        editor.send_keys(b"\x1b:wq\r", wait=2)
        eventually(lambda editor=editor: "vim" not in commands(editor))  # type: ignore[misc]
        assert editor.read_file("notes.txt").decode() == f"first line\nhello{text}\n"
        usable(editor)


def test_tmux_with_two_panes(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "tmux new-session -d -s main -x 80 -y 24; tmux split-window -t main")
    sh(
        sandbox,
        "tmux send-keys -t main.0 'A=zero; touch set0' Enter; tmux send-keys -t main.1 'B=one; touch set1' Enter",
    )
    sh(sandbox, "until [ -e set0 -a -e set1 ]; do sleep 0.05; done")
    snapshot = lab.checkpoint(sandbox)
    for fork in (lab.fork(snapshot), lab.fork(snapshot), sandbox):
        sh(fork, "tmux send-keys -t main.0 'echo $A > pane0' Enter; tmux send-keys -t main.1 'echo $B > pane1' Enter")
        sh(fork, "until [ -s pane0 -a -s pane1 ]; do sleep 0.05; done")
        assert sh(fork, "cat pane0 pane1; tmux list-panes -t main | wc -l") == "zero\none\n2\n"


def test_tmux_that_is_attached(lab: Lab, sandbox: Sandbox) -> None:
    sandbox.send_keys(b"tmux new-session -s main\r", wait=2)
    eventually(lambda: "[main]" in screen(sandbox) or "main" in screen(sandbox).rpartition("[")[2])
    sandbox.send_keys(b"C=kept\r", wait=1)
    fork = lab.fork_of(sandbox)
    for each, name in ((fork, "fork"), (sandbox, "origin")):
        each.send_keys(f"echo $C-{name} > said\r".encode(), wait=1)
        look = "until [ -s said ]; do sleep 0.05; done; cat said"
        assert each.exec(look, timeout=60).output.decode() == f"kept-{name}\n"


def test_less_half_way_down(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "seq 1000 1999 > numbers")
    keys(sandbox, "less numbers\r", shows="1010")
    keys(sandbox, "500g", shows="1499")
    fork = lab.fork_of(sandbox)
    keys(fork, "G", shows="1999")
    assert "1999" not in screen(sandbox)
    fork.send_keys(b"q", wait=1)
    eventually(lambda: "less" not in commands(fork))
    usable(fork)


def test_keys_typed_but_not_entered(lab: Lab, sandbox: Sandbox) -> None:
    sandbox.send_keys(b"echo ab", wait=0.5)
    fork = lab.fork_of(sandbox)
    keys(fork, "cd\r", shows="abcd")


def test_shell_driven_by_keys_is_the_persistent_shell(sandbox: Sandbox) -> None:
    keys(sandbox, "typed=7; echo val-$typed\r", shows="val-7")
    assert sh(sandbox, "echo $typed") == "7\n"


def test_terminal_size_survives(lab: Lab, sandbox: Sandbox) -> None:
    size = sh(sandbox, "stty size < /dev/tty")
    terminal = sandbox.terminal()
    assert size == f"{terminal.rows} {terminal.columns}\n"
    assert sh(lab.fork_of(sandbox), "stty size < /dev/tty") == size


def test_terminal_contents_survive(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "echo on-the-screen > /dev/tty")
    eventually(lambda: "on-the-screen" in screen(sandbox))
    fork = lab.fork_of(sandbox)
    assert "on-the-screen" in screen(fork)


def test_stopped_job(lab: Lab, sandbox: Sandbox) -> None:
    job(sandbox, "sleep 1000")  # one that is stopped while it becomes this program stays so
    sh(sandbox, "kill -STOP $!; until grep -q ') T ' /proc/$!/stat; do sleep 0.02; done")
    if lab.backend.name == "docker":  # its CRIU would wait for ever for a process that is both stopped and frozen
        with pytest.raises(NotCheckpointable, match=r"stopped jobs .* in a container"):
            lab.checkpoint(sandbox)
        usable(sandbox)
        return
    fork = lab.fork_of(sandbox)
    go_on = "kill -CONT $!; until grep -q ') S ' /proc/$!/stat; do sleep 0.02; done"
    assert sh(fork, f"{go_on}; kill $!; wait $! 2> /dev/null; echo $?") == "143\n"


def test_daemon_and_orphans(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "(setsid bash -c 'sleep 1111 & sleep 2222' > /dev/null 2>&1 < /dev/null &)")
    both = {"sleep 1111", "sleep 2222"}
    eventually(lambda: both <= set(commands(sandbox).split("\n")))
    fork = lab.fork_of(sandbox)
    assert both <= set(commands(fork).split("\n"))
    assert "sleep" not in commands(lab.start())


def may_read_limits() -> bool:
    """Whether root of this machine has CAP_SYS_RESOURCE, which an engine's CRIU needs for processes of other users."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.split("CapEff:")[1].split()[0], 16) >> 24 & 1)


def test_processes_of_other_users(lab: Lab, sandbox: Sandbox) -> None:
    sandbox.exec("sleep 1111 > /dev/null 2>&1 &", timeout=TIMEOUT, user="nobody")
    eventually(lambda: "sleep 1111" in commands(sandbox))
    if lab.backend.name == "docker" and not may_read_limits():
        with pytest.raises(NotCheckpointable, match="rlimit"):
            lab.checkpoint(sandbox)
        return
    fork = lab.fork_of(sandbox)
    assert sh(fork, "stat -c %U /proc/$(pgrep -f 'sleep 1111')") == "nobody\n"


def test_executable_that_was_deleted(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "cp /bin/sleep ./mine; ./mine 1000 & until [ /proc/$!/exe -ef mine ]; do sleep 0.02; done; rm mine")
    fork = lab.fork_of(sandbox)
    assert sh(fork, "kill -0 $!; echo $?") == "0\n"


def test_changed_while_running_in_memory(lab: Lab, sandbox: Sandbox) -> None:
    """A fork's origin goes on from where it was, not from where the fork went."""
    sh(sandbox, "n=0; while true; do n=$((n + 1)); echo $n >> n; sleep 0.05; done &")
    sh(sandbox, "until [ -s n ]; do sleep 0.05; done")
    fork = lab.fork_of(sandbox)
    sandbox.close()
    before = counted(fork)
    eventually(lambda: counted(fork) > before + 3)
    third = lab.fork_of(fork)
    assert counted(third) > before + 3


def counted(sandbox: Sandbox) -> int:
    """Returns the last number in the file `n`, in which each is written at once."""
    return int(sandbox.read_file("n").split()[-1])


def shown(lab: Lab, sandbox: Sandbox, command: str, timeout: float = TIMEOUT) -> tuple[str, str]:
    """Returns what a command shows in a fork, and in the original."""
    fork = lab.fork_of(sandbox)
    return sh(fork, command, timeout), sh(sandbox, command, timeout)


def test_jobs_keep_their_terminal(lab: Lab) -> None:
    sandbox = lab.start()
    program = "until [ -e go ]; do sleep 0.1; done; echo heard > /dev/tty && echo $? > said"
    sandbox.write_file("/tmp/talker", program.encode())
    sh(sandbox, "sleep 1000 & bash /tmp/talker &")
    settled(sandbox, "sleep 1000")
    settled(sandbox, "bash /tmp/talker")
    # A copy of itself, in which a shell is about to start a program, has its arguments.
    listed = "ps -o tty=,args= > ps; grep -E '1000|/talker' ps | sort -u; touch go; wait %2; cat said"
    there, here = shown(lab, sandbox, listed)
    assert there == here
    assert "pts/0    sleep 1000\n" in here
    assert here.endswith("0\n")


def test_a_job_that_reads_the_terminal_is_stopped(lab: Lab) -> None:
    sandbox = lab.start()
    sandbox.write_file("/tmp/reader", b"until [ -e go ]; do sleep 0.1; done; read -r x")
    job(sandbox, "bash /tmp/reader")
    there, here = shown(lab, sandbox, "touch go; until ps -o stat= -p $! | grep T; do sleep 0.1; done")
    assert there == here == "T\n"


def test_a_shell_in_a_shell_of_tmux_controls_its_jobs(lab: Lab) -> None:
    sandbox = lab.start()
    sh(sandbox, "tmux new-session -d -s m -x 80 -y 15; tmux send-keys -t m 'PS1= bash --norc' Enter")
    eventually(lambda: "bash --norc" in commands(sandbox))
    look = "sleep 1; tmux send-keys -t m 'clear; sleep 500' Enter; until pgrep -x -f 'sleep 500' > /dev/null; do "
    look += "sleep 0.1; done; tmux send-keys -t m C-c; tmux send-keys -t m 'echo $((40 + 2))' Enter; "
    look += "until tmux capture-pane -p -t m | grep -qx 42; do sleep 0.1; done; pgrep -c -x -f 'sleep 500'"
    there, here = shown(lab, sandbox, look)
    assert there == here == "0\n"


@pytest.mark.parametrize("prepare", ["", "stty cols 132 < /dev/tty"], ids=["usual size", "other size"])
def test_a_fork_tells_no_program_of_a_new_size(lab: Lab, prepare: str) -> None:
    sandbox = lab.start()
    pane = "trap 'echo inner >> /tmp/told' WINCH; touch ready"
    sandbox.write_file("/tmp/pane", pane.encode())
    sh(sandbox, f"{prepare}\ntmux new-session -d -s m -x 100 -y 30; tmux send-keys -t m '. /tmp/pane' Enter")
    sh(sandbox, "until [ -e ready ]; do sleep 0.1; done; trap 'echo outer >> /tmp/told' WINCH")
    look = "tmux send-keys -t m 'touch seen' Enter; until [ -e seen ]; do sleep 0.1; done; cat /tmp/told"
    there, here = shown(lab, sandbox, look)
    assert there == here == "cat: /tmp/told: No such file or directory\n"


READERS = """
sleep 500; read -r a; echo "<$a>"; cat > note; read -r b; echo "<$b>"
"""
"""Lines, one that ends with the end of the input (^D), and one that has no Enter yet."""


def test_what_was_typed_and_not_read_yet(lab: Lab) -> None:
    """It is there, once, and as it was typed; also after several snapshots, and in forks of forks."""
    sandbox = lab.start()
    sandbox.write_file("/tmp/readers", READERS.encode())
    keys(sandbox, "clear; bash /tmp/readers\n", shows="readers")
    settled(sandbox, "sleep 500")
    keys(sandbox, "first\nnote\x04\x04ha", shows="ha")
    shown = screen(sandbox)
    fork = lab.fork_of(lab.fork_of(sandbox))
    for each in (fork, sandbox):
        assert screen(each) == shown
        each.exec("pkill -x sleep", timeout=30)
        eventually(lambda each=each: "<first>" in screen(each))  # type: ignore[misc]
        keys(each, "lf\n", shows="<half>")
        assert each.exec("cat /app/note", timeout=30).output == b"note"
    eventually(lambda: screen(fork) == screen(sandbox))  # which both end with the prompt


REMADE = {
    "deleted file": "echo a > f; exec 9<> f; rm f",
    "deleted file with another name": "echo a > f; ln f ../kept; exec 9<> f; rm f",
    "deleted file of a directory that is gone": "mkdir e; echo a > e/f; exec 9<> e/f; rm -r e",
    "deleted file of the image": "cd /usr/share/doc/tree; exec 9< copyright; rm copyright",
    "name with an end of line": "echo a > $'f\\n'; exec 9<> $'f\\n'; rm $'f\\n'",
    "replaced log": "bash -c 'exec > log; touch ../ready; while read -t 1000 x; do :; done < ../fifo' & "
    "until [ -e ../ready ]; do sleep 0.02; done; echo new > new; mv new log",
    "replaced program": "cp /bin/sleep mine; ./mine 1000 & until [ /proc/$!/exe -ef mine ]; do sleep 0.02; done; "
    "cp mine new; mv new mine",
    "replaced program with another name": "cp /bin/sleep mine; ./mine 1000 & "
    "until [ /proc/$!/exe -ef mine ]; do sleep 0.02; done; ln mine ../kept; cp mine new; mv new mine",
    "deleted directory": "mkdir e; cd e; rmdir ../e",
    "socket": "python3 -c 'import socket, time; s = socket.socket(1); s.bind(\"s\"); s.listen(); time.sleep(1000)' & "
    "until [ -e s ]; do sleep 0.02; done",
}
"""What CRIU makes names for once more when it restores processes."""


@pytest.mark.parametrize("command", REMADE.values(), ids=REMADE)
def test_a_directory_in_which_criu_makes_names_is_as_old_as_it_was(lab: Lab, sandbox: Sandbox, command: str) -> None:
    sh(sandbox, "mkdir -p /tmp/x/d; mkfifo /tmp/x/fifo; exec 8<> /tmp/x/fifo; cd /tmp/x/d")
    sh(sandbox, f"{command}\nwhere=$(pwd)", timeout=60)
    look = "stat -c '%n %y' / /tmp/x /tmp/x/d /usr/share/doc/tree; ls -A /tmp/x/d /usr/share/doc/tree"
    before = sh(sandbox, look)
    if lab.backend.name == "docker" and ("kept" in command or "copyright" in command):
        with pytest.raises(NotCheckpointable, match="has another name still"):  # engines do not ask CRIU for that
            lab.checkpoint(sandbox)
        return
    there, here = shown(lab, sandbox, look)
    assert here == before
    assert there == before
