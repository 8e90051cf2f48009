#!/usr/bin/env bash
# inspect-evals 0.26.0: the scorer of AssistantBench
#
# Guess: texts are compared by their words, numbers by their ratio, and a number that is farther away has fewer points.
# Behaviour: a text with digits is its first number: "iPhone 15" is "Galaxy 15", "1 minute" is "about 1 hour", and of dates
# the year counts. For 100 the answer -1 has 0.69 points, 9 has none; if the truth is 0, 0.0001 has none. Lists may be in
# any order, and "yes" in place of ["yes"] has none.
. "$(dirname "$0")/common.sh"
packages inspect-ai==0.3.285
packages_alone inspect-evals==0.26.0

cat >score.py <<'PYTHON'
import sys
import sysconfig
import types
for name in ("inspect_evals", "inspect_evals.assistant_bench"):  # their own would import what loads data sets
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [sysconfig.get_path("purelib") + "/" + name.replace(".", "/")]
from inspect_evals.assistant_bench.scoring import score_answer
for truth, answer in (
    ("Galaxy 15", "iPhone 15"), ("about 1 hour", "1 minute"), ("2026-05-01", "2026-11-30"), ("Galaxy", "iPhone"),
    ("100", "-1"), ("100", "9"), ("100", "50"), ("0", "0.0001"), ("[1, 2]", "[2, 1]"), ('["yes"]', "yes"),
):
    print(round(float(score_answer(answer, truth)), 2))
PYTHON
python score.py 2>errors >out || { cat errors >&2; exit 2; }
seen "iPhone 15 for Galaxy 15" "$(sed -n 1p out)" 1.0
seen "1 minute for about 1 hour, 2026-11-30 for 2026-05-01" "$(sed -n 2,3p out | xargs)" "1.0 1.0"
seen "iPhone for Galaxy" "$(sed -n 4p out)" 0.0
seen "for 100: -1, 9 and 50" "$(sed -n 5,7p out | xargs)" "0.69 0.0 0.7"
seen "0.0001 for 0" "$(sed -n 8p out)" 0.0
seen "[2, 1] for [1, 2], yes for [yes]" "$(sed -n 9,10p out | xargs)" "1.0 0.0"
