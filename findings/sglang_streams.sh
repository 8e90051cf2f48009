#!/usr/bin/env bash
# SGLang 0.5.23: its parsers of tool calls and thoughts, for an answer as a whole and in pieces (without PyTorch, which they do not use)
#
# Guess: the same calls and texts; what is no call stays a text.
# Behaviour: GLM-4.5: the text null is "None" as a whole and "null" in pieces; 12 for an argument that the tool lacks is a number, or a text; True is
# true, or JSON that cannot be read. Mistral: the second call of a list is a text in pieces. A text with ] in it makes a call with brackets a text in
# pieces. Hermes: </tool_call> within a text makes the call a text as a whole. Qwen, Hermes: what is said behind a call is gone as a whole. Qwen3: the
# answer "The tag is <think>." is all thought as a whole. Llama 3: the answer {"answer": 42} is neither text nor call in both.
. "$(dirname "$0")/common.sh"
packages pydantic==2.14.3 openai==3.57.0 orjson==3.13.0 partial-json-parser==0.2.1.1.post7 regex==2026.11.19 msgspec==0.23.0 \
    requests==2.34.2 jsonschema==4.26.0 numpy==2.4.6
packages_alone sglang==0.5.23

cat >parsers.py <<'PYTHON'
import json, logging, re, sys, sysconfig, types
from unittest.mock import MagicMock
package = types.ModuleType("sglang")  # its __init__ asks for PyTorch
package.__path__ = [sysconfig.get_path("purelib") + "/sglang"]
sys.modules["sglang"] = package
for name in ("sglang.utils", "sglang.srt.utils", "xgrammar", "xgrammar.structural_tag", "transformers"):
    sys.modules[name] = MagicMock(StructuralTag=dict)
from sglang.srt.entrypoints.openai.protocol import Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.parser.reasoning_parser import ReasoningParser
logging.disable(logging.CRITICAL)
properties = {"text": {"type": "string"}, "done": {"type": "boolean"}}
tools = [Tool.model_validate({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": given}}})
    for name, given in (("say", properties), ("look", {}))]
def pieces(text):  # tags are single tokens
    return re.findall(r"</?[a-z_]+>|\[TOOL_CALLS\]|.{1,4}", text, re.DOTALL)
def both(kind, text):
    said, calls = FunctionCallParser(tools, kind).parse_non_stream(text)
    print([said, *(f"{call.name} {call.parameters}" for call in calls)], end=" ")
    parser, said, calls = FunctionCallParser(tools, kind), "", {}
    for piece in pieces(text):
        more, parts = parser.parse_stream_chunk(piece)
        said += more
        for part in parts:
            name, arguments = calls.get(part.tool_index, ("", ""))
            calls[part.tool_index] = part.name or name, arguments + (part.parameters or "")
    print([said, *(" ".join(call) for call in calls.values())])
def glm(key, value):
    return f"<tool_call>say\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"
both("glm45", glm("text", "null"))
both("glm45", glm("size", "12"))
both("glm45", glm("done", "True"))
both("mistral", '[TOOL_CALLS] [{"name": "say", "arguments": {"text": "a"}}, {"name": "look", "arguments": {}}]')
both("pythonic", '[say(text="a]"), look()]')
both("hermes", '<tool_call>\n{"name": "say", "arguments": {"text": "</tool_call>"}}\n</tool_call>')
both("qwen3_coder", "A.\n<tool_call>\n<function=look>\n</function>\n</tool_call>\nB.")
both("llama3", '{"answer": 42}')
print(ReasoningParser("qwen3").parse_non_stream("The tag is <think>."), end=" ")
parser = ReasoningParser("qwen3")
parts = [parser.parse_stream_chunk(piece) for piece in pieces("The tag is <think>.")]
print(tuple("".join(part[which] or "" for part in parts) for which in (0, 1)))
PYTHON
python parsers.py >out
line() { sed -n "$1p" out; }
echo "as a whole, in pieces: what is said, and calls"
seen "GLM-4.5: the text null" "$(line 1)" "['', 'say {\"text\": \"None\"}'] ['', 'say {\"text\": \"null\"}']"
seen "GLM-4.5: 12, for an argument that the tool lacks" "$(line 2)" "['', 'say {\"size\": 12}'] ['', 'say {\"size\": \"12\"}']"
seen "GLM-4.5: True" "$(line 3)" "['', 'say {\"done\": true}'] ['', 'say {\"done\": True}']"
seen "Mistral: two calls in a list" "$(line 4)" "['', 'say {\"text\": \"a\"}', 'look {}'] [', {\"name\": \"look\", \"arguments\": {}}', 'say {\"text\": \"a\"}']"
seen '[say(text="a]"), look()]' "$(line 5)" "['', 'say {\"text\": \"a]\"}', 'look {}'] ['[say(text=\"a]\"), look()]']"
seen "Hermes: the text </tool_call>" "$(line 6)" "['<tool_call>\\n{\"name\": \"say\", \"arguments\": {\"text\": \"</tool_call>\"}}\\n</tool_call>'] ['', 'say {\"text\": \"</tool_call>\"}']"
seen "Qwen3-Coder: A., a call, and B." "$(line 7)" "['A.\\n', 'look {}'] ['A.\\n\\nB.', 'look {}']"
seen 'Llama 3: {"answer": 42}' "$(line 8)" "[''] ['']"
seen "Qwen3: thought and answer of: The tag is <think>." "$(line 9)" "('The tag is <think>.', '') ('', 'The tag is <think>.')"
