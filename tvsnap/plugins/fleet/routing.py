"""Which node a task is at: the same for all who know the same nodes, and changed for few tasks when a node goes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence


def ranking(image: str, task: str, nodes: Collection[str]) -> list[str]:
    """Returns nodes in the order in which a task prefers them.

    This is rendezvous hashing (Thaler and Ravishankar, Using name-based mappings to increase hit rates, IEEE/ACM ToN
    1998): each node has a number for each task, and the largest is the task's. When a node goes, only its tasks move,
    to the node that is next on each one's list; when one comes, it takes its part from all others.

    Args:
        image: the image's name or digest.
        task: the task.
        nodes: their names.
    """

    def number(node: str) -> bytes:
        return hashlib.sha256("\0".join((node, image, task)).encode("utf-8", "surrogatepass")).digest()

    return sorted(nodes, key=lambda node: (number(node), node), reverse=True)


def choose(preferred: Sequence[str], here: Mapping[str, int], load: Counter[str], spread: int) -> str:
    """Returns the node for one more rollout of a task.

    A task is at its first node until that has `spread` of its rollouts, then at its second, too, and so on: its states
    stay together while it is small, and a task that many rollouts are made of spreads. If all nodes have so many,
    the one with fewest rollouts gets it.

    Args:
        preferred: nodes as `ranking` gives them; at least one.
        here: the number of open rollouts of the task at each node.
        load: the number of all open rollouts at each node.
        spread: rollouts of a task at one node at most, while others have fewer.
    """
    for node in preferred:
        if here.get(node, 0) < spread:
            return node
    return min(preferred, key=lambda node: load[node])
