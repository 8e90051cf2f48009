#!/usr/bin/env bash
# dspy 3.4.1: the fields of an answer by its adapters, and `answer_exact_match`
#
# Guess: None of Optional[str] is None; a text comes as it was written; of two objects in JSON the first, or an error; equal texts.
# Behaviour: None and null are the texts "None" and "null". The first line of a text loses its indentation, so that code is not valid. Of two objects in
# JSON the last counts, and behind a comma the first; of a list its only one does. In XML "a < b" is an error, and two fields of one name are a text, "['x', 'y']". Exactly equal
# are 42 and -42, 1.5 and 15, C++ and C, "a" and "the".
. "$(dirname "$0")/common.sh"
packages dspy==3.4.1

cat >answers.py <<'PYTHON'
import ast, dspy
from dspy.adapters import ChatAdapter, JSONAdapter, XMLAdapter
from dspy.evaluate.metrics import answer_exact_match
def field(adapter, kind, text):
    try:
        return repr(adapter.parse(dspy.Signature(f"question -> a: {kind}"), text)["a"])
    except Exception as error:
        return type(error).__name__
def chat(text):
    return f"[[ ## a ## ]]\n{text}\n\n[[ ## completed ## ]]"
print(*(field(ChatAdapter(), "Optional[str]", chat(text)) for text in ("None", "null")))
print(field(ChatAdapter(), "str", chat("    x = 1\n    y = 2")))
print(*(field(JSONAdapter(), "int", text) for text in ('{"a": 5} then {"a": 6}', '{"a": 5}, then {"a": 6}', '[{"a": 5}]')))
print(*(field(XMLAdapter(), "str", text) for text in ("<a>a < b</a>", "<a>x</a><a>y</a>")))
for truth, answer in (("42", "-42"), ("1.5", "15"), ("C++", "C"), ("a", "the"), ("yes", "no")):
    print(int(answer_exact_match(dspy.Example(answer=truth), dspy.Prediction(answer=answer))), end=" ")
PYTHON
export DSPY_CACHEDIR=$work/cache
python answers.py 2>errors | grep -v 'F1 Metric\|^\[\|^$' >out || { cat errors >&2; exit 2; }
seen "None and null for Optional[str]" "$(sed -n 1p out)" "'None' 'null'"
seen "two lines, each with four spaces" "$(sed -n 2p out)" "'x = 1\\n    y = 2'"
seen "two objects, with a comma between, and a list of one" "$(sed -n 3p out)" "6 5 5"
seen "XML: a < b, and two fields" "$(sed -n 4p out)" "AdapterParseError \"['x', 'y']\""
seen "42 and -42, 1.5 and 15, C++ and C, a and the; yes and no" "$(sed '1,4d' out | xargs)" "1 1 1 1 0"
