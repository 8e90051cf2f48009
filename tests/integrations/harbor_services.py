"""Asks tvsnap's environment for Harbor about the services of a task: by Harbor's own Python.

python harbor_services.py HOME TASK FOLDER, where HOME is a data directory, or the address of a server. Prints what a
trial was answered, one answer a line, after a second trial was answered the same from the graph.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.task.task import Task
from harbor.models.trial.paths import TrialPaths

from tvsnap.plugins.harnesses.harbor import TvsnapEnvironment

HOME = {"url" if sys.argv[1].startswith("http:") else "home": sys.argv[1]}
TASK, FOLDER = map(Path, sys.argv[2:])
ASK = "exec 3<>/dev/tcp/db/7000; echo {} >&3; cat <&3"
LEFT = "cat /proc/*/cmdline 2> /dev/null | tr '\\0' ' ' | grep -c 'sleep 424[2]' || true"


def environment(name: str, **options: Any) -> TvsnapEnvironment:
    task, paths = Task(TASK), TrialPaths(FOLDER / name)
    paths.mkdir()
    settings = HOME if "url" in HOME else {**HOME, "policy": "eager"}
    return TvsnapEnvironment(
        task.paths.environment_dir,
        task.short_name,
        f"trial__{name}__env",
        paths,
        task.config.environment.model_copy(deep=True),
        logging.getLogger(name),
        salt=str(FOLDER),
        network_policy=NetworkPolicy(network_mode=NetworkMode.NO_NETWORK),
        **{**settings, **options},
    )


async def failing(doing: Awaitable[object]) -> str:
    """Returns the class and the message of what an environment raises."""
    try:
        await doing
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


async def ask(one: TvsnapEnvironment) -> list[Any]:
    """Returns what the environment answers to one call after the other."""
    answers: list[Any] = []
    back = one.trial_paths.trial_dir / "back"

    async def run(command: str, **options: Any) -> None:
        result = await one.service_exec(command, **options)
        answers.append((result.return_code, result.stdout))

    await run("sleep 4242 & " + ASK.format("look"))
    await run(f"bash -c '{ASK.format('add')}'", service="db")
    await run(ASK.format("look"), service="main")

    with one.with_default_user("games"), one.scoped_exec_env({"SCOPED": "main's"}):
        await run('echo $SCOPED $OF_DB $0; pwd; id -u; echo "a\\tb"; exit 3', service="db")
        await run("echo $X; pwd; id -un", service="db", cwd="/var", env={"X": "x"}, user="games")

    await run("mkdir -p /data/deep; echo 1 > /data/deep/a; echo 2 > /data/b.log; ln -s /data/deep /link", service="db")
    await one.service_download_file("/link/a", back / "a", service="db")
    await one.service_download_dir("/link", back / "link", service="db")
    await one.service_download_dir("/data", back / "whole", service="db")
    await one.service_download_dir_with_exclusions(
        source_dir="/data", target_dir=back / "without", exclude=["*.log"], service="db"
    )
    answers.append(sorted(path.relative_to(back).as_posix() for path in back.rglob("*") if path.is_file()))
    answers += [await one.service_is_dir("/data", service=name) for name in ("db", "main")]
    answers.append(await failing(one.service_download_file("/not/there", back / "none", service="db")))

    await run(LEFT, service="db")
    await one.stop_service("main")
    await run(LEFT, service="db")
    await run("true")
    await run(f"bash -c '{ASK.format('look')}'", service="db")
    await one.stop_service("db")
    await run("true", service="db")
    await one.service_download_file("/data/b.log", back / "b.log", service="db")
    answers.append((back / "b.log").read_text())

    for doing in (one.service_exec("true", service="cache"), one.stop_service("cache")):
        answers.append(await failing(doing))
    return answers


async def trial(name: str) -> list[Any]:
    one = environment(name)
    await one.start(force_build=False)
    answers = await ask(one)
    await one.stop(delete=True)
    return [*answers, (one.trial_paths.trial_dir / "services/db.log").read_text()]


async def main() -> None:
    answers = [await trial(name) for name in ("first", "second", "third")]
    assert answers[0] == answers[1] == answers[2], answers
    last = json.loads((FOLDER / "third/tvsnap-env.json").read_text())
    assert last["hit"] == last["calls"], last
    print(*answers[0], sep="\n")

    other = environment("other")  # what is done in a service is part of the state
    await other.start(force_build=False)
    assert (await other.exec("sleep 4242 & " + ASK.format("look"))).stdout == "0\n"
    assert (await other.exec(ASK.format("look"))).stdout == "0\n"
    print(await failing(other.service_exec("sleep 30", service="db", timeout_sec=1)))
    await other.stop(delete=True)

    overlay = FOLDER / "overlay.yaml"
    overlay.touch()
    try:
        environment("overlay", extra_docker_compose=[overlay])
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    asyncio.run(main())
