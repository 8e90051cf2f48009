"""The fake shell against the machine's bash: the same output and status for the same harmless commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend, fake_image
from tvsnap.model.limits import Limits

PREAMBLE = "shopt -s expand_aliases; umask 022; export LC_ALL=C.UTF-8\n"

COMMANDS = [
    "echo a; echo b >&2; (exit 4); echo $?",
    'for i in 1 2 3; do echo -n "$i "; done; echo',
    "x='a  b'; echo $x; echo \"$x\"; echo '$x' \\$x",
    "f() { echo in f $1 $#; return 3; }; f hi there; echo $?",
    "if [ -d . ]; then echo yes; else echo no; fi; if false; then :; elif true; then echo elif; fi",
    "echo $((1+2*3)) $((7/2)) $((-7/2)) $((7%3)) $((2>1)) $((!0)) $((1 && 0))",
    "n=0; while [ $n -lt 3 ]; do n=$((n+1)); done; echo $n; until [ $n = 0 ]; do n=$((n-1)); done; echo $n",
    "case foo in b*) echo b;; f*|x) echo match;; *) echo no;; esac",
    "echo hello | tr a-z A-Z | cat; echo a | false | true; echo $?; set -o pipefail; false | true; echo $?",
    "x=1; cat <<E\nx is $x $(echo sub) \\$x\nE\ncat <<'E'\n$x\nE",
    "mkdir -p q/a q/b; touch q/f1 q/f2; cd q; ls; echo *; echo f?; echo '*' \"*\"; echo [ab]; echo no*such",
    "echo one > o; echo two >> o; cat o; cat < o; cat missing 2> /dev/null; echo $?",
    "printf '%s-%03d|%5s|%-5s|%x\\n' a 5 b c 255 d 6 e f 16; printf '%%\\t\\n'",
    "true && echo t || echo f; false && echo t || echo f; ! true; echo $?; ! false; echo $?",
    "x=${y:-def}; echo $x ${#x} ${x%f} ${x#d} ${y+set} ${x:+set}; echo ${z:=new} $z",
    "p=/a/b/c.txt; echo ${p##*/} ${p%.*} ${p%/*} ${p#*/}",
    "echo $(echo sub; echo two) \"$(printf 'a\\n\\n')\" `echo old`; x=$(exit 3); echo $?",
    "a=1 b=2; echo $a$b; a=5 bash -c 'echo $a'; echo $a; export E=1; bash -c 'echo $E'",
    'd=$(pwd); (cd /; pwd; x=1); test "$d" = "$(pwd)"; echo $? [$x]; { echo g1; echo g2; } > g; cat g',
    'set -- p \'q r\' s; echo $# "$2"; shift; echo $1; for i in "$@"; do echo "<$i>"; done; for i; do echo $i; done',
    "echo t > t; ln -s t l; cat l; readlink l; rm t; cat l 2> /dev/null; echo $?",
    "ln -s t l; test -L l; echo $?; test -e l; echo $?",
    "umask 027; touch u; stat -c %a u; chmod u+x,g-r u; stat -c '%a %F %s' u",
    "trap 'echo bye' EXIT; trap -p; (echo sub); exit 3",
    "seq 3 | while read l; do echo got $l; done; read a b <<< 'one two three'; echo $a/$b",
    "[[ abc == a* ]] && echo glob; [ 3 -gt 2 -a -n x ]; echo $?; [ ! -e nothing ]; echo $?; [ a != b ]; echo $?",
    "let z=3+4; echo $z; ((z++)); echo $z; ((z==8)) && echo eight; ((z == 9)); echo $?",
    "no-such-command 2> /dev/null; echo $?; ./none 2> /dev/null; echo $?; touch s; ./s 2> /dev/null; echo $?",
    "alias hi='echo hello'\nhi you\nunalias hi\nhi 2> /dev/null; echo $?",
    "for i in 1 2; do for j in 1 2 3; do [ $j = 2 ] && continue 2; echo $i$j; done; done; while true; do break; done",
    "set -e; false || echo tested; ! true; if false; then :; fi; echo on; false; echo off",
    'set -u; echo ${nope:-d}; x=; echo "[$x]"; (echo $nope) 2> /dev/null; echo $?',
    "echo a > f; cp f g; mv g h; mkdir d; cp -r d e; mv h e/; find . -type f | sort; rm -r e; rmdir d; ls",
    "echo a > f; ln f g; echo b >> g; cat f; stat -c %h f; [ f -ef g ]; echo $?",
    "sleep 1000 & p=$!; kill -0 $p; echo $?; kill $p; wait $p 2> /dev/null; echo $?; kill -0 $p 2> /dev/null; echo $?",
    "echo 'echo script $1; exit 4' > s.sh; bash s.sh arg; echo $?; chmod +x s.sh; . ./s.sh x",
    "echo 3 > n; echo 1 >> n; echo 2 >> n; sort n; sort -r n | head -n 1; tail -n 1 n; wc -l < n",
    "seq 12 > n; grep -c 1 n; grep 99 n; echo $?; grep 2 < n; grep -v 1 n | wc -l",
    "f() { local v=1; g; }; g() { echo in-g; }; f; type f > /dev/null; echo $?",
    "f() { :; }; unset -f f; type f > /dev/null 2>&1; echo $?",
    "echo abc | sed s/b/X/; echo a-b | tr - _; basename /x/y.z; dirname /x/y; echo {x} 'a'\"b\"c\\ d",
    "x=$'a\\tb\\x41'; echo \"$x\"; echo -e 'a\\tb'; echo -n; echo --; printf '%b' 'x\\n'; printf '%q\\n' plain",
    "exec 2>&1; eval 'echo ev; x=2'; echo $x; command -v echo; echo \"a # b\" # comment",
    "mkdir a; cd a; cd ..; cd - > /dev/null; basename $(pwd); cd /nowhere 2> /dev/null; echo $?; x=1; x+=2; echo $x",
    "echo a\nif then\necho b",
    "echo $(",
    "kill -TERM 999999 2> /dev/null; echo $?; true & wait $!; echo $?; (exit 5) & wait $!; echo $?",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_fake_shell_does_as_bash(tmp_path: Path, command: str) -> None:
    (tmp_path / "home").mkdir()
    real = subprocess.run(
        # Where the suite was started to outlive its terminal, hangups are ignored, and `trap -p` would show that.
        ["env", "--default-signal=HUP", "bash", "-c", PREAMBLE + command],
        cwd=tmp_path / "home",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=20,
        check=False,
    )
    backend = FakeBackend()
    fake = backend.start(fake_image(), Limits()).exec(PREAMBLE + command, timeout=20)
    # Error messages name line numbers that differ; which ones come is compared by their count.
    real_lines, fake_lines = real.stdout.decode().splitlines(), fake.output.decode().splitlines()
    assert [line for line in fake_lines if "bash:" not in line] == [line for line in real_lines if "bash:" not in line]
    assert fake.exit_code == real.returncode
    assert any("bash:" in line for line in fake_lines) == any("bash:" in line for line in real_lines)
