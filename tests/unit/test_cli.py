"""The command line as a whole: help, errors as one line with the right status, options before and after the verb."""

from __future__ import annotations

import builtins
import errno
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from cli import completion, context, main
from cli.main import PLUGGED_IN, VERBS, make_app
from tests.fakes.caches import BUSY, FakeImages, eventually
from tests.unit.cli_helpers import CommandLine, make_command_line, rollout_line
from tvsnap.model.errors import InfrastructureError, MachineLacks, NotFound
from tvsnap.model.images import Image

ROOT = Path(__file__).parents[2]
OPEN_A_CACHE = (
    "replay",
    "run",
    "diff",
    "shell",
    "browse",
    "exec",
    "verify",
    "push",
    "pull",
    "gc",
    "forget",
    "demo",
    "mcp",
    "serve",
    "web",
)


@pytest.fixture
def tvsnap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return make_command_line(tmp_path, monkeypatch)


def test_help_lists_every_verb(tvsnap: CommandLine) -> None:
    text = tvsnap("--help").stdout
    for verb, words in VERBS.items():
        assert f"  {verb} " in text
        assert words in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("doctor", "image")])
def test_help_of_a_verb(tvsnap: CommandLine, verb: str) -> None:
    text = tvsnap(verb, "--help").stdout
    assert VERBS[verb].split(":")[0].rstrip(".") in " ".join(text.split())
    assert "Exit status:\n    0 " in text
    assert max(map(len, text.splitlines())) <= 80
    assert "--json" in text or verb in ("browse", "mcp", "serve", "web"), "what it prints is JSON anyway, or a screen"
    assert "--home DIR" in text
    assert ("--backend NAME" in text) == (verb in OPEN_A_CACHE)


def test_help_needs_no_heavy_import() -> None:
    script = "import sys; from cli.main import make_app; make_app()(['--help'], standalone_mode=False)"
    script += "; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(eval(done.stdout.splitlines()[-1]))
    assert not loaded & {"rich.console", "tvsnap.cache", "tvsnap.graph", "tvsnap.sandboxes.local", "yaml", "pyte"}


def test_it_is_a_module() -> None:
    command = [sys.executable, "-m", "tvsnap"]
    said = subprocess.run([*command, "--version"], cwd="/", capture_output=True, text=True, check=True)
    assert said.stdout.startswith("tvsnap 0.")
    wrong = subprocess.run([*command, "nosuch"], cwd="/", capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (2, "tvsnap: No such command 'nosuch' (python -m tvsnap --help)\n")


def test_version(tvsnap: CommandLine) -> None:
    assert tvsnap("--version").stdout.startswith("tvsnap 0.")


def test_nothing_asked_for(tvsnap: CommandLine) -> None:
    assert "Verbs:" in tvsnap(status=2).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tre"], "No such command 'tre'"),
        (["tree", "--nope"], "No such option"),
        (["tree", "--depth", "x"], "'--depth'"),
        (["replay"], "Missing argument 'FILE'"),
        (["replay", "x", "--parallel", "0"], "'--parallel'"),
        (["replay", "x", "--timeout", "-3"], "--timeout must be a number of seconds above 0"),
        (["run", "terminal", "--timeout", "1e10", "-c", "ls"], "--timeout must be at most 31622400 seconds"),
        (["exec", "abcd", "--timeout", "nan", "ls"], "options go before STATE"),
        (["exec", "--timeout", "nan", "abcd", "ls"], "--timeout must be a number of seconds above 0"),
        (["replay", "x", "--think", "inf"], "--think must be at most 31622400 seconds"),
        (["show"], "Missing argument 'STATE|ROLLOUT|LABEL'"),
        (["gc", "--keep-bytes", "lots"], '"lots" is no size'),
        (["forget"], "give one of STATE, --task and --image"),
        (["run", "terminal", "--policy", "lavish", "-c", "ls"], 'policy "lavish" not found'),
        (["run", "terminal", "--tool", "bash", "--args", "{"], "no JSON"),
        (["run", "terminal", "--tool", "bash", "--args", "[]"], "must be a JSON object"),
        (["run", "terminal", "--tool", "bsh"], 'unknown tool "bsh"'),
        (["run", "terminal", "--tool", "bash", "--args", '{"comand": "ls"}'], 'argument "command" is missing'),
        (["run", "terminal", "--backend", "nope", "-c", "ls"], 'backend "nope" not found'),
        (["show", "xyz"], "names no state"),
        (["show", "abc"], "too short"),
    ],
)
def test_bad_usage(tvsnap: CommandLine, arguments: list[str], said: str) -> None:
    assert said in tvsnap.error(*arguments, status=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "termnal", "-c", "ls"],
        ["show", "abcdef"],
        ["exec", "abcdef", "ls"],
        ["shell", "abcdef"],
        ["diff", "abcdef", "123456"],
        ["tree", "abcdef"],
        ["tree", "--task", "nope"],
        ["tree", "--image", "nope"],
        ["verify", "--task", "nope"],
        ["forget", "abcdef", "--yes"],
        ["forget", "--task", "nope", "--yes"],
        ["forget", "--image", "nope", "--yes"],
    ],
)
def test_what_is_not_there(tvsnap: CommandLine, arguments: list[str]) -> None:
    message = tvsnap.error(*arguments, status=3)
    assert any(word in message for word in arguments[1:]), message


def test_a_missing_image_is_named_with_those_there_are(tvsnap: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    file.write_text(rollout_line("ls"))
    assert tvsnap.error("replay", str(file), "--image", "termnal", status=3) == (
        'image "termnal" not found; have: terminal'
    )


def test_a_prefix_that_fits_two_states(tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = iter(("abcd" + "0" * 60, "abcd" + "1" * 60))
    monkeypatch.setattr("tvsnap.engine.supply.recipes.root_state", lambda **_: next(roots))
    for salt in ("a", "b"):
        tvsnap("run", "terminal", "-c", "echo", "--salt", salt)
    for verb in (["show"], ["tree"], ["exec"], ["shell"], ["diff", "abcd"], ["forget", "--yes"]):
        message = tvsnap.error(*verb, "abcd", *(["ls"] if verb == ["exec"] else []), status=3)
        assert "abcd00000000" in message
        assert "abcd11111111" in message
        assert "give more digits" in message


def test_a_data_directory_that_cannot_be_one(tvsnap: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    run = ["run", "terminal", "-c", "ls"]
    assert "is no directory" in tvsnap.error(*run, "--home", str(file), status=2)
    for arguments, status in ((["tree"], 3), (["stats"], 3), (run, 2), (["gc"], 3)):
        message = tvsnap.error(*arguments, "--home", "/proc/nowhere", status=status)
        assert "/proc/nowhere" in message
        assert "--home" in message


def test_a_data_directory_without_rights(tvsnap: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    run = ["run", "terminal", "-c", "ls"]
    assert "Permission denied" in tvsnap.error(*run, "--home", str(tmp_path / "other"), status=5)
    monkeypatch.setattr(Path, "exists", refuse)
    assert "Permission denied" in tvsnap.error("tree", "--home", str(tmp_path / "other"), status=5)


def test_a_machine_that_lacks_what_is_needed(tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(home: Path, owner: str) -> None:
        raise MachineLacks("CRIU 4.2 or newer is needed (tvsnap doctor)")

    monkeypatch.setitem(__import__("tvsnap.sandboxes").sandboxes.FACTORIES, "fake", lacks)
    for arguments in (["run", "terminal", "-c", "ls"], ["verify"], ["gc"], ["forget", "--task", "x"]):
        assert tvsnap.error(*arguments, status=5) == "CRIU 4.2 or newer is needed (tvsnap doctor)"


def test_an_infrastructure_failure(tvsnap: CommandLine) -> None:
    tvsnap.backend.faults.fail("start", InfrastructureError("no more sandboxes"))
    assert tvsnap.error("run", "terminal", "-c", "ls", status=1) == "no more sandboxes"


def test_a_mistake_of_ours_is_one_line_too(tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    tvsnap.backend.faults.fail("start", ZeroDivisionError("oh"), times=2)
    message = tvsnap.error("run", "terminal", "-c", "ls", status=1)
    assert message == "internal error: ZeroDivisionError: oh (TVSNAP_DEBUG=1 shows where)"
    monkeypatch.setenv("TVSNAP_DEBUG", "1")
    result = CliRunner().invoke(make_app(), ["run", "terminal", "-c", "ls"])
    assert "Traceback" in result.stderr
    assert result.exit_code == 1


def test_messages_act_upon_no_terminal(tvsnap: CommandLine) -> None:
    message = tvsnap.error("tree", "--task", "a\x1b[31mb", status=3)
    assert "a^[[31mb" in message


def test_options_before_the_verb_hold_for_it(tvsnap: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    tvsnap("--home", str(other), "run", "terminal", "-c", "echo x > f")
    assert (other / "tvsnap.db").exists()
    assert not (tvsnap.home / "tvsnap.db").exists()
    assert os.environ["TVSNAP_HOME"] == str(tvsnap.home)
    assert "echo x" in tvsnap("tree", "--home", str(other)).stdout
    assert "nothing was recorded" in tvsnap("tree").stdout
    assert "not found" in tvsnap.error("--backend", "nope", "run", "terminal", "-c", "ls", status=2)


WITHOUT_BACKEND = (["tree"], ["stats"], ["show", "abcdef"], ["image", "ls"], ["image", "show", "terminal"])


@pytest.mark.parametrize("arguments", [*([verb] for verb in VERBS if verb != "image"), *WITHOUT_BACKEND], ids=" ".join)
def test_a_backend_that_does_not_exist(
    tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    said = 'backend "nope" not found; have: docker, fake, local (--backend, $TVSNAP_BACKEND)'
    assert tvsnap.error("--backend", "nope", *arguments, status=2) == said
    monkeypatch.setenv("TVSNAP_BACKEND", "nope")
    assert tvsnap.error(*arguments, status=2) == said
    assert os.listdir(tvsnap.home) == ["images"]


def test_a_backend_that_does_not_exist_after_the_verb(tvsnap: CommandLine) -> None:
    for arguments in (["run", "terminal", "-c", "ls"], ["verify"], ["gc"], ["exec", "abcdef", "ls"], ["doctor"]):
        verb, *others = arguments
        assert 'backend "nope" not found; have: docker' in tvsnap.error(verb, "--backend", "nope", *others, status=2)
    assert 'backend "" not found' in tvsnap.error("--backend", "", "tree", status=2)
    assert os.listdir(tvsnap.home) == ["images"]


READING = (
    *(["tree"], ["browse"], ["rollouts"], ["show", "abcdef"], ["diff", "abcdef", "123456"], ["shell", "abcdef"]),
    *(
        ["exec", "abcdef", "ls"],
        ["web"],
        ["verify"],
        ["watch"],
        ["stats"],
        ["report"],
        ["push", "x", "store"],
        ["gc"],
    ),
    *(["forget", "abcdef", "--yes"], ["image", "ls"], ["image", "show", "terminal"], ["image", "rm", "terminal"]),
    *(["image", "export", "abcdef", "-o", "out.tar"], ["proxy", "--stats"], ["proxy", "--clear"]),
)


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_mistyped_data_directory_is_not_made(tvsnap: CommandLine, tmp_path: Path, arguments: list[str]) -> None:
    missing, other = tmp_path / "hmoe", tmp_path / "other"
    (other / "of others").mkdir(parents=True)
    for path in (missing, other):
        words = ["--home", str(path), *arguments]
        assert tvsnap.error(*words, status=3).startswith(
            ("there is no data directory at ", f"there is no {path}/proxy.db")
        )
    assert not missing.exists()
    assert os.listdir(other) == ["of others"]


def test_a_verb_that_begins_a_data_directory_may_do_so(tvsnap: CommandLine, tmp_path: Path) -> None:
    tvsnap("run", "terminal", "-c", "ls", "--home", str(tmp_path / "new"))
    assert "ls" in tvsnap("tree", "--home", str(tmp_path / "new"), "--all").stdout


@pytest.mark.parametrize("verb", [[verb] for verb in VERBS if verb != "image"] + [["image", "ls"], ["image", "base"]])
def test_every_verb_has_a_data_directory_as_an_option(tvsnap: CommandLine, verb: list[str]) -> None:
    assert "--home DIR" in tvsnap(*verb, "--help").stdout


def test_a_data_directory_without_a_name(tvsnap: CommandLine) -> None:
    """Such as that of a variable which a script has not set: it is not the machine's."""
    assert "home must be a path, not ''" in tvsnap.error("--home", "", "tree", status=2)


def test_an_empty_variable_names_no_backend(tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVSNAP_BACKEND", "")
    assert "nothing was recorded" in tvsnap("tree").stdout


def test_completion_offers_what_is_there(tvsnap: CommandLine) -> None:
    state = tvsnap.rollout("echo x > f", task="fix-git")[0]["state"]
    assert completion.tasks("fix") == ["fix-git"]
    assert completion.tasks("other") == []
    offered = dict(completion.states(state[:4]))
    assert "echo x > f" in offered[state[:12]]
    assert completion.images("") == []


def test_completion_is_quiet_where_nothing_is(tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completion.tasks("") == []
    assert not (tvsnap.home / "tvsnap.db").exists()
    monkeypatch.setenv("TVSNAP_HOME", str(tvsnap.home / "hmoe"))
    assert (completion.tasks(""), completion.states(""), completion.images("")) == ([], [], [])
    assert not (tvsnap.home / "hmoe").exists()
    monkeypatch.setenv("TVSNAP_HOME", "/proc/nowhere")
    assert completion.tasks("") == []
    assert completion.states("") == []
    assert completion.images("") == []


def test_a_closed_pipe_is_no_error(tvsnap: CommandLine) -> None:
    tvsnap.rollout(*(f"echo {number} > f" for number in range(50)))
    script = "from cli.main import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", script, "tree", "--all"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TVSNAP_BACKEND": "local"},
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    assert child.stderr.read() == b""
    child.wait(60)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals, status: int) -> None:
    home, file = tmp_path / "home", tmp_path / "rollouts.jsonl"
    file.write_text(rollout_line("echo x > f", "hang"))
    script = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
import tvsnap.sandboxes
from cli import context
from cli.main import main
from tests.fakes.backend import FakeBackend
from tests.fakes.caches import FakeImages
from tvsnap.model.errors import SandboxDied

def hang(sandbox, command):
    if command == "hang":
        Path({str(tmp_path)!r}, "hangs").touch()
    while command == "hang" and sandbox.id in sandbox.backend.live:
        time.sleep(0.01)
    if command == "hang":
        raise SandboxDied("it was closed")

tvsnap.sandboxes.FACTORIES["fake"] = lambda home, owner: FakeBackend(hooks={{"run": hang}})
context.open_images = FakeImages
main()
"""
    outputs = tmp_path / "outputs.jsonl"
    arguments = ["replay", str(file), "--image", "terminal", "--timeout", "600", "--outputs", str(outputs)]
    child = subprocess.Popen(
        [sys.executable, "-c", script, "--backend", "fake", "--home", str(home), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually((tmp_path / "hangs").exists, 60)
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == status, stderr
    assert "Traceback" not in stderr
    assert not list((home / "run" / "owners").iterdir())
    if number == signal.SIGINT:
        assert "interrupted: this is what was done so far" in stdout
        assert [json.loads(line)["index"] for line in outputs.read_text().splitlines()] == [0]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_does_not_interrupt_what_the_main_thread_waits_for(number: signal.Signals, status: int) -> None:
    """The kernel gives it to another thread; to Python that is as if it had come just before the system call."""
    script = f"""
import signal, socket, sys, threading
sys.path.insert(0, {str(ROOT)!r})
from cli import signals

signals.arrange()
ours, theirs = socket.socketpair()
threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), {int(number)})).start()
try:
    ours.recv(1)
except KeyboardInterrupt:
    sys.exit(130)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.communicate(timeout=60) == ("", "")
    finally:
        child.kill()
    assert child.returncode == status


def test_busy_is_a_command_that_times_out(tvsnap: CommandLine) -> None:
    calls = tvsnap.json("run", "terminal", "-c", BUSY, "--timeout", "2")["calls"]
    assert calls[0]["timed_out"] is True
    assert calls[0]["private"].startswith("timed out after 2 s")


def test_every_verb_is_wired() -> None:
    app = make_app()
    assert set(VERBS) <= {path.stem for path in Path(main.__file__).parent.rglob("*.py")}
    assert {path.stem for path in Path(main.__file__).parent.glob("plugins/*.py")} > PLUGGED_IN
    for verb in VERBS:
        assert CliRunner().invoke(app, [verb, "--help"]).exit_code == 0


def test_too_few_open_files_names_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    error = InfrastructureError(f"no sandbox: {OSError(errno.EMFILE, os.strerror(errno.EMFILE))}")
    assert main.complain(str(error), error, error.exit_status) == error.exit_status
    assert "Too many open files; this process may open too few (ulimit -n)" in capsys.readouterr().err


class RemovableImages(FakeImages):
    """Images whose last name is removed with them, or not."""

    names: ClassVar[list[str]] = []

    def list(self) -> builtins.list[Image]:
        return [replace(self.image, name=name) for name in self.names]

    def get(self, name: str) -> Image:
        for known in self.names:
            if name == known or self.image.digest.startswith(name):
                return replace(self.image, name=known)
        raise NotFound(f'image "{name}" not found')

    def remove(self, name: str) -> Image:
        image = self.get(name)
        self.names[:] = [known for known in self.names if name in self.names and known != name]
        return image


def test_what_an_image_leaves_behind_is_told(tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    tvsnap.rollout("echo 1 > f", "echo 2 > g")
    monkeypatch.setattr(context, "open_images", RemovableImages)
    monkeypatch.setattr(RemovableImages, "names", ["terminal", "other"])
    digest = FakeImages().image.digest
    assert tvsnap.error("image", "rm", "terminal", status=2) == (
        "without a terminal to ask at, --yes is needed to remove terminal; nothing was done"
    )
    assert tvsnap("image", "rm", "terminal", "--yes").stdout == "removed terminal\n", "it has another name"
    refused = tvsnap.error("image", "rm", "other", status=2)
    assert re.fullmatch(
        r"without a terminal to ask at, --yes is needed to remove other "
        r"\(on which 3 states, 2 calls, 1 rollout, 2 snapshots of 6 B stand\); nothing was done",
        refused,
    )
    assert tvsnap.error("image", "rm", digest[:8], "--json", status=2) == refused
    assert RemovableImages.names == ["other"]
    said = tvsnap("image", "rm", "other", "--yes").stdout
    assert said.startswith("removed other\nwhat was done on other stays, of no use without it: 3 states, 2 calls, 1 ")
    assert f"tvsnap forget --image {digest}\n" in said
    tvsnap("forget", "--image", digest, "--yes")
    monkeypatch.setattr(RemovableImages, "names", ["terminal", "other"])
    assert tvsnap.json("image", "rm", digest, "--yes") == {
        "removed": [{"name": "terminal", "digest": digest}],
        "orphans": [],
    }
    assert RemovableImages.names == []
