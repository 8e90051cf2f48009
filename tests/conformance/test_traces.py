"""What a sandbox shows of the tool: process names, command lines and PROMPT_COMMAND are those of a plain container."""

from __future__ import annotations

import dataclasses

import pytest

from tests.conformance.helpers import Lab, changed, run, sh, usable
from tvsnap.images import Image
from tvsnap.sandboxes.protocol import Backend, Sandbox

LINES = "for p in 1 $$; do tr '\\0' ' ' < /proc/$p/cmdline; cat /proc/$p/comm; done"
PLAIN = "init init\nbash bash\n"
PROMPT = "declare -p PROMPT_COMMAND; env | grep ^PROMPT_COMMAND; bash -ic 'echo \"$PROMPT_COMMAND\"' 2> /dev/null"
NONE = 'declare -- PROMPT_COMMAND=""\n\n'
EXPORTED = 'declare -x PROMPT_COMMAND="history -a"\nPROMPT_COMMAND=history -a\nhistory -a\n'


def test_command_lines_are_plain(sandbox: Sandbox) -> None:
    assert sh(sandbox, LINES) == PLAIN
    assert sh(sandbox, "pgrep -fa 'tvsnap|serve|/app|root' || echo none") == "none\n"
    assert changed(sandbox, "true") == set()


def test_command_line_of_another_users_shell_is_plain(backend: Backend, image: Image) -> None:
    lab = Lab(backend, dataclasses.replace(image, user="nobody", workdir="/tmp"))
    try:
        assert sh(lab.start(), f"id -un; {LINES}") == f"nobody\n{PLAIN}"
    finally:
        lab.close()


def test_command_line_of_a_new_shell_is_plain(sandbox: Sandbox) -> None:
    assert run(sandbox, "exit 3").shell_lost
    assert sh(sandbox, LINES) == PLAIN


def test_command_lines_are_plain_in_forks(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1")
    assert sh(lab.fork_of(sandbox), LINES) == PLAIN


def test_prompt_command_is_the_users(lab: Lab, sandbox: Sandbox) -> None:
    assert sh(sandbox, PROMPT) == NONE
    assert changed(sandbox, "export PROMPT_COMMAND='history -a'") == {"shell"}
    assert sh(sandbox, PROMPT) == EXPORTED
    assert changed(sandbox, "export PROMPT_COMMAND='history -a'") == set()
    assert changed(sandbox, "PROMPT_COMMAND+=' '") == {"shell"}
    sh(sandbox, "PROMPT_COMMAND='history -a'")
    assert sh(lab.fork_of(sandbox), PROMPT) == EXPORTED
    assert changed(sandbox, "export -n PROMPT_COMMAND") == {"shell"}
    assert changed(sandbox, "unset PROMPT_COMMAND") == {"shell"}
    assert sh(sandbox, PROMPT) == NONE


@pytest.mark.parametrize("declaration", ["PROMPT_COMMAND='a  \"b\" $(c)'", "declare -x PROMPT_COMMAND=$'a\\nb'"])
@pytest.mark.parametrize("abort", ["kill -INT $$; false", ": ${gone?}", "set -u; : $gone"])
def test_prompt_command_outlives_aborted_commands(reused: Sandbox, declaration: str, abort: str) -> None:
    sh(reused, f"{declaration}; said=$(declare -p PROMPT_COMMAND)")
    run(reused, abort)
    assert sh(reused, 'set +u; [[ $(declare -p PROMPT_COMMAND) == "$said" ]] && echo same') == "same\n"
    sh(reused, "unset PROMPT_COMMAND said")
    usable(reused)


def test_prompt_command_outlives_a_timeout(sandbox: Sandbox) -> None:
    sh(sandbox, "export PROMPT_COMMAND='history -a'")
    outcome = run(sandbox, "sleep 1000", timeout=1.0)
    assert outcome.timed_out
    assert not outcome.shell_lost
    assert sh(sandbox, PROMPT) == EXPORTED


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("PROMPT_COMMAND=('history -a' 'x  y')", 'declare -a PROMPT_COMMAND=([0]="history -a" [1]="x  y")\n'),
        ("unset PROMPT_COMMAND; PROMPT_COMMAND=(a b)", 'declare -a PROMPT_COMMAND=([0]="a" [1]="b")\n'),
        ("readonly PROMPT_COMMAND=a", 'declare -r PROMPT_COMMAND="a"\n'),
        ("declare -rx PROMPT_COMMAND=a", 'declare -rx PROMPT_COMMAND="a"\n'),
        ("f() { PROMPT_COMMAND=a; }; f", 'declare -- PROMPT_COMMAND="a"\n'),
    ],
)
def test_prompt_command_of_any_kind(lab: Lab, sandbox: Sandbox, command: str, shown: str) -> None:
    sh(sandbox, command)
    run(sandbox, "kill -INT $$")
    for each in (sandbox, lab.fork_of(sandbox)):
        assert sh(each, "declare -p PROMPT_COMMAND") == shown


def test_startup_file_sets_prompt_command(sandbox: Sandbox) -> None:
    sh(sandbox, "echo 'PROMPT_COMMAND=mine' >> ~/.bashrc")
    run(sandbox, "exit")
    assert sh(sandbox, "declare -p PROMPT_COMMAND") == 'declare -- PROMPT_COMMAND="mine"\n'


def test_commands_are_traced_behind_one_sign(lab: Lab, sandbox: Sandbox) -> None:
    def traced(sandbox: Sandbox) -> None:
        assert sh(sandbox, "echo foo") == "+ echo foo\nfoo\n"
        assert sh(sandbox, "x=$(echo in); f() { echo $x; }; f") == "++ echo in\n+ x=in\n+ f\n+ echo in\nin\n"

    assert sh(sandbox, "set -x; echo a") == "+ echo a\na\n"
    traced(sandbox)
    run(sandbox, "set -u; echo $nothing")  # aborted, as is all that is around it
    traced(sandbox)
    run(sandbox, "PROMPT_COMMAND='history -a'")
    traced(sandbox)
    traced(lab.fork_of(sandbox))


def test_commands_of_another_users_shell_are_traced_behind_one_sign(backend: Backend, image: Image) -> None:
    lab = Lab(backend, dataclasses.replace(image, user="nobody", workdir="/tmp"))
    try:
        assert sh(lab.start(), "set -x; echo a") == "+ echo a\na\n"
    finally:
        lab.close()
