#!/usr/bin/env bash
# Jinja2 3.1.6 beside transformers 4.57.1: one chat template with `tojson`
#
# Guess: both write the tool call as `json.dumps` does: a chat template is Jinja, and `tojson` is Jinja's filter.
# Behaviour: Jinja itself sorts the keys and escapes for HTML, with \u0027 for an apostrophe; transformers has another
# filter of that name, and drops line ends after tags. A prompt rendered by plain Jinja is another prompt.
. "$(dirname "$0")/common.sh"
packages jinja2==3.1.6 transformers==4.57.1

cat >render.py <<'END'
import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template
template = "{% for call in calls %}\n{{ call | tojson }}\n{% endfor %}"
calls = [{"name": "bash", "arguments": {"command": "echo 'a' > b"}}]
print(repr(jinja2.Environment().from_string(template).render(calls=calls)))
print(repr(_compile_jinja_template(template).render(calls=calls)))
END
python render.py 2>errors >out
seen "Jinja" "$(sed -n 1p out)" \
    "'\\n{\"arguments\": {\"command\": \"echo \\\\u0027a\\\\u0027 \\\\u003e b\"}, \"name\": \"bash\"}\\n'"
seen "transformers" "$(sed -n 2p out)" \
    "'{\"name\": \"bash\", \"arguments\": {\"command\": \"echo \\'a\\' > b\"}}\\n'"
