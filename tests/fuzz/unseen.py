"""What observations and forks may miss: rare properties of files, of the shell, and of the kernel's objects.

All of it is determined by the calls: each view must show what it shows in a fresh execution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from tests.fuzz.cases import LATE, Motif, Step, bash, execute, failing

_ACL = (
    'import os, struct, sys; acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", t, p, 0xffffffff) '
    'for t, p in ((1, 6), (4, 0), (0x20, 0))); os.setxattr(sys.argv[1], "system.posix_acl_default", acl)'
)
_TIME_WAIT = (
    'import socket; s = socket.socket(); s.bind(("127.0.0.1", {port})); s.listen(); c = socket.create_connection('
    '("127.0.0.1", {port})); a, _ = s.accept(); a.close(); c.recv(1); c.close(); s.close()'
)
_BIND = 'import socket; s = socket.socket(); s.bind(("127.0.0.1", {port})); print("bound")'
_SLEEPER = (
    'import ctypes, signal, sys; b = ctypes.create_string_buffer(b"before", 16); '
    'f = open("{d}/address", "w"); f.write(str(ctypes.addressof(b))); f.close(); '
    'signal.signal(signal.SIGUSR1, lambda *a: open("{d}/said", "ab").write(b.value + b";"));\n'
    "while True: signal.pause()"
)
_POKE = (
    'import os; m = os.open("/proc/" + open("{d}/pid").read().strip() + "/mem", os.O_RDWR); '
    'os.pwrite(m, b"after!", int(open("{d}/address").read()))'
)

Parts = tuple[list[str], Sequence[str | Step]]
"""Commands of the persistent shell, and views: commands of it, or any steps."""


def _directories(d: str, r: Random) -> Parts:
    return [f"mkdir -p {d}/x {d}/y; echo 1 > {d}/x/f"], [
        bash(f"stat -c %i {d}/x", free="made", shows=f"inode {d}"),
        bash(f"ls -di {d}/x | cut -d' ' -f1", free="made", shows=f"inode {d}"),
        execute(f"find {d} -maxdepth 1 -name x -printf '%i\\n'", free="made", shows=f"inode {d}"),
    ]


def _image_inode(d: str, r: Random) -> Parts:
    f = r.choice(["/etc/bash.bashrc", "/etc/profile", "/usr/share/common-licenses/BSD"])
    how = r.choice([f"echo >> {f}", f"chmod 600 {f}", f"touch {f}"])
    return [how], [
        bash(f"stat -c %i {f}", free="inode", shows=f"inode {d}"),
        execute(f"ls -i {f} | cut -d' ' -f1", free="inode", shows=f"inode {d}"),
        bash(f"find {f} -printf '%i\\n'", free="inode", shows=f"inode {d}"),
    ]


def _image_directory_inode(d: str, r: Random) -> Parts:
    f = r.choice(["/etc", "/opt", "/usr/share", "/var/tmp"])
    return [f"touch {f}/new_{d[-1]}"], [
        bash(f"stat -c %i {f}", free="inode", shows=f"inode {d}"),
        execute(f"ls -di {f} | cut -d' ' -f1", free="inode", shows=f"inode {d}"),
    ]


def _git(d: str, r: Random) -> Parts:
    commit = f"git -C {d} -c user.name=a -c user.email=a@b commit -q -m one"
    return [f"mkdir -p {d}/s; git init -q {d}; echo 1 > {d}/f; echo 2 > {d}/s/g", f"git -C {d} add .; {commit}"], [
        f"git -C {d} diff-index --quiet HEAD; echo $?",
        execute(f"git -C {d} diff-files --name-only"),
        f"git -C {d} diff-index HEAD --name-only",
    ]


def _tar(d: str, r: Random) -> Parts:
    again = f"cp {d}/index {d}/index2; tar -cvf /dev/null -g {d}/index2 -C {d} x"
    return [
        f"mkdir -p {d}/x/y; echo 1 > {d}/x/f; touch -d '2020-01-01' {d}/x/f {d}/x/y {d}/x",
        f"tar -cf /dev/null -g {d}/index -C {d} x",
    ], [bash(f"{again} | sort", free="device"), execute(f"{again} | sort | wc -l", free="device")]


def _order(d: str, r: Random) -> Parts:
    names = " ".join(f"{d}/{name}" for name in r.sample(["k", "a", "zz", "m3", "q", "B", "0"], 6))
    return [f"mkdir -p {d}; touch {names}", f"rm {d}/a {d}/q 2> /dev/null; touch {d}/q {d}/late"], [
        bash(f"ls -U {d} | xargs", free="order", shows=f"order {d}"),
        execute(f"cd {d} && find . -mindepth 1 -printf '%f\\n' | xargs", free="order", shows=f"order {d}"),
        execute(f"python3 -c 'import os; print(*os.listdir(\"{d}\"))'", free="order", shows=f"order {d}"),
    ]


def _directory_mode(d: str, r: Random) -> Parts:
    x = r.choice([f"{d}/x", f"{d}/x", "/opt", "/srv"])
    first = r.choice([f"chmod 755 {x}", f"chown 0:0 {x}", f"touch -d 2020-01-01 {x}", "true"])
    then = r.choice([f"chmod 711 {x}", f"chown 5:5 {x}", f"chmod +t {x}", f"chgrp 7 {x}"])
    return [f"mkdir -p {x}; {first}", then], [
        f"stat -c '%a %u %g' {x}",
        execute(f"find {x} -maxdepth 0 -printf '%m %U %G\\n'"),
    ]


def _directory_attribute(d: str, r: Random) -> Parts:
    x = r.choice([f"{d}/x", "/opt"])
    put = f'python3 -c \'import os; os.setxattr("{x}", "user.k", b"{{}}")\''
    get = f'python3 -c \'import os; print(os.getxattr("{x}", "user.k"))\''
    return [f"mkdir -p {x}; chmod 700 {x}", put.format(1), put.format(2)], [get, execute(get)]


def _default_acl(d: str, r: Random) -> Parts:
    return [f"mkdir -p {d}/x; chmod 755 {d}/x", f"python3 -c '{_ACL}' {d}/x"], [
        f"touch {d}/x/f; stat -c %a {d}/x/f",
        execute(f"touch {d}/x/g; stat -c %a {d}/x/g"),
    ]


def _flock(d: str, r: Random) -> Parts:
    kind = r.choice(["-x", "-s"])
    return [f"mkdir -p {d}; exec 9> {d}/lock", f"flock {kind} 9"], [
        execute(f"flock -n {d}/lock true; echo $?"),
        f"flock -n {d}/lock -c true; echo $?",
    ]


def _record_lock(d: str, r: Random) -> Parts:
    take = (
        f'python3 -c \'import fcntl, sys, time; f = open("{d}/l", "w"); sys.stdin.readline(); '
        "fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); time.sleep(1000)'"
    )
    attempt = f'import fcntl; f = open("{d}/l", "a"); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)'
    asked = f"python3 -c '{attempt}' 2>&1 | tail -n 1"
    c = f"L{d[-1].upper()}"
    return [
        f"mkdir -p {d}; {{ coproc {c} {{ {take}; }}; }} 2> /dev/null",
        f"echo >&${{{c}[1]}}; read -r -t 10 l <&${{{c}[0]}}",
    ], [asked, execute(asked)]


def _shell(setup: str, change: str, *views: str) -> Callable[[str, Random], Parts]:
    def parts(d: str, r: Random) -> Parts:
        filled = [text.replace("%D", d) for text in (setup, change)]
        return [text for text in filled if text], [view.replace("%D", d) for view in views]

    return parts


def _time_wait(d: str, r: Random) -> Parts:
    port = r.randint(5000, 7000)
    bind = f"python3 -c '{_BIND.format(port=port)}' 2>&1 | tail -n 1"
    return [f"python3 -c '{_TIME_WAIT.format(port=port)}'"], [bind, execute(bind)]


def _memory(d: str, r: Random) -> Parts:
    sleeper = _SLEEPER.format(d=d)
    begin = (
        f"mkdir -p {d}; (exec python3 -c '{sleeper}') > /dev/null 2>&1 & echo $! > {d}/pid; "
        f"while ! test -s {d}/address; do sleep 0.02; done"
    )
    ask = f"kill -USR1 $(cat {d}/pid); sleep 0.3; tail -c 7 {d}/said"
    return [begin, f"python3 -c '{_POKE.format(d=d)}'"], [ask, execute(ask)]


def _shared_memory(d: str, r: Random) -> Parts:
    def python(body: str) -> str:
        body = f"memory = c.shmat(c.shmget({key}, 64, 0o1600), None, 0); {body}"
        return (
            "python3 -c 'import ctypes; c = ctypes.CDLL(None); c.shmat.restype = ctypes.c_void_p; "
            f"c.shmat.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_int; {body}'"
        )

    key = r.randint(1, 9999)
    show = python("print(ctypes.string_at(memory))")
    return [python('ctypes.memmove(memory, b"one", 4)'), python('ctypes.memmove(memory, b"two", 4)')], [
        show,
        execute(show),
    ]


def _variables_of_ours(d: str, r: Random) -> Parts:
    typed = Step("keys", {"keys": "clear; set | grep ^__tvsnap_l\n", "wait": 1.0})
    return ["ls / > /dev/null", "cat /etc/hostname"], ["declare -p | grep __tvsnap", "set | grep ^__tvsnap", typed]


CASES: dict[str, Callable[[str, Random], Parts]] = {
    "C1 inode of a directory": _directories,
    "C1 inode of an image's file": _image_inode,
    "C1 inode of an image's directory": _image_directory_inode,
    "C1 git index": _git,
    "C1 incremental tar": _tar,
    "C1 order of a directory": _order,
    "C2 mode of a directory": _directory_mode,
    "C2 attribute of a directory": _directory_attribute,
    "C2 default ACL": _default_acl,
    "C2 our directory": _shell(
        r"""find /run/tvsnap -mindepth 1 -printf '%f %m\n' | sort""",
        "echo 1 > /run/tvsnap/new; chmod 750 /run/tvsnap",
        "cat /run/tvsnap/new",
        "stat -c %a /run/tvsnap",
        "ls -A /run/tvsnap | wc -l",
    ),
    "C2 our files": _shell(
        "", "echo '# more' >> /run/tvsnap/rc", "tail -n 1 /run/tvsnap/rc", "stat -c '%s %a' /run/tvsnap/rc"
    ),
    "C3 flock": _flock,
    "C3 record lock": _record_lock,
    "C4 disown": _shell("sleep 1000 > /dev/null 2>&1 &", "disown", "jobs | wc -l", "jobs -p | wc -w"),
    "C4 history -d": _shell("history -s one; history -s two", "history -d -1", "history | tail -n 1", "fc -ln -1"),
    "C4 history -s": _shell("", "history -s secret", "history | tail -n 1", "history | wc -l"),
    "C4 bind": _shell(
        "", 'bind \'"\\C-xq": "hi"\' 2> /dev/null', "bind -s 2> /dev/null", "bind -s 2> /dev/null | wc -l"
    ),
    "C4 bind variable": _shell(
        "", "bind 'set bell-style visible' 2> /dev/null", "bind -v 2> /dev/null | grep bell-style"
    ),
    "C4 getopts": _shell(
        "set -- -abc; getopts abc o", "getopts abc o", "getopts abc p; echo $p", "getopts abc q; echo $q $OPTIND"
    ),
    "C4 hash": _shell("", "hash -p /bin/false zz", "zz; echo $?", "hash -t zz"),
    "C4 complete": _shell("", "complete -W 'a b' zz", "complete -p zz", "compgen -W 'x' ; complete -p | grep -c zz"),
    "C4 enable": _shell("", "enable -n pwd", "enable -n", "type -t pwd"),
    "C4 pushd": _shell("mkdir -p %D", "pushd -n %D > /dev/null", "dirs", "dirs -v | wc -l"),
    "C4 offset": _shell(
        "mkdir -p %D; seq 1 5 > %D/n; exec 6< %D/n", "read -r l <&6; l=", "read -r m <&6; echo $m", "cat <&6"
    ),
    "C4 shared offset": _shell(
        "mkdir -p %D; seq 1 5 > %D/n; exec 6< %D/n", "head -c 2 <&6 > /dev/null", "cat <&6", "read -r m <&6; echo $m"
    ),
    "C4 descriptor flag": _shell(
        "mkdir -p %D; exec 6>> %D/n", "exec 5>&6 6>&-", "echo 1 >&5; echo 2 >&6; cat %D/n", "ls /proc/$$/fd | xargs"
    ),
    "C4 stopped job": _shell(
        "sleep 1000 > /dev/null 2>&1 &", "kill -STOP %1; sleep 0.1", "ps -o stat= -p $! | cut -c1"
    ),
    "C4 nohup": _shell("sleep 1000 > /dev/null 2>&1 &", "disown -h %1", "jobs | grep -c Running"),
    "C4 limits of the shell": _shell("", "ulimit -S -n 99", "ulimit -n", "bash -c 'ulimit -n'"),
    "C4 variables of ours": _variables_of_ours,
    "C5 TIME_WAIT": _time_wait,
    "C5 oom_score_adj": _shell(
        "", "echo 500 > /proc/$$/oom_score_adj", "cat /proc/self/oom_score_adj", "cat /proc/$$/oom_score_adj"
    ),
    "C5 nice": _shell("", "renice -n 5 -p $$ > /dev/null", "nice", "ps -o ni= -p $$"),
    "C5 I/O priority": _shell("", "ionice -c 3 -p $$", "ionice -p $$", "ionice"),
    "C5 scheduler": _shell("", "chrt -b -p 0 $$", "chrt -p $$ | sed 's/.*: //'", "chrt -p $BASHPID | sed 's/.*: //'"),
    "C5 processors": _shell("", "taskset -p 1 $$ > /dev/null", "taskset -p $$ | sed 's/.*: //'", "nproc"),
    "C5 coredump_filter": _shell(
        "", "echo 0x7f > /proc/$$/coredump_filter", "cat /proc/$$/coredump_filter", "cat /proc/self/coredump_filter"
    ),
    "C5 comm": _shell("", "printf renamed > /proc/$$/comm", "cat /proc/$$/comm", "ps -o comm= -p $$"),
    "C5 prlimit": _shell("", "prlimit --pid $$ --nofile=100:200", "ulimit -n", "ulimit -Hn"),
    "C5 stty speed": _shell("", "stty 9600 < /dev/tty", "stty speed < /dev/tty", "stty -a < /dev/tty | head -n 1"),
    "C5 stty size": _shell("", "stty rows 33 cols 99 < /dev/tty", "stty size < /dev/tty"),
    "C5 stty flags": _shell("", "stty -ixon < /dev/tty", "stty -a < /dev/tty | md5sum"),
    "C5 deleted file": _shell(
        "mkdir -p %D; echo aaaa > %D/o; exec 7<> %D/o; rm %D/o",
        "printf bbbb > /proc/$$/fd/7",
        "cat /proc/$$/fd/7",
        "wc -c < /proc/$$/fd/7",
    ),
    "C5 memory": _memory,
    "C5 shared memory": _shell("ipcmk -M 100", "ipcmk -M 4097 -p 600", "ipcs -m | cut -c 12-", "ipcs -um"),
    "C5 contents of shared memory": _shared_memory,
    "C5 message queues": _shell("", "ipcmk -Q; ipcmk -Q -p 600", "ipcs -q | cut -c 12-", "ipcs -q | wc -l"),
    "C5 semaphores": _shell("ipcmk -S 2", "ipcrm -a; ipcmk -S 5 > /dev/null", "ipcs -s | cut -c 12-", "ipcs -su"),
    "C5 pipe": _shell(
        "mkdir -p %D; mkfifo %D/p; exec 5<> %D/p",
        "echo kept >&5",
        "read -r -t 1 l <&5; echo $l",
        "timeout 0.3 cat <&5; true",
    ),
    "C5 hostname": _shell("", "echo other > /etc/hostname", "cat /etc/hostname", "hostname"),
}


def unseen(chance: Random, d: str) -> Motif:
    """Returns one of the cases."""
    topic, make = chance.choice(sorted(CASES.items()))
    return _motif(topic, *make(d, chance))


def _motif(topic: str, commands: list[str], views: Sequence[str | Step]) -> Motif:
    steps = tuple(bash(command, topic=topic, free="pid") for command in commands)
    shown = [view if isinstance(view, Step) else bash(view) for view in views]
    facts = {view.shows for view in shown if view.shows}
    return Motif(
        topic,
        tuple(replace(step, sets=tuple(facts)) for step in steps),
        tuple(replace(failing(view) if view.shows else view, topic=topic) for view in shown),
    )


def keys_cut_short(chance: Random, d: str) -> Motif:
    """A call of `keys` with less time than its wait, and the same with enough."""
    arguments = {"keys": "clear; sleep 0.6; echo finished\n", "wait": 2.0}
    quick = Step("keys", arguments, timeout=0.2, topic="C6 keys", begins=True, pause=LATE)
    patient = replace(quick, timeout=30.0)
    return Motif("C6 keys", (chance.choice([quick, patient]),), (quick, patient))
