#!/usr/bin/env bash
# rouge-score 0.1.2 and rouge 1.0.1: ROUGE-1 of an answer
#
# Guess: both split at spaces and give the same number; 1 for equal texts, less for others.
# Behaviour: rouge-score knows ASCII letters and digits only: Chinese and Greek texts are 0 for themselves, -42 is 1 for 42,
# and "naïve" for "na ve". `rouge` gives 0.999999995 for equal texts, counts each word once, so that "no no no no" is as good
# as "no", and minds case, as rouge-score does not.
. "$(dirname "$0")/common.sh"
packages rouge-score==0.1.2 rouge==1.0.1

cat >score.py <<'PYTHON'
from rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer
one, other = RougeScorer(["rouge1"]), Rouge(["rouge-1"])
for reference, answer in (
    ("two lines", "two lines"), ("两行", "两行"), ("δύο", "δύο"), ("42", "-42"), ("na ve", "naïve"), ("no", "no no no no"),
    ("two lines", "Two lines"),
):
    print(round(one.score(reference, answer)["rouge1"].fmeasure, 9), other.get_scores(answer, reference)[0]["rouge-1"]["f"])
PYTHON
python score.py >out
seen "equal texts: rouge-score, rouge" "$(sed -n 1p out)" "1.0 0.999999995"
seen "equal Chinese and Greek texts, by rouge-score" "$(sed -n 2,3p out | cut -d' ' -f1 | xargs)" "0.0 0.0"
seen "42 and -42" "$(sed -n 4p out)" "1.0 0.0"
seen "na ve and naïve" "$(sed -n 5p out)" "1.0 0.0"
seen "no, and four times no" "$(sed -n 6p out)" "0.4 0.999999995"
seen "two lines and Two lines" "$(sed -n 7p out)" "1.0 0.4999999950000001"
