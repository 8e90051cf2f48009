#!/usr/bin/env bash
# minijinja 3.1.0, Jinja2 3.1.6: chat templates, rendered by a server in Rust and by Python
#
# Guess: one text, or an error.
# Behaviour: a field that has the name of a method is the field for MiniJinja and the method for Jinja2, as `items` of a schema and `values` of
# a call's arguments. A text is a sequence for Jinja2 alone, so that `content is sequence` takes the other branch. 1e16 and 1e-7 are written out by MiniJinja, its
# `tojson` leaves keys in their order, letters as they are, and makes NaN null. 1 < "a" is true for it, and 10 < "9" as well; for Jinja2 it is an error.
. "$(dirname "$0")/common.sh"
packages minijinja==3.1.0 jinja2==3.1.6

cat >render.py <<'PYTHON'
import jinja2, minijinja
schema = {"type": "array", "items": {"type": "string"}}
for text, values in (
    ("{% if p.items is mapping %}{{ p.items.type }}{% else %}none{% endif %}", {"p": schema}),
    ("{% for c in calls %}{% if c.arguments.values is string %}{{ c.arguments.values }}{% else %}?{% endif %}{% endfor %}",
     {"calls": [{"arguments": {"values": "a,b"}}]}),
    ("{% if content is sequence %}{{ content | length }} parts{% else %}{{ content }}{% endif %}", {"content": "hi"}),
    ("{{ a }} {{ b }}", {"a": 1e16, "b": 1e-7}),
    ("{{ a | tojson }}", {"a": {"b": "\u00e4", "a": float("nan")}}),
    ("{{ 10 < n }}", {"n": "9"}),
    ("{{ s | int }}", {"s": "none"}),
):
    for render in (lambda: jinja2.Environment().from_string(text).render(**values), lambda: minijinja.Environment().render_str(text, **values)):
        try:
            print(render())
        except Exception as error:
            print("error")
PYTHON
python render.py >out
line=1
both() { seen "$1" "$(sed -n "$line,$((line + 1))p" out | paste -sd'|')" "$2"; line=$((line + 2)); }
echo "by Jinja2 | MiniJinja:"
both "the field items of a schema" "none|string"
both "the argument values of a call" "?|a,b"
both "the content hi, tested for a sequence" "2 parts|hi"
both "1e16 and 1e-7" "1e+16 1e-07|10000000000000000.0 0.0000001"
both "tojson" '{"a": NaN, "b": "\u00e4"}|{"b": "ä", "a": null}'
both "10 < a text 9" "error|True"
both "the text none as an integer" "0|error"
