#!/usr/bin/env bash
# bash 5.2.15 (of the system): variables that `declare -p` has saved, and that a function restores by `source`
#
# Guess: they are there again afterwards, as if each had been assigned where the file is read.
# Behaviour: `declare` makes local variables in a function, also from a file that the function reads: they are there until it
# ends, and none of them afterwards, exported ones included. Plain assignments, and those by `export`, stay. Status is 0.
. "$(dirname "$0")/common.sh"
bash --version | sed -n 1p

cat >restore.sh <<'END'
STEP=3
export TOKEN=abc
FILES=(a "b c")
declare -A SCORES=([first]=1)
declare -p STEP TOKEN FILES SCORES >declared
{ echo "STEP=$STEP"; export -p | sed -n 's/^declare -x TOKEN/export TOKEN/p'; } >assigned
unset STEP TOKEN FILES SCORES
restore() { source "./$1"; }
show() { echo "${STEP-none} ${FILES[1]-none} ${SCORES[first]-none} $(printenv TOKEN || echo none)"; }
within() { source ./declared; show; }
within
restore declared
echo "$? $(show)"
source ./declared
show
unset STEP TOKEN FILES SCORES
restore assigned
show
END
bash restore.sh >out
seen "within the function" "$(sed -n 1p out)" "3 b c 1 abc"
seen "status, and variables after the function" "$(sed -n 2p out)" "0 none none none none"
seen "read without a function" "$(sed -n 3p out)" "3 b c 1 abc"
seen "assigned and exported in a function" "$(sed -n 4p out)" "3 none none abc"
