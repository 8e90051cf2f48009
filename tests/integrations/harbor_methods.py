"""Asks tvsnap's environment for Harbor what no job asks: by Harbor's own Python.

python harbor_methods.py HOME TASK FOLDER, where HOME is a data directory, or the address of a server
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harbor.models.task.config import HealthcheckConfig, NetworkMode, NetworkPolicy
from harbor.models.task.task import Task
from harbor.models.trial.config import ResourceMode
from harbor.models.trial.paths import TrialPaths

from tvsnap.plugins.harnesses.harbor import TvsnapEnvironment

HOME = {"url" if sys.argv[1].startswith("http:") else "home": sys.argv[1]}
TASK, FOLDER = map(Path, sys.argv[2:])
OFFLINE = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)


def environment(name: str, **options: Any) -> TvsnapEnvironment:
    task, paths = Task(TASK), TrialPaths(FOLDER / name)
    paths.mkdir()
    return TvsnapEnvironment(
        task.paths.environment_dir,
        task.short_name,
        f"{name}__env",
        paths,
        task.config.environment.model_copy(deep=True),
        logging.getLogger(name),
        salt=str(FOLDER),
        auto_mounts=[{"type": "bind", "source": str(paths.agent_dir), "target": "/logs/agent"}],
        **{"network_policy": OFFLINE, **HOME, **options},
    )


def refused(what: str, **options: Any) -> None:
    said = ""
    try:
        environment("refused", **options)
    except ValueError as error:
        said = str(error)
    assert what in said, f"{options}: {said}"


def command_lines() -> Iterator[str]:
    """Yields the command lines of this machine's processes, those of sandboxes included."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield file.read_bytes().decode(errors="replace")


async def failing(doing: Awaitable[object]) -> str:
    """Returns the message of what an environment raises."""
    try:
        await doing
    except (OSError, RuntimeError, ValueError) as error:
        return str(error)
    return "nothing was raised"


async def ask(one: TvsnapEnvironment) -> list[Any]:
    """Returns what the environment answers to one call after the other."""
    answers: list[Any] = []
    heard: list[str] = []

    async def hear(text: str, stream: str) -> None:
        heard.append(f"{stream}: {text}")

    await one.start(force_build=False)
    with one.scoped_output_callback(hear), one.scoped_exec_env({"SCOPED": "1"}):
        answers.append(await one.exec("pwd; echo $SCOPED; echo to-stderr >&2; exit 3"))
    answers.append(heard)
    answers.append(await one.exec("id -u; pwd", cwd="/tmp", user=12345))
    with one.with_default_user("games"):
        answers.append(await one.exec("id -un"))

    source = FOLDER / "source"
    if not source.exists():
        (source / "deep").mkdir(parents=True)
        (source / "deep/run.sh").write_text("#!/bin/sh\necho ran\n")
        (source / "deep/run.sh").chmod(0o755)
        (source / "link").symlink_to("deep/run.sh")
        (source / "debug.log").write_text("log\n")
    await one.upload_dir(source, "/up/there")
    await one.upload_file(source / "debug.log", "/up/alone/file.txt")
    answers.append(await one.exec("/up/there/link && cat /up/alone/file.txt && stat -c %U:%a /up/there/deep/run.sh"))
    answers += [await one.is_dir("/up/there"), await one.is_file("/up/there"), await one.is_file("/up/alone/file.txt")]

    back = one.trial_paths.trial_dir / "back"
    await one.download_dir("/up/there", back / "whole")
    await one.download_file("/up/there/deep/run.sh", back / "run.sh")
    await one.download_dir_with_exclusions(source_dir="/up/there", target_dir=back / "without", exclude=["*.log"])
    await one.download_dir_filtered(
        source_dir="/up/there", target_dir=back / "chosen", include=["deep/*"], protect=["debug.log"]
    )
    answers.append(sorted(path.relative_to(back).as_posix() for path in back.rglob("*")))
    answers.append(os.access(back / "run.sh", os.X_OK))
    answers.append(await one.exec("ls -A /tmp"))
    answers.append(await failing(one.download_file("/not/there", back / "none")))
    answers.append(await failing(one.download_dir("/up/alone/file.txt", back / "f")))

    answers.append(await failing(one.exec("sleep 30", timeout_sec=1)))
    await one.run_healthcheck(HealthcheckConfig(command="test -d /up"))
    never = HealthcheckConfig(command="false", retries=2, interval_sec=0.1, start_period_sec=0, timeout_sec=5)
    answers.append(await failing(one.run_healthcheck(never)))
    answers.append(await failing(one.service_exec("true", service="db")))
    await one.set_network_policy(OFFLINE)
    answers.append(await failing(one.set_network_policy(NetworkPolicy())))
    await one.reset_dirs(remove_dirs=["/up"], create_dirs=["/logs/agent"], chmod_dirs=["/logs/agent"])
    answers.append(await one.is_dir("/up"))
    await one.prepare_logs_for_host()

    # Each waits for the next: one after the other, they would wait for ever.
    await one.exec("mkfifo /tmp/a /tmp/b /tmp/c")
    chain = ("cat < a > b; echo first", "cat < b > c; echo second; exit 4", "echo all the way > a; cat < c")
    answers += await asyncio.gather(*(one.exec(command, cwd="/tmp", timeout_sec=60) for command in chain))
    return answers


async def agents_logs(name: str, command: str, **options: Any) -> str:
    """Returns what a command prints after Harbor has put the agent's logs into the sandbox."""
    one = environment(name, **options)
    await one.start(force_build=False)
    (one.trial_paths.agent_dir / "trajectory.json").write_text(name)
    await one.upload_dir(one.trial_paths.agent_dir, "/logs/agent")
    said = (await one.exec(command)).stdout or ""
    await one.stop(delete=True)
    return said


async def main() -> None:
    answers = []
    for name in ("first", "second"):
        one = environment(name)
        answers.append(await ask(one))
        await one.stop(delete=name == "first")
        await one.stop(delete=True)
    assert answers[0] == answers[1]
    print(*answers[0], sep="\n")

    limited = environment("limited", override_cpus=0.5, override_memory_mb=200, mounts=[
        {"type": "bind", "source": str(FOLDER / "source"), "target": "/mounted", "read_only": True}
    ])  # fmt: skip
    await limited.start(force_build=False)
    assert (await limited.exec("cat /mounted/debug.log")).stdout == "log\n"
    ate = await limited.exec("python3 -c 'len(bytearray(400 << 20))'")
    assert ate.return_code != 0, "more memory than Harbor said"
    await limited.stop(delete=True)

    cancelled = environment("cancelled")
    await cancelled.start(force_build=False)
    sleep = f"sleep 600.{secrets.randbelow(10**9)}"
    waiting = asyncio.create_task(cancelled.exec(f"touch /tmp/begun; {sleep}"))
    while not any(line == f"{sleep}\0".replace(" ", "\0") for line in command_lines()):
        await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.wait([waiting])
    await cancelled.stop(delete=True)

    unlimited = environment("unlimited", override_memory_mb=100, memory_enforcement_policy=ResourceMode.IGNORE)
    await unlimited.start(force_build=False)
    assert (await unlimited.exec("python3 -c 'len(bytearray(200 << 20))'")).return_code == 0
    await unlimited.stop(delete=True)

    hidden = "d=/lo; ls -A ${d}gs/agent"  # names them in no way that can be seen
    assert await agents_logs("unread", hidden) == ""
    assert await agents_logs("read", "cat /logs/agent/*") == "read"
    assert await agents_logs("always", hidden, agent_logs="always") == "trajectory.json\n"

    refused("not both", home="/tmp", url="http://127.0.0.1:8420")
    refused("the server says it", home=None, url="http://127.0.0.1:8420", use_cache=False)
    refused("agent_logs: Input should be 'when-read' or 'always'", agent_logs="never")
    refused("use_cache: Input should be a valid boolean", use_cache="no")
    refused("mark it read_only", mounts=[{"type": "bind", "source": "/tmp", "target": "/mounted"}])
    refused("does not support", memory_enforcement_policy=ResourceMode.REQUEST)
    refused("cannot change", phase_network_policies=[OFFLINE, NetworkPolicy()])
    refused("cannot change", network_policy=NetworkPolicy(), phase_network_policies=[OFFLINE, OFFLINE])
    lists = [NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=[host]) for host in ("a.test", "b.test")]
    both = environment("both", phase_network_policies=lists)
    assert both.network_policy.allowed_hosts == ["a.test", "b.test"], "one network for both phases"
    with patch("os.geteuid", return_value=1000):
        refused("give the url", home="/tmp", url=None)


async def attach() -> None:
    """Opens a shell in the place of this process; it reads commands from standard input."""
    one = environment("attach")
    await one.start(force_build=False)
    await one.exec("echo attached > /app/it")
    await one.attach()


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    asyncio.run(attach())
