"""Arenas of the C library are shared by threads where that was asked for."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, re, sys, threading
from tvsnap.host.memory import keep_few_arenas
if sys.argv[1] == "few":
    assert keep_few_arenas()
take = ctypes.CDLL(None).malloc
wait = threading.Barrier(13)
def work():
    [take(1000) for _ in range(100)]
    wait.wait()
threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads: thread.start()
wait.wait()
mappings = re.findall("(?m)^([0-9a-f]+)-.* rw-p .* 0 +$", open("/proc/self/maps").read())
print(sum(int(start, 16) % (64 << 20) == 0 for start in mappings))  # where arenas begin
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no arenas")
def test_threads_share_arenas() -> None:
    few, many = (
        int(subprocess.run([sys.executable, "-c", SCRIPT, what], capture_output=True, text=True, check=True).stdout)
        for what in ("few", "many")
    )
    assert few <= 1 < many
