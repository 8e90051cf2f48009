#!/usr/bin/env bash
# smolagents 1.26.0: the code that is found in what a model wrote, and the arguments of a call that was written as JSON
#
# Guess: what stands between <code> and </code>, as it stands there, or an error; arguments that are texts stay texts.
# Behaviour: the first </code> ends it, also one within a literal, and a <code> that a thought names begins it. The first line loses its
# indentation, and the others keep theirs, which Python refuses. Without tags a word or a number is code. A call whose
# arguments are the text "5" or "null" has 5 or None; "007" stays. A cut to 10 characters has 79.
. "$(dirname "$0")/common.sh"
packages huggingface-hub==1.2.3 pillow==12.0.0 requests==2.32.5 rich==14.2.0 jinja2==3.1.6 python-dotenv==1.2.1
packages_alone smolagents==1.26.0

cat >parse.py <<'PYTHON'
from smolagents.models import get_tool_call_from_text
from smolagents.utils import parse_code_blobs, truncate_content
def code(text):
    try:
        return parse_code_blobs(text, ("<code>", "</code>"))
    except ValueError as error:
        return type(error).__name__
print([code(text) for text in (
    "<code>\nprint('</code>')\n</code>", "I close the <code> tag.\n<code>\nx = 1\n</code>", "<code>\n    x = 1\n    y = 2\n</code>",
)])
print([code(text) for text in ("done", "42", "I am done.", "```python\nx = 1\n```", "```\nx = 1\n```")])
print([get_tool_call_from_text(f'{{"name": "write", "arguments": "{text}"}}', "name", "arguments").function.arguments for text in ("5", "null", "007")])
print(len(truncate_content("x" * 100, 10)))
PYTHON
python parse.py >out
seen "a tag within a literal, a tag in a thought, two indented lines" "$(sed -n 1p out)" \
    "[\"print('\", 'tag.\\n<code>\\nx = 1', 'x = 1\\n    y = 2']"
seen "done; 42; I am done; Python in a block; the same without its name" "$(sed -n 2p out)" "['done', '42', 'ValueError', 'x = 1', 'ValueError']"
seen 'the arguments "5", "null" and "007"' "$(sed -n 3p out)" "[5, None, '007']"
seen "100 characters, cut to 10" "$(sed -n 4p out)" 79
