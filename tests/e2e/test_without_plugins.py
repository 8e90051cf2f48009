"""The core works without the packages that plug in: each of them, and all, as if they were not installed."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tvsnap.plugins
from tvsnap.images import Image

PLUGINS = tuple(sorted(module.name for module in pkgutil.iter_modules(tvsnap.plugins.__path__) if module.ispkg))
WITHOUT = """
import sys

absent = {f"tvsnap.plugins.{name}" for name in sys.argv.pop(1).split(",")}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if ".".join(name.split(".")[:3]) in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from tvsnap_cli.entry import main

sys.argv[0] = "tvsnap"
sys.exit(main())
"""


def run(home: Path, absent: tuple[str, ...], *words: str) -> str:
    """Returns what a command prints where packages are absent."""
    command = [sys.executable, "-c", WITHOUT, ",".join(absent), *words]
    environment = {**os.environ, "TVSNAP_HOME": str(home)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("absent", PLUGINS)
def test_without_one(tvsnap_home: Path, terminal_image: Image, absent: str) -> None:
    listed = json.loads(run(tvsnap_home, (absent,), "image", "ls", "--json"))
    assert terminal_image.name in json.dumps(listed)


@pytest.mark.usefixtures("terminal_image")
def test_without_any(tvsnap_home: Path) -> None:
    """The demonstration builds, executes, answers, forks and compares."""
    told = json.loads(run(tvsnap_home, PLUGINS, "demo", "--json"))
    assert told["same"] is True
    # Where processors are short, not each cheap state is kept; without plug-ins as with them (test_cli.py).
    assert told["again"]["hits"] > told["again"]["calls"] * 0.9
    run(tvsnap_home, PLUGINS, "forget", "--task", "demo", "--yes")
