#!/usr/bin/env bash
# outlines-core 0.2.14: the regular expression that it makes of a schema, by which a model's tokens are chosen
#
# Guess: each text that fits is right by the schema, or the schema is refused, as it is for `not`; a model can give each right value.
# Behaviour: `minimum`, `maximum`, `multipleOf`, `uniqueItems` and `patternProperties` are left out without a word, so that 11 fits a maximum of 10,
# and 31 February is a date. Keys come in the order of the schema alone, with no others for `additionalProperties: true`, and without
# indentation; 1e5 is not possible while 1e+5 is, and no letter as \u00e9. A `pattern` is for the whole text; without a type, depth is limited.
. "$(dirname "$0")/common.sh"
packages outlines-core==0.2.14

cat >fits.py <<'PYTHON'
import json, re
from outlines_core.json_schema import build_regex_from_schema
def fits(schema, *texts):
    try:
        pattern = build_regex_from_schema(json.dumps(schema))
    except ValueError as error:
        print(type(error).__name__)
    else:
        print(*("yes" if re.fullmatch(pattern, text) else "no" for text in texts))
whole = {"type": "integer"}
keys = {"type": "object", "properties": {"a": whole, "b": whole}, "required": ["a", "b"]}
fits({**whole, "minimum": 0, "maximum": 10}, "5", "11", "-1")
fits({**whole, "multipleOf": 5}, "7")
fits({"type": "array", "items": whole, "uniqueItems": True}, "[1, 1]")
fits({"type": "object", "patternProperties": {"^a": whole}}, '{"a": "x"}')
fits({"not": whole})
fits(keys, '{"a": 1, "b": 2}', '{"b": 2, "a": 1}', json.dumps({"a": 1, "b": 2}, indent=2))
fits({**keys, "additionalProperties": True}, '{"a": 1, "b": 2, "c": 3}')
fits({"type": "number"}, "0.5", "1e5", "1e+5")
fits({"type": "string"}, r'"\u00e9"', '"é"')
fits({"type": "string", "pattern": "[a-z]+"}, '"1a"')
fits({"type": "string", "format": "date"}, '"2026-02-31"')
fits({}, "[1]", "[[1]]", "[[[[1]]]]")
PYTHON
python fits.py >out
line=0
fits() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
fits "5, 11 and -1, for 0 to 10" "yes yes yes"
fits "7 as a multiple of 5" "yes"
fits "[1, 1] with uniqueItems" "yes"
fits "a text for patternProperties of whole numbers" "yes"
fits "a schema with not" "ValueError"
fits "keys in their order, in another, and with an indentation" "yes no no"
fits "one more key, with additionalProperties" "no"
fits "0.5, 1e5 and 1e+5" "yes no yes"
fits 'a text "\u00e9", and its letter' "no yes"
fits "1a for the pattern [a-z]+" "no"
fits "2026-02-31 as a date" "yes"
fits "lists of depth 1, 2 and 4, for any value" "yes yes no"
