#!/usr/bin/env bash
# verifiers 0.4.0 (math-verify 0.9.0, openai 2.54.0): how a judge's reply and a program's output are read
#
# Guess: of "The answer is B. It is not a close call." the verdict is B; a program's output may differ by spaces.
# Behaviour: the last of the letters that stands alone counts, also the article "a": A, as is "B: a wrong answer".
# Behind "Verdict:" it is the first: of "Verdict: not a match, so B" it is A, too. Numbers may differ by 0.001, however
# small they are, so that 0.0009 is right for 0.0001; lines may be broken elsewhere; with one word beside them, not.
. "$(dirname "$0")/common.sh"
packages_alone verifiers==0.4.0
packages math-verify==0.9.0 'latex2sympy2-extended[antlr4_13_2]==1.11.0' openai==2.54.0

cat >read.py <<'PYTHON'
import sys
import sysconfig
import types
for name in ("verifiers", "verifiers.v1", "verifiers.v1.utils"):  # their own would import much that these do not use
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [sysconfig.get_path("purelib") + "/" + name.replace(".", "/")]
from verifiers.v1.utils.score import compare_stdout_results, parse_judge_choice
for reply in (
    "It is wrong, so B", "The answer is B. It is not a close call.", "B: a wrong answer", "Verdict: not a match, so B",
):
    print(parse_judge_choice(reply))
for output, expected in (("0.0009", "0.0001"), ("1\n2 3", "1 2\n3"), ("rate 0.0009", "rate 0.0001")):
    print(compare_stdout_results(output, expected))
PYTHON
python read.py >out
seen "It is wrong, so B" "$(sed -n 1p out)" B
seen "The answer is B. It is not a close call." "$(sed -n 2p out)" A
seen "B: a wrong answer" "$(sed -n 3p out)" A
seen "Verdict: not a match, so B" "$(sed -n 4p out)" A
seen "0.0009 for 0.0001" "$(sed -n 5p out)" True
seen "1, then 2 3, for 1 2, then 3" "$(sed -n 6p out)" True
seen "rate 0.0009 for rate 0.0001" "$(sed -n 7p out)" False
