#!/usr/bin/env bash
# aiocache 0.12.3: cached functions of asyncio
#
# Guess: ttl=0 keeps nothing; a result None is kept; calls at the same time share one run; equal arguments are one key.
# Behaviour: ttl=0 keeps for ever. None is computed again each time. Three calls at once run three times. f(1), f(a=1) and f(1, 2) with 2 as the default are
# three keys.
. "$(dirname "$0")/common.sh"
packages aiocache==0.12.3

cat >cached.py <<'PYTHON'
import asyncio
from aiocache import cached
calls = []
@cached(ttl=0)
async def number():
    calls.append("number")
    return 1
@cached()
async def nothing():
    calls.append("nothing")
@cached()
async def slow():
    calls.append("slow")
    await asyncio.sleep(0.1)
    return 1
@cached()
async def default(a, b=2):
    calls.append("default")
    return a
async def main():
    for call in (number, nothing):
        await call()
        await asyncio.sleep(0.1)
        await call()
    await asyncio.gather(slow(), slow(), slow())
    for call in (default(1), default(a=1), default(1, 2), default(1)):
        await call
    print(", ".join(f"{name} {calls.count(name)}" for name in ("number", "nothing", "slow", "default")))
asyncio.run(main())
PYTHON
python cached.py >out
seen "runs of: two calls with ttl=0, two that give None, three at once, four equal ones" "$(cat out)" "number 1, nothing 2, slow 3, default 3"
