"""Runs cases until time is up, and keeps what they find: each defect once, made small, as a program."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.cases import FREE, Case, Violation
from tests.fuzz.execute import Executor, Outcome
from tests.fuzz.histories import POLICIES, Taste, make_case
from tests.fuzz.isolate import Crashed, Hung, isolated
from tests.fuzz.recorded import Recorded
from tests.fuzz.script import script
from tests.fuzz.shrink import shrink
from tests.fuzz.worlds import World, data_directory

WEIGHTS = {
    "local/terminal": 10,
    "no-criu/terminal": 3,
    "docker/terminal": 2,
    "docker/sqlite": 1,
    "local/postgres": 3,
    "local/mariadb": 3,
    "local/sqlite": 3,
    "local/video": 2,
    "memory/terminal": 2,
}
INODES = ("C1 inode", "C1 git index")
"""Topics that ask for numbers of files, as git does: a commit of a container engine makes new ones (docs/forks.md)."""
PATIENCE = 200.0
"""Seconds for a case, beyond its pauses and timeouts."""
SLOW = 3
"""How many times as long cases take whose sandboxes a container engine starts, or that start a database server."""
FRESH_DIRECTORY = 40
"""Cases after which a fresh data directory is used."""


@dataclass(frozen=True)
class Settings:
    """What a campaign does.

    Attributes:
        seconds: how long.
        seed: of all cases.
        worlds: where, by name.
        findings: where programs are written.
        free: see `Executor`.
        recorded: histories of real agents.
        shrinking: seconds for each finding.
        times, only, policies: see `Taste`.
        cases: stop after so many, of each worker; None for no limit.
    """

    seconds: float
    seed: int
    worlds: Mapping[str, World]
    findings: Path
    free: frozenset[str] = frozenset(FREE)
    recorded: Recorded = field(default_factory=lambda: Recorded(()))
    shrinking: float = 30.0
    times: bool = False
    only: tuple[str, ...] = ()
    policies: tuple[str, ...] = POLICIES
    cases: int | None = None

    def case(self, number: int, world: str = "") -> Case:
        """Returns one of the campaign's cases."""
        names = sorted(self.worlds)
        chosen = Random(f"{self.seed}:{number}").choices(names, [WEIGHTS.get(name, 1) for name in names])[0]
        return make_case(f"{self.seed}:{number}", world or chosen, self.taste(self.worlds[world or chosen]))

    def taste(self, world: World) -> Taste:
        """Returns what cases of a world are made of."""
        return Taste(
            environment=world.environment,
            programs=world.programs,
            policies=self.policies,
            recorded=self.recorded,
            times=self.times,
            processes=world.programs and world.backend != "docker",
            only=self.only,
            without=INODES if world.backend == "docker" else (),
            slow=world.backend == "docker",
        )


class Worker:
    """Runs every n-th case of a campaign, and writes a line of JSON for each."""

    def __init__(self, settings: Settings, first: int, step: int, log: Path) -> None:
        self._settings, self._first, self._step, self._log = settings, first, step, log
        self._home = Path()
        self._salts = 0

    def run(self) -> None:
        """Runs cases until time is up."""
        end = time.monotonic() + self._settings.seconds
        number, left = self._first, self._settings.cases
        with self._log.open("a") as log:
            while time.monotonic() < end and left != 0:
                with data_directory() as self._home:
                    for _ in range(FRESH_DIRECTORY):
                        if time.monotonic() > end or left == 0:
                            break
                        print(json.dumps(self._one(self._settings.case(number), end)), file=log, flush=True)
                        number += self._step
                        left = None if left is None else left - 1

    def _one(self, case: Case, end: float) -> dict[str, Any]:
        began = time.monotonic()
        outcome = self.execute(case)
        record: dict[str, Any] = {
            "case": case.name,
            "world": case.world,
            "topics": case.topics,
            "counts": outcome.counts,
            "broken": outcome.broken,
            "unreachable": outcome.unreachable,
            "seconds": time.monotonic() - began,
            "violations": [],
            "findings": [],
        }
        for violation in outcome.violations:
            record["violations"].append([violation.kind, violation.topic])
            if self._claim(case, violation):
                record["findings"].append(self._keep(case, violation))
        return record

    def execute(self, case: Case) -> Outcome:
        """Executes a case in a process of its own; a hang or a crash is what came of it."""
        self._salts += 1
        salt, settings = f"{case.name}/{os.getpid()}/{self._salts}", self._settings
        world = settings.worlds[case.world]
        try:
            return isolated(lambda: Executor(world, self._home, salt, case, settings.free).run(), patience(case))
        except Hung:
            found = Violation("hang", "", -1, "the whole case", "an end", f"none within {patience(case):.0f} s", "")
            return Outcome([found])
        except Crashed as crash:
            return Outcome(broken=f"the fuzzer itself failed: {str(crash)[-1500:]}")

    def _claim(self, case: Case, violation: Violation) -> bool:
        """Whether nobody has kept a finding of that kind yet."""
        name = hashlib.sha256(repr((violation.signature, case.world)).encode()).hexdigest()[:16]
        try:
            (self._log.parent / f"{name}.claimed").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _keep(self, case: Case, violation: Violation) -> dict[str, Any]:
        """Makes a finding small, and writes it as a program; returns what the report says of it."""
        shown = violation

        def shows(candidate: Case) -> bool:
            nonlocal shown
            for found in self.execute(candidate).violations:
                if found.signature == violation.signature:
                    shown = found
                    return True
            return False

        confirmed = violation.kind == "hang"
        for again in () if confirmed else (case.steady(), case, case):
            if shows(again):
                case, confirmed = again, True
                break
        small = case
        if confirmed and violation.kind != "hang":
            small = shrink(case, shows, self._settings.shrinking, shown.action)
        if confirmed and violation.kind != "hang":
            shows(small)
        folder = self._settings.findings
        name = "-".join(re_words(f"{violation.topic} {violation.kind} {case.world} {case.name}"))
        file = folder / f"{name}.py"
        if violation.kind != "hang":
            file.write_text(script(small, shown, file.name))
        (folder / f"{name}.json").write_text(
            json.dumps({"case": json.loads(small.to_json()), "violation": asdict(shown)}, indent=1)
        )
        return {
            "kind": violation.kind,
            "topic": violation.topic,
            "world": case.world,
            "case": case.name,
            "confirmed": confirmed,
            "script": str(file),
            "violation": asdict(shown),
            "calls": len(small.used()),
            "actions": len(small.actions),
        }


def patience(case: Case) -> float:
    """Returns the seconds after which a case hangs."""
    steps = [case.steps[number] for action in case.actions for play in (*action.plays, action.look) for number in play]
    waits = sum(step.pause + min(step.timeout or 0.0, 1.0) for step in steps)
    quick = case.world in ("local/terminal", "no-criu/terminal", "memory/terminal")
    return (PATIENCE + 4 * waits) * (1 if quick else SLOW)


def re_words(text: str) -> list[str]:
    """Returns the words of a text, for a file's name."""
    return "".join(letter if letter.isalnum() else " " for letter in text).split()


def run_cases(
    world: World, seed: int, numbers: Iterable[int], home: Path, *, free: frozenset[str] = frozenset(FREE), **taste: Any
) -> Outcome:
    """Executes cases of one world in this very process, one after another; returns what came of all of them.

    Args:
        world: where.
        seed, numbers: which.
        home: the data directory.
        free: see `Executor`.
        taste: see `Taste`.
    """
    whole = Outcome(counts=Counter(histories=0))
    chosen = replace(Taste(environment=world.environment, programs=world.programs, processes=False), **taste)
    for number in numbers:
        case = make_case(f"{seed}:{number}", world.name, chosen)
        outcome = Executor(world, home, f"{case.name}/{world.name}", case, free).run()
        whole.counts.update(outcome.counts)
        whole.counts["histories"] += 1
        whole.unreachable.update(outcome.unreachable)
        whole.violations += [
            replace(violation, how=f"{case.name}: {violation.how}") for violation in outcome.violations
        ]
        whole.broken = whole.broken or outcome.broken
    return whole
