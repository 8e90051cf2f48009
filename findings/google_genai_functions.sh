#!/usr/bin/env bash
# google-genai 3.6.1: a Python function as a tool, its schema, and a call of it
#
# Guess: each argument is in the schema; what has a default is not required; a number that fits is taken, and another type is an error.
# Behaviour: a tuple beside other arguments is missing from the schema, though the function needs it, and alone it stands where the whole schema should.
# A field of a class with a default is required. int | str is a number or a text, and at the same time an object. In a call 1 is an error for
# Optional[float] and taken for float, True is taken for int as it is, and an argument that the function lacks is dropped.
. "$(dirname "$0")/common.sh"
packages google-genai==3.6.1 pydantic==2.14.3

cat >functions.py <<'PYTHON'
import json
from typing import Optional
from google.genai import types
from google.genai._extra_utils import invoke_function_from_dict_args
from pydantic import BaseModel
class Point(BaseModel):
    x: int
    y: float = 1.0
def move(steps: list[int], to: tuple[int, int]) -> str:
    "Moves."
def jump(to: tuple[int, int]) -> str:
    "Jumps."
def draw(point: Point, colour: int | str = 0) -> str:
    "Draws."
for function in (move, jump, draw):
    told = types.FunctionDeclaration.from_callable_with_api_option(callable=function, api_option="GEMINI_API").model_dump(exclude_none=True, mode="json")
    print(json.dumps({key: value for key, value in told.items() if key not in ("name", "description")}))
def call(n: int = 0, share: float = 0.5, limit: Optional[float] = None):
    return n, share, limit
for given in ({"share": 1}, {"limit": 1}, {"n": True}, {"nn": 3}):
    try:
        print(invoke_function_from_dict_args(given, call))
    except Exception as error:
        print(type(error).__name__)
PYTHON
python functions.py 2>errors >out || { cat errors >&2; exit 2; }
line() { sed -n "$1p" out; }
seen "steps: list[int], to: tuple[int, int]" "$(line 1)" '{"parameters": {"properties": {"steps": {"items": {"type": "INTEGER"}, "type": "ARRAY"}}, "required": ["steps"], "type": "OBJECT"}}'
seen "to: tuple[int, int]" "$(line 2)" \
    '{"parameters_json_schema": {"to": {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "integer"}], "type": "array", "unevaluatedItems": false}}}'
seen "point: Point, colour: int | str = 0" "$(line 3)" \
    '{"parameters": {"properties": {"point": {"properties": {"x": {"type": "INTEGER"}, "y": {"type": "NUMBER"}}, "required": ["x", "y"], "type": "OBJECT"}, "colour": {"any_of": [{"type": "INTEGER"}, {"type": "STRING"}], "default": 0, "type": "OBJECT"}}, "required": ["point"], "type": "OBJECT"}}'
seen "called with 1 for a float" "$(line 4)" "(0, 1, None)"
seen "with 1 for Optional[float]" "$(line 5)" "UnknownFunctionCallArgumentError"
seen "with True for an int" "$(line 6)" "(True, 0.5, None)"
seen "with nn=3" "$(line 7)" "(0, 0.5, None)"
