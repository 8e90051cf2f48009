#!/usr/bin/env bash
# pydantic-ai 2.66.0: what a model is told of a tool's result, and the messages of a run through JSON
#
# Guess: None and NaN are said in words, bytes as their text or refused; a run that is read again is the same.
# Behaviour: None is an empty text, as "" is, and NaN null. b"abc" is YWJj, and other bytes have _ in place of /, as addresses have it. 5 and "5" are told alike.
# Behind JSON NaN is None, bytes are the text YWJj, keys that are numbers are texts, and a tuple, a set, a class and a date are what JSON made of them,
# so that the messages are not equal, and NaN is told as an empty text. True is taken as 1 for an int, "off" as False, and no arguments at all as {}.
. "$(dirname "$0")/common.sh"
packages pydantic-ai-slim==2.66.0 pydantic==2.14.3

cat >results.py <<'PYTHON'
import math
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
def run(tool, arguments):
    parts = iter([ToolCallPart("tool", arguments), TextPart("done")])
    agent = Agent(FunctionModel(lambda messages, info: ModelResponse(parts=[next(parts)])))
    agent.tool_plain(tool, name="tool")
    return agent.run_sync("go").all_messages()
for value in (None, math.nan, "", 5, "5", b"abc", b"\xff", {1: "a"}, (1, 2)):
    def returns():
        return value
    messages = run(returns, {})
    again = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))
    one, other = (each[2].parts[0] for each in (messages, again))
    told, then = one.model_response_str(), other.model_response_str()
    print(repr(told), repr(other.content), again == messages, *([repr(then)] if then != told else []))
def takes(n: int = 0, on: bool = True) -> str:
    return f"{n} {on}"
for arguments in ({"n": True}, {"on": "off"}, ""):
    print(run(takes, arguments)[2].parts[0].content, end="; ")
PYTHON
python results.py 2>errors >out || { cat errors >&2; exit 2; }
line() { sed -n "$1p" out; }
echo "told, read again, whether all messages are equal, what is told then if it differs"
seen "None" "$(line 1)" "'' None True"
seen "NaN" "$(line 2)" "'null' None False ''"
seen '""' "$(line 3)" "'' '' True"
seen "5" "$(line 4)" "'5' 5 True"
seen '"5"' "$(line 5)" "'5' '5' True"
seen 'b"abc"' "$(line 6)" "'YWJj' 'YWJj' False"
seen 'b"\xff"' "$(line 7)" "'_w==' '_w==' False"
seen '{1: "a"}' "$(line 8)" "'{\"1\":\"a\"}' {'1': 'a'} False"
seen "(1, 2)" "$(line 9)" "'[1,2]' [1, 2] False"
seen 'arguments n=true, on="off", and none' "$(line 10)" "1 True; 0 False; 0 True; "
