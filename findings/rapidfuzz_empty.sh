#!/usr/bin/env bash
# rapidfuzz 3.14.6, jiwer 4.0.0: how alike an answer and the truth are, as a reward
#
# Guess: two empty texts are alike; a text in which the truth stands is only partly so; a rate has a truth of at least one word.
# Behaviour: two empty texts are 100 by `ratio` and 0 by `QRatio`, `WRatio` and `token_set_ratio`; with `default_process`, so are "+" and "-", and
# "C++" is "C". "paid" is 100 for "the bill was not paid" by `token_set_ratio` and `partial_ratio`, and by the latter 42 for -42. `extractOne` gives the first choice,
# with 0, if none has anything in common, and None if a bar is set. The word error rate of two words for an empty truth is 2, their number.
. "$(dirname "$0")/common.sh"
packages rapidfuzz==3.14.6 jiwer==4.0.0

cat >alike.py <<'PYTHON'
import jiwer
from rapidfuzz import fuzz, process, utils
print(fuzz.ratio("", ""), fuzz.QRatio("", ""), fuzz.WRatio("", ""), fuzz.token_set_ratio("", ""))
for one, other in (("+", "-"), ("C++", "C")):
    print(fuzz.ratio(one, other, processor=utils.default_process), fuzz.QRatio(one, other, processor=utils.default_process))
for one, other in (("paid", "the bill was not paid"), ("5", "15"), ("42", "-42")):
    print(fuzz.token_set_ratio(one, other), fuzz.partial_ratio(one, other), fuzz.ratio(one, other).__round__())
print(process.extractOne("x", ["a", "b"], scorer=fuzz.ratio), process.extractOne("x", ["a", "b"], scorer=fuzz.ratio, score_cutoff=1))
print(jiwer.wer("", "a b"), jiwer.wer("a", "b c d"), jiwer.wer(["a", "b c d e"], ["x", "b c d e"]), jiwer.wer(["a", ""], ["a", "x"]))
PYTHON
python alike.py >out
seen "two empty texts, by ratio, QRatio, WRatio and token_set_ratio" "$(sed -n 1p out)" "100.0 0.0 0.0 0.0"
seen "+ and -, with default_process, by ratio and QRatio" "$(sed -n 2p out)" "100.0 0.0"
seen "C++ and C, with default_process" "$(sed -n 3p out)" "100.0 100.0"
seen "paid, the bill was not paid: by token_set_ratio, partial_ratio and ratio" "$(sed -n 4p out)" "100.0 100.0 32"
seen "5 and 15" "$(sed -n 5p out)" "66.66666666666666 100.0 67"
seen "42 and -42" "$(sed -n 6p out)" "80.0 100.0 80"
seen "extractOne of x from a and b, and with score_cutoff=1" "$(sed -n 7p out)" "('a', 0.0, 0) None"
seen "word error rates: two words for none; three for one; of two pairs, one wrong; of a right one, and a word for none" "$(sed -n 8p out)" "2 3.0 0.2 1.0"
