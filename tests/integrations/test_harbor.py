"""Harbor itself on tvsnap's environment: its jobs, its verifiers, its oracle, and Terminus-2 with a scripted model."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integrations.conftest import PLAIN_USER
from tests.integrations.harbor_tasks import (
    scripts,
    write_compose_task,
    write_services_task,
    write_tasks,
    write_troubled_tasks,
)
from tests.integrations.scripted_model import model_server
from tests.server.conftest import Server
from tvsnap.graph import Graph
from tvsnap.images import Image, ImageStore

ENVIRONMENT = "tvsnap.integrations.harbor:TvsnapEnvironment"
MODEL = {"max_input_tokens": 100000, "max_output_tokens": 10000, "input_cost_per_token": 0, "output_cost_per_token": 0}
KEY = "scripted-model-key"
REWARDS = {
    ("greet", "oracle"): 1.0,
    ("greet", "nop"): 0.0,
    ("greet", "terminus-2"): 1.0,
    ("wait", "oracle"): 1.0,
    ("wait", "nop"): 0.0,
    ("wait", "terminus-2"): 1.0,
    ("apart", "oracle"): 1.0,
    ("apart", "nop"): 0.0,
    ("steps", "oracle"): 1.0,
    ("steps", "nop"): 0.0,
}
TASKS = ("apart", "greet", "steps", "wait")
SCRIPTED = ("greet", "wait")
ONE_BY_ONE = ("first", "first-scripted")
"""Jobs that later ones are to be answered from: who executes a call beside others, as a busy machine makes it, shares
nothing."""
RUN_JOBS = Path(__file__).parent / "run_jobs.py"
METHODS = Path(__file__).parent / "harbor_methods.py"
READS_REWARDS = Path(__file__).parent / "harbor_rewards.py"
SERVICES = Path(__file__).parent / "harbor_services.py"


@dataclass(frozen=True)
class Trial:
    """What came of one trial.

    Attributes:
        reward: None where there is none.
        error: the message of the exception that ended it; empty if none did.
        reports: what tvsnap says of its environments, by their role.
        folder: of the trial.
    """

    reward: float | None
    error: str
    reports: Mapping[str, Mapping[str, Any]]
    folder: Path

    @property
    def calls(self) -> int:
        return sum(report["calls"] for report in self.reports.values())

    @property
    def hits(self) -> int:
        return sum(report["hit"] for report in self.reports.values())


Job = Mapping[tuple[str, str], Trial]


class Harbor:
    """Runs jobs of Harbor."""

    def __init__(self, programs: Path, home: Path, jobs: Path) -> None:
        self._programs, self.home, self.jobs = programs, home, jobs
        self.variables: dict[str, str] = {}

    def config(self, name: str, agents: list[dict[str, Any]], tasks: list[Path], **options: Any) -> Path:
        """Writes a job's configuration; returns its path."""
        where = {} if "url" in options else {"home": str(self.home), "policy": "default"}
        config = {
            "job_name": name,
            "jobs_dir": str(self.jobs),
            "n_concurrent_trials": 1 if name in ONE_BY_ONE else 4,
            "quiet": True,
            "environment": {"import_path": ENVIRONMENT, "kwargs": {**where, **options}},
            "agents": agents,
            "tasks": [{"path": str(task)} for task in tasks],
        }
        path = self.jobs / f"{name}.json"
        path.write_text(json.dumps(config))
        return path

    def run(self, program: str, *arguments: str | Path, said: str = "", by: Sequence[str] = ()) -> str:
        """Runs one of the programs, by another one, which must succeed; returns what it prints."""
        ran = self.ended(program, *arguments, said=said, by=by)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def ended(
        self, program: str, *arguments: str | Path, said: str = "", by: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of the programs, by another one, to its end."""
        env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": KEY, **self.variables}
        command = [*by, self._programs / program, *arguments]
        return subprocess.run(command, env=env, cwd=self.jobs, input=said, capture_output=True, text=True, timeout=600)

    def trials(self, *names: str) -> Job:
        """Returns the trials of jobs, by task and agent."""
        return {
            key: trial for name in names for folder in (self.jobs / name).iterdir() for key, trial in _trials(folder)
        }


def _trials(folder: Path) -> Iterator[tuple[tuple[str, str], Trial]]:
    if not (folder / "result.json").is_file() or not folder.is_dir():
        return
    result = json.loads((folder / "result.json").read_text())
    rewards = (result.get("verifier_result") or {}).get("rewards") or {}
    error = (result.get("exception_info") or {}).get("exception_message", "")
    reports = {path.stem: json.loads(path.read_text()) for path in folder.glob("tvsnap-*.json")}
    agent = result["config"]["agent"].get("name", "oracle")
    yield (result["task_name"], agent), Trial(rewards.get("reward"), error, reports, folder)


@pytest.fixture(scope="module")
def harbor(
    harbor_programs: Path, terminal_image: Image, tvsnap_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Harbor:
    return Harbor(harbor_programs, tvsnap_home, tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tasks; its name makes their rollouts this session's own."""
    folder = tmp_path_factory.mktemp("tasks")
    write_tasks(folder)
    return folder


@dataclass(frozen=True)
class Jobs:
    """The same trials, without the cache, with it, and once more.

    Attributes:
        without, first, second: the jobs.
    """

    without: Job
    first: Job
    second: Job


@pytest.fixture(scope="module")
def jobs(harbor: Harbor, tasks: Path) -> Jobs:
    plain = [{"name": "oracle"}, {"name": "nop"}]
    runs = []
    with model_server(scripts()) as url:
        kwargs = {"api_base": url, "model_info": MODEL, "record_terminal_session": False}
        scripted = [{"name": "terminus-2", "model_name": "openai/scripted", "kwargs": kwargs}]
        for name in ("without", "first", "second"):
            options = {"salt": str(tasks), "policy": "eager", "use_cache": name != "without"}
            configs = (
                harbor.config(name, plain, [tasks / task for task in TASKS], **options),
                harbor.config(f"{name}-scripted", scripted, [tasks / task for task in SCRIPTED], **options),
            )
            runs += [*map(str, configs)] if name == "first" else [",".join(map(str, configs))]
        harbor.run("python", RUN_JOBS, *runs)
    return Jobs(*[harbor.trials(name, f"{name}-scripted") for name in ("without", "first", "second")])


@pytest.fixture(scope="module")
def troubled(harbor: Harbor, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Trials of which people must be told something, started as people start them."""
    folder = tmp_path_factory.mktemp("troubled")
    write_troubled_tasks(folder)
    settings = (f"home={harbor.home}", f"salt={folder}", "policy=default")  # their calls are short
    options: list[str | Path] = ["--env", ENVIRONMENT, *(word for one in settings for word in ("--ek", one))]
    with model_server({}) as url:
        harbor.variables["TVSNAP_NETWORK_HOSTS"] = f"files.example={urlsplit(url).netloc}"
        arguments: list[str | Path] = [
            "--yes",
            "--quiet",
            "--job-name",
            "troubled",
            "--jobs-dir",
            harbor.jobs,
            "--path",
            folder,
        ]
        harbor.run("harbor", "run", "--agent", "oracle", *arguments, *options)
    del harbor.variables["TVSNAP_NETWORK_HOSTS"]
    return harbor.trials("troubled")


def _rewards(job: Job) -> dict[tuple[str, str], float | None]:
    return {key: trial.reward for key, trial in job.items()}


def test_rewards_are_the_same_without_the_cache_with_it_and_once_more(jobs: Jobs) -> None:
    for job in (jobs.without, jobs.first, jobs.second):
        assert {key: trial.error for key, trial in job.items() if trial.error} == {}
        assert _rewards(job) == REWARDS


def test_without_the_cache_everything_is_executed(jobs: Jobs) -> None:
    assert all(trial.hits == 0 and trial.calls > 5 for trial in jobs.without.values())


def test_the_second_time_agents_and_verifiers_are_answered(jobs: Jobs) -> None:
    for key, trial in jobs.second.items():
        if key[1] != "terminus-2":
            assert trial.hits == trial.calls, key


def test_an_agent_that_waits_outside_is_answered_too(jobs: Jobs) -> None:
    # What lives in its sandbox counts the time that it waits, which on a busy machine is another each time.
    for name in SCRIPTED:
        assert jobs.second[name, "terminus-2"].hits >= 3, "at least the calls until its terminal is there"


def test_a_verifier_apart_has_a_rollout_of_its_own(jobs: Jobs) -> None:
    reports = jobs.first["apart", "oracle"].reports
    assert set(reports) == {"tvsnap-env", "tvsnap-verifier__trial"}
    assert reports["tvsnap-env"]["rollout"] != reports["tvsnap-verifier__trial"]["rollout"]
    for report in reports.values():
        assert sum(report["missed"].values()) == report["executed"]


def test_the_verifiers_reward_is_recorded_with_the_rollout(jobs: Jobs) -> None:
    trial = jobs.first["greet", "oracle"]
    report = trial.reports["tvsnap-env"]
    with Graph(Path(report["home"]) / "tvsnap.db") as graph:
        (found,) = graph.summaries(id=report["rollout"])
    assert found.rollout.reward == trial.reward == 1.0
    assert (found.ended, found.calls) == ("closed", report["calls"])


def test_logs_come_back(jobs: Jobs) -> None:
    folder = jobs.second["greet", "terminus-2"].folder
    assert "/app/out" in (folder / "agent/terminus_2.pane").read_text()
    steps = jobs.second["steps", "oracle"].folder / "steps"
    assert {path.parent.parent.name for path in steps.glob("*/verifier/reward.txt")} == {"one", "two"}


def test_rewards_are_given_as_often_as_is_asked_for_before_they_answer_others(harbor: Harbor, tasks: Path) -> None:
    names = ("graded-1", "graded-2", "graded-3")
    options = {"salt": f"graded {tasks}", "grade_executions": 2}
    configs = [harbor.config(name, [{"name": "oracle"}], [tasks / "greet"], **options) for name in names]
    harbor.run("python", RUN_JOBS, *configs)
    first, second, third = (harbor.trials(name)["greet", "oracle"] for name in names)
    assert [trial.reward for trial in (first, second, third)] == [1.0] * 3
    assert first.hits == 0
    assert 0 < second.hits < second.calls
    assert third.hits == third.calls
    report = third.reports["tvsnap-env"]
    with Graph(harbor.home / "tvsnap.db") as graph:
        graded = [step.edge.result for step in graph.steps(report["rollout"]) if step.edge and step.edge.grade]
    assert report["strained_grades"] == [result.strain for result in graded if result.strain]


def test_a_job_with_a_server_and_without_root(harbor: Harbor, tasks: Path, server: Server) -> None:
    names = ("served-1", "served-2", "served-3")  # made twice alike, calls answer without snapshots
    options = {"salt": f"served {tasks}", "url": server.url}
    agents = [{"name": "oracle"}]
    configs = [harbor.config(name, agents, [tasks / "greet", tasks / "apart"], **options) for name in names]
    harbor.run("python", RUN_JOBS, *configs, by=PLAIN_USER)
    jobs = [harbor.trials(name) for name in names]
    for job in jobs:
        assert {key: trial.error for key, trial in job.items() if trial.error} == {}
        assert _rewards(job) == {("greet", "oracle"): 1.0, ("apart", "oracle"): 1.0}
    for trial in jobs[-1].values():
        assert trial.hits == trial.calls > 0
        assert {report["home"] for report in trial.reports.values()} == {server.url}


BUILDERS = ("/usr/bin/buildah", "/usr/bin/docker", "/usr/local/bin/docker", "/usr/bin/podman")


def test_a_missing_builder_is_told_once(harbor: Harbor, tmp_path: Path) -> None:
    """Also where Harbor asks for the logs of an environment that did not start."""
    write_tasks(tmp_path / "tasks")
    for task in TASKS:
        (tmp_path / "tasks" / task / "image.yaml").unlink()
    covered = [f"mount --bind /dev/null {program}" for program in BUILDERS if Path(program).exists()]
    without = ["unshare", "--mount", "sh", "-c", "\n".join([*covered, 'exec "$@"']), "sh"]
    ran = harbor.ended(
        *("harbor", "run", "--agent", "oracle", "--yes", "--job-name", "no-builder", "--jobs-dir", harbor.jobs),
        *("--path", tmp_path / "tasks", "--env", ENVIRONMENT, "--ek", f"home={harbor.home}"),
        by=[*without, "env", "DOCKER_HOST=unix:///nowhere"],
    )
    said = ran.stdout + ran.stderr
    assert said.count("Dockerfiles and Docker images need a Docker Engine or buildah") == 1, said
    assert "apt-get install buildah" in said
    assert "Traceback" not in said, said
    trials = harbor.trials("no-builder")
    assert {task for task, _ in trials} == set(TASKS)
    assert all("apt-get install buildah" in trial.error for trial in trials.values())


def test_harbor_knows_the_options(harbor: Harbor, tasks: Path) -> None:
    schema = json.loads(harbor.run("harbor", "environment", "schema", ENVIRONMENT, "--json"))
    ours = {"home", "url", "image", "use_cache", "salt", "backend", "policy", "timeouts", "deadline", "agent_logs"}
    assert ours | {"token", "grade_executions"} <= schema["properties"].keys()
    assert all(schema["properties"][name]["description"] for name in ours)
    words: list[str | Path] = ["run", "--yes", "--agent", "oracle", "--path", tasks / "greet", "--env", ENVIRONMENT]
    refused = {"polcy=eager": "Unknown option 'polcy'", "agent_logs=never": "agent_logs: Input should be"}
    for option, said in refused.items():
        ran = harbor.ended("harbor", *words, "--ek", option, "--ek", f"home={harbor.home}")
        assert ran.returncode != 0
        assert said in ran.stdout + ran.stderr


def test_a_program_that_closes_nothing_leaves_nothing(harbor: Harbor) -> None:
    """Also with Python 3.12.1, which starts no thread at its end."""
    program = f"""
import os
from tvsnap.plugins.harnesses.caches import CacheOptions, process_cache
cache = process_cache(CacheOptions.chosen({str(harbor.home)!r}, None, None))
rollout = cache.rollout("terminal", salt=os.urandom(4).hex())
rollout.call("bash", {{"command": "sleep 300 & echo $RANDOM > /tmp/x"}})
print(os.getpid())
"""
    ran = harbor.ended("python", "-c", program)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not list(harbor.home.glob(f"run/owners/{ran.stdout.strip()}-*"))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("no-image", r"registry.invalid/none:1(.|\n)*: harbor run --force-build,"),
        ("several", "image several.other: postgres"),
    ],
)
def test_an_image_that_cannot_be_had_is_no_reward(troubled: Job, task: str, message: str) -> None:
    trial = troubled[task, "oracle"]
    assert trial.reward is None
    assert re.search(message, trial.error)


def test_what_fails_for_want_of_a_network_is_told(troubled: Job) -> None:
    trial = troubled["offline", "oracle"]
    assert trial.reward == 0
    log = (trial.folder / "trial.log").read_text()
    assert "failed for want of a network, which is no-network here" in log


def test_an_agent_that_takes_too_long_is_graded_in_a_private_branch(troubled: Job) -> None:
    trial = troubled["slow", "oracle"]
    assert (trial.reward, trial.error) == (1.0, "Agent execution timed out after 10.0 seconds")
    assert "cancelled" in trial.reports["tvsnap-env"]["private"]


def test_only_the_hosts_on_the_list_are_reached(troubled: Job) -> None:
    trial = troubled["listed", "oracle"]
    assert (trial.reward, trial.error) == (1.0, "")
    assert not (trial.folder / "agent/exit-code.txt").exists(), "the other host was reached"


def test_a_reward_is_read_as_harbor_reads_it(harbor: Harbor, tmp_path: Path) -> None:
    assert harbor.run("python", READS_REWARDS, tmp_path) == "162 [0.25, 0.5, 1.0, 10.0]\n"


@pytest.mark.parametrize("where", ["here", "server"])
def test_each_method_of_an_environment(
    where: str, harbor: Harbor, tasks: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = harbor.home if where == "here" else request.getfixturevalue("server").url
    printed = harbor.run("python", METHODS, place, tasks / "wait", tmp_path, said="cat /app/it\n")
    answers = printed.splitlines()
    assert answers[:5] == [
        "stdout='/app\\n1\\nto-stderr\\n' stderr=None return_code=3",
        r"['stdout: /app\n1\nto-stderr\n']",
        "stdout='12345\\n/tmp\\n' stderr=None return_code=0",
        "stdout='games\\n' stderr=None return_code=0",
        "stdout='ran\\nlog\\nroot:755\\n' stderr=None return_code=0",
    ]
    assert answers[5:8] == ["True", "False", "True"]
    whole = ["whole", "whole/debug.log", "whole/deep", "whole/deep/run.sh", "whole/link"]
    chosen = ["chosen", "chosen/debug.log", "chosen/deep", "chosen/deep/run.sh"]
    without = ["without", "without/deep", "without/deep/run.sh", "without/link"]
    assert answers[8] == str([*chosen, "run.sh", *whole, *without])
    assert answers[9:11] == ["True", "stdout='' stderr=None return_code=0"], "nothing of a transfer stays in /tmp"
    assert answers[11:-1] == [
        "get: /not/there: No such file or directory",
        "/up/alone/file.txt is a file in the sandbox, not a directory",
        "Command timed out after 1 seconds",
        "Healthcheck failed after 2 consecutive retries: false",
        "the task has no service 'db'; have: main",
        "tvsnap environment cannot change network policy after start.",
        "False",
        r"stdout='first\n' stderr=None return_code=0",
        r"stdout='second\n' stderr=None return_code=4",
        r"stdout='all the way\n' stderr=None return_code=0",
    ]
    assert answers[-1] == "attached", "the shell in the place of Harbor"
    if where == "here":
        with Graph(Path(harbor.home) / "tvsnap.db") as graph:
            (found,) = (one for one in graph.summaries() if one.rollout.label == "cancelled__env")
        assert found.ended == "CancelledError"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a task with a service beside the main one."""
    folder = tmp_path_factory.mktemp("counted")
    write_services_task(folder)
    return folder / "counted"


@pytest.mark.parametrize("where", ["here", "server"])
def test_a_tasks_other_services(
    where: str, harbor: Harbor, counted: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Commands in them are calls of the rollout: the second trial is answered, and sees what the first one saw."""
    place = harbor.home if where == "here" else request.getfixturevalue("server").url
    answers = harbor.run("python", SERVICES, place, counted, tmp_path).splitlines()
    assert answers[:3] == [r"(0, '0\n')", r"(0, '1\n')", r"(0, '1\n')"]
    assert answers[3:6] == [r"(3, 'yes sh\n/app\n0\na\tb\n')", r"(0, 'x\n/var\ngames\n')", "(0, '')"]
    assert answers[6] == str(["a", "link/a", "whole/b.log", "whole/deep/a", "without/deep/a"])
    assert answers[7:9] == ["True", "False"]
    assert answers[9].startswith("OSError: get: ")
    assert answers[10:13] == [r"(0, '1\n')", r"(0, '0\n')", r"""(1, 'service "main" is not running\n')"""]
    assert answers[13:16] == [r"(0, '1\n')", r"""(1, 'service "db" is not running\n')""", "2"]
    missing = "ServiceOperationsUnsupportedError: the task has no service 'cache'; have: main, db"
    assert answers[16:] == [
        "",
        missing,
        missing,
        "begins",
        "ends",
        "",
        "RuntimeError: Command timed out after 1 seconds",
        f"extra_docker_compose: {tmp_path}/overlay.yaml: only the Compose file of the task's own folder is read "
        "(environment/docker-compose.yaml); bring what the other file says into it",
    ]


def test_a_verifier_sees_what_was_collected_in_a_service(harbor: Harbor, counted: Path) -> None:
    names = ("counted-1", "counted-2")
    agents = [{"name": "oracle"}, {"name": "nop"}]
    configs = [harbor.config(name, agents, [counted], salt=str(counted), policy="eager") for name in names]
    for config in configs:
        harbor.run("python", RUN_JOBS, config)
    first, second = map(harbor.trials, names)
    assert _rewards(first) == _rewards(second) == {("counted", "oracle"): 1.0, ("counted", "nop"): 0.0}
    for key, trial in second.items():
        assert trial.error == ""
        assert trial.hits == trial.calls, key
        assert (trial.folder / "services/db.log").read_text() == "begins\n"


@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is missing: apt-get install buildah")
def test_a_compose_file_with_an_entrypoint_and_another_service(
    harbor: Harbor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    base = f"docker.io/tvsnap-test/{secrets.token_hex(4)}:bookworm-slim"
    ImageStore(harbor.home).make_base(base, "bookworm", ["python3"], into="buildah")
    write_compose_task(tmp_path, base)
    names = ("composed-1", "composed-2")
    try:
        for name in names:
            options = {"salt": str(tmp_path), "policy": "eager"}
            harbor.run(
                "python", RUN_JOBS, harbor.config(name, [{"name": "oracle"}], [tmp_path / "composed"], **options)
            )
    finally:
        subprocess.run(["buildah", "rmi", base], check=True, capture_output=True)
    first, second = (harbor.trials(name)["composed", "oracle"] for name in names)
    assert (first.reward, first.error) == (second.reward, second.error) == (1.0, "")
    assert (first.hits, second.hits) == (0, second.calls)
    for trial in (first, second):
        assert (trial.folder / "artifacts/evidence/mine").read_text() == "of-db\n"
        assert (trial.folder / "services/main.log").read_text().splitlines()[0] == "started hi"
        assert "GET /mine" in (trial.folder / "services/db.log").read_text()
