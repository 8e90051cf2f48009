#!/usr/bin/env bash
# cachetools 8.0.2: one cache for two functions, as a size for all results of a tool set
#
# Guess: results of the one are not results of the other, as for `functools.lru_cache`, `joblib.Memory` and `diskcache.memoize`.
# Behaviour: the key holds the arguments alone. The second function is not called: it returns what the first one returned for
# equal arguments; so do two methods of an object with one cache, by `cachedmethod`.
. "$(dirname "$0")/common.sh"
packages cachetools==8.0.2

cat >shared.py <<'PYTHON'
from cachetools import LRUCache, cached, cachedmethod
results = LRUCache(maxsize=100)
@cached(results)
def read(path):
    return f"text of {path}"
@cached(results)
def size(path):
    return len(path)
print(read("notes"), "|", size("notes"), "|", size("other"))
class Grader:
    def __init__(self):
        self.results = LRUCache(maxsize=100)
    @cachedmethod(lambda self: self.results)
    def passed(self, rollout):
        return True
    @cachedmethod(lambda self: self.results)
    def reward(self, rollout):
        return 0.25
grader = Grader()
print(grader.passed(7), grader.reward(7), grader.reward(8))
PYTHON
python shared.py >out
seen "read and size of one path, size of another" "$(sed -n 1p out)" "text of notes | text of notes | 5"
seen "two methods for one rollout, the second one for another" "$(sed -n 2p out)" "True True 0.25"
