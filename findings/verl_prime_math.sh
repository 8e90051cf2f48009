#!/usr/bin/env bash
# verl 0.9.1 (sympy 1.14.0, pylatexenc 2.10): `prime_math.compute_score`, the reward of the data sources `numina_*`
#
# Guess: numbers are right if they are equal, or nearly so for rounded ones; equal fractions are equal.
# Behaviour: the truth counts as a percentage, too: for 42 the answers 0.42 and 4200 are right, for (1, 2) also (100, 2).
# Integers may be wrong by one in 10,000, and the units do not count. 2/4 is wrong for 1/2, though 0.5 is right.
. "$(dirname "$0")/common.sh"
packages_alone verl==0.9.1
packages numpy==2.3.4 sympy==1.14.0 pylatexenc==2.10 antlr4-python3-runtime==4.11.0

cat >score.py <<'PYTHON'
import sys
import sysconfig
import types
for name in ("verl", "verl.utils", "verl.utils.metric"):  # their own would import PyTorch, which the reward does not use
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [sysconfig.get_path("purelib") + "/" + name.replace(".", "/")]
sys.modules["verl.utils.metric"].Metric = None
from verl.utils.reward_score.prime_math import compute_score
for answer, truth in (
    ("42", "42"), ("43", "42"), ("0.42", "42"), ("4200", "42"), ("(100, 2)", "(1, 2)"), ("10001", "10000"),
    ("5 cm", "5 miles"), ("2/4", "1/2"), ("0.5", "1/2"),
):
    print(compute_score(f"\\boxed{{{answer}}}", truth)[0])
PYTHON
python score.py 2>errors >out || { cat errors >&2; exit 2; }
seen "42 and 43 for 42" "$(sed -n 1,2p out | xargs)" "True False"
seen "0.42 and 4200 for 42" "$(sed -n 3,4p out | xargs)" "True True"
seen "(100, 2) for (1, 2)" "$(sed -n 5p out)" True
seen "10001 for 10000" "$(sed -n 6p out)" True
seen "5 cm for 5 miles" "$(sed -n 7p out)" True
seen "2/4 and 0.5 for 1/2" "$(sed -n 8,9p out | xargs)" "False True"
