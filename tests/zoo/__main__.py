"""The command line: `python -m tests.zoo [NAME ...]`, or `make zoo ONLY=NAME`."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz.worlds import data_directory
from tests.zoo import page
from tests.zoo.building import NotInstalled, build
from tests.zoo.runner import Outcome, run
from tests.zoo.table import EQUAL, FAILED, FOLDER, MISSING, Program, images, programs, rank
from tvsnap import ImageStore
from tvsnap.errors import ImageBuildError
from tvsnap.model.errors import TvsnapError

WORK = FOLDER.parents[1] / "build" / "zoo"


def main() -> int:
    """Runs what was asked for; returns the exit status: 1 if anything is worse than the table says."""
    options = _options()
    for each_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each_signal, signal.default_int_handler)
    table = programs()
    wanted = [each for each in table if not options.names or each.name in options.names or each.group in options.names]
    if not wanted:
        print(f"no such program; have: {', '.join(each.name for each in table)}", file=sys.stderr)
        return 2
    worse = []
    with data_directory() as home:
        for name in ("images", "cache"):
            (options.work / name).mkdir(parents=True, exist_ok=True)
            (home / name).symlink_to(options.work / name)
        built: dict[str, str | Outcome] = {}
        for number, program in enumerate(wanted, 1):
            began = time.monotonic()
            print(f"[{number}/{len(wanted)}] {program.name}: ", end="", flush=True)
            outcome = _run(program, home, options.work, built)
            print(f"{outcome.result} ({time.monotonic() - began:.0f} s)", flush=True)
            if outcome.result != EQUAL and outcome.report:
                print("    " + outcome.report.replace("\n", "\n    "), flush=True)
            if rank(outcome.result) > rank(program.expected):
                worse.append(program.name)
            if not options.leave_page:
                page.write(table, {program.name: outcome})
    if worse:
        print(f"worse than the table says: {', '.join(worse)}")
    return int(bool(worse))


def _run(program: Program, home: Path, work: Path, built: dict[str, str | Outcome]) -> Outcome:
    if program.image == "none":
        return Outcome(program.expected)
    if program.image not in built:
        built[program.image] = _image(program.image, home, work)
    image = built[program.image]
    if isinstance(image, Outcome):
        return image
    try:
        return run(program, image, home)
    except TvsnapError as error:
        return Outcome(f"{FAILED}: {error}", report=traceback.format_exc())


def _image(name: str, home: Path, work: Path) -> str | Outcome:
    store = ImageStore(home)
    try:
        if name == "terminal":
            return store.build(name).name
        return build(images()[name], store, work / "descriptions")
    except (NotInstalled, ImageBuildError) as error:
        return Outcome(f"{MISSING}: {error}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs or groups; by default all")
    parser.add_argument("--work", type=Path, default=WORK, help="keeps the images from one run to the next")
    parser.add_argument("--leave-page", action="store_true", help="do not write docs/zoo.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
