"""A process with a large heap that does what it is told, for tests of pages of memory."""

from __future__ import annotations

import shlex

import pytest

from tests.conformance.helpers import Lab, sh
from tvsnap.sandboxes.criu import binary
from tvsnap.sandboxes.local.backend import LocalBackend
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


def backend_with(lab: Lab, addition: str) -> LocalBackend:
    """Returns the backend of a lab, whose CRIU has an addition of ours; skips the test where it has not."""
    backend = lab.backend
    assert isinstance(backend, LocalBackend)
    found = binary.find_criu()
    assert found is not None
    if addition not in binary.additions(found):
        pytest.skip(f'this CRIU lacks "{addition}" (tvsnap setup builds one that has it)')
    return backend


def start_holder(sandbox: Sandbox, size: int) -> None:
    """Starts a process that holds random pages, and obeys `do`."""
    sandbox.write_file("holder.py", _PROGRAM.format(size=size).encode())
    sh(sandbox, "mkfifo orders; python3 holder.py > log 2>&1 & until [ -e ready ]; do sleep 0.05; done", timeout=120)


def do(sandbox: Sandbox, order: str = "pass") -> str:
    """Has the process execute a line; returns the digest of its pages afterwards, or what the line set `said` to."""
    told = f"rm -f answer; echo {shlex.quote(order)} > orders; until [ -e answer ]; do sleep 0.02; done; cat answer"
    return sh(sandbox, told)
