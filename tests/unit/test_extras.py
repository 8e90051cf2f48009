"""A module whose packages are missing names the extra that brings them."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEEDS = [
    ("tvsnap.training.loop", "torch", "train"),
    ("tvsnap.training.agents", "torch", "train"),
    ("tvsnap.training.generation", "torch", "train"),
    ("tvsnap.training.experiment", "torch", "train"),
    ("tvsnap.priors.symbolic", "torch", "continuous"),
    ("tvsnap.priors.sac", "torch", "continuous"),
    ("tvsnap.priors.cql", "torch", "continuous"),
]


@pytest.mark.parametrize(("module", "package", "extra"), NEEDS)
def test_a_missing_package_is_named_with_its_extra(module: str, package: str, extra: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import {module}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    expected = f"ModuleNotFoundError: the package {package} is missing: pip install 'tvsnap[{extra}]'"
    assert run.stderr.strip().splitlines()[-1] == expected
