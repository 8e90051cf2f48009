#!/usr/bin/env bash
# tokenizers 0.22.1: tokens that are added to a trained tokenizer, as markers of roles and tools are
#
# Guess: texts without the new tokens keep their tokens; texts with them are decoded to what they were.
# Behaviour: a plain word that is added is cut out of longer words, so that `retool` has other tokens than before, unless
# single_word is set. A token with rstrip, as markers of roles have it, takes all white space behind it, so that the
# indentation of an answer's first line is no token and is not decoded. And padding without a padding token is token 0, a "!".
. "$(dirname "$0")/common.sh"
packages tokenizers==0.22.1

cat >added.py <<'PYTHON'
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
def trained():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["retool the toolbox"] * 50, trainer)
    return tokenizer
before, after, single = trained(), trained(), trained()
after.add_tokens(["tool"])
single.add_tokens([AddedToken("tool", single_word=True)])
print(*before.encode("retool").tokens, "|", *after.encode("retool").tokens, "|", *single.encode("retool").tokens)
for rstrip in (False, True):
    tokenizer = trained()
    tokenizer.add_special_tokens([AddedToken("<role>", rstrip=rstrip)])
    ids = tokenizer.encode("<role>\n    return").ids
    print(len(ids) > 7, repr(tokenizer.decode(ids, skip_special_tokens=False)))
before.enable_padding(length=3)
padded = before.encode("retool")
print(padded.tokens[1], before.token_to_id("[PAD]"), repr(before.decode(padded.ids)))
PYTHON
python added.py >out
cat out
seen "retool: before, after, with single_word" "$(sed -n 1p out)" "retool | r e tool | retool"
seen "without rstrip" "$(sed -n 2p out)" "True '<role>\\n    return'"
seen "with rstrip" "$(sed -n 3p out)" "False '<role>return'"
seen "padding: its token, that token's number, decoded" "$(sed -n 4p out)" "[PAD] None 'retool!!'"
