#!/usr/bin/env bash
# anthropic 2.14.0: `transform_schema`, by which a type or a schema becomes one for structured outputs
#
# Guess: what an answer can be stays, or the schema is refused, where the service does not know a word of it.
# Behaviour: such words become a text in the description, so that they bind nothing. dict[str, int] is an object that must be empty, a tuple is a list
# of anything, and 2 as the least number of entries is gone while 1 stays. A default is a text as well, and its field is not required. Beside a
# reference the description is dropped. A list of types, as ["string", "null"], is an AssertionError.
. "$(dirname "$0")/common.sh"
packages anthropic==2.14.0 pydantic==2.14.3

cat >schema.py <<'PYTHON'
import json
from anthropic import transform_schema
from pydantic import BaseModel, Field
class Inner(BaseModel):
    x: int
class Answer(BaseModel):
    counts: dict[str, int]
    pair: tuple[int, str]
    two: list[int] = Field(min_length=2)
    one: list[int] = Field(min_length=1)
    share: float = Field(0.5, ge=0, le=1)
    inner: Inner = Field(description="the smaller one")
schema = transform_schema(Answer)
for name in Answer.model_fields:
    print(json.dumps({key: value for key, value in schema["properties"][name].items() if key != "title"}))
print(json.dumps(schema["required"]))
try:
    print(transform_schema({"type": ["string", "null"]}))
except AssertionError as error:
    print(type(error).__name__)
PYTHON
python schema.py >out
line() { sed -n "$1p" out; }
seen "dict[str, int]" "$(line 1)" '{"type": "object", "properties": {}, "additionalProperties": false}'
seen "tuple[int, str]" "$(line 2)" '{"type": "array", "description": "{maxItems: 2, prefixItems: [{'"'type'"': '"'integer'"'}, {'"'type'"': '"'string'"'}], minItems: 2}"}'
seen "at least two" "$(line 3)" '{"type": "array", "items": {"type": "integer"}, "description": "{minItems: 2}"}'
seen "at least one" "$(line 4)" '{"type": "array", "items": {"type": "integer"}, "minItems": 1}'
seen "from 0 to 1, 0.5 if it is not given" "$(line 5)" '{"type": "number", "description": "{default: 0.5, maximum: 1, minimum: 0}"}'
seen "another class, with a description" "$(line 6)" '{"$ref": "#/$defs/Inner"}'
seen "required" "$(line 7)" '["counts", "pair", "two", "one", "inner"]'
seen 'the types ["string", "null"]' "$(line 8)" 'AssertionError'
