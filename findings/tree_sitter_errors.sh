#!/usr/bin/env bash
# tree-sitter 0.26.1 with tree-sitter-python 0.25.0: `has_error` as a check of whether a model's Python can be run
#
# Guess: it has an error where Python has a syntax error; a few rules beyond the grammar may be missing.
# Behaviour: blocks without a body or with wrong indentation have none, as `if x:`, and `def f():` with `return 1` below it at the
# same place; nor have keyword arguments before others, and Python 2, as `print 'hello'`, `x <> y` and 010.
. "$(dirname "$0")/common.sh"
packages tree-sitter==0.26.1 tree-sitter-python==0.25.0

cat >parse.py <<'PYTHON'
import sys
import tree_sitter_python
from tree_sitter import Language, Parser
parser = Parser(Language(tree_sitter_python.language()))
text = sys.argv[1].encode().decode("unicode_escape")
try:
    compile(text, "answer", "exec")
    python = "runs"
except SyntaxError:
    python = "error"
print("error" if parser.parse(text.encode()).root_node.has_error else "fine", python)
PYTHON
for text in 'if x:\n' 'def f():\nreturn 1\n' 'def f():\n    x = 1\n  y = 2\n' 'try:\n    x\n' 'return 5\n' \
    'f(a=1, 2)\n' "print 'hello'\n" 'x <> y\n' 'x = 010\n'; do
    seen "$text by tree-sitter, and by Python" "$(python parse.py "$text")" "fine error"
done
seen 'x = (1,\n' "$(python parse.py 'x = (1,\n')" "error error"
seen 'x = 1\n' "$(python parse.py 'x = 1\n')" "fine runs"
