#!/usr/bin/env bash
# deepdiff 9.1.0, jsondiff 2.2.1, dictdiffer 0.10.0: the rows and values of a sandbox's state, compared with those that a task asks for
#
# Guess: no difference means that the states are equal; the order of rows can be left out, their number cannot; 1 and true differ.
# Behaviour: DeepDiff with `ignore_order` leaves out how often a row is there, unless `report_repetition` is set: an order that was
# placed twice is as one that was placed once. For jsondiff and dictdiffer, true is 1 and false is 0, so that a patch of the
# one does not make the second state of the first.
. "$(dirname "$0")/common.sh"
packages deepdiff==9.1.0 jsondiff==2.2.1 dictdiffer==0.10.0

cat >compare.py <<'PYTHON'
import dictdiffer
import jsondiff
from deepdiff import DeepDiff
once = [{"user": "a", "amount": 5}, {"user": "b", "amount": 7}]
twice = [once[1], once[0], once[0], once[0]]
print(DeepDiff(once, twice, ignore_order=True), sorted(DeepDiff(once, twice, ignore_order=True, report_repetition=True)))
print(DeepDiff([once[0], once[1], once[1]], [once[0], once[0], once[1]], ignore_order=True))
before, after = {"admin": 0, "paid": 1}, {"admin": False, "paid": True}
print(sorted(DeepDiff(before, after)), jsondiff.diff(before, after), list(dictdiffer.diff(before, after)))
before, after = {"count": 1, "done": 1}, {"count": 2, "done": True}
print(jsondiff.patch(before, jsondiff.diff(before, after)), dictdiffer.patch(dictdiffer.diff(before, after), before))
PYTHON
python compare.py >out
seen "a row once, and three times; with report_repetition" "$(sed -n 1p out)" "{} ['repetition_change']"
seen "a, b, b and a, a, b" "$(sed -n 2p out)" "{}"
seen "0 and 1 for false and true, by the three" "$(sed -n 3p out)" "['type_changes'] {} []"
seen "patched to 2 and true" "$(sed -n 4p out)" "{'count': 2, 'done': 1} {'count': 2, 'done': 1}"
