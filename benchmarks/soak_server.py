"""A server and eight client processes that are killed at random: does anything grow in the server, or on its machine?

`python -m benchmarks.soak_server --minutes 60`. After each tenth of the time, all clients are killed, and once the
server has ended what they held, it is looked at: memory, descriptors, threads, sandboxes, control groups, mounts, rows
of the graph, files. In the end it is stopped, and nothing may be left. As in `benchmarks.soak`, the second tenth is the
start.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from rich.console import Console

import tvsnap
from benchmarks import machine
from benchmarks.soak_report import END, MB, START, TENTHS, WIDTH, Quantity, Verdict, to_table
from benchmarks.soak_workload import script
from benchmarks.workspace import IMAGE, workspace
from tvsnap.host.memory import keep_few_arenas
from tvsnap.model.errors import TvsnapError

CLIENTS, MINUTES = 8, 60.0
_FORKS = multiprocessing.get_context("fork")  # so that a client begins at once, also on a busy machine
TTL = 3
SCRIPTS = 400
"""Of so many different rollouts, each client makes one after another, so that some are answered, and some are not."""
LIVES = (0.5, 30.0)
"""Seconds, from and to, after which a client is killed."""
PARKED = 32
SETTLING = 90.0
LEVELS = (
    Quantity("own memory", "own memory of the server, MB", 24 * MB, MB),
    Quantity("resident", "resident memory, MB", None, MB),
    Quantity("descriptors", "descriptors but the graph's", 40),
    Quantity("graph descriptors", "descriptors of the graph's connections"),
    Quantity("threads", "threads", 40),
    Quantity("rollouts", "rollouts not ended", 0),
    Quantity("held", "sandboxes that clients hold", 0),
    Quantity("sandboxes", "sandboxes that live"),
    Quantity("control groups", "control groups of a hierarchy but those of sandboxes", 0),
    Quantity("mounts", "mounts of the data directory", 0),
    Quantity("files", "files but the pool's", 200),
    Quantity("leases", "leases not given back", 0),
    Quantity("states", "states in the graph"),
    Quantity("edges", "calls in the graph"),
    Quantity("snapshots", "snapshots"),
)
"""What is looked at; a bound is by how much there may be more in the end than at the start."""


class Server:
    """A server process on a data directory."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-c", "from tvsnap_cli.entry import main; main()", "--home", str(home), "serve"]
        self.home = home
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--ttl", str(TTL), "--max-disk", "64M", "--max-snapshots", "200"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "serving at" not in line:
            self.process.kill()
            raise TvsnapError(f"the server did not start: {line!r}")
        self.url = line.split("serving at ")[1].split(",")[0].strip()

    def stop(self) -> int:
        """Stops it as systemd would; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def levels(self, client: tvsnap.Client) -> dict[str, float]:
        """Returns how much there is of everything, once what clients held has ended.

        Raises:
            TvsnapError: it does not end.
        """
        deadline = time.monotonic() + SETTLING
        while held := _held(client):
            if time.monotonic() > deadline:
                raise TvsnapError(f"after {SETTLING:.0f} s, the server still holds {held} for clients that are gone")
            time.sleep(0.2)
        time.sleep(1)  # what is on its way out
        proc = Path(f"/proc/{self.process.pid}")
        memory = {name: int(kib) * 1024 for name, kib in re.findall(r"(\w+): +(\d+) kB", _read(proc / "smaps_rollup"))}
        groups = control_groups(self.home)
        living = [name for name in groups if re.search(r"\.\d+$", name)]
        return {
            "own memory": memory.get("Anonymous", 0),
            "resident": memory.get("Rss", 0),
            "descriptors": sum("tvsnap.db" not in _target(one) for one in (proc / "fd").iterdir()),
            "graph descriptors": sum("tvsnap.db" in _target(one) for one in (proc / "fd").iterdir()),
            "threads": len(os.listdir(proc / "task")),
            "rollouts": 0,
            "held": 0,
            "sandboxes": len(living),
            "control groups": len(groups) - len(living),
            "mounts": sum(str(self.home) in line for line in _read(proc / "mounts").splitlines()),
            "files": _files(self.home),
            **self._rows(),
        }

    def _rows(self) -> dict[str, float]:
        with contextlib.closing(sqlite3.connect(f"file:{self.home / 'tvsnap.db'}?mode=ro", uri=True)) as graph:
            tables = ("leases", "states", "edges", "snapshots")
            return {table: graph.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


def _held(client: tvsnap.Client) -> int:
    return len(client.transport.get("/v1/rollouts")["rollouts"])


def control_groups(home: Path) -> list[str]:
    """Returns the names of the groups of a data directory, in the hierarchy that has most."""
    tag = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]
    roots = [path for path, names, _ in os.walk("/sys/fs/cgroup") if path.endswith(f"/tvsnap/{tag}")]
    found = [[name for _, names, _ in os.walk(root) for name in names] for root in roots]
    return max(found, key=len, default=[])


def _files(home: Path) -> int:
    """Returns how many files there are, without those of sandboxes and snapshots."""
    count = 0
    for path, names, files in os.walk(home):
        if Path(path) == home:
            names[:] = [name for name in names if name not in ("pool", "images", "cache")]
        count += len(files)
    return count


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class Clients:
    """Client processes, each of which is killed at a random time, and begun anew."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._random = random.Random(seed)
        self._running: dict[ForkProcess, float] = {}
        self.killed = 0
        self.complaints: list[str] = []

    def run(self, seconds: float, results: Path) -> None:
        """Has them run for so many seconds; none is left afterwards."""
        until = time.monotonic() + seconds
        try:
            while (now := time.monotonic()) < until:
                while len(self._running) < CLIENTS:
                    self._running[self._begin(results)] = now + self._random.uniform(*LIVES)
                for process, end in list(self._running.items()):
                    if process.exitcode is not None or now >= end:
                        self._end(process)
                time.sleep(0.05)
        finally:
            for process in list(self._running):
                self._end(process)

    def _begin(self, results: Path) -> ForkProcess:
        process = _FORKS.Process(target=be_client, args=(self._url, results, self._random.randrange(1 << 30)))
        process.start()
        return process

    def _end(self, process: ForkProcess) -> None:
        """Kills a client, unless it has ended by itself, which it only does where something was wrong."""
        del self._running[process]
        ended = process.exitcode
        process.kill()
        process.join()
        process.close()
        if ended is None:
            self.killed += 1
        else:
            self.complaints.append(f"a client ended by itself, with {ended}")


def be_client(url: str, results: Path, seed: int) -> None:
    """Makes rollouts until it is killed; writes a line for each call to a file. Ends with 1 if an answer is wrong."""
    chosen = random.Random(seed)
    with tvsnap.connect(url) as client, results.open("a", buffering=1) as file:
        while True:
            one = script(chosen.randrange(SCRIPTS))
            with client.rollout(IMAGE, one.task, one.salt, one.word) as rollout:
                for step in one.steps:
                    result = rollout.call(step.name, step.arguments, step.timeout)
                    file.write(f"{result.source}\n")
                    if step.expected not in result.output and not result.timed_out:
                        print(f"{step.name} {dict(step.arguments)!r} returned {result.output[:200]!r}", file=sys.stderr)
                        sys.exit(1)


def judge(samples: Sequence[Mapping[str, float]], left: Mapping[str, float]) -> list[Verdict]:
    """Returns what the run came to.

    Args:
        samples: what there was after each tenth.
        left: what there was after the server's end.
    """
    verdicts = []
    for quantity in LEVELS:
        numbers = [sample[quantity.name] for sample in samples]
        shown = [number / quantity.scale for number in numbers]
        if quantity.name == "sandboxes":
            verdicts.append(Verdict("sandboxes", quantity.what, shown, f"≤ {PARKED}", max(numbers) <= PARKED))
        elif quantity.grows is None:
            verdicts.append(Verdict(quantity.name, quantity.what, shown))
        else:
            bound = f"+{quantity.grows / quantity.scale:g}"
            holds = numbers[END] - numbers[START] <= quantity.grows
            verdicts.append(Verdict(quantity.name, quantity.what, shown, bound, holds))
    verdicts += [Verdict(name, f"{name}, in the end", [count], "none", count == 0) for name, count in left.items()]
    return verdicts


@contextlib.contextmanager
def _served(console: Console) -> Iterator[Server]:
    with workspace(quick=False, console=console) as space:
        home = space.scratch("server")
        (home / "images").symlink_to(space.image.rootfs.parents[1])
        server = Server(home)
        try:
            yield server
        finally:
            server.stop()


def soak(minutes: float, seed: int, console: Console) -> tuple[list[Verdict], dict[str, Any]]:
    """Runs server and clients; returns what came of it, and what else is to be told."""
    samples: list[dict[str, float]] = []
    parts: list[int] = []
    with _served(console) as server, tempfile.TemporaryDirectory(prefix="tvsnap-bench-") as made:
        results = Path(made) / "results"
        clients = Clients(server.url, seed)
        with tvsnap.connect(server.url) as client:
            for number in range(TENTHS):
                clients.run(60 * minutes / TENTHS, results)
                calls = len(results.read_text().split()) if results.exists() else 0
                parts.append(calls - sum(parts))
                samples.append(server.levels(client))
                console.print(f"[dim]{number + 1} of {TENTHS} parts, {clients.killed} clients killed, {calls} calls[/]")
        status = server.stop()
        sources = results.read_text().split() if results.exists() else []
        left: dict[str, float] = {
            "control groups": len(control_groups(server.home)),
            "processes": sum(str(server.home) in _read(one) for one in Path("/proc").glob("[0-9]*/cmdline")),
            "mounts": sum(str(server.home) in line for line in _read(Path("/proc/self/mounts")).splitlines()),
            "exit status": status,
            "clients that ended by themselves": len(clients.complaints),
            "parts without a call": parts.count(0),
        }
    told = {
        "killed": clients.killed,
        "calls": {source: sources.count(source) for source in sorted(set(sources))},
        "complaints": clients.complaints[:10],
        "samples": samples,
    }
    return judge(samples, left), told


def main() -> int:
    """Runs what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak_server", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"by default {MINUTES:g}")
    parser.add_argument("--seed", type=int, default=0, help="of what the clients do, and when they are killed")
    parser.add_argument(
        "--json", metavar="FILE", nargs="?", const="-", help="write JSON; by default to standard output"
    )
    options = parser.parse_args()
    console = Console(stderr=True, highlight=False)
    keep_few_arenas()
    try:
        if options.minutes <= 0:
            parser.error("--minutes must be more than 0")
        verdicts, told = soak(options.minutes, options.seed, console)
    except TvsnapError as error:
        console.print(f"[red]error:[/] {error}")
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    broken = [verdict.what for verdict in verdicts if verdict.holds is False]
    for line in told["complaints"]:
        console.print(line, markup=False)
    if options.json != "-":
        Console(width=WIDTH, highlight=False).print(to_table(verdicts))
    calls = ", ".join(f"{count} {source}" for source, count in told["calls"].items())
    console.print(f"{told['killed']} clients killed; calls: {calls}")
    console.print(f"not within bounds: {', '.join(broken)}" if broken else "all within bounds")
    if options.json:
        rows = [
            {"name": one.name, "what": one.what, "by_tenth": list(one.by_tenth), "bound": one.bound, "holds": one.holds}
            for one in verdicts
        ]
        text = json.dumps({"machine": machine.describe(), "verdicts": rows, **told}, indent=2) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
        else:
            Path(options.json).write_text(text, encoding="utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
