#!/usr/bin/env bash
# Berkeley Function Calling Leaderboard, bfcl-eval 2026.3.23: texts among the arguments of a call
#
# Guess: a text counts as right if it is one of those that are allowed; perhaps without regard to case and outer spaces.
# Behaviour: spaces and , . / - _ * ^ are taken out of both, within lists and dicts as well: 15 is "1.5", 5 is "-5", "x2" is "x^2"
# and "x/2". An exclamation mark and a line end count. An integer is right where a float is wanted, but not within a list.
. "$(dirname "$0")/common.sh"
packages_alone bfcl-eval==2026.3.23

cat >check.py <<'PYTHON'
import sys, types
# The table of models needs all of their clients; the checker asks it only whether names have dots.
table = types.ModuleType("bfcl_eval.constants.model_config")
table.MODEL_CONFIG_MAPPING = {"none": types.SimpleNamespace(underscore_to_dot=False)}
sys.modules[table.__name__] = table
from bfcl_eval.constants.enums import Language
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
def right(kind, allowed, given, **more):
    properties = {"value": {"type": kind, **more}}
    function = {"name": "call", "parameters": {"type": "dict", "properties": properties, "required": ["value"]}}
    answer, calls = [{"call": {"value": [allowed]}}], [{"call": {"value": given}}]
    return ast_checker([function], calls, answer, Language.PYTHON, "simple", "none")["valid"]
print(right("string", "1.5", "15"), right("string", "-5", "5"), right("string", "x^2", "x/2"), right("dict", {"a": ["1.5"]}, {"a": "15"}))
print(right("string", "hello!", "hello"), right("string", "a\n", "a"))
print(right("float", 5.0, 5), right("array", [5.0], [5], items={"type": "float"}))
PYTHON
python check.py 2>errors >out || { cat errors >&2; exit 2; }
seen "1.5 and 15, -5 and 5, x^2 and x/2, 1.5 and 15 in a dict" "$(sed -n 1p out)" "True True True True"
seen "hello! and hello, a line end and none" "$(sed -n 2p out)" "False False"
seen "5 for a float, 5 in a list of floats" "$(sed -n 3p out)" "True False"
