"""A process with a large heap that does what it is told, for tests of pages of memory."""

from __future__ import annotations

import shlex

from tests.conformance.helpers import sh
from tvsnap.sandboxes.protocol import Sandbox

MIB = 1 << 20
_PROGRAM = """
import ctypes, hashlib, mmap, os, random, signal, sys
data = mmap.mmap(-1, {size}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
data[:] = random.Random(1).randbytes({size})
orders = os.open("orders", os.O_RDWR)
open("ready", "w").close()
while True:
    for order in os.read(orders, 4096).decode().splitlines():
        said = None
        exec(order)
        with open("answer.new", "w") as answer:
            print(hashlib.sha256(data).hexdigest() if said is None else said, file=answer)
        os.rename("answer.new", "answer")
"""


def start_holder(sandbox: Sandbox, size: int) -> None:
    """Starts a process that holds random pages, and obeys `do`."""
    sandbox.write_file("holder.py", _PROGRAM.format(size=size).encode())
    sh(sandbox, "mkfifo orders; python3 holder.py > log 2>&1 & until [ -e ready ]; do sleep 0.05; done", timeout=120)


def do(sandbox: Sandbox, order: str = "pass") -> str:
    """Has the process execute a line; returns the digest of its pages afterwards, or what the line set `said` to."""
    told = f"rm -f answer; echo {shlex.quote(order)} > orders; until [ -e answer ]; do sleep 0.02; done; cat answer"
    return sh(sandbox, told)
