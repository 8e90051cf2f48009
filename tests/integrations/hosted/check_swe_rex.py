"""SWE-ReX on tvsnap: what SWE-agent asks of a deployment, and how that is answered beside SWE-ReX's own runtime."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from swerex import exceptions
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import DeploymentHook
from swerex.deployment.local import LocalDeployment
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)

import tvsnap
from tvsnap.plugins.harnesses.swe_rex import TvsnapDeployment, TvsnapDeploymentConfig

EDIT = """cat > /srv/repo/add.py <<'EOF'
def add(a, b):
    # adds "two" $numbers
    return a + b
EOF
sed -i 's/two/2/' /srv/repo/add.py &&
  cat /srv/repo/add.py
"""
COMMANDS = [
    "pwd; echo $LANG",
    "git init -q . && ls -A",
    EDIT,
    "python3 -c 'from add import add; print(add(40, 2))'",
    "false",
    "sleep 60",
    "show add.py; cd ..; X=kept",
    "pwd; echo $X",
]
TOOL = '#!/bin/bash\necho "[File: $1]"; cat -- "$1"\necho \'{"open": "\'$1\'"}\' > /root/state.json\n'

Made = Callable[..., TvsnapDeployment]


@pytest.fixture
def made(home: str, salt: str) -> Iterator[Made]:
    """Makes deployments, and stops them after the test."""
    deployments = []

    def make(**told: Any) -> TvsnapDeployment:
        config = TvsnapDeploymentConfig(image="terminal", home=home, salt=salt, **told)
        deployments.append(config.get_deployment())
        return deployments[-1]

    yield make
    for deployment in deployments:
        asyncio.run(deployment.stop())


def session(deployment: AbstractDeployment, command: str, timeout: float | None = 30, **told: Any) -> BashObservation:
    action = BashAction(command=command, timeout=timeout, **told)
    observation: BashObservation = asyncio.run(deployment.runtime.run_in_session(action))
    return observation


def begun(deployment: AbstractDeployment) -> AbstractDeployment:
    asyncio.run(deployment.start())
    asyncio.run(deployment.runtime.create_session(CreateBashSessionRequest()))
    return deployment


def outcome(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Returns what it returns, or the class of the error it raises."""
    try:
        return asyncio.run(coroutine)
    except Exception as error:
        return type(error)


def swe_agent(deployment: AbstractDeployment, bundle: Path) -> list[Any]:
    """Does what SWE-agent does with a deployment, an event loop for each request; returns what was said."""
    asyncio.run(deployment.start())
    runtime = deployment.runtime
    said: list[Any] = []

    def communicate(command: str, timeout: float = 25, check: Any = "silent") -> str:
        try:
            observation = session(deployment, command, timeout, check=check)
        except exceptions.CommandTimeoutError as error:
            said.append(str(error))
            asyncio.run(runtime.run_in_session(BashInterruptAction()))
            return ""
        said.append((observation.output, observation.exit_code))
        return str(observation.output)

    async def install() -> None:
        upload = UploadRequest(source_path=str(bundle), target_path="/root/tools/show")
        await asyncio.gather(runtime.upload(upload), runtime.upload(upload))

    async def look(path: str) -> None:
        which = (
            Command(command=f"which {name}", shell=True, check=True, env={"PATH": path}) for name in ("show", "ls")
        )
        said.extend(await asyncio.gather(*map(runtime.execute, which)))

    asyncio.run(runtime.create_session(CreateBashSessionRequest(startup_source=["/root/.bashrc"], startup_timeout=20)))
    communicate("export LANG=C.UTF-8 && export LC_ALL=C.UTF-8", check="raise")
    asyncio.run(install())
    communicate("export PATH=/root/tools/show/bin:$PATH && chmod +x /root/tools/show/bin/*", check="raise")
    asyncio.run(look(communicate("echo $PATH").strip()))
    asyncio.run(runtime.write_file(WriteFileRequest(path="/root/state.json", content="{}")))
    communicate("mkdir -p /srv/repo && cd /srv/repo", check="raise")
    for command in COMMANDS:
        communicate(command, 1 if command.startswith("sleep") else 25)
    said.append(asyncio.run(runtime.read_file(ReadFileRequest(path="/root/state.json"))).content)
    return said


def test_what_swe_agent_does_comes_to_the_same_without_the_cache_and_is_answered_the_second_time(
    made: Made, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/show").write_text(TOOL)
    without = swe_agent(made(use_cache=False), tmp_path)
    # However busy the machine is, all states are kept, and a timeout is a timeout.
    first, second = (made(policy="eager", timeouts="shared") for _ in range(2))
    assert swe_agent(first, tmp_path) == without
    assert swe_agent(second, tmp_path) == without
    assert without[-9:] == [
        ("/srv/repo\nC.UTF-8\n", 0),
        (".git\n", 0),
        ('def add(a, b):\n    # adds "2" $numbers\n    return a + b\n', 0),
        ("42\n", 0),
        ("", 1),
        "timeout after 1.0 seconds while running command 'sleep 60'",
        ('[File: add.py]\ndef add(a, b):\n    # adds "2" $numbers\n    return a + b\n', 0),
        ("/srv\nkept\n", 0),
        '{"open": "add.py"}\n',
    ]
    assert first.runtime.sources["hit"] == 0
    assert second.runtime.sources["executed"] == 0
    assert sum(second.runtime.sources.values()) == sum(first.runtime.sources.values())
    assert second.runtime.rollout.state == first.runtime.rollout.state


def test_it_says_what_swe_rexs_own_runtime_says(made: Made, tmp_path: Path) -> None:
    ours, theirs = begun(made()), begun(LocalDeployment())
    commands = [
        "echo out; echo err >&2",
        "printf 'a\\n\\nb'",
        "printf '\\033[31mred\\033[0m\\n'",
        "echo one\necho two; (exit 3)",
        "nonsense-of-a-command",
        "if [",
        "",
        "# only a comment",
    ]
    for command in commands:
        for check in ("silent", "ignore", "raise"):
            mine, its = (
                outcome(each.runtime.run_in_session(BashAction(command=command, timeout=20, check=check)))
                for each in (ours, theirs)
            )
            if isinstance(mine, BashObservation) and "nonsense" not in command:
                assert (mine.output.strip(), mine.exit_code) == (its.output.strip(), its.exit_code), (command, check)
            else:
                assert type(mine) is type(its), (command, check)
                assert not isinstance(mine, type) or mine is its, (command, check)
    executed = [
        Command(command=["printf", "%s|", "a b", "$HOME"]),
        Command(command="echo out; echo err >&2; exit 3", shell=True),
        Command(command="echo out; echo err >&2", shell=True, merge_output_streams=True),
        Command(command="echo 'a\\tb'; echo $A", shell=True, env={"A": "1", "PATH": "/usr/bin:/bin"}),
        Command(command=["pwd"], cwd="/usr"),
        Command(command=["sh", "-c", "exit 2"], check=True),
        Command(command=["sleep", "60"], timeout=0.5),
    ]
    for asked in executed:
        assert outcome(ours.runtime.execute(asked)) == outcome(theirs.runtime.execute(asked)), asked
    path = f"{tmp_path}/deep/file"
    for each in (ours, theirs):
        asyncio.run(each.runtime.write_file(WriteFileRequest(path=path, content="one\r\nzwölf\n")))
    reads = [
        ReadFileRequest(path=path),
        ReadFileRequest(path=path, encoding="latin-1"),
        ReadFileRequest(path=path, encoding="ascii"),
        ReadFileRequest(path=path, encoding="ascii", errors="replace"),
        ReadFileRequest(path="/nowhere/at-all"),
        ReadFileRequest(path="/usr"),
        ReadFileRequest(path=f"{path}/below"),
    ]
    for read in reads:
        assert outcome(ours.runtime.read_file(read)) == outcome(theirs.runtime.read_file(read)), read
    write = WriteFileRequest(path="/usr", content="")
    assert outcome(ours.runtime.write_file(write)) is outcome(theirs.runtime.write_file(write)) is IsADirectoryError
    asyncio.run(theirs.stop())


def test_programs_that_are_awaited_at_once_run_side_by_side(made: Made) -> None:
    """Each waits for the next: one after the other, they would wait for ever."""
    scripts = ["cat < a > b; echo first", "cat < b > c; echo second >&2", "echo all the way > a; cat < c"]
    for executed in (5, 0):  # what is still being recorded answers, too
        deployment = made(policy="eager")  # all states are kept however busy the machine is
        asyncio.run(deployment.start())
        runtime = deployment.runtime

        async def work(runtime: AbstractRuntime = runtime) -> list[tuple[str, str]]:
            await runtime.execute(Command(command="mkfifo a b c", shell=True, cwd="/tmp"))
            asked = [Command(command=script, shell=True, cwd="/tmp", timeout=60) for script in scripts]
            asked.append(Command(command="exit 3", shell=True, timeout=60, check=True))
            said: list[Any] = await asyncio.gather(*map(runtime.execute, asked), return_exceptions=True)
            assert isinstance(said.pop(), exceptions.NonZeroExitCodeError)
            return [(each.stdout, each.stderr) for each in said]

        assert asyncio.run(work()) == [("first\n", ""), ("", "second\n"), ("all the way\n", "")]
        assert (runtime.sources["executed"], sum(runtime.sources.values())) == (executed, 5)


def test_a_command_that_bash_cannot_read_is_not_run(made: Made) -> None:
    ours = begun(made())
    with pytest.raises(exceptions.BashIncorrectSyntaxError) as found:
        session(ours, "touch /tmp/left\nif true; then")
    assert "syntax error" in found.value.extra_info["bash_stderr"]
    assert session(ours, "ls /tmp/left", check="silent").exit_code == 2


def test_uploads_go_where_swe_rex_puts_them(made: Made, tmp_path: Path) -> None:
    ours = begun(made())
    (tmp_path / "folder/sub").mkdir(parents=True)
    (tmp_path / "folder/sub/file").write_text("x")
    for source, target in [("folder", "/srv/a/b"), ("folder/sub/file", "/srv/named"), ("folder/sub/file", "/srv/a")]:
        asyncio.run(ours.runtime.upload(UploadRequest(source_path=f"{tmp_path}/{source}", target_path=target)))
    found = session(ours, "cd /srv; find . -type f | sort").output
    assert found == "./a/b/sub/file\n./a/file\n./named\n"
    with pytest.raises(tvsnap.UsageError, match="nowhere cannot be read"):
        asyncio.run(ours.runtime.upload(UploadRequest(source_path=f"{tmp_path}/nowhere", target_path="/srv/x")))


def test_sessions(made: Made) -> None:
    ours = begun(made())
    create, close = ours.runtime.create_session, ours.runtime.close_session
    with pytest.raises(exceptions.SessionExistsError):
        asyncio.run(create(CreateBashSessionRequest()))
    with pytest.raises(tvsnap.UsageError, match=r"'other': a rollout has one shell, .* close that session first"):
        asyncio.run(create(CreateBashSessionRequest(session="other")))
    for action in (BashAction(command="true", session="other"), BashInterruptAction(session="other")):
        with pytest.raises(exceptions.SessionDoesNotExistError):
            asyncio.run(ours.runtime.run_in_session(action))
    session(ours, "cd /tmp; X=1; sleep 300 & echo $! > /tmp/pid")
    asyncio.run(close(CloseBashSessionRequest()))
    with pytest.raises(exceptions.SessionDoesNotExistError):
        session(ours, "true")
    with pytest.raises(exceptions.SessionDoesNotExistError):
        asyncio.run(close(CloseBashSessionRequest()))
    asyncio.run(create(CreateBashSessionRequest(session="other")))
    seen = session(ours, "pwd; echo [$X]; kill -0 $(cat /tmp/pid) || echo gone", session="other", check="silent")
    assert seen.output.splitlines()[:2] == ["/app", "[]"]
    assert seen.output.endswith("gone\n")


@pytest.mark.parametrize("told", [{"is_interactive_command": True}, {"is_interactive_quit": True}, {"expect": [">>>"]}])
def test_interactive_programs_are_refused(made: Made, told: dict[str, Any]) -> None:
    ours = begun(made())
    with pytest.raises(tvsnap.UsageError, match=r"'python3': .*tools keys and screen"):
        session(ours, "python3", **told)


async def test_a_command_is_interrupted_and_what_is_stopped_does_not_wait(home: str, salt: str) -> None:
    ours = TvsnapDeployment(image="terminal", home=home, salt=salt)
    await ours.start()
    runtime = ours.runtime
    await runtime.create_session(CreateBashSessionRequest())
    for end in (lambda: runtime.run_in_session(BashInterruptAction()), ours.stop):
        under_way = asyncio.create_task(runtime.run_in_session(BashAction(command="sleep 601.25")))
        waiting = asyncio.create_task(runtime.run_in_session(BashAction(command="echo next")))
        while "sleep 601.25" not in processes():
            await asyncio.sleep(0.05)
        await end()
        with pytest.raises(exceptions.CommandTimeoutError):
            await under_way
        with contextlib.suppress(tvsnap.UsageError):  # stopped before its turn came
            assert (await waiting).output == "next\n"
    assert not await runtime.is_alive()


def processes() -> str:
    """Returns the command lines of this machine's processes."""
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_life_of_a_deployment(made: Made) -> None:
    told: list[str] = []

    class Hook(DeploymentHook):
        def on_custom_step(self, message: str) -> None:
            told.append(message)

    ours = made()
    ours.add_hook(Hook())
    with pytest.raises(exceptions.DeploymentNotStartedError):
        _ = ours.runtime
    with pytest.raises(exceptions.DeploymentNotStartedError):
        asyncio.run(ours.is_alive())
    begun(ours)
    assert told == ["Beginning a rollout"]
    assert asyncio.run(ours.is_alive())
    with pytest.raises(tvsnap.UsageError, match="started already"):
        asyncio.run(ours.start())
    runtime = ours.runtime
    asyncio.run(ours.stop())
    asyncio.run(ours.stop())
    assert asyncio.run(runtime.is_alive()).message == "the runtime is closed"
    with pytest.raises(tvsnap.UsageError, match="closed"):
        asyncio.run(runtime.execute(Command(command=["true"])))
    begun(ours)  # as SWE-agent's hard_reset does
    assert session(ours, "echo again").output == "again\n"


def test_a_failure_of_tvsnap_is_not_shown_as_a_commands_output(home: str) -> None:
    with pytest.raises(tvsnap.errors.NotFound, match="no-such-image"):
        asyncio.run(TvsnapDeployment(image="no-such-image", home=home).start())


def test_a_program_that_stops_nothing_leaves_nothing(home: str, salt: str) -> None:
    script = f"""
import asyncio, os
from swerex.runtime.abstract import Command
from tvsnap.plugins.harnesses.swe_rex import TvsnapDeployment
def begin():
    deployment = TvsnapDeployment(image="terminal", home={home!r}, salt={salt!r})
    asyncio.run(deployment.start())
    return deployment, asyncio.run(deployment.runtime.execute(Command(command=["echo", "here"]))).stdout.strip()
dropped, _ = begin()
dropped = None
left, said = begin()
print(os.getpid(), said)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    pid, said = done.stdout.split()[-2:]
    assert said == "here"
    assert not list(Path(home).glob(f"run/owners/{pid}-*"))
