"""This process's side of the relay: opens ways out for sandboxes, and fetches the reports on their network use."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tvsnap.model.errors import InfrastructureError
from tvsnap.model.network import Network, Traffic
from tvsnap.sandboxes.network.attach import WayOut, attach
from tvsnap.sandboxes.network.resolver import has_version_6, own_networks
from tvsnap.sandboxes.network.rules import rules_of
from tvsnap.sandboxes.network.settings import NetworkSettings

NOT_KNOWN = "(not known: the program that counts it had ended)"
"""Entry for the unknown targets of a sandbox before its way out was opened again."""
_LONGEST_ANSWER = 1 << 20
_ANSWER_TIMEOUT = 30.0  # seconds; on a busy machine the relay takes a second to start


class _RelayEnded(InfrastructureError):
    """The relay ended, or was ended because it did not answer; another one can be started."""


class Gateway:
    """The ways out of the sandboxes of one process. Thread-safe."""

    def __init__(self, home: Path, settings: NetworkSettings) -> None:
        """Takes the data directory and the host's settings; starts nothing yet."""
        self._home = home
        self._settings = settings
        self._lock = threading.RLock()
        self._ways: dict[str, tuple[Network, WayOut]] = {}
        self._unknown: set[str] = set()  # sandboxes that lost their records when a relay ended
        self.relay: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._closed = False

    def open(self, id: str, init: int, network: Network) -> None:
        """Opens a way out of a sandbox.

        Raises MachineLacks if this machine cannot do that, and InfrastructureError if the relay does not start.

        Args:
            id: the sandbox's.
            init: its PID 1, as the host sees it.
            network: the policy.
        """
        rules = rules_of(network, self._settings, own_networks(), self._settings.proxy is not None or has_version_6())
        way = attach(init, rules, udp=self._settings.proxy is None)
        with self._lock:
            try:
                self._ask_relay()
                self._ways[id] = (network, way)
                try:
                    self._say_open(id)
                except _RelayEnded:
                    self._ask_relay()
            except BaseException:
                self._ways.pop(id, None)
                way.close()
                raise

    def traffic(self, id: str, *, forget: bool = True) -> Traffic:
        """Returns a sandbox's requests to the network since the last call with `forget`.

        Raises InfrastructureError if the relay does not answer.
        """
        reply = self._ask(id, "take" if forget else "tell")
        names, unknown = tuple(reply["asked"]), id in self._unknown
        if forget:
            self._unknown.discard(id)
        return Traffic(
            (*names, NOT_KNOWN) if unknown else names,
            tuple(reply["refused"]),
            reply["open"],
            reply["stirred"] or unknown,
        )

    def reset(self, id: str) -> int:
        """Ends all connections out of a sandbox, like a failing network; returns how many.

        Raises InfrastructureError if the relay does not answer.
        """
        return int(self._ask(id, "reset")["reset"])

    def close_way(self, id: str) -> None:
        """Closes the way out of a sandbox; may be repeated."""
        with self._lock:
            if id in self._ways:
                with contextlib.suppress(InfrastructureError):
                    if self.relay is not None and self.relay.poll() is None:
                        self._send({"id": id, "do": "close"}, ())
                self._forget(id)

    def close(self) -> None:
        """Ends the relay, and closes all ways; may be repeated."""
        with self._lock:
            self._closed = True
            self._end_relay()
            for id in list(self._ways):
                self._forget(id)

    def _ask(self, id: str, what: str) -> Mapping[str, Any]:
        message = {"id": id, "do": what}
        with self._lock:
            self._ask_relay()
            try:
                return self._send(message, ())
            except _RelayEnded:
                self._ask_relay()
                return self._send(message, ())

    def _ask_relay(self) -> None:
        """Starts the relay unless it runs; a restarted one gets all ways again."""
        if self._closed:
            raise InfrastructureError("the gateway of the sandboxes is closed")
        if self.relay is not None and self.relay.poll() is None:
            return
        died = self.relay is not None
        self._end_relay()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lent = asdict(self._settings)
        lent["certificates"] = str(lent["certificates"]) if lent["certificates"] else None
        with theirs:
            # Not by "-m", which would import modules from the current directory.
            self.relay = subprocess.Popen(
                [sys.executable, "-c", _START, str(self._home), json.dumps(lent)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"},
            )
        self._control = ours
        ours.settimeout(_ANSWER_TIMEOUT)
        if died:
            for id in self._ways:
                self._say_open(id)
                self._unknown.add(id)

    def _say_open(self, id: str) -> None:
        network, way = self._ways[id]
        message = {"id": id, "do": "open", "network": str(network), "space": network.space}
        self._send(message, way.descriptors)

    def _send(self, message: Mapping[str, Any], descriptors: Sequence[int]) -> Mapping[str, Any]:
        assert self._control is not None
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))
            data = self._control.recv(_LONGEST_ANSWER)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "it ended")
        except OSError as error:
            self._end_relay()
            raise _RelayEnded(f"the network of sandboxes does not answer: {error.strerror or error}") from None
        answer: Mapping[str, Any] = json.loads(data)
        if "error" in answer:
            raise InfrastructureError(f"the network of sandboxes failed: {answer['error']}")
        return answer

    def _end_relay(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self.relay is not None:
            self.relay.terminate()
            self.relay.wait()

    def _forget(self, id: str) -> None:
        _, way = self._ways.pop(id)
        self._unknown.discard(id)
        way.close()


_START = "from tvsnap.sandboxes.network.relay import main; main()"
