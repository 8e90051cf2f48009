"""A GRPO loop in a page: a policy that chooses commands learns three small tasks, graded by `rollout.grade`.

    .venv/bin/python examples/grpo.py                  # with tvsnap's default settings
    .venv/bin/python examples/grpo.py --no-cache       # each call is executed
    .venv/bin/python examples/grpo.py --policy eager   # every state is kept

The policy has a weight for each command of a task; a language model would stand in its place. `--think` is how long it
takes to choose, in seconds. Run `tvsnap image build terminal` once before.
"""

import argparse
import math
import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean as mean_of

import tvsnap

CODE = "echo 'def double(x): return x + 1' > a.py; echo 'import a; assert a.double(4) == 8' > t.py"
TASKS = {  # what sets a task up, the commands to choose from (`sleep` stands for a compiler), and the verifier
    "count": (
        "seq 40 > in",
        ["head -3 in", "wc -l < in > out", "sleep 1; sort -rn in", "echo 41 > out", "rm -f out", "cat out"],
        'test "$(cat out)" = 40 && echo 1 || echo 0',
    ),
    "tests": (
        CODE,
        ["cat a.py", "sleep 1; python3 t.py", "sed -i 's/+ 1/* 2/' a.py", "sed -i 's/+ 1//' a.py", "ls", "wc a.py"],
        "python3 t.py && echo 1 || echo 0",
    ),
    "build": (
        r"printf 'all: x\nx:\n\tcat y > x\n' > Makefile",
        ["cat Makefile", "echo 1 > y", "sleep 1; make", "touch x", "rm -f y", "ls -l | wc -l"],
        "make -s && test -s x && echo 1 || echo 0",
    ),
}
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--policy", default="default", help="when states are kept: default, eager or never")
parser.add_argument("--no-cache", action="store_true", help="execute every call")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--think", type=float, default=0.5)
options = parser.parse_args()
weights = {task: [0.0] * len(commands) for task, (_, commands, _) in TASKS.items()}
salt = uuid.uuid4().hex  # of no earlier run: a trainer would use none


def play(task: str, epoch: int, number: int) -> tuple[float, list[int], list[str]]:
    """Makes one rollout; returns its reward, the commands that were chosen, and the sources of their results."""
    setup, commands, check = TASKS[task]
    likely = [math.exp(weight) for weight in weights[task]]
    chosen = random.Random(f"{task} {epoch} {number}").choices(range(len(commands)), likely, k=6)
    with cache.rollout("terminal", task=task, label=str(number), epoch=epoch, salt=salt) as rollout:
        rollout.call("bash", {"command": f"mkdir /t && cd /t && {setup}"})
        sources: list[str] = []
        for choice in chosen:
            time.sleep(options.think)
            sources.append(rollout.call("bash", {"command": commands[choice]}, timeout=60).source)
        return rollout.grade(tvsnap.Verifier(f"cd /t && {check}")).reward, chosen, sources


with tvsnap.Cache(policy=options.policy, use_cache=not options.no_cache) as cache, ThreadPoolExecutor(8) as threads:
    for epoch in range(options.epochs):
        began = time.monotonic()
        groups = {task: [threads.submit(play, task, epoch, number) for number in range(8)] for task in TASKS}
        played = {task: [rollout.result() for rollout in group] for task, group in groups.items()}
        for task, group in played.items():  # commands of rollouts that beat the mean of their group become likelier
            mean = mean_of([reward for reward, _, _ in group])
            for reward, chosen, _ in group:
                for choice in chosen:
                    weights[task][choice] += 0.3 * (reward - mean)
        every = [rollout for group in played.values() for rollout in group]
        sources = [source for _, _, of_rollout in every for source in of_rollout]
        answered, reward = sum(source != "executed" for source in sources), sum(reward for reward, _, _ in every)
        print(
            f"epoch {epoch}: reward {reward / len(every):.2f}, {answered / len(sources):4.0%} of calls answered", end=""
        )
        print(f", {time.monotonic() - began:.1f} s")
