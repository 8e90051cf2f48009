#!/usr/bin/env bash
# PettingZoo 1.27.0 (pygame 2.6.1, NumPy 2.4.6): a copy of a game in its third move, by `copy.deepcopy` and by `pickle`
#
# Guess: a copy of the game as it stands, as by `copy.deepcopy` of an environment of Gymnasium; or an error.
# Behaviour: a new game with the arguments of the first, which was never reset: its board is empty, its player and rewards are missing, and
# after `reset` it begins anew. The class EzPickle, of which the games inherit, says for both that a game is its arguments.
. "$(dirname "$0")/common.sh"
packages pettingzoo==1.27.0 pygame==2.6.1 numpy==2.4.6 gymnasium==1.4.0

cat >copies.py <<'PYTHON'
import copy
import pickle
from pettingzoo.classic import connect_four_v3, tictactoe_v3
game = connect_four_v3.env()
game.reset(seed=1)
for move in (0, 1, 2):
    game.step(move)
def show(game):
    game = game.unwrapped
    print(sum(map(bool, game.board)), hasattr(game, "agent_selection"), hasattr(game, "rewards"))
for each in (game, copy.deepcopy(game), pickle.loads(pickle.dumps(game)), copy.copy(game)):
    show(each)
game = tictactoe_v3.env()
game.reset()
game.step(4)
for each in (game, copy.deepcopy(game)):
    print(list(map(int, each.unwrapped.board.squares)), each.unwrapped.agent_selection)
PYTHON
python copies.py 2>errors >out || { cat errors >&2; exit 2; }
sed -i '/^pygame /d; /^Hello from /d' out
seen "Connect Four, after three moves: pieces, whether it has a player and rewards" "$(sed -n 1p out)" "3 True True"
seen "by copy.deepcopy" "$(sed -n 2p out)" "0 False False"
seen "by pickle" "$(sed -n 3p out)" "0 False False"
seen "by copy.copy, which is of the same pieces" "$(sed -n 4p out)" "3 True True"
seen "tic-tac-toe, after a move: its board, and who is next" "$(sed -n 5p out)" "[0, 0, 0, 0, 1, 0, 0, 0, 0] player_2"
seen "by copy.deepcopy" "$(sed -n 6p out)" "[0, 0, 0, 0, 0, 0, 0, 0, 0] player_1"
