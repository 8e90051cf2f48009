#!/usr/bin/env bash
# openai-harmony 0.0.8: the schema of a tool's arguments, as the model reads it
#
# Guess: what TypeScript cannot say stands in a comment, or is an error; descriptions are comments.
# Behaviour: minimum, pattern, format, length of lists, const, numbers of an enum and $ref are gone without a word, a field of `anyOf` with null is `any`, and dict[str, float] is an empty object. The second line of a description is outside of the comment, and a quotation mark in
# an enum ends its text.
. "$(dirname "$0")/harmony.sh"

cat >tools.py <<'PYTHON'
from openai_harmony import Conversation, DeveloperContent, HarmonyEncodingName, Message, Role, ToolDescription, load_harmony_encoding
encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
fields = {
    "limits": {"type": "integer", "minimum": 1, "maximum": 5},
    "day": {"type": "string", "pattern": "^a$", "format": "date", "minLength": 2},
    "reference": {"$ref": "#/$defs/R"},
    "constant": {"const": 7},
    "numbers": {"type": "integer", "enum": [1, 2]},
    "optional": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "scores": {"type": "object", "additionalProperties": {"type": "number"}},
    "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
    "steps": {"type": "array", "minItems": 2, "items": {"type": "object", "properties": {"k": {"type": "string", "description": "its key"}}, "required": ["k"]}},
    "word": {"type": "string", "enum": ["x", 'a"b']},
    "lines": {"type": "integer", "description": "how many lines\nof the file"},
}
schema = {"type": "object", "properties": fields, "$defs": {"R": {"type": "object", "properties": {"p": {"type": "integer"}}}}}
tools = DeveloperContent.new().with_function_tools([ToolDescription.new("read", "Reads.", parameters=schema)])
text = encoding.decode(encoding.render_conversation(Conversation.from_messages([Message.from_role_and_content(Role.DEVELOPER, tools)])))
print(text[text.index("(_: {") : text.index("}) => any")])
PYTHON
python tools.py >out
seen "limits" "$(sed -n '/^limits/,/^optional/p' out | xargs)" "limits?: number, day?: string, reference?: any, constant?: any, numbers?: number, optional?: any,"
seen "an object of numbers" "$(sed -n '/^scores/,/^pair/p' out | xargs)" "scores?: { }, pair?: Array<any>,"
seen "a word" "$(grep '^word' out)" 'word?: "x" | "a"b",'
seen "a description of two lines" "$(sed -n '/how many/,/^lines/p' out | paste -sd/)" "// how many lines/of the file/lines?: number,"
