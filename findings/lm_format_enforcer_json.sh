#!/usr/bin/env bash
# lm-format-enforcer 0.11.3 (pydantic 2.14.4): what a model may write for a JSON schema
#
# Guess: JSON that fits the schema, and each text that fits; what cannot be enforced is an error.
# Behaviour: texts of an enum are written as they are: of "a\nb" the only answer has a line end within its quotes, and is no JSON;
# of 'a"b' it is "a". A maximum, `multipleOf`, `uniqueItems` and
# formats do not count; 1e2 is an integer. A text may not hold "é", only \u00e9; a field's name may. The pattern "a" fits "a" alone,
# and a field that is not named is refused, as if `additionalProperties` were false. {"const": 5} is an AttributeError.
. "$(dirname "$0")/common.sh"
packages lm-format-enforcer==0.11.3 pydantic==2.14.4

cat >allowed.py <<'PYTHON'
from lmformatenforcer import JsonSchemaParser
def allowed(schema, text):
    try:
        parser = JsonSchemaParser(schema)
        for character in text:
            if character not in parser.get_allowed_characters():
                return "no"
            parser = parser.add_character(character)
        return "yes" if parser.can_end() else "no"
    except Exception as error:
        return type(error).__name__
def show(*pairs):
    print(*(allowed(schema, text) for schema, text in pairs))
text, integer = {"type": "string"}, {"type": "integer"}
show(({"enum": ["a\nb"]}, '"a\nb"'), ({"enum": ["a\nb"]}, '"a\\nb"'), ({"enum": ['a"b']}, '"a"'), ({"enum": ['a"b']}, '"a\\"b"'))
show(({**integer, "maximum": 5}, "100"), ({"type": "number", "multipleOf": 0.5}, "0.3"), (integer, "1e2"),
     ({"type": "array", "items": integer, "uniqueItems": True}, "[1,1]"), ({**text, "format": "date"}, '"x"'))
show((text, '"é"'), (text, '"\\u00e9"'), (text, '"e"'), ({**text, "pattern": "a"}, '"bab"'), ({**text, "pattern": "a"}, '"a"'))
show(({"type": "object", "properties": {"é": integer}}, '{"é":1}'), ({"type": "object", "properties": {"a": integer}}, '{"b":1}'), ({"const": 5}, "5"))
PYTHON
python allowed.py >out 2>errors || { cat errors >&2; exit 2; }
seen "a line end and \\n for the text of an enum; \"a\" and \"a\\\"b\" for that of another, a\"b" "$(sed -n 1p out)" "yes no yes no"
seen "100 for at most 5; 0.3 for multiples of 0.5; 1e2 for an integer; [1,1] for unique items; x for a date" "$(sed -n 2p out)" "yes yes yes yes yes"
seen "as texts: é, \\u00e9, e; bab and a for the pattern a" "$(sed -n 3p out)" "no yes yes no yes"
seen "é as a field's name; a field that is not named; 5 for const 5" "$(sed -n 4p out)" "yes no AttributeError"
