"""`Sandbox.exec`: a fresh shell each time, which leaves the persistent one alone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.helpers import TIMEOUT, changed, commands, eventually, sh, usable
from tvsnap.images import Image
from tvsnap.model.errors import UsageError
from tvsnap.model.observations import Command
from tvsnap.sandboxes.protocol import Sandbox


def execute(sandbox: Sandbox, command: str) -> str:
    outcome = sandbox.exec(command, timeout=TIMEOUT)
    assert not outcome.timed_out
    return outcome.output.decode()


def test_output_and_status(sandbox: Sandbox) -> None:
    outcome = sandbox.exec("echo out; echo err >&2; exit 3", timeout=TIMEOUT)
    assert (outcome.output, outcome.exit_code, outcome.shell_lost) == (b"out\nerr\n", 3, False)


def test_a_command_is_one_string(sandbox: Sandbox) -> None:
    for execute in (sandbox.exec, sandbox.run):
        with pytest.raises(UsageError, match="one string"):
            execute(["echo", "words"])  # type: ignore[arg-type]
    usable(sandbox)


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


USERS = """root:x:0:0::/root:/bin/sh
app:x:2000:2000::/home/app:/bin/sh
nohome:x:2001:2001:::/bin/sh
2002:x:2003:2003::/home/odd:/bin/sh
bad:x:-1:-1::/:/bin/sh
worse:x:x:0::/:/bin/sh
"""
GROUPS = f"""root:x:0:
app:x:2000:
long:x:4000:{"".join(f"user{number}," for number in range(2000))}app
crew:x:3000:root,app,nohome
"""
WHO = 'echo "$(id -u) $(id -g) $(id -G | tr " " "\\n" | sort -n | paste -sd,) $HOME"'


def test_who_a_user_is(sandbox: Sandbox) -> None:
    """Users, groups and home directories are those of `docker run --user`, as moby looks them up."""
    sandbox.write_file("/etc/passwd", USERS.encode())
    sandbox.write_file("/etc/group", GROUPS.encode())
    for user, who in {
        "app": "2000 2000 2000,3000,4000 /home/app",
        "2000": "2000 2000 2000,3000,4000 /home/app",
        "app:crew": "2000 3000 3000 /home/app",
        "app:3000": "2000 3000 3000 /home/app",
        "2000:5000": "2000 5000 5000 /home/app",
        "app:": "2000 2000 2000,3000,4000 /home/app",
        ":crew": "0 3000 3000 /root",
        "root:app": "0 2000 2000 /root",
        "nohome": "2001 2001 2001,3000 /",
        "2002": "2003 2003 2003 /home/odd",
        "4242": "4242 0 0 /",
        "4242:100": "4242 100 100 /",
        "02000": "2000 0 0 /",
    }.items():
        outcome = sandbox.exec(WHO, timeout=TIMEOUT, cwd="/", user=user)
        assert outcome.output.decode() == f"{who}\n", user
    for user in (
        "bad",
        "worse",
        "app:nobody-known",
        "4294967295",
        "4294967296",
        "-1",
        "2000x",
        "app:-1",
        "app:4294967295",
    ):
        outcome = sandbox.exec("id", timeout=TIMEOUT, user=user)
        assert (outcome.exit_code, outcome.output) == (
            126,
            f"no user {user} in the image {sandbox.image.name}\n".encode(),
        )


def test_a_home_that_is_set_stays(sandbox: Sandbox) -> None:
    def home(**options: Any) -> bytes:
        return sandbox.exec("echo $HOME", timeout=TIMEOUT, cwd="/", **options).output

    assert home(user="4242") == b"/\n"
    assert home(user="4242", env={"HOME": "/srv"}) == b"/srv\n"


def test_variables_are_those_of_a_container(sandbox: Sandbox, image: Image) -> None:
    """The image's and three others: TERM as with a terminal, and what a runtime adds. A shell adds some of its own."""
    for names in (execute(sandbox, "env -0"), sh(sandbox, "env -0")):
        found = {one.partition("=")[0] for one in names.split("\0") if one}
        assert found - {"PWD", "OLDPWD", "SHLVL", "_"} == {*image.env, "HOME", "HOSTNAME", "PATH", "TERM"}
    assert execute(sandbox, "echo $HOSTNAME") == execute(sandbox, "cat /proc/sys/kernel/hostname")


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"": "c"}, {"A\0": "c"}, {"A": "\0"}])
def test_what_cannot_be_a_variable_is_refused(sandbox: Sandbox, env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="environment variable"):
        sandbox.exec("env", timeout=TIMEOUT, env=env)
    with pytest.raises(UsageError, match="environment variable"):
        sandbox.exec_all([Command("env", env=env)], timeout=TIMEOUT)
    usable(sandbox)


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
    outcome = sandbox.exec("echo first; sleep 100", timeout=5)
    assert (outcome.timed_out, outcome.blocked, outcome.exit_code) == (True, True, None)
    assert outcome.output == b"first\n"
    assert "sleep" not in commands(sandbox)
    usable(sandbox)


def test_busy_timeout(sandbox: Sandbox) -> None:
    outcome = sandbox.exec("while true; do :; done", timeout=2)
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
