#!/usr/bin/env bash
# Python 3.11.7 (of the system): workers that are forked from a process in which `random.seed` was called
#
# Guess: each worker draws the same numbers, in each run; so it is with NumPy's global state and with one's own generator.
# Behaviour: the module's own generator, and no other, is seeded anew from the system's entropy in each child that is forked:
# workers differ from each other and from run to run. The parent goes on as it was seeded.
. "$(dirname "$0")/common.sh"
python3 --version

cat >draw.py <<'PYTHON'
import multiprocessing, random
own = random.Random(7)
def draw(_):
    return random.random(), own.random()
if __name__ == "__main__":
    random.seed(7)
    expected = random.Random(7).random()
    context = multiprocessing.get_context("fork")
    drawn = []
    for _ in range(2):
        with context.Pool(1) as pool:  # one worker, so that both are the first draws of their process
            drawn += pool.map(draw, [0])
    print(len({each for each, _ in drawn} | {expected}), {each for _, each in drawn} == {expected}, random.random() == expected)
PYTHON
seen "different first numbers of the seeded parent and two workers; own generators as seeded; the parent as seeded" \
    "$(python3 draw.py)" "3 True True"
