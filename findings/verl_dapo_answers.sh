#!/usr/bin/env bash
# verl 0.9.1: `math_dapo.compute_score`, the reward of DAPO, and of data sources whose names begin with "aime"
#
# Guess: 1 for the right number behind "Answer:", however it is written, and -1 for another answer.
# Behaviour: -1 for "Answer: 42." and "**Answer:** 42", as the full stop and the stars belong to the answer; also for a right
# box below a line with "answer:". Units, the article "a", and commas between digits are dropped wherever they are, so
# that 3a + 2 is 3 + 2, "5 hours" is "5 minutes", and "1, 2" is 12; of an equation the right side counts.
. "$(dirname "$0")/common.sh"
packages_alone verl==0.9.1

cat >score.py <<'PYTHON'
import runpy
import sysconfig
module = runpy.run_path(sysconfig.get_path("purelib") + "/verl/utils/reward_score/math_dapo.py")
for answer, truth in (
    ("Answer: 42", "42"), ("Answer: 42.", "42"), ("**Answer:** 42", "42"), ("An answer: below.\n\\boxed{42}", "42"),
    ("Answer: 3a + 2", "3 + 2"), ("Answer: 5 hours", "5 minutes"), ("Answer: 12", "1, 2"), ("Answer: x = 42", "y = 42"),
):
    print(module["compute_score"](answer, truth)["score"])
PYTHON
python score.py >out
seen "Answer: 42" "$(sed -n 1p out)" 1.0
seen "Answer: 42." "$(sed -n 2p out)" -1.0
seen "**Answer:** 42" "$(sed -n 3p out)" -1.0
seen 'An answer: below. \boxed{42}' "$(sed -n 4p out)" -1.0
seen "3a + 2 for 3 + 2" "$(sed -n 5p out)" 1.0
seen "5 hours for 5 minutes" "$(sed -n 6p out)" 1.0
seen "12 for 1, 2" "$(sed -n 7p out)" 1.0
seen "x = 42 for y = 42" "$(sed -n 8p out)" 1.0
