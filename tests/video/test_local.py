"""Models on this machine: their checks are run by the Python that has PyTorch, as those of training are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.hosted import run_checks
from tests.training.test_learning import training_programs

__all__ = ["training_programs"]

HOSTED = Path(__file__).parent / "hosted"


def test_checks_pass(training_programs: Path, tmp_path: Path) -> None:
    run_checks(training_programs, HOSTED / "check_local.py", tmp_path)


def test_without_the_packages_it_says_what_to_install(tmp_path: Path) -> None:
    program = """if True:
        import sys
        sys.modules["torch"] = None
        from tvsnap import UsageError
        from tvsnap.plugins.video import Captioner, Clip
        for kind in (Captioner, Clip):
            try:
                kind(sys.argv[1])
            except UsageError as error:
                print(error)
    """
    ran = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=60)
    assert ran.stdout.count("pip install 'tvsnap[train]'") == 2, ran.stdout + ran.stderr
