#!/usr/bin/env bash
# lancedb 0.40.0 (pyarrow 26.0.1): tokens and log-probabilities of rollouts as lists, and a table that another connection has open
#
# Guess: lists of numbers are kept as they are, whatever their column is called; a reader sees what the table is now, or an error.
# Behaviour: a list in a column with "vector" or "embedding" in its name (also `token_embedding_ids`) becomes numbers of 32 bits, so that 0.1
# is 0.10000000149011612; lists of other lengths are an error, and so is the token 16777217. A table that a connection has
# open does not change for it: it lacks the rows that another one added, and has those it removed, also of a table that it dropped. A row that is
# added to that one is not refused: the dropped name is listed again.
. "$(dirname "$0")/common.sh"
packages lancedb==0.40.0 pyarrow==26.0.1

cat >rollouts.py <<'PYTHON'
import lancedb
base = lancedb.connect("base")
def back(name, *lists):
    try:
        return [row[name] for row in base.create_table(name, [{name: each} for each in lists]).to_arrow().to_pylist()]
    except Exception as error:
        return type(error).__name__
print(back("tokens", [5, 16777217]), back("logprobs", [0.1]), back("lists", [1], [1, 2]))
print(back("token_embedding_ids", [5]), back("my_vectors", [0.1]))
print(back("embeddings", [5, 16777217]), back("vector", [1], [1, 2]))
reader = base.create_table("rollouts", [{"step": 1}])
def steps(table):
    return table.to_arrow()["step"].to_pylist()
writer = lancedb.connect("base")
writer.open_table("rollouts").add([{"step": 2}])
print(steps(reader))
writer.open_table("rollouts").delete("step = 1")
print(steps(reader), steps(writer.open_table("rollouts")))
writer.drop_table("rollouts")
print(steps(reader), "rollouts" in writer.list_tables().tables)
reader.add([{"step": 3}])
print("rollouts" in writer.list_tables().tables)
PYTHON
python rollouts.py 2>errors >out || { cat errors >&2; exit 2; }
seen "tokens, logprobs, and lists of two lengths" "$(sed -n 1p out)" "[[5, 16777217]] [[0.1]] [[1], [1, 2]]"
seen "token_embedding_ids of [5], my_vectors of [0.1]" "$(sed -n 2p out)" "[[5]] [[0.10000000149011612]]"
seen "embeddings of the same tokens, vector of two lengths" "$(sed -n 3p out)" "RuntimeError RuntimeError"
seen "steps 1 and 2, for the connection that did not add 2" "$(sed -n 4p out)" "[1]"
seen "1 was removed: for that one, and for the other" "$(sed -n 5p out)" "[1] [2]"
seen "the table was dropped: for that one, and whether it is listed" "$(sed -n 6p out)" "[1] False"
seen "that one has added a row: whether it is listed" "$(sed -n 7p out)" "True"
