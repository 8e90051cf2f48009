"""Which commands may change what a shell does not tell of itself."""

from __future__ import annotations

import resource
import time

import pytest

from tvsnap.model.limits import MIB
from tvsnap.sandboxes.shell.words import ANY, hidden_commands, may_change_unseen, writes

NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    "command",
    [
        "ls", "cat f | wc -l", "echo wait", "grep -rn 'history' .", "python3 - <<'EOF'\nit's\nwait\nEOF\nls",
        "if [ -f x ]; then cat x; fi", "for i in 1 2 3; do echo $i; done", "[[ $x == a && -f y ]] && ls",
        "(( x > 1 )) && ls", 'echo "it\'s $(date) wait"', "./a.sh", '"$VENV/bin/python" x', "A=b ls", "2>&1 ls",
        "history", "history 5 | tail", "history > /dev/null", "x=$(echo sub); unset x", "cat <<< hello",
        "echo ${x:-a b}", "time ls", "command -v bash", "f() { ls; }; f", "while read -r l; do echo $l; done < f",
        "awk '{print $1}' f", "case $x in a) ls;; b) cat;; esac", "# it's\nls", "ls &> f", "cmd <(sort a) <(sort b)",
        "[ -f x ] && ls", "echo $RANDOM ${RANDOM}", "echo \\'wait", "cat <<EOF | grep x\nwait\nEOF", "{ ls; cat; }",
        "python3 -c \"print('a')\nwait\"", "sleep 5 &", "cat <<-E\n\tx\n\tE\nls", "",
    ],
)  # fmt: skip
def test_commands_that_leave_it(command: str) -> None:
    assert not may_change_unseen(command, NONE)


@pytest.mark.parametrize(
    "command",
    [
        "wait", "wait $!", "getopts ab o -ab", "\\bind x", "b''ind x", "'bind' x", '"bind" x', "$x a", "eval ls", ". f",
        "source f", "builtin bind x", "command -p bind x", "ls; bind x", "ls && bind", "(ls; wait)", "f() { wait; }; f",
        "function f { wait; }; f", "alias g=getopts; g", "trap 'getopts a b' DEBUG; :", "history -a", "RANDOM=5",
        "printf -v RANDOM 5", "OPTIND=1", "mapfile -C bind x", "wa$y it", "`echo bind` x", "$'\\x62ind' x",
        "if wait; then ls; fi", "ls |\nwait", "echo 'unterminated", "A=b wait", "2>/dev/null wait", ">x wait",
        "{ wait; }", "time -p wait", "disown", "[ x ]; wait", "[[ a ]]; wait", "(( 1 )); wait",
        "case x in x) wait;; esac", "x && ! wait", "enable -f a b", "bi?d", "wait&", "while wait; do :; done", "fc -s",
        "cat <<E\nx\nE\nwait", "foo wait\\\n; wait", "echo $(ls; wait",
    ],
)  # fmt: skip
def test_commands_that_may_change_it(command: str) -> None:
    assert may_change_unseen(command, NONE)


@pytest.mark.parametrize(
    "command",
    [
        "echo a > f", "echo a >> f", "cat <<'EOF' > f\nx\nEOF", "ls &> f", "make >log 2>&1", "cat a >| f", "> f",
        "(ls) > f", "for i in 1 2; do echo $i > f$i; done", 'echo a > "$f"', "sed -i s/a/b/ f",
        "cd x && sed -n -i 's/a/b/' f",
        "sed -ni.old p f", "sed --in-place=.old s/a/b/ f", "echo a > f; cat f", "ls 2> errors", "X=1", "ls; X=$(date)",
        "A=b\nls", "A=b && ls", "if ls; then :; fi > f",
    ],
)  # fmt: skip
def test_commands_that_write(command: str) -> None:
    assert writes(command)


@pytest.mark.parametrize(
    "command",
    [
        "ls", "ls 2>&1", "ls > /dev/null", "ls 2>/dev/null", "grep 'a > b' f", 'grep "a > b" f', "[[ a > b ]]",
        "((a > b))", "awk '$1 > 2' f", "cat < f", "echo a >&2", "sed -n 1,5p f", "sed s/-i/x/ f",
        "python3 - <<'EOF'\na > b\nEOF",
        "cat <<< a", "diff <(ls a) <(ls b)", "# > f", "A=b ls", "A=b C=d ls | cat",
        "echo 'unterminated", "cd /app && ls -la", "",
    ],
)  # fmt: skip
def test_commands_that_write_nothing(command: str) -> None:
    assert not writes(command)


def test_functions_aliases_traps_and_loaded_builtins() -> None:
    functions = "f () \n{ \n    getopts a b\n}\ng () \n{ \n    f\n}\nh () \n{ \n    ls $1\n}\n"
    aliases = "alias ll='ls -l'\nalias s='sudo '\nalias w='wait'\n"
    hidden = hidden_commands(functions, aliases, "trap -- 'rm x' EXIT\n", "enable test\nenable finfo\n")
    assert hidden == {"f", "g", "s", "w", "finfo"}
    assert may_change_unseen("ls && g", hidden)
    assert not may_change_unseen("h; ll", hidden)
    assert hidden_commands("", "", "trap -- 'wait' SIGUSR1\n", "") == {ANY}
    assert hidden_commands("x" * 300_000, "", "", "") == {ANY}
    assert may_change_unseen("ls", frozenset({ANY}))


@pytest.mark.parametrize(
    "piece", ["x", "(", "$(", '"$(', "${", "<<a\n", "a=(", ":;", "alias;", "history ", "' '", "a[b]", "\\\n", "((1));"]
)
def test_no_text_takes_long(piece: str) -> None:
    assert may_change_unseen(piece * 300_000, NONE)
    began, before = time.process_time(), peak()
    may_change_unseen((piece * 65536)[:65536], NONE)
    may_change_unseen(f"history{' ' * 65000}x", NONE)
    assert time.process_time() - began < 3
    assert peak() - before < 64 * MIB


CHAIN = "".join(f"f{number} () \n{{ \n    f{number + 1}\n}}\n" for number in range(5000))


@pytest.mark.parametrize(
    ("functions", "hidden"),
    [
        (f"{CHAIN}f5000 () \n{{ \n    eval :\n}}\n", 5001),
        (CHAIN, 0),
        ("a () \n" * 30000, 1),
        (f"f () \n{{ \n    {':;' * 30000}\n}}\n" * 4, 0),
    ],
    ids=["chain", "chain to nothing", "no end", "long"],
)
def test_no_definitions_take_long(functions: str, hidden: int) -> None:
    began = time.process_time()
    assert len(hidden_commands(functions, "", "", "")) == hidden
    hidden_commands("", "", "trap -- '" * 25000, "")
    assert time.process_time() - began < 3


def test_a_path_may_be_a_functions_name() -> None:
    functions = 'f () \n{ \n    "$x/y"\n}\na/b () \n{ \n    eval x\n}\n'
    assert hidden_commands(functions, "", "", "") == {"f", "a/b"}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
