"""The servers of a fleet: which there are, which cannot be reached, and how many rollouts each has."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from tvsnap import Client, UsageError
from tvsnap.errors import NotFound
from tvsnap.graph.model import State
from tvsnap.plugins.client.http import Address, target
from tvsnap.plugins.client.liveness import LOST_S
from tvsnap.plugins.client.transport import HEALTH, Transport
from tvsnap.plugins.client.wire.errors import Unreachable, WorkerDied
from tvsnap.plugins.fleet.routing import choose, ranking

AGAIN = 10.0
"""Seconds after which a node that could not be reached is tried again."""
STATES = 100_000
"""States of which it is known where they were seen."""
LOST = (Unreachable, WorkerDied, ConnectionError)
"""Errors that mean that a rollout's node, or its process there, is gone."""

S = TypeVar("S")
T = TypeVar("T")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A server of a fleet.

    Attributes:
        url: its address.
        rollouts: open rollouts of this fleet that are there.
        lost: why it could not be reached lately; None if it could.
    """

    url: str
    rollouts: int
    lost: str | None


@dataclass(slots=True, eq=False)
class Node:
    """A server, and the connection to it.

    Attributes:
        url: its address.
        client: the connection.
        number: tells it from all others that there ever were in this process.
        id: the server's own id; None until it was first asked for something.
        lost: why it could not be reached lately; None if it could.
        until: when it is tried again, by time.monotonic().
    """

    url: str
    client: Client
    number: int = field(default_factory=lambda: next(_numbers))
    id: str | None = None
    lost: str | None = None
    until: float = 0.0


class Nodes:
    """The servers of one fleet. Thread-safe."""

    def __init__(self, *, token: str | None, spread: int, patience: float) -> None:
        """See `Fleet`."""
        self._token, self._spread, self._patience = token, spread, patience
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._of: defaultdict[Hashable, Counter[str]] = defaultdict(Counter)
        self._load: Counter[str] = Counter()
        self._seen_at: dict[str, str] = {}  # at which node a state was seen
        self._looked_at: set[str] = set()  # states into which somebody has looked

    def add(self, url: str) -> None:
        """Adds a server; see `Fleet.add`."""
        if not isinstance(url, str):
            raise UsageError(f"a server's address must be a text, not {url!r}")
        address = Address.parse(url)
        with self._lock:
            if any(Address.parse(other) == address for other in self._nodes):
                raise UsageError(f"{url} is in the fleet already")
            self._nodes[url] = Node(url, Client(Transport(url, self._token, self._patience)))

    def remove(self, url: str) -> None:
        """Takes a server out; see `Fleet.remove`."""
        with self._lock:
            if url not in self._nodes:
                raise NotFound(f"{url} is not in the fleet")
            if len(self._nodes) == 1:
                raise UsageError("a fleet needs at least one server")
            del self._nodes[url]

    def infos(self) -> list[NodeInfo]:
        """Returns what people are told of them; those that were lost are asked whether they live again."""
        with self._lock:
            lost = [node for node in self._nodes.values() if node.lost is not None]
        side_by_side(self._look_again, lost)
        with self._lock:
            return [NodeInfo(one.url, self._load[one.url], one.lost) for one in self._nodes.values()]

    def client(self, node: Node) -> Client:
        """Returns the connection to a node.

        Raises:
            UsageError: the server does not know the token, or is in the fleet by another address, too.
            Unreachable: there is no server.
        """
        if node.id is None:
            node.client.transport.get(target("rollouts"))  # which needs the token
            health = node.client.transport.get(HEALTH)
            with self._lock:
                id = str(health.get("id", node.number))  # older servers have none
                for other in self._nodes.values():
                    if other is not node and other.id == id:
                        raise UsageError(
                            f"{node.url} and {other.url} are the same server: give a fleet one of these addresses"
                        )
                node.id = id
        return node.client

    def mark_lost(self, node: Node, error: Exception) -> None:
        """Notes that a node cannot be reached: it is passed over for a while."""
        with self._lock:
            node.lost, node.until = str(error), time.monotonic() + AGAIN

    def _look_again(self, node: Node) -> None:
        """Finds out whether a node that was lost can be reached again."""
        try:
            node.client.transport.health(LOST_S)
        except (OSError, *LOST) as error:
            self.mark_lost(node, error)
        else:
            node.lost = None

    def reachable(self, apart_from: Iterable[str] = ()) -> list[Node]:
        """Returns the nodes that are not known to be lost; all, if that would be none."""
        with self._lock:
            now, avoided = time.monotonic(), set(apart_from)
            nodes = [node for node in self._nodes.values() if node.url not in avoided]
            due = [node for node in nodes if node.lost is not None and now >= node.until]
            for node in due:
                node.until = now + AGAIN  # others pass it over meanwhile
        side_by_side(self._look_again, due)
        return [node for node in nodes if node.lost is None] or nodes

    def assign(self, image: str, task: str, apart_from: Iterable[str] = ()) -> Node:
        """Returns the node for one more rollout of a task, which is counted there; see `release`.

        Raises:
            Unreachable: there is none.
        """
        there = {node.url: node for node in self.reachable(apart_from)}
        if not there:
            raise Unreachable("no server of the fleet can be reached")
        with self._lock:
            here = self._of.get((image, task), Counter())
            url = choose(ranking(image, task, there), here, self._load, self._spread)
            self._count((image, task), url, 1)
        return there[url]

    def count(self, key: Hashable, node: Node, change: int) -> None:
        """Notes that there are so many more rollouts of a key, (image, task) or another, at a node."""
        with self._lock:
            self._count(key, node.url, change)

    def _count(self, key: Hashable, url: str, change: int) -> None:
        here = self._of[key]
        here[url] += change
        self._load[url] += change
        if not any(here.values()):
            del self._of[key]

    def each(self, look: Callable[[Client], T]) -> list[tuple[Node, T]]:
        """Asks all nodes that can be reached; those that are lost meanwhile are left out.

        Raises:
            Unreachable: none can be reached.
        """
        nodes = self.reachable()
        answers = zip(nodes, side_by_side(lambda node: self._ask(node, look), nodes), strict=True)
        answered = [(node, answer[0]) for node, answer in answers if answer is not None]
        if not answered:
            raise Unreachable("no server of the fleet can be reached")
        return answered

    def first(self, look: Callable[[Client], T], at_first: str | None = None) -> tuple[Node, T]:
        """Asks one node after the other, the one with the address `at_first` first, until one knows what is asked for.

        Nodes that were lost come last: whether they can be reached again is found out if no other node knows it.

        Raises:
            NotFound: none that can be reached does.
            Unreachable: none can be reached.
        """

        def known(client: Client) -> T | NotFound:
            try:
                return look(client)
            except NotFound as error:
                return error

        missing: NotFound | None = None
        for node in self._one_after_the_other(at_first):
            answer = self._ask(node, known)
            if answer is None:
                continue
            if not isinstance(answer[0], NotFound):
                return node, answer[0]
            missing = missing or answer[0]
        raise missing or Unreachable("no server of the fleet can be reached")

    def _one_after_the_other(self, at_first: str | None) -> Iterator[Node]:
        """Yields the nodes in the order of `first`."""
        reachable = sorted(self.reachable(), key=lambda node: node.url != at_first)
        yield from reachable
        with self._lock:
            lost = [node for node in self._nodes.values() if node not in reachable]
        side_by_side(self._look_again, lost)
        yield from (node for node in lost if node.lost is None)

    def _ask(self, node: Node, look: Callable[[Client], T]) -> tuple[T] | None:
        """Asks a node; None if it is lost."""
        try:
            return (look(self.client(node)),)
        except LOST as error:
            self.mark_lost(node, error)
            return None

    def knowing(self, state: str) -> Node:
        """Returns a node that knows a state.

        Args:
            state: its hash, or a prefix of that.

        Raises:
            NotFound: none that can be reached does.
        """
        return self._find(state)[0]

    def _find(self, state: str) -> tuple[Node, State]:
        """Returns a node that knows a state, and the state; see `knowing`."""
        try:
            return self.first(lambda client: client.graph.resolve(state), self._seen_at.get(state))
        except NotFound as error:
            raise NotFound(f"no server of the fleet that can be reached knows it: {error}") from None

    def seen(self, state: str, node: Node) -> None:
        """Notes at which node a state was seen, which is asked first for it."""
        with self._lock:
            self._seen_at[state] = node.url
            if len(self._seen_at) > STATES:
                del self._seen_at[next(iter(self._seen_at))]

    def look_at(self, state: str) -> Node:
        """Returns a node that knows a state, into which somebody is about to look: see `was_looked_at`.

        Args:
            state: its hash, or a prefix of that.

        Raises:
            NotFound: none that can be reached does.
        """
        node, info = self._find(state)
        with self._lock:
            self._looked_at.add(info.hash)
        return node

    def was_looked_at(self, state: str) -> bool:
        """Returns whether somebody may have seen more of a state than what calls have returned."""
        with self._lock:
            return state in self._looked_at

    def numbered(self, number: int) -> Node:
        """Returns a node by its number; raises `NotFound` if it is not in the fleet any more."""
        with self._lock:
            for node in self._nodes.values():
                if node.number == number:
                    return node
        raise NotFound("the call's server is not in the fleet any more")

    def close(self) -> None:
        """Ends the rollouts of this fleet, and closes the connections."""
        with self._lock:
            clients = [node.client for node in self._nodes.values()]

        def close(client: Client) -> None:
            with contextlib.suppress(*LOST):
                client.close()

        side_by_side(close, clients)


def side_by_side(work: Callable[[S], T], things: Sequence[S]) -> list[T]:
    """Returns what `work` returns of each thing, in their order; threads do it if there are several."""
    if len(things) < 2:
        return [work(one) for one in things]
    with ThreadPoolExecutor(min(len(things), 64)) as threads:
        return list(threads.map(work, things))
