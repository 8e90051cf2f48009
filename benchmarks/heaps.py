"""Checkpoints and forks of a process by the size of its heap: time, processor time, and memory that forks add.

Each page of the heap holds its number. A fork counts once its process has read all of them, and found them right.
"""

from __future__ import annotations

import contextlib
import re
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from benchmarks.figures import Figure, figure
from benchmarks.workspace import Workspace
from tvsnap.model.errors import InfrastructureError
from tvsnap.model.observations import SnapshotInfo
from tvsnap.sandboxes.local.sandbox import LocalSandbox

T = TypeVar("T")
MIB = 1 << 20
SIZES = (4, 64, 256, 1024)
"""Of heaps, in MiB."""
ROUNDS = 9
AT_ONCE = 8
PATIENCE = 120.0
"""Seconds for what a process in a sandbox is told to do."""
HOLDER = """
import mmap, os
data = mmap.mmap(-1, {size}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
numbers = memoryview(data).cast("Q")
for page in range({size} // 4096):
    numbers[page * 512] = page
orders = os.open("orders", os.O_RDWR)
open("ready", "w").close()
while order := os.read(orders, 4096):
    answer = eval(order)
    with open("answer.new", "w") as file:
        print(answer, file=file)
    os.rename("answer.new", "answer")
"""
READ = "sum(numbers[::512].tolist())"
WRITE = "[numbers.__setitem__(page * 512 + 1, {value}) for page in range(0, len(numbers) // 512, 100)] and 1"


def run(space: Workspace) -> Iterator[Figure]:
    """Measures all sizes by turns, so that what else the machine does meets all of them."""
    heaps = [_Heap(space, size) for size in SIZES]
    try:
        for heap in heaps:
            space.tell(f"a heap of {heap.size} MiB")
            heap.begin()
        for number in range(space.samples(ROUNDS)):
            for heap in heaps:
                space.tell(f"a heap of {heap.size} MiB, round {number + 1}")
                heap.measure(number)
        for heap in heaps:
            yield from heap.figures()
    finally:
        for heap in heaps:
            heap.close()


class _Heap:
    """A sandbox with a process that has a heap, its snapshot, and what was measured of both."""

    def __init__(self, space: Workspace, size: int) -> None:
        self.size = size
        self._space = space
        self._sandbox: LocalSandbox | None = None
        self._snapshot = ""
        self._samples: dict[str, list[float]] = {}

    def begin(self) -> None:
        """Makes the process, and its snapshot."""
        self._sandbox = self._space.start()
        self._sandbox.write_file("holder.py", HOLDER.format(size=self.size * MIB).encode())
        command = "mkfifo orders; python3 holder.py > log 2>&1 & until [ -e ready ]; do sleep 0.02; done"
        self._sandbox.run(command, timeout=PATIENCE)
        self._snapshot = self._checkpoint("first checkpoint", self._sandbox).id

    def measure(self, number: int) -> None:
        """Takes one sample of everything."""
        assert self._sandbox is not None
        unchanged = self._checkpoint("checkpoint of what did not change", self._sandbox)
        self._space.backend.delete_snapshot(unchanged.id)
        before = self._memory()
        fork = self._timed("one fork", self._fork)
        self._note("memory that one fork adds", self._memory() - before)
        self._ask(fork, WRITE.format(value=number))
        written = self._checkpoint("checkpoint of a fork, 1 % written", fork)
        self._space.backend.delete_snapshot(written.id)
        fork.close()
        for words, held in ((" that share memory", True), (" with memory of their own", False)):
            with self._held(held):
                self._many(words)

    def _many(self, words: str) -> None:
        """Makes several forks at once; `words` say of which kind."""
        self._space.settle()
        before = self._memory()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            forks = self._timed(
                f"{AT_ONCE} forks{words}", lambda: list(threads.map(lambda _: self._fork(), range(AT_ONCE)))
            )
            self._note(f"memory that {AT_ONCE} forks{words} add", self._memory() - before)
            list(threads.map(lambda fork: fork.close(), forks))
        self._space.settle()

    @contextlib.contextmanager
    def _held(self, held: bool) -> Iterator[None]:
        """A block in which forks share the memory of large heaps, or do not."""
        backend = self._space.backend
        holders, backend._holders = backend._holders, backend._holders if held else None
        try:
            yield
        finally:
            backend._holders = holders

    def figures(self) -> Iterator[Figure]:
        """Yields what was measured."""
        for what, samples in self._samples.items():
            unit = "MB" if what.startswith("memory") else "ms"
            name = re.sub(r"\W+", "_", f"heap {self.size} {what}")
            yield figure(name, f"{self.size} MiB: {what}", samples, unit)

    def close(self) -> None:
        """Ends the process, and deletes its snapshot."""
        if self._sandbox:
            self._sandbox.close()
        if self._snapshot:
            self._space.backend.delete_snapshot(self._snapshot)

    def _fork(self) -> LocalSandbox:
        fork = self._space.fork(self._snapshot)
        pages = self.size * MIB // 4096
        found = int(self._ask(fork, READ))
        assert found == pages * (pages - 1) // 2, found
        return fork

    def _checkpoint(self, what: str, sandbox: LocalSandbox) -> SnapshotInfo:
        self._space.settle()
        before = _used_by_children()
        info = self._timed(what, sandbox.checkpoint)
        self._samples[f"{what}, processor time"][-1] += _used_by_children() - before
        return info

    @staticmethod
    def _ask(sandbox: LocalSandbox, order: str) -> str:
        outcome = sandbox.run(command_for(order), timeout=PATIENCE)
        if outcome.exit_code or outcome.timed_out:
            raise InfrastructureError(f"the process with the heap does not answer: {outcome.output!r}")
        return outcome.output.decode()

    def _timed(self, what: str, do: Callable[[], T]) -> T:
        began, used = time.perf_counter(), self._processor_time()
        result = do()
        self._note(what, time.perf_counter() - began)
        self._note(f"{what}, processor time", self._processor_time() - used)
        return result

    def _note(self, what: str, value: float) -> None:
        self._samples.setdefault(what, []).append(value)

    def _processor_time(self) -> float:
        """Returns the seconds that this process, its sandboxes and what worked for them have used.

        What takes checkpoints counts as a child of this process, as it works outside of the sandboxes' groups.
        """
        mine = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        for root in self._space.backend._cgroups.roots:
            if (file := root / "cpuacct.usage").exists():
                return mine + int(file.read_text()) / 1e9
            if (file := root / "cpu.stat").exists() and "usage_usec" in file.read_text():
                return mine + _numbers(file)["usage_usec"] / 1e6
        return mine

    def _memory(self) -> int:
        """Returns the bytes of anonymous memory of all sandboxes and of what serves them, each page once."""
        for root in self._space.backend._cgroups.roots:
            if (root / "memory.stat").exists():
                found = _numbers(root / "memory.stat")
                return found["anon"] if "anon" in found else found["total_rss"]
        raise InfrastructureError("no control group counts memory here")


def command_for(order: str) -> str:
    """Returns the shell command that has the process do something, and prints its answer."""
    return f"rm -f answer; echo '{order}' > orders; until [ -e answer ]; do sleep 0.005; done; cat answer"


def _used_by_children() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def _numbers(file: Path) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, file.read_text().splitlines())}
