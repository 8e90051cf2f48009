"""Kinds of state as (name, command that makes it, command that shows it, what that prints)."""

from __future__ import annotations

import pytest

NEEDS_PROCESSES = pytest.mark.needs_processes
"""Held by the shell's process, and by no data that it could be made again from."""

SHELL = [
    pytest.param("x='a  b'", 'echo "$x"', "a  b\n", id="variable"),
    pytest.param("export E=1", "bash -c 'echo $E'", "1\n", id="exported"),
    pytest.param("E=1; export E; export -n E", "bash -c 'echo [$E]'", "[]\n", id="unexported"),
    pytest.param("HOME=/nowhere; unset HOME", "echo [$HOME]", "[]\n", id="unset"),
    pytest.param("x=$(printf 'a\\nb')", 'echo "$x"', "a\nb\n", id="variable-with-newline"),
    pytest.param("x='it'\\''s \"$5\" \\ `'", 'echo "$x"', 'it\'s "$5" \\ `\n', id="variable-with-quotes"),
    pytest.param("cd /tmp", "pwd", "/tmp\n", id="cwd"),
    pytest.param("cd /tmp; cd /", "cd -", "/tmp\n", id="oldpwd"),
    pytest.param("greet() { echo hi $1; return 4; }", "greet you; echo $?", "hi you\n4\n", id="function"),
    pytest.param("greet() { echo a; }; unset -f greet", "greet 2>/dev/null; echo $?", "127\n", id="function-unset"),
    pytest.param("alias greet='echo hello'", "greet world", "hello world\n", id="alias"),
    pytest.param("set -u", "case $- in *u*) echo on;; esac", "on\n", id="option-nounset"),
    pytest.param("set -f", "echo /etc/host*", "/etc/host*\n", id="option-noglob"),
    pytest.param("set -o pipefail", "false | true; echo $?", "1\n", id="option-pipefail"),
    pytest.param("umask 027", "touch t; stat -c %a t", "640\n", id="umask"),
    pytest.param("trap 'echo caught' USR1", "kill -USR1 $$; echo after", "caught\nafter\n", id="trap"),
    pytest.param("trap 'echo bye' EXIT", "trap -p EXIT", "trap -- 'echo bye' EXIT\n", id="exit-trap"),
    pytest.param("set -- one 'two three'", 'echo $# "$2"', "2 two three\n", id="positional"),
    pytest.param("(exit 7)", "echo $?", "7\n", id="status"),
    pytest.param("false", "echo $?", "1\n", id="status-of-false"),
]

REAL_SHELL = [
    pytest.param(
        "a=(1 'two three' 4); a[7]=x", 'echo "${#a[@]} ${a[1]} ${!a[@]}"', "4 two three 0 1 2 7\n", id="array"
    ),
    pytest.param("declare -A m=([k]=v [l]='w w')", 'echo "${m[l]}"', "w w\n", id="associative"),
    pytest.param("readonly R=1", "(R=2) 2>/dev/null; echo $? $R", "1 1\n", id="readonly"),
    pytest.param("declare -i n; n=2+3", "n=n+1; echo $n", "6\n", id="integer"),
    pytest.param("shopt -s extglob", "case abab in +(ab)) echo yes;; esac", "yes\n", id="extglob"),
    pytest.param("shopt -s nullglob", "echo /nope*", "\n", id="nullglob"),
    pytest.param("pushd /tmp >/dev/null; pushd /etc >/dev/null", "dirs +1", "/tmp\n", id="directory-stack"),
    pytest.param("ulimit -n 123", "ulimit -n", "123\n", id="ulimit"),
    pytest.param("printf abc > kept; exec 7< kept", "cat <&7", "abc", id="descriptor", marks=NEEDS_PROCESSES),
    pytest.param(
        "printf abc > gone; exec 7< gone; rm gone",
        "cat <&7",
        "abc",
        id="descriptor-of-deleted-file",
        marks=NEEDS_PROCESSES,
    ),
    pytest.param(
        "printf abcdef > part; exec 7< part; read -r -n 3 -u 7 x",
        "cat <&7",
        "def",
        id="descriptor-offset",
        marks=NEEDS_PROCESSES,
    ),
    pytest.param(
        "exec 8>> log; echo one >&8",
        "echo two >&8; cat log",
        "one\ntwo\n",
        id="descriptor-append",
        marks=NEEDS_PROCESSES,
    ),
    pytest.param("x=$'\\xff\\xfe'", 'printf %s "$x" | od -An -tx1', " ff fe\n", id="variable-not-utf8"),
    pytest.param("trap '' INT", "trap -p INT", "trap -- '' SIGINT\n", id="ignored-signal"),
    pytest.param("IFS=:", "x=a:b; set -- $x; echo $1", "a\n", id="ifs"),
    pytest.param("complete -W 'a b' frob", "complete -p frob", "complete -W 'a b' frob\n", id="completion"),
    pytest.param("f() { local x=1; echo $x; }; declare -fx f", "bash -c f", "1\n", id="exported-function"),
]

FILES = [
    pytest.param("echo data > f", "cat f", "data\n", id="file"),
    pytest.param("printf '\\000\\377' > f", "wc -c < f", "2\n", id="binary"),
    pytest.param("mkdir -p a/b/c; echo x > a/b/c/f", "cat a/b/c/f", "x\n", id="deep"),
    pytest.param("mkdir empty", "ls -d empty", "empty\n", id="empty-directory"),
    pytest.param("echo x > f; rm f", "cat f 2>/dev/null; echo $?", "1\n", id="deleted"),
    pytest.param("rm /etc/os-release", "test -e /etc/os-release; echo $?", "1\n", id="deleted-from-image"),
    pytest.param("echo mine > /etc/hostname", "cat /etc/hostname", "mine\n", id="changed-in-image"),
    pytest.param("touch f; chmod 4751 f", "stat -c %a f", "4751\n", id="permissions"),
    pytest.param("mkdir d; chmod 1777 d", "stat -c %a d", "1777\n", id="directory-permissions"),
    pytest.param("chmod 600 /etc/hostname", "stat -c %a /etc/hostname", "600\n", id="permissions-in-image"),
    pytest.param("ln -s some/where l", "readlink l", "some/where\n", id="symlink"),
    pytest.param("echo a > f; ln f g", "echo b >> f; cat g; stat -c %h f", "a\nb\n2\n", id="hardlink"),
    pytest.param("mkfifo p", "test -p p; echo $?", "0\n", id="fifo"),
    pytest.param("echo a > 'sp ace'; echo b > -dash", "cat 'sp ace' ./-dash", "a\nb\n", id="odd-names"),
    pytest.param("echo a > héllo☃", "cat héllo☃", "a\n", id="unicode-name"),
    pytest.param("mkdir d; echo 1 > d/f; mv d e", "cat e/f; test -e d; echo $?", "1\n1\n", id="renamed-directory"),
    pytest.param("echo x > n; rm n; mkdir n; touch n/f", "ls n", "f\n", id="file-became-directory"),
    pytest.param("seq 1 50000 > big", "tail -n 1 big; wc -l < big", "50000\n50000\n", id="larger-file"),
]

REAL_FILES = [
    pytest.param("touch f; chown 33:44 f", "stat -c %u:%g f", "33:44\n", id="owner"),
    pytest.param("touch -d 2001-02-03T04:05:06.123456789Z f", "stat -c %.9Y f", "981173106.123456789\n", id="time"),
    pytest.param("touch -d @1000 d.f; mkdir d; touch -d @1000 d", "stat -c %Y d", "1000\n", id="directory-time"),
    pytest.param("truncate -s 50M sparse", "stat -c %s sparse; du -k sparse | cut -f1", "52428800\n0\n", id="sparse"),
    pytest.param("ln -s x l; chown -h 33:44 l", "stat -c %u l", "33\n", id="symlink-owner"),
    pytest.param("touch $'a\\nb'", "ls | od -An -tx1", " 61 0a 62 0a\n", id="newline-in-name"),
    pytest.param("touch $'\\xff'", "ls | od -An -tx1", " ff 0a\n", id="name-not-utf8"),
    pytest.param(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
        "test -S s; echo $?",
        "0\n",
        id="socket",
    ),
    pytest.param(
        'touch f; python3 -c \'import os; os.setxattr("f", "user.k", b"v")\'',
        'python3 -c \'import os; print(os.getxattr("f", "user.k"))\'',
        "b'v'\n",
        id="xattr",
    ),
    pytest.param(
        "rm -r /etc/vim /usr/share/doc; mkdir /etc/vim; touch /etc/vim/only",
        "ls /etc/vim; test -e /usr/share/doc; echo $?",
        "only\n1\n",
        id="image-directory-replaced",
    ),
    pytest.param("mv /usr/share/vim /usr/share/vim2", "ls -d /usr/share/vim*", "/usr/share/vim2\n", id="image-rename"),
    pytest.param("echo 1 > /tmp/f", "cat /tmp/f", "1\n", id="tmp"),
    pytest.param("echo 1 > /var/tmp/f", "cat /var/tmp/f", "1\n", id="var-tmp"),
    pytest.param("echo 1 > /dev/shm/f", "cat /dev/shm/f", "1\n", id="dev-shm"),
    pytest.param("echo 1 > /run/f", "cat /run/f", "1\n", id="run"),
    pytest.param("echo 1 > /root/f; echo 2 > /home/f; echo 3 > /f", "cat /root/f /home/f /f", "1\n2\n3\n", id="places"),
]
