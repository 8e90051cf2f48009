#!/usr/bin/env bash
# @huggingface/jinja 0.5.11, Jinja2 3.1.6: chat templates in JavaScript, and in Python
#
# Guess: one text, or an error, as the templates are those of the models.
# Behaviour: true is "true" and "True", null is empty and "None", a list and an object are JSON. 1 == "1" is true, and [1] == [1] false; -7 % 3 is -1, and 2. What is missing in what is missing
# is empty, and not an error; an object is not iterable, and `lstrip` takes white space alone.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund @huggingface/jinja@0.5.11 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: @huggingface/jinja@0.5.11; Node.js $(node --version)"

packages jinja2==3.1.6
cat >cases.json <<'JSON'
[["{{ a }} {{ b }}", {"a": true, "b": null}], ["{{ a }}", {"a": [1, "x"]}], ["{{ a == '1' }} {{ b == c }}", {"a": 1, "b": [1], "c": [1]}],
 ["{{ -7 % 3 }}", {}], ["{{ a.b.c }}", {"a": {}}], ["{{ a.lstrip('<') }}", {"a": "<a"}], ["{{ a | title }}", {"a": "it's"}],
 ["{% if a is iterable %}parts{% else %}text{% endif %}", {"a": {"type": "text"}}]]
JSON
cat >render.mjs <<'JS'
import fs from 'fs'
import { Template } from '@huggingface/jinja'
for (const [text, values] of JSON.parse(fs.readFileSync('cases.json'))) {
  try { console.log(new Template(text).render(values)) } catch { console.log('error') }
}
JS
cat >render.py <<'PYTHON'
import json
import jinja2
for text, values in json.load(open("cases.json")):
    try:
        print(jinja2.Template(text).render(**values))
    except jinja2.UndefinedError:
        print("error")
PYTHON
node render.mjs >first
python render.py >second
line=0
both() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p first)|$(sed -n ${line}p second)" "$2"; }
echo "by @huggingface/jinja | Jinja2:"
both "true and null" "true |True None"
both "a list" '[1, "x"]|[1, '"'x'"']'
both "1 == '1', [1] == [1]" "true false|False True"
both "-7 % 3" "-1|2"
both "a field of a missing field" "|error"
both "lstrip of <" "<a|a"
both "it's as a title" "It'S|It's"
both "an object, tested for iterable" "text|parts"
