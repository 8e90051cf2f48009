"""`tvsnap browse` in a real terminal, on real sandboxes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from tests.e2e.test_cli import assert_nothing_left, eventually
from tvsnap import Cache
from tvsnap.images import Image

ROOT = Path(__file__).parents[2]
BROWSE = "import sys; sys.argv[0] = 'tvsnap'; from cli.entry import main; main()"
ROWS, COLUMNS = 40, 160


class _Stream(pyte.ByteStream):
    """A parser that drops sequences which pyte cannot process, as terminals do."""

    def _send_to_parser(self, data: str) -> bool | None:
        try:
            return super()._send_to_parser(data)
        except Exception:  # the parser starts anew
            return self._taking_plain_text


class Terminal:
    """A program in a terminal of its own, whose screen can be read."""

    def __init__(self, *command: str, home: Path) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = _Stream(self._screen)
        self.raw = bytearray()
        self._keyboard, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        others = ("TVSNAP_", "COLUMNS", "LINES")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        environment = {**kept, "TVSNAP_HOME": str(home), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=end, stdout=end, stderr=end, start_new_session=True
        )
        os.close(end)
        self._lock = threading.Lock()

    @property
    def text(self) -> str:
        """What is on the screen."""
        while select.select([self._keyboard], [], [], 0)[0]:
            try:
                data = os.read(self._keyboard, 65536)
            except OSError:
                break
            if not data:
                break
            self.raw += data
            self._stream.feed(data)
        return "\n".join(self._screen.display)

    def press(self, keys: str) -> None:
        """Types keys."""
        os.write(self._keyboard, keys.encode())

    def until(self, *words: str, gone: str = "\0", seconds: float = 120.0) -> str:
        """Waits until all words are on the screen, and another one is not; returns the screen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            text = self.text
            if all(word in text for word in words) and gone not in text:
                return text
            assert self.process.poll() is None, f"it has ended\n{text}"
            time.sleep(0.05)
        raise AssertionError(f"{words} never came:\n{self.text}")

    def close(self) -> None:
        """Ends the program."""
        self.process.kill()
        self.process.wait()
        os.close(self._keyboard)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, terminal_image: Image) -> Path:
    """A data directory with two rollouts that diverged."""
    if os.geteuid() != 0:
        pytest.skip("the local backend needs root")
    home = tmp_path_factory.mktemp("browse-home")
    (home / "images").symlink_to(terminal_image.rootfs.parents[1])
    with Cache(home, policy="eager") as cache:
        for name, number in (("one", 1), ("two", 2)):
            with cache.rollout("terminal", "fix it", label=name) as rollout:
                rollout.call("bash", {"command": "cd /tmp && A=5 && printf 'def f():\\n    return 1\\n' > f.py"})
                rollout.call("bash", {"command": f"sed -i 's/1/{number + 1}/' f.py"})
                rollout.call("bash", {"command": "sleep 1000 &"})
                rollout.call("bash", {"command": "printf '\\033[31mred\\033[0m \\033]0;title\\007漢字\\n'; false"})
            rollout.record(number)
    return home


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    opened = Terminal(sys.executable, "-c", BROWSE, "browse", home=home)
    try:
        yield opened
    finally:
        opened.close()


def test_a_session(terminal: Terminal, home: Path, tmp_path: Path) -> None:
    terminal.until("2 rollouts", "sed -i", "s/1/3/")
    terminal.press("f2")
    terminal.until("red 漢", "✗ 1")
    terminal.press("3l")
    terminal.until("sleep 1000", gone="looking at")
    terminal.press("5")
    terminal.until("/tmp/f.py")

    terminal.press("s")
    terminal.until("Ctrl-] leaves it")
    terminal.press("echo A is $A; cat f.py\r")
    terminal.until("A is 5", "return 2")
    terminal.press("\x1d")
    terminal.until("2 rollouts", gone="A is 5")

    terminal.press("x")
    terminal.until("run in a fork")
    terminal.press("echo $A > g; pwd\r")
    terminal.until("exit 0", "/tmp")
    terminal.press("q")
    terminal.until("2 rollouts", gone="escape: back")

    terminal.press("d")
    terminal.until("is marked")
    terminal.press("b")
    time.sleep(0.5)
    terminal.press("d")
    terminal.until("1 file", "M /tmp/f.py", "-     return 2", "+     return 3")
    terminal.press("q")
    terminal.until("2 rollouts", gone="escape: back")

    terminal.press("g")
    terminal.until("grade", "whose last line is JSON")
    terminal.press("""grep -q 'return 3' /tmp/f.py && echo '{"right": true}'\r""")
    terminal.until("reward 1", "right")
    terminal.press("q")
    terminal.until("tvsnap  ", gone="escape: back")

    terminal.press("r")
    terminal.until("again:", "it came to the same")
    terminal.press("q")
    terminal.until("tvsnap  ", gone="escape: back")

    archive = tmp_path / "state.tar"
    terminal.press("e")
    terminal.until("write the files of")
    terminal.press("\x15")
    terminal.until("write the files of", gone=".tar")
    terminal.press(f"{archive}\r")
    terminal.until("docker load -i")
    assert archive.stat().st_size > 1000
    terminal.press("q")
    terminal.until("tvsnap  ", gone="escape: back")

    terminal.press("T")
    terminal.until("rollouts, newest first", "one", "two")
    terminal.press("\x1b[B\r")  # the first one is that of the grade
    terminal.until("4 calls")
    terminal.press("jj1")
    terminal.until("sleep 1000 &")
    terminal.press("\x1b")
    terminal.until("tvsnap  ")
    terminal.press("q")
    terminal.process.wait(60)
    terminal.text  # noqa: B018
    assert terminal.process.returncode == 0
    assert b"\x1b]0;title" not in terminal.raw
    assert_nothing_left(home)


def test_what_watch_shows(home: Path) -> None:
    watched = Terminal(sys.executable, "-c", BROWSE, "watch", "--interval", "0.2", home=home)
    try:
        text = watched.until("tvsnap watch", "hit rate", "sandboxes", "Ctrl-C leaves")
        assert "executed" in text
        watched.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: bool(watched.text) and watched.process.poll() is not None)
        assert watched.process.returncode == 128 + signal.SIGTERM
    finally:
        watched.close()
