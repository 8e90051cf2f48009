"""`Sandbox.observe`: equal when nothing changed, different when anything did."""

from __future__ import annotations

import time

import pytest

from tests.conformance.helpers import TIMEOUT, Lab, acl, attribute, changed, eventually, job, settled, sh, still
from tvsnap.sandboxes.protocol import Sandbox


def prepared(sandbox: Sandbox, *commands: str) -> Sandbox:
    """Runs commands whose effects are not what is observed, and leaves `$?` at 0."""
    for command in commands:
        sh(sandbox, command)
    sh(sandbox, "true")
    return sandbox


@pytest.mark.parametrize(
    "command",
    [
        "true",
        ":",
        "echo hi",
        "ls",
        "ls -l /",
        "cat /etc/hostname",
        "pwd",
        "grep -q root /etc/hostname || true",
        "find /etc -name 'host*'",
        "cat /etc/hostname | wc -l",
        "x=$(echo sub); unset x",
        "(x=1; cd /; umask 077; set -u)",
        "bash -c 'x=1; cd /'",
        "echo $SECONDS $LINENO",
        "touch /tmp/temporary; rm /tmp/temporary",
        "echo hi > /dev/null",
        "sleep 0.05",
        "false; true",
        "ls /nowhere; true",
        "sleep 0.05 & wait $!; unset nothing; (exit 0)",
        "f() { :; }; unset -f f",
        "alias a=b; unalias a",
        "set -u; set +u",
        "umask 077; umask 022",
        "trap : USR1; trap - USR1",
        "cd /tmp; cd - > /dev/null; cd /tmp; cd - > /dev/null",
    ],
)
def test_nothing_changed(reused: Sandbox, command: str) -> None:
    prepared(
        reused, "umask 022; touch /tmp/x; OLDPWD=/tmp; cd /; cd /tmp; mkdir -p /root/w; cd /root/w; sleep 0 & wait"
    )
    found = changed(reused, command)
    # `$!` is the shell's state: a command that starts a job may change it.
    assert found <= ({"shell"} if " & " in command else set())


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'print(1)' > /dev/null",
        "git --version",
        "history > /dev/null",
        "man ls > /dev/null 2>&1; true",
        "cat /proc/self/status > /dev/null",
        "ps aux > /dev/null; true",
        "sed -n 1p /etc/passwd",
        "find / -xdev -type d > /dev/null 2>&1; true",
        "echo x > /tmp/temporary; rm /tmp/temporary",
        "tmp=$(mktemp); rm $tmp; unset tmp",
        "type ls > /dev/null; command -v bash > /dev/null",
        "echo | read x; :",
        "sort <<< 'b' > /dev/null",
        "cat <<< hello > /dev/null",
        "test -f /etc/passwd && echo yes",
        "[[ abc == *b* ]]",
        "ls /usr/bin | head -n 1 > /dev/null",
    ],
)
def test_programs_that_change_nothing(reused: Sandbox, command: str) -> None:
    prepared(reused)
    assert changed(reused, command) == set()


def test_observing_twice(sandbox: Sandbox) -> None:
    assert sandbox.observe() == sandbox.observe()
    sh(sandbox, "echo 1 > f; x=1")
    assert sandbox.observe() == sandbox.observe()


def test_reading_and_looking_change_nothing(sandbox: Sandbox) -> None:
    before = sandbox.observe()
    sandbox.read_file("/etc/hostname")
    sandbox.processes()
    sandbox.changes()
    sandbox.shell_state()
    sandbox.terminal()
    sandbox.memory()
    assert sandbox.observe() == before


@pytest.mark.parametrize(
    "command",
    [
        "echo x > /run/tvsnap/new",
        "mkdir -p /run/tvsnap/d/e; touch /run/tvsnap/d/e/f",
        "chmod 700 /run/tvsnap",
        "touch -r /run/tvsnap/rc /tmp/t; sed -i s/a/b/ /run/tvsnap/rc; touch -r /tmp/t /run/tvsnap/rc; rm /tmp/t",
        "rm /run/tvsnap/init; printf '#!/bin/sh' > /run/tvsnap/init; chmod +x /run/tvsnap/init",
        "mv /run/tvsnap/rc /run/tvsnap/rc2",
    ],
)
def test_our_own_directory_changed(sandbox: Sandbox, command: str) -> None:
    assert changed(sandbox, command)
    assert sandbox.digest() is None


def test_checkpoint_changes_nothing(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1; echo 1 > f")
    before = sandbox.observe()
    lab.checkpoint(sandbox)
    assert sandbox.observe() == before


def test_observation_is_steady_in_a_fork(lab: Lab, sandbox: Sandbox) -> None:
    sh(sandbox, "x=1; echo 1 > f")
    fork = lab.fork_of(sandbox)
    before = fork.observe()
    sh(fork, "(exit 0)")
    assert fork.observe() == before
    assert changed(fork, "cat f; ls; echo $x") == set()
    assert changed(fork, "echo 2 > f") == {"files"}
    assert changed(fork, "x=2") == {"shell"}


@pytest.mark.parametrize(
    "command",
    [
        "touch new",
        "echo x > new",
        "echo more >> old",
        "echo tdl > old",
        "> old",
        "touch old",
        "chmod 700 old",
        "rm old",
        "mv old renamed",
        "mv old dir/",
        "mv dir dir2",
        "ln -s old link",
        "ln old link",
        "mkdir new",
        "rmdir empty",
        "mkfifo fifo",
        "truncate -s 1 old",
        "rm /etc/os-release",
        "echo x >> /etc/hostname",
        "chmod 600 /etc/hostname",
        "chmod 700 /etc",
        "cp old copy",
        "mv old t; mv other old; mv t other",
        "rm symlink; ln -s elsewhere symlink",
        "rm old; mkdir old",
    ],
)
def test_files_changed(reused: Sandbox, command: str) -> None:
    prepared(reused, "umask 022; echo old > old; echo eld > other; mkdir dir empty; ln -s old symlink")
    assert changed(reused, command) == {"files"}


@pytest.mark.parametrize(
    "command",
    [
        "chown 33 old",
        "chgrp 33 old",
        "chown -h 33 symlink",
        "touch -d @1000 old",
        "touch -d @1000 dir",
        "touch -h -d @1000 symlink",
        "echo 1 > /tmp/f",
        "echo 1 > /var/tmp/f",
        "echo 1 > /dev/shm/f",
        "echo 1 > /run/f",
        'python3 -c \'import os; os.setxattr("old", "user.k", b"v")\'',
        'python3 -c \'import mmap; f = open("old", "r+b"); mmap.mmap(f.fileno(), 0)[0] = 65\'',
        "t=$(stat -c %.9Y old); echo eld > old; touch -d @$t old; unset t",
        "t=$(stat -c %.9Y old); echo eld > n; touch -d @$t n; mv n old; unset t",
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
        "truncate -s 1000000000 sparse",
        "git init -q .",
    ],
)
def test_more_files_changed(reused: Sandbox, command: str) -> None:
    prepared(reused, "umask 022; echo old > old; mkdir dir; ln -s old symlink; t=; unset t")
    assert "files" in changed(reused, command)


def test_quick_rewrites_of_equal_size(sandbox: Sandbox) -> None:
    """Two writes may fall into one tick of the file system's clock."""
    sh(sandbox, "printf 0 > f")
    seen = [sandbox.observe().files]
    for number in range(1, 10):
        sh(sandbox, f"printf {number} > f")
        seen.append(sandbox.observe().files)
    assert len(set(seen)) == len(seen)


def test_quick_writes_through_an_open_descriptor(sandbox: Sandbox) -> None:
    sh(sandbox, "printf 0 > f; exec 7<> f")
    seen = [sandbox.observe().files]
    for number in range(1, 10):
        sandbox.exec(
            f"printf {number} | dd of=f conv=notrunc status=none", timeout=TIMEOUT, cwd=sh(sandbox, "pwd").strip()
        )
        seen.append(sandbox.observe().files)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    "command",
    [
        "x=1",
        "x=",
        "y=2",
        "export y",
        "unset y",
        "y+=1",
        "f() { echo 2; }",
        "unset -f f",
        "alias a=c",
        "unalias a",
        "set -u",
        "set -o pipefail",
        "cd /tmp",
        "umask 027",
        "trap 'echo x' USR1",
        "set -- 1 2",
        "(exit 3)",
        "HOME=/elsewhere",
        "PATH=/bin:/usr/bin:/sbin",
    ],
)
def test_shell_changed(reused: Sandbox, command: str) -> None:
    prepared(reused, "umask 022; y=1; f() { echo 1; }; alias a=b; cd /")
    assert changed(reused, command) == {"shell"}


@pytest.mark.parametrize(
    "command",
    [
        "a=(1 2)",
        "a[3]=x",
        "readonly y",
        "declare -i y",
        "shopt -s extglob",
        "shopt -s nullglob",
        "exec 7< /etc/passwd",
        "exec 6<&-",
        "ulimit -n 100",
        "pushd /tmp > /dev/null",
        "complete -W x frob",
        "trap '' INT",
        "PS1=x",
        "IFS=:",
        "local_only=1; declare -A m=([k]=v)",
        "set -E",
        "read -r x <<< 'word'",
        "printf -v y 7",
        "getopts ab x -a",
    ],
)
def test_more_of_the_shell_changed(reused: Sandbox, command: str) -> None:
    prepared(reused, "y=1; exec 6< /etc/passwd; cd /")
    assert changed(reused, command) & {"shell", "processes"}


COME_AND_GO = "touch {0}/x; rm {0}/x"


@pytest.mark.parametrize(
    "command",
    [
        acl("dir", "u:33:7"),
        f"{acl('dir', 'u:33:7')}; {COME_AND_GO.format('dir')}",
        f"{acl('dir', 'default')}; {COME_AND_GO.format('dir')}",
        acl("changed", "u:1:4"),
        acl("/usr/share", "u:1:4"),
        f"{acl('/srv', 'default')}; {COME_AND_GO.format('/srv')}",
        acl("/", "u:1:4"),
        acl("file", "u:33:7"),
        f"chattr +A dir; {COME_AND_GO.format('dir')}",
        "chmod 700 changed",
        "chown 33 changed",
        "chmod 711 /srv",
        "chown 33 /usr/share",
        "chmod 700 /",
        "touch -d @1000 /",
        "rmdir dir; mkdir dir",
        f"{attribute('dir', 'w')}; {COME_AND_GO.format('dir')}",
        f"{attribute('dir')}; {COME_AND_GO.format('dir')}",
        attribute("/opt", "w"),
    ],
)
def test_what_a_directory_is_beyond_its_entries(reused: Sandbox, command: str) -> None:
    """Also where it was changed before, so that its time of change says nothing any more."""
    before = f"umask 022; mkdir dir changed; touch file; chmod 750 changed; {acl('changed', 'u:2:4')}"
    image = f"chmod 755 /; chown 0 /usr/share; chmod 701 /srv; {acl('/')}; {acl('/srv')}; {acl('/usr/share')}"
    settle = "; ".join(COME_AND_GO.format(each) for each in ("dir", "changed", "/srv"))
    if "/" in command:
        sh(reused, image)
    prepared(reused, f"{before}; {attribute('dir', 'v')}; {settle}")
    assert changed(reused, f"{command} && true") == {"files"}


@pytest.mark.parametrize("directory", ["dir", "changed", "/srv", "/usr/share", "/opt", "/", "dir/.github"])
def test_entries_that_come_and_go_leave_a_directory_s_time(reused: Sandbox, directory: str) -> None:
    """By which `make` goes, and `find -newer`; also at first, while its time is the image's."""
    prepared(reused, f"mkdir dir dir/.github changed; chmod 700 changed; {acl('changed', 'u:3:7')}")
    assert changed(reused, f"ls -la {directory} > /dev/null") == set()
    assert changed(reused, f"touch {directory}/x; rm {directory}/x; true") == {"files"}
    assert changed(reused, f"touch {directory}/x; rm {directory}/x; true") == {"files"}


@pytest.mark.parametrize("directory", ["/tmp", "/var/tmp", "/dev/shm", "sticky", "work/.git", "work/.git/objects"])
def test_temporary_files_and_locks_of_git_leave_nothing(reused: Sandbox, directory: str) -> None:
    prepared(reused, "mkdir -p sticky work/.git/objects; chmod 1700 sticky")
    prepared(reused, f"touch {directory}/settled; rm {directory}/settled")
    assert changed(reused, f"ls -la {directory} > /dev/null; touch {directory}/x; rm {directory}/x") == set()


def test_descriptor_offset_changed(sandbox: Sandbox) -> None:
    prepared(sandbox, "seq 9 > lines; exec 7< lines; x=1; read -r x <&7; x=1")
    assert changed(sandbox, "read -r x <&7; x=1")


def test_cwd_that_was_replaced(sandbox: Sandbox) -> None:
    """Another directory stands in the old one's place, and the shell in one that is gone."""
    prepared(sandbox, "mkdir d; cd d")
    assert changed(sandbox, "rmdir ../d; mkdir ../d")


@pytest.mark.parametrize(
    "command",
    [
        "hostname other",
        "ipcmk -Q > /dev/null",
        "ipcmk -M 4096 > /dev/null",
        "renice -n 19 $$ > /dev/null",
        "taskset -p 1 $$ > /dev/null",
        "stty -echo < /dev/tty",
        "echo shown > /dev/tty",
        "ip addr add 10.1.1.1/32 dev lo",
        "ip link add d0 type dummy",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 12345 > /proc/sys/kernel/msgmax",
        "echo 12345 > /proc/sys/kernel/pid_max",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).mq_open(b\"/queue\", 0o102, 0o600, None) < 0)'",
        "mount -t tmpfs none /mnt",
        'python3 -c \'import os; os.setxattr("dir", "user.k", b"v")\'',
    ],
)
def test_refused_or_seen(sandbox: Sandbox, command: str) -> None:
    """State of rarer kinds: what a later command could see is either out of reach or observed."""
    prepared(sandbox, "mkdir dir")
    before = sandbox.observe()
    refused = sandbox.run(command, timeout=TIMEOUT).exit_code != 0
    sh(sandbox, "true")
    assert refused or sandbox.observe() != before


def test_status_is_part_of_the_shell(sandbox: Sandbox) -> None:
    sh(sandbox, "true")
    assert changed(sandbox, "false") == {"shell"}
    assert changed(sandbox, "false") == set()
    assert changed(sandbox, "no-such-command-here") == {"shell"}
    assert changed(sandbox, "true") == {"shell"}


def test_jobs_are_observed(sandbox: Sandbox) -> None:
    prepared(sandbox)
    assert "processes" in changed(sandbox, "sleep 1000 &")
    settled(sandbox, "sleep 1000")
    assert changed(sandbox, "true") == set()
    assert changed(sandbox, "sleep 0.2; ls") == set()
    assert changed(sandbox, "kill -STOP $!; sleep 0.1") >= {"processes"}
    assert changed(sandbox, "kill -CONT $!") >= {"processes"}
    assert "processes" in changed(sandbox, "kill $!; wait $! 2>/dev/null; true")


def test_idle_job_and_time(sandbox: Sandbox) -> None:
    job(sandbox, "sleep 1000")
    sh(sandbox, "true")
    before = sandbox.observe()
    time.sleep(0.3)
    assert sandbox.observe() == before


def test_job_that_runs_is_seen(sandbox: Sandbox) -> None:
    sh(sandbox, "(while true; do n=$((n + 1)); sleep 0.02; done) &")
    sh(sandbox, "true")
    before = sandbox.observe()
    sh(sandbox, "sleep 1")
    assert sandbox.observe().processes != before.processes


def test_daemon_is_seen(sandbox: Sandbox) -> None:
    prepared(sandbox)
    assert "processes" in changed(sandbox, "(setsid sleep 1000 > /dev/null 2>&1 < /dev/null &)")
    settled(sandbox, "sleep 1000")
    assert changed(sandbox, "true") == set()


def test_memory_of_a_job_is_seen(sandbox: Sandbox) -> None:
    """A process that is asked to change something in memory only, and then waits again, did change."""
    program = (
        "import signal, time\nstate = [0]\n"
        "def change(*_): state[0] += 1\n"
        "signal.signal(signal.SIGUSR1, change)\nopen('ready', 'w').close()\n"
        "while True: time.sleep(1000)\n"
    )
    sandbox.write_file("job.py", program.encode())
    sh(sandbox, "python3 job.py > /dev/null 2>&1 & while [ ! -e ready ]; do sleep 0.02; done")
    eventually(lambda: still(sandbox))
    assert "processes" in changed(sandbox, "kill -USR1 $!; sleep 0.1")


def test_keys_are_seen(sandbox: Sandbox) -> None:
    before = sandbox.observe()
    sandbox.send_keys(b"python3 -q\r", wait=3)
    assert sandbox.observe() != before


def test_names_of_shell_state(sandbox: Sandbox) -> None:
    sh(sandbox, "x=1; f() { :; }; alias a=b; cd /tmp; umask 027; trap : USR1; echo $RANDOM")
    state = sandbox.shell_state()
    assert {"var x", "function f", "alias a", "cwd"} <= set(state)
    assert "1" in state["var x"]
    assert "/tmp" in state["cwd"]
    assert not {"var RANDOM", "var SECONDS", "var LINENO", "var _"} & set(state)
    sh(sandbox, "true")
    before = dict(sandbox.shell_state())
    sh(sandbox, "y=2")
    after = dict(sandbox.shell_state())
    assert set(after) - set(before) == {"var y"}
    assert {name for name in before if before[name] != after.get(name)} == set()
