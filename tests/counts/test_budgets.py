from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.counts.budgets import Budgets
from tests.counts.measuring import ROOT

HERE, ELSEWHERE = "Python 3.11, x86_64", "Python 3.13, x86_64"

COUNTING = """
import json, os, subprocess, sys, threading
from tests.counts.counters import CannotCount, KernelCounter, PythonCalls

def call():
    os.close(os.open("/", os.O_RDONLY))

def operate():
    call()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    subprocess.run(["sh", "-c", "(:); :"], check=True)

try:
    kernel = KernelCounter()
except CannotCount as lack:
    sys.exit(str(lack))
calls = PythonCalls()
before = kernel.read()
made = calls.of(operate, lambda: None)
after = kernel.read()
print(json.dumps({"call": [code.co_name for code in made].count("call"), **{k: after[k] - before[k] for k in after}}))
"""


@pytest.mark.parametrize(
    ("budget", "count", "made_with", "complaint"),
    [
        (84, 84, HERE, ""),
        (84, 85, HERE, "hit: 85 calls, budget 84: make it cheaper"),
        (0, 1, HERE, "make it cheaper"),
        (1500, 1515, HERE, ""),
        (1500, 1516, HERE, "make it cheaper"),
        (84, 76, HERE, ""),
        (84, 75, HERE, "hit: 75 calls, budget 84: it has become cheaper"),
        (5, 1, HERE, ""),
        (5, 0, HERE, "it has become cheaper"),
        (84, 126, ELSEWHERE, ""),
        (84, 127, ELSEWHERE, "make it cheaper"),
        (84, 0, ELSEWHERE, ""),
    ],
)
def test_what_is_complained_about(budget: int, count: int, made_with: str, complaint: str) -> None:
    complaints = list(Budgets(HERE, {"hit": {"calls": budget}}).complaints("hit", {"calls": count}, made_with))
    assert [complaint in text for text in complaints] == [True] * bool(complaint)


def test_what_has_no_budget_is_told() -> None:
    assert list(Budgets(HERE, {}).complaints("hit", {"calls": 1}, HERE)) == [
        "hit: there is no budget for calls; record one by `make budgets`"
    ]


def test_threads_and_processes_are_counted_along() -> None:
    run = subprocess.run([sys.executable, "-c", COUNTING], cwd=ROOT, capture_output=True, text=True, check=False)
    if "cannot be counted here" in run.stderr:
        pytest.skip(run.stderr.strip())
    assert run.returncode == 0, run.stderr
    counts = json.loads(run.stdout)
    assert (counts["call"], counts["processes started"], counts["programs executed"]) == (2, 2, 1)
    assert 2 <= counts["files opened"] < counts["system calls"] < 200
