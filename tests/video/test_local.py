"""Models on this machine: their checks are run by the Python that has PyTorch, as those of training are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.training.test_learning import training_programs

__all__ = ["training_programs"]

HOSTED = Path(__file__).parent / "hosted"


def test_checks_pass(training_programs: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [training_programs / "python", "-m", "pytest", "-q", "-c", HOSTED / "pytest.ini"]
    ran = subprocess.run(
        [*command, "--basetemp", tmp_path / "checks", HOSTED / "check_local.py"],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^\d+ passed(, \d+ warnings?)? in", ran.stdout, re.MULTILINE), ran.stdout


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
