#!/usr/bin/env bash
# click 8.5.1 (`unstyle`), Rich 15.0.0 (`Text.from_ansi`), ansi2html 1.9.5, and strip-ansi 7.2.0 of npm: the output of a terminal as plain text
#
# Guess: each takes out all control sequences, and leaves the text as it is, or as a terminal shows it.
# Behaviour: Rich drops all of a line that ends with a carriage return, and so the whole output of a terminal, whose lines end with \r\n; of "long text",
# a carriage return and "ab" it has "ab". It makes the address of a link that ends with BEL, and a title, part of the text. click leaves links, titles
# and the choice of a character set, ansi2html leaves titles and the code that hides the cursor. Only strip-ansi takes out all of these.
. "$(dirname "$0")/common.sh"
needs node npm
packages click==8.5.1 rich==15.0.0 ansi2html==1.9.5
export HOME=$work
npm install --silent --no-audit --no-fund strip-ansi@7.2.0 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: strip-ansi@7.2.0; Node.js $(node --version)"

cat >strip.py <<'PYTHON'
import json
import subprocess
from ansi2html import Ansi2HTMLConverter
from click import unstyle
from rich.text import Text
outputs = (
    "\x1b[31mred\x1b[0m", "\x1b]8;;file:a\x1b\\link\x1b]8;;\x1b\\", "\x1b]8;;file:a\x07link\x1b]8;;\x07", "\x1b]0;title\x07text",
    "\x1b(Btext", "\x1b[?25ltext", "one\r\ntwo\r\n", "long text\rab",
)
program = "import s from 'strip-ansi'; console.log(JSON.stringify(JSON.parse(process.argv[1]).map(t => s(t))))"
by_node = json.loads(subprocess.check_output(["node", "--input-type=module", "-e", program, json.dumps(outputs)]))
convert = Ansi2HTMLConverter(inline=True).convert
for output, stripped in zip(outputs, by_node):
    print(*map(ascii, (unstyle(output), Text.from_ansi(output).plain, convert(output, full=False), stripped)))
PYTHON
python strip.py >out
line=0
texts() { line=$((line + 1)); seen "$1: click, Rich, ansi2html, strip-ansi" "$(sed -n ${line}p out)" "$2"; }
texts "a colour" "'red' 'red' '<span style=\"color: #aa0000\">red</span>' 'red'"
texts "a link that ends with ESC \\" "'\\x1b]8;;file:a\\x1b\\\\link\\x1b]8;;\\x1b\\\\' 'link' '\\x1b]8;;file:a\\x1b\\\\link\\x1b]8;;\\x1b\\\\' 'link'"
texts "a link that ends with BEL" "'\\x1b]8;;file:a\\x07link\\x1b]8;;\\x07' '8;;file:alink8;;' '<a href=\"#\">link</a>' 'link'"
texts "a title" "'\\x1b]0;title\\x07text' '0;titletext' '\\x1b]0;title\\x07text' 'text'"
texts "a character set" "'\\x1b(Btext' 'text' 'text' 'text'"
texts "a hidden cursor" "'text' 'text' '\\x1b[?25ltext' 'text'"
texts "two lines of a terminal" "'one\\r\\ntwo\\r\\n' '\\n\\n' 'one\\r\\ntwo\\r\\n' 'one\\r\\ntwo\\r\\n'"
texts "a line written over in part" "'long text\\rab' 'ab' 'long text\\rab' 'long text\\rab'"
