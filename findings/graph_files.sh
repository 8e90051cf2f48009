#!/usr/bin/env bash
# networkx 3.6.1, igraph 1.0.0: a graph of states and calls, written to a file and read again
#
# Guess: nodes, edges and attributes come back, or writing raises.
# Behaviour: `write_adjlist` splits a node "s 2" into two, and the graph that is read has no directions; a node 3 is "3" by all. By GML `label` of a
# node is gone, and true is 1; by GEXF each node without one has it. By GraphML, igraph makes whole numbers floats of 15 digits,
# and a missing truth value false; NCOL and Pajek lose all attributes but the name, without a word.
. "$(dirname "$0")/common.sh"
packages networkx==3.6.1 igraph==1.0.0 numpy==2.4.6

cat >graphs.py <<'PYTHON'
import igraph
import networkx as nx
graph = nx.DiGraph()
graph.add_node("s 2", label="tests fail", passed=False)
graph.add_node(3, passed=True)
graph.add_edge("s 2", 3, step=1)
for name in ("adjlist", "gml", "gexf"):
    getattr(nx, "write_" + name)(graph, name)
    back = getattr(nx, "read_" + name)(name)
    print(type(back).__name__, [(node, *sorted(data.items())) for node, data in back.nodes(data=True)])
graph = igraph.Graph(directed=True)
graph.add_vertex("a", step=1, passed=True, row=9007199254740993)
graph.add_vertex("b")
graph.add_edge("a", "b", call="ls")
for name in ("graphml", "gml", "ncol", "pajek", "pickle"):
    graph.write(name, format=name)
    back = igraph.Graph.Read(name, format=name)
    columns = ("name", "step", "passed", "row")
    print(*([vertex[column] if column in vertex.attributes() else "-" for column in columns] for vertex in back.vs), back.es[0].attributes())
PYTHON
python -W ignore graphs.py >out
line=0
back() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
back "networkx: s 2 and 3 by adjlist" "Graph [('s',), ('2',), ('3',)]"
back "by GML" "DiGraph [('s 2', ('passed', 0)), ('3', ('passed', 1))]"
back "by GEXF" "DiGraph [('s 2', ('label', 'tests fail'), ('passed', False)), ('3', ('label', '3'), ('passed', True))]"
back "igraph: name, step, passed, row of a and b by GraphML" "['a', 1.0, True, 9007199254740990.0] ['b', nan, False, nan] {'call': 'ls'}"
back "by GML" "['a', 1.0, 1.0, 9007199254740990.0] ['b', nan, 0.0, nan] {'call': 'ls'}"
back "by NCOL" "['a', '-', '-', '-'] ['b', '-', '-', '-'] {}"
back "by Pajek" "['a', '-', '-', '-'] ['b', '-', '-', '-'] {}"
back "by pickle" "['a', 1, True, 9007199254740993] ['b', None, None, None] {'call': 'ls'}"
