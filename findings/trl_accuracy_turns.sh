#!/usr/bin/env bash
# TRL 1.16.0: `accuracy_reward` for completions of a tool-using policy, which its trainer gives as several messages
#
# Guess: the last message counts, in which the answer stands; or more than one message is an error.
# Behaviour: the first one counts, which calls the tool: the right answer at the end is worth 0, and a guess before the call
# is worth 1, whatever the policy answers in the end. A plain 42 without LaTeX is worth 0, for the truth 42.
. "$(dirname "$0")/common.sh"
# Only what its rewards import.
packages 'math-verify[antlr4_13_2]==0.9.0' packaging==25.0
packages_alone trl==1.16.0

cat >reward.py <<'PYTHON'
import importlib, importlib.util, sys, types
for name in ("trl", "trl.rewards"):  # their own ones import PyTorch
    package = types.ModuleType(name)
    package.__path__ = importlib.util.find_spec(name).submodule_search_locations
    sys.modules[name] = package
from trl.rewards.accuracy_rewards import accuracy_reward
def turns(before, after):
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 40, "b": 2}}}
    return [
        {"role": "assistant", "content": before, "tool_calls": [call]},
        {"role": "tool", "name": "add", "content": "42"},
        {"role": "assistant", "content": after},
    ]
completions = [turns("I add.", r"\boxed{42}"), turns(r"I guess \boxed{42}, and add.", r"\boxed{7}")]
completions += [[{"role": "assistant", "content": content}] for content in (r"\boxed{42}", "The answer is 42.")]
print(accuracy_reward(completions, ["42"] * len(completions)))
PYTHON
python reward.py 2>errors >out || { cat errors >&2; exit 2; }
seen "boxed at the end, guessed at the start and wrong at the end, one boxed message, one plain message" "$(tail -n 1 out)" \
    "[0.0, 1.0, 1.0, 0.0]"
