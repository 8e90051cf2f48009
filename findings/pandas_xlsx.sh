#!/usr/bin/env bash
# pandas 3.1.1 with openpyxl 3.1.5 and python-calamine 0.9.1: answers and groups through an Excel file
#
# Guess: texts and numbers come back, as the file has types.
# Behaviour: an answer that begins with = is a formula, and is missing when it is read; N/A, None and nan are missing, too. A
# text is cut after 32767 characters, ids have 16 digits, and times milliseconds. A group that is the index is written
# once for all of its rows, so that the others have none. For the text _x0041_ one reader has A.
. "$(dirname "$0")/common.sh"
packages pandas==3.1.1 openpyxl==3.1.5 python-calamine==0.9.1

cat >through.py <<'PYTHON'
import datetime
import warnings
import pandas
warnings.simplefilter("ignore")
def through(table, engine="openpyxl", **how):
    table.to_excel("table.xlsx", **how)
    return pandas.read_excel("table.xlsx", engine=engine)
answers = pandas.DataFrame({"answer": ["=1+1", "N/A", "None", "007", "_x0041_", "x" * 40000]})
for engine in ("openpyxl", "calamine"):
    print([value if not isinstance(value, str) or len(value) < 9 else len(value) for value in through(answers, engine, index=False)["answer"]])
numbers = pandas.DataFrame({"id": [12345678901234567], "at": [datetime.datetime(2026, 1, 1, 10, 0, 0, 123456)]})
print(*through(numbers, index=False).iloc[0])
rewards = pandas.DataFrame({"task": ["a", "a", "b"], "try": [1, 2, 1], "reward": [0, 1, 1]}).set_index(["task", "try"])
print(rewards.groupby("task")["reward"].mean().to_dict(), through(rewards).groupby("task")["reward"].mean().to_dict())
PYTHON
python through.py >out
seen "answers, by openpyxl" "$(sed -n 1p out)" "[nan, nan, nan, '007', '_x0041_', 32767]"
seen "answers, by calamine" "$(sed -n 2p out)" "[nan, nan, nan, '007', 'A', 32767]"
seen "id 12345678901234567 and a time with .123456" "$(sed -n 3p out)" "12345678901234570 2026-01-01 10:00:00.123000"
seen "means of two groups, and those of the file" "$(sed -n 4p out)" "{'a': 0.5, 'b': 1.0} {'a': 0.0, 'b': 1.0}"
