"""Idle shells captured without CRIU: whatever is done to a shell, its fork is the same in all that commands can see.

Each state is made in a shell, captured and given to a fresh one; then the same probes run in both. A state may be
refused instead, with a reason; those that must be are listed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import LIMITS, Lab, run, settled, sh, usable
from tests.conformance.shell_cases import FILES, NEEDS_PROCESSES, REAL_FILES, REAL_SHELL, SHELL
from tests.conformance.targets import make_local
from tvsnap.images import Image
from tvsnap.model.errors import MachineLacks, NotCheckpointable, NotRestorable, SnapshotUnusable
from tvsnap.sandboxes.protocol import Backend, Sandbox


@pytest.fixture(scope="module")
def backend(tvsnap_home: Path) -> Iterator[Backend]:
    """A local backend on a machine that has no CRIU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVSNAP_CRIU", "/nowhere")
        patch.setenv("TVSNAP_WITHOUT_CRIU", "1")
        try:
            backend = make_local(tvsnap_home)
        except MachineLacks as lack:
            pytest.skip(str(lack))
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def image(terminal_image: Image) -> Image:
    return terminal_image


@pytest.fixture(scope="module")
def with_criu(tvsnap_home: Path) -> Iterator[Backend]:
    """A local backend with CRIU on the same data directory."""
    try:
        backend = make_local(tvsnap_home)
    except MachineLacks as lack:
        pytest.skip(str(lack))
    yield backend
    backend.close()


# What the variables of the shell's own machinery and of bash's say changes with every command or with time.
CHANGING = (
    r"declare \S+ (_|BASHPID|BASH_\w+|COMP_WORDBREAKS|DIRSTACK|EPOCH\w+|FUNCNAME|GROUPS|HISTCMD|LINENO|PIPESTATUS|"
    r"RANDOM|SECONDS|SRANDOM|__tvsnap_([cmors]|start))\b[^\n]*\n"
)
PROBES = (
    "echo $? \"$0\" $# \"$@\" $- $$ $PPID \"${!-}\"",
    "declare -p",
    "declare -f; declare -F",
    "set -o; shopt",
    "alias; enable -n; complete -p; trap -p",
    "umask; ulimit -a; ulimit -aH",
    "pwd; pwd -P; dirs -l; cd .; echo $PWD $OLDPWD",
    "env",
    "jobs; history; hash; bind -p",
    "compgen -v; compgen -A function; compgen -A hostname",
    "getopts abc: letter -a -bc -cd; echo $? $letter $OPTIND $OPTARG",
    "tr '\\0' '\\n' < /proc/$$/cmdline; tr '\\0' '\\n' < /proc/$$/environ; tr '\\0' '\\n' < /proc/1/cmdline",
    "cat /proc/$$/limits /proc/$$/oom_score_adj; grep -E '^(SigI|Cap|Uid|Gid|Umask|Cpus)' /proc/$$/status",
    "stty -a; tty",
    "for name in /etc/host*; do echo $name; done; echo {a,b} *.nothing",
    "echo ${m[@]} ${!m[@]} ${q[@]} ${!q[@]}; type f g; f one two; g; greet",
    "bash -c 'shopt -p; set +o; ulimit -n; umask; env; type f'",
    "x=5; n=2+3; u=Up; l=Up; echo $x $n $u $l; (r=1); echo $?",
    "declare -p __tvsnap_l",
)  # fmt: skip


def looks(sandbox: Sandbox) -> list[str]:
    """Returns what all probes print, and what the terminal shows before them."""
    found = [sandbox.terminal().data.decode("latin-1"), repr(sorted(sandbox.shell_state().items()))]
    for probe in PROBES:
        outcome = run(sandbox, probe)
        text = outcome.output.decode("latin-1")
        found.append(f"{outcome.exit_code} {outcome.shell_lost} {re.sub(CHANGING, '', text)}")
    return found


def assert_alike(first: Sandbox, second: Sandbox) -> None:
    assert first.observe().shell == second.observe().shell
    for probe, one, other in zip(("terminal", "state", *PROBES), looks(first), looks(second), strict=True):
        assert one == other, probe


WITHOUT_PROCESSES = [
    case
    for case in (*SHELL, *REAL_SHELL, *FILES[:6], *REAL_FILES[:4])
    if all(mark.name != NEEDS_PROCESSES.name for mark in case.marks)
]


@pytest.mark.parametrize(("command", "probe", "expected"), WITHOUT_PROCESSES)
def test_state_survives(
    lab: Lab, sandbox: Sandbox, command: str, probe: str, expected: str, request: pytest.FixtureRequest
) -> None:
    sh(sandbox, command)
    fork = lab.fork_of(sandbox)
    assert sh(fork, probe) == expected
    assert sh(sandbox, probe) == expected


REFUSED = [
    # Until its exec, the job still bears the name of the shell it was forked from.
    ("sleep 1000 & until pgrep -x sleep > /dev/null; do :; done", "sleep 1000"),
    ("(sleep 1000 &); until pgrep -x sleep > /dev/null; do :; done", "sleep 1000"),
    (": & wait", "background job"),
    ("cat <(echo) >/dev/null; while kill -0 $! 2> /dev/null; do :; done", "background job"),
    ("exec 7< /etc/passwd", "/etc/passwd open as descriptor 7"),
    ("exec < /dev/null", "/dev/null open as descriptor 0"),
    ("history -s once", "history"),
    ("RANDOM=42", "RANDOM"),
    ("eval RAN''DOM=42; echo $RANDOM", "RANDOM"),
    ("seed() { local RANDOM=42; }; seed", "RANDOM"),
    ("stty -echo", "terminal"),
    ("stty rows 50", "terminal"),
    ("ipcmk -S 1", "System V"),
    ("trap : DEBUG", "trap on DEBUG"),
    ("trap : CHLD", "CHLD"),
    ("trap : ERR; false", "trap on ERR"),
    ("set -x", "xtrace"),
    ("set -a", "allexport"),
    ("where() { echo $LINENO; }", "line numbers"),
    ("me() { echo ${BASH_SOURCE[0]}; }", "source"),
    ("getopts ab letter -ab", "getopts"),
    ("set -- -abc; getopts abc letter; getopts abc letter", "getopts"),
    ("getopts a letter; for i in {1..9}; do getopts a letter -aaaaaaaaaaaa; done", "getopts"),
    ("set -- -$(printf a%.0s {1..4098}); for i in {1..4097}; do getopts a letter; done", "getopts"),
    ("unset SECONDS; SECONDS=5", "SECONDS was unset"),
    ("mkdir d; cd d; rmdir ../d", "moved or deleted"),
    ("mkdir d; cd d; mv ../d ../e; mkdir ../d", "moved or deleted"),
    ("renice -n 19 $$ > /dev/null", "nice"),
    ("taskset -pc 0 $$ > /dev/null", "Cpus_allowed"),
    ("echo other > /proc/$$/comm", "name was changed"),
    ("bind '\"\\C-xq\": abort'", "key bindings"),
    ("ionice -c 3 -p $$", "what the kernel keeps of the shell was changed"),
    ("echo 0x77 > /proc/$$/coredump_filter", "what the kernel keeps of the shell was changed"),
    ("echo : >> /etc/bash.bashrc", "bash.bashrc"),
    ("OPTIND=12345", "OPTIND"),
    ("COLUMNS=200", "COLUMNS"),
    ("GLOBIGNORE='*.o'", "BASHOPTS"),
    ("alias x=$'a\\1functions\\nb'", "control character"),
]


@pytest.mark.parametrize(("command", "reason"), REFUSED, ids=[command for command, _ in REFUSED])
def test_refused(lab: Lab, sandbox: Sandbox, command: str, reason: str) -> None:
    run(sandbox, command)
    with pytest.raises(NotCheckpointable, match=re.escape(reason)):
        lab.checkpoint(sandbox)
    run(sandbox, "set +x")
    usable(sandbox)


STEPS = (
    "x='a  b'; export E=1 F='it'\\''s'", "unset HOME; E=2; export -n E", "x=$'\\xff\\xfe\\1\\n$(date)`x`'", "cd /tmp",
    "pushd /etc > /dev/null", "pushd -n /usr > /dev/null", "f() { echo \"f $1\"; return 4; }; declare -fx f",
    "g() { cat <<END\n$x \\$y\nEND\n}", "unset -f f", "alias greet='echo hello' g2=\"x'y\"", "unalias -a", "set -u",
    "set -f", "set -o pipefail", "set -o vi", "set +H", "set -o posix", "set -a", "set -C", "set -E", "set +m",
    "shopt -s extglob nullglob dotglob", "shopt -s extdebug", "shopt -u expand_aliases", "umask 027", "set --",
    "set -- one 'two three' ''", "BASH_ARGV0=other", "(exit 7)", "false", "a=(1 'two three' 4); a[7]=x; unset 'a[1]'",
    "declare -A m=([k]=v [l]='w w' ['a]b']=1 ['$(x)']=2)",
    "for i in {1..300}; do m[$i]=$i; done", "declare -A q; q[@]=1",
    "declare -i n=7; declare -u u=abc; declare -l l=ABC", "readonly r=1; declare -r s; declare -x W",
    "declare -n ref=x",
    "declare -a empty=(); declare -a none; declare -ai numbers=(1 2)", "ulimit -Sn 200", "ulimit -n 300", "ulimit -c 0",
    "trap 'echo caught' USR1; trap 'echo bye; true' EXIT", "trap '' INT", "trap - USR1",
    "complete -W 'a b' frob one two",
    "complete -F f -o nospace -A directory fro", "complete -r", "enable -n echo", "enable -n test; enable echo",
    "IFS=:", "PS1='\\w '; PS4='+$x '", "PATH=/bin:/usr/bin:$PATH", "unset OLDPWD; LC_ALL=C", "LANG=de_DE.UTF-8; TZ=UTC",
    "[[ abc =~ b(c) ]]", "while getopts ab o -a -b; do :; done", "OPTIND=1", "unset RANDOM SECONDS LINENO",
    "export SHELLOPTS", "echo shown > /dev/tty", "printf 'a\\tb\\033[1m' > /dev/tty", "COMP_WORDBREAKS=abc",
    "shopt -s failglob; set +o emacs", "unset PATH IFS", "printf() { echo mine; }", "alias if=echo while='echo x'",
    "f() { if [[ $1 == @(a|b) ]]; then case $1 in a) echo a;; *) echo b;& esac; fi; } 2> /dev/null", "BASH_COMPAT=4.4",
    "export -f g", "HISTSIZE=7; HISTCONTROL=ignoredups", "GLOBIGNORE='*.o'", "TMOUT=100", "mkdir -p s/t; cd s/t; cd ..",
    "ln -s /usr/share link; cd link", "cd -P .", "eval 'k() { for ((i = 0; i < 2; i++)); do echo $i; done; }'",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_random_states(lab: Lab, sandbox: Sandbox, seed: int) -> None:
    """A state survives in full or is refused before it is captured: an image that cannot be restored is a fault."""
    chance = random.Random(seed)
    steps = chance.choices(STEPS, k=chance.randint(2, 10))
    for step in steps:
        run(sandbox, step)
    try:
        fork = lab.fork_of(sandbox)
    except NotCheckpointable:
        usable(sandbox)
        return
    assert_alike(sandbox, fork)


def test_the_same_as_with_criu(lab: Lab, with_criu: Backend, sandbox: Sandbox, image: Image) -> None:
    """The same state, captured in both ways, prints the same to every probe."""
    other = with_criu.start(image, LIMITS)
    criu = Lab(with_criu, image)
    try:
        for step in STEPS[:12]:
            run(sandbox, step)
            run(other, step)
        assert_alike(lab.fork_of(sandbox), criu.fork_of(other))
    finally:
        other.close()
        criu.close()


def test_capturing_leaves_no_trace(lab: Lab, sandbox: Sandbox) -> None:
    other = lab.start()
    for each in (sandbox, other):
        sh(each, "x=1; f() { echo f; }; cd /tmp; (exit 7)")
    lab.checkpoint(sandbox)
    assert_alike(sandbox, other)


def test_chain_of_forks(lab: Lab, sandbox: Sandbox) -> None:
    current = sandbox
    for number in range(4):
        sh(
            current,
            f"v{number}={number}; f{number}() {{ echo {number}; }}; echo {number} >> log; echo {number} > /dev/tty",
        )
        current = lab.fork_of(current)
    assert sh(current, "echo $v0$v1$v2$v3; f0; f3; cat log") == "0123\n0\n3\n0\n1\n2\n3\n"
    assert current.terminal().data == b"0\r\n1\r\n2\r\n3\r\n"


def test_startup_file_is_not_read_again(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "echo 'echo again >> /log; started=yes' >> ~/.bashrc")
    fork = lab.fork_of(sandbox)
    assert sh(fork, "cat /log 2> /dev/null; echo [$started]") == "[]\n"
    assert run(fork, "exit").shell_lost
    assert sh(fork, "cat /log; echo [$started]") == "again\n[yes]\n", "as in any new shell"


def test_shell_that_was_started_anew(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "for i in {1..40}; do (:); done")
    assert run(sandbox, "exit 3").shell_lost
    sh(sandbox, "x=1")
    assert_alike(sandbox, lab.fork_of(sandbox))


def test_snapshot_without_processes_where_there_is_criu(lab: Lab, with_criu: Backend, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1; echo 1 > f")
    fork = with_criu.fork(lab.checkpoint(sandbox).id, lab.image, LIMITS)
    try:
        assert sh(fork, "echo $x; cat f") == "1\n1\n"
    finally:
        fork.close()


def test_snapshot_with_processes_where_there_is_no_criu(lab: Lab, with_criu: Backend) -> None:
    criu = Lab(with_criu, lab.image)
    try:
        snapshot = criu.checkpoint(criu.start())
        with pytest.raises(NotRestorable, match="no CRIU"):
            lab.fork(snapshot)
    finally:
        criu.close()


@pytest.mark.parametrize("change", ["truncated", "garbled", "gone"])
def test_damaged_image(lab: Lab, sandbox: Sandbox, change: str) -> None:
    snapshot = lab.checkpoint(sandbox)
    [path] = lab.backend._snapshots.path.glob(f"{snapshot.id}/shell.json")  # type: ignore[attr-defined]
    data = path.read_bytes()
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if change == "truncated" else data.replace(b"declare", b"deklare"))
    with pytest.raises(SnapshotUnusable):
        lab.fork(snapshot)


def test_an_open_prompt_is_refused(lab: Lab, sandbox: Sandbox) -> None:
    sandbox.send_keys(b"", wait=1.0)
    with pytest.raises(NotCheckpointable, match="prompt"):
        lab.checkpoint(sandbox)


def test_after_a_job_that_the_shell_does_not_know(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "(sleep 1000 &)")
    settled(sandbox, "sleep 1000")
    with pytest.raises(NotCheckpointable, match="sleep 1000"):
        lab.checkpoint(sandbox)
    sh(sandbox, "pkill sleep; while pgrep sleep > /dev/null; do :; done")
    assert_alike(sandbox, lab.fork_of(sandbox))
