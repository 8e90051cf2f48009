"""Forks of one process, without a container: `python processes.py fork|sandlock BYTES N`, a program of its own.

A process holds a heap of so many bytes, each page of which holds its number. N forks read all pages, write one and say
whether they found them right. Prints as JSON the seconds until the last has said so, and the memory that they add while
they live; null where they end with their work. It imports nothing of tvsnap, because a peer has its own interpreter.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import sys
import time
from pathlib import Path

PAGE = 4096


def heap(size: int) -> memoryview:
    """Returns memory of a size, as numbers; each page begins with its own."""
    numbers = memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)).cast("Q")
    for page in range(size // PAGE):
        numbers[page * PAGE // 8] = page
    return numbers


def verified(numbers: memoryview, number: int) -> bool:
    """Whether all pages hold their numbers; writes the fork's own into the first."""
    pages = len(numbers) * 8 // PAGE
    right = sum(numbers[:: PAGE // 8].tolist()) == pages * (pages - 1) // 2
    numbers[1] = number
    return right and numbers[1] == number


def available() -> int:
    """Returns the machine's free memory, bytes."""
    match = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def forked(size: int, count: int) -> tuple[float, int | None]:
    """Forks by the system call: seconds, and bytes that the forks add."""
    numbers = heap(size)
    answers, answer = os.pipe()
    end, hold = os.pipe()
    memory, began = available(), time.perf_counter()
    for number in range(count):
        if not os.fork():
            os.close(hold)
            os.write(answer, b"1" if verified(numbers, number) else b"0")
            os.read(end, 1)  # until the parent closes `hold`
            os._exit(0)
    right = b"".join(os.read(answers, 1) for _ in range(count))
    seconds, added = time.perf_counter() - began, memory - available()
    os.close(hold)
    for _ in range(count):
        os.wait()
    if right != b"1" * count:
        raise SystemExit(f"{right.count(b'0')} forks of {count} found other memory")
    return seconds, max(0, added)


def sandlocked(size: int, count: int) -> tuple[float, int | None]:
    """Forks by sandlock: seconds."""
    from sandlock import Sandbox  # type: ignore[import-not-found]  # of the peer's own interpreter

    began = memoryview(mmap.mmap(-1, 8)).cast("d")  # which the process that forks shares with this one
    held: list[memoryview] = []

    def begin() -> None:
        held.append(heap(size))
        began[0] = time.perf_counter()

    places = [place for place in ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev") if Path(place).exists()]
    mapper = Sandbox(
        fs_readable=places, init_fn=begin, work_fn=lambda number: print(int(verified(held[0], number)), flush=True)
    )
    forks = mapper.fork(count)
    answers = Sandbox(fs_readable=places).reduce(["cat"], forks)
    seconds = time.perf_counter() - began[0]
    if answers.stdout.split() != [b"1"] * count:
        raise SystemExit(f"of {count} forks came {answers.stdout!r} {answers.stderr!r}")
    return seconds, None


if __name__ == "__main__":
    way, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seconds, added = {"fork": forked, "sandlock": sandlocked}[way](size, count)
    print(json.dumps({"seconds": seconds, "added": added}))
