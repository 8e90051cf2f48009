#!/usr/bin/env bash
# jsonpatch 1.33: the difference of two states, and a patch that does not fit
#
# Guess: 1 and true differ everywhere, as JSON; a patch that raises has changed nothing, also in place.
# Behaviour: a value of an object that becomes true in place of 1 is in the patch; an entry of a list is not, and the patch is empty. The test of 1 for true
# passes. With in_place=True a patch whose second operation raises has done the first. A list whose first entry is removed has each later one changed,
# if they are objects, so that the patch of one that is applied to a longer list changes others.
. "$(dirname "$0")/common.sh"
packages jsonpatch==1.33

cat >lists.py <<'PYTHON'
import json
import jsonpatch
def patch(before, after):
    return json.loads(jsonpatch.make_patch(before, after).to_string())
print(patch({"paid": 1}, {"paid": True}), patch([1], [True]), patch({"paid": [0, 1]}, {"paid": [False, 1.0]}))
print(jsonpatch.apply_patch({"paid": 1}, [{"op": "test", "path": "/paid", "value": True}]))
state = {"a": 1, "b": 2}
try:
    jsonpatch.apply_patch(state, [{"op": "remove", "path": "/a"}, {"op": "remove", "path": "/c"}], in_place=True)
except jsonpatch.JsonPatchConflict as error:
    print(type(error).__name__, state)
change = patch([{"id": 1}, {"id": 2}], [{"id": 2}])
print(change)
print(jsonpatch.apply_patch([{"id": 1}, {"id": 9}, {"id": 2}], change))
PYTHON
python lists.py >out
seen "1 becomes true: in an object, in a list, in a list of an object" "$(sed -n 1p out)" "[{'op': 'replace', 'path': '/paid', 'value': True}] [] []"
seen "tested for true, applied to 1" "$(sed -n 2p out)" "{'paid': 1}"
seen "two operations in place, of which the second raises" "$(sed -n 3p out)" "JsonPatchConflict {'b': 2}"
seen "the first of two objects is removed" "$(sed -n 4p out)" "[{'op': 'replace', 'path': '/0/id', 'value': 2}, {'op': 'remove', 'path': '/1'}]"
seen "applied where another one was inserted" "$(sed -n 5p out)" "[{'id': 2}, {'id': 2}]"
