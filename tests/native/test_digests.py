"""Digests of what a sandbox's commands make: BLAKE2s and BLAKE2sp as Python has them; what labels do to them."""

from __future__ import annotations

import hashlib
import random
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.native.building import HERE, NATIVE, SANITIZERS, build, variable
from tvsnap.host.native import INIT

LENGTHS = (0, 1, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 1472, 1473, 1536, 4096, 4097, 65536, 100_001)
FLAGS = {"sanitized": SANITIZERS, "as it is built": variable("HARDENED")}


def of_many(data: bytes) -> str:
    """Returns BLAKE2sp of bytes: the block of number n is of leaf n % 8."""
    node = partial(hashlib.blake2s, fanout=8, depth=2, inner_size=32)
    root = node(node_depth=1, last_node=True)
    for leaf in range(8):
        blocks = (data[at : at + 64] for at in range(64 * leaf, len(data), 512))
        root.update(node(b"".join(blocks), node_offset=leaf, last_node=leaf == 7).digest())
    return root.hexdigest()


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_digests_are_blake2(tmp_path: Path, flags: list[str]) -> None:
    program = build(tmp_path / "hash", HERE / "hash_of_input.c", NATIVE / "init" / "hash.c", flags=flags)
    for length in LENGTHS:
        data = random.Random(length).randbytes(length)
        said = subprocess.run([program], input=data, capture_output=True, check=True).stdout.decode().split()
        assert said == [hashlib.blake2s(data).hexdigest(), of_many(data)], length


LOOK = 'mount --bind "$2" "/proc/$1/attr/$3" && mount --bind "$2" "/proc/$1/task/$1/attr/$3" && exec "$0" holds "$1"'
"""Stands in for a security module, in mounts of its own: what is said to be a label of a process is in a file."""


@pytest.mark.parametrize("name", ["current", "exec", "sockcreate"])
def test_labels_of_security_modules_count(tmp_path: Path, name: str) -> None:
    label, current = tmp_path / "label", tmp_path / "current"
    current.write_text("unconfined\n")
    with subprocess.Popen(["sleep", "1000"]) as sleeper:

        def look(text: str) -> str:
            label.write_text(text)
            first = f'mount --bind "{current}" "/proc/$1/attr/current" && {LOOK}'
            command = ["unshare", "--mount", "sh", "-c", first, str(INIT), str(sleeper.pid), str(label), name]
            return subprocess.run(command, capture_output=True, check=True, text=True).stdout

        try:
            assert "?" not in look("one\n")
            assert look("one\n") == look("one\n")
            assert look("one\n") != look("two\n")
        finally:
            sleeper.kill()
