#!/usr/bin/env bash
# sqlitedict 2.1.0: a cache on disk, used like a dict
#
# Guess: keys come back as they were, other keys are other entries, and a key that is listed can be read.
# Behaviour: numbers become texts: 7 and "7" are one entry, listed as "7", and True is "1". A key None is added at each assignment, is listed
# as often, and cannot be read or removed. What is assigned without a commit is gone after `close`, unless `autocommit` is set.
. "$(dirname "$0")/common.sh"
packages sqlitedict==2.1.0

cat >keys.py <<'PYTHON'
from sqlitedict import SqliteDict
cache = SqliteDict("cache.db")
cache[7], cache["7"], cache[1], cache[True] = "number", "text", "one", "true"
print(list(cache.items()), 7 in list(cache), cache[7])
cache[None] = "first"
cache[None] = "second"
print(list(cache.items())[2:], len(cache), None in cache)
for do in cache.__getitem__, cache.__delitem__:
    try:
        print(do(None))
    except KeyError:
        print("KeyError")
cache.commit()
cache["late"] = 1
cache.close()
print("late" in SqliteDict("cache.db"))
PYTHON
python keys.py >out
seen "7, \"7\", 1 and True: entries, is 7 a key, cache[7]" "$(sed -n 1p out)" "[('7', 'text'), ('1', 'true')] False text"
seen "None twice: entries, length, is it there" "$(sed -n 2p out)" "[(None, 'first'), (None, 'second')] 4 False"
seen "reading and removing None" "$(sed -n 3,4p out | xargs)" "KeyError KeyError"
seen "an entry without a commit, after close" "$(sed -n 5p out)" "False"
