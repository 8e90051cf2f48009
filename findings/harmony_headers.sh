#!/usr/bin/env bash
# openai-harmony 0.0.8: what gpt-oss has sampled, parsed into messages, and these rendered again for the next turn
#
# Guess: the same tokens again; a header that is not understood is an error.
# Behaviour: the recipient moves from behind the channel to behind the role, so that each call that is sampled the other way has other tokens in
# the next turn. `final <|constrain|>json`, an answer in JSON, is a call to a tool of the name "<|constrain|>json", and is rendered with <|call|>.
# `a b c` are a channel, a recipient and a type. An answer that was cut off is as one that has ended, and a second channel is text, of other tokens in the next turn.
. "$(dirname "$0")/harmony.sh"

cat >turns.py <<'PYTHON'
from openai_harmony import Conversation, HarmonyEncodingName, Role, load_harmony_encoding
encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
def turn(text):
    tokens = encoding.encode("<|start|>assistant" + text, allowed_special="all")
    messages = encoding.parse_messages_from_completion_tokens(tokens, None)
    for message in messages:
        print([message.channel, message.recipient, message.content_type, message.content[0].text], end=" ")
    again = encoding.render_conversation(Conversation.from_messages(messages))
    print("the same" if again == tokens else encoding.decode(again).removeprefix("<|start|>assistant"))
turn(" to=functions.ls<|channel|>commentary <|constrain|>json<|message|>{}<|call|>")
turn("<|channel|>commentary to=functions.ls <|constrain|>json<|message|>{}<|call|>")
turn("<|channel|>final <|constrain|>json<|message|>{}<|end|>")
turn("<|channel|>final<|constrain|>json<|message|>{}<|end|>")
turn("<|channel|>a b c<|message|>{}<|end|>")
turn("<|channel|>final<|message|>It is")
turn("<|channel|>final<|message|>7<|channel|>8<|end|>")
PYTHON
python turns.py >out
line=0
turn() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
call="['commentary', 'functions.ls', '<|constrain|>json', '{}']"
turn "a call, with its recipient behind the role" "$call the same"
turn "with it behind the channel" "$call  to=functions.ls<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"
for _ in 1 2; do
    turn "an answer in JSON" "['final', '<|constrain|>json', None, '{}']  to=<|constrain|>json<|channel|>final<|message|>{}<|call|>"
done
turn "the channel a b c" "['a', 'b', 'c', '{}']  to=b<|channel|>a c<|message|>{}<|call|>"
turn "cut off" "['final', None, None, 'It is'] <|channel|>final<|message|>It is<|end|>"
turn "a channel within the message" "['final', None, None, '7<|channel|>8'] <|channel|>final<|message|>7<|channel|>8<|end|>"
