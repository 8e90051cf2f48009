"""The command line: `python -m tests.fuzz`, or `make fuzz`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from scripts.docker_engine import private_engine
from tests.fuzz.campaign import Settings, Worker
from tests.fuzz.cases import FREE, IDS, Case
from tests.fuzz.histories import POLICIES
from tests.fuzz.recorded import Recorded
from tests.fuzz.report import Report
from tests.fuzz.worlds import NAMES, World, data_directory, open_world
from tvsnap.model.errors import TvsnapError

WIDTH = 160


def main() -> int:
    """Runs what was asked for; returns the exit status: 0, or 1 if anything was found."""
    options = _options()
    for number in (signal.SIGINT, signal.SIGTERM):  # the former is ignored by what a shell starts in the background
        signal.signal(number, signal.default_int_handler)
    console = Console(stderr=True, highlight=False, width=WIDTH)
    if options.topics:
        return _list_topics()
    with contextlib.ExitStack() as stack:
        try:
            worlds = _worlds(options, console, stack)
            recorded = Recorded(options.rollouts)
        except TvsnapError as error:
            console.print(f"[red]error:[/] {error}")
            return error.exit_status
        free = frozenset({*FREE, *filter(None, options.free.split(","))})
        options.findings.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            options.seconds,
            options.seed,
            worlds,
            options.findings,
            free,
            recorded,
            options.shrink,
            options.times,
            tuple(options.only or ()),
            (options.policy,) if options.policy else POLICIES,
            options.cases,
        )
        if options.case:
            return _show_case(settings, options.case, console)
        return _run(settings, options, console)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Looks for histories that see through the cache what they do not see without.",
    )
    add = parser.add_argument
    add(
        "--seconds",
        type=float,
        default=float(os.environ.get("FUZZ_SECONDS", "600")),
        help="how long; by default FUZZ_SECONDS, or 600",
    )
    add(
        "--seed",
        type=int,
        default=int(os.environ.get("FUZZ_SEED", "0")) or int(time.time()),
        help="by default, the time",
    )
    add(
        "--backend",
        action="append",
        help="local, no-criu, docker or memory; again for more; by default all that work here",
    )
    add(
        "--environment",
        action="append",
        help="terminal, sqlite, postgres, mariadb or video; again for more; by default all",
    )
    add("--policy", choices=sorted(set(POLICIES)), help="only this one")
    add(
        "--rollouts",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="recorded rollouts to take histories from",
    )
    add("--image", action="append", default=[], metavar="ENVIRONMENT=NAME", help="the image of an environment")
    add("--free", default="", help=f"may differ from a fresh execution as well: {', '.join(IDS)}; with commas")
    add("--times", action="store_true", help="ask for times of files as well")
    add("--only", action="append", metavar="TOPIC", help="only histories with a topic that begins so; again for more")
    add("--topics", action="store_true", help="list the topics, and end")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once; by default one a processor")
    add("--cases", type=int, help="cases of each process, at most")
    add("--shrink", type=float, default=30.0, help="seconds to make a finding small")
    add(
        "--findings",
        type=Path,
        default=Path("build/fuzz"),
        help="where programs that show findings go; by default build/fuzz",
    )
    add("--report", type=Path, metavar="FILE", help="write a report as JSON")
    add("--case", help="show one case: the .json of a finding, or SEED:NUMBER (with one --backend and --environment)")
    return parser.parse_args()


def _worlds(options: argparse.Namespace, console: Console, stack: contextlib.ExitStack) -> dict[str, World]:
    """Returns the worlds that were asked for and that work here."""
    images = dict(part.partition("=")[::2] for part in options.image)
    found: dict[str, World] = {}
    for name in NAMES:
        backend, _, environment = name.partition("/")
        if backend not in (options.backend or [backend]) or environment not in (options.environment or [environment]):
            continue
        try:
            if backend == "docker" and not any(other.startswith("docker") for other in found):
                stack.enter_context(private_engine())
            world = open_world(name, images.get(environment, ""))
            with data_directory() as home:
                world.open(home, {"prefork": 0}).close()
        except TvsnapError as lack:
            console.print(f"without {name}: {lack}")
            continue
        found[name] = world
    if not found:
        raise TvsnapError("there is nowhere to run anything; tvsnap doctor tells what is missing")
    return found


def _run(settings: Settings, options: argparse.Namespace, console: Console) -> int:
    began = time.monotonic()
    console.print(f"seed {settings.seed}; {', '.join(settings.worlds)}; findings go to {settings.findings}")
    with tempfile.TemporaryDirectory(prefix="tvsnap-fuzz-log-") as folder:
        logs = [Path(folder) / f"{number}.jsonl" for number in range(options.jobs)]
        workers = {_start(settings, number, options.jobs, log) for number, log in enumerate(logs)}
        try:
            while workers:
                time.sleep(1.0)
                workers -= {pid for pid in workers if os.waitpid(pid, os.WNOHANG)[0]}
                line = f"{time.monotonic() - began:.0f} s: {Report.read(logs).line()}"
                if console.is_terminal:
                    console.print(line, end="\r")
                elif int(time.monotonic() - began) % 60 == 0:
                    console.print(line)
        except KeyboardInterrupt:
            for pid in workers:
                os.kill(pid, signal.SIGINT)
            for pid in workers:
                os.waitpid(pid, 0)
        report = Report.read(logs)
    seconds, processor_s = time.monotonic() - began, _processor_time()
    report.show(Console(width=WIDTH, highlight=False), settings.free, seconds)
    console.print(f"{processor_s:.0f} s of processor time, without that of container engines")
    for finding in report.findings:
        sure = "" if finding["confirmed"] else ", not seen again"
        console.print(f"{finding['script']} ({finding['calls']} calls{sure})", markup=False, soft_wrap=True)
    if options.report:
        options.report.write_text(
            json.dumps(
                {"seed": settings.seed, "processor_s": processor_s, **report.as_json(settings.free, seconds)}, indent=1
            )
            + "\n"
        )
    return 1 if report.violations or not report.counts["calls"] else 0


def _processor_time() -> float:
    """Returns the seconds of processor time of all processes that have ended and were waited for, and of this one."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _start(settings: Settings, number: int, jobs: int, log: Path) -> int:
    """Starts a worker; returns its process id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            Worker(settings, number, jobs, log).run()
            status = 0
        except KeyboardInterrupt:
            status = 130
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def _show_case(settings: Settings, name: str, console: Console) -> int:
    """Executes one case, and prints what came of it."""
    if name.endswith(".json"):
        case = Case.from_json(json.dumps(json.loads(Path(name).read_text())["case"]))
    else:
        if len(settings.worlds) != 1:
            raise TvsnapError("name one backend and one environment")
        seed, _, which = name.rpartition(":")
        of_seed = replace(settings, seed=int(seed)) if seed else settings
        case = of_seed.case(int(which), next(iter(settings.worlds)))
    for number, step in sorted(case.steps.items()):
        if number in case.used():
            console.print(f"{number:3} [{step.topic}] {str(step)[:300]}", markup=False)
    for index, action in enumerate(case.actions):
        console.print(
            f"{index}: {action.kind} {list(map(list, action.plays))} look {list(action.look)} {dict(action.options)}",
            markup=False,
        )
    with tempfile.TemporaryDirectory() as folder, data_directory() as home:
        worker = Worker(settings, 0, 1, Path(folder) / "log")
        worker._home = home
        outcome = worker.execute(case)
    for violation in outcome.violations:
        console.print(
            f"{violation.kind}: {violation.topic}, action {violation.action}: {violation.step[:200]}", markup=False
        )
        console.print(f"  expected {violation.expected}\n  seen     {violation.seen}\n  {violation.how}", markup=False)
    console.print(f"{dict(outcome.counts)} {outcome.broken} {dict(outcome.unreachable)}", markup=False)
    return 1 if outcome.violations else 0


def _list_topics() -> int:
    from tests.fuzz import chance, developing, unseen

    for topic in [*(f"A {place}" for place in chance.PLACES), *sorted(unseen.CASES)]:
        print(topic)
    for function in (*chance.SPECIAL, *chance.TIMES, *developing.SPECIAL):
        print(f"{function.__module__.rpartition('.')[2]}.{function.__name__}: {function.__doc__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
