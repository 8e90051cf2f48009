#!/usr/bin/env bash
# sentencepiece 0.2.1: code that is encoded by a model that was trained with the options of default, and decoded
#
# Guess: the same text, as spaces are tokens of their own kind and nothing has to be split beforehand.
# Behaviour: several spaces are one, those at the start and the end of a line are gone, and a tab and a line end are a space:
# Python is no longer Python. It is so with code in the training data as well; three options of training keep it.
. "$(dirname "$0")/common.sh"
packages sentencepiece==0.2.1

cat >round.py <<'PYTHON'
import io
import sentencepiece
text = "for i in x:\n    if i:\n\treturn  i"
def through(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text, *text.split("\n")] * 100), model_writer=model, vocab_size=300,
        hard_vocab_limit=False, minloglevel=2, **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return processor.decode(processor.encode(text))
print(repr(through()))
kept = through(
    normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True,
)
print(kept == text)
PYTHON
python round.py 2>errors >out || { cat errors >&2; exit 2; }
seen "defaults" "$(sed -n 1p out)" "'for i in x: if i: return i'"
seen "with three options: the same text" "$(sed -n 2p out)" "True"
