#!/usr/bin/env bash
# jq 1.6 (of the system): a grader that reads the result of a rollout by `jq -e .passed` and `jq '.reward // 1'`
#
# Guess: without a result, -e ends with a status that is not 0; a reward that is false stays false, as only null is missing.
# Behaviour: for an empty file, as of a program that wrote nothing, nothing is printed and the status is 0, also with -e. False
# counts as missing for `//`. With two results, the last one is the status. Numbers of more than 17 digits are rounded, 3.10
# is 3.1, and 1e1000 is a number of 309 digits.
. "$(dirname "$0")/common.sh"
needs jq
jq --version

status() { jq -e .passed >log 2>&1 && echo 0 || echo $?; }
seen "an empty file: status" "$(status </dev/null)" 0
seen "passed is false: status" "$(status <<<'{"passed": false}')" 1
seen "nothing in it: status" "$(status <<<'{}')" 1
seen "first false, then true" "$(status <<<'{"passed": false} {"passed": true}')" 0
seen "false // 1" "$(jq -c '.reward // 1' <<<'{"reward": false}')" 1
seen "numbers" "$(jq -c . <<<'[12345678901234567890, 3.10, 1e1000]')" "[12345678901234567000,3.1,1.7976931348623157e+308]"
