#!/usr/bin/env bash
# openai-harmony 0.0.8: the thoughts (channel analysis) of a dialogue, rendered for training and for the next turn
#
# Guess: for training, the thoughts of the last turn are there, as they were sampled; a prompt has those of its own turn, and none of earlier ones.
# Behaviour: only thoughts before the first answer are left out, in training, too: a dialogue of one turn is trained without what led to its answer, the
# second turn has its thoughts, and keeps them in the prompt of the third. Once the second turn has called a tool, the first one's thoughts are
# there again, though its prompt was without them, so that the tokens do not go on from it. `auto_drop_analysis=False` keeps them all.
. "$(dirname "$0")/harmony.sh"

cat >turns.py <<'PYTHON'
from openai_harmony import Author, Conversation, HarmonyEncodingName, Message, RenderConversationConfig, Role, load_harmony_encoding
encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
def message(part):
    if part[0] == "q":
        return Message.from_role_and_content(Role.USER, part)
    if part[0] == "r":
        return Message.from_author_and_content(Author.new(Role.TOOL, "functions.ls"), part).with_channel("commentary")
    said = Message.from_role_and_content(Role.ASSISTANT, part)
    return said.with_recipient("functions.ls").with_channel("commentary") if part[0] == "c" else said.with_channel({"t": "analysis", "a": "final"}[part[0]])
def turns(parts):
    return Conversation.from_messages([message(part) for part in parts.split()])
def shown(tokens):
    texts = [part.partition("<|message|>")[2] for part in encoding.decode(tokens).split("<|start|>")]
    print(*[text.partition("<|")[0] for text in texts if text])
shown(encoding.render_conversation_for_training(turns("q1 t1 a1")))
shown(encoding.render_conversation_for_training(turns("q1 t1 a1 q2 t2 a2")))
shown(encoding.render_conversation_for_completion(turns("q1 t1 a1 q2"), Role.ASSISTANT))
shown(encoding.render_conversation_for_completion(turns("q1 t1 a1 q2 t2 c2 r2"), Role.ASSISTANT))
shown(encoding.render_conversation_for_completion(turns("q1 t1 a1 q2 t2 c2 r2 t3 a2 q3"), Role.ASSISTANT))
shown(encoding.render_conversation_for_training(turns("q1 t1 a1"), config=RenderConversationConfig(auto_drop_analysis=False)))
PYTHON
python turns.py >out
line=0
parts() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
parts "training: question, thoughts, answer" "q1 a1"
parts "training: two such turns" "q1 a1 q2 t2 a2"
parts "prompt of the second turn" "q1 a1 q2"
parts "prompt behind its first call of a tool" "q1 t1 a1 q2 t2 c2 r2"
parts "prompt of the third turn" "q1 a1 q2 t2 c2 r2 t3 a2 q3"
parts "training without auto_drop_analysis" "q1 t1 a1"
