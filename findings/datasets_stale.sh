#!/usr/bin/env bash
# datasets 5.2.0: the same script, run again after its file of rollouts, or a module with the reward, has changed
#
# Guess: rows and rewards are those of the changed file and module; the cache's key is made of what a function does and reads.
# Behaviour: `from_generator` gives the rows of the first run, as its key holds the function and not the file that it reads;
# `map` gives the rewards of the first run, as a function of a module counts by its name. Nothing is said. A changed function
# in the script itself is run anew.
. "$(dirname "$0")/common.sh"
packages datasets==5.2.0

export HF_HOME=$work/cache HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 PYTHONDONTWRITEBYTECODE=1
cat >first.py <<'PYTHON'
import json
import rewards
from datasets import Dataset, load_dataset
def rows():
    with open("rollouts.jsonl") as file:
        yield from map(json.loads, file)
def by_module(row):
    return {"reward": rewards.reward(row["answer"])}
def here(answer):
    return float(answer == 42)
def by_script(row):
    return {"reward": here(row["answer"])}
print(Dataset.from_generator(rows)["answer"][:])
tasks = load_dataset("json", data_files="tasks.jsonl", split="train")
print(tasks.map(by_module)["reward"][:], tasks.map(by_script)["reward"][:])
PYTHON
printf '%s\n' '{"answer": 42}' '{"answer": 7}' | tee rollouts.jsonl >tasks.jsonl
echo 'def reward(answer): return float(answer == 42)' >rewards.py
run() { python "$1" 2>errors | paste -sd' ' || { cat errors >&2; exit 2; }; }
cp first.py script.py
seen "first run: answers, rewards by the module, by the script" "$(run script.py)" "[42, 7] [1.0, 0.0] [1.0, 0.0]"
printf '%s\n' '{"answer": 1}' '{"answer": 2}' '{"answer": 3}' >rollouts.jsonl
echo 'def reward(answer): return -1.0' >rewards.py
sed 's/float(answer == 42)/-1.0/' first.py >script.py
seen "all have changed: there are three other answers, and all rewards are -1" "$(run script.py)" "[42, 7] [1.0, 0.0] [-1.0, -1.0]"
rm -r cache
seen "the same without the cache" "$(run script.py)" "[1, 2, 3] [-1.0, -1.0] [-1.0, -1.0]"
