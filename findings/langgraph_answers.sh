#!/usr/bin/env bash
# langgraph 1.2.24: a node that asks by `interrupt`, its saved state, and other answers from there
#
# Guess: an earlier state takes another answer, which makes another end; a node that was done is not run again.
# Behaviour: the earlier state with the answer "no" gives "yes", the answer of the first time, without a word; it has to be run without an answer first,
# and then asks anew. The answer {} makes it ask again, while False, 0 and [] are answers. `except Exception` around the question catches it, so that
# nobody is asked. From an earlier state on, the newest one of its thread is that of the new end, and what came later is no longer it.
. "$(dirname "$0")/common.sh"
packages langgraph==1.2.24

cat >answers.py <<'PYTHON'
import itertools, operator
from typing import Annotated, TypedDict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
class State(TypedDict):
    notes: Annotated[list, operator.add]
def asks(state):
    return {"notes": [interrupt("go on?")]}
def catches(state):
    try:
        return {"notes": [interrupt("go on?")]}
    except Exception as error:
        return {"notes": [type(error).__name__]}
numbers = itertools.count()
def thread():
    return {"configurable": {"thread_id": str(next(numbers))}}
def graph_of(node):
    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return graph.compile(checkpointer=InMemorySaver())
def short(result):
    return "asked" if "__interrupt__" in result else result["notes"]
graph, one = graph_of(asks), thread()
print(short(graph.invoke({"notes": []}, one)), short(graph.invoke(Command(resume="yes"), one)))
earlier = next(state for state in graph.get_state_history(one) if state.next == ("node",)).config
print(short(graph.invoke(Command(resume="no"), earlier)))
print(short(graph.invoke({"notes": ["later"]}, one)), short(graph.invoke(Command(resume="yes"), one)))
print(short(graph.invoke(None, earlier)), short(graph.invoke(Command(resume="no"), one)), graph.get_state(one).values["notes"])
ends = []
for answer in (False, 0, [], {}):
    one = thread()
    graph.invoke({"notes": []}, one)
    ends.append(short(graph.invoke(Command(resume=answer), one)))
print(*ends)
print(short(graph_of(catches).invoke({"notes": []}, thread())))
PYTHON
python answers.py 2>errors >out || { cat errors >&2; exit 2; }
seen "asked, and answered by yes" "$(sed -n 1p out)" "asked ['yes']"
seen "the state before, answered by no" "$(sed -n 2p out)" "['yes']"
seen "a second question, and answered by yes" "$(sed -n 3p out)" "asked ['yes', 'later', 'yes']"
seen "the first state, run without an answer; then no; the thread's newest state" "$(sed -n 4p out)" "asked ['no'] ['no']"
seen "the answers False, 0, [] and {}" "$(sed -n 5p out)" "[False] [0] [[]] asked"
seen "a question within except Exception" "$(sed -n 6p out)" "['GraphInterrupt']"
