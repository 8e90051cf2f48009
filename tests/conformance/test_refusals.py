"""What of live processes is captured, and what is refused with the reason: never anything in between.

The local backend alone: these are CRIU's matters, and an engine's CRIU is driven by the engine.
"""

from __future__ import annotations

import re

import pytest

from tests.conformance.helpers import Lab, commands, eventually, job, settled, sh, usable
from tests.conformance.jobs import REPORTING, report_of, start
from tvsnap.model.errors import NotCheckpointable, NotRestorable
from tvsnap.sandboxes.criu import copied_up, excess
from tvsnap.sandboxes.kernel import procfs
from tvsnap.sandboxes.protocol import Sandbox
from tvsnap.sandboxes.repairs import watches

# A connection that is not accepted, and one that is.
TCP = "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); "
ACCEPTED = TCP + "p, _ = s.accept(); "
# An instance of inotify, and what is told of its watches.
WATCH = "i = libc.inotify_init(); watch = lambda path, mask=0xfff: libc.inotify_add_watch(i, path.encode(), mask); "
MARKS = "[line.split()[1:5:3] for line in open('/proc/self/fdinfo/%d' % i) if line.startswith('inotify')]"
# Maps so many bytes in a way that Python's module does not offer, or without a descriptor of its own for the file.
MAP = (
    "libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long; "
    "libc.mmap.restype = ctypes.c_void_p; map = lambda size, flags, file=-1: libc.mmap(None, size, 3, flags, file, 0); "
)

# Name -> what sets it up, and what a report of it is, in the original and in a fork.
CAPTURED = {
    "unix seqpackets": (
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); a.send(b'one'); a.send(b'two')",
        "b.recv(9), b.recv(9)",
    ),
    "descriptors in flight": (
        "a, b = socket.socketpair(); r, w = os.pipe(); os.write(w, b'piped'); socket.send_fds(a, [b'm'], [r]); "
        "os.close(r)",
        "os.read(socket.recv_fds(b, 9, 1)[1][0], 9)",
    ),
    "last words of a peer": (
        "a, b = socket.socketpair(); a.send(b'last words'); a.close()",
        "b.recv(99), b.recv(99)",
    ),
    "udp": (
        "a = socket.socket(type=socket.SOCK_DGRAM); a.bind(('127.0.0.1', 9100)); "
        "b = socket.socket(type=socket.SOCK_DGRAM); b.connect(a.getsockname()); b.send(b'x'); a.recv(9)",
        "b.send(b'y'), a.recv(9)",
    ),
    "tcp": (
        ACCEPTED + "c.setsockopt(6, 1, 1); c.setsockopt(1, 9, 1); c.setsockopt(6, 4, 33); s.close()",
        "c.send(b'a'), p.recv(9), p.send(b'b'), c.recv(9), attempt(c.recv, 9, 64), c.getsockname(), p.getpeername(), "
        "[x.getsockopt(*option) for x in (c, p) for option in ((6, 1), (1, 9), (6, 4), (1, 2), (1, 15), (1, 7), "
        "(1, 8), (6, 13, 16), (6, 10), (0, 1), (0, 2), (1, 13, 8), (1, 72))]",
    ),
    "tcp of ipv6": (
        "s = socket.create_server(('::1', 0), family=10); c = socket.create_connection(s.getsockname()[:2]); "
        "p, _ = s.accept(); c.send(b'x')",
        "p.recv(9), p.send(b'y'), c.recv(9), c.getsockname(), p.getpeername()",
    ),
    "tcp of both families": (
        "s = socket.create_server(('::', 0), family=10, dualstack_ipv6=True); "
        "c = socket.create_connection(('127.0.0.1', s.getsockname()[1])); p, _ = s.accept(); p.send(b'x')",
        "c.recv(9), c.send(b'y'), p.recv(9), c.getsockname(), p.getpeername()",
    ),
    "tcp with all that there is room for": (
        ACCEPTED + "n, m = fill(c), fill(p); c.shutdown(1)",
        "drain(p, n), p.recv(9), drain(c, m), n, m, attempt(c.send, b'x'), p.close(), c.recv(9)",
    ),
    "tcp with little data": (
        ACCEPTED + "c.setsockopt(6, 3, 1); c.send(b'corked'); p.send(b'one'); p.send(b'two')",
        "c.setsockopt(6, 3, 0), p.recv(9), c.recv(9)",
    ),
    "last words of a tcp peer": (
        ACCEPTED + "c.send(b'last words'); c.close(); until(lambda: hangs_up(p))",
        "p.recv(99), p.recv(99), attempt(p.send, b'x'), attempt(p.send, b'x')",
    ),
    "half closed tcp": (
        ACCEPTED + "c.shutdown(1); until(lambda: hangs_up(p))",
        "p.recv(9), p.send(b'x'), c.recv(9), p.close(), c.recv(9), attempt(c.send, b'x')",
    ),
    "tcp that is not read": (
        ACCEPTED + "c.shutdown(0); p.send(b'x')",
        "c.recv(9), c.recv(9), c.send(b'y'), p.recv(9), hangs_up(c), hangs_up(p)",
    ),
    "a thread that reads tcp": (
        ACCEPTED + "got = []; threading.Thread(target=lambda: got.append(p.recv(9)), daemon=True).start()",
        "c.send(b'z'), until(lambda: got), got",
    ),
    "an epoll of tcp": (
        ACCEPTED + "e = select.epoll(); e.register(p, select.EPOLLIN); e.register(c, select.EPOLLIN); c.send(b'x')",
        "len(e.poll(9)), p.recv(9), len(e.poll(0)), p.send(b'y'), len(e.poll(9)), c.recv(9)",
    ),
    "tcp that is not accepted": (
        TCP + "time.sleep(0.02); d = socket.create_connection(s.getsockname()); time.sleep(0.02); "
        "f = socket.create_connection(s.getsockname()); f.shutdown(1); time.sleep(0.02); "
        "socket.create_connection(s.getsockname()).close()",
        "[s.accept()[1] == x.getsockname() for x in (c, d, f)], s.accept()[0].recv(9), s.setblocking(False), "
        "attempt(s.accept)",
    ),
    "tcp of children": (
        ACCEPTED + "q = child(lambda: [p.send(p.recv(9)) for _ in iter(int, 1)])",
        "c.send(b'x'), c.recv(9), os.kill(q, 9), os.waitpid(q, 0)[1], p.send(b'z'), c.recv(9)",
    ),
    "threads that are bound to processors": (
        "most = sorted(os.sched_getaffinity(0)); q = child(lambda: os.sched_setaffinity(0, most[-1:])); "
        "until(lambda: os.sched_getaffinity(q) == {*most[-1:]}); "
        "t = threading.Thread(target=time.sleep, args=[1000], daemon=True); t.start(); "
        "os.sched_setaffinity(t.native_id, most[:1])",
        "[os.sched_getaffinity(pid) for pid in (0, q, t.native_id)]",
    ),
    "filters of core dumps and timer slacks": (
        "f = 'coredump_filter'; q = child(lambda: [open(f'/proc/self/{f}', 'w').write('0x7f'), libc.prctl(29, 1)]); "
        "until(lambda: int(open(f'/proc/{q}/{f}').read(), 16) == 0x7f); open(f'/proc/self/{f}', 'w').write('0x31'); "
        "asked, told = threading.Event(), threading.Event(); got = []\n"
        "def slack():\n libc.prctl(29, 77777); told.set(); asked.wait(); got.append(libc.prctl(30)); told.set()\n"
        "t = threading.Thread(target=slack, daemon=True); t.start(); told.wait(); told.clear(); libc.prctl(29, 60000)",
        "[int(open(f'/proc/{pid}/{f}').read(), 16) for pid in ('self', q, 1)], libc.prctl(30), asked.set(), "
        "told.wait(), got",
    ),
    "nested epolls": (
        "r, w = os.pipe(); inner, outer = select.epoll(), select.epoll(); inner.register(r, select.EPOLLIN); "
        "outer.register(inner, select.EPOLLIN); os.write(w, b'x')",
        "len(outer.poll(0)), len(inner.poll(0))",
    ),
    "timerfd and signalfd": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); "
        "s = libc.signalfd(-1, struct.pack('Q', 1 << signal.SIGUSR2 - 1), 0); os.kill(ME, signal.SIGUSR2); "
        "t = libc.timerfd_create(1, 0); libc.timerfd_settime(t, 0, struct.pack('4l', 0, 1000, 0, 1000), 0); "
        "until(lambda: select.select([t], [], [], 0)[0])",
        "os.read(s, 128)[0], os.read(t, 8) > bytes(8)",
    ),
    "timers for a moment": (
        "clocks = time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME\n"
        "def arm(clock, left, flags=1):\n"
        " t, at = libc.timerfd_create(clock, 0), time.clock_gettime_ns(clock) + left\n"
        " libc.timerfd_settime(t, flags, struct.pack('4l', 0, 0, *divmod(at, 10 ** 9)), 0)\n"
        " return t, clock, at\n"
        "timers = [arm(clock, left) for clock in clocks for left in (9999 * 10 ** 8, 10 ** 12)]\n"
        "timers.append(arm(clocks[0], 10 ** 12, 3)); rung = [arm(clock, -1)[0] for clock in clocks]\n"
        "select.select(rung[:1], [], []); os.read(rung[0], 8)\n"
        "def left(t):\n"
        " got = ctypes.create_string_buffer(32); libc.timerfd_gettime(t, got)\n"
        " seconds, ns = struct.unpack('16x2l', got.raw); return seconds * 10 ** 9 + ns\n"
        "def flags(t): return open(f'/proc/self/fdinfo/{t}').read().split('settime flags: ')[1].split()[0]",
        # Never early; a fork's rings later by as much as the fork was made later.
        "[time.clock_gettime_ns(clock) + left(t) >= at - 10 ** 6 for t, clock, at in timers], "
        "[flags(t) for t, *_ in timers], [(left(t), bool(select.select([t], [], [], 0)[0])) for t in rung]",
    ),
    "sealed memfd": (
        "m = os.memfd_create('x', os.MFD_ALLOW_SEALING); os.write(m, b'sealed'); fcntl.fcntl(m, 1033, 14)",
        "attempt(os.write, m, b'x'), os.pread(m, 9, 0)",
    ),
    "pidfds": (
        "p = child(lambda: None); f = os.pidfd_open(p)",
        "signal.pidfd_send_signal(f, 9), os.waitstatus_to_exitcode(os.waitpid(p, 0)[1])",
    ),
    "zombies": (
        "p = child(lambda: os._exit(7)); q = child(lambda: None); os.kill(q, 9); "
        "until(lambda: state(p) + state(q) == 'ZZ')",
        "[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (p, q)]",
    ),
    "a stopped process": ("p = stopped()", "state(p), os.kill(p, 9), os.waitpid(p, 0)[1]"),
    "waiting signals": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [40, 41]); libc.sigqueue(ME, 40, ctypes.c_void_p(77)); "
        "os.kill(ME, 41)",
        "sorted(signal.sigpending())",
    ),
    "timers": (
        "fired = []; signal.signal(signal.SIGVTALRM, lambda *_: fired.append(1)); "
        "signal.setitimer(signal.ITIMER_VIRTUAL, 500, 7); signal.setitimer(signal.ITIMER_REAL, 1000, 50)",
        "signal.getitimer(signal.ITIMER_VIRTUAL)[1], signal.getitimer(signal.ITIMER_REAL)[0] > 500",
    ),
    "a session without its leader": (
        "r, w = os.pipe()\ndef lead():\n os.setsid()\n os.write(w, str(child(lambda: None)).encode())\n os._exit(0)\n"
        "p = child(lead); m = int(os.read(r, 9)); os.waitpid(p, 0)",
        "os.getsid(m) == p, os.getpgid(m) == p",
    ),
    "a terminal of its own": (
        "m, s = os.openpty(); fcntl.ioctl(s, 0x5414, struct.pack('4H', 11, 22, 0, 0)); os.write(m, b'typed\\n')",
        "fcntl.ioctl(m, 0x5413, bytes(8)), os.read(s, 9)",
    ),
    "a deleted directory": (
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
        "attempt(os.getcwd), os.readlink('/proc/self/cwd')",
    ),
    "deleted files": (
        "f = open('deleted', 'w+'); f.write('kept'); f.flush(); os.link('deleted', 'other'); os.unlink('deleted'); "
        "os.makedirs('x/y'); g = open('x/y/z', 'w+'); g.write('too'); g.flush(); os.unlink('x/y/z'); "
        "os.rmdir('x/y'); os.rmdir('x')",
        "os.pread(f.fileno(), 9, 0), open('other').read(), os.pread(g.fileno(), 9, 0), os.path.exists('x')",
    ),
    "a file replaced while open": (
        "f = open('old', 'w+'); f.write('old'); f.flush(); os.unlink('old'); open('old', 'w').write('new')",
        "os.pread(f.fileno(), 9, 0), open('old').read()",
    ),
    "an image file replaced while open": (
        "f = open('/etc/bash.bashrc'); m = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE); m[:4] = b'MINE'; "
        "open('fresh', 'w').write('fresh'); os.rename('fresh', '/etc/bash.bashrc')",
        "f.read(10), m[:8], open('/etc/bash.bashrc').read()",
    ),
    "an image file copied up while mapped": (
        "f = open('/etc/profile', 'rb'); m = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE); n = mmap.mmap(f.fileno(), 0, "
        "mmap.MAP_SHARED, mmap.PROT_READ); m[:4] = b'MINE'; os.chmod('/etc/profile', 0o640)",
        "m[:20], n[:20], os.stat('/etc/profile').st_mode",
    ),
    "locks": (
        "f = open('locked', 'w'); fcntl.flock(f, fcntl.LOCK_EX); g = open('region', 'w'); "
        "fcntl.lockf(g, fcntl.LOCK_EX, 10, 5); h = open('ofd', 'w'); "
        "fcntl.fcntl(h, 37, struct.pack('hhqqixxxx', 1, 0, 0, 100, 0))",
        "attempt(fcntl.flock, open('locked'), 6), "
        "fcntl.fcntl(open('ofd', 'r+'), 36, struct.pack('hhqqixxxx', 1, 0, 0, 100, 0))[:24]",
    ),
    "shared memory": (
        "m = mmap.mmap(-1, 8192); m[:3] = b'one'; p = child(lambda: m.__setitem__(5000, 65)); until(lambda: m[5000]); "
        "libc.shmat.restype = ctypes.c_void_p; i = libc.shmget(77, 8192, 0o1666); v = libc.shmat(i, None, 0); "
        "ctypes.memset(v, 66, 9); open('/dev/shm/posix', 'w').write('psx')",
        "m[:3], m[5000], ctypes.string_at(v, 3), open('/dev/shm/posix').read()",
    ),
    "semaphores and messages of System V": (
        "s = libc.semget(5, 3, 0o1666); libc.semctl(s, 1, 16, 42); q = libc.msgget(6, 0o1666); "
        "libc.msgsnd(q, struct.pack('l', 9) + b'message', 7, 0); b = ctypes.create_string_buffer(99)",
        "libc.semctl(s, 1, 12), libc.msgrcv(q, b, 90, 0, 0), b.raw[8:15]",
    ),
    "pipes and fifos": (
        "r, w = os.pipe(); fcntl.fcntl(w, 1031, 1 << 18); os.write(w, bytes(200000)); os.mkfifo('fifo'); "
        "f = os.open('fifo', os.O_RDWR); os.write(f, b'held'); os.unlink('fifo')",
        "fcntl.fcntl(w, 1032), len(os.read(r, 1 << 18)), os.read(f, 9)",
    ),
    "threads": (
        "r, w = os.pipe(); got = []\ndef wait(): got.append(os.read(r, 9))\n"
        "threads = [threading.Thread(target=wait, daemon=True) for _ in range(20)]\n"
        "for thread in threads: thread.start()",
        "[os.write(w, b'x') and until(lambda: len(got) > n) for n in range(3)], got, threading.active_count()",
    ),
    "other users and privileges": (
        "def drop():\n os.setgroups([7, 8]); os.setresgid(1, 2, 3); os.setresuid(4, 5, 6); libc.prctl(38, 1, 0, 0, 0)\n"
        "p = child(drop); until(lambda: 'Uid:\\t4' in open(f'/proc/{p}/status').read() and "
        "'NoNewPrivs:\\t1' in open(f'/proc/{p}/status').read())",
        "[line for line in open(f'/proc/{p}/status') if line[:3] in ('Uid', 'Gid', 'Gro', 'Cap', 'NoN', 'Sec')]",
    ),
    "attributes of a process": (
        "os.nice(5); libc.prctl(15, b'renamed'); libc.prctl(36, 1); libc.prctl(4, 0); os.umask(0o13); "
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200)); "
        "open('/proc/self/oom_score_adj', 'w').write('500')",
        "os.nice(0), open('/proc/self/comm').read(), libc.prctl(3), os.umask(0), "
        "resource.getrlimit(resource.RLIMIT_NOFILE), open('/proc/self/oom_score_adj').read()",
    ),
    "another root": (
        "os.mkdir('jail'); p = child(lambda: (os.chroot('jail'), os.chdir('/'))); "
        "until(lambda: os.readlink(f'/proc/{p}/cwd').endswith('jail'))",
        "os.readlink(f'/proc/{p}/root'), os.readlink(f'/proc/{p}/cwd')",
    ),
    "watches of inotify": (
        WATCH
        + "open('/tmp/w', 'w'); k = [watch(p, m) for p, m in [('/', 0x80000400), ('/etc/passwd', 2), ('/tmp/w', 0), "
        "('/tmp/w', 0x4000006), ('/usr', 0x100), ('/bin/sh', 4), ('/bin/sh', 0x2000200)]]; "
        "[libc.inotify_rm_watch(i, n) for n in (2, 4, 6)]; os.read(i, 99)",
        f"k, {MARKS}, watch('/var'), {MARKS}",
    ),
    "descriptors of one inotify": (
        WATCH
        + "j = os.dup(i); watch('/etc', 0x100); p = child(lambda: None); fcntl.fcntl(j, fcntl.F_SETFL, os.O_NONBLOCK)",
        f"{MARKS}, libc.inotify_add_watch(j, b'/var', 2), {MARKS}, fcntl.fcntl(i, fcntl.F_GETFL), fcntl.fcntl(j, 1), "
        "[line[:14] for line in open(f'/proc/{p}/fdinfo/{i}')][4:]",
    ),
}

UDP = "a = socket.socket(type=socket.SOCK_DGRAM); a.bind(('127.0.0.1', 0)); "

# Name -> what sets it up, and what is said of it.
REFUSED = {
    "urgent data": (TCP + "p, _ = s.accept(); c.send(b'!', socket.MSG_OOB)", r"\(descriptor \d+\) with urgent data"),
    "a connection to itself": (
        "c = socket.socket(); c.setsockopt(1, 13, struct.pack('ii', 1, 0)); c.bind(('127.0.0.1', 9103)); "
        "c.connect(('127.0.0.1', 9103))",
        r"has a TCP connection \(descriptor \d+\) to itself",
    ),
    "tcp to nobody": (
        TCP + "p, _ = s.accept(); fill(c); c.close()",
        r"has a TCP connection \(descriptor \d+\) whose other end was closed with data on its way",
    ),
    "data in a connection that is not accepted": (
        TCP + "c.send(b'x')",
        r"has a TCP connection \(descriptor \d+\) that is not accepted yet, with data in it",
    ),
    "unix not accepted": (
        "s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); c = socket.socket(socket.AF_UNIX); "
        "c.connect('s'); c.send(b'early')",
        "has connections to a Unix socket that wait to be accepted",
    ),
    "datagrams": (UDP + "a.sendto(b'x', a.getsockname())", "has a socket with datagrams that wait to be read"),
    "an empty datagram": (
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.send(b'')",
        "has a socket with datagrams that wait to be read",
    ),
    "an error at a socket": (
        "a = socket.socket(type=socket.SOCK_DGRAM); a.connect(('127.0.0.1', 9)); a.send(b'x')",
        "has a socket with an error that waits to be read",
    ),
    "a corked socket": (UDP + "a.connect(a.getsockname()); a.setsockopt(17, 1, 1); a.send(b'part')", "UDP_CORK"),
    "a renamed socket": (
        "s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s.new'); s.listen(); os.rename('/tmp/s.new', '/tmp/s')",
        r"has a socket whose file was renamed \(/tmp/s.new\)",
    ),
    "headers of connections": (
        "s = socket.create_server(('127.0.0.1', 0)); s.setsockopt(6, 27, 1)",
        "has a socket with TCP_SAVE_SYN set",
    ),
    "all descriptors open": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50)); k = []\n"
        "try:\n    while True: k.append(os.open('/dev/null', 0))\nexcept OSError: os.close(k.pop())",
        "has all descriptors open that it may have, and CRIU needs a few",
    ),
    "no address space left": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (0, 0))",
        "has mapped all memory that it may, and CRIU needs a little",
    ),
    "all mappings made": (
        "k = []\ntry:\n    while True: k.append(mmap.mmap(-1, 4096, flags=0x22, prot=1 + 2 * (len(k) % 2)))\n"
        "except OSError: del k[-9:]",
        "has mapped all memory that it may, and CRIU needs a little",
    ),
    "large files in memory": (
        "k = [os.memfd_create('x') for _ in range(5)]; [os.ftruncate(m, 1 << 40) for m in k]",
        "5 TiB of shared memory and deleted files, holes included, more than the 1 TiB",
    ),
    "large shared memory": (
        "import ctypes; l = ctypes.CDLL(None); l.shmget.argtypes = ctypes.c_int, ctypes.c_size_t, ctypes.c_int\n"
        "l.shmat.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_int\n"
        "k = [l.shmget(n, 1 << 40, 0o11600) for n in range(1, 9)]\n"
        "[(l.shmat(i, None, 0), l.shmctl(i, 0, None)) for i in k]",  # they go when it ends
        "8 TiB of shared memory of System V",
    ),
    "a lease": (
        "l = open('/tmp/leased', 'w'); fcntl.fcntl(l, fcntl.F_SETLEASE, fcntl.F_WRLCK)",
        "has a lease on a file",
    ),
    "a peek offset": ("a, b = socket.socketpair(); a.setsockopt(1, 42, 0)", "has a socket with SO_PEEK_OFF set"),
    "multicast": (
        UDP
        + "a.setsockopt(0, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('224.1.1.1') + socket.inet_aton('127.0.0.1'))",
        "that is a member of a multicast group",
    ),
    "a watch of a deleted file": (
        WATCH + "f = open('/tmp/w', 'w'); watch('/tmp/w', 2); os.unlink('/tmp/w')",
        r"watches files with inotify \(descriptor \d+\): one was deleted, or no name of it was found",
    ),
    "a watch of a process": (
        WATCH + "watch('/proc/self/status')",
        r"watches files with inotify \(descriptor \d+\): one is none of its root",
    ),
    "events of inotify": (
        WATCH + "watch('/tmp', 0x100); open('/tmp/e', 'w').close(); os.unlink('/tmp/e')",
        r"watches files with inotify \(descriptor \d+\): events wait to be read",
    ),
    "inotify that tells by a signal": (
        WATCH + "watch('/etc'); fcntl.fcntl(i, 4, fcntl.fcntl(i, 3) | 0x2000)",
        r"watches files with inotify \(descriptor \d+\): CRIU does not bring back its flags \(20000\)",
    ),
    "inotify in flight": (
        WATCH + "a, b = socket.socketpair(); watch('/etc'); socket.send_fds(a, [b'm'], [i]); os.close(i)",
        "has sent an instance of inotify that is not received yet",
    ),
    "many instances of inotify": (
        WATCH + "k = [os.dup(i) for _ in range(60)]",
        "has, with others, more than 50 descriptors of inotify",
    ),
    "many watches": (
        WATCH + "os.mkdir('/tmp/m')\nfor n in range(110): os.mkdir(f'/tmp/m/{n}'); watch(f'/tmp/m/{n}')",
        "watches, with others, more than 100 files with inotify",
    ),
    "a semaphore of eventfd": ("os.eventfd(5, os.EFD_SEMAPHORE)", "has an eventfd that counts as a semaphore"),
    "a pipe of packets": ("r, w = os.pipe2(os.O_DIRECT); os.write(w, b'x')", "has a pipe of packets"),
    "an epoll of what was closed": (
        "r, w = os.pipe(); e = select.epoll(); e.register(r, 1); p = child(lambda: None); os.close(r); "
        "os.write(w, b'x')",
        "has an epoll that watches a descriptor which the process has closed",
    ),
    "a traced process": (
        "p = child(lambda: None); libc.ptrace(0x4206, p, 0, 0)",
        r"is traced by process \d+ \(python3 job.py a-traced-process\)",
    ),
    "a program in memory": (
        "m = os.memfd_create('program'); os.write(m, open('/bin/sleep', 'rb').read()); p = subprocess.Popen("
        "['sleep', '1000'], executable=f'/proc/self/fd/{m}', pass_fds=[m])",
        r"\(sleep 1000\) runs a program that is in memory only \(/memfd:program\)",
    ),
    "a directory deleted with its parent": (
        "os.makedirs('/tmp/a/b'); os.chdir('/tmp/a/b'); os.removedirs('/tmp/a/b')",
        r"is in a directory that was deleted, and whose place is not as it was \(/tmp/a/b\)",
    ),
    "a directory deleted and made again": (
        "os.mkdir('/tmp/c'); os.chdir('/tmp/c'); os.rmdir('/tmp/c'); os.mkdir('/tmp/c')",
        "is in a directory that was deleted",
    ),
    "a deleted directory held open": (
        "os.makedirs('/tmp/d/e'); f = os.open('/tmp/d/e', 0); os.removedirs('/tmp/d/e')",
        r"holds a deleted directory whose place is not as it was \(/tmp/d/e, descriptor \d+\)",
    ),
    "an image file written while mapped": (
        "f = open('/etc/profile', 'rb'); m = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ); "
        "os.pwrite(os.open('/etc/profile', os.O_WRONLY), b'new', 0)",
        "has mapped /etc/profile, a file of the image, as it was before it was written",
    ),
    "a large file of the image written while mapped": (
        "f = open('/etc/profile', 'r+b'); f.truncate(1 << 40); m = mmap.mmap(f.fileno(), 1 << 40, mmap.MAP_SHARED, "
        "mmap.PROT_READ)",
        "has mapped /etc/profile, a file of the image that was written since, and more than 8 MiB of such files",
    ),
    "a terminal whose output was stopped": (
        "import pty, termios; m, t = pty.openpty(); termios.tcflow(t, termios.TCOOFF)",
        r"has a terminal whose output was stopped, as by Ctrl-S \(descriptor \d+\)",
    ),
    "many descriptors": (
        "import os; [os.dup(0) for _ in range(400)]",
        "has, with others, more than 300 descriptors open",
    ),
    "many mappings": (
        "m = mmap.mmap(-1, 4096 * 3000, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); "
        "a = ctypes.addressof(ctypes.c_char.from_buffer(m)); "
        "[libc.mprotect(ctypes.c_void_p(a + 4096 * n), 4096, 1) for n in range(0, 3000, 2)]",
        "has, with others, more than 1,500 mappings",
    ),
    "many mappings of shared memory": (
        "k = [mmap.mmap(-1, 4096, prot=1 + 2 * (n % 2)) for n in range(400)]",
        "has, with others, more than 200 mappings of shared memory",
    ),
    "memory shared by many": (
        "x = os.urandom(1 << 20) * 100; [child(lambda: None) for _ in range(9)]",
        r"has, with others, \d{4} MiB of memory, counted for each that shares it, more than the 512 MiB",
    ),
    "large deleted files": (
        "files = [open(f'/tmp/{n}', 'wb') for n in 'ab']; [os.posix_fallocate(f.fileno(), 0, 2 << 20) for f in files]; "
        "os.unlink('/tmp/a'); os.unlink('/tmp/b')",
        "holds or has mapped, with others, 4 MiB of deleted files, more than the 3 MiB",
    ),
    "large deleted files that are mapped and closed": (
        MAP + "\nfor n in 'ab': f = open(f'/tmp/{n}', 'w+b'); os.posix_fallocate(f.fileno(), 0, 2 << 20); "
        "map(2 << 20, 1, f.fileno()); f.close(); os.unlink(f'/tmp/{n}')",
        "holds or has mapped, with others, 4 MiB of deleted files, more than the 3 MiB",
    ),
    "shared memory without reserve": (
        MAP + "map(100 << 40, 0x4021)",
        "holds or has mapped, with others, 100 TiB of shared memory and deleted files",
    ),
    "a file in memory that is mapped and closed": (
        MAP + "m = os.memfd_create('x'); os.ftruncate(m, 100 << 40); map(100 << 40, 1, m); os.close(m)",
        "holds or has mapped, with others, 100 TiB of shared memory and deleted files",
    ),
    "shared memory without reserve, of many": (
        MAP + "k = [child(lambda: map(1 << 38, 0x4021)) for _ in range(5)]; "
        "until(lambda: all('/dev/zero' in open(f'/proc/{p}/maps').read() for p in k))",
        "holds or has mapped, with others, 1 TiB of shared memory and deleted files",
    ),
    "a large file in memory in flight": (
        "m = os.memfd_create('x'); os.ftruncate(m, 5 << 40); a, b = socket.socketpair(); c, d = socket.socketpair(); "
        "socket.send_fds(a, [b'm'], [m]); socket.send_fds(c, [b'm'], [a.fileno(), b.fileno()]); "
        "a.close(); b.close(); os.close(m)",
        "holds or has mapped, with others, 5 TiB of shared memory and deleted files",
    ),
    "descriptors in several messages": (
        "a, b = socket.socketpair(); [socket.send_fds(a, [b'm'], [0]) for _ in range(2)]",
        "has been sent descriptors which are not received yet, by several messages",
    ),
    "epolls that watch much": (
        "r, w = os.pipe(); k = [os.dup(r) for _ in range(50)]; e = [select.epoll() for _ in range(10)]; "
        "[one.register(n, 0) for one in e for n in k]",
        "has, with others, more than 400 locks and files that epolls watch",
    ),
    "many locks": (
        "f = open('/tmp/f', 'w+b'); [fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * n) for n in range(500)]",
        "has, with others, more than 400 locks and files that epolls watch",
    ),
    "semaphores of System V": (
        "s = libc.semget(5, 1, 0o1666); libc.semop(s, struct.pack('3h', 0, 1, 0x1000), 1)",
        "has used semaphores of System V, maybe with SEM_UNDO",
    ),
    "mlockall": ("libc.mlockall(2); libc.sbrk(1 << 16)", "has locked its heap or stack in memory"),
    "a time slice": (
        "libc.syscall(314, 0, struct.pack('2IQiI3Q2I', 56, 0, 0, 0, 0, 50 * 10 ** 6, 0, 0, 0, 0), 0)",
        r"has a time slice or a range of processor speeds of its own \(sched_setattr\)",
    ),
    "ionice": ("libc.syscall(251, 1, 0, 3 << 13)", "has an input and output priority"),
    "a timer that rings unnoticed": (
        "signal.pthread_sigmask(0, [40]); t = ctypes.c_void_p(); "
        "libc.timer_create(1, struct.pack('qii48x', 0, 40, 0), ctypes.byref(t)); "
        "libc.timer_settime(t, 0, struct.pack('4q', 300, 0, 0, 1), None); until(signal.sigpending)",
        "has set a timer whose signal it has not noticed yet",
    ),
    "a signal for a stopped process": ("p = stopped(signal.SIGTERM)", "is stopped, with signals that wait for it"),
    "threads with directories of their own": (
        "moved = []\ndef work():\n libc.unshare(0x200); os.chdir('/tmp'); moved.append(1); time.sleep(1000)\n"
        "threading.Thread(target=work, daemon=True).start(); until(lambda: moved)",
        "has threads with directories of their own",
    ),
    "a leader without its threads": (
        "p = child(lambda: (threading.Thread(target=time.sleep, args=(1000,)).start(), libc.syscall(60, 0))); "
        "until(lambda: state(p) == 'Z')",
        "has ended while threads of it go on",
    ),
}


def reports(sandbox: Sandbox) -> dict[str, str]:
    """Returns what the programs of `CAPTURED` have to say."""
    return {name: report_of(sandbox, name) for name in CAPTURED}


def test_what_is_captured_is_the_same_in_a_fork(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    for name, (program, report) in CAPTURED.items():
        start(sandbox, name, f"{program}\ndef report(): return {report}\n{REPORTING}")
    fork = local_lab.fork_of(sandbox)
    first, second = reports(fork), reports(sandbox)
    assert first == second
    assert "Error" not in "".join(second.values())
    usable(fork)


def test_what_is_refused_is_refused_with_the_reason(local_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_up, "_MOST", 8 << 20)
    monkeypatch.setattr(excess, "_MOST_DELETED", 3 << 20)
    monkeypatch.setattr(procfs, "MOST_DESCRIPTORS", 300)
    monkeypatch.setattr(excess, "MOST_MAPPINGS", 1500)
    monkeypatch.setattr(excess, "MOST_SHARED", 200)
    monkeypatch.setattr(excess, "_SHARED", 0.25)
    monkeypatch.setattr(excess, "MOST_LINES", 400)
    monkeypatch.setattr(watches, "_MOST", 100)
    monkeypatch.setattr(watches, "_MOST_DESCRIPTORS", 50)
    sandbox = local_lab.start()
    refusals = {}
    for name, (program, _) in REFUSED.items():
        start(sandbox, name, program)
        try:
            local_lab.checkpoint(sandbox)
            refusals[name] = "(not refused)"
        except NotCheckpointable as refusal:
            refusals[name] = str(refusal)
        sh(sandbox, "kill -9 -$(cat /tmp/jobs/*/pid); rm -r /tmp/jobs; ipcrm --all=sem")
        eventually(lambda: "python3" not in commands(sandbox) and "sleep" not in commands(sandbox), timeout=60)
    wrong = {
        name: said
        for name, said in refusals.items()
        if not re.match(r"(a process|process \d+ \(.*\)) ", said) or not re.search(REFUSED[name][1], said)
    }
    assert wrong == {}
    usable(local_lab.fork_of(sandbox))  # nothing of all that is left


def test_a_stopped_process_more_than_once(local_lab: Lab) -> None:
    """A dump leaves SIGSTOP to it, which does nothing there."""
    sandbox = local_lab.start()
    job(sandbox, "sleep 1000")
    sh(sandbox, "kill -STOP $!")
    local_lab.checkpoint(sandbox)
    fork = local_lab.fork_of(sandbox)
    for one in (sandbox, fork):
        sh(one, "kill -CONT $!")
        settled(one, "sleep 1000")


def test_a_terminal_that_criu_would_lose(local_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CRIU of the distribution's gives a terminal to those alone that lead a session."""
    sandbox = local_lab.start()
    sh(sandbox, "setsid sleep 1000 < /dev/null > /dev/null 2>&1 &")
    settled(sandbox, "sleep 1000")
    monkeypatch.setattr("tvsnap.sandboxes.criu.binary.additions", lambda _: {"owners"})
    usable(local_lab.fork_of(sandbox))
    job(sandbox, "sleep 2000")
    with pytest.raises(NotCheckpointable, match=r"\(sleep 2000\) has its terminal from another process"):
        local_lab.checkpoint(sandbox)


def test_watches_that_criu_would_lose(local_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CRIU of the distribution's knows files by handles, which overlays have not."""
    sandbox = local_lab.start()
    start(sandbox, "watches", WATCH + "watch('/srv')")
    monkeypatch.setattr("tvsnap.sandboxes.criu.binary.additions", lambda _: {"owners", "terminals"})
    with pytest.raises(NotCheckpointable, match="watches files with inotify or fanotify"):
        local_lab.checkpoint(sandbox)


def test_timers_that_criu_would_set_too_early(local_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CRIU of the distribution's leaves out the fractions of a second."""
    sandbox = local_lab.start()
    start(sandbox, "timer", CAPTURED["timers for a moment"][0])
    monkeypatch.setattr("tvsnap.sandboxes.criu.binary.additions", lambda _: {"owners", "terminals"})
    with pytest.raises(NotCheckpointable, match=r"has a timer for an absolute time \(descriptor \d+\)"):
        local_lab.checkpoint(sandbox)


def test_what_turns_out_only_when_it_is_restored(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    sh(sandbox, "mkdir d; exec 9> d/f; rm -r d; echo > d; x=1")
    snapshot = local_lab.checkpoint(sandbox)
    for _ in range(2):
        with pytest.raises(NotRestorable, match=r"CRIU: .*d/f.*: Not a directory"):
            local_lab.fork(snapshot)
    assert sh(sandbox, "echo $x >&9; echo $?") == "0\n"
