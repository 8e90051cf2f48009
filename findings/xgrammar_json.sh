#!/usr/bin/env bash
# xgrammar 0.2.9 (PyTorch 2.13.0, transformers 4.57.1): what a model may write for a JSON schema
#
# Guess: JSON that fits the schema, and each text that fits; what cannot be enforced is an error.
# Behaviour: with a `maxLength`, a text may hold no quote, line end or backslash at all, as escapes are refused. The pattern ^a\nb$ asks for a line end within the quotes, and
# ^a"b$ for a quote, which is no JSON. A required field that `properties` do not name need not be there: {"a": 1} is allowed, and by default {"z": 1} is refused.
# `not`, `if`, a minimum without a type, what stands beside `enum`, `anyOf` or `$ref`, and all of an `allOf` with two parts do not count, at most with a warning. 1e5 is no
# number of at least 0.
. "$(dirname "$0")/common.sh"
packages torch==2.13.0 numpy==2.3.4
packages xgrammar==0.2.9 transformers==4.57.1

cat >allowed.py <<'PYTHON'
import json
from xgrammar import Grammar
from xgrammar.testing import _is_grammar_accept_string
def show(*pairs):
    print(*("yes" if _is_grammar_accept_string(Grammar.from_json_schema(json.dumps(schema)), text) else "no" for schema, text in pairs))
text, integer = {"type": "string"}, {"type": "integer"}
short = {**text, "maxLength": 99}
show((text, '"a\\nb"'), (short, '"ab"'), (short, '"a\\nb"'), (short, '"a\\"b"'))
show(({**text, "pattern": "^a\\nb$"}, '"a\nb"'), ({**text, "pattern": "^a\\nb$"}, '"a\\nb"'), ({**text, "pattern": '^a"b$'}, '"a"b"'))
needs = {"type": "object", "properties": {"a": integer}, "required": ["z"]}
show((needs, '{"a":1}'), (needs, '{"z":1}'))
both = [{"type": "object", "properties": {name: integer}, "required": [name]} for name in "ab"]
show(({"not": integer}, "5"), ({"if": integer, "then": {"minimum": 5}}, "3"), ({"minimum": 5}, "3"), ({**integer, "enum": ["a"]}, '"a"'), ({"allOf": both}, "5"),
     ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}, "[]"), ({"$ref": "#/$defs/n", "maximum": 3, "$defs": {"n": integer}}, "5"))
least = {"type": "number", "minimum": 0}
show((least, "0.5"), (least, "1e5"), ({"type": "number"}, "1e5"))
PYTHON
python allowed.py >out 2>errors || { cat errors >&2; exit 2; }
seen "a line end as \\n in a text; with a maxLength: ab, \\n, a quote" "$(sed -n 1p out)" "yes yes no no"
seen "for ^a\\nb\$: a line end, \\n; for ^a\"b\$: a quote without a backslash" "$(sed -n 2p out)" "yes no yes"
seen "z is required, a is named: a alone, z alone" "$(sed -n 3p out)" "yes no"
seen "not, if, minimum without a type, type beside enum, allOf, type beside anyOf, maximum beside \$ref: what does not fit" "$(sed -n 4p out)" "yes yes yes yes yes yes yes"
seen "at least 0: 0.5, 1e5; a number: 1e5" "$(sed -n 5p out)" "yes no yes"
