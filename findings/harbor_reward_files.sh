#!/usr/bin/env bash
# Harbor 0.25.0: a test script that writes both reward files, and one that writes other numbers
#
# Guess: reward.txt counts, the file that most tasks write; or both at once is an error.
# Behaviour: reward.json counts, whatever reward.txt says. In reward.txt, text that Python reads as a number is one
# ("1_0" is 10); in reward.json a number in quotes is an error, while true counts without a word as a reward.
. "$(dirname "$0")/common.sh"
. "$here/../scripts/beside.sh"
FINDINGS_PYTHON=$(find_python "3, 12" "${HARBOR_PYTHON:-}")
[ -n "$FINDINGS_PYTHON" ] || { echo "Python 3.12 or newer is missing: Harbor needs it" >&2; exit 2; }
# Only what its verifier imports.
packages pathspec==1.0.4 platformdirs==4.5.0 pydantic==2.12.3 shortuuid==1.0.13 toml==0.10.2
packages_alone harbor==0.25.0

cat >verify.py <<'END'
import asyncio, pathlib, shutil, subprocess, sys, types
from harbor.models.task.config import TaskOS
from harbor.models.task.task import Task
from harbor.models.trial.paths import TrialPaths
from harbor.verifier.verifier import Verifier

class Here:
    """An environment whose /tests and /logs are folders of this one."""
    os = TaskOS.LINUX
    def __init__(self, root):
        self.root = root
    def place(self, path):
        return f"{self.root}{path}"
    def is_path_mounted(self, inner, outer):
        return False
    async def exec(self, command, **_):
        for name in ("/tests", "/logs"):
            command = command.replace(name, self.place(name))
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        return types.SimpleNamespace(return_code=done.returncode, stdout=done.stdout, stderr=done.stderr)
    async def upload_dir(self, source_dir, target_dir):
        shutil.copytree(source_dir, self.place(target_dir), dirs_exist_ok=True)
    async def download_dir(self, source_dir, target_dir):
        shutil.copytree(self.place(source_dir), target_dir, dirs_exist_ok=True)

def reward(name, **files):
    root = pathlib.Path(name).absolute()
    task, inside = root / "task", root / "inside"
    for folder in (task / "tests", task / "environment", inside / "logs/verifier", root / "trial/verifier"):
        folder.mkdir(parents=True)
    (task / "task.toml").write_text("")
    (task / "instruction.md").write_text("do it")
    (task / "environment/Dockerfile").write_text("FROM scratch")
    lines = [f"printf '%s' '{text}' > {inside}/logs/verifier/reward.{kind}" for kind, text in files.items()]
    (task / "tests/test.sh").write_text("\n".join(["#!/bin/bash", *lines, ""]))
    try:
        return asyncio.run(Verifier(Task(task), TrialPaths(root / "trial"), Here(inside)).verify()).rewards
    except Exception as error:
        return type(error).__name__

print(reward("both", txt="1", json='{"reward": 0}'))
print(reward("text", txt="1_0"))
print(reward("quoted", json='{"reward": "1"}'))
print(reward("truth", json='{"reward": true}'))
END
python verify.py 2>errors >out || { cat errors >&2; exit 2; }
seen 'reward.txt: 1, reward.json: {"reward": 0}' "$(sed -n 1p out)" "{'reward': 0}"
seen 'reward.txt: 1_0' "$(sed -n 2p out)" "{'reward': 10.0}"
seen 'reward.json: {"reward": "1"}' "$(sed -n 3p out)" VerifierOutputParseError
seen 'reward.json: {"reward": true}' "$(sed -n 4p out)" "{'reward': 1.0}"
