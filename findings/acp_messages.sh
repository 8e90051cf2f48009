#!/usr/bin/env bash
# agent-client-protocol 0.12.1 (pydantic 2.14.4): messages of an agent and an editor with a value that does not fit
#
# Guess: an error, or the value as it was sent.
# Behaviour: in fields that may be missing, and in lists there, it is dropped without a word: of the arguments ["-n", 5] of a command "-n" is left, of its variables those that are
# texts, a step of a plan with an unknown priority is gone. exitCode -9 is none at all, as is an unknown status or kind; line -1 is the whole file, "yes" is True, and other
# capabilities are False. A title that is no text, and an unknown stopReason, are errors.
. "$(dirname "$0")/common.sh"
packages agent-client-protocol==0.12.1 pydantic==2.14.4

cat >messages.py <<'PYTHON'
from acp import schema
from pydantic import ValidationError
def read(message, **given):
    try:
        return message.model_validate(given)
    except ValidationError:
        return None
terminal = read(schema.CreateTerminalRequest, sessionId="1", command="head", args=["-n", 5, "rows"], env=[{"name": "A", "value": 5}, {"name": "B", "value": "x"}])
print(terminal.args, [(each.name, each.value) for each in terminal.env])
plan = read(schema.AgentPlanUpdate, sessionUpdate="plan", entries=[{"content": text, "priority": priority, "status": "pending"}
                                                                  for text, priority in (("test", "urgent"), ("write", "high"))])
print([each.content for each in plan.entries])
print(*(read(schema.TerminalOutputResponse, output="", truncated=False, exitStatus={"exitCode": code}).exit_status.exit_code for code in (9, -9)))
start = {"sessionUpdate": "tool_call", "toolCallId": "1"}
call = read(schema.ToolCallStart, **start, title="t", status="done", kind="write")
error = "an error"
print(call.status, call.kind, read(schema.ToolCallStart, **start, title=5) or error, read(schema.PromptResponse, stopReason="done") or error, sep=", ")
print(*(read(schema.ReadTextFileRequest, sessionId="1", path="/a", line=line).line for line in (5, -1)))
able = read(schema.InitializeResponse, protocolVersion=1, agentCapabilities={"loadSession": "yes", "promptCapabilities": {"image": "png"}}).agent_capabilities
print(able.load_session, able.prompt_capabilities.image)
PYTHON
python messages.py >out
seen "a command: arguments [-n, 5, rows], variables A = 5 and B = \"x\"" "$(sed -n 1p out)" "['-n', 'rows'] [('B', 'x')]"
seen "a plan of an urgent step and one of high priority" "$(sed -n 2p out)" "['write']"
seen "exitCode 9, and -9" "$(sed -n 3p out)" "9 None"
seen "a call: status done, kind write; another: the title 5; a stopReason done" "$(sed -n 4p out)" "None, None, an error, an error"
seen "a file from line 5, and from line -1" "$(sed -n 5p out)" "5 None"
seen "capabilities \"yes\" and \"png\"" "$(sed -n 6p out)" "True False"
