"""The fuzzer itself: faults that are planted must be found, and made small, within seconds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend, FakeSandbox
from tests.fuzz.cases import FREE, Action, Case, Seen, Step, bash, execute, read
from tests.fuzz.compare import Ledger, agrees, normalise
from tests.fuzz.execute import Executor, Outcome
from tests.fuzz.helpers import Helper, Report
from tests.fuzz.histories import Taste, make_case
from tests.fuzz.isolate import Crashed, Hung, isolated
from tests.fuzz.script import script
from tests.fuzz.shrink import shrink
from tests.fuzz.worlds import World, memory_world
from tvsnap.images import Image
from tvsnap.model.calls import DEFAULT_TIMEOUT
from tvsnap.model.limits import Limits
from tvsnap.model.observations import NO_SERVICE, Observation, Service
from tvsnap.model.observations import Outcome as Ran
from tvsnap.sandboxes.protocol import Backend

REPOSITORY = Path(__file__).parents[2]
TASTE = Taste(programs=False, processes=False)
CASES = 40
MOST_CASES = 400  # until a planted fault is found


class Forgetful(FakeBackend):
    """Loses a file in each fork."""

    def fork(self, snapshot: str, image: Image, limits: Limits) -> FakeSandbox:
        fork = super().fork(snapshot, image, limits)
        for name in ("/app/a", "/app/ma/token"):
            fork.machine.files.pop(name, None)
        return fork


class Unwatched(FakeSandbox):
    """Overlooks what its shell holds."""

    def observe(self, service: Service = NO_SERVICE) -> Observation:
        seen = super().observe(service)
        return Observation(seen.files, seen.processes, "the same")


class Inattentive(FakeBackend):
    sandbox_type = Unwatched


class Torn(FakeSandbox):
    """Says that a command failed which did not, once it is a fork."""

    def run(self, command: str, *, timeout: float = DEFAULT_TIMEOUT) -> Ran:
        ran = super().run(command, timeout=timeout)
        return Ran(ran.output, 1 if command == "pwd; ls" else ran.exit_code, ran.duration)


class Mistaken(FakeBackend):
    def fork(self, snapshot: str, image: Image, limits: Limits) -> FakeSandbox:
        sandbox = super().fork(snapshot, image, limits)
        sandbox.__class__ = Torn
        return sandbox


def execute_case(world: World, home: Path, case: Case, salt: str) -> Outcome:
    return Executor(world, home, salt, case, frozenset(FREE)).run()


@pytest.mark.parametrize("make", [Forgetful, Inattentive, Mistaken])
def test_a_planted_fault_is_found_and_made_small(make: Callable[[], Backend], tmp_path: Path) -> None:
    world, salts = memory_world(make), iter(range(10**6))
    taste = Taste(programs=False, processes=False, policies=("eager",))
    for number in range(MOST_CASES):
        case = make_case(f"1:{number}", world.name, taste).steady()
        outcome = execute_case(world, tmp_path, case, str(next(salts)))
        assert not outcome.broken
        found = [violation for violation in outcome.violations if violation.kind == "other answer"]
        if found:
            break
    else:
        pytest.fail("it was not found")

    def shows(candidate: Case) -> bool:
        # Twice: a smaller case that shows it once, as the machine is busy, is none.
        seen = [execute_case(world, tmp_path, candidate, str(next(salts))).violations for _ in range(2)]
        return all(any(violation.kind == "other answer" for violation in each) for each in seen)

    small = shrink(case, shows, 600.0, found[0].action)  # it ends much earlier: when nothing can be left out
    assert shows(small)
    assert len(small.used()) <= 4
    assert len(small.actions) <= 3
    text = script(small, found[0], "found.py")
    compile(text, "found.py", "exec")
    assert Case.from_json(small.to_json()) == small


def test_a_sound_world_has_no_other_answers(tmp_path: Path) -> None:
    """What is determined by the calls is the same in memory."""
    world = memory_world()
    for number in range(CASES):
        case = make_case(f"3:{number}", world.name, TASTE)
        outcome = execute_case(world, tmp_path, case, str(number))
        assert outcome.broken == ""
        assert [violation for violation in outcome.violations if violation.kind == "other answer"] == []


def test_a_program_shows_what_was_found(tmp_path: Path) -> None:
    """A program that finds nothing wrong ends with 0: here, with a case that is sound."""
    steps = {0: bash("echo one > a"), 1: bash("cat a"), 2: execute("cat a", shows="a"), 3: read("a", shows="a")}
    actions = (
        Action("play", ((0, 1),), hold=True),
        Action("evict"),
        Action("continue", ((2, 3),), look=(3,), of=0),
        Action("reopen", options={"policy": "never"}),
        Action("resume", ((1, 2),), of=0),
        Action("together", ((0, 2), (0, 3))),
    )
    case = Case("0:0", "memory/terminal", steps, actions, {"policy": "eager"})
    assert execute_case(memory_world(), tmp_path, case, "").violations == []
    file = tmp_path / "found.py"
    finding = Ledger()
    assert finding.note(steps[2], Seen("one\n", 0), 0, "by the rollout") is None
    violation = finding.note(steps[3], Seen("two\n", 0), 0, "by the rollout")
    assert violation is not None
    assert violation.kind == "other past"
    file.write_text(script(case, violation, file.name))
    ran = subprocess.run([sys.executable, str(file)], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_facts_must_agree_until_they_are_overwritten() -> None:
    ledger = Ledger()
    show, other = bash("cat t", shows="t"), read("t", shows="t")
    assert ledger.note(show, Seen("x\n", 0), 0, "") is None
    assert ledger.note(other, Seen("x", 0), 0, "") is None
    assert ledger.note(other, Seen("t: No such file\n", 1), 0, "") is not None
    assert ledger.note(bash("date > t", sets=("t",)), Seen("", 0), 0, "") is None
    assert ledger.note(show, Seen("y\n", 0), 0, "") is None
    grows = bash("wc -l < f", shows="f", form="grows")
    assert [ledger.note(grows, Seen(text, 0), 0, "") is None for text in ("3\n", "5\n", "4\n")] == [True, True, False]
    drawn = bash("draw", shows="d", form="distinct")
    assert [ledger.note(drawn, Seen(text, 0), 0, "") is None for text in ("3\n", "5\n", "5\n")] == [True, True, False]


def test_what_differs_among_fresh_executions_is_expected_of_nobody() -> None:
    step = bash("echo $RANDOM")
    one, two, three = Seen("1\n", 0), Seen("2\n", 0), Seen("3\n", 0)
    assert not agrees(step, two, one)
    assert not agrees(step, two, one, [one, one])
    assert agrees(step, two, one, [one, three])
    probe = Step("exec", {"command": "find"}, lines=True)
    fresh, again = Seen("/a 1\n/b 1\n", 0), Seen("/a 2\n/b 1\n", 0)
    assert agrees(probe, Seen("/b 1\n/a 3\n", 0), fresh, [again])
    assert not agrees(probe, Seen("/a 1\n/b 2\n", 0), fresh, [again])
    counted = Seen("/a 1\n/b 1\n/c/f 7\n", 0)
    assert not agrees(probe, counted, fresh)
    assert agrees(probe, counted, fresh, growing=["/c"])
    fresh, again = (Seen(f"INSERT INTO t VALUES({id},7);\nINSERT INTO s VALUES(1,7);\n", 0) for id in ("'4f'", "'a0'"))
    assert agrees(probe, Seen("INSERT INTO t VALUES('3c',7);\nINSERT INTO s VALUES(1,7);\n", 0), fresh, [again])
    assert not agrees(probe, Seen("INSERT INTO t VALUES('3c',7);\nINSERT INTO s VALUES(1,8);\n", 0), fresh, [again])
    assert normalise("at 10:15:03, in 0.25 s") == "at TIME, in DURATION"


def test_a_case_is_the_same_each_time() -> None:
    for environment in ("terminal", "sqlite", "postgres", "mariadb", "video"):
        for number in range(100):
            case = make_case(f"5:{number}", "x", Taste(environment=environment))
            assert case == make_case(f"5:{number}", "x", Taste(environment=environment))
            assert Case.from_json(case.to_json()) == case
            assert case.used() <= set(case.steps)


def test_who_hangs_or_fails_is_ended() -> None:
    assert isolated(lambda: [1, "two"], 60.0) == [1, "two"]
    with pytest.raises(Hung):
        isolated(lambda: time.sleep(60), 0.3)
    with pytest.raises(Crashed, match="ZeroDivisionError"):
        isolated(lambda: 1 // 0, 60.0)


def test_a_helper_tells_what_it_sees_until_it_is_killed() -> None:
    seen = [Seen(str(number), 0) for number in range(5)]

    def tell(report: Report) -> None:
        for each in seen:
            report(each)

    def stop(report: Report) -> None:
        report(seen[0])
        time.sleep(60)

    helper = Helper(tell)
    helper.start()
    assert list(helper.seen()) == seen
    assert helper.end() == 0
    killed = Helper(stop)
    killed.start()
    assert killed.see(1, 0.0) == seen[:1]
    assert killed.end() == -9
    assert Helper(lambda report: None).end() == 0


def test_the_command_line_reports_what_it_found(tmp_path: Path) -> None:
    options = {"backend": "memory", "seconds": 3, "jobs": 1, "seed": 4, "shrink": 2, "cases": 12}
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    report = tmp_path / "report.json"
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.fuzz",
            *arguments,
            "--findings",
            str(tmp_path / "found"),
            "--report",
            str(report),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    told = json.loads(report.read_text())
    assert told["counts"]["histories"] > 0
    assert told["counts"]["broken"] == 0
    assert (run.returncode == 0) == (told["violations"] == [])
    assert len(list((tmp_path / "found").glob("*.py"))) == len(told["findings"])
