"""`Fleet`: what `tvsnap.connect` gives of one server, of many."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import Any, TypeVar

from tvsnap import Client, Image, UsageError
from tvsnap.errors import NotFound
from tvsnap.graph.model import Edge, Forgotten
from tvsnap.graph.reexecution import Remade
from tvsnap.model.arguments import check_seconds, check_whole
from tvsnap.model.forks import Forks
from tvsnap.model.network import NetworkLike
from tvsnap.model.operations.caches import CacheMethods, Expect, OpenRollout, Resume, Values
from tvsnap.model.operations.operation import Operation
from tvsnap.plugins.client.client import RemoteRollout, RemoteSandbox
from tvsnap.plugins.client.terminals import Terminal
from tvsnap.plugins.fleet.graph import FleetGraph, FleetImages
from tvsnap.plugins.fleet.nodes import Node, NodeInfo, Nodes
from tvsnap.plugins.fleet.rollout import FleetRollout, Opening, together
from tvsnap.types import Stats

SPREAD = 64
"""Open rollouts of a task that one node has, before the task spreads to another."""

K = TypeVar("K")
T = TypeVar("T")


class Fleet(CacheMethods[FleetRollout, RemoteSandbox]):
    """Many tvsnap servers, each on a data directory of its own, as one cache; a context manager. Thread-safe.

    A task's rollouts are at one server, so that they share states; a task that many rollouts are made of spreads. When
    a server is lost, its tasks go to others, and the rollouts that it had go on there: their calls are made again (or
    answered, if others made them), and compared with what they have been shown. If something else comes out, the
    rollout ends with `StateLost`: what a rollout was shown is the past of the state that it goes on from.

    Attributes:
        graph: the graphs of all servers, looked at as one.
        images: the images of all servers.
    """

    def __init__(
        self, urls: Iterable[str], *, token: str | None = None, spread: int = SPREAD, patience: float = 60.0
    ) -> None:
        """
        Args:
            urls: the servers' addresses, as `tvsnap.connect` takes them. They are reached when they are needed.
                Two addresses of one server are an error then.
            token: the token that the servers ask for; None if they ask for none.
            spread: open rollouts of a task that one server has, before the task spreads to another.
            patience: seconds to wait while a server's sandboxes are used up.

        Raises:
            UsageError: there are no addresses, one is none, or one is there twice.
        """
        check_whole(spread, "spread", 1)
        if isinstance(urls, str) or not isinstance(urls, Iterable):
            raise UsageError(f"urls must be several addresses, as a list, not {urls!r}")
        check_seconds(patience, "patience", least=0.0)
        self._nodes = Nodes(token=token, spread=spread, patience=patience)
        self._closed = False
        self.graph = FleetGraph(self._nodes)
        self.images = FleetImages(self._nodes)
        for url in urls:
            self.add(url)
        if not self.nodes:
            raise UsageError("a fleet needs at least one server")

    # -- nodes ------------------------------------------------------------------------------------------------------

    def add(self, url: str) -> None:
        """Adds a server; from then on, it has its part of the tasks.

        Args:
            url: its address.

        Raises:
            UsageError: it is there already, or is no address, or the fleet is closed.
        """
        self._check_open()
        self._nodes.add(url)

    def remove(self, url: str) -> None:
        """Takes a server out: no rollout begins there any more, and those that are there end as they would.

        Args:
            url: its address.

        Raises:
            NotFound: it is not in the fleet.
            UsageError: it is the last one.
        """
        self._nodes.remove(url)

    @property
    def nodes(self) -> list[NodeInfo]:
        """The servers; one that was lost is asked, for 2 s at most, whether it can be reached again."""
        return self._nodes.infos()

    # -- rollouts, and what comes -----------------------------------------------------------------------------------

    def begin(self, opening: OpenRollout | Resume) -> FleetRollout:
        """Begins a rollout: at the root of an image, at the task's server; at a state, at a server that knows it.

        Raises:
            NotFound: the server has no such image, or no server that can be reached knows the state.
            UsageError: an argument makes no sense, or the fleet is closed.
            Unreachable: none of the servers that were tried can be reached.
            StateLost: what kept the state is gone, and nothing else leads to it.
        """
        self._check_open()

        def begin(client: Client) -> RemoteRollout:
            return client.begin(opening)

        if isinstance(opening, OpenRollout):
            image = opening.image
            name, task = image.name if isinstance(image, Image) else str(image), str(opening.task)
            assign = partial(self._nodes.assign, name, task)
            return FleetRollout(self._nodes, Opening((name, task), assign, begin))
        state = opening.state
        key = ("state", state)

        def place(tried: set[str]) -> Node:
            node = self._nodes.knowing(state)
            self._nodes.count(key, node, 1)
            return node

        return FleetRollout(self._nodes, Opening(key, place, begin))

    def perform(self, operation: Operation[T]) -> T:
        """Performs an operation at each server; of rollouts that are announced, each prepares a part.

        Raises:
            UsageError: several servers have what rollouts of one task are to be valued by; or as each server.
        """
        part: Operation[Any] = operation
        if isinstance(operation, Expect) and isinstance(operation.n, int):
            servers = max(1, len(self._nodes.reachable()))
            part = replace(operation, n=-(-operation.n // servers))
        answers: list[Any] = [answer for _, answer in self._nodes.each(lambda client: client.perform(part))]
        if isinstance(operation, Values):
            answers = [each for each in answers if each.rollouts] or answers[:1]
            if len(answers) > 1:
                raise UsageError(
                    f"task {operation.task!r} has rollouts with a reward at {len(answers)} servers, and none compares "
                    "them all: ask each by a Client"
                )
        first: T = answers[0]
        return first

    # -- states -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _materialised(self, state: str, after: float, network: NetworkLike) -> Iterator[RemoteSandbox]:
        # A rollout that stands in that state, or came by it, goes on at another server only if it gets to the same one.
        with self._knowing(state).materialise(state, after=after, network=network) as sandbox:
            yield sandbox

    def _made(self, state: str, n: int) -> Forks[RemoteSandbox]:
        return self._knowing(state).fork(state, n)

    def _forked(self, opening: Resume, n: int) -> Forks[FleetRollout]:
        return together(self._all_or_none(self.begin(opening) for _ in range(n)))

    def terminal(self, state: str, columns: int = 80, rows: int = 24) -> Terminal:
        """Returns the terminal of a fork of a state; see `Client.terminal`.

        Args:
            state: the state's full hash.
            columns, rows: the size of the terminal in cells.

        Raises:
            NotFound: no server that can be reached knows the state.
        """
        return self._knowing(state).terminal(state, columns, rows)

    def reexecute(self, edge: Edge) -> Remade:
        """Makes a recorded call once more at its server; see `Cache.reexecute`.

        Args:
            edge: the recorded call, from `graph`.

        Raises:
            UsageError: `edge` is not a `tvsnap.graph.Edge`, or was made in no sandbox.
            StateLost: what kept the state is gone, and nothing else leads to it.
        """
        if not isinstance(edge, Edge):
            raise UsageError(f"edge must be a tvsnap.graph.Edge, not {edge!r}")
        node, own = self.graph.split(edge.id)
        return self._nodes.client(node).reexecute(replace(edge, id=own))

    def diff(self, kind: type[K], a: str, b: str, *, patch: bool = False) -> K:
        """Returns how two states differ that one server knows; see `Client.diff`.

        Args:
            kind: `tvsnap.upkeep.diff.StateDifference`.
            a, b: their hashes.
            patch: compare text files line by line.

        Raises:
            NotFound: no server that can be reached knows both.
        """
        return self._nodes.first(lambda client: client.diff(kind, a, b, patch=patch))[1]

    def forget(self, **which: Any) -> tuple[Forgotten, int]:
        """Deletes what belongs to a state, a task or an image at all servers that can be reached; see `Client.forget`.

        Args:
            which: one of `state`, `task` and `image`; and `dry_run`.

        Returns:
            What was deleted, and the bytes that this frees.

        Raises:
            NotFound: no server knows it.
        """
        forgotten, freed = Forgotten(0, 0, 0, 0, ()), 0
        self._nodes.first(lambda client: client.forget(**{**which, "dry_run": True}))  # raises if none knows it
        for _, answer in self._nodes.each(partial(_forgotten, which=which)):
            if answer is not None:
                forgotten, freed = forgotten + answer[0], freed + answer[1]
        return forgotten, freed

    # -- figures, and its end ---------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Returns what the servers that can be reached have done together; see `Cache.stats`."""
        return reduce(Stats.__add__, self.stats_by_server().values())

    def stats_by_server(self) -> dict[str, Stats]:
        """Returns what each of the servers that can be reached has done, by address."""
        return {node.url: stats for node, stats in self._nodes.each(lambda client: client.stats())}

    def close(self) -> None:
        """Ends its rollouts at all servers, and closes the connections; safe to repeat."""
        self._closed = True
        self._nodes.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _knowing(self, state: str) -> Client:
        """Returns the connection to a server that knows a state, into which somebody is about to look."""
        return self._nodes.client(self._nodes.look_at(state))

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the fleet has been closed")


def _forgotten(client: Client, which: dict[str, Any]) -> tuple[Forgotten, int] | None:
    """Forgets something at a server; None if it knows nothing of it."""
    try:
        return client.forget(**which)
    except NotFound:
        return None
