#!/usr/bin/env bash
# cachier 4.2.0: two scripts, each with its own cached function of the same name
#
# Guess: each has its own results, as with `joblib.Memory`, which names them by the script; and a changed function is run anew.
# Behaviour: the entries belong to `__main__` and the function's name: the second script has the first one's results, and a
# script that was changed keeps the old ones, also in the next process. The folder is one for all of a user's programs.
. "$(dirname "$0")/common.sh"
packages cachier==4.2.0

export HOME=$work/home
mkdir home first second
for task in first second; do
    cat >$task/solve.py <<END
from cachier import cachier
@cachier()
def solve(number):
    return f"$task {number}"
print(solve(1))
END
done
seen "first script" "$(python first/solve.py)" "first 1"
seen "second script" "$(python second/solve.py)" "first 1"
sed -i 's/f"first/f"changed/' first/solve.py
seen "the first one, changed" "$(python first/solve.py)" "first 1"
rm -r home && mkdir home
seen "second script, without the entries" "$(python second/solve.py)" "second 1"
