"""Monte Carlo tree search over the states of a sandbox, beside best-of-n at the same number of graded rollouts.

    .venv/bin/python examples/tree_search.py                    # 40 rounds of the search
    .venv/bin/python examples/tree_search.py --best-of 40       # 40 rollouts from the beginning

A round begins at a state (`cache.resume`), in a fork with its files and processes: the calls that led there are not
made again. Two ways to one state are one node. Commands are drawn at random; a language model would propose them. Run
`tvsnap image build terminal` once before.
"""

import argparse
import math
import random
import time
from dataclasses import dataclass, field

import tvsnap

SETUP = "mkdir /w && cd /w && git init -q . && git config user.email a@b && git config user.name a && seq 30 > in"
COMMANDS = ["sort -rn in > out", "head -3 in > out", "sed -i 1d in", "git add -A", "git commit -qm done", "rm -f out"]
CHECK = """cd /w; score=0; [ "$(head -1 out)" = 30 ] && score=0.5
[ $score = 0.5 ] && [ "$(git show HEAD:out | head -1)" = 30 ] && score=1
echo $score"""
DEPTH = 4  # commands of a rollout


@dataclass
class Node:
    """A state, and what rollouts through it came to."""

    untried: list[str] = field(default_factory=COMMANDS.copy)
    children: dict[str, str] = field(default_factory=dict)  # the states that commands lead to
    visits: int = 0
    total: float = 0.0

    def worth(self, parent: "Node") -> float:
        """Returns the mean reward, and more where little is known (UCT)."""
        return self.total / self.visits + math.sqrt(2 * math.log(parent.visits) / self.visits)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=40)
parser.add_argument("--best-of", type=int, help="begin so many rollouts at the root instead")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
chance, best = random.Random(options.seed), (0.0, "nothing")
with tvsnap.Cache() as cache:
    with cache.rollout("terminal", "search", salt=str(time.time_ns())) as first:
        first.call("bash", {"command": SETUP})
        first.snapshot_if_idle()  # so that rollouts can begin in the state for certain
        root = first.state
    nodes = {root: Node()}
    for _ in range(options.best_of or options.rounds):
        path, made = [root], list[str]()
        node = nodes[root]
        while not options.best_of and not node.untried and len(made) < DEPTH:
            parent = node
            made.append(max(parent.children, key=lambda one: nodes[parent.children[one]].worth(parent)))
            path.append(parent.children[made[-1]])
            node = nodes[path[-1]]
        with cache.resume(path[-1], "search") as rollout:
            if not options.best_of and len(made) < DEPTH:  # a command that was not tried in this state
                made.append(node.untried.pop(chance.randrange(len(node.untried))))
                rollout.call("bash", {"command": made[-1]})
                rollout.snapshot_if_idle()
                path.append(rollout.state)
                node.children[made[-1]] = rollout.state
                nodes.setdefault(rollout.state, Node())
            while len(made) < DEPTH:  # and any others after it
                made.append(chance.choice(COMMANDS))
                rollout.call("bash", {"command": made[-1]})
            reward = rollout.grade(tvsnap.Verifier(CHECK)).reward
        best = max(best, (reward, "; ".join(made)))
        for state in path:
            nodes[state].visits, nodes[state].total = nodes[state].visits + 1, nodes[state].total + reward
    stats = cache.stats()
print(f"best reward {best[0]:g}: {best[1]}")
print(f"{stats.executed} calls executed, {stats.hits} answered, {len(nodes)} states in the search")
