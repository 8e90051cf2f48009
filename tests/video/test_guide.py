"""The guide's programs with videos run as printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import Block
from tests.docs.test_examples import PYTHON, TIME


@pytest.mark.usefixtures("video_image")
@pytest.mark.parametrize("block", [block for block in PYTHON if block.mark == "video"], ids=str)
def test_programs_with_videos(block: Block, tvsnap_home: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TVSNAP_HOME": str(tvsnap_home)}
    program = [sys.executable, "-c", block.text]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIME)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.count("The most relevant segments are") == 2
