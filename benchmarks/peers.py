"""tvsnap beside others that fork the state of a process, as a page: `python -m benchmarks.peers --out peers.md`.

The same work for each: a Python process holds a heap, each page of which holds its number; its state is forked; each
fork reads all pages, finds them right, and writes one. Contenders take turns. What cannot be installed or does not fork
processes on this machine is named with the reason. Then the answers that `tvsnap serve` and TVCache's published server
give (`benchmarks.served`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks import engines, heaps, machine, served
from benchmarks.contenders import Contender, Live
from benchmarks.figures import Figure
from benchmarks.processes import available
from benchmarks.workspace import Workspace, workspace
from tvsnap.model.errors import TvsnapError

MIB = 1 << 20
SIZES = (64, 256)
"""Of heaps, in MiB."""
COUNTS = (1, 4, 16, 64)
"""How many forks at once."""
THREADS = 8
TURNS = 3
PATIENCE = 300.0
"""Seconds for one command of a peer."""
PROCESSES = Path(__file__).with_name("processes.py")
PINNED = {"sandlock": "sandlock==0.9.0", "LazyFork": "lazyfork==0.2.3", "nitrobox": "nitrobox"}
"""Peers that pip installs, where its registry has them."""
CONTAINER = "namespaces, control group, seccomp; files too"
ISOLATION = {"fork(2)": "none", "sandlock": "Landlock, seccomp; forks end with their work"}
"""What keeps a fork from the host where it is no container, of those that `processes.py` drives."""


class Absent(Exception):
    """A peer does not take part; the message says why."""


@dataclass
class Peer:
    """One that takes part.

    Attributes:
        name: what it is called, with its version.
        isolation: what keeps its forks from the host and from each other.
        forks: makes so many verified forks of a heap of so many MiB; returns seconds, and the bytes of memory that they
            add while they live, None if that is not known.
        seconds, added: what was measured, by size and count.
    """

    name: str
    isolation: str
    forks: Callable[[int, int], tuple[float, int | None]]
    seconds: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    added: dict[tuple[int, int], list[float]] = field(default_factory=dict)

    def measure(self, size: int, count: int) -> None:
        """Takes one sample."""
        seconds, added = self.forks(size, count)
        self.seconds.setdefault((size, count), []).append(seconds)
        if added is not None:
            self.added.setdefault((size, count), []).append(added)


class Containers:
    """Forks of containers: of each size there is one whose state was taken once."""

    def __init__(self, space: Workspace, contender: Contender, ends: contextlib.ExitStack) -> None:
        self._space = space
        self._contender = contender
        self._ends = ends
        self._snapshots: dict[int, str] = {}

    def forks(self, size: int, count: int) -> tuple[float, int | None]:
        """Makes forks at once; see `Peer.forks`."""
        snapshot = self._snapshots.get(size) or self._snapshot(size)
        self._space.settle()
        before, began = available(), time.perf_counter()
        with ThreadPoolExecutor(min(count, THREADS)) as threads:
            forks = list(threads.map(lambda number: self._fork(snapshot, size, number), range(count)))
            seconds, added = time.perf_counter() - began, max(0, before - available())
            list(threads.map(lambda fork: fork.close(), forks))
        return seconds, added

    def _snapshot(self, size: int) -> str:
        holder = shlex.quote(heaps.HOLDER.format(size=size * MIB))
        live = self._contender.start(f"cd /tmp && mkfifo orders && exec python3 -c {holder}")
        self._ends.callback(live.close)  # not before: an engine may have its snapshots beside it
        live.answer("until [ -e /tmp/ready ]; do sleep 0.02; done")
        self._snapshots[size] = snapshot = live.checkpoint()
        self._ends.callback(self._contender.delete, snapshot)
        return snapshot

    def _fork(self, snapshot: str, size: int, number: int) -> Live:
        fork = self._contender.fork(snapshot, busy=True)
        pages = size * MIB // 4096
        for order, expected in (
            (heaps.READ, pages * (pages - 1) // 2),
            (f"numbers.__setitem__(1, {number}) or numbers[1]", number),
        ):
            answer = fork.answer(f"cd /tmp && {heaps.command_for(order)}").strip()
            if answer != str(expected).encode():
                raise Absent(f"a fork of {size} MiB answered {answer!r}, not {expected}")
        return fork


def of_processes(way: str, interpreter: str) -> Callable[[int, int], tuple[float, int | None]]:
    """Returns what makes forks of a process by `processes.py`, in an interpreter that has the peer."""

    def forks(size: int, count: int) -> tuple[float, int | None]:
        command = [interpreter, str(PROCESSES), way, str(size * MIB), str(count)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if run.returncode:
            raise Absent(f"{way}: {_last(run.stderr)}")
        measured = json.loads(run.stdout)
        return measured["seconds"], measured["added"]

    return forks


def installed(requirement: str, folder: Path) -> str:
    """Returns an interpreter, in a new environment, that has a pinned package.

    Raises:
        Absent: pip does not install it.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run = subprocess.run([*command, requirement], capture_output=True, text=True, timeout=PATIENCE, check=False)
    if run.returncode:
        raise Absent(f"`pip install {requirement}`: {_last(run.stderr)}")
    return str(folder / "bin" / "python")


def peers(space: Workspace, ends: contextlib.ExitStack, absent: dict[str, str]) -> Iterator[Peer]:
    """Yields those that take part on this machine; writes into `absent` why others do not."""
    yield Peer("fork(2)", ISOLATION["fork(2)"], of_processes("fork", sys.executable))
    for contender in engines.contenders(space, ends):
        if contender.takes_processes:
            yield Peer(contender.title, CONTAINER, Containers(space, contender, ends).forks)
        else:
            absent[contender.title] = "restores no processes here"
    folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="tvsnap-peers-")))
    for name, requirement in PINNED.items():
        space.tell(f"installing {requirement}")
        try:
            interpreter = installed(requirement, folder / name)
            if name not in ISOLATION:
                raise Absent("installed, but no program here drives it")
            yield Peer(requirement.replace("==", " "), ISOLATION[name], of_processes(name, interpreter))
        except Absent as reason:
            absent[name] = str(reason)


def measure(space: Workspace, absent: dict[str, str], sizes: Sequence[int], counts: Sequence[int]) -> list[Peer]:
    """Measures all by turns; a peer that fails takes part no longer."""
    with contextlib.ExitStack() as ends:
        present = list(peers(space, ends, absent))
        for turn in range(1 if space.quick else TURNS):
            for size in sizes:
                for count in counts:
                    for peer in list(present):
                        space.tell(f"turn {turn + 1}: {count} forks of {size} MiB, {peer.name}")
                        try:
                            peer.measure(size, count)
                        except (Absent, subprocess.SubprocessError, TvsnapError) as error:
                            absent[peer.name] = f"{count} forks of {size} MiB: {error}"
                            present.remove(peer)
    return present


def page(described: Mapping[str, object], present: Sequence[Peer], absent: Mapping[str, str]) -> Iterator[str]:
    """Yields the lines of the part about forks."""
    yield "# Forks of a process with a heap, side by side\n"
    yield f"{time.strftime('%d %B %Y')}; {machine.in_words(described)}. `python -m benchmarks.peers`, medians.\n"
    yield "Each fork has read all of its heap, found it right and written to it when its time ends.\n"
    shapes = list(dict.fromkeys(shape for peer in present for shape in peer.seconds))
    for title, unit, values in (("Seconds until all are verified", "s", "seconds"), ("Memory added", "MB", "added")):
        yield f"## {title}\n"
        yield "| | isolation | " + " | ".join(f"{count} x {size} MiB" for size, count in shapes) + " |"
        yield "| --- | --- |" + " ---: |" * len(shapes)
        for peer in present:
            cells = [_cell(getattr(peer, values).get(shape), unit) for shape in shapes]
            yield f"| {peer.name} | {peer.isolation} | " + " | ".join(cells) + " |"
        yield ""
    if absent:
        yield "## Not measured\n"
        yield from (f"- {name}: {reason}" for name, reason in absent.items())
        yield ""


def answers(figures: Sequence[Figure]) -> Iterator[str]:
    """Yields the lines of the part about served answers."""
    yield "## Served answers\n"
    yield "| | median |"
    yield "| --- | ---: |"
    for figure in figures:
        yield f"| {figure.subject + ': ' if figure.subject else ''}{figure.what} | {figure.median:,.2f} {figure.unit} |"
    yield ""


def main() -> int:
    """Measures, and writes the page; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page there; by default to standard output")
    parser.add_argument("--quick", action="store_true", help="one turn, small heaps, and no served answers")
    options = parser.parse_args()
    described, console = machine.describe(), Console(stderr=True, highlight=False)
    absent: dict[str, str] = {}
    try:
        with workspace(quick=options.quick, console=console) as space:
            sizes, counts = (SIZES[:1], COUNTS[:3]) if options.quick else (SIZES, COUNTS)
            lines = [*page(described, measure(space, absent, sizes, counts), absent)]
            if not options.quick:
                lines += answers([*served.run(space)])
    except TvsnapError as error:
        console.print(f"[red]error:[/] {error}", highlight=False)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    text = "\n".join(lines)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def _cell(samples: Sequence[float] | None, unit: str) -> str:
    if not samples:
        return "-"
    median = statistics.median(samples)
    return f"{median:.2f}" if unit == "s" else f"{median / 1e6:,.0f}"


def _last(text: str) -> str:
    """Returns the last line of a program's messages."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


if __name__ == "__main__":
    sys.exit(main())
