#!/usr/bin/env bash
# diskcache 5.6.3 and joblib 1.6.0: a cache whose key is a list of messages, once made by the program, once read from JSON
#
# Guess: equal keys of equal types find the same entry.
# Behaviour: keys are compared as pickles, and a pickle says which parts are one object: messages that the program made
# with the same text or the same dict twice are another key than equal ones from a file, so that a model is asked and
# samples once more. joblib takes care of texts, not of dicts and tuples.
. "$(dirname "$0")/common.sh"
packages diskcache==5.6.3 joblib==1.6.0

cat >keys.py <<'PYTHON'
import json
import diskcache
import joblib
reminder = ("user", "continue")
made = (reminder, ("tool", "done"), reminder)
read = tuple(map(tuple, json.loads(json.dumps(made))))
cache = diskcache.Cache("cache")
cache[made] = "an answer"
print(made == read, read in cache, joblib.hash(made) == joblib.hash(read))
text = "continue"
made, read = (text, text), tuple(json.loads(json.dumps((text, text))))
cache[made] = "an answer"
print(made == read, read in cache, joblib.hash(made) == joblib.hash(read))
PYTHON
python keys.py >out
seen "a message twice: equal, found by diskcache, equal for joblib" "$(sed -n 1p out)" "True False False"
seen "a text twice: equal, found by diskcache, equal for joblib" "$(sed -n 2p out)" "True False True"
