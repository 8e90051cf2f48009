#!/usr/bin/env bash
# verl 0.9.1 (numpy 2.3.4): `prime_code.compute_score`, the reward for programs (`apps`, `taco`, `codeforces`) without a sandbox
#
# Guess: 1 for a program that prints, or a function that returns, what a test case wants; Python runs it as a file.
# Behaviour: the program becomes the body of a function behind imports of many modules: with `global` or
# `sys.stdin.buffer` it scores 0, as it does where a statement follows `if __name__ == "__main__":`; without its own imports
# 1. Numbers are close enough at one in 100,000 as soon as one is no digits alone: -1000005 is right for -1000000, 1000005
# is not for 1000000. A function may return the first element of the list that is wanted.
. "$(dirname "$0")/common.sh"
packages_alone verl==0.9.1
packages numpy==2.3.4

cat >score.py <<'PYTHON'
import sys
import sysconfig
sys.path.insert(0, sysconfig.get_path("purelib") + "/verl/utils/reward_score")  # verl itself would import PyTorch
from prime_code import compute_score
def program(source, stdin, stdout):
    print(float(compute_score(source, {"inputs": [stdin], "outputs": [stdout]}, continuous=True)[0]))
def function(source, argument, result):
    tests = {"fn_name": "solve", "inputs": [argument], "outputs": [result]}
    print(float(compute_score(source, tests, continuous=True)[0]))
for source in (
    "print(sum(map(int, input().split())))",
    "total = 0\ndef add(n):\n    global total\n    total += n\nfor n in input().split():\n    add(int(n))\nprint(total)",
    "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
    "if __name__ == '__main__':\n    print(sum(map(int, input().split())))\nend = True",
    "print(reduce(add, map(int, input().split())))",
):
    program(source, "1 2 3\n", "6\n")
program("print(-1000005)", "", "-1000000\n")
program("print(1000005)", "", "1000000\n")
function("def solve(n):\n    return 1", "3", "[1, 2, 3]")
function("def solve(n):\n    return 2", "3", "[1, 2, 3]")
PYTHON
python score.py 2>errors >out || { cat errors >&2; exit 2; }
seen "a sum" "$(sed -n 1p out)" 1.0
seen "with a global variable, from sys.stdin.buffer, a statement after main" "$(sed -n 2,4p out | xargs)" "0.0 0.0 0.0"
seen "reduce and add, without an import" "$(sed -n 5p out)" 1.0
seen "-1000005 for -1000000, 1000005 for 1000000" "$(sed -n 6,7p out | xargs)" "1.0 0.0"
seen "a function that returns 1, or 2, for [1, 2, 3]" "$(sed -n 8,9p out | xargs)" "1.0 0.0"
