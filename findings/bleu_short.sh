#!/usr/bin/env bash
# sacrebleu 2.6.0 and nltk 3.10.4: BLEU of answers that equal their references
#
# Guess: 100 for equal texts (nltk: 1); as many references as answers are needed, a list for each answer.
# Behaviour: for equal texts of two words `corpus_bleu` is 0, `sentence_bleu` a bit more than 100, and nltk's about 1e-154:
# sequences of four words are missing, and each treats that otherwise. A list of references belongs to one position in
# all answers: lists for each answer give another number without a word, and answers without a reference do not count.
. "$(dirname "$0")/common.sh"
packages sacrebleu==2.6.0 nltk==3.10.4

cat >score.py <<'PYTHON'
import warnings
import sacrebleu
from nltk.translate.bleu_score import sentence_bleu
warnings.simplefilter("ignore")
for text in ("port 8080", "it listens on port 8080"):
    words = text.split()
    print(sacrebleu.corpus_bleu([text], [[text]]).score, sacrebleu.sentence_bleu(text, [text]).score > 100, sentence_bleu([words], words))
answers = ["it listens on port 8080", "the file has two lines"]
others = ["it listens on port 80", "the file has two words"]
print(round(sacrebleu.corpus_bleu(answers, [answers, others]).score, 6))
print(round(sacrebleu.corpus_bleu(answers, list(zip(answers, others))).score))
print(round(sacrebleu.corpus_bleu([*answers, "a wrong one, for which there is none"], [answers]).score, 6))
PYTHON
python score.py >out
seen "two words: corpus, whether a sentence is above 100, nltk's" "$(sed -n 1p out | sed 's/[.][0-9]*e/e/')" "0.0 True 1e-154"
seen "five words" "$(sed -n 2p out)" "100.00000000000004 True 1.0"
seen "two answers, each with itself and another as references" "$(sed -n 3p out)" 100.0
seen "the same, with a list for each answer" "$(sed -n 4p out)" 84
seen "a third answer without a reference" "$(sed -n 5p out)" 100.0
