#!/usr/bin/env bash
# jsonschema 4.26.0, fastjsonschema 2.22.3, jsonschema-rs 0.61.2: the arguments of a tool call, checked by its schema
#
# Guess: all three say the same, as the schema has one meaning; fastjsonschema refuses what it does not know.
# Behaviour: for jsonschema, 0.3 is no multiple of 0.1, "a\n" fits ^[a-z]+$, other digits fit \d, and NaN is a number of at most 1.
# fastjsonschema knows the drafts up to 7, and skips `prefixItems`, `dependentRequired`, `unevaluatedProperties` and what stands
# beside a `$ref`, without a word; `format` counts for it alone; and it writes defaults into the arguments.
. "$(dirname "$0")/common.sh"
packages jsonschema==4.26.0 fastjsonschema==2.22.3 jsonschema-rs==0.61.2

cat >check.py <<'PYTHON'
import fastjsonschema
import jsonschema
import jsonschema_rs
cases = (
    ({"multipleOf": 0.1}, 0.3), ({"pattern": "^[a-z]+$"}, "a\n"), ({"pattern": r"^\d+$"}, "\u0663"),
    ({"type": "number", "maximum": 1}, float("nan")),
    ({"prefixItems": [{"type": "string"}]}, [1]), ({"dependentRequired": {"a": ["b"]}}, {"a": 1}),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}),
    ({"$ref": "#/$defs/a", "maximum": 1, "$defs": {"a": {"type": "integer"}}}, 5), ({"format": "date"}, "tomorrow"),
)
checks = (
    lambda schema, value: jsonschema.validate(value, schema),
    lambda schema, value: fastjsonschema.validate(schema, value),
    lambda schema, value: jsonschema_rs.validate(schema, value),
)
def fits(check, schema, value):
    try:
        check(schema, value)
    except ValueError:
        return "no"
    except Exception as error:
        assert "Validation" in type(error).__name__, error
        return "no"
    return "yes"
for schema, value in cases:
    print(*(fits(check, schema, value) for check in checks))
arguments = {}
fastjsonschema.validate({"properties": {"limit": {"default": 5}}}, arguments)
print(arguments)
PYTHON
python check.py >out
seen "0.3 as a multiple of 0.1, by the three" "$(sed -n 1p out)" "no yes yes"
seen "a and a line end for ^[a-z]+\$" "$(sed -n 2p out)" "yes no no"
seen "an Arabic digit for \\d" "$(sed -n 3p out)" "yes yes no"
seen "NaN as a number of at most 1" "$(sed -n 4p out)" "yes yes no"
seen "prefixItems" "$(sed -n 5p out)" "no yes no"
seen "dependentRequired" "$(sed -n 6p out)" "no yes no"
seen "unevaluatedProperties" "$(sed -n 7p out)" "no yes no"
seen "a maximum beside a reference" "$(sed -n 8p out)" "no yes no"
seen "tomorrow as a date" "$(sed -n 9p out)" "yes no yes"
seen "the arguments {} after fastjsonschema" "$(sed -n 10p out)" "{'limit': 5}"
