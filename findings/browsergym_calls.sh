#!/usr/bin/env bash
# browsergym-core 0.14.3: the actions in what a model wrote, as HighLevelActionSet reads them by default
#
# Guess: the action, or an error if it is more than that; Python's values.
# Behaviour: each call that stands anywhere in the text is done, one by one: of 'I will not click("12"), but fill("3", "a")' both, and of `click("5") if False else click("6")` both,
# page.click("5") is click("5"). A call that is not understood is left out, and the others are done: one with a text of two lines, with 1_000
# or 100 + 200. (1) is a tuple, 007 is 7. A call behind # is not done, also where it is a number: of 'To open issue #7, click("5")' none is.
. "$(dirname "$0")/common.sh"
packages browsergym-core==0.14.3 pyparsing==3.3.3

cat >actions.py <<'PYTHON'
from browsergym.core.action.highlevel import HighLevelActionSet
def done(text):
    actions = HighLevelActionSet()
    try:
        return actions.to_python_code(text).removeprefix(actions.python_includes).replace("\n", " ").strip()
    except (NameError, ValueError) as error:
        return error
for text in (
    'I will not click("12"), but fill("3", "a")', 'click("5") if False else click("6")', 'page.click("5")', 'click("5")\nfill("3", "two\nlines")\nscroll(0, 1_000)\nclick("6")',
    'scroll(0, 100 + 200)', "scroll(0, 007)", "scroll(0, (1))", 'To open issue #7, click("5")', 'print(click("5"))',
):
    print(done(text))
PYTHON
python actions.py >out 2>errors || { cat errors >&2; exit 2; }
line=0
read_as() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
read_as 'I will not click("12"), but fill("3", "a")' "click('12') fill('3', 'a')"
read_as 'click("5") if False else click("6")' "click('5') click('6')"
read_as 'page.click("5")' "click('5')"
read_as 'click("5"), a fill with a text of two lines, scroll(0, 1_000), click("6")' "click('5') click('6')"
read_as 'scroll(0, 100 + 200)' "Received an empty action."
read_as 'scroll(0, 007)' "scroll(0, 7)"
read_as 'scroll(0, (1))' "scroll(0, (1,))"
read_as 'To open issue #7, click("5")' "Received an empty action."
read_as 'print(click("5"))' "click('5')"
