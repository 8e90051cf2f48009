#!/usr/bin/env bash
# rustworkx 0.18.1: a graph of states, beside networkx 3.6.1
#
# Guess: an index is of one node for good; neighbours come in the order in which they were added, as in networkx; what is not there raises.
# Behaviour: a node that is added has the index of one that was removed. Successors come in reverse order, and so does a topological order. A subgraph
# has the nodes by their index, not as they were given. No path leads from a node to itself. Row 2 of the matrix is node 3 once another is
# gone. A node that is not there has no successors and the degree 0, and is removed without a word.
. "$(dirname "$0")/common.sh"
packages rustworkx==0.18.1 networkx==3.6.1 numpy==2.4.6

cat >indices.py <<'PYTHON'
import networkx as nx
import rustworkx as rx
def new():
    graph = rx.PyDiGraph()
    graph.add_nodes_from(["root", "a", "b", "c"])
    graph.add_edges_from([(0, 1, "ls"), (0, 2, "rm"), (0, 3, "mv")])
    return graph
other = nx.DiGraph([("root", "a"), ("root", "b"), ("root", "c")])
graph = new()
print(*graph.successors(0), "|", *(graph[node] for node in rx.topological_sort(graph)), "|", *other.successors("root"), "|", *nx.topological_sort(other))
print(*graph.subgraph([3, 0, 1]).nodes(), "|", rx.has_path(graph, 0, 0), nx.has_path(other, "root", "root"))
graph.remove_node(1)
print(*(rx.adjacency_matrix(graph, lambda edge: 1.0)[0]), "|", *graph.node_indices())
graph.remove_node(99)
print(graph.successors(99), graph.out_degree(99), graph.add_node("new"), graph[1])
PYTHON
python indices.py >out
line=0
shown() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
shown "root's successors and an order, and those of networkx" "c b a | root c b a | a b c | root a b c"
shown "the subgraph of c, root and a; a path from root to root, also for networkx" "root a c | False True"
shown "root's row of the matrix, and the indices, without a" "0.0 1.0 1.0 | 0 2 3"
shown "successors and degree of 99, the index of a new node, and that node" "[] 0 1 new"
