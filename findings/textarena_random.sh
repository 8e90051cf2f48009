#!/usr/bin/env bash
# TextArena 0.7.4: two games in one process, each with its own seed
#
# Guess: a game with a seed goes on in the same way, whatever other games do; the numbers of the trainer are its own.
# Behaviour: a reset seeds Python's `random` of the whole process, and games draw from it: after another game was begun the
# first one has other cards, and a trainer that draws with `random` after each reset has the same numbers each time.
. "$(dirname "$0")/common.sh"
packages textarena==0.7.4

cat >play.py <<'PYTHON'
import random
import textarena
def begin(seed):
    game = textarena.make("Blackjack-v0-raw")
    game.reset(num_players=1, seed=seed)
    return game
def play(between):
    game = begin(1)
    between()
    for _ in range(3):
        game.step("[Hit]")
    return str(game.get_observation())
alone = play(lambda: None)
print(alone == play(lambda: None), alone == play(lambda: begin(2)), alone == play(random.random))
drawn = []
for _ in range(3):
    begin(5)
    drawn.append(random.random())
print(len(set(drawn)))
PYTHON
python play.py 2>errors >out || { cat errors >&2; exit 2; }
seen "same game again, with another begun in between, with a number drawn in between" "$(tail -n 2 out | head -n 1)" "True False False"
seen "different numbers of three, each drawn after a reset" "$(tail -n 1 out)" "1"
