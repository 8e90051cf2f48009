#!/usr/bin/env bash
# dogpile.cache 1.5.0 and cashews 7.6.0: a cached function that is called with other arguments
#
# Guess: other arguments are another entry; at most 1 and 1.0 are one, as in a dict.
# Behaviour: the key is one text, made of the arguments' texts with a separator between them. dogpile has a space: f("a b")
# is f("a", "b"), and 1 is "1", None is "None". cashews has a colon: a list ["a", "b"] is "a:b" and ("a", "b"), None is "",
# and {"a": 1} is "a:1". The first call's result is what the other ones are given.
. "$(dirname "$0")/common.sh"
packages dogpile.cache==1.5.0 cashews==7.6.0

cat >keys.py <<'PYTHON'
import asyncio
from cashews import cache
from dogpile.cache import make_region
region = make_region().configure("dogpile.cache.memory")
@region.cache_on_arguments()
def search(*arguments):
    return arguments
print(search("rm", "a b") and search("rm", "a", "b"), search(1) and search("1"), search("None") and search(None))
cache.setup("mem://")
@cache(ttl="1h")
async def ask(argument):
    return argument
async def main():
    for first, second in ([["a", "b"], "a:b"], [None, ""], [{"a": 1}, "a:1"], [1, "1"]):
        await ask(first)
        print(repr(await ask(second)), end=" ")
asyncio.run(main())
PYTHON
python keys.py >out
seen "dogpile, results of (rm, a, b), ('1') and (None)" "$(sed -n 1p out)" "('rm', 'a b') (1,) ('None',)"
seen "cashews, results of 'a:b', '', 'a:1' and '1'" "$(sed -n 2p out)" "['a', 'b'] None {'a': 1} 1 "
