#!/usr/bin/env bash
# llguidance 1.9.1: what a model may write for a JSON schema
#
# Guess: each JSON text that fits the schema, in the order of its fields.
# Behaviour: a number with a minimum or maximum may have no exponent, so that 1e-3 is refused, and 0.001 is not. The texts "\u00e9" and "\/" are refused, and "é" for \w.
# A required field that `properties` do not name comes behind those that they do: {"z": 1, "a": 2} is refused. An object of any fields may have one twice.
# `uniqueItems`, and the format `regex`, are errors.
. "$(dirname "$0")/common.sh"
packages llguidance==1.9.1

cat >allowed.py <<'PYTHON'
import json
from llguidance import LLMatcher, LLTokenizer
tokenizer = LLTokenizer("byte")
def allowed(schema, text):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    if matcher.is_error():
        return "error"
    tokens = tokenizer.tokenize_str(text)
    if matcher.validate_tokens(tokens) < len(tokens):
        return "no"
    matcher.consume_tokens(tokens)
    return "yes" if matcher.is_accepting() else "no"
def show(*pairs):
    print(*(allowed(schema, text) for schema, text in pairs))
number, text, least = {"type": "number"}, {"type": "string"}, {"type": "number", "minimum": 0}
show((number, "1e-3"), (least, "1e-3"), (least, "0.001"), ({"type": "number", "maximum": 1000000}, "1e5"))
show((text, '"é"'), (text, '"\\u00e9"'), (text, '"\\/"'), (text, '"\\n"'), ({**text, "pattern": "^\\w+$"}, '"é"'))
needs = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["z"]}
show((needs, '{"a":2,"z":1}'), (needs, '{"z":1,"a":2}'), (needs, '{"z":1}'), ({"type": "object"}, '{"a":1,"a":2}'))
show(({"type": "array", "uniqueItems": True}, "[1]"), ({**text, "format": "regex"}, '"x"'))
PYTHON
python allowed.py >out
seen "1e-3 for a number; 1e-3 and 0.001 for at least 0; 1e5 for at most 1000000" "$(sed -n 1p out)" "yes no yes no"
seen "as texts: é, \\u00e9, \\/, \\n; é for the pattern ^\\w+\$" "$(sed -n 2p out)" "yes no no yes no"
seen "z required, a named: a and z, z and a, z; a field twice" "$(sed -n 3p out)" "yes no yes yes"
seen "uniqueItems; the format regex" "$(sed -n 4p out)" "error error"
