"""A fleet on a Ray cluster: one tvsnap server on each node, started and followed by Ray."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tvsnap import InfrastructureError, UsageError
from tvsnap.plugins.fleet import Fleet as _Fleet
from tvsnap.plugins.fleet.fleet import SPREAD

LOOK_AGAIN = 2.0
"""Seconds between two looks at which nodes there are."""
STARTING = 120.0
"""Seconds that a server may take to start."""
_NODE = "{node}"
_SERVING = re.compile(r"serving at (\S+?)(?:,|$)", re.MULTILINE)


class _Server:
    """A tvsnap server on the node of a Ray worker, which ends with it."""

    def __init__(self, home: str, address: str, token: str, options: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tvsnap-ray-")
        tokens = Path(self._folder.name, "tokens")
        with open(os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
        command = ["setpriv", "--pdeathsig", "TERM", "--", sys.executable, "-m", "tvsnap", "serve", "--home", home]
        command += ["--host", address, "--port", "0", "--token-file", str(tokens), *options]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # it is read if the server does not start
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, stdin=subprocess.DEVNULL, text=True
        )

    def url(self) -> str:
        """Returns the server's address, once it listens; the file with the token is gone from then on."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._folder.cleanup()  # as nobody could once this process is killed
        if serving := _SERVING.search(line):
            return serving[1]
        self._log.seek(0)
        reason = self._log.read().decode(errors="replace").strip()[-500:]
        raise RuntimeError(f"the server of {socket.gethostname()} does not start: {reason or line!r}")

    def stop(self) -> None:
        """Ends the server as systemd would."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(60)


class Fleet(_Fleet):
    """A `tvsnap.fleet.Fleet` of the nodes of a Ray cluster; a context manager that ends its servers.

    Each node that is alive has one server, on a data directory of its own. Nodes that come get one, and those that go
    are taken out; the rollouts that were there go on elsewhere. The servers let in this fleet alone, by a token that is
    drawn for it.

    Attributes:
        token: the token that the servers ask for: for clients that connect to one of them by hand.
    """

    def __init__(
        self,
        *,
        home: str = "/var/lib/tvsnap",
        options: Sequence[str] = (),
        host: str | None = None,
        resources: Mapping[str, float] | None = None,
        store: str | None = None,
        spread: int = SPREAD,
        patience: float = 60.0,
        **starting: Any,
    ) -> None:
        """Starts servers on all nodes of the cluster that `ray.init` has connected this process to.

        Args:
            home: the data directory on each node; `{node}` in it becomes the node's id, for several nodes on one
                machine.
            options: more options of `tvsnap serve`, such as `["--workers", "4"]`.
            host: the address at which the servers listen; by default that by which Ray reaches the node.
            resources: custom resources of Ray that a node must have, so that sandboxes are on some nodes only.
            store: the object store from which each server pulls a task when it begins there, and into which it pushes
                it, so that a node that takes a task over is warm; None for none.
            spread: see `tvsnap.fleet.Fleet`.
            patience: see `tvsnap.fleet.Fleet`.
            starting: options of Ray's actors, such as `runtime_env`.

        Raises:
            UsageError: Ray is missing or not connected, or no node has the resources.
            InfrastructureError: a server does not start.
        """
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError("the package ray is missing: pip install 'tvsnap[ray]'") from None
        if not ray.is_initialized():
            raise UsageError("Ray is not connected: call ray.init(address=...) first")
        self._ray = ray
        self.token = secrets.token_urlsafe(24)
        store_options = [] if store is None else ["--store", store]
        self._home, self._host, self._options, self._starting = home, host, [*options, *store_options], starting
        self._resources = dict(resources or {})
        self._actors: dict[str, tuple[Any, str]] = {}  # by node: what runs its server, and the address
        self._stopped = threading.Event()
        try:
            urls = [self._started(node) for node in self._fitting()]
            if not urls:
                raise UsageError(f"no node of the cluster is alive and has {self._resources or 'anything'}")
            super().__init__(urls, token=self.token, spread=spread, patience=patience)
        except BaseException:
            self._stop_servers()
            raise
        self._watcher = threading.Thread(target=self._watch, name="tvsnap-ray", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Ends its rollouts and the servers; safe to repeat."""
        self._stopped.set()
        self._watcher.join()
        super().close()
        self._stop_servers()

    def _fitting(self) -> dict[str, str]:
        """Returns the nodes that are alive and have the resources: their addresses by id."""
        return {
            node["NodeID"]: node["NodeManagerAddress"]
            for node in self._ray.nodes()
            if node["Alive"]
            and all(node["Resources"].get(name, 0.0) >= least for name, least in self._resources.items())
        }

    def _started(self, node: str) -> str:
        """Starts the server of a node; returns its address."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node, soft=False)
        settings = {"num_cpus": 0, "max_restarts": 0, **self._starting, "scheduling_strategy": there}
        home, address = self._home.replace(_NODE, node), self._host or self._fitting()[node]
        actor = self._ray.remote(_Server).options(**settings).remote(home, address, self.token, self._options)
        try:
            url = str(self._ray.get(actor.url.remote(), timeout=STARTING))
        except Exception as error:
            self._ray.kill(actor)
            reason = getattr(error, "cause", None) or error
            raise InfrastructureError(f"no server runs on Ray's node {node[:12]} ({address}): {reason}") from None
        self._actors[node] = actor, url
        return url

    def _watch(self) -> None:
        """Follows the cluster: nodes that come and go."""
        while not self._stopped.wait(LOOK_AGAIN):
            with contextlib.suppress(Exception):  # of Ray, which may be about to go; it is looked again
                self._follow()

    def _follow(self) -> None:
        alive = self._fitting()
        for node in set(self._actors) - set(alive):
            _, url = self._actors[node]
            if len(self.nodes) > 1:
                self.remove(url)
                del self._actors[node]
        for node in set(alive) - set(self._actors):
            self.add(self._started(node))

    def _stop_servers(self) -> None:
        for actor, _ in self._actors.values():
            with contextlib.suppress(Exception):  # one that is gone is stopped
                self._ray.get(actor.stop.remote(), timeout=STARTING)
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
        self._actors.clear()
