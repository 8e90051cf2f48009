"""A small harness: agents' rollouts on tasks in Harbor's format, through tvsnap, graded in forks of their states.

    .venv/bin/python examples/harness.py --backend local --epochs 2
    .venv/bin/python examples/harness.py --url http://sandboxes:8420

What it shows of tvsnap: an image is built from a task's folder; rollouts run side by side and share what they have in
common; a grader gets a fork of a rollout's state, so that a rollout may be graded in its midst and goes on as if
nothing had been. The agents are recorded ones, from `examples/rollouts`; a model's calls would go to `Rollout.call`
just so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tvsnap import Cache, TvsnapError, connect
from tvsnap.images import Image
from tvsnap.model.calls import ToolCall
from tvsnap.protocols import AnyCache, AnySandbox
from tvsnap.upkeep.rollout_files import PlannedCall, PlannedRollout, read_rollouts

EXAMPLES = Path(__file__).resolve().parent
CALL_TIMEOUT = 60.0  # seconds, for calls that name none
VERIFIER_TIMEOUT = 600.0  # seconds, for tasks that name none; Harbor's own default
REWARD_FILE = "/logs/verifier/reward.txt"
ROW = "{:<5}  {:<15}  {:<19}  {:<7}  {:>5}  {:>8}  {:>7}"


@dataclass(frozen=True)
class Task:
    """A task in Harbor's format, and its image.

    Attributes:
        folder: holds task.toml, environment/, tests/ and solution/.
        image: built from environment/Dockerfile; its timeouts are those of task.toml.
    """

    folder: Path
    image: Image

    @property
    def name(self) -> str:
        return self.folder.name


@dataclass(frozen=True)
class Grade:
    """What the verifier said of one state of a rollout.

    Attributes:
        after: how many calls had been made.
        reward: as the verifier wrote it.
        expected: what the rollout's file says that it should be; None if it says nothing.
        output: what the verifier printed.
    """

    after: int
    reward: float
    expected: float | None
    output: str


@dataclass(frozen=True)
class RolloutReport:
    """What came of one rollout.

    Attributes:
        task, rollout: their names.
        epoch: from 1 on.
        calls: how many were made.
        hits: those of them that the graph answered.
        coalesced: those that another rollout was executing at that moment, and whose result it got.
        seconds: that its calls took, as the agent saw it.
        grades: in the order of the calls; the last one is that of the final state.
        error: why it ended early, if tvsnap itself failed it; else empty.
    """

    task: str
    rollout: str
    epoch: int
    calls: int = 0
    hits: int = 0
    coalesced: int = 0
    seconds: float = 0.0
    grades: tuple[Grade, ...] = ()
    error: str = ""

    @property
    def as_expected(self) -> bool:
        """Whether it ended with a grade, and no grade was another than its file says."""
        return not self.error and all(grade.expected in (None, grade.reward) for grade in self.grades)


def build_tasks(cache: AnyCache, folders: Sequence[Path]) -> list[Task]:
    """Builds the images of tasks, unless they are there; raises TvsnapError if one cannot be built."""
    tasks = []
    for folder in folders:
        print(f"image of {folder.name} ...", file=sys.stderr, flush=True)  # the first time, each takes a while
        tasks.append(Task(folder, cache.images.build(folder)))
    return tasks


def rollouts_of(folder: Path) -> list[PlannedRollout]:
    """Returns the recorded rollouts of a task, and two that every task has: its own solution, and doing nothing."""
    recorded, broken = read_rollouts([EXAMPLES / "rollouts" / f"{folder.name}.jsonl"])
    if broken:
        raise ValueError(str(broken[0]))
    script = (folder / "solution" / "solve.sh").read_text()
    solution = (
        PlannedCall(ToolCall("write_file", {"path": "/solution/solve.sh", "content": script})),
        PlannedCall(ToolCall("exec", {"command": "bash /solution/solve.sh"})),
    )
    nothing = PlannedRollout(folder.name, "nothing", folder.name, (), {"reward": 0})
    return [replace(nothing, rollout="solution", calls=solution, extra={"reward": 1}), nothing, *recorded]


def grade(cache: AnyCache, task: Task, state: str) -> tuple[float, str]:
    """Grades a state in a fork of it, which is gone afterwards.

    Args:
        cache: where the state is.
        task: whose verifier to run.
        state: the state's hash.

    Returns:
        The reward, and what the verifier printed.

    Raises:
        TvsnapError: the state could not be had again.
        ValueError: the verifier wrote no reward.
    """
    with cache.materialise(state) as fork:
        _put_tests(fork, task.folder / "tests")
        timeout = task.image.timeouts.verifier or VERIFIER_TIMEOUT
        outcome = fork.exec(f"rm -f {REWARD_FILE}; bash /tests/test.sh", timeout=timeout, user="root")
        output = outcome.output.decode(errors="replace")
        try:
            return float(fork.read_file(REWARD_FILE)), output
        except (OSError, ValueError) as error:
            raise ValueError(f"the verifier of {task.name} wrote no reward ({error}); it printed:\n{output}") from None


def _put_tests(sandbox: AnySandbox, folder: Path) -> None:
    """Copies a task's tests to /tests, in place of whatever the agent may have put there."""
    sandbox.exec("rm -rf /tests", timeout=CALL_TIMEOUT, user="root")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sandbox.write_file(f"/tests/{path.relative_to(folder)}", path.read_bytes())


def run_rollout(cache: AnyCache, task: Task, planned: PlannedRollout, epoch: int, salt: str | None) -> RolloutReport:
    """Runs one rollout, and grades its final state and those that its file marks with a `reward`."""
    report = RolloutReport(task.name, planned.rollout, epoch)
    try:
        with cache.rollout(task.image, task.name, salt=salt, label=planned.rollout) as rollout:
            for step in planned.calls:
                began = time.perf_counter()
                result = rollout.call(step.call.name, step.call.arguments, timeout=step.timeout or CALL_TIMEOUT)
                report = replace(
                    report,
                    calls=report.calls + 1,
                    hits=report.hits + (result.source == "hit"),
                    coalesced=report.coalesced + (result.source == "coalesced"),
                    seconds=report.seconds + time.perf_counter() - began,
                )
                if "reward" in step.extra:
                    report = _graded(report, step.extra["reward"], *grade(cache, task, rollout.state))
            return _graded(report, planned.extra.get("reward"), *grade(cache, task, rollout.state))
    except (TvsnapError, ValueError) as error:
        return replace(report, error=str(error))


def _graded(report: RolloutReport, expected: float | None, reward: float, output: str) -> RolloutReport:
    return replace(report, grades=(*report.grades, Grade(report.calls, reward, expected, output)))


def run_epochs(
    cache: AnyCache, tasks: Sequence[Task], epochs: int = 1, parallel: int = 4, salt: str | None = None
) -> Iterator[RolloutReport]:
    """Runs all rollouts of some tasks, epoch after epoch; yields what came of each, in their order."""
    work = [(task, planned) for task in tasks for planned in rollouts_of(task.folder)]
    pool = ThreadPoolExecutor(parallel)
    try:
        for epoch in range(1, epochs + 1):
            begun = [pool.submit(run_rollout, cache, task, planned, epoch, salt) for task, planned in work]
            for future in begun:
                yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # closing the cache ends what is under way


def line(report: RolloutReport) -> str:
    """Returns what came of a rollout as a line of the table, and below it what is not as it should be."""
    rewards = " ".join(f"{grade.reward:g}" for grade in report.grades) or "-"
    answered = report.hits + report.coalesced
    text = ROW.format(
        report.epoch, report.task, report.rollout, rewards, report.calls, answered, f"{report.seconds:.2f}"
    )
    if report.error:
        text += f"\n    {report.error}"
    for grade in report.grades:
        if grade.expected not in (None, grade.reward):
            text += f"\n    after call {grade.after} the reward should be {grade.expected:g}; the verifier printed:\n"
            text += grade.output
    return text


def summary(reports: Sequence[RolloutReport]) -> str:
    """Returns a line an epoch: how many of its calls were answered from the graph, and how long agents waited."""
    lines = []
    for epoch in sorted({report.epoch for report in reports}):
        those = [report for report in reports if report.epoch == epoch]
        calls = sum(report.calls for report in those)
        answered = sum(report.hits + report.coalesced for report in those)
        seconds = sum(report.seconds for report in those)
        lines.append(
            f"epoch {epoch}: {answered} of {calls} calls answered; agents waited {seconds:.2f} s for their calls"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 0 if all came as expected, 130 if it was interrupted, else 1."""
    options = _parse(arguments)
    folders = [EXAMPLES / "tasks" / name for name in options.task or sorted(task_names())]
    try:
        with _open(options) as cache:
            tasks = build_tasks(cache, folders)
            reports = []
            if not options.json:
                print(ROW.format("epoch", "task", "rollout", "rewards", "calls", "answered", "seconds"))
            for report in run_epochs(cache, tasks, options.epochs, options.parallel, options.salt):
                reports.append(report)
                if not options.json:
                    print(line(report), flush=True)
    except TvsnapError as error:
        print(f"harness: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if options.json:
        print(json.dumps([_data(report) for report in reports], indent=2))
    else:
        print(summary(reports))
    return 0 if all(report.as_expected for report in reports) else 1


def _open(options: argparse.Namespace) -> AnyCache:
    url = options.url or os.environ.get("TVSNAP_URL")
    if url and options.home is None:
        return connect(url, os.environ.get("TVSNAP_TOKEN"))
    # These tasks' commands are short. By default, those whose states are not worth a snapshot are executed again.
    return Cache(options.home, backend=options.backend, policy="eager")


def _data(report: RolloutReport) -> dict[str, Any]:
    return {**asdict(report), "reward": report.grades[-1].reward if report.grades else None}


def task_names() -> list[str]:
    """Returns the names of the example tasks."""
    return [path.parent.name for path in (EXAMPLES / "tasks").glob("*/task.toml")]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs recorded rollouts of the example tasks and grades them.")
    parser.add_argument("--task", action="append", choices=task_names(), help="only this one (may be repeated)")
    parser.add_argument("--backend", default="local", help="what runs the sandboxes: local or docker")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--home", help="the data directory")
    where.add_argument("--url", help="the address of a server, in place of a data directory (env: TVSNAP_URL)")
    parser.add_argument("--epochs", type=int, default=1, help="how many times all rollouts are run")
    parser.add_argument("--parallel", type=int, default=4, help="how many rollouts run at once")
    parser.add_argument("--salt", help="shares nothing with what was run under another salt")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
