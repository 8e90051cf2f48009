#!/usr/bin/env bash
# inspect-evals 0.26.0: GAIA's scorer, which is that of its leaderboard
#
# Guess: numbers are compared as numbers, however thousands are written, and texts but for case and punctuation at the end.
# Behaviour: a truth with a comma is a list: for 1,000 the answer 1000 is wrong, and "1,0" right. A truth that is no number
# alone loses all its punctuation: "1.5%" is 15, "1/2" is 12, "C++" is "C", and "-5 m" is "5m". For the truth 17 the
# answer "1,7" is right, and "17 apples" wrong.
. "$(dirname "$0")/common.sh"
packages inspect-ai==0.3.285
packages_alone inspect-evals==0.26.0

cat >score.py <<'PYTHON'
import sys
import sysconfig
import types
for name in ("inspect_evals", "inspect_evals.gaia"):  # their own would import what loads data sets
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [sysconfig.get_path("purelib") + "/" + name.replace(".", "/")]
from inspect_evals.gaia.scorer import question_scorer
for truth, answer in (
    ("1,000", "1,000"), ("1,000", "1000"), ("1,000", "1,0"), ("1.5%", "15"), ("1/2", "12"), ("C++", "C"), ("-5 m", "5m"),
    ("17", "1,7"), ("17", "17 apples"),
):
    print(question_scorer(answer, truth)[0])
PYTHON
python score.py 2>errors >out || { cat errors >&2; exit 2; }
seen "for 1,000: 1,000, 1000 and 1,0" "$(sed -n 1,3p out | xargs)" "True False True"
seen "15 for 1.5%, 12 for 1/2, C for C++, 5m for -5 m" "$(sed -n 4,7p out | xargs)" "True True True True"
seen "for 17: 1,7 and 17 apples" "$(sed -n 8,9p out | xargs)" "True False"
