#!/usr/bin/env bash
# jmespath 1.1.0: results of rollouts, chosen by an expression of JMESPath
#
# Guess: a text in quotes is a text, 0 is false, and a list of one field has as many entries as there are rollouts.
# Behaviour: double quotes are for names of fields, so that state == "failed" compares with a field `failed`, which is missing: it finds the
# rollouts without a state, and not those that failed. 0 is true, "" and [] are false. `runs[].reward` leaves out what is null or missing,
# so that the mean is that of the others, and the lists of two fields do not belong together. '1' is a text.
. "$(dirname "$0")/common.sh"
packages jmespath==1.1.0

cat >choose.py <<'PYTHON'
import sys
import jmespath
runs = [{"id": 1, "state": "failed", "reward": 0}, {"id": 2, "state": "passed", "reward": 1}, {"id": 3, "reward": None}]
for expression in sys.argv[1:]:
    print(jmespath.search(expression, {"runs": runs}))
PYTHON
chosen() { python choose.py "$@" | xargs; }
seen 'state == "failed"' "$(chosen 'runs[?state == "failed"].id')" "[3]"
seen "state == 'failed'" "$(chosen "runs[?state == 'failed'].id")" "[1]"
seen "reward, as a condition" "$(chosen 'runs[?reward].id')" "[1, 2]"
seen "reward == '1'" "$(chosen "runs[?reward == '1'].id")" "[]"
seen "the rewards of three, and their mean" "$(chosen 'runs[].reward' 'avg(runs[].reward)')" "[0, 1] 0.5"
