"""The suites that other packages run against their backends and environments, run against our own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tvsnap import Image
from tvsnap.environments import environment
from tvsnap.environments.base import Environment
from tvsnap.testing import BackendConformance, EnvironmentConformance


class OnOurImage:
    """What takes the place of building an image for each class."""

    @pytest.fixture(scope="class")
    @classmethod
    def home(cls, tvsnap_home: Path) -> Path:
        return tvsnap_home

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls, terminal_image: Image) -> Image:
        return terminal_image


class TestLocal(OnOurImage, BackendConformance):
    backend_name = "local"


class TestDocker(OnOurImage, BackendConformance):
    backend_name = "docker"

    @pytest.fixture(scope="class")
    @classmethod
    def home(cls, docker_engine: object, tvsnap_home: Path) -> Path:
        return tvsnap_home


class TestTerminal(OnOurImage, EnvironmentConformance):
    environment: ClassVar[Environment] = environment("terminal")
    histories = (
        (
            ("bash", {"command": "cd /tmp; x=1; echo 1 > f; sleep 1000 &"}),
            ("exec", {"command": "cat /tmp/f; echo $y", "env": {"y": "2"}}),
            ("exec_all", {"commands": [{"command": "cat /tmp/f"}, {"command": "echo 2 > /tmp/h", "separate": True}]}),
            ("write_file", {"path": "g", "content": "text\n"}),
            ("read_file", {"path": "g"}),
            ("bash", {"command": "cat f g; echo $x; jobs"}),
            ("read_file", {"path": "/nowhere"}),
        ),
        (
            ("keys", {"keys": "echo hi<Enter>", "wait": 0.5}),
            ("screen", {}),
        ),
    )


class TestPython(OnOurImage, EnvironmentConformance):
    environment: ClassVar[Environment] = environment("python")
    histories = (
        (
            ("python", {"code": "x = 41\ng = (i for i in range(9)); f = open('/tmp/f', 'w')"}),
            ("python", {"code": "next(g), x + 1"}),
            ("python", {"code": "f.write('late'); f.flush(); next(g)"}),
            ("bash", {"command": "cat /tmp/f"}),
            ("python", {"code": "1 / 0"}),
            ("exec", {"command": "true"}),
            ("exec_all", {"commands": [{"command": "true"}, {"command": "cat /tmp/f"}]}),
            ("write_file", {"path": "/tmp/m.py", "content": "y = 5"}),
            ("python", {"code": "import sys; sys.path.append('/tmp'); import m\nm.y"}),
            ("read_file", {"path": "/tmp/m.py"}),
            ("keys", {"keys": "", "wait": 0.1}),
            ("screen", {}),
        ),
    )

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls, terminal_image: Image) -> Image:
        return replace(terminal_image, environment="python")
