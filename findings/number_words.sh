#!/usr/bin/env bash
# word2number 1.1: numbers in words, as an answer that is compared with a number
#
# Guess: the number, or an error for what is none.
# Behaviour: words that it does not know are dropped: "minus five" is 5, "two and a half" 2, "one third" 1. Digits beside words are
# dropped, too: "5 thousand" is 1000. Of several numbers it makes one, so that "five minus two" is 7, and "one two three" is 5.
# Digits alone are a number, but neither with a comma nor with a point.
. "$(dirname "$0")/common.sh"
packages word2number==1.1

cat >words.py <<'PYTHON'
import sys
from word2number import w2n
for text in sys.argv[1:]:
    try:
        print(w2n.word_to_num(text))
    except ValueError:
        print("error")
PYTHON
number() { python words.py "$@" | xargs; }
seen "minus five, two and a half, one third, 5 thousand" "$(number "minus five" "two and a half" "one third" "5 thousand")" "5 2 1 1000"
seen "one of the two, five minus two, one two three, twenty twenty" \
    "$(number "one of the two" "five minus two" "one two three" "twenty twenty")" "3 7 5 40"
seen "42, 1,000, 1.5, a dozen, half" "$(number 42 1,000 1.5 "a dozen" half)" "42 error error error error"
