"""AppWorld's package in a sandbox, on a small data folder in its format, which is made by its own classes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tvsnap
from tests.docs.pages import blocks
from tests.homes import with_images_of
from tvsnap.images import Image, ImageStore
from tvsnap.plugins.training.appworld import AppWorldTask, image_folder, task, tasks

NAME = "tiny_1"
OWNER = {"first_name": "Ada", "last_name": "Byron", "email": "ada@mail.com", "phone_number": "5550001111"}
SPECS = {"instruction": "Pin my note on engines.", "supervisor": OWNER, "db_version": "0.1.0"}
LOGIN = "token = apis.simple_note.login(username='ada@mail.com', password='secret')['access_token']"
PIN = "print(apis.simple_note.update_note(note_id={}, pinned=True, access_token=token))"

EVALUATION = """
def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    with test("the note is pinned"):
        test.case({note.title: note.pinned for note in models.end.simple_note.Note.all()}["Engines"], "==", True)
    with test("only notes changed"):
        test.case(models.changed_model_names(), "<=", {"simple_note.Note"})
"""
TRUTH = {
    "metadata.json": {
        "difficulty": 1,
        "mode": "minimal",
        "num_apps": 1,
        "num_apis": 2,
        "num_api_calls": 2,
        "num_solution_code_lines": 2,
    },
    "public_data.json": {},
    "private_data.json": {},
    "answer.json": None,
    "test_data.json": [
        {"requirement": "the note is pinned", "label": "no_op_fail"},
        {"requirement": "only notes changed", "label": "no_op_pass"},
    ],
}

DATABASES = f"""
import json, pathlib
from datetime import datetime
from appworld.apps import get_all_apps
from appworld.collections.api_docs import ApiDocCollection
from appworld.collections.models import ModelCollection

data, apps, born = pathlib.Path("/appworld/data"), get_all_apps(), {{**{OWNER!r}, "birthday": "1990-01-01"}}
(data / "api_docs/standard").mkdir(parents=True)
for app, docs in ApiDocCollection.build(tuple(get_all_apps(skip_admin=True))).items():
    told = {{name: {{**doc, "canary_string": ""}} for name, doc in docs.items()}}
    (data / "api_docs/standard" / (app + ".json")).write_text(json.dumps(told))
models = ModelCollection.load(":memory:base", ":memory:base", load_apps=apps, create_db=True)
models.start_db_tracker()
models.admin.MainUser(**born).save()
then = datetime(2023, 5, 1)
name = {{"first_name": "Ada", "last_name": "Byron", "email": "ada@mail.com"}}
user = models.simple_note.User(**name, password="secret", verified=True, created_at=then, last_logged_in=then)
user.save()
for title in ("Engines", "Birds"):
    note = models.simple_note.Note(user_id=user.id, title=title, content="...", created_at=then, updated_at=then)
    note.save()
models.save(str(data / "base_dbs"), app_names=apps, save_model_hashes=True)
models.restart_db_tracker()
owner = models.supervisor.Supervisor(**born)
owner.save()
models.supervisor.AccountPassword(supervisor_id=owner.id, account_name="simple_note", password="secret").save()
models.supervisor.Task(supervisor_id=owner.id, instruction="Pin my note on engines.").save()
models.save(str(data / "tasks/{NAME}/dbs"), app_names=apps, format="changes")
"""
"""Writes what a data folder has besides tasks and ground truths; run where the package is."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("appworld") / "data"
    truth = folder / "tasks" / NAME / "ground_truth"
    truth.mkdir(parents=True)
    for name, value in TRUTH.items():
        (truth / name).write_text(json.dumps(value))
    (truth / "evaluation.py").write_text(EVALUATION)
    (truth.parent / "specs.json").write_text(json.dumps({**SPECS, "datetime": "2023-05-18T12:00:00"}))
    (folder / "datasets").mkdir()
    (folder / "datasets/train.txt").write_text(f"{NAME}\n")
    return folder


@pytest.fixture(scope="module")
def appworld_image(terminal_image: Image, data: Path, tvsnap_home: Path) -> Image:
    try:
        folder = image_folder(data, data.parent / "image", image="test-appworld")
    except tvsnap.UsageError as error:
        pytest.skip(str(error))
    return ImageStore(tvsnap_home).build(folder)


def attempt(cache: tvsnap.Cache, its: AppWorldTask, commands: list[str]) -> tuple[list[str], list[str], tvsnap.Grade]:
    """Returns what the commands printed, how they were answered, and the grade."""
    with cache.rollout(its.image, its.name) as rollout:
        made = rollout.call("bash", {"command": f"python3 - <<'END'\n{DATABASES}\nEND"}, 120.0)
        assert made.exit_code == 0, made.output
        for tool, arguments in its.preparation():
            opened = rollout.call(tool, arguments, 120.0)
            assert opened.exit_code == 0, opened.output
        results = [rollout.call(its.tool, its.arguments(command), 60.0) for command in commands]
        return [each.output for each in results], [each.source for each in results], rollout.grade(its.verifier)


def test_a_login_is_forked_and_what_follows_is_graded_apart(
    tvsnap_home: Path, appworld_image: Image, data: Path
) -> None:
    (its,) = tasks(data, image="test-appworld")
    right, wrong = [LOGIN, PIN.format(1)], [LOGIN, PIN.format(2)]
    with tvsnap.Cache(tvsnap_home, use_cache=False) as bare:
        shown, _, grade = attempt(bare, its, right)
    assert shown == ["Execution successful.\n", '{"message": "Note updated."}\n']
    assert grade.reward == 1.0
    with tvsnap.Cache(tvsnap_home, policy="eager") as cache:
        first, again, other = (attempt(cache, its, commands) for commands in (right, right, wrong))
    assert first[0] == again[0] == shown
    assert again[1] == ["hit", "hit"]
    assert other[1] == ["hit", "executed"]
    assert (first[2].reward, again[2].reward) == (1.0, 1.0)
    assert (other[2].reward, other[2].tests) == (0.5, {"the note is pinned": 0.0, "only notes changed": 1.0})


def test_the_example_of_the_guide(tvsnap_home: Path, appworld_image: Image, data: Path, tmp_path: Path) -> None:
    """It runs on a data folder that has all that AppWorld's own has."""
    (block,) = (each for each in blocks("python") if each.mark == "appworld")
    with tvsnap.Cache(tvsnap_home) as cache, cache.rollout(appworld_image) as rollout:
        made = rollout.call("bash", {"command": f"python3 - <<'END'\n{DATABASES}\nEND"}, 120.0)
        assert made.exit_code == 0, made.output
        rollout.get("/appworld/data", tmp_path / "data")
    shutil.copytree(data, tmp_path / "data", dirs_exist_ok=True)
    home = with_images_of(tvsnap_home, tmp_path / "home")
    shown = "print(said.output); assert 'simple_note' in said.output and grade.reward == 0.5, (said, grade)"
    ran = subprocess.run(
        [sys.executable, "-c", f"{block.text}\n{shown}"],
        cwd=tmp_path,
        env={**os.environ, "TVSNAP_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_the_ground_truth_is_only_where_it_is_graded(tvsnap_home: Path, appworld_image: Image, data: Path) -> None:
    its = task(data, NAME, image="test-appworld")
    with tvsnap.Cache(tvsnap_home) as cache, cache.rollout(its.image) as rollout:
        found = rollout.call("bash", {"command": "ls /appworld/data/tasks/*; find /appworld /opt -name '*truth*'"})
        assert found.output == "specs.json\n"
        with pytest.raises(tvsnap.errors.GradingFailed, match="status 1"):  # no world was opened
            rollout.grade(its.verifier)


def test_what_is_missing_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(tvsnap.UsageError, match=r"no data folder of AppWorld.*appworld download data"):
        tasks(tmp_path)
    with pytest.raises(tvsnap.UsageError, match=r"no data set dev; there are: train"):
        tasks(data, "dev")
    with pytest.raises(tvsnap.UsageError, match="there is no task other_1"):
        task(data, "other_1")
    with pytest.raises(tvsnap.UsageError, match="is there already"):
        image_folder(data, tmp_path)
    bare = tmp_path / "tasks/bare_1"
    bare.mkdir(parents=True)
    (bare / "specs.json").write_text(json.dumps(SPECS))
    with pytest.raises(tvsnap.UsageError, match="bare_1 cannot be graded"):
        task(tmp_path, "bare_1")


def test_the_instruction_says_who_asks(data: Path) -> None:
    (its,) = tasks(data)
    assert its.instruction.endswith("\nTask: Pin my note on engines.")  # as in the prompt of LOOP, where it is the last
    assert "Ada Byron (ada@mail.com, phone 5550001111)" in its.instruction
