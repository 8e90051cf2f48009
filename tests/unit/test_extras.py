"""A module whose packages are missing names the extra that brings them."""

from __future__ import annotations

import subprocess
import sys

NEEDS = [
    ("tvsnap.training.loop", "torch", "train"),
    ("tvsnap.training.agents", "torch", "train"),
    ("tvsnap.training.generation", "torch", "train"),
    ("tvsnap.training.experiment", "torch", "train"),
    ("tvsnap.priors.symbolic", "torch", "continuous"),
    ("tvsnap.priors.sac", "torch", "continuous"),
    ("tvsnap.priors.cql", "torch", "continuous"),
]


PROGRAM = """
import importlib, sys
for module, package in zip(sys.argv[1::2], sys.argv[2::2]):
    sys.modules[package] = None
    try:
        importlib.import_module(module)
    except Exception as error:
        print(f"{module}: {type(error).__name__}: {error}")
"""


def test_a_missing_package_is_named_with_its_extra() -> None:
    words = [word for module, package, _ in NEEDS for word in (module, package)]
    run = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        f"{module}: ModuleNotFoundError: the package {package} is missing: pip install 'tvsnap[{extra}]'"
        for module, package, extra in NEEDS
    ]
