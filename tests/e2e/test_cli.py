"""The command line on the local backend: real sandboxes, real terminals, real signals."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.control_groups import control_groups
from tvsnap.images import Image

TVSNAP = Path(sys.executable).with_name("tvsnap")
# Until its exec, a job still bears the name of the shell that it was forked from.
COMMON = (
    "cd /tmp && echo x > f && A=5",
    "sleep 1000 & until pgrep -x sleep > /dev/null; do :; done; echo started",
    "cat f; echo $A",
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, terminal_image: Image) -> dict[str, str]:
    """A data directory that only these tests use, so that what is left in it is theirs."""
    if os.geteuid() != 0:
        pytest.skip("the local backend needs root")
    home = tmp_path_factory.mktemp("cli-home")
    (home / "images").symlink_to(terminal_image.rootfs.parents[1])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TVSNAP_")}
    return {**kept, "TVSNAP_HOME": str(home), "COLUMNS": "80"}


class Line:
    """Runs the command in a data directory, with states that no other test shares."""

    def __init__(self, environment: dict[str, str], salt: str) -> None:
        self.environment = environment
        self.salt = salt

    def __call__(
        self, *arguments: str, status: int = 0, without: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [TVSNAP, *arguments],
            env={**self.environment, **without},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, without: Mapping[str, str] = {}) -> Any:
        return json.loads(self(*arguments, "--json", without=without).stdout)

    def rollout(self, *commands: str) -> list[dict[str, Any]]:
        options = [word for command in commands for word in ("-c", command)]
        calls: list[dict[str, Any]] = self.json("run", "terminal", "--salt", self.salt, "--policy", "eager", *options)[
            "calls"
        ]
        return calls


@pytest.fixture
def tvsnap(environment: dict[str, str], request: pytest.FixtureRequest) -> Line:
    return Line(environment, f"{request.node.name}-{time.time_ns()}")


def tag(home: Path) -> str:
    """Returns what the control groups of a data directory are known by."""
    return hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]


def running(home: Path, *command: str) -> bool:
    """Whether a process with this command line runs in a sandbox of a data directory."""
    line = b"".join(os.fsencode(word) + b"\0" for word in command)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if (process / "cmdline").read_bytes() == line and tag(home) in (process / "cgroup").read_text():
                return True
    return False


def leftovers(home: Path) -> list[str]:
    """Returns what is there of sandboxes of a data directory: control groups, mounts, loop devices, live layers."""
    found = control_groups(f"*/tvsnap/{tag(home)}/*")
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(home) in line]
    for device in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found += [f"{device}: {home}"] if device.read_text().startswith(str(home)) else []
    found += [str(path) for path in (home / "run" / "owners").glob("*")]
    return found


def eventually(probe: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while not probe():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def assert_nothing_left(home: Path) -> None:
    eventually(lambda: leftovers(home) == [])  # the kernel clears a loop device a moment after its last user
    assert leftovers(home) == []


def rollout_file(path: Path, *rollouts: tuple[str, ...]) -> Path:
    lines = [
        json.dumps(
            {
                "task": "e2e",
                "rollout": str(number),
                "calls": [{"name": "bash", "arguments": {"command": command}} for command in commands],
            }
        )
        for number, commands in enumerate(rollouts)
    ]
    path.write_text("\n".join(lines))
    return path


def test_the_demonstration(tvsnap: Line) -> None:
    data = tvsnap.json("demo")
    assert data["same"] is True
    assert data["uncached"]["executed"] == data["uncached"]["calls"]
    assert data["cached"]["executed"] < data["uncached"]["executed"] * 0.75
    # On a busy machine, a state that is cheap to reach may not be kept.
    assert data["again"]["hits"] > data["again"]["calls"] * 0.9
    tvsnap("forget", "--task", "demo", "--yes")


def test_the_demonstration_is_shown(tvsnap: Line) -> None:
    for _ in range(2):
        shown = tvsnap("demo").stdout
    assert "outputs with the cache equal those without it." in shown
    assert "the tree of states" in shown
    assert max(map(len, (line.rstrip() for line in shown.splitlines()))) <= 80
    roots = [node for node in tvsnap.json("tree", "--task", "demo")["nodes"] if node["parent"] is None]
    assert len(roots) == 1, "earlier demonstrations are forgotten"
    tvsnap("forget", "--task", "demo", "--yes")


def test_a_replay_equals_one_without_the_cache(tvsnap: Line, tmp_path: Path) -> None:
    file = rollout_file(
        tmp_path / "r.jsonl",
        (*COMMON, "echo one >> f", "cat f; jobs -r | wc -l"),
        (*COMMON, "kill %1; wait", "jobs -r | wc -l"),
        (*COMMON, "ls", "cat f; jobs -r | wc -l"),
    )
    arguments = ["replay", str(file), "--image", "terminal", "--salt", tvsnap.salt, "--policy", "default"]
    outputs = {}
    # One after another at first: who executes a call beside others, as a busy machine makes it, shares nothing.
    for name, options in (("fresh", ["--no-cache"]), ("first", ["--parallel", "1"]), ("second", ["--parallel", "3"])):
        path = tmp_path / name
        tvsnap(*arguments, *options, "--outputs", str(path))
        outputs[name] = [json.loads(line) for line in path.read_text().splitlines()]
    seen = {name: [(line["output"], line["exit_code"]) for line in lines] for name, lines in outputs.items()}
    assert seen["fresh"] == seen["first"] == seen["second"]
    assert {line["source"] for line in outputs["second"]} == {"hit"}
    assert sum(line["source"] == "executed" for line in outputs["first"]) <= 9


def test_looking_at_states(tvsnap: Line) -> None:
    first, second, third = tvsnap.rollout(*COMMON)
    assert "sleep 1000" in tvsnap("show", second["state"]).stdout
    difference = tvsnap.json("diff", first["state"], second["state"])
    assert [process["command"] for process in difference["started"]] == ["sleep 1000"]
    shown = tvsnap("diff", first["state"] + "~", first["state"], "-p", "--exit-code", status=4).stdout
    assert "+ /tmp/f" in shown
    assert "  +x" in shown
    assert "+ var A" in shown
    changed = tvsnap.rollout("echo more >> /etc/profile; rm /etc/issue; chmod 600 /etc/hostname; touch /etc/passwd")[0]
    kinds = {
        file["path"]: file["kind"] for file in tvsnap.json("diff", changed["state"] + "~", changed["state"])["files"]
    }
    assert kinds == {"/etc/profile": "M", "/etc/issue": "-", "/etc/hostname": "M"}
    assert tvsnap("exec", second["state"], "echo $A $PWD; jobs -r | wc -l").stdout == "5 /tmp\n1\n"
    assert tvsnap("exec", third["state"], "--", "cat", "f").stdout == "x\n"
    tvsnap("exec", third["state"], "exit 7", status=7)


def test_nothing_is_left_behind(tvsnap: Line) -> None:
    tvsnap.rollout(*COMMON)
    assert_nothing_left(Path(tvsnap.environment["TVSNAP_HOME"]))


@contextlib.contextmanager
def long_replay(tvsnap: Line, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A replay that is busy with a long call, with a background process beside it."""
    file = rollout_file(tmp_path / "r.jsonl", ("sleep 2000 & echo a", "touch /tmp/here; sleep 100"), ("sleep 101",))
    outputs = str(tmp_path / "outputs.jsonl")
    home = Path(tvsnap.environment["TVSNAP_HOME"])
    child = subprocess.Popen(
        [
            TVSNAP,
            *("replay", str(file), "--image", "terminal", "--salt", tvsnap.salt, "--timeout", "200"),
            *("--outputs", outputs, "--parallel", "2"),
        ],
        env=tvsnap.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert eventually(lambda: running(home, "sleep", "100") and running(home, "sleep", "101"), 60)
        assert len(leftovers(home)) >= 3
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_replay_at_once(tvsnap: Line, tmp_path: Path, number: signal.Signals, status: int) -> None:
    with long_replay(tvsnap, tmp_path) as child:
        began = time.monotonic()
        child.send_signal(number)
        stdout, stderr = child.communicate(timeout=60)
        assert time.monotonic() - began < 60
    assert child.returncode == status, stderr
    assert "Traceback" not in stderr
    assert_nothing_left(Path(tvsnap.environment["TVSNAP_HOME"]))
    if number == signal.SIGINT:
        assert "interrupted" in stdout
        lines = (tmp_path / "outputs.jsonl").read_text().splitlines()
        assert [json.loads(line)["output"] for line in lines] == ["a\n"]


def test_what_a_killed_replay_leaves_goes_with_the_next_command(tvsnap: Line, tmp_path: Path) -> None:
    home = Path(tvsnap.environment["TVSNAP_HOME"])
    with long_replay(tvsnap, tmp_path) as child:
        child.kill()
        child.wait()
    assert leftovers(home) != []
    tvsnap("gc")
    assert_nothing_left(home)
    first = tvsnap.rollout("sleep 2000 & echo a")[0]
    assert first["source"] == "hit"


class Terminal:
    """A person's terminal with the command in it."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.shown = ""
        self.ended = False
        self._waited_for = 0
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execve(TVSNAP, [str(TVSNAP), *arguments], {**environment, "TERM": "xterm", "NO_COLOR": "1"})

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            os.kill(self.pid, signal.SIGTERM)
            self.end()

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def wait_for(self, text: str, seconds: float = 20.0) -> None:
        """Waits until the terminal has shown a text after what was waited for before."""
        deadline = time.monotonic() + seconds
        while text not in self.shown[self._waited_for :]:
            assert time.monotonic() < deadline, f"{text!r} never came: {self.shown!r}"
            assert self._read(0.1), f"it ended before {text!r} came: {self.shown!r}"
        self._waited_for = self.shown.index(text, self._waited_for) + len(text)

    def end(self, seconds: float = 20.0) -> int:
        """Waits until the command has ended; returns its exit status."""
        deadline = time.monotonic() + seconds
        while self._read(0.1):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                pytest.fail(f"it did not end: {self.shown!r}")
        os.close(self.descriptor)
        self.ended = True
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, seconds: float) -> bool:
        """Reads what is shown within some time; returns whether there may be more."""
        if select.select([self.descriptor], [], [], seconds)[0]:
            try:
                data = os.read(self.descriptor, 65536)
            except OSError:
                return False
            self.shown += data.decode("utf-8", "replace")
            return bool(data)
        return True


def test_a_shell_in_a_state(tvsnap: Line) -> None:
    state = tvsnap.rollout(*COMMON)[1]["state"]
    with Terminal(tvsnap.environment, "shell", state, "--keep") as terminal:
        terminal.wait_for("Ctrl-] leaves it")
        terminal.type("echo $A $PWD $(jobs -r | wc -l)\n")
        terminal.wait_for("5 /tmp 1\r\n")
        terminal.type("B=78; touch kept\n")
        terminal.type("stty -a | head -n 1; echo done $((B + 1))\n")
        terminal.wait_for("done 79")
        terminal.type("\x1d")
        assert terminal.end() == 0
        kept = terminal.shown.split()[-1]
    assert tvsnap("exec", kept, "echo $B; ls; jobs -r | wc -l").stdout == "78\nf\nkept\n1\n"
    assert tvsnap("exec", state, "echo ${B-unset}; ls").stdout == "unset\nf\n"
    assert_nothing_left(Path(tvsnap.environment["TVSNAP_HOME"]))


def test_leaving_a_shell_by_its_end(tvsnap: Line) -> None:
    state = tvsnap.rollout(*COMMON)[0]["state"]
    with Terminal(tvsnap.environment, "shell", state) as terminal:
        terminal.wait_for("Ctrl-] leaves it")
        terminal.type("exit\n")
        assert terminal.end() == 0


def test_files_of_the_data_directory_are_their_owners_only(tvsnap: Line) -> None:
    home = Path(tvsnap.environment["TVSNAP_HOME"])
    tvsnap.rollout(*COMMON)
    with Terminal(tvsnap.environment, "run", "terminal", "--salt", tvsnap.salt) as terminal:
        terminal.wait_for("> ")
        files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir() if path.is_file()}
        terminal.type("\x04")
        assert terminal.end() == 0, "the end of input at a prompt is no error"
    assert {"tvsnap.db", "tvsnap.db-wal", "tvsnap.db-shm"} <= set(files)
    assert set(files.values()) == {0o600}, files


def test_a_rollout_typed_at_a_prompt(tvsnap: Line) -> None:
    with Terminal(tvsnap.environment, "run", "terminal", "--salt", tvsnap.salt) as terminal:
        terminal.wait_for("> ")
        terminal.type("X=6; echo $((X * 7))\n")
        terminal.wait_for("\n42\r\n")
        terminal.wait_for("executed, exit 0")
        terminal.wait_for("> ")
        now = tvsnap.json("stats")
        assert now["processes"] == now["sandboxes"] == 1
        assert 5e5 < now["sandbox_memory_bytes"] < 1e8  # pages that it shares with other sandboxes are divided
        terminal.type("sleep 100\n")
        assert eventually(lambda: running(Path(tvsnap.environment["TVSNAP_HOME"]), "sleep", "100"))
        terminal.type("\x03")
        terminal.wait_for("the call was given up")
        terminal.type(":bsh\n")
        terminal.wait_for('unknown tool "bsh"')
        terminal.wait_for("> ")
        terminal.type("printf '\\033[31m'; echo $X\n")
        terminal.wait_for("^[[31m6\r\n")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert_nothing_left(Path(tvsnap.environment["TVSNAP_HOME"]))


def test_a_machine_without_criu(tvsnap: Line) -> None:
    message = tvsnap("run", "terminal", "-c", "ls", status=5, without={"TVSNAP_CRIU": "/nowhere"}).stderr
    assert message.count("\n") == 1
    assert "CRIU" in message
    assert "doctor" in message
    options = ["run", "terminal", "--salt", tvsnap.salt, "-c", "echo x > f", "-c", "cat f"]
    lacking = {"TVSNAP_CRIU": "/nowhere", "TVSNAP_WITHOUT_CRIU": "1"}
    assert [call["source"] for call in tvsnap.json(*options, without=lacking)["calls"]] == ["executed"] * 2
    state = tvsnap.json(*options, without=lacking)["state"]
    assert tvsnap("exec", state, "cat f", without=lacking).stdout == "x\n", "rebuilt by replay"


def test_a_machine_without_btrfs(tvsnap: Line, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "images").symlink_to((Path(tvsnap.environment["TVSNAP_HOME"]) / "images").resolve())
    lacking = {"TVSNAP_NO_BTRFS": "1", "TVSNAP_HOME": str(home)}
    message = tvsnap("run", "terminal", "-c", "ls", status=5, without=lacking).stderr
    assert message.count("\n") == 1
    assert "btrfs" in message
    assert_nothing_left(home)
    lacking["TVSNAP_STORAGE"] = "copy"
    calls = tvsnap.json(
        "run", "terminal", "--policy", "eager", "-c", "echo x > f", "-c", "sleep 1000 & cat f", without=lacking
    )
    assert tvsnap("exec", calls["state"], "cat f; jobs -r | wc -l", without=lacking).stdout == "x\n1\n"
    assert_nothing_left(home)
