#!/usr/bin/env bash
# langgraph 1.2.24: the state of a graph, with an interruption between two nodes and without one
#
# Guess: the second node sees the same state in both runs, as it is saved by type.
# Behaviour: without an interruption it sees what the first node has changed in place, and tuples, a Counter and a defaultdict as they were. With one, or
# in the saved state, the change is gone, a tuple is a list, and the others are dicts, so that counts[key] of a new key raises. A named tuple and a set
# come back. A misspelt field of the input or of a node's result is dropped.
. "$(dirname "$0")/common.sh"
packages langgraph==1.2.24

cat >state.py <<'PYTHON'
import operator
from collections import Counter, defaultdict
from typing import Annotated, Any, NamedTuple, TypedDict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
class Point(NamedTuple):
    x: int
class State(TypedDict, total=False):
    notes: Annotated[list, operator.add]
    given: Any
    reward: float
GIVEN = {"pair": (1, 2), "counts": Counter("aab"), "groups": defaultdict(list), "point": Point(1), "set": {1}}
def first(state):
    state["notes"].append("in place")
    return {"given": GIVEN, "rewrad": 1.0}
def second(state):
    print(state["notes"], *(type(value).__name__ for value in state["given"].values()), end=" ")
    try:
        print(state["given"]["counts"]["new"])
    except KeyError as error:
        print(type(error).__name__)
def run(**options):
    graph = StateGraph(State)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph = graph.compile(checkpointer=InMemorySaver(), **options)
    thread = {"configurable": {"thread_id": "1"}}
    graph.invoke({"notes": ["start"], "notse": ["x"]}, thread)
    if options:
        graph.invoke(None, thread)
    return graph.get_state(thread).values
run()
saved = run(interrupt_before=["second"])
print(saved["notes"], saved["given"]["pair"], sorted(saved))
PYTHON
python state.py 2>errors >out || { cat errors >&2; exit 2; }
seen "the second node: notes, types of a pair, counts, groups, a named tuple and a set; the count of a new key" "$(sed -n 1p out)" \
    "['start', 'in place'] tuple Counter defaultdict Point set 0"
seen "behind an interruption" "$(sed -n 2p out)" "['start'] list dict dict Point set KeyError"
seen "saved at the end: notes, the pair, fields" "$(sed -n 3p out)" "['start'] [1, 2] ['given', 'notes']"
