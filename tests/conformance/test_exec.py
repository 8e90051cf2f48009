"""`Sandbox.exec`: a fresh shell each time, which leaves the persistent one alone."""

from __future__ import annotations

import time

from tests.conformance.helpers import TIMEOUT, changed, commands, eventually, sh, usable
from tvsnap.images import Image
from tvsnap.sandboxes.protocol import Sandbox


def execute(sandbox: Sandbox, command: str) -> str:
    outcome = sandbox.exec(command, timeout=TIMEOUT)
    assert not outcome.timed_out
    return outcome.output.decode()


def test_output_and_status(sandbox: Sandbox) -> None:
    outcome = sandbox.exec("echo out; echo err >&2; exit 3", timeout=TIMEOUT)
    assert (outcome.output, outcome.exit_code, outcome.shell_lost) == (b"out\nerr\n", 3, False)


def test_each_shell_is_fresh(sandbox: Sandbox, image: Image) -> None:
    sh(sandbox, "x=1; cd /tmp; f() { :; }; (exit 7)")
    assert execute(sandbox, 'echo "[$x]"; pwd; y=2') == f"[]\n{image.workdir}\n"
    assert sh(sandbox, 'echo "$? [$x$y]"; pwd') == "7 [1]\n/tmp\n"
    assert execute(sandbox, 'echo "[$y]"') == "[]\n"


def test_files_are_shared(sandbox: Sandbox) -> None:
    sh(sandbox, "echo one > /tmp/f")
    assert execute(sandbox, "cat /tmp/f; echo two >> /tmp/f") == "one\n"
    assert sh(sandbox, "cat /tmp/f") == "one\ntwo\n"


def test_cwd(sandbox: Sandbox) -> None:
    assert sandbox.exec("pwd", timeout=TIMEOUT, cwd="/etc").output == b"/etc\n"


def test_missing_cwd_is_a_failure(sandbox: Sandbox) -> None:
    outcome = sandbox.exec("echo ran", timeout=TIMEOUT, cwd="/no/such/place")
    assert outcome.exit_code
    assert b"ran\n" not in outcome.output
    assert b"/no/such/place" in outcome.output
    usable(sandbox)


def test_environment(sandbox: Sandbox, image: Image) -> None:
    env = {"ONE": "a b", "TWO": "x=y\"'$\n", "LANG": "xx"}
    outcome = sandbox.exec('printf "%s|" "$ONE" "$TWO" "$LANG" "$PATH"', timeout=TIMEOUT, env=env)
    assert outcome.output.decode() == f"a b|x=y\"'$\n|xx|{image.env['PATH']}|"
    assert sh(sandbox, 'echo "[$ONE]"') == "[]\n"


def test_user(sandbox: Sandbox, image: Image) -> None:
    assert execute(sandbox, "whoami") == f"{image.user or 'root'}\n"
    assert sandbox.exec("whoami", timeout=TIMEOUT, user="nobody").output == b"nobody\n"


def test_user_has_the_users_rights(sandbox: Sandbox) -> None:
    sh(sandbox, "umask 022; mkdir /srv/d; chmod 777 /srv/d; echo secret > /srv/d/s; chmod 600 /srv/d/s")
    outcome = sandbox.exec("cat /srv/d/s; touch /srv/d/mine; id -u; id -G", timeout=TIMEOUT, user="nobody")
    assert b"Permission denied" in outcome.output
    assert b"secret" not in outcome.output
    assert outcome.output.endswith(b"\n65534\n65534\n")
    assert sh(sandbox, "stat -c %U /srv/d/mine") == "nobody\n"


def test_unknown_user_is_a_failure(sandbox: Sandbox) -> None:
    outcome = sandbox.exec("echo ran", timeout=TIMEOUT, user="no-such-user")
    assert outcome.exit_code
    assert b"ran\n" not in outcome.output
    assert b"no-such-user" in outcome.output


def test_timeout(sandbox: Sandbox) -> None:
    outcome = sandbox.exec("echo first; sleep 100", timeout=2)
    assert (outcome.timed_out, outcome.blocked, outcome.exit_code) == (True, True, None)
    assert outcome.output == b"first\n"
    assert "sleep" not in commands(sandbox)
    usable(sandbox)


def test_busy_timeout(sandbox: Sandbox) -> None:
    outcome = sandbox.exec("while true; do :; done", timeout=0.6)
    assert (outcome.timed_out, outcome.blocked) == (True, False)
    usable(sandbox)


def test_binary_and_long_output(sandbox: Sandbox) -> None:
    assert sandbox.exec("printf '\\000\\377\\r\\n'", timeout=TIMEOUT).output == b"\0\xff\r\n"
    outcome = sandbox.exec("seq 1 200000", timeout=TIMEOUT)
    assert outcome.truncated
    assert outcome.output.startswith(b"1\n2\n")
    assert outcome.output.endswith(b"\n200000\n")


def test_long_command(sandbox: Sandbox) -> None:
    assert execute(sandbox, f"x='{'a' * 200_000}'; echo ${{#x}}") == "200000\n"


def test_job_does_not_hold_the_call(sandbox: Sandbox) -> None:
    began = time.monotonic()
    assert execute(sandbox, "sleep 1000 & echo started") == "started\n"
    assert time.monotonic() - began < 60
    eventually(lambda: "sleep 1000" in commands(sandbox))
    usable(sandbox)


def test_change_is_observed(sandbox: Sandbox) -> None:
    before = sandbox.observe()
    execute(sandbox, "x=1; cd /; ls > /dev/null")
    assert sandbox.observe() == before
    execute(sandbox, "echo 1 > /tmp/f")
    assert sandbox.observe().files != before.files
    assert changed(sandbox, "true") == set()
