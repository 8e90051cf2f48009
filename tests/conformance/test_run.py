"""`Sandbox.run`: one persistent shell, whose output, status and state are exact whatever a command does."""

from __future__ import annotations

import random
import re
import time

import pytest

from tests.conformance.helpers import Lab, changed, commands, eventually, job, run, screen, sh, usable
from tests.conformance.shell_cases import FILES, REAL_FILES, REAL_SHELL, SHELL
from tvsnap.images import Image
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.protocol import Sandbox

SHORT = 1.0
LONGER = 5.0
"""For a call that must be seen to wait: it must do so for the second half of its time."""


def test_plain_command(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "echo hello")
    assert (outcome.output, outcome.exit_code) == (b"hello\n", 0)
    assert not any((outcome.timed_out, outcome.blocked, outcome.truncated, outcome.shell_lost))
    assert 0 <= outcome.duration < 20


def test_starts_in_the_workdir(sandbox: Sandbox, image: Image) -> None:
    assert sh(sandbox, "pwd") == image.workdir + "\n"


def test_environment_is_the_images(sandbox: Sandbox, image: Image) -> None:
    for name, value in image.env.items():
        assert sh(sandbox, f"printenv {name}") == value + "\n"


def test_output_interleaves(sandbox: Sandbox) -> None:
    output = sh(sandbox, "for i in 1 2 3; do echo out$i; echo err$i >&2; done")
    assert output == "out1\nerr1\nout2\nerr2\nout3\nerr3\n"


def test_output_of_programs_interleaves(sandbox: Sandbox) -> None:
    program = "import os\nfor i in range(50): os.write(1, b'o%d\\n' % i); os.write(2, b'e%d\\n' % i)"
    sandbox.write_file("p.py", program.encode())
    assert sh(sandbox, "python3 p.py") == "".join(f"o{i}\ne{i}\n" for i in range(50))


@pytest.mark.parametrize(
    ("command", "code"),
    [("true", 0), ("false", 1), ("(exit 42)", 42), ("no-such-command-here", 127), ("true; false", 1), ("! true", 1)],
)
def test_exit_code(reused: Sandbox, command: str, code: int) -> None:
    assert run(reused, command).exit_code == code
    usable(reused)


def test_exit_code_of_killed_program(sandbox: Sandbox) -> None:
    assert run(sandbox, "bash -c 'kill -9 $$'").exit_code == 137
    assert sh(sandbox, "echo $?") == "137\n"


@pytest.mark.parametrize(("command", "probe", "expected"), SHELL)
def test_shell_state_persists(reused: Sandbox, command: str, probe: str, expected: str) -> None:
    sh(reused, command)
    assert sh(reused, probe) == expected


@pytest.mark.parametrize(("command", "probe", "expected"), REAL_SHELL)
def test_more_shell_state_persists(reused: Sandbox, command: str, probe: str, expected: str) -> None:
    sh(reused, command)
    assert sh(reused, probe) == expected


@pytest.mark.parametrize(("command", "probe", "expected"), FILES)
def test_files_persist(reused: Sandbox, command: str, probe: str, expected: str) -> None:
    sh(reused, command)
    assert sh(reused, probe) == expected


@pytest.mark.parametrize(("command", "probe", "expected"), REAL_FILES)
def test_more_files_persist(reused: Sandbox, command: str, probe: str, expected: str) -> None:
    sh(reused, command)
    assert sh(reused, probe) == expected


@pytest.mark.parametrize("command", ["", "   ", "\n\n", "# only a comment", "\t"])
def test_empty_command(reused: Sandbox, command: str) -> None:
    sh(reused, "true")
    outcome = run(reused, command)
    assert (outcome.output, outcome.exit_code, outcome.shell_lost) == (b"", 0, False)
    usable(reused)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("a=1\nb=2\n\necho $((a + b))\n", "3\n"),
        ("for i in 1 2; do\n  # a comment\n  echo $i\ndone", "1\n2\n"),
        ("f() {\n  echo in f\n}\nf", "in f\n"),
        ("echo a \\\n  b", "a b\n"),
        ("cat <<EOF\nx $((1 + 1))\nEOF\necho after", "x 2\nafter\n"),
        ("cat <<'EOF'\n$x `y` \\\nEOF", "$x `y` \\\n"),
        ("cat <<-EOF\n\tindented\n\tEOF", "indented\n"),
        ("cat > f <<A; cat <<B\nfirst\nA\nsecond\nB\ncat f", "second\nfirst\n"),
        ("if true\nthen\n  echo yes\nelse\n  echo no\nfi", "yes\n"),
        ("echo one; echo two &&\necho three", "one\ntwo\nthree\n"),
        ("echo 'two\nlines'", "two\nlines\n"),
    ],
)
def test_several_lines(reused: Sandbox, command: str, expected: str) -> None:
    assert sh(reused, command) == expected
    usable(reused)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ('echo "it\'s"', "it's\n"),
        ("echo 'a\"b'", 'a"b\n'),
        ("echo '\\'", "\\\n"),
        ("echo \\\\", "\\\n"),
        ('echo "\\$HOME"', "$HOME\n"),
        ("echo \"$(echo ')')\"", ")\n"),
        ("echo wow!", "wow!\n"),
        ('echo "!!" "!x" \'!1\'', "!! !x !1\n"),
        ("echo EOF", "EOF\n"),
        ("echo 'a\tb'", "a\tb\n"),
        ("printf '%s' 'a\x03\x04\x1a\x16\x11\x13\x1c\x7fb'", "a\x03\x04\x1a\x16\x11\x13\x1c\x7fb"),
        ("printf '%s' '\x1b[31mred'", "\x1b[31mred"),
        ("echo '%s %d %n'", "%s %d %n\n"),
        ("echo '; exit 1'", "; exit 1\n"),
        ("echo 'héllo ☃ 日本 𝄞'", "héllo ☃ 日本 𝄞\n"),
        ("echo ' leading and trailing '", " leading and trailing \n"),
        ("echo '$'\"'\"'x'", "$'x\n"),
        ("echo 'EOF\nEOF'", "EOF\nEOF\n"),
        ("printf 'no newline'", "no newline"),
        ("printf 'a\\r\\nb\\rc'", "a\r\nb\rc"),
        ("echo -n", ""),
    ],
)
def test_text_arrives_as_written(reused: Sandbox, command: str, expected: str) -> None:
    assert sh(reused, command) == expected
    usable(reused)


def test_no_prompt_and_no_echo(sandbox: Sandbox) -> None:
    sh(sandbox, "PS1='evil> '; PS2='more> '")
    assert sh(sandbox, "echo 'a\nb'") == "a\nb\n"


def test_output_is_no_terminal(sandbox: Sandbox) -> None:
    assert sh(sandbox, "test -t 1; echo $?; test -t 2; echo $?") == "1\n1\n"


def test_binary_output(sandbox: Sandbox) -> None:
    assert run(sandbox, "printf '\\000\\001\\377\\376\\200\\n\\000'").output == b"\0\x01\xff\xfe\x80\n\0"


def test_syntax_error(sandbox: Sandbox) -> None:
    sh(sandbox, "x=kept")
    outcome = run(sandbox, "if then fi")
    assert outcome.exit_code == 2
    assert b"syntax error" in outcome.output
    assert not outcome.shell_lost
    assert sh(sandbox, "echo $x") == "kept\n"


def test_commands_before_a_syntax_error_run(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "echo before\nx=1\necho (\necho after")
    assert outcome.output.startswith(b"before\n")
    assert b"after\n" not in outcome.output
    assert outcome.exit_code == 2
    assert sh(sandbox, "echo $x") == "1\n"


@pytest.mark.parametrize("command", ["echo 'abc", 'echo "abc', "echo $(echo", "if true; then echo x", "{ echo x"])
def test_unfinished_command_fails_at_once(reused: Sandbox, command: str) -> None:
    outcome = run(reused, command)
    assert not outcome.timed_out
    assert outcome.exit_code
    assert not outcome.shell_lost
    usable(reused)


def test_unfinished_here_document(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "cat <<EOF\nhello")
    assert b"hello" in outcome.output
    usable(sandbox)


def test_unbound_variable(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "set -u; echo $nope; echo after")
    assert b"unbound variable" in outcome.output
    assert b"after\n" not in outcome.output
    assert outcome.exit_code
    sh(sandbox, "set +u")
    usable(sandbox)


def test_exit_loses_the_shell(sandbox: Sandbox, image: Image) -> None:
    sh(sandbox, "x=1; cd /tmp; echo kept > /tmp/kept")
    outcome = run(sandbox, "echo bye; exit 3")
    assert (outcome.output, outcome.exit_code, outcome.shell_lost) == (b"bye\n", 3, True)
    assert sh(sandbox, 'echo "[$x]"; pwd; cat /tmp/kept') == f"[]\n{image.workdir}\nkept\n"


def test_exit_runs_the_exit_trap(sandbox: Sandbox) -> None:
    sh(sandbox, "trap 'echo trapped > /tmp/trapped' EXIT")
    outcome = run(sandbox, "exit 4")
    assert (outcome.exit_code, outcome.shell_lost) == (4, True)
    assert sh(sandbox, "cat /tmp/trapped") == "trapped\n"
    usable(sandbox)


def test_exec_replaces_the_shell(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "exec bash -c 'echo last; exit 6'")
    assert (outcome.output, outcome.exit_code, outcome.shell_lost) == (b"last\n", 6, True)
    usable(sandbox)


def test_errexit_loses_the_shell(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "set -e; echo before; false; echo after")
    assert (outcome.output, outcome.exit_code, outcome.shell_lost) == (b"before\n", 1, True)
    usable(sandbox)


def test_errexit_persists(sandbox: Sandbox) -> None:
    assert sh(sandbox, "set -e; echo on") == "on\n"
    assert sh(sandbox, "false || echo tested; if false; then :; fi") == "tested\n"
    assert run(sandbox, "(exit 9)").shell_lost
    usable(sandbox)


def test_shell_killed_by_its_own_hand(sandbox: Sandbox) -> None:
    assert run(sandbox, "kill -9 $$; echo not reached").shell_lost
    usable(sandbox)


def test_several_losses_in_a_row(sandbox: Sandbox) -> None:
    for code in range(4):
        assert run(sandbox, f"exit {code}").exit_code == code
    usable(sandbox)


@pytest.mark.parametrize("command", ["return 3", "break", "continue 2", "shift 5", "cd /nowhere", "unset nothing"])
def test_command_out_of_place(reused: Sandbox, command: str) -> None:
    outcome = run(reused, command)
    assert not outcome.timed_out
    assert not outcome.shell_lost
    usable(reused)


def test_long_output_is_cut_in_the_middle(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "seq 1 200000")
    assert outcome.truncated
    assert outcome.exit_code == 0
    assert outcome.output.startswith(b"1\n2\n3\n")
    assert outcome.output.endswith(b"\n199999\n200000\n")
    limit = Limits().output
    assert limit // 2 < len(outcome.output) <= limit + 1024
    usable(sandbox)


def test_output_limit_is_the_sandboxes_own(lab: Lab) -> None:
    sandbox = lab.start(Limits(output=1000))
    exact = run(sandbox, "head -c 1000 /dev/zero")
    assert (exact.output, exact.truncated) == (bytes(1000), False)
    more = run(sandbox, "head -c 1001 /dev/zero")
    assert more.truncated
    assert len(more.output) < 1200


def test_endless_output(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "yes", timeout=LONGER)
    assert outcome.timed_out
    assert outcome.truncated
    assert not outcome.blocked
    assert outcome.output.startswith(b"y\ny\n")
    usable(sandbox)


def test_long_command(sandbox: Sandbox) -> None:
    assert sh(sandbox, f"x='{'a' * 200_000}'; echo ${{#x}}") == "200000\n"
    usable(sandbox)


def test_command_of_many_lines(sandbox: Sandbox) -> None:
    body = "".join(f"line {number} 'quoted\n" for number in range(5000))
    sh(sandbox, f"cat > many <<'END'\n{body}END")
    assert sandbox.read_file("many") == body.encode()


def test_reading_the_terminal_blocks(sandbox: Sandbox) -> None:
    sh(sandbox, "x=kept")
    outcome = run(sandbox, "echo first; cat; echo never", timeout=LONGER)
    assert (outcome.timed_out, outcome.blocked, outcome.exit_code) == (True, True, None)
    assert outcome.output == b"first\n"
    assert sh(sandbox, "echo $x") == "kept\n"
    usable(sandbox)


def test_builtin_read_blocks(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "read line", timeout=LONGER)
    assert (outcome.timed_out, outcome.blocked) == (True, True)
    usable(sandbox)


def test_sleep_is_ended_by_the_timeout(sandbox: Sandbox) -> None:
    began = time.monotonic()
    outcome = run(sandbox, "x=2; sleep 100; x=3", timeout=LONGER)
    assert time.monotonic() - began < 60
    assert (outcome.timed_out, outcome.blocked, outcome.exit_code) == (True, True, None)
    assert LONGER * 0.9 <= outcome.duration < 60
    assert "sleep" not in commands(sandbox)
    assert sh(sandbox, "echo $x") == ("\n" if outcome.shell_lost else "2\n")
    usable(sandbox)


def test_busy_loop_is_not_blocked(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "while true; do :; done", timeout=SHORT)
    assert (outcome.timed_out, outcome.blocked) == (True, False)
    usable(sandbox)


def test_busy_program_is_not_blocked(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "python3 -c 'while True: pass'", timeout=SHORT)
    assert (outcome.timed_out, outcome.blocked) == (True, False)
    assert "python3" not in commands(sandbox)
    usable(sandbox)


@pytest.mark.parametrize(
    "command",
    [
        "bash -c \"trap '' INT TERM HUP QUIT; while true; do sleep 77; done\"",
        "sleep 77 | cat",
        "(sleep 77; true)",
        "python3 -c 'import signal, time; signal.pthread_sigmask(0, range(1, 32)); time.sleep(77)'",
        "bash -c 'sleep 77 & sleep 77 & wait'",
        "setsid -w sleep 77",
        "f() { sleep 77; }; f",
        "x=$(sleep 77)",
    ],
)
def test_timeout_kills_the_calls_processes(reused: Sandbox, command: str) -> None:
    outcome = run(reused, command, timeout=SHORT)
    assert outcome.timed_out
    assert "77" not in commands(reused)
    usable(reused)


THIEF = """
import os, signal, sys, time
shell, count = map(int, sys.argv[1:])
wake = f"/proc/{shell}/fd/27"
while not os.path.exists(wake):  # it is closed while a command runs
    time.sleep(0.01)
os.kill(shell, signal.SIGSTOP)
os.read(os.open(wake, os.O_RDONLY), count)
os.kill(shell, signal.SIGINT)
os.kill(shell, signal.SIGCONT)
"""


@pytest.mark.parametrize("count", [1, 2, 100])
def test_command_that_the_shell_forgot(sandbox: Sandbox, count: int) -> None:
    """SIGINT makes bash forget the part of a line that it has read; here another process takes that part away."""
    sandbox.put(THIEF.encode(), "/tmp/thief")
    run(sandbox, f"setsid python3 /tmp/thief $$ {count} >/dev/null 2>&1 &")
    assert eventually(lambda: any(process.state == "T" for process in sandbox.processes()))
    outcome = run(sandbox, "echo a >> /tmp/a; cat /tmp/a; (exit 5)")
    assert (outcome.output, outcome.exit_code, outcome.timed_out) == (b"a\n", 5, False)
    assert sh(sandbox, "cat /tmp/a") == "a\n"
    usable(sandbox)


def test_ctrl_c_again_and_again(sandbox: Sandbox) -> None:
    """SIGINT may arrive at each moment between a prompt and the next: while bash reports, waits, or edits a line."""
    chance = random.Random(1)
    usable(sandbox)
    for _ in range(40):
        with sandbox.attach(80, 24) as terminal:
            time.sleep(chance.choice([0.001, 0.02, 0.05]))
            for _ in range(chance.randint(2, 9)):
                terminal.send(b"\x03")
                time.sleep(chance.uniform(0, 0.004))
        eventually(lambda: run(sandbox, "true").exit_code == 0)  # the last SIGINT may end a command
        usable(sandbox)


def test_timeout_spares_earlier_jobs(sandbox: Sandbox) -> None:
    job(sandbox, "sleep 1000")
    assert run(sandbox, "cat", timeout=SHORT).timed_out
    assert "sleep 1000" in commands(sandbox)
    usable(sandbox)


def test_timeout_spares_what_earlier_jobs_start(sandbox: Sandbox) -> None:
    sh(sandbox, "(while :; do sleep 0.7; echo x >> beats; done) &")
    beats = "wc -l < beats"
    eventually(lambda: "sleep 0.7" in commands(sandbox))
    assert run(sandbox, "cat", timeout=2).timed_out  # whose end finds a sleep that was not there at its beginning
    before = int(sh(sandbox, beats))
    eventually(lambda: int(sh(sandbox, beats)) > before)
    usable(sandbox)


def test_timeout_in_a_terminal_program(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "vim --not-a-term --cmd 'set updatetime=1000000' file", timeout=10)  # else it looks about
    assert outcome.timed_out
    assert outcome.blocked
    usable(sandbox)


def test_background_job_does_not_hold_the_call(sandbox: Sandbox) -> None:
    began = time.monotonic()
    output = sh(sandbox, "sleep 1000 & echo started")
    assert time.monotonic() - began < 60
    assert output == "started\n"
    pid = int(sh(sandbox, "echo $!"))
    eventually(lambda: [each.pid for each in sandbox.processes() if each.command == "sleep 1000"] == [pid])


def test_job_control(sandbox: Sandbox) -> None:
    sh(sandbox, "sleep 1000 & first=$!; sleep 2000 &")
    listing = sh(sandbox, "jobs")
    assert re.findall(r"\[(\d)\].*Running +sleep (\d+)", listing) == [("1", "1000"), ("2", "2000")]
    assert sh(sandbox, "kill %1; wait $first 2>/dev/null; kill -0 $! && echo alive") == "alive\n"
    assert "sleep 1000" not in commands(sandbox)
    assert sh(sandbox, "kill $!; wait $! 2>/dev/null; echo $?") == "143\n"
    assert "sleep" not in commands(sandbox)


def test_wait_for_a_job(sandbox: Sandbox) -> None:
    sh(sandbox, "(sleep 0.2; echo done > finished; exit 3) &")
    assert sh(sandbox, "wait $!; echo $?; cat finished") == "3\ndone\n"


def test_job_goes_on_during_later_calls(sandbox: Sandbox) -> None:
    sh(sandbox, "echo 0 > step; (sleep 0.1; echo 1 >> step; sleep 1.5; echo 2 >> step) &")
    for step in ("1", "2"):
        assert sh(sandbox, f"until grep {step} step; do sleep 0.05; done") == f"{step}\n"


def test_job_that_prints_survives_its_call(sandbox: Sandbox) -> None:
    sh(sandbox, "(while true; do echo tick; echo x >> ticks; sleep 0.05; done) &")
    eventually(lambda: sh(sandbox, "cat ticks 2> /dev/null"))
    before = len(sandbox.read_file("ticks"))
    eventually(lambda: len(sandbox.read_file("ticks")) > before)
    usable(sandbox)


def test_duration(sandbox: Sandbox) -> None:
    assert 0.2 <= run(sandbox, "sleep 0.2").duration < 20


def test_many_calls(sandbox: Sandbox) -> None:
    sh(sandbox, "n=0")
    for _ in range(100):
        sh(sandbox, "n=$((n + 1))")
    assert sh(sandbox, "echo $n") == "100\n"


@pytest.mark.parametrize("name", ["eval", "printf", "echo", "read", "trap", "command", "cat", "test", "exit"])
def test_functions_that_hide_builtins(reused: Sandbox, name: str) -> None:
    sh(reused, f"{name}() {{ /bin/echo hidden; return 9; }}")
    outcome = run(reused, "x=5; (( x == 4 ))")
    assert (outcome.output, outcome.exit_code) == (b"", 1)
    assert sh(reused, f"{name} foo") == "hidden\n"
    assert changed(reused, "x=6") == {"shell"}
    sh(reused, f"unset -f {name} || \\unset -f {name}")
    usable(reused)


@pytest.mark.parametrize(
    ("command", "probe", "expected"),
    [
        ("IFS=echo0123", 'x=1; echo hi; (exit 3); echo "$?" | tr 3 y', "hi\ny\n"),
        ("PATH=", "x=1; echo hi", "hi\n"),
        ("PROMPT_COMMAND='echo noise'", "echo hi", "hi\n"),
        ("set -o posix", "echo hi", "hi\n"),
        ("set -a", "echo hi", "hi\n"),
        ("set -k", "echo hi", "hi\n"),
        ("LC_ALL=C; LANG=C", "printf é | wc -c", "2\n"),
        ("HISTSIZE=0; HISTFILE=/dev/full; set -H", "echo 'a!b'", "a!b\n"),
        ("POSIXLY_CORRECT=1", "echo hi", "hi\n"),
        ("shopt -s failglob nocasematch extdebug", "echo hi", "hi\n"),
        ("alias eval=false printf=false trap=false if=false", "echo hi", "hi\n"),
        ("readonly PS0 PS1 PS2 PS4 PROMPT_COMMAND IFS", "echo hi", "hi\n"),
        ("set -T; trap ':' DEBUG RETURN ERR", "echo hi", "hi\n"),
        ("set -- 'a b' '$(exit)'", "echo $#", "2\n"),
        ("mkdir gone; cd gone; rmdir ../gone", "echo hi", "hi\n"),
        ("exec 5>&1 6>&2 9>&1", "echo hi", "hi\n"),
        ("stty raw -echo < /dev/tty 2>/dev/null; true", "echo hi", "hi\n"),
        ("umask 777", "echo hi", "hi\n"),
        ("trap '' PIPE CHLD TERM INT", "echo hi; bash -c 'exit 3'; echo $?", "hi\n3\n"),
    ],
)
def test_hostile_shell_settings(reused: Sandbox, command: str, probe: str, expected: str) -> None:
    sh(reused, command)
    assert sh(reused, probe) == expected
    assert run(reused, "(exit 3)").exit_code == 3
    reused.observe()


@pytest.mark.parametrize("command", ["exec 1>&- 2>&-", "exec 0<&-", "exec > log 2>&1", "exec 0</dev/null"])
def test_redirecting_the_shell_itself(sandbox: Sandbox, command: str) -> None:
    outcome = run(sandbox, command)
    assert not outcome.timed_out
    assert run(sandbox, "true").exit_code == 0
    assert run(sandbox, "(exit 3)").exit_code == 3


def test_closing_every_descriptor(sandbox: Sandbox) -> None:
    outcome = run(sandbox, 'for d in /proc/$$/fd/*; do d=${d##*/}; eval "exec $d>&-"; done 2>/dev/null', timeout=3)
    assert outcome.timed_out or outcome.exit_code is not None
    outcome = run(sandbox, "echo alive")
    assert outcome.exit_code == 0


def test_idle_timeout_of_the_shell(sandbox: Sandbox) -> None:
    sh(sandbox, "TMOUT=1")
    time.sleep(1.4)
    assert sh(sandbox, "echo still $TMOUT") == "still 1\n"


def test_traps_on_debug_and_error_fire(sandbox: Sandbox) -> None:
    sh(sandbox, "trap 'echo failed' ERR")
    outcome = run(sandbox, "false; echo hi; (exit 4)")
    assert (outcome.output, outcome.exit_code) == (b"failed\nhi\nfailed\n", 4)


def test_commands_do_not_show_on_the_terminal(sandbox: Sandbox) -> None:
    sh(sandbox, "echo some-output-here")
    assert "some-output-here" not in screen(sandbox)


def test_a_program_may_use_the_terminal(sandbox: Sandbox) -> None:
    sh(sandbox, "echo to-the-terminal > /dev/tty")
    eventually(lambda: "to-the-terminal" in screen(sandbox))


def test_zombies_are_reaped(sandbox: Sandbox) -> None:
    sh(sandbox, "for i in 1 2 3 4 5; do (setsid bash -c 'sleep 0.05' &); done; sleep 0.4")
    eventually(lambda: not [process for process in sandbox.processes() if process.state == "Z"])
