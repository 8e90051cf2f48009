"""Commands over a few paths, variables and jobs, whose results depend on nothing but the calls before them."""

from __future__ import annotations

import re
from random import Random

from tests.fuzz.cases import Step, bash

PATIENCE = 4.0
"""Seconds for a call: some wait for input that never comes."""

CHOICES: dict[str, tuple[str, ...]] = {
    "name": ("a", "b", "c", "d/x", "d/y", "/tmp/z"),
    "dir": ("d", "e", "d/e", "/tmp/w"),
    "var": ("x", "y", "z"),
    "word": ("one", "'two three'", "''", "'é☃'", "$x", '"$HOME"', "'it'\\''s'"),
    "mode": ("600", "644", "755", "u+x", "a-w", "2755"),
    "n": ("1", "2", "3", "4"),
    "image": ("/etc/hostname", "/etc/os-release", "/etc/bash.bashrc", "/etc/profile"),
    "imagedir": ("/opt", "/srv", "/mnt", "/media"),
    "signal": ("USR1", "EXIT", "HUP"),
}

SIMPLE = (
    "echo <word> > <name>",
    "echo <word> >> <name>",
    "rm <name>",
    "rm -rf <dir>",
    "mkdir -p <dir>",
    "mv <name> <name>",
    "cp <name> <name>",
    "ln -s <name> <name>",
    "ln <name> <name>",
    "chmod <mode> <name>",
    "umask 0<n>7",
    "cd <dir>",
    "cd ..",
    "cd -",
    "cd /app",
    "<var>=<word>",
    "export <var>=<word>",
    "unset <var>",
    "n=$((n + <n>)); echo $n",
    "f() { echo <word> $1 $n; return <n>; }",
    "alias g='echo <n>'",
    "set -u",
    "set +u",
    "trap 'echo caught <n>' USR1",
    "set -- <word> <n>",
    "exit <n>",
    "(exit <n>)",
    "touch temporary; rm temporary",
    "seq 1 <n>0000 > <name>",
    "echo mine > <image>",
    "echo $?",
    "pwd; ls",
    "cat <name>",
    "wc -c < <name>; tail -n 2 <name>",
    "stat -c '%n %a %s %h %F' <name>",
    "f <word>; echo $?",
    "umask; kill -USR1 $$; echo here",
    'echo "[$<var>]" $#',
    "no-such-command-here",
    "if then",
)

SCRIPTED = (
    "echo <word> > <name>",
    "echo <word> >> <name>",
    "rm <name>",
    "rm -f <name>",
    "mkdir <dir>",
    "mkdir -p <dir>",
    "ln -s <name> <name>",
    "cat <name> > <name>",
    "cd <dir>",
    "cd ..",
    "cd /app",
    "<var>=<word>",
    'n="$n"<n>; echo $n',
    "exit <n>",
    "(exit <n>)",
    "echo > temporary; rm temporary",
    "echo mine > <image>",
    "echo $?",
    "pwd; ls",
    "cat <name>",
    "test -s <name>; echo $?",
    'echo "[$<var>]"',
    "kill %1",
)
"""What the sandboxes in memory understand."""

PROGRAMS = (
    "cp -a <name> <name>",
    "cp -r <dir> <dir>",
    "mv <dir> <dir>",
    "chmod <mode> <dir>",
    "chmod <mode> <imagedir>",
    "chown <n>:<n> <name>",
    "chown <n>:<n> <dir>",
    "truncate -s <n>00 <name>",
    "sed -i 's/o/0/' <name>",
    "sed -i '$d' <image>",
    "rm -f <image>",
    "touch -d '2020-01-0<n>' <name>",
    "touch -d '2020-01-0<n>' <dir>",
    "mkfifo pipe; test -p pipe; echo $?",
    "exec 7>> <name>; echo <n> >&7",
    "exec 7>&-",
    "exec 6< <name>; read -r line <&6; echo $line",
    "read -r line <&6; echo $line",
    "arr[<n>]=v; echo ${!arr[@]}",
    "declare -A m; m[<n>]=<word>; echo ${#m[@]}",
    "readonly r<n>=<word>",
    "declare -i i; i=<n>+i; echo $i",
    "shopt -s nullglob extglob",
    "shopt -u nullglob",
    "pushd <dir> > /dev/null; dirs",
    "popd > /dev/null; dirs",
    "hash -p /bin/true z<n>; z<n>; echo $?",
    "ulimit -n <n>00; ulimit -n",
    "python3 -c 'import os; print(sorted(os.listdir(\".\")), os.getcwd())'",
    'python3 -c \'import os; os.setxattr("<name>", "user.k", b"<n>")\'',
    "python3 -c 'import os; print(os.listxattr(\"<name>\"))'",
    "tar -cf t.tar <name> <dir>; tar -tf t.tar",
    "tar -xf t.tar; ls",
    "find d e -type f 2> /dev/null | sort",
    "find a b c d e -maxdepth 2 -printf '%p %y %m %l\\n' 2> /dev/null | sort",
    "grep -rc o d e 2> /dev/null | sort",
    "sort <name> | uniq -c",
    "git init -q g; git -C g status --short",
    "echo <n> > g/f<n>; git -C g add -A; git -C g status --short",
    "sqlite3 db 'create table if not exists t(v); insert into t values(<n>); select count(*), sum(v) from t'",
    "mkfifo p 2> /dev/null; (read -r l < p; echo $l > heard) > /dev/null 2>&1 & echo <n> > p; wait $!; cat heard",
    "jobs | wc -l",
    "kill %1 2> /dev/null; wait %1 2> /dev/null; jobs | wc -l",
    "stat -c '%a %u:%g' <imagedir> <dir>",
    "ulimit -a | md5sum",
    "trap",
    "trap 'echo left' <signal>",
    "history -s 'echo <n>'",
    "set -o noclobber",
    "set +o noclobber",
    "OPTIND=<n>; getopts ab:c o -a -b 1 -c; echo $o $OPTARG $OPTIND",
    "complete -W 'one two' z<n>; complete -p z<n>",
    'mkdir -p <dir> && cd <dir> && rm -rf "$PWD"; pwd',
    "cat /proc/$$/limits | md5sum",
)

JOBS = (
    "sleep <n>000 > /dev/null 2>&1 &",
    "sleep <n>000 &",
    "(exec 5< /etc/passwd; exec sleep <n>000) > /dev/null 2>&1 &",
)

TOOLS = (
    ("write_file", {"path": "<name>", "content": "<n> by tool\n"}),
    ("read_file", {"path": "<name>"}),
    ("exec", {"command": "echo by-exec >> <name>; pwd"}),
    ("exec", {"command": 'echo "[$<var>]"; pwd; ls', "cwd": "/app"}),
    ("exec", {"command": "cat <name>; id -u", "user": "nobody"}),
)

BLOCKED = ("echo first; cat; echo never", "n=7; sleep 100; n=8")


def step(chance: Random, *, programs: bool = True) -> Step:
    """Returns a call.

    Args:
        chance: what chooses.
        programs: there are real ones.
    """
    kind = chance.random()
    if kind < 0.15:
        name, arguments = chance.choice(TOOLS[:4] if not programs else TOOLS)
        return Step(name, {key: _filled(chance, value) for key, value in arguments.items()}, PATIENCE)
    if kind < 0.22:
        return bash(_filled(chance, chance.choice(JOBS if programs else JOBS[1:2])), free="pid", timeout=PATIENCE)
    if kind < 0.24:
        return bash(chance.choice(BLOCKED), timeout=0.4)
    if programs and kind < 0.6:
        return bash(_filled(chance, chance.choice(PROGRAMS)), timeout=PATIENCE)
    return bash(_filled(chance, chance.choice(SIMPLE if programs else SCRIPTED)), timeout=PATIENCE)


def _filled(chance: Random, template: str) -> str:
    return re.sub(r"<([a-z]+)>", lambda found: chance.choice(CHOICES[found[1]]), template)
