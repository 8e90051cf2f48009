#!/usr/bin/env bash
# fastavro 1.13.1: rollouts as records with a schema, written and read again
#
# Guess: a record that does not fit the schema is an error; each record that is read is one of its own.
# Behaviour: a field that may be null and is misspelt is None, and its value is gone; 1.7 for a whole number is 1. Records that are
# added to a file follow the schema that the file has, not the one that is given: new fields are dropped. A default of the
# reader's schema is one list for all records. A pair as one of two types is a type's name and a value.
. "$(dirname "$0")/common.sh"
packages fastavro==1.13.1

cat >rows.py <<'PYTHON'
import io
import fastavro
def schema(**fields):
    parts = [{"name": name, **({"type": type} if not isinstance(type, dict) else type)} for name, type in fields.items()]
    return fastavro.parse_schema({"type": "record", "name": "rollout", "fields": parts})
texts = {"type": "array", "items": "string"}
def through(rows, written, read=None):
    file = io.BytesIO()
    fastavro.writer(file, written, rows)
    file.seek(0)
    return list(fastavro.reader(file, read))
print(through([{"task": "a", "rewrad": 1.0}], schema(task="string", reward=["null", "double"])))
print(through([{"steps": 1.7}], schema(steps="long")))
old, new = schema(task="string"), schema(task="string", reward={"type": "double", "default": 0.0})
for task, kind in ({"task": "a"}, old), ({"task": "b", "reward": 0.5}, new):
    with open("rollouts.avro", "a+b") as file:
        fastavro.writer(file, kind, [task])
with open("rollouts.avro", "rb") as file:
    print(list(fastavro.reader(file)))
rows = through([{"task": "a"}, {"task": "b"}], old, schema(task="string", calls={"type": texts, "default": []}))
rows[0]["calls"].append("ls")
print(rows)
print(through([{"answer": ["string", "x"]}, {"answer": ("string", "x")}], schema(answer={"type": ["string", texts]})))
PYTHON
python rows.py >out
seen "a misspelt reward" "$(sed -n 1p out)" "[{'task': 'a', 'reward': None}]"
seen "1.7 steps" "$(sed -n 2p out)" "[{'steps': 1}]"
seen "a file with another schema for the second record" "$(sed -n 3p out)" "[{'task': 'a'}, {'task': 'b'}]"
seen "a call added to the first record" "$(sed -n 4p out)" "[{'task': 'a', 'calls': ['ls']}, {'task': 'b', 'calls': ['ls']}]"
seen "a list of two texts, and a pair of them" "$(sed -n 5p out)" "[{'answer': ['string', 'x']}, {'answer': 'x'}]"
