#!/usr/bin/env bash
# OpenPipe ART 0.5.18: a trajectory that is saved by `model_dump_json` and read by `model_validate_json`
#
# Guess: the same trajectory, or an error; that is what models of pydantic are for.
# Behaviour: the sampled answer is a plain dict afterwards, as any dict passes for a message: it is no longer trainable, and
# `messages()` gives one without a role and without its text. A reward that is not a number has become null. Before that,
# `messages()` has no reasoning either, while a plain message keeps it.
. "$(dirname "$0")/common.sh"
packages openai==2.8.1 pydantic==2.12.3
packages_alone openpipe-art==0.5.18

cat >reload.py <<'PYTHON'
import importlib.util, sys, types
package = types.ModuleType("art")  # its own one imports the clients of all clouds
package.__path__ = importlib.util.find_spec("art").submodule_search_locations
sys.modules["art"] = package
from openai.types.chat.chat_completion import Choice
from art.trajectories import Trajectory
message = {"role": "assistant", "content": "42", "reasoning_content": "six times seven"}
sampled = Choice.model_validate({"finish_reason": "stop", "index": 0, "message": message})
saved = Trajectory(messages_and_choices=[{"role": "user", "content": "?"}, sampled], reward=1.0)
read = Trajectory.model_validate_json(saved.model_dump_json())
for each in (saved, read):
    last = each.messages()[-1]
    print(type(each.messages_and_choices[-1]).__name__, each.for_logging()["messages"][-1]["trainable"], last.get("role"), repr(last["content"]))
print("reasoning_content" in saved.messages()[-1], "reasoning_content" in Trajectory(messages_and_choices=[message]).messages()[-1])
print('"reward":null' in Trajectory(reward=float("nan")).model_dump_json())
PYTHON
python -W ignore reload.py 2>errors >out || { cat errors >&2; exit 2; }
seen "before: type, trainable, role, text" "$(sed -n 1p out)" "Choice True assistant '42'"
seen "after" "$(sed -n 2p out)" "dict False None ''"
seen "messages() has the reasoning of a sampled answer, of a plain message" "$(sed -n 3p out)" "False True"
seen "a reward that is not a number is null" "$(sed -n 4p out)" "True"
