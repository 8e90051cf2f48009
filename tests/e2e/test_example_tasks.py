"""The example tasks from end to end, on each backend: built from their folders, run, and graded in forks of states."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import docker.errors
import pytest

from examples import harness
from tests.conformance.helpers import eventually
from tests.server.conftest import Server, start
from tvsnap import Cache
from tvsnap.host.owners import Owner
from tvsnap.images import Image
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.limits import Limits
from tvsnap.plugins.docker.engine import Engine
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.protocol import Sandbox

BASE = "tvsnap-examples:bookworm"
TASKS = ("broken-makefile", "failing-test", "git-conflict", "log-analysis", "port-service")
TWO = ("git-conflict", "port-service")
"""One that works with files, and one with a process."""
NO_PROCESSES = "local, no processes"  # its snapshots hold none: such states are not kept
LOST = ("can no longer be reached", "can be reached by nobody but the rollout")
BACKENDS = ("local", NO_PROCESSES, "docker")
NEEDLESS = (
    "shopt -s nullglob; rm -rf /usr/share/{vim,perl,perl5,doc,zoneinfo,python-wheels,terminfo,ca-certificates,lintian} "
    "/usr/share/bash-completion /usr/include/{c++,rdma,rpcsvc,sound,tirpc} /usr/include/linux/*/ /var/lib/dpkg/info "
    "/usr/lib/python3 /usr/lib/python3.*/{lib2to3,distutils,test,idlelib,ensurepip,pydoc_data} /etc/ssl/certs "
    "/usr/lib/gcc/*/*/{cc1plus,lto1,libstdc++*,lib*san*} /usr/bin/*lto-dump* "
    "/usr/lib/*-linux-gnu/{perl,perl-base,gconv,ldscripts,security,lib*san*}"
)
"""A command that removes what no task uses, half of it all: engines take long to read and write images."""

POLLING = {"port-service"}
OpenCache = Callable[[], AbstractContextManager[Cache]]


@pytest.fixture(scope="module")
def base(docker_engine: str, tvsnap_home: Path, terminal_image: Image) -> Iterator[None]:
    """The image that the Dockerfiles start from, in the engine: the files of the terminal image."""
    engine = Engine()
    try:
        engine.do("looking for an image", engine.api.inspect_image, BASE)
        yield
    except docker.errors.NotFound:
        owner = Owner(tvsnap_home)
        backend = LocalBackend(tvsnap_home, owner.id)
        try:
            sandbox = backend.start(terminal_image, Limits())
            assert sandbox.run(NEEDLESS, timeout=60).exit_code == 0
            with sandbox.archive() as tar:
                repository, _, tag = BASE.partition(":")
                engine.api.import_image_from_stream(tar, repository, tag)
        finally:
            backend.close()
            owner.close()
        yield
        engine.api.remove_image(BASE, force=True)
    finally:
        engine.close()


@pytest.fixture(scope="module")
def tasks(base: None, tvsnap_home: Path) -> list[harness.Task]:
    """The tasks, their images built from their folders."""
    with Cache(tvsnap_home) as cache:
        return harness.build_tasks(cache, [harness.EXAMPLES / "tasks" / name for name in TASKS])


@pytest.fixture(params=BACKENDS)
def open_cache(request: pytest.FixtureRequest, tvsnap_home: Path, monkeypatch: pytest.MonkeyPatch) -> OpenCache:
    """Opens a cache on the backend under test."""
    if request.param == NO_PROCESSES:
        monkeypatch.setenv("TVSNAP_CRIU", "/nowhere")
        monkeypatch.setenv("TVSNAP_WITHOUT_CRIU", "1")
    if request.param == "docker":
        request.getfixturevalue("docker_engine")

    @contextmanager
    def opened() -> Iterator[Cache]:
        with Cache(tvsnap_home, backend=request.param.partition(",")[0], policy="eager") as cache:
            assert cache.backend.captures.processes is (request.param != NO_PROCESSES)
            yield cache

    return opened


@pytest.fixture
def salt(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}-{time.time_ns()}"


def test_every_task_has_right_and_wrong_rollouts() -> None:
    assert sorted(harness.task_names()) == sorted(TASKS)
    for name in TASKS:
        rewards = [planned.extra["reward"] for planned in harness.rollouts_of(harness.EXAMPLES / "tasks" / name)]
        assert rewards.count(1) >= 3, f"{name}: its solution, and two other ways"
        assert rewards.count(0) >= 4, f"{name}: nothing done, and three wrong ways"


def all_hits(report: harness.RolloutReport) -> bool:
    return report.hits == report.calls


def test_rewards_in_forks_and_a_second_epoch_of_hits(
    open_cache: OpenCache, tasks: list[harness.Task], salt: str
) -> None:
    with open_cache() as cache:
        if not cache.backend.captures.processes or cache.backend.name == "docker":  # what is lost, or takes long
            tasks = [task for task in tasks if task.name in TWO]
        reports = list(harness.run_epochs(cache, tasks, epochs=2, parallel=4, salt=salt))
        processes = cache.backend.captures.processes
        # Whose calls of the first epoch were executed beside those of others shared nothing, but in the second.
        missed = {(report.task, report.rollout) for report in reports if report.epoch == 2 and not all_hits(report)}
        third = [
            harness.run_rollout(cache, task, planned, 3, salt)
            for task in tasks
            for planned in harness.rollouts_of(task.folder)
            if processes and (task.name, planned.rollout) in missed
        ]
    # What holds processes is not kept where snapshots hold none: then a grader is told so, and of nothing else.
    lost = [report for report in reports if not processes and any(map(report.error.__contains__, LOST))]
    kept = [report for report in reports if report not in lost]
    assert [harness.line(report) for report in kept if not report.as_expected] == []
    assert len(kept) > len(reports) / 3
    first, second = ([report for report in kept if report.epoch == epoch] for epoch in (1, 2))
    rewards = {(report.task, report.rollout): report.grades[-1].reward for report in first}
    again = {(report.task, report.rollout): report.grades[-1].reward for report in second}
    assert [name for name in rewards.keys() & again.keys() if rewards[name] != again[name]] == []
    if not processes:
        return
    # Where a server polls, what a rollout has waited counts: on a machine under load not every answer serves.
    assert [harness.line(report) for report in third if not all_hits(report) and report.task not in POLLING] == []
    assert sum(report.hits for report in second) > 0.6 * sum(report.calls for report in second)
    calls = sum(report.calls for report in first)
    assert sum(report.hits + report.coalesced for report in first) > calls / 4, "rollouts share what they begin with"
    graded_twice = [report for report in first if len(report.grades) > 1]
    assert {report.task for report in graded_twice} == {task.name for task in tasks}


def test_a_service_answers_in_a_fork_and_its_rollout_goes_on(
    open_cache: OpenCache, tasks: list[harness.Task], salt: str
) -> None:
    task = next(task for task in tasks if task.name == "port-service")
    planned = next(planned for planned in harness.rollouts_of(task.folder) if planned.rollout == "mends-all")
    ask = planned.calls[-1].call
    with open_cache() as cache, cache.rollout(task.image, task.name, salt=salt) as rollout:
        for step in planned.calls:
            last = rollout.call(step.call.name, step.call.arguments)
        assert '{"total": 6386}' in last.output
        if not cache.backend.captures.processes:
            with pytest.raises(InfrastructureError), cache.materialise(rollout.state):
                pass
            return
        with cache.materialise(rollout.state) as fork:
            (server,) = servers(fork)
            assert asked(fork, ask.arguments["command"]) == last.output
            fork.exec(f"kill {server}", timeout=60)
            eventually(lambda: servers(fork) == [])
            assert "refused" in asked(fork, ask.arguments["command"])
        again = rollout.call("exec", {"command": f"{ask.arguments['command']}\n# once more"})
        assert (again.source, again.output) == ("executed", last.output)
        assert harness.grade(cache, task, rollout.state)[0] == 1


@pytest.fixture
def server(tvsnap_home: Path) -> Iterator[Server]:
    """A server on the session's data directory."""
    started = start(tvsnap_home, "--policy", "eager", socket="harness.sock")
    yield started
    assert started.stop() == 0


def servers(sandbox: Sandbox) -> list[int]:
    """Returns the processes of the service."""
    return [process.pid for process in sandbox.processes() if process.command == "python3 inventory.py"]


def asked(sandbox: Sandbox, command: str) -> str:
    return sandbox.exec(command, timeout=60).output.decode()


@pytest.mark.parametrize("served", [False, True])
def test_the_harness_as_people_start_it(
    tasks: list[harness.Task], tvsnap_home: Path, salt: str, served: bool, request: pytest.FixtureRequest
) -> None:
    where = ["--url", request.getfixturevalue("server").url] if served else ["--home", str(tvsnap_home)]
    command = [sys.executable, str(harness.EXAMPLES / "harness.py"), *where, "--salt", salt]
    command += ["--task", "log-analysis", "--epochs", "2"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 80
    data = json.loads(subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE, timeout=120).stdout)
    assert {entry["rollout"]: entry["reward"] for entry in data}["with-python"] == 1
    assert all(entry["hits"] == entry["calls"] for entry in data), "all is known from the run before"
