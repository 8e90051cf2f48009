"""Answers served over HTTP on kept connections: tvsnap's own route, TVCache's, and the server published for that.

The published one is measured where TVSNAP_TVCACHE_SERVER names the folder `tvcache/server` of a copy of TVCache's
repository and TVSNAP_TVCACHE_PYTHON a Python that has Flask and gunicorn. It keeps everything in memory; tvsnap has
written a record before it answers a PUT.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlencode

from benchmarks.figures import Figure, figure
from benchmarks.workspace import IMAGE, Workspace
from tvsnap.cache import Cache
from tvsnap.graph import NewEdge
from tvsnap.model.calls import ToolCall, ToolResult

ROOT = Path(__file__).parents[1]
CONNECTIONS = 8
TURNS = 3
SECONDS = 3.0
"""How long each turn of each contender lasts."""
WARM_UP = 0.5
TASKS, CALLS = 125, 4
"""Histories of TVCache's clients that are there to be asked for."""
RATE = 2048
"""Requests a second beside a busy processor."""
OUTPUT = "x" * 300
_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Served:
    """What a load came to.

    Attributes:
        count: how many requests were answered.
        seconds: how long that took.
        processor: seconds of processor time of the server meanwhile.
        waits: seconds until each answer was there, in order of size.
    """

    count: int
    seconds: float
    processor: float
    waits: Sequence[float]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.count / self.seconds

    @property
    def cost(self) -> float:
        """Seconds of processor time of a request."""
        return self.processor / self.count


class Target:
    """A server process, with those that it has started."""

    def __init__(self, command: Sequence[str], folder: Path, port: int, log: Path) -> None:
        """Starts it, and waits until it listens."""
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=out,
                stderr=out,
                env={**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
                start_new_session=True,
            )
        self.port = port
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the server did not start: {log.read_text()}") from None
            time.sleep(0.05)

    @property
    def processor(self) -> float:
        """Seconds of processor time that its processes have used."""
        total = 0.0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid:  # the session
                    total += (int(fields[11]) + int(fields[12])) * _TICK
        return total

    def stop(self) -> None:
        """Stops it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Load:
    """A client with several kept connections that sends requests made beforehand."""

    def __init__(self, target: Target, requests: Sequence[Iterator[bytes]]) -> None:
        """
        Args:
            target: whom it asks.
            requests: of each connection.
        """
        self._target = target
        self._requests = requests

    def closed(self, seconds: float) -> Served:
        """Sends a request on each connection as soon as the one before is answered."""
        return self._run(seconds, None)

    def paced(self, seconds: float, rate: float) -> Served:
        """Sends so many requests a second; a wait counts from when a request was due."""
        return self._run(seconds, rate)

    def _run(self, seconds: float, rate: float | None) -> Served:
        waits = list[float]()
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(contextlib.closing(selectors.DefaultSelector()))
            every = [stack.enter_context(_Connection(self._target.port, one)) for one in self._requests]
            idle = list(every)
            processor, began = self._target.processor, time.perf_counter()
            due, end = began, began + seconds
            while True:
                now = time.perf_counter()
                while idle and now < end and (rate is None or due <= now):
                    one = idle.pop(0)
                    one.send(now if rate is None else due)
                    selector.register(one, selectors.EVENT_READ)
                    due += 0.0 if rate is None else 1 / rate
                if now >= end and len(idle) == len(every):
                    break
                pause = None if rate is None or not idle else max(0.0, min(due, end) - now)
                for key, _ in selector.select(pause):
                    one = cast("_Connection", key.fileobj)
                    selector.unregister(one)
                    if one.receive():
                        waits.append(time.perf_counter() - one.since)
                        idle.append(one)
                    else:
                        selector.register(one, selectors.EVENT_READ)
            passed, used = time.perf_counter() - began, self._target.processor - processor
        return Served(len(waits), passed, used, sorted(waits))


class _Connection:
    """A kept connection; where the server closes it, before it has answered or after, another one is made."""

    def __init__(self, port: int, requests: Iterator[bytes]) -> None:
        self.since = 0.0
        self._port = port
        self._requests = requests
        self._request = b""
        self._socket = self._connected()

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Returns the descriptor that a selector looks at."""
        return self._socket.fileno()

    def send(self, since: float) -> None:
        """Sends the next request, whose wait began at a time."""
        self.since, self._request = since, next(self._requests)
        if self._socket.fileno() < 0:
            self._socket = self._connected()
        self._socket.sendall(self._request)

    def receive(self) -> bool:
        """Takes an answer; returns whether there was one, else the request was sent again."""
        try:
            head, _ = _read(self._socket)
        except ConnectionError:
            self._socket.close()
            self._socket = self._connected()
            self._socket.sendall(self._request)
            return False
        if b"connection: close" in head.lower():
            self._socket.close()
        return True

    def _connected(self) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", self._port), 60)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return one


def _read(one: socket.socket) -> tuple[bytes, bytes]:
    """Returns the head and the body of an answer, which must be a good one."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = one.recv(65536)
        if not more:
            raise ConnectionError(f"the server has closed the connection: {data!r}")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    assert b" 200 " in head[:16] or b" 201 " in head[:16], data
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += one.recv(65536)
    return head, body


def _request(method: str, target: str, body: object = None, **headers: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", "user-agent: python-requests/2.32.5", "accept: */*"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(data)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def _ask(target: Target, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", target.port), 60) as one:
        one.sendall(request)
        return _read(one)[1]


def _calls(task: int) -> list[str]:
    return [json.dumps({"name": "bash", "arguments": {"command": f"make step-{n} of-{task}"}}) for n in range(CALLS)]


_numbers = itertools.count()


def _put(task: str, history: Sequence[str]) -> bytes:
    made = {"task_name": task, "history": history, "env_id": f"env-{next(_numbers)}", "start_idx": len(history) - 1}
    return _request("PUT", "/put", {**made, "values": [OUTPUT], "tool_exec_times": [1.5]})


def _puts(name: str) -> Iterator[bytes]:
    for number in itertools.count():
        calls = _calls(number)
        for count in range(1, CALLS + 1):
            yield _put(f"{name}-{number}", calls[:count])


def _gets(seed: int) -> Iterator[bytes]:
    drawn = random.Random(seed)
    every = []
    for task in range(TASKS):
        for count in range(1, CALLS + 1):
            query = urlencode({"task_name": f"known-{task}", "tool_calls": _calls(task)[:count]}, doseq=True)
            every.append(_request("GET", f"/get?{query}"))
    while True:
        yield drawn.choice(every)


def _fill(target: Target) -> None:
    """Records the histories that are asked for."""
    for task in range(TASKS):
        for count in range(1, CALLS + 1):
            _ask(target, _put(f"known-{task}", _calls(task)[:count]))


def _hits(rollout: str) -> Iterator[bytes]:
    received = "none"
    for number in itertools.cycle(range(TASKS)):
        key = f"{next(_numbers):024d}"
        body = {"name": "bash", "arguments": {"command": f"cat file-{number}"}}
        yield _request("POST", f"/v1/rollouts/{rollout}/calls", body, idempotency_key=key, tvsnap_received=received)
        received = key


def _home(space: Workspace) -> Path:
    """Returns a data directory with the image, and with calls at its root that change nothing."""
    home = space.scratch("served")
    for name in ("images", "cache"):
        (home / name).symlink_to(space.images.packages.parent / name)
    with Cache(home) as cache, cache.rollout(IMAGE, salt="served") as rollout:
        for number in range(TASKS):
            call = ToolCall("bash", {"command": f"cat file-{number}"})
            result = ToolResult.of_text(OUTPUT, 0, 1.5)
            cache.graph.record(NewEdge(rollout.root, call, result, next_state=rollout.root, task="served"))
    return home


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def _ours(home: Path, *options: str) -> Target:
    port = _free_port()
    command = [sys.executable, "-c", "from cli.entry import main; main()", "--home", str(home), "serve"]
    return Target([*command, "--port", str(port), "--tvcache", *options], ROOT, port, home / "served.log")


def _published(home: Path, folder: Path, *, gunicorn: bool) -> Target:
    port = _free_port()
    python = os.environ.get("TVSNAP_TVCACHE_PYTHON", sys.executable)
    command = [python, "tvcache_server.py", "--host", "127.0.0.1", "--port", str(port)]
    if gunicorn:
        command = [python, "-m", "gunicorn", "--workers", "1", "--threads", "8", "--bind", f"127.0.0.1:{port}"]
        command += ["--keep-alive", "60", "tvcache_server:app"]
    return Target(command, folder, port, home / "published.log")


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """A block during which so many processes keep a processor busy each."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def run(space: Workspace) -> Iterator[Figure]:
    """Measures what a hit, a GET and a PUT take, and how many there are a second."""
    seconds = SECONDS / 3 if space.quick else SECONDS
    folder = os.environ.get("TVSNAP_TVCACHE_SERVER")
    home = _home(space)
    with contextlib.ExitStack() as stack:

        def started(target: Target) -> Target:
            stack.callback(target.stop)
            return target

        ours = started(_ours(home))
        contenders = {"tvsnap": ours}
        if folder is not None:
            contenders["Flask"] = started(_published(home, Path(folder), gunicorn=False))
            contenders["gunicorn"] = started(_published(home, Path(folder), gunicorn=True))
        for one in contenders.values():
            _fill(one)
        opened = _request("POST", "/v1/rollouts", {"image": IMAGE, "salt": "served", "task": "served"})
        rollouts = [json.loads(_ask(ours, opened))["id"] for _ in range(CONNECTIONS)]
        kinds: Mapping[str, Callable[[Target], Load]] = {
            "hit": lambda one: Load(one, [_hits(rollout) for rollout in rollouts]),
            "get": lambda one: Load(one, [_gets(seed) for seed in range(CONNECTIONS)]),
            "put": lambda one: Load(one, [_puts(f"{next(_numbers)}") for _ in range(CONNECTIONS)]),
        }
        found: dict[tuple[str, str], list[Served]] = defaultdict(list)
        for turn in range(TURNS):
            space.tell(f"served answers, turn {turn + 1} of {TURNS}; load {os.getloadavg()[0]:.1f}")
            for kind, make in kinds.items():
                for name, one in contenders.items():
                    if kind == "hit" and name != "tvsnap":
                        continue
                    load = make(one)
                    load.closed(WARM_UP)
                    found[kind, name].append(load.closed(seconds))
        words = {"hit": "hit, own route", "get": "GET, TVCache's", "put": "PUT, TVCache's"}
        for (kind, name), served in found.items():
            named = f"served_{kind}" if name == "tvsnap" else f"served_{kind}_{name.lower()}"
            subject = "" if name == "tvsnap" else name
            what = words[kind] if name == "tvsnap" else f"{words[kind]}, published server, {name}"
            target = 70 if kind != "put" and not subject else None
            yield figure(f"{named}_cost", f"{what}, processor time", [one.cost for one in served], "µs", at_most=target)
            yield figure(f"{named}_rate", what, [one.rate for one in served], "a second")
            if name == "tvsnap":
                waits = sorted(wait for one in served for wait in one.waits)
                yield figure(f"{named}_wait", f"{what}, wait", waits, "ms")
        with _busy(1):
            space.tell(f"{RATE} requests a second beside a busy processor")
            paced = [kinds["get"](ours).paced(seconds, RATE) for _ in range(TURNS)]
        p95 = [one.waits[int(0.95 * len(one.waits))] for one in paced]
        yield figure("served_paced", f"GET, {RATE} a second beside a busy core, p95", p95, "ms", at_most=3)
        yield figure("served_paced_median", "the same, median", [statistics.median(one.waits) for one in paced], "ms")
    many = _ours(home, "--workers", "2")
    try:
        loads = [kinds["get"](many).closed(seconds) for _ in range(TURNS)]
    finally:
        many.stop()
    yield figure("served_get_workers_cost", "GET, --workers 2, processor time", [one.cost for one in loads], "µs")
    yield figure("served_get_workers_rate", "GET, --workers 2", [one.rate for one in loads], "a second")
