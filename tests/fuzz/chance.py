"""Silent chance: calls that leave what another execution of them would not, and different ways to see it.

Each source of chance is put into each place, so that new combinations come by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.fuzz.cases import Motif, Step, bash, execute, failing, read

SOURCES: dict[str, tuple[str, str]] = {
    "secrets": ("chance", "python3 -c 'import secrets; print(secrets.token_hex(8))'"),
    "urandom": ("chance", "head -c 8 /dev/urandom | xxd -p"),
    "uuid": ("chance", "cat /proc/sys/kernel/random/uuid"),
    "RANDOM": ("chance", "echo $RANDOM-$RANDOM"),
    "SRANDOM": ("chance", "echo $SRANDOM"),
    "mktemp": ("chance", "mktemp -u"),
    "shuf": ("chance", "shuf -i 100000-999999 -n 1"),
    "hash seed": ("chance", "python3 -c 'print(*{chr(97 + n) for n in range(12)}, sep=str())'"),
    "address": ("chance", "python3 -c 'print(id(object()))'"),
    "date": ("clock", "date +%s%N"),
    "time": ("clock", "python3 -c 'import time; print(time.time_ns())'"),
    "uptime": ("clock", "python3 -c 'import time; print(time.monotonic_ns())'"),
    "pid": ("pid", "sh -c 'echo $$'"),
    "parent": ("pid", "python3 -c 'import os; print(os.getpid())'"),
    "race": ("chance", "{ for i in {10..49}; do (printf $i) & done; wait; echo; } 2>&1"),
}
"""Why the value is free, and the command that prints it."""

PLAIN_SOURCES = {
    "RANDOM": ("chance", "echo $RANDOM-$RANDOM"),
    "date": ("clock", "date +%s"),
}

Place = Callable[[str, str], tuple[list[str], list[Step]]]


def _file(d: str, source: str) -> tuple[list[str], list[Step]]:
    f = f"{d}/token"
    views = [
        bash(f"cat {f}"),
        bash(f"base64 {f} | base64 -d"),
        bash(f"od -An -v -tx1 {f} | xxd -r -p"),
        bash(f"python3 -c 'print(open(\"{f}\").read(), end=str())'"),
        execute(f"cat {f}"),
        execute(f"dd if={f} status=none"),
        read(f),
    ]
    return [f"{source} > {f}"], views


def _copied(d: str, source: str) -> tuple[list[str], list[Step]]:
    views = [bash(f"cat {d}/copy"), execute(f"tail -n 1 {d}/log"), read(f"{d}/copy"), bash(f"tac {d}/copy")]
    return [f"{source} > {d}/token", f"cp {d}/token {d}/copy; cat {d}/copy >> {d}/log"], views


def _variable(d: str, source: str) -> tuple[list[str], list[Step]]:
    v = f"v_{d[-1]}"
    views = [
        bash(f'echo "${v}"'),
        bash(f"printf '%s\\n' \"${{{v}}}\""),
        bash(f"cat <<< ${v}"),
        bash(f"(export {v}; printenv {v})"),
        bash(f"eval 'echo $'{v}"),
    ]
    return [f"{v}=$({source})"], views


def _name(d: str, source: str) -> tuple[list[str], list[Step]]:
    views = [
        bash(f"ls {d}/names"),
        bash(f"cd {d}/names && echo * && cd - > /dev/null"),
        execute(f"find {d}/names -type f -printf '%f\\n'"),
        execute(f"python3 -c 'import os; print(*os.listdir(\"{d}/names\"))'"),
    ]
    return [f"mkdir -p {d}/names; touch {d}/names/$(basename $({source}))"], views


def _link(d: str, source: str) -> tuple[list[str], list[Step]]:
    views = [
        bash(f"readlink {d}/link"),
        execute(f"find {d}/link -printf '%l\\n'"),
        execute(f"python3 -c 'import os; print(os.readlink(\"{d}/link\"))'"),
    ]
    return [f'ln -sfn "$({source})" {d}/link'], views


def _attribute(d: str, source: str) -> tuple[list[str], list[Step]]:
    get = f'python3 -c \'import os; print(os.getxattr("{d}/f", "user.token").decode())\''
    set_it = f'python3 -c \'import os, sys; os.setxattr("{d}/f", "user.token", sys.argv[1].encode())\' "$({source})"'
    return [f"touch {d}/f", set_it], [bash(get), execute(get + " | cat"), execute(get)]


def _function(d: str, source: str) -> tuple[list[str], list[Step]]:
    f = f"f_{d[-1]}"
    views = [bash(f), bash(f"{f} | cat"), bash(f"declare -f {f} | sed -n 's/^ *echo //p'")]
    return [f'eval "{f}() {{ echo $({source}); }}"'], views


def _parameters(d: str, source: str) -> tuple[list[str], list[Step]]:
    return [f"set -- $({source})"], [bash("echo $*"), bash('printf "%s\\n" "$*"'), bash("cat <<< $*")]


def _directory(d: str, source: str) -> tuple[list[str], list[Step]]:
    views = [bash("pwd"), bash("readlink /proc/$$/cwd"), bash("dirs -l +0"), bash("echo $PWD"), bash("/bin/pwd")]
    return [f'cd {d}; d="{d}/$(basename "$({source})")"; mkdir -p "$d"; cd "$d"'], views


def _process(d: str, source: str) -> tuple[list[str], list[Step]]:
    name = f"named_{d[-1]}"
    views = [
        bash(f"pgrep -af '^{name}=' | sed 's/.*{name}=//; s/ 1000$//'"),
        execute(f"ps -eo args= | sed -n 's/^{name}=//; T; s/ 1000$//p'"),
        execute(f"{{ cat /proc/[0-9]*/cmdline 2> /dev/null; true; }} | tr '\\0' '\\n' | sed -n 's/^{name}=//p'"),
    ]
    return [f'exec_name={name}=$({source}); (exec -a "$exec_name" sleep 1000) > /dev/null 2>&1 &'], views


def _coprocess(d: str, source: str) -> tuple[list[str], list[Step]]:
    c = f"C{d[-1].upper()}"
    ask = f'l=; echo NUMBER >&"${{{c}[1]}}" && read -r -t 10 l <&"${{{c}[0]}}" && echo $l'
    made = f"{{ coproc {c} {{ v=$({source}); while read -r l; do echo $v; done; }}; }} 2> /dev/null"
    return [made], [bash(ask.replace("NUMBER", n)) for n in "123"]


def _database(d: str, source: str) -> tuple[list[str], list[Step]]:
    get = f'import sqlite3; print(*sqlite3.connect("{d}/db").execute("select v from t").fetchone())'
    views = [
        bash(f"sqlite3 {d}/db 'select v from t'"),
        execute(f"python3 -c '{get}'"),
        execute(f"sqlite3 {d}/db .dump | sed -n \"s/.*VALUES('\\(.*\\)');/\\1/p\""),
    ]
    return [f"sqlite3 {d}/db \"create table t(v); insert into t values('$({source})')\""], views


def _trap(d: str, source: str) -> tuple[list[str], list[Step]]:
    views = [bash("kill -USR2 $$"), bash("trap -p USR2 | sed \"s/^trap -- 'echo //; s/' SIGUSR2$//\"")]
    return [f'trap "echo $({source})" USR2'], views


def _descriptor(d: str, source: str) -> tuple[list[str], list[Step]]:
    views = [
        bash("cat /proc/$$/fd/8"),
        bash("python3 -c 'import sys; print(open(sys.argv[1]).read(), end=str())' /proc/$$/fd/8"),
        bash("base64 /proc/$$/fd/8 | base64 -d"),
    ]
    return [f"{source} > {d}/gone; exec 8< {d}/gone; rm {d}/gone"], views


def _written_by_job(d: str, source: str) -> tuple[list[str], list[Step]]:
    f = f"{d}/token"
    views = [bash(f"cat {f}"), execute(f"tac {f}"), read(f), execute(f"base64 {f} | base64 -d")]
    return [f"({source} > {f}; sleep 1000) > /dev/null 2>&1 & while ! test -s {f}; do :; done"], views


PLACES: dict[str, Place] = {
    "file": _file,
    "copied file": _copied,
    "variable": _variable,
    "file name": _name,
    "link": _link,
    "attribute": _attribute,
    "function": _function,
    "parameters": _parameters,
    "directory": _directory,
    "process": _process,
    "coprocess": _coprocess,
    "database file": _database,
    "trap": _trap,
    "descriptor": _descriptor,
    "job": _written_by_job,
}


def placed(chance: Random, d: str, *, programs: bool = True) -> Motif:
    """Returns a source of chance, put into a place.

    Args:
        chance: what chooses.
        d: a directory of the motif's own.
        programs: there are real ones.
    """
    if programs:
        place, make = chance.choice(sorted(PLACES.items()))
        kind, command = chance.choice(list(SOURCES.values()))
    else:
        place, make = "file", _plain_file
        kind, command = chance.choice(list(PLAIN_SOURCES.values()))
    commands, views = make(d, command)
    commands[0] = f"mkdir -p {d}; {commands[0]}"
    return motif(f"A {place}", d, kind, [bash(text) for text in commands], views)


def _plain_file(d: str, source: str) -> tuple[list[str], list[Step]]:
    f = f"{d}/token"
    return [f"{source} > {f}"], [bash(f"cat {f}"), execute(f"cat {f}"), read(f), bash(f"cat {f}; true")]


def motif(topic: str, d: str, free: str, steps: list[Step], views: list[Step]) -> Motif:
    """Returns steps that make a fact, and views of it, with what the fuzzer must know of each.

    Args:
        topic: see `Motif`.
        d: the motif's own directory, which names the fact.
        free: why the fact is another in each execution; empty if it is not.
    """
    fact = f"{topic} {d}"
    return Motif(
        topic,
        tuple(replace(step, topic=topic, free=step.free or free, sets=(fact,)) for step in steps),
        tuple(replace(failing(view), topic=topic, free=view.free or free, shows=view.shows or fact) for view in views),
    )


def keys_of_ssh(chance: Random, d: str) -> Motif:
    """A key pair."""
    views = [
        bash(f"cut -d' ' -f1,2 {d}/key.pub"),
        bash(f"ssh-keygen -y -f {d}/key | cut -d' ' -f1,2"),
        execute(f"cut -d' ' -f1,2 < {d}/key.pub | tac"),
    ]
    return motif("A ssh key", d, "chance", [bash(f"mkdir -p {d}; ssh-keygen -q -t ed25519 -N '' -f {d}/key")], views)


def temporary_directory(chance: Random, d: str) -> Motif:
    """The everyday `mktemp -d`, and going there."""
    views = [bash("pwd"), bash("readlink /proc/$$/cwd"), bash("echo $PWD"), bash("dirs -l +0")]
    return motif("A mktemp", d, "chance", [bash(f"d_{d[-1]}=$(mktemp -d); cd $d_{d[-1]}")], views)


def background_id(chance: Random, d: str) -> Motif:
    """A process id that is noted down."""
    seconds = chance.randint(2000, 9000)
    before = bash(f"mkdir -p {d}; " + chance.choice(["true", "(true); (true)", f"ls {d}; cat /etc/hostname > {d}/h"]))
    steps = [before, bash(f"mkdir -p {d}; sleep {seconds} & echo $! > {d}/pid")]
    views = [
        bash(f"cat {d}/pid"),
        bash(f"pgrep -fx 'sleep {seconds}'"),
        execute(f"ps -eo pid=,args= | awk '$3 == {seconds} {{print $1}}'"),
        execute(f"kill -0 $(cat {d}/pid) && cat {d}/pid"),
        read(f"{d}/pid"),
    ]
    return motif("A process id", d, "pid", steps, views)


def compiled(chance: Random, d: str) -> Motif:
    """What Python compiles holds the time of the source."""
    steps = [bash(f"mkdir -p {d}; echo 'x = 1' > {d}/m.py"), bash(f"python3 -B -m py_compile {d}/m.py")]
    name = f"{d}/__pycache__/m.cpython-*.pyc"
    digest = 'import sys, hashlib; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())'
    views = [
        bash(f"sha256sum < $(echo {name}) | cut -c1-64"),
        execute(f"python3 -c '{digest}' {name}"),
        execute(f"cat {name} | sha256sum | cut -c 1-64"),
    ]
    return motif("A compiled file", d, "clock", steps, views)


def commit(chance: Random, d: str) -> Motif:
    """A commit's hash holds the time."""
    git = f"git -C {d} -c user.name=a -c user.email=a@b"
    steps = [
        bash(f"mkdir -p {d}; git init -q {d}; echo 1 > {d}/f; git -C {d} add f"),
        bash(f"{git} commit -q -m one"),
    ]
    views = [
        bash(f"git -C {d} rev-parse HEAD"),
        execute(f"cat {d}/.git/refs/heads/*"),
        bash(f"git -C {d} log --format=%H -1"),
    ]
    return motif("A commit", d, "clock", steps, views)


def writers(chance: Random, d: str) -> Motif:
    """The order in which writers at once come."""
    loop = f"for i in 1 2 3 4 5 6 7 8; do (sleep 0.00$((RANDOM % 9)); echo $i >> {d}/out) & done; wait"
    views = [bash(f"cat {d}/out"), read(f"{d}/out"), execute(f"base64 {d}/out | base64 -d")]
    return motif("A writers at once", d, "chance", [bash(f"mkdir -p {d}; {{ {loop}; }} > /dev/null 2>&1")], views)


def typed(chance: Random, d: str) -> Motif:
    """Chance that comes by keys, which return a screen and not an output."""
    v = f"k_{d[-1]}"
    steps = [Step("keys", {"keys": f"{v}=$RANDOM$RANDOM; clear\n", "wait": 0.3})]
    return motif(
        "A keys", d, "chance", steps, [bash(f"echo ${v}"), bash(f"printf '%s\\n' ${v}"), bash(f"cat <<< ${v}")]
    )


def archived(chance: Random, d: str) -> Motif:
    """An archive of a file holds its time."""
    steps = [bash(f"mkdir -p {d}; echo 1 > {d}/f"), bash(f"tar -cf {d}/f.tar -C {d} f; gzip -c {d}/f > {d}/f.gz")]
    views = [
        bash(f"cat {d}/f.tar {d}/f.gz | md5sum"),
        execute(f"cat {d}/f.tar {d}/f.gz | md5sum | cat"),
        bash(f"cat {d}/f.tar {d}/f.gz | cat | md5sum"),
    ]
    return motif("A archive", d, "clock", steps, views)


def file_time(chance: Random, d: str) -> Motif:
    """A file's time, asked for."""
    steps = [bash(f"mkdir -p {d}; echo 1 > {d}/f")]
    views = [bash(f"stat -c %y {d}/f"), execute(f"ls --full-time {d}/f | cut -d' ' -f6-8")]
    return motif("A file time", d, "clock", steps, views)


SPECIAL = (
    keys_of_ssh,
    temporary_directory,
    background_id,
    compiled,
    commit,
    writers,
    typed,
    archived,
)
TIMES = (file_time,)
"""Times of files are looked at only where that is asked for (`--times`)."""
