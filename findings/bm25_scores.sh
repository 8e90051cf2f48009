#!/usr/bin/env bash
# rank-bm25 0.2.2, bm25s 0.3.16: a search tool over a few documents, as an agent's environment has it
#
# Guess: a document with the word is found before one without it, and what has no word of the query is not found.
# Behaviour: BM25Okapi scores a word that half of the documents have with 0, so that of two documents both have the same score, and the
# wrong one comes first. Both libraries return as many documents as were asked for, with 0 for those that have nothing of the
# query. The tokenizer of bm25s leaves out single characters and stop words: "C++ 7" is nothing.
. "$(dirname "$0")/common.sh"
packages rank-bm25==0.2.2 bm25s==0.3.16 numpy==2.3.4

cat >search.py <<'PYTHON'
import bm25s
from rank_bm25 import BM25Okapi, BM25Plus
documents = ["reset a password", "list all orders"]
words = [document.split() for document in documents]
for kind in BM25Okapi, BM25Plus:
    ranking = kind(words)
    print(*(score > 0 for score in ranking.get_scores(["password"])), ranking.get_top_n(["password"], documents, 1))
three = BM25Okapi([*words, ["close", "an", "account"]])
print(*(score > 0 for score in three.get_scores(["password"])), three.get_top_n(["refund"], [*documents, "close an account"], 1))
def tokens(text):
    return bm25s.tokenize(text, show_progress=False)
ranking = bm25s.BM25()
ranking.index(tokens(documents), show_progress=False)
found, scores = ranking.retrieve(tokens(["refund"]), k=2, show_progress=False)
print(found.shape, scores.tolist(), list(tokens(["C++ 7 or vitamin K, if not user_id"]).vocab))
PYTHON
python search.py >out
seen "two documents, the first with the word: scores above 0, and the best; BM25Okapi" "$(sed -n 1p out)" "False False ['list all orders']"
seen "BM25Plus" "$(sed -n 2p out)" "True True ['reset a password']"
seen "three documents; the best for a word that none has" "$(sed -n 3p out)" "True False False ['close an account']"
seen "bm25s: found for a word that none has, and tokens" "$(sed -n 4p out)" "(1, 2) [[0.0, 0.0]] ['vitamin', 'user_id']"
