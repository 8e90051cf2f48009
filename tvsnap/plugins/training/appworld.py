"""Tasks of AppWorld (https://appworld.dev): an image with one's own data folder, the tool `python`, and a verifier.

AppWorld runs in the interpreter of the tool `python`, with its databases in memory, so that a fork has all of it:
variables, open logins and rows. Its own `save_state` keeps the rows alone. Ground truths are not in the image: the
verifier brings those of its task into the fork that it grades.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvsnap import UsageError, Verifier
from tvsnap.plugins.training.tasks import Task

IMAGE = "appworld"
"""The name of the image, unless another one is given."""
REQUIREMENT = "appworld==0.1.3.post1"
"""The package that is installed in the image."""
_ROOT = "/appworld"
_PYTHON = "3.11"  # of the image `terminal`
_TRUTH = "ground_truth"
_RUN = "tvsnap"  # AppWorld calls it the name of an experiment
_PROMPT = """
You work for {first_name} {last_name} ({email}, phone {phone_number}). Applications are called as apis.APP.API(...), and
what is printed is shown to you. apis.api_docs.show_app_descriptions(), show_api_descriptions(app_name=...) and
show_api_doc(app_name=..., api_name=...) tell what there is; apis.supervisor has accounts and passwords. When the task
is done, call apis.supervisor.complete_task(), with answer=... if a question was asked.

Task: {instruction}
"""
"""The task comes last, as in LOOP's prompt for AppWorld."""
_CHECK = """
exec python3 -I - <<'END'
import contextlib, json, os, sys
os.environ["APPWORLD_ROOT"] = {root!r}
os.chdir({root!r})
with contextlib.redirect_stdout(sys.stderr):
    from appworld.evaluator import evaluate_task
    found = evaluate_task({task!r}, {run!r}, save_report=False)
tests = {{each["requirement"]: each in found.passes for each in found.passes + found.failures}}
print(json.dumps({{"reward": found.pass_count / found.num_tests, "tests": tests}}))
END
"""


@dataclass(frozen=True)
class AppWorldTask(Task):
    """A task of AppWorld. Commands are what its `AppWorld.execute` is given."""

    def preparation(self) -> list[tuple[str, dict[str, str]]]:
        """Returns the one call that opens the task's world in the interpreter: a tool, and its arguments."""
        opened = f"world = AppWorld({self.name!r}, experiment_name={_RUN!r}, load_ground_truth=False)"
        return [("python", {"code": f"from appworld import AppWorld\n{opened}"})]

    def arguments(self, command: str) -> dict[str, str]:
        """Returns the arguments with which the tool `python` is called to run code in the task's world.

        Args:
            command: the code, as the model has written it.
        """
        return {"code": f"print(world.execute({command!r}).rstrip())"}


def tasks(data: Path | str, dataset: str = "train", *, image: str = IMAGE) -> list[AppWorldTask]:
    """Returns the tasks of a data set of AppWorld.

    Args:
        data: AppWorld's data folder, which `appworld download data` makes.
        dataset: the name of a file in its `datasets`: `train`, `dev`, `test_normal` or `test_challenge`.
        image: the image's name.

    Raises:
        UsageError: there is no such folder or data set, or a task has no ground truth to be graded by.
    """
    listed = _data(data) / "datasets" / f"{dataset}.txt"
    if not listed.is_file():
        there = ", ".join(sorted(path.stem for path in listed.parent.glob("*.txt")))
        raise UsageError(f"{listed} is not there, so that there is no data set {dataset}; there are: {there or 'none'}")
    return [task(data, name, image=image) for name in listed.read_text().split()]


def task(data: Path | str, name: str, *, image: str = IMAGE) -> AppWorldTask:
    """Returns one task of AppWorld. Its reward is the share of AppWorld's own tests that pass.

    Args:
        data: AppWorld's data folder, which `appworld download data` makes.
        name: the task's id, such as `82e2fac_1`.
        image: the image's name.

    Raises:
        UsageError: there is no such folder or task, or the task has no ground truth to be graded by.
    """
    folder = _data(data) / "tasks" / name
    if not re.fullmatch(r"\w+", name) or not (folder / "specs.json").is_file():
        raise UsageError(f"{folder} has no specs.json, so that there is no task {name}")
    truth = sorted(path for path in (folder / _TRUTH).glob("*") if path.is_file())
    if not (folder / _TRUTH / "evaluation.py").is_file():
        raise UsageError(f"{folder / _TRUTH} has no evaluation.py, so that task {name} cannot be graded")
    specs: Mapping[str, Any] = json.loads((folder / "specs.json").read_text())
    owner = specs.get("supervisor") or specs["main_user"]
    verifier = Verifier(
        _CHECK.format(root=_ROOT, task=name, run=_RUN),
        {f"{_ROOT}/data/tasks/{name}/{_TRUTH}/{path.name}": path.read_bytes() for path in truth},
        timeout=120,
    )
    instruction = _PROMPT.strip().format(instruction=specs["instruction"], **owner)
    return AppWorldTask(name, "python", instruction, (), verifier, (), (), image, "python")


def image_folder(data: Path | str, folder: Path | str, *, wheels: Path | str | None = None, image: str = IMAGE) -> Path:
    """Writes the folder of an image with AppWorld and a data folder, for `tvsnap image build` or `ImageStore.build`.

    The image starts from the image `terminal`.

    Args:
        data: AppWorld's data folder, which `appworld download data` makes; ground truths are left out.
        folder: the folder that is written, which is not there yet.
        wheels: a folder with the package `appworld` and what it needs, for Python 3.11; by default pip downloads them.
        image: the image's name.

    Returns:
        The folder.

    Raises:
        UsageError: there is no such data folder, or `folder` is there already, or pip could not download the package.
    """
    source, folder = _data(data), Path(folder)
    if folder.exists():
        raise UsageError(f"{folder} is there already: name a folder that is not, or delete it")
    shutil.copytree(source, folder / "data", ignore=shutil.ignore_patterns(_TRUTH))
    if wheels is not None:
        shutil.copytree(wheels, folder / "wheels")
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder / "wheels")]
        choice = ["--python-version", _PYTHON, "--only-binary", ":all:", REQUIREMENT]
        ran = subprocess.run([*command, *choice], capture_output=True, text=True, check=False)
        if ran.returncode:
            shutil.rmtree(folder)
            raise UsageError(f"pip could not download {REQUIREMENT}; give wheels=FOLDER: {ran.stderr.strip()[-400:]}")
    install = "python3 -m pip install --break-system-packages --quiet --no-index --find-links /opt/wheels"
    description = {
        "image": "terminal",
        "name": image,
        "environment": "python",
        "files": [
            {"source": "wheels", "dest": "/opt/wheels/"},
            {"source": "data", "dest": f"{_ROOT}/data/"},
        ],
        "run": [f"{install} {REQUIREMENT}", "appworld install", "rm -rf /opt/wheels"],
        "env": {"APPWORLD_ROOT": _ROOT},
        "workdir": _ROOT,
    }
    (folder / "image.yaml").write_text(json.dumps(description, indent=1))  # which is YAML, too
    return folder


def _data(folder: Path | str) -> Path:
    folder = Path(folder)
    if not (folder / "tasks").is_dir():
        raise UsageError(
            f"{folder} is no data folder of AppWorld, as it has no folder tasks: pip install appworld, then `appworld "
            "install` and `appworld download data` make one, named data"
        )
    return folder
