#!/usr/bin/env bash
# tokenizers 0.22.1: a tool call that was sampled in two pieces, and is encoded again for the next turn
#
# Guess: the tokens of a text are the tokens, whichever way it came about; encoding what was decoded gives them back.
# Behaviour: the decoded text is the same, and its encoding has other and fewer tokens than were sampled, so the
# probabilities that were kept with them have no place. It needs no strange text: a cut within one word is enough.
. "$(dirname "$0")/common.sh"
packages tokenizers==0.22.1

cat >turns.py <<'END'
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
text = '{"name": "bash", "arguments": {"command": "ls -la"}}'
trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train_from_iterator([text] * 50, trainer)
sampled = tokenizer.encode('{"name": "ba').ids + tokenizer.encode('sh"}').ids
decoded = tokenizer.decode(sampled)
again = tokenizer.encode(decoded).ids
print(decoded == '{"name": "bash"}', tokenizer.decode(again) == decoded, again == sampled, len(sampled) > len(again))
END
seen "text kept, decoded equal, tokens equal, fewer" "$(python turns.py)" "True True False True"
