"""Tests that failed while others ran beside them are executed once more, alone: `python -m tests.second_attempt`.

The suite runs several tests at a time on few processors, and some tests wait for what a loaded machine does late. What
fails again alone is broken. What passes alone is named in a line of its own, and is to be mended: either it, or what
it tests, depends on the load. Tests of the promise itself (`PROMISE`) have one attempt only, and so has a suite of
which many failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import TESTS

FAILED = TESTS.parent / ".pytest_cache" / "v" / "cache" / "lastfailed"
MOST = 20
PROMISE = ("tests/property/", "tests/fuzz/")


def refusal(failed: list[str]) -> str | None:
    """Returns why these tests have no second attempt; None if they have one."""
    if not failed:
        return "no test is known to have failed: something else ended the suite"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed, more than {MOST}"
    if promised := [name for name in failed if name.startswith(PROMISE)]:
        return f"what tests the promise must hold under load, too: {', '.join(promised)}"
    return None


def main(failures: Path = FAILED) -> int:
    """Executes once more what failed, and returns the exit status."""
    try:
        failed = list(json.loads(failures.read_text()))
    except FileNotFoundError:
        failed = []
    if reason := refusal(failed):
        print(f"no second attempt: {reason}")
        return 1
    print(f"second attempt, alone: {', '.join(failed)}", flush=True)
    status = subprocess.run([sys.executable, "-m", "pytest", "-rs", *failed], check=False).returncode
    if status == 0:
        print(f"DEPENDS ON THE LOAD (failed beside others, passed alone): {', '.join(failed)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
