#!/usr/bin/env bash
# mistral-common 1.13.1 with its own tokenizers v2 and v3: a dialogue with tools, and the same one a turn later
#
# Guess: a longer dialogue begins with the tokens of the shorter one; a tool's output stays a text.
# Behaviour: the list of tools and the system's message stand at the last message of the user and move along with it: after the
# next question only `<s>` is equal, so that sampled tokens lie behind another prompt. v2 drops the calls and results of
# earlier turns. Output that is JSON is written anew as a value: "1e2" is 100.0, and "null" is null.
. "$(dirname "$0")/common.sh"
packages mistral-common==1.13.1 sentencepiece==0.2.1

cat >encode.py <<'PYTHON'
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
def encode(version, messages):
    tools = [Tool(function=Function(name="run", parameters={"type": "object"}))]
    request = ChatCompletionRequest(messages=messages, tools=tools)
    return getattr(MistralTokenizer, version)().encode_chat_completion(request)
def dialogue(output):
    call = ToolCall(id="abcdefghi", function=FunctionCall(name="run", arguments="{}"))
    return [
        SystemMessage(content="Be brief."), UserMessage(content="Count."), AssistantMessage(content=None, tool_calls=[call]),
        ToolMessage(content=output, tool_call_id="abcdefghi"),
    ]
for version in ("v2", "v3"):
    shorter = encode(version, dialogue("two"))
    longer = encode(version, [*dialogue("two"), AssistantMessage(content="Two."), UserMessage(content="Again.")])
    equal = [one == other for one, other in zip(shorter.tokens, longer.tokens)].index(False)
    print(equal, shorter.text.count("[TOOL_CALLS]"), longer.text.count("[TOOL_CALLS]"))
    text = longer.text.replace("▁", " ")
    print(text.index("Count.") < text.index("[AVAILABLE_TOOLS]"), text.index("Count.") < text.index("Be brief."))
for output in ("two", "1e2", "null", '{"n":1.50}'):
    print(encode("v3", dialogue(output)).text.replace("▁", " ").split("[TOOL_RESULTS]")[1].split(', "call_id"')[0])
PYTHON
python encode.py 2>errors >out || { cat errors >&2; exit 2; }
seen "v2: equal tokens at the start; calls in the shorter and in the longer one" "$(sed -n 1p out)" "1 1 0"
seen "v3" "$(sed -n 3p out)" "1 1 1"
seen "the first question stands before the tools, and before the system's message" "$(sed -n 2p out | xargs)" "True True"
seen "the outputs two, 1e2, null and {\"n\":1.50} by v3" "$(sed -n '5,8p' out | paste -sd' ' | tr -s ' ')" \
    ' {"content": "two" {"content": 100.0 {"content": null {"content": {"n": 1.5}'
