#!/usr/bin/env bash
# CTest of cmake 4.4.5: programs that fail, with PASS_REGULAR_EXPRESSION; and a filter that names no test
#
# Guess: the expression is one more condition beside the status 0; and it is an error if no test is run.
# Behaviour: the expression takes the place of the status: a program that prints "all right" and ends with 1 has passed.
# FAIL_REGULAR_EXPRESSION is one more condition. With no test that has the name, or none at all, the status is 0.
. "$(dirname "$0")/common.sh"
packages cmake==4.4.5

cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.20)
project(task NONE)
enable_testing()
add_test(NAME pass COMMAND sh -c "echo all right; exit 1")
set_tests_properties(pass PROPERTIES PASS_REGULAR_EXPRESSION "all right")
add_test(NAME fail COMMAND sh -c "echo all right; exit 1")
set_tests_properties(fail PROPERTIES FAIL_REGULAR_EXPRESSION "wrong")
END
venv/bin/cmake -S . -B build >cmake.log
test_status() { venv/bin/ctest --test-dir build "$@" >log 2>&1 && echo 0 || echo $?; }
seen "status 1 and the text that is asked for" "$(test_status -R pass) $(grep -c Passed log)" "0 1"
seen "status 1 without the text that is forbidden" "$(test_status -R fail)" 8
seen "a name that no test has" "$(test_status -R reward) $(tail -n 1 log)" "0 No tests were found!!!"
seen "the same with --no-tests=error" "$(test_status -R reward --no-tests=error)" 8
