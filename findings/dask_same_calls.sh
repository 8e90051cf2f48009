#!/usr/bin/env bash
# dask and distributed 2026.8.0: the same function with the same arguments, several times
#
# Guess: each `submit` is a call; lists of other lengths are an error; an object has what its method did to it.
# Behaviour: equal calls are one: four answers to one prompt are the same answer, unless pure=False is said, and a call that has failed fails again
# without being run, while its result is held. With `dask.delayed` each is a call. `map` ends with the shortest list, and gives a list by name whole to
# each. A method that is submitted three times returns 1, 1 and 1. `take` of a bag takes from its first part alone; `fold` adds `initial` for each part.
. "$(dirname "$0")/common.sh"
packages distributed==2026.8.0 dask==2026.8.0

cat >calls.py <<'PYTHON'
import os, random
import dask, dask.bag
from distributed import Client
def sample(prompt):
    return random.random()
def first_fails(task):
    if not os.path.exists("tried"):
        open("tried", "w").close()
        raise OSError("not reachable")
    return "done"
class Environment:
    steps = 0
    def step(self):
        self.steps += 1
        return self.steps
def state(future):
    try:
        return future.result()
    except OSError as error:
        return str(error)
def main():
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, silence_logs=50) as client:
        print(*(len(set(client.gather(client.map(sample, ["prompt"] * 4, **options)))) for options in ({}, {"pure": False})))
        held = [client.submit(first_fails, 7)]
        print(state(held[0]), *(state(client.submit(first_fails, 7, **options)) for options in ({}, {"pure": False})), sep="; ")
        pair = lambda one, other: (one, other)
        print(client.gather(client.map(pair, [1, 2, 3], [1, 2])), client.gather(client.map(pair, [1, 2], other=[1, 2])))
        environment = Environment()
        print([client.submit(environment.step).result() for _ in range(3)], environment.steps)
    dask.config.set(scheduler="sync")
    print(len(set(dask.compute(*[dask.delayed(sample)("prompt") for _ in range(4)]))))
    bag = dask.bag.from_sequence(range(10), npartitions=5)
    print(bag.take(4, warn=False), bag.fold(lambda one, other: one + other, initial=1).compute())
main()
PYTHON
python calls.py 2>errors >out || { cat errors >&2; exit 2; }
seen "answers of four calls for one prompt; with pure=False" "$(sed -n 1p out)" "1 4"
seen "a call that fails once; again, while its result is held; again, with pure=False" "$(sed -n 2p out)" "not reachable; not reachable; done"
seen "map of three and two; of two, and a list by name" "$(sed -n 3p out)" "[(1, 1), (2, 2)] [(1, [1, 2]), (2, [1, 2])]"
seen "a method that counts, three times; the object's count" "$(sed -n 4p out)" "[1, 1, 1] 0"
seen "answers of four calls of dask.delayed" "$(sed -n 5p out)" "4"
seen "0 to 9 in five parts: take(4); their sum from 1 on" "$(sed -n 6p out)" "(0, 1) 50"
