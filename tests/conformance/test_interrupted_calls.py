"""System calls that wait while their process is checkpointed go on waiting: in the sandbox that goes on, and in forks.

CRIU alone has many of them fail with EINTR, which few programs expect that have set no signal handler.
"""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.conformance.helpers import Lab, asleep, eventually, sh, usable
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.protocol import Sandbox

# Name -> a C expression that waits MS milliseconds, or for ever if that is -1, and then is what the call returned.
TIMED = {
    "clock_nanosleep": "clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL)",
    "clock_nanosleep with rest": "clock_nanosleep(CLOCK_REALTIME, 0, &ts, &rest)",
    "epoll_pwait": "epoll_pwait(ep, &event, 1, ms, &none)",
    "epoll_pwait2": "syscall(441, ep, &event, 1, &ts, NULL, 0)",
    "epoll_wait": "epoll_wait(ep, &event, 1, ms)",
    "futex": "syscall(SYS_futex, &word, 128, 0, &ts, NULL, 0)",
    "nanosleep": "nanosleep(&ts, NULL)",
    "nanosleep with rest": "nanosleep(&ts, &rest)",
    "poll": "poll(NULL, 0, ms)",
    "ppoll": "ppoll(NULL, 0, &ts, NULL)",
    "select": "select(0, NULL, NULL, NULL, &tv)",
    "sem_timedwait": "(clock_gettime(CLOCK_REALTIME, &rest), rest.tv_sec += ts.tv_sec, sem_timedwait(&sem, &rest))",
    "sigtimedwait": "sigtimedwait(&usr1, NULL, &ts)",
    "sleep": "sleep(ms / 1000)",
    "usleep": "usleep(ms * 1000)",
}
FOR_EVER = {
    "accept with a timeout": "accept(listening, NULL, NULL)",
    "clock_nanosleep": "clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){1L << 62}, NULL)",
    "epoll_wait": "epoll_wait(ep, &event, 1, -1)",
    "poll": "poll(NULL, 0, -1)",
    "read": "read(pipes[0], &word, 1)",
    "recv with a timeout": "recv(unbound, &word, 1, 0)",
    "sigwaitinfo": "sigwaitinfo(&usr1, NULL)",
}
PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int ms;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void *wait_once(void *number) {
    struct timespec ts = {ms / 1000, 0}, rest;
    struct timeval tv = {ms / 1000, 0}, long_wait = {1000, 0};
    struct epoll_event event;
    sigset_t usr1, none;
    sem_t sem;
    int word = 0, pipes[2], ep = epoll_create1(0);
    int listening = socket(AF_UNIX, SOCK_STREAM, 0), unbound = socket(AF_INET, SOCK_DGRAM, 0);
    double began = now();
    long result = -2;
    sigemptyset(&none), sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1), sem_init(&sem, 0, 0), pipe(pipes);
    bind(listening, &(struct sockaddr){AF_UNIX}, sizeof(sa_family_t)), listen(listening, 1);
    setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &long_wait, sizeof long_wait);
    setsockopt(unbound, SOL_SOCKET, SO_RCVTIMEO, &long_wait, sizeof long_wait);
    errno = 0;
    switch (*(int *)number) {
    @CASES@
    }
    printf("%d %ld %d %.2f\n", *(int *)number, result, errno, now() - began);
    return fflush(stdout), NULL;
}
int main(int argc, char **argv) {
    static int numbers[@COUNT@];
    pthread_t threads[@COUNT@];
    sigset_t usr1;
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1), sigprocmask(SIG_BLOCK, &usr1, NULL);
    ms = argc > 1 ? atoi(argv[1]) : -1;
    for (int i = 0; i < @COUNT@; i++) numbers[i] = i, pthread_create(&threads[i], NULL, wait_once, &numbers[i]);
    for (int i = 0; i < @COUNT@; i++) pthread_join(threads[i], NULL);
    return 0;
}
"""


def start(sandbox: Sandbox, cases: dict[str, str], seconds: int) -> list[str]:
    """Starts a program with a thread for each case, which tells /tmp/log when its wait is over; returns their names."""
    names = sorted(cases)
    lines = "\n".join(f"case {number}: result = {cases[name]}; break;" for number, name in enumerate(names))
    program = PROGRAM.replace("@CASES@", lines).replace("@COUNT@", str(len(names)))
    sandbox.write_file("/tmp/w.c", program.encode())
    assert sh(sandbox, "gcc -o /tmp/w /tmp/w.c -pthread && echo built") == "built\n"
    sh(sandbox, f"/tmp/w {seconds * 1000} > /tmp/log &")
    waiting = f"{len(names) + 1}\n"  # the threads, and the one that joins them
    eventually(lambda: sh(sandbox, "cat /proc/$!/task/*/status | grep -c '^State:.S'") == waiting)
    sh(sandbox, "sleep 0.2")
    return names


def ended(sandbox: Sandbox, names: list[str]) -> dict[str, tuple[int, int, float]]:
    """Returns, for each wait that is over, what the call returned, the error, and seconds that it took."""
    lines = [line.split() for line in sh(sandbox, "cat /tmp/log").splitlines()]
    return {names[int(number)]: (int(result), int(error), float(took)) for number, result, error, took in lines}


def all_ended(sandbox: Sandbox, names: list[str]) -> bool:
    return len(ended(sandbox, names)) == len(names)


def is_there(sandbox: Sandbox, path: str) -> bool:
    return sh(sandbox, f"test -e {path}; echo $?") == "0\n"


@pytest.mark.parametrize("cases", [TIMED, FOR_EVER], ids=["with a timeout", "for ever"])
def test_none_ends(local_lab: Lab, cases: dict[str, str]) -> None:
    sandbox = local_lab.start()
    names = start(sandbox, cases, 1000)
    for _ in range(3):
        snapshot = local_lab.checkpoint(sandbox)
        assert ended(sandbox, names) == {}
    fork = local_lab.fork(snapshot)
    time.sleep(0.2)
    assert ended(fork, names) == {}
    again = local_lab.fork_of(fork)
    time.sleep(0.2)
    assert ended(again, names) == {}
    assert sh(again, "ls /proc/$!/task | wc -l") == f"{len(names) + 1}\n"


def test_each_ends_in_time(local_lab: Lab) -> None:
    """Whatever was taken meanwhile. What the program's waits share is how long it stood still in a fork's snapshot."""
    sandbox = local_lab.start()
    names, began = start(sandbox, TIMED, 12), time.monotonic()
    for _ in range(5):
        local_lab.checkpoint(sandbox)
    time.sleep(max(0.0, began + 5.0 - time.monotonic()))  # a wait that began anew would be that much longer
    snapshot = local_lab.checkpoint(sandbox)
    fork = local_lab.fork(snapshot)
    for each in (sandbox, fork):
        eventually(partial(all_ended, each, names))
        found = ended(each, names)
        assert {name: seen for name, seen in found.items() if seen[1] == 4} == {}, "EINTR"
        lengths = {name: took for name, (_, _, took) in found.items()}
        assert min(lengths.values()) >= 11.5, lengths
        # A time of day that is waited for comes, whatever the clock of a fork says of the time that it stood still.
        until = lengths.pop("sem_timedwait")
        assert until < min(lengths.values()) + 1.0, lengths
        assert max(lengths.values()) - min(lengths.values()) < 1.0, lengths


def test_a_signal_still_interrupts(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    program = "$SIG{USR1} = sub { }; open F, q(>/tmp/ready); $r = sleep 1000; open F, q(>/tmp/woken); sleep 1000"
    sh(sandbox, f"perl -e '{program}' & until [ -e /tmp/ready ]; do sleep 0.02; done")
    fork = local_lab.fork_of(sandbox)
    for each in (sandbox, fork):
        assert not is_there(each, "/tmp/woken")
        sh(each, f"{asleep('perl')}; kill -USR1 $!")
        eventually(partial(is_there, each, "/tmp/woken"))


TERMINAL = (
    "import termios; a, b = os.openpty(); modes = termios.tcgetattr(b); modes[3] &= ~(termios.ICANON | termios.ECHO); "
    "its = lambda modes: termios.tcsetattr(b, 0, modes); "
)
CUT_SHORT = {
    "write": "a, b = os.pipe(); done(os.write(b, bytes(200000)))",
    "send": "a, b = socket.socketpair(); done(a.send(bytes(10 ** 7)))",
    "sendmsg": "a, b = socket.socketpair(); done(a.sendmsg([bytes(10 ** 7)]))",
    "recv of all": "a, b = socket.socketpair(); b.send(b'abc'); done(a.recv(10, socket.MSG_WAITALL))",
    "connect": "a, b, c = (socket.socket(socket.AF_UNIX) for _ in range(3)); a.bind(chr(0) + 'a'); a.listen(0); "
    "b.connect(chr(0) + 'a'); c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bytes([99] + 15 * [0])); "
    "done(c.connect(chr(0) + 'a'))",
    "read of several keys": TERMINAL
    + "modes[6][termios.VMIN] = 5; its(modes); os.write(a, b'abc'); done(os.read(b, 9))",
}
NOT_CUT_SHORT = {
    "short write": "a, b = os.pipe(); os.write(b, bytes(65536)); done(os.write(b, b'x' * 4096))",
    "read": "a, b = os.pipe(); done(os.read(a, 10))",
    "read of a key": TERMINAL + "its(modes); done(os.read(b, 9))",
}


@pytest.mark.needs_processes
@pytest.mark.parametrize("call", CUT_SHORT.values(), ids=CUT_SHORT)
def test_a_call_that_a_snapshot_would_cut_short(lab: Lab, sandbox: Sandbox, call: str) -> None:
    """It is refused before anything is stopped, and the call goes on."""
    waiting(sandbox, call)
    with pytest.raises(NotCheckpointable, match=r"\(python3 waits.py\) .* which a snapshot would cut short"):
        lab.checkpoint(sandbox)
    assert sh(sandbox, "ls") == "waits.py\n"
    sh(sandbox, "kill -9 %1; wait; rm waits.py")
    usable(lab.fork_of(sandbox))


def test_a_process_that_cannot_be_stopped(local_lab: Lab) -> None:
    """No signal reaches who waits for a child of vfork, and CRIU would wait for it for 10 s."""
    sandbox = local_lab.start()
    program = b"import ctypes, time\nif ctypes.CDLL(None).vfork() == 0: time.sleep(1000)\n"
    sandbox.write_file("/app/waits.py", program)
    sh(sandbox, "python3 waits.py &")
    eventually(lambda: sh(sandbox, "cat /proc/$!/syscall").startswith(("58 ", "220 ")))
    with pytest.raises(
        NotCheckpointable, match=r"\(python3 waits.py\) waits for a child that uses its memory \(vfork\)"
    ):
        local_lab.checkpoint(sandbox)
    usable(sandbox)


@pytest.mark.parametrize("call", NOT_CUT_SHORT.values(), ids=NOT_CUT_SHORT)
def test_a_call_that_begins_again(local_lab: Lab, call: str) -> None:
    sandbox = local_lab.start()
    waiting(sandbox, call)
    for each in (local_lab.fork_of(sandbox), sandbox):
        assert sh(each, "ls") == "waits.py\n"


def waiting(sandbox: Sandbox, call: str) -> None:
    """Starts a program that is in a call as its only thread."""
    program = f"import os, socket\ndef done(result): open('done', 'w').write(repr(result))\n{call}"
    sandbox.write_file("/app/waits.py", program.encode())
    sh(sandbox, "python3 waits.py &")
    blocked = ("0", "1", "42", "44", "45", "46")
    eventually(lambda: sh(sandbox, "cat /proc/$!/syscall").partition(" ")[0] in blocked)
    eventually(lambda: sh(sandbox, "cat /proc/$!/stat").rpartition(")")[2].split()[0] == "S")
