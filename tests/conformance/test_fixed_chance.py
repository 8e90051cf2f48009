"""A clock with a fixed start, and randomness by a seed: `clock` and `random_seed` of an image."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, eventually, sh
from tvsnap.images import Image, ImageStore
from tvsnap.sandboxes.protocol import Backend, Sandbox

START = 1_704_067_200
"""2024-01-01, seconds since 1970."""
SLACK = 120.0
"""Seconds within which a test's sandbox is done, on a machine that has much else to do."""


@pytest.fixture(scope="session")
def fixed_image(tvsnap_home: Path, terminal_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("fixed")
    (folder / "image.yaml").write_text(
        "name: fixed-chance\nimage: terminal\nclock: 2024-01-01T00:00:00Z\nrandom_seed: 7\n"
        "run: ['mkdir /made && touch /made/first && sleep 0.1 && touch /made/second', 'test ! -e /etc/ld.so.preload']\n"
    )
    return ImageStore(tvsnap_home).build(folder)


@pytest.fixture
def fixed(backend: Backend, fixed_image: Image) -> Iterator[Lab]:
    laboratory = Lab(backend, fixed_image)
    yield laboratory
    laboratory.close()


def clock(sandbox: Sandbox) -> float:
    return float(sh(sandbox, "date +%s.%N"))


class TestClock:
    def test_begins_where_the_image_says(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        assert 0 <= clock(sandbox) - START < SLACK
        assert sh(sandbox, "date -u +%F") == "2024-01-01\n"
        for command in (
            'python3 -c "import time; print(time.time())"',
            'python3 -c "import datetime; print(datetime.datetime.now().timestamp())"',
            "echo $EPOCHREALTIME",
            "printf '%(%s)T\\n' -1",
            "perl -e 'print time'",
            "awk 'BEGIN {print systime()}'",
            "env -i /usr/bin/date +%s",
            "LD_PRELOAD=libm.so.6 date +%s",
            "cd /root && rm -rf r && git init -q r && git -C r -c user.name=a -c user.email=a@b commit -q --allow-empty"
            " -m m && git -C r log --format=%ct",
            "touch /root/f && stat -c %Y /root/f",
            "python3 -c \"import os; print(os.stat('/root/f').st_mtime)\"",
            "find /root/f -printf %T@",
        ):
            assert 0 <= float(sh(sandbox, command)) - START < SLACK, command

    def test_runs_on(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        first = clock(sandbox)
        assert 0.5 < float(sh(sandbox, "sleep 0.5; date +%s.%N")) - first < SLACK

    def test_no_file_is_from_the_future(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        sh(sandbox, "mkdir /w && cd /w && printf 'a: b\\n\\tcp b a\\n' >Makefile && echo 1 >b")
        assert sh(sandbox, "make") == "cp b a\n"
        assert sh(sandbox, "make") == "make: 'a' is up to date.\n"
        assert sh(sandbox, "sleep 0.05; echo 2 >b; make; cat a") == "cp b a\n2\n"
        assert sh(sandbox, "touch /root/now; find / -xdev -newer /root/now -not -path '/root*' -type f") == ""

    def test_files_of_the_image_keep_their_order(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        assert (
            sh(sandbox, "[ /made/second -nt /made/first ] && [ /made/first -nt /etc/os-release ] && echo so") == "so\n"
        )
        assert START - 3600 <= float(sh(sandbox, "stat -c %.9Y /made/first")) < START

    def test_times_that_are_set_come_back(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        for moment in ("2024-01-01T00:00:00.250000000", "2024-01-01T00:00:01.5", "2001-09-09T01:46:40", "1969-07-20"):
            said = sh(sandbox, f"touch -d {moment}Z /root/f; date -u -r /root/f +%FT%T.%N")
            assert said.startswith(moment), (moment, said)
        sh(sandbox, "touch /root/g; cp -p /root/g /root/h; touch -r /made/first /root/i")
        assert sh(sandbox, "stat -c %.9Y /root/g") == sh(sandbox, "stat -c %.9Y /root/h")
        assert sh(sandbox, "stat -c %.9Y /made/first") == sh(sandbox, "stat -c %.9Y /root/i")

    @pytest.mark.needs_processes
    def test_a_fork_goes_on_where_its_state_was(self, fixed: Lab, backend: Backend) -> None:
        sandbox = fixed.start()
        sh(sandbox, "touch /root/before; sleep 300 & :")
        changed = "%.9Z" if backend.name == "local" else ""  # a commit makes new files
        times = f"stat -c '%.9X %.9Y {changed}' /root/before"
        seen = sh(sandbox, times)
        began = time.monotonic()
        snapshot = fixed.checkpoint(sandbox)
        stood = clock(sandbox)
        since = time.monotonic() - began  # the snapshot was taken, at most
        time.sleep(3 + 2 * since)
        began = time.monotonic()
        fork = fixed.fork(snapshot)
        now = clock(fork)
        assert -1.5 - since < now - stood < 1.5 + time.monotonic() - began
        assert sh(fork, times) == seen
        sh(fork, "touch /root/after")
        assert sh(fork, "[ /root/after -nt /root/before ] && jobs -r | wc -l") == "1\n"
        assert abs(float(sh(fork, "stat -c %.9Y /root/after")) - clock(fork)) < SLACK
        again = fixed.fork_of(fork)
        assert sh(again, times) == seen

    def test_a_fork_of_an_idle_shell_goes_on_likewise(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        sh(sandbox, "x=1; touch /root/before")
        began = time.monotonic()
        snapshot = fixed.checkpoint(sandbox)
        stood, seconds = clock(sandbox), int(sh(sandbox, "echo $SECONDS"))
        since = time.monotonic() - began  # the snapshot was taken, at most
        time.sleep(3 + 2 * since)
        began = time.monotonic()
        fork = fixed.fork(snapshot)
        shown, counted = clock(fork), int(sh(fork, "echo $SECONDS"))
        passed = time.monotonic() - began
        assert -1.5 - since < shown - stood < 1.5 + passed
        assert -2 - since <= counted - seconds < 2.5 + passed

    def test_waits_until_a_time(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        program = """
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
class Time(ctypes.Structure): _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
def until(seconds):
    at = time.time() + seconds
    return ctypes.byref(Time(int(at), int(at % 1 * 1e9)))
room = [ctypes.create_string_buffer(128) for _ in range(3)]
for name, wait in {
    "sem": lambda: libc.sem_timedwait(room[0], until(0.3)),
    "sleep": lambda: libc.clock_nanosleep(0, 1, until(0.3), None),
    "cond": lambda: libc.pthread_cond_timedwait(room[1], room[2], until(0.3)),
    "mutex": lambda: libc.pthread_mutex_timedlock(room[2], until(0.3)),
}.items():
    libc.pthread_mutex_lock(room[2]) if name == "cond" else None
    began = time.monotonic()
    wait()
    print(name, 0.25 < time.monotonic() - began < 5)
"""
        sandbox.write_file("/root/waits.py", program.encode())
        assert set(re.findall(r"True|False", sh(sandbox, "timeout 30 python3 /root/waits.py"))) == {"True"}

    def test_a_server_that_outlives_the_snapshot(self, fixed: Lab, backend: Backend) -> None:
        if not backend.captures.processes:
            pytest.skip("live processes cannot be captured on this machine (tvsnap doctor)")
        sandbox = fixed.start()
        program = "import time\nwhile True: open('/root/clock', 'w').write(str(time.time())); time.sleep(0.02)"
        sandbox.write_file("/root/server.py", program.encode())
        sh(sandbox, "python3 /root/server.py & :")
        eventually(lambda: sh(sandbox, "cat /root/clock 2>/dev/null"))
        snapshot = fixed.checkpoint(sandbox)
        time.sleep(3)
        fork = fixed.fork(snapshot)
        time.sleep(0.2)
        told = eventually(lambda: sh(fork, "cat /root/clock"))
        assert abs(float(told) - clock(fork)) < 1.5


CHANCE = (
    "python3 -c 'import secrets; print(secrets.token_hex(8))'",
    'python3 -c \'print(hash("x"), {"a", "b", "c", "d"})\'',
    "python3 -c 'import uuid, random; print(uuid.uuid4(), random.random())'",
    "python3 -c 'import ssl; print(ssl.RAND_bytes(8).hex())'",
    "mktemp -u; mktemp -u; mktemp -d",
    "python3 -c 'import tempfile; print(tempfile.mkdtemp())'",
    "echo $SRANDOM",
    "head -c 8 /dev/urandom | xxd -p",
    "tr -dc a-z </dev/urandom | head -c 12",
    "dd if=/dev/random bs=4 count=2 status=none | xxd -p",
    "od -An -N8 -tx1 /dev/urandom",
    "cat /proc/sys/kernel/random/uuid",
    'perl -e \'open F, "<", "/dev/urandom"; read F, $x, 8; print unpack "H*", $x\'',
    "env -i /usr/bin/mktemp -u",
    "openssl rand -hex 8",
    "ssh-keygen -q -t ed25519 -N '' -C c -f /root/key; cat /root/key /root/key.pub",
    "ssh-keygen -q -t rsa -b 2048 -N '' -C c -f /root/rsa; cat /root/rsa.pub",
    "shuf -i 1-1000000 -n 1",
)


class TestRandomness:
    def test_is_the_same_in_each_execution(self, fixed: Lab) -> None:
        one, other = fixed.start(), fixed.start()
        time.sleep(1.1)
        for command in CHANCE:
            said = []
            for sandbox in (one, other):
                said.append(sh(sandbox, command))
                sandbox.settle(changed=True)
            assert said[0] == said[1], command
            assert said[0].strip(), command

    def test_history_leads_to_one_digest(self, fixed: Lab) -> None:
        digests = []
        for _ in range(2):
            sandbox = fixed.start()
            for command in (
                "date +%F >/root/today",
                "mktemp -d",
                "python3 -c 'import secrets; print(secrets.token_hex(8))' >/root/token",
                "ssh-keygen -q -t ed25519 -N '' -f /root/key",
            ):
                sh(sandbox, command)
                sandbox.settle(changed=True)
            digests.append(sandbox.digest())
            time.sleep(1.1)
        assert digests[0] == digests[1] is not None

    def test_no_two_draws_are_the_same(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        drawn = sh(
            sandbox,
            "for i in $(seq 20); do python3 -c 'import os; print(os.urandom(8).hex())'; xxd -p -l 8 /dev/urandom; done;"
            'python3 -c "import os\nfor i in range(4):\n print(os.urandom(8).hex(), flush=True); os.fork()\n'
            'try:\n while os.wait(): pass\nexcept OSError: pass"',  # what comes after the call has ended is not shown
        ).split()
        assert len(drawn) == 20 * 2 + 1 + 2 + 4 + 8
        assert len(set(drawn)) == len(drawn)

    def test_process_ids_that_come_again_draw_anew(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        command = "python3 -c 'import os; print(os.getpid(), os.urandom(8).hex())'"
        first = sh(sandbox, command)
        assert sh(sandbox, command) == first  # nothing has changed: it is the same state
        sandbox.changes_settled += 125  # type: ignore[attr-defined]
        again = sh(sandbox, command)
        assert again.split()[0] == first.split()[0]
        assert again != first

    @pytest.mark.needs_processes
    def test_a_fork_draws_what_its_origin_does(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        sh(sandbox, "sleep 300 & :")
        sandbox.settle(changed=True)
        fork = fixed.fork_of(sandbox)
        command = "mktemp -u; python3 -c 'import uuid; print(uuid.uuid4())'"
        assert sh(sandbox, command) == sh(fork, command)


class TestOthers:
    def test_an_image_without_has_the_machines(self, lab: Lab) -> None:
        one, other = lab.start(), lab.start()
        assert abs(clock(one) - time.time()) < SLACK
        assert sh(one, "mktemp -u") != sh(other, "mktemp -u")
        assert sh(one, "cat /etc/ld.so.preload 2>/dev/null; ls /run/tvsnap/fixed 2>/dev/null; true") == ""

    def test_nothing_of_it_shows(self, fixed: Lab) -> None:
        sandbox = fixed.start()
        assert sandbox.changes() == {}
        assert "tvsnap" not in sh(sandbox, "env")

    def test_programs_with_an_address_sanitizer(self, fixed: Lab) -> None:
        """Their runtime wants to be loaded before all others."""
        sandbox = fixed.start()
        sandbox.write_file(
            "/root/a.c", b"#include <stdlib.h>\nint main(int n, char **v) { return v[n - 1 + 64][0]; }\n"
        )
        sandbox.write_file(
            "/root/b.c", b'#include <stdio.h>\n#include <time.h>\nint main(void) { printf("%ld", time(0)); }\n'
        )
        sh(sandbox, "cd /root && gcc -g -fsanitize=address a.c -o a && gcc -fsanitize=address,undefined b.c -o b")
        assert 0 <= int(sh(sandbox, "/root/b")) - START < SLACK
        assert "AddressSanitizer" in sh(sandbox, "/root/a 2>&1; true")

    def test_only_a_clock(self, backend: Backend, fixed_image: Image) -> None:
        lab = Lab(backend, replace(fixed_image, random_seed=None))
        try:
            one, other = lab.start(), lab.start()
            assert sh(one, "date -u +%F") == sh(other, "date -u +%F") == "2024-01-01\n"
            assert sh(one, "mktemp -u") != sh(other, "mktemp -u")
        finally:
            lab.close()
