#!/usr/bin/env bash
# atroposlib 0.4.0 (math-verify 0.9.0): its rewards `accuracy` and `r1`, and `parse_tool_call`
#
# Guess: the number behind #### counts, as in GSM8K; the answer behind </think> is compared; JSON of a call is read as JSON.
# Behaviour: behind #### there is no sign and no comma: -42 is wrong for -42, and 1,000 wrong for 1000 and right for 1. For `r1` it is
# enough that the answer has the truth in it, as in "not 42, but 142". Each apostrophe becomes a double quote before a call is read, so
# that a text "it's" or print('a') in valid JSON is an error; of two calls the first counts.
. "$(dirname "$0")/common.sh"
packages 'math-verify[antlr4_13_2]==0.9.0'
packages_alone atroposlib==0.4.0

cat >score.py <<'PYTHON'
import importlib.util, json, logging, sys, types
logging.disable(logging.CRITICAL)
where = importlib.util.find_spec("atroposlib").submodule_search_locations[0]
for name in ("envs", "envs.reward_fns", "utils"):  # their own ones import much more
    package = types.ModuleType("atroposlib." + name)
    package.__path__ = [where + "/" + name.replace(".", "/")]
    sys.modules["atroposlib." + name] = package
from atroposlib.envs.reward_fns.accuracy_reward import accuracy_reward
from atroposlib.envs.reward_fns.r1_reward import r1_reward
from atroposlib.utils.tool_call_parser import parse_tool_call
for text, truth in (
    ("#### 42", "42"), ("#### -42", "-42"), ("#### 1,000", "1000"), ("#### 1,000", "1"), ("42", "42"),
    (r"\boxed{2026-01-31}", "1994"),
):
    print(accuracy_reward([text], [truth])[0])
for text in ("42", "not 42, but 142", "7"):
    print(r1_reward([f"<think>a</think>{text}"], ["42"])[0])
def call(arguments):
    return "<tool_call>" + json.dumps({"name": "run", "arguments": arguments}) + "</tool_call>"
for text in (call({"code": "print(1)"}), call({"code": "print('a')"}), call({"text": "it's"}), call({"n": 1}) + call({"n": 2})):
    print(*parse_tool_call(text))
PYTHON
python score.py 2>errors >out || { cat errors >&2; exit 2; }
line=0
scored() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
scored "accuracy: #### 42 for 42" 1.0
scored "#### -42 for -42" 0.0
scored "#### 1,000 for 1000" 0.0
scored "#### 1,000 for 1" 1.0
scored "42 for 42" 0.0
scored "a boxed date for its difference" 1.0
scored "r1: 42 for 42" 1.5
scored "not 42, but 142" 1.5
scored "7" 0.5
scored "a call with print(1)" "run {'code': 'print(1)'} False"
scored "with print('a')" "-ERROR- {} True"
scored "with it's" "-ERROR- {} True"
scored "two calls" "run {'n': 1} False"
